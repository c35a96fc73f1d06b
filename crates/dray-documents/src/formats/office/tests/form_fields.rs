//! Tests of the state of form fields (read-attachment 7.6).

use super::docx::{docx, p, r};
use super::{DOCX, markdown};

/// A field with this data, instruction and result.
fn field(data: &str, instruction: &str, result: &str) -> String {
    let mark = |kind: &str, data: &str| {
        format!("<w:r><w:fldChar w:fldCharType=\"{kind}\">{data}</w:fldChar></w:r>")
    };
    [
        mark(
            "begin",
            &format!("<w:ffData><w:name w:val=\"n\"/>{data}</w:ffData>"),
        ),
        format!("<w:r><w:instrText> {instruction} </w:instrText></w:r>"),
        mark("separate", ""),
        result.to_owned(),
        mark("end", ""),
    ]
    .concat()
}

#[test]
fn check_boxes_and_lists_show_their_state() {
    let check_box = |state: &str| {
        let data = format!("<w:checkBox><w:sizeAuto/>{state}</w:checkBox>");
        field(&data, "FORMCHECKBOX", "")
    };
    let list = |state: &str, result: &str| {
        let data = format!(
            "<w:ddList>{state}<w:listEntry w:val=\"Approved\"/><w:listEntry w:val=\"Rejected\"/></w:ddList>"
        );
        field(&data, "FORMDROPDOWN", result)
    };
    let text = field(
        "<w:textInput><w:default w:val=\"name\"/></w:textInput>",
        "FORMTEXT",
        &r("Ann"),
    );
    let body = [
        p(&[
            r("CHECK A: "),
            check_box("<w:default w:val=\"0\"/><w:checked/>"),
            r(" yes "),
            check_box("<w:default w:val=\"1\"/><w:checked w:val=\"0\"/>"),
            r(" no "),
            check_box("<w:default w:val=\"1\"/>"),
        ]
        .concat()),
        p(&[
            r("DROP: "),
            list("<w:result w:val=\"1\"/>", ""),
            r(" end "),
            list("", ""),
            r(" "),
            list("<w:result w:val=\"1\"/>", &r("Other")),
            r(" "),
            text,
        ]
        .concat()),
    ];
    assert_eq!(
        markdown(DOCX, &docx(&body.concat(), &[])),
        "CHECK A: ☒ yes ☐ no ☒\n\nDROP: Rejected end Approved Other Ann\n"
    );
}
