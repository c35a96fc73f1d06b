//! ZIP and OLE2 containers, row by row.

use super::super::Kind::{Archive, Binary, Document};
use super::super::{mime, office};
use super::samples::{
    STRICT_RELATIONSHIP, TRANSITIONAL_RELATIONSHIP, compound, package, rels, types, zip,
};
use super::{class, classify_named};

const OPEN_XML_PREFIX: &str = "application/vnd.openxmlformats-officedocument.";

#[test]
fn office_files_are_named_by_their_main_part() {
    for (part, content_type, expected) in [
        (
            "/word/document.xml",
            format!("{OPEN_XML_PREFIX}wordprocessingml.document.main+xml"),
            mime::DOCX,
        ),
        (
            "/word/document.xml",
            format!("{OPEN_XML_PREFIX}wordprocessingml.template.main+xml"),
            mime::DOTX,
        ),
        (
            "/xl/workbook.xml",
            format!("{OPEN_XML_PREFIX}spreadsheetml.sheet.main+xml"),
            mime::XLSX,
        ),
        (
            "/xl/workbook.xml",
            format!("{OPEN_XML_PREFIX}spreadsheetml.template.main+xml"),
            mime::XLTX,
        ),
        (
            "/ppt/presentation.xml",
            format!("{OPEN_XML_PREFIX}presentationml.presentation.main+xml"),
            mime::PPTX,
        ),
        (
            "/ppt/presentation.xml",
            format!("{OPEN_XML_PREFIX}presentationml.slideshow.main+xml"),
            mime::PPSX,
        ),
        (
            "/ppt/presentation.xml",
            format!("{OPEN_XML_PREFIX}presentationml.template.main+xml"),
            mime::POTX,
        ),
    ] {
        for kind in [TRANSITIONAL_RELATIONSHIP, STRICT_RELATIONSHIP] {
            let bytes = package(kind, part, &content_type);
            assert_eq!(classify_named(&bytes, "x.zip"), (Document, expected));
            assert!(class(&bytes, "x").warnings.is_empty());
        }
    }
}

#[test]
fn macro_and_binary_variants_keep_their_subtype() {
    for (part, content_type, expected) in [
        (
            "/word/document.xml",
            "word.document.macroEnabled.main+xml",
            mime::DOCM,
        ),
        (
            "/word/document.xml",
            "word.template.macroEnabledTemplate.main+xml",
            mime::DOTM,
        ),
        (
            "/xl/workbook.xml",
            "excel.sheet.macroEnabled.main+xml",
            mime::XLSM,
        ),
        (
            "/xl/workbook.xml",
            "excel.template.macroEnabled.main+xml",
            mime::XLTM,
        ),
        (
            "/xl/workbook.xml",
            "excel.addin.macroEnabled.main+xml",
            mime::XLAM,
        ),
        (
            "/xl/workbook.bin",
            "excel.sheet.binary.macroEnabled.main",
            mime::XLSB,
        ),
        (
            "/ppt/presentation.xml",
            "powerpoint.presentation.macroEnabled.main+xml",
            mime::PPTM,
        ),
        (
            "/ppt/presentation.xml",
            "powerpoint.slideshow.macroEnabled.main+xml",
            mime::PPSM,
        ),
        (
            "/ppt/presentation.xml",
            "powerpoint.template.macroEnabled.main+xml",
            mime::POTM,
        ),
    ] {
        let bytes = package(
            TRANSITIONAL_RELATIONSHIP,
            part,
            &format!("application/vnd.ms-{content_type}"),
        );
        assert_eq!(
            classify_named(&bytes, "harmless.docx"),
            (Document, expected)
        );
    }
}

#[test]
fn main_parts_of_any_name_and_case_are_found() {
    let content_type = format!("{OPEN_XML_PREFIX}wordprocessingml.document.main+xml");
    let bytes = zip(
        &[
            ("odd/Main.XML", b"<a/>"),
            (
                "_rels/.rels",
                rels(TRANSITIONAL_RELATIONSHIP, "./odd/Main.XML").as_bytes(),
            ),
            (
                "[content_types].xml",
                types("/odd/main.xml", &content_type).as_bytes(),
            ),
        ],
        &[],
    );
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::DOCX));
}

