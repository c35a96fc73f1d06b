//! Tests of files that a DOCX inserts as a whole.

use super::docx::{docx, p, part, r};
use super::{DOCX, converted_within, markdown, relations, zipped};
use crate::limits::Limits;

#[test]
fn inserted_files_are_shown_in_place_by_their_content() {
    let chunk = |id: &str| format!("<w:altChunk r:id=\"{id}\"/>");
    let page = "<html><head><title>t</title></head><body><h1>Page</h1><p>a <b>bold</b> word</p></body></html>";
    let mht = "MIME-Version: 1.0\nSubject: not shown\nContent-Type: multipart/related; boundary=\"x\"\n\n--x\n\
        Content-Type: text/html; charset=\"utf-8\"\nContent-Transfer-Encoding: quoted-printable\n\n\
        <p>quoted =3D printable</p>\n--x\nContent-Type: image/png\nContent-Location: dot.png\n\nAAAA\n--x--\n";
    let body = [
        p(&r("before")),
        chunk("page.htm"),
        p(&r("between")),
        chunk("page.mht"),
        chunk("note.rtf"),
        chunk("note.txt"),
        p(&r("after")),
    ]
    .concat();
    let others = [
        ("page.htm", "aFChunk", page),
        ("page.mht", "aFChunk", mht),
        ("note.rtf", "aFChunk", "{\\rtf1\\ansi rich text\\par}"),
        ("note.txt", "aFChunk", "plain text"),
    ];
    assert_eq!(
        markdown(DOCX, &docx(&body, &others)),
        "before\n\n# Page\n\na **bold** word\n\nbetween\n\nquoted = printable\n\nrich text\n\nplain text\n\nafter\n"
    );
}

#[test]
fn an_inserted_file_that_cannot_be_shown_is_left_out_with_a_warning() {
    let chunk = "<w:altChunk r:id=\"x\"/>";
    let cases = [
        // The cases are a missing part, a PDF, a file outside the package, and a position that can contain only lines.
        (
            chunk.to_owned(),
            relations(&[("x", "aFChunk", "missing.htm")]),
        ),
        (
            chunk.to_owned(),
            relations(&[("x", "aFChunk", "other.pdf")]),
        ),
        (
            chunk.to_owned(),
            relations(&[("x", "aFChunk", "http://10.0.0.1/a.htm")]),
        ),
        (
            format!(
                "<w:tbl><w:tr><w:tc>{chunk}{}</w:tc></w:tr></w:tbl>",
                p(&r("cell"))
            ),
            relations(&[("x", "aFChunk", "page.htm")]),
        ),
    ];
    for (body, own) in cases {
        let document = part(
            "document",
            &format!("<w:body>{}{body}</w:body>", p(&r("text"))),
        );
        let package = relations(&[("rId1", "officeDocument", "word/document.xml")]);
        let bytes = zipped(&[
            ("_rels/.rels", &package),
            ("word/document.xml", &document),
            ("word/_rels/document.xml.rels", &own),
            ("word/other.pdf", "%PDF-1.4\n"),
            ("word/page.htm", "<p>page</p>"),
        ]);
        let found = converted_within(DOCX, &bytes, Limits::default());
        assert!(
            found.markdown.starts_with("text\n"),
            "{own}: {}",
            found.markdown
        );
        assert!(
            !found.markdown.contains("page"),
            "{own}: {}",
            found.markdown
        );
        assert_eq!(found.warnings, ["an inserted file is left out"], "{own}");
    }
}
