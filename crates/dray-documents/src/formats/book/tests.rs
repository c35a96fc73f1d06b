//! EPUB, rule by rule (read-attachment 7.10).

use super::super::office::tests::{converted, markdown, selected, zipped};
use crate::limits::{Damage, Failure, Limits};
use crate::markdown::{Selection, Unit};

const EPUB: &str = "application/epub+zip";
const CONTAINER_PART: (&str, &str) = (
    "META-INF/container.xml",
    "<container><rootfiles><rootfile full-path=\"O/b.opf\"/></rootfiles></container>",
);

/// A book with two chapters, the file of the second before that of the first.
fn book(more: &[(&str, &str)]) -> Vec<u8> {
    let opf = "<package><manifest>\
        <item id=\"b\" href=\"a.xhtml\" media-type=\"application/xhtml+xml\"/>\
        <item id=\"nav\" href=\"nav.xhtml\" properties=\"nav\" media-type=\"application/xhtml+xml\"/>\
        <item id=\"a\" href=\"../O/./z%20%C3%A4.xhtml\" media-type=\"application/xhtml+xml\"/>\
        <item id=\"css\" href=\"s.css\" media-type=\"text/css\"/>\
        </manifest><spine><itemref idref=\"a\"/><itemref idref=\"css\"/><itemref idref=\"b\"/></spine></package>";
    let mut parts = vec![
        CONTAINER_PART,
        ("O/b.opf", opf),
        (
            "O/a.xhtml",
            "<html><body><h1>Two</h1><p>x</p></body></html>",
        ),
        ("O/z ä.xhtml", "<html><body><h1>One</h1></body></html>"),
        (
            "O/nav.xhtml",
            "<html><body><nav><a href=\"z%20%C3%A4.xhtml\">Dawn</a><a href=\"a.xhtml#p\">Noon</a></nav></body></html>",
        ),
    ];
    parts.extend_from_slice(more);
    zipped(&parts)
}

#[test]
fn chapters_follow_the_spine_and_navigation_is_left_out() {
    assert_eq!(markdown(EPUB, &book(&[])), "# One\n\n# Two\n\nx\n");
}

#[test]
fn a_chapter_is_found_by_its_title() {
    let selection = Selection::Named {
        unit: Unit::Chapter,
        name: "noon".to_owned(),
        rows: None,
    };
    let converted = selected(EPUB, &book(&[]), Limits::default(), selection);
    assert_eq!(converted.markdown, "# Two\n\nx\n");
    assert_eq!(converted.parts[0].title.as_deref(), Some("Noon"));
    assert_eq!(converted.parts_seen, 2);
}

#[test]
fn encrypted_text_needs_a_key_and_encrypted_fonts_do_not() {
    let of = |algorithm: &str, name: &str| {
        format!(
            "<encryption><EncryptedData><EncryptionMethod Algorithm=\"{algorithm}\"/><CipherData><CipherReference URI=\"{name}\"/></CipherData></EncryptedData></encryption>"
        )
    };
    let aes = "http://www.w3.org/2001/04/xmlenc#aes128-cbc";
    let text = of(aes, "O/a.xhtml");
    assert_eq!(
        converted(EPUB, &book(&[("META-INF/encryption.xml", &text)])).failure,
        Some(Failure::Encrypted)
    );
    for fonts in [
        of(aes, "O/f.otf"),
        of("http://www.idpf.org/2008/embedding", "O/f.bin"),
    ] {
        assert_eq!(
            converted(EPUB, &book(&[("META-INF/encryption.xml", &fonts)])).failure,
            None
        );
    }
}

#[test]
fn a_missing_chapter_is_a_warning_and_a_missing_package_is_damage() {
    let parts = [
        CONTAINER_PART,
        (
            "O/b.opf",
            "<package><manifest><item id=\"a\" href=\"../../etc/passwd\"/><item id=\"b\" href=\"b.html\"/></manifest><spine><itemref idref=\"a\"/><itemref idref=\"b\"/></spine></package>",
        ),
        ("O/b.html", "<p>still here</p>"),
    ];
    let partial = converted(EPUB, &zipped(&parts));
    assert_eq!(partial.markdown, "still here\n");
    assert_eq!(partial.warnings, ["chapter 1 is missing or damaged"]);
    assert_eq!(
        converted(EPUB, &zipped(&parts[..1])).failure,
        Some(Failure::Corrupt(Damage::MissingPart))
    );
}