#[test]
fn a_default_content_type_serves_when_there_is_no_override() {
    let types = format!(
        r#"<Types><Default Extension="xml" ContentType="{OPEN_XML_PREFIX}spreadsheetml.sheet.main+xml"/></Types>"#
    );
    let bytes = zip(
        &[
            ("[Content_Types].xml", types.as_bytes()),
            (
                "_rels/.rels",
                rels(TRANSITIONAL_RELATIONSHIP, "book.xml").as_bytes(),
            ),
            ("book.xml", b"<a/>"),
        ],
        &[],
    );
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::XLSX));
}

#[test]
fn without_relationships_the_directory_decides_and_the_result_is_marked_as_a_guess() {
    for (part, expected) in [
        ("word/document.xml", mime::DOCX),
        ("xl/workbook.xml", mime::XLSX),
        ("xl/workbook.bin", mime::XLSB),
        ("ppt/presentation.xml", mime::PPTX),
    ] {
        let bytes = zip(
            &[("[Content_Types].xml", b"<Types/>"), (part, b"<a/>")],
            &[],
        );
        let class = class(&bytes, "x");
        assert_eq!((class.kind, class.mime), (Document, expected));
        assert_eq!(class.warnings, [office::GUESSED_MAIN_WARNING]);
    }
}

#[test]
fn any_other_zip_is_an_archive_under_any_name() {
    let drawing = package(
        TRANSITIONAL_RELATIONSHIP,
        "/visio/document.xml",
        "application/vnd.ms-visio.drawing.main+xml",
    );
    let jar = zip(
        &[
            ("META-INF/MANIFEST.MF", b"Manifest-Version: 1.0"),
            ("A.class", b"x"),
        ],
        &[],
    );
    let apk = zip(&[("AndroidManifest.xml", b"x"), ("classes.dex", b"x")], &[]);
    let wheel = zip(
        &[("a/__init__.py", b""), ("a-1.dist-info/WHEEL", b"x")],
        &[],
    );
    let fake = zip(&[("word/document.xml", b"<a/>")], &[]);
    let nested = zip(
        &[(
            "inner.docx",
            package(TRANSITIONAL_RELATIONSHIP, "/word/document.xml", "x").as_slice(),
        )],
        &[],
    );
    for bytes in [drawing, jar, apk, wheel, fake, nested, zip(&[], &[])] {
        assert_eq!(classify_named(&bytes, "report.docx"), (Archive, mime::ZIP));
    }
}

#[test]
fn books_and_open_documents_are_named_by_their_first_entry() {
    for mime in [mime::EPUB, mime::ODT, mime::ODS, mime::ODP] {
        let declared = format!(" {mime}\r\n");
        let bytes = zip(
            &[("mimetype", declared.as_bytes()), ("content.xml", b"<a/>")],
            &["mimetype"],
        );
        assert_eq!(classify_named(&bytes, "x.zip"), (Document, mime));
    }
    let bytes = zip(&[("mimetype", b"application/x-krita")], &["mimetype"]);
    assert_eq!(classify_named(&bytes, "x.odt"), (Archive, mime::ZIP));
}

