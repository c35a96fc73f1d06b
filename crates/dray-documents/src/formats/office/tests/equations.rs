//! Tests of equations (read-attachment 7.6).

use super::docx::{docx, p};
use super::{DOCX, markdown};

#[test]
fn equations_in_one_line_keep_their_meaning() {
    let run = |text: &str| format!("<m:r><m:t>{text}</m:t></m:r>");
    let fraction = format!(
        "<m:f><m:num>{}</m:num><m:den>{}</m:den></m:f>",
        run("a+b"),
        run("2")
    );
    let power = |base: &str| {
        format!(
            "<m:sSup><m:e>{base}</m:e><m:sup>{}</m:sup></m:sSup>",
            run("2")
        )
    };
    let root = |degree: &str| {
        let body = run("x");
        format!("<m:rad><m:deg>{degree}</m:deg><m:e>{body}</m:e></m:rad>")
    };
    let sum = format!(
        "<m:nary><m:naryPr><m:chr m:val=\"∑\"/></m:naryPr><m:sub>{}</m:sub><m:sup/><m:e>{}</m:e></m:nary>",
        run("i=1"),
        run("i")
    );
    let terms = format!("<m:e>{}</m:e><m:e>{}</m:e>", run("a"), run("b"));
    let brackets = format!(
        "<m:d><m:dPr><m:begChr m:val=\"[\"/><m:sepChr m:val=\";\"/><m:endChr m:val=\"]\"/></m:dPr>{terms}</m:d>"
    );
    let accent = format!(
        "<m:nary><m:e><m:acc><m:accPr><m:chr m:val=\"\u{20d7}\"/></m:accPr><m:e>{}</m:e></m:acc></m:e></m:nary>",
        run("F")
    );
    for (equation, shown) in [
        (&fraction, "(a+b)/(2)"),
        (&power(&format!("<m:d>{terms}</m:d>")), "(a|b)^(2)"),
        (&root(""), "√(x)"),
        (&root(&run("3")), "3√(x)"),
        (&accent, "∫F"),
        (&sum, "∑\\_(i=1)i"),
        (&format!("{}{brackets}", run("f")), "f[a;b]"),
    ] {
        let body = p(&format!("<m:oMath>{equation}</m:oMath>"));
        assert_eq!(
            markdown(DOCX, &docx(&body, &[])),
            format!("{shown}\n"),
            "{equation}"
        );
    }
}