#[test]
fn a_mimetype_elsewhere_does_not_count_and_the_manifest_does() {
    let manifest = |kind: &str| {
        format!(
            r#"<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">
            <manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>
            <manifest:file-entry manifest:media-type="{kind}" manifest:full-path="/"/></manifest:manifest>"#
        )
    };
    let ods = manifest(mime::ODS);
    let bytes = zip(
        &[
            ("content.xml", b"<a/>"),
            ("mimetype", mime::ODT.as_bytes()),
            ("META-INF/manifest.xml", ods.as_bytes()),
        ],
        &["mimetype"],
    );
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::ODS));
    let deflated = zip(
        &[("mimetype", mime::ODT.as_bytes()), ("content.xml", b"<a/>")],
        &[],
    );
    assert_eq!(classify_named(&deflated, "x.odt"), (Archive, mime::ZIP));
    let other = manifest("application/x-other");
    let bytes = zip(&[("META-INF/manifest.xml", other.as_bytes())], &[]);
    assert_eq!(classify_named(&bytes, "x.odt"), (Archive, mime::ZIP));
}

#[test]
fn a_book_without_mimetype_is_known_by_container_and_package() {
    let bytes = zip(
        &[
            ("META-INF/container.xml", b"<a/>"),
            ("OEBPS/content.opf", b"<a/>"),
        ],
        &[],
    );
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::EPUB));
    let bytes = zip(&[("META-INF/container.xml", b"<a/>")], &[]);
    assert_eq!(classify_named(&bytes, "x.epub"), (Archive, mime::ZIP));
}

#[test]
fn compound_files_are_named_by_their_streams() {
    for (stream, expected) in [
        ("/WordDocument", mime::DOC),
        ("/Workbook", mime::XLS),
        ("/Book", mime::XLS),
        ("/PowerPoint Document", mime::PPT),
        ("/__properties_version1.0", mime::MSG),
    ] {
        assert_eq!(
            classify_named(&compound(&["/a", stream, "/z"]), "x.pdf"),
            (Document, expected)
        );
    }
    assert_eq!(
        classify_named(&compound(&["/Contents"]), "x.doc"),
        (Binary, mime::OLE)
    );
}

#[test]
fn embedded_objects_do_not_determine_the_type() {
    let bytes = compound(&["/ObjectPool/_1/WordDocument", "/Workbook"]);
    assert_eq!(classify_named(&bytes, "x"), (Document, mime::XLS));
    let bytes = compound(&["/storage/Workbook"]);
    assert_eq!(classify_named(&bytes, "x.xls"), (Binary, mime::OLE));
}

#[test]
fn a_directory_of_many_sectors_is_followed() {
    let mut names: Vec<String> = (0..400).map(|number| format!("/stream {number}")).collect();
    names.push("/Workbook".to_owned());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(
        classify_named(&compound(&names), "x"),
        (Document, mime::XLS)
    );
}

#[test]
fn an_encrypted_package_gets_the_office_type_of_its_name() {
    let bytes = compound(&["/EncryptionInfo", "/EncryptedPackage"]);
    for (name, expected) in [
        ("secret.xlsx", mime::XLSX),
        ("secret.DOCM", mime::DOCM),
        ("secret.pdf", mime::OLE),
        ("secret", mime::OLE),
    ] {
        let class = class(&bytes, name);
        assert_eq!(
            (class.kind, class.mime, class.encrypted),
            (Document, expected, true)
        );
    }
}

#[test]
fn the_last_of_several_equal_part_names_decides_as_in_the_conversion() {
    let part = "/word/document.xml";
    let main_type = |kind: &str| types(part, &format!("{OPEN_XML_PREFIX}{kind}.main+xml"));
    let relationships = rels(TRANSITIONAL_RELATIONSHIP, part);
    let mut bytes = zip(
        &[
            ("word/document.xml", b"<main/>"),
            ("_rels/.rels", relationships.as_bytes()),
            (
                "[Content_Types].xml",
                main_type("spreadsheetml.sheet").as_bytes(),
            ),
            (
                "[Content_Typez].xml",
                main_type("wordprocessingml.document").as_bytes(),
            ),
        ],
        &[],
    );
    // The library does not write equal names.
    for at in 0..bytes.len() - 19 {
        if bytes[at..].starts_with(b"[Content_Typez].xml") {
            bytes[at + 13] = b's';
        }
    }
    assert_eq!(classify_named(&bytes, "x.zip"), (Document, mime::DOCX));
}
