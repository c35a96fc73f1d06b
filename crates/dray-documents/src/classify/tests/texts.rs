//! Files without a signature: text, structure, encodings.

use std::io::Cursor;

use super::super::Kind::{Binary, Document, Text};
use super::super::{classify, file_extension, is_blank, mime};
use super::{class, classify_named};

#[test]
fn an_empty_file_is_plain_text() {
    assert_eq!(classify_named(b"", "x.pdf"), (Text, mime::PLAIN));
}

#[test]
fn a_text_with_the_name_of_a_document_is_text() {
    assert_eq!(
        classify_named(b"not a document", "report.docx"),
        (Text, mime::PLAIN)
    );
    let noise: Vec<u8> = (0..4096u32)
        .map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    assert_eq!(
        classify_named(&noise, "x.pdf"),
        (Binary, mime::OCTET_STREAM)
    );
}

#[test]
fn the_name_picks_among_texts() {
    for (name, expected) in [
        ("a.csv", mime::CSV),
        ("a.tsv", mime::TSV),
        ("README.md", mime::MARKDOWN),
        ("a.yaml", mime::YAML),
        ("a.jsonl", mime::JSON_LINES),
        ("a.PY", "text/x-python"),
        ("a.unknown", mime::PLAIN),
        ("Makefile", "text/x-makefile"),
        ("a", mime::PLAIN),
    ] {
        assert_eq!(
            classify_named(b"a,b\n1,2\n", name),
            (Text, expected),
            "{name}"
        );
    }
}

#[test]
fn markup_is_known_by_its_first_element() {
    for (bytes, expected) in [
        ("<!DOCTYPE html><p>x", mime::HTML),
        ("\u{FEFF} <!-- c --><HTML><body>", mime::HTML),
        ("<?xml version='1.0'?><html><body/></html>", mime::HTML),
        ("<div>a</div>", mime::HTML),
        ("<br/>", mime::HTML),
        (
            "<html xmlns=\"http://www.w3.org/1999/xhtml\"><body/></html>",
            mime::XHTML,
        ),
        (
            "<?xml version='1.0'?><!DOCTYPE html PUBLIC 'x' 'y'><html lang='en' xmlns='http://www.w3.org/1999/xhtml'>",
            mime::XHTML,
        ),
        ("<?xml version='1.0'?><data>1</data>", mime::XML),
        (
            "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY x 'y>'>]><a>&x;</a>",
            mime::XML,
        ),
        ("<note to='you'>x</note>\n", mime::XML),
        ("<a:b xmlns:a='u'/>", mime::XML),
        ("<svg viewBox='0 0 1 1'></svg>", mime::SVG),
        (
            "<?xml version='1.0'?><svg:svg xmlns:svg='http://www.w3.org/2000/svg'/>",
            mime::SVG,
        ),
        ("<rss version='2.0'><channel/></rss>", mime::RSS),
        (
            "<rdf:RDF xmlns:rdf='r' xmlns='http://purl.org/rss/1.0/'></rdf:RDF>",
            mime::RSS,
        ),
        (
            "<feed xmlns='http://www.w3.org/2005/Atom'></feed>",
            mime::ATOM,
        ),
        ("<feed></feed>", mime::XML),
        ("<quotation at the start> of a text", mime::PLAIN),
        ("<3 this is no markup", mime::PLAIN),
        ("<", mime::PLAIN),
        ("", mime::PLAIN),
    ] {
        assert_eq!(
            classify_named(bytes.as_bytes(), "x.txt"),
            (Text, expected),
            "{bytes}"
        );
    }
}

#[test]
fn files_that_may_begin_with_markup_keep_their_type() {
    assert_eq!(
        classify_named(b"<p align='center'>\n\n# Title", "README.md").1,
        mime::MARKDOWN
    );
    assert_eq!(classify_named(b"<?php echo 1;", "x.php").1, "text/x-php");
    assert_eq!(classify_named(b"<data><a/></data>", "x.xml").1, mime::XML);
    assert_eq!(classify_named(b"<!doctype html><p>", "x.md").1, mime::HTML);
}

#[test]
fn json_is_known_by_parsing_or_by_its_name() {
    assert_eq!(classify_named(b" {\"a\": [1, 2]}\n", "x").1, mime::JSON);
    assert_eq!(classify_named(b"[1,\n2]", "x.txt").1, mime::JSON);
    assert_eq!(classify_named(b"{broken", "x.json").1, mime::JSON);
    assert_eq!(
        classify_named(b"[section]\nkey = 1\n", "x.ini").1,
        "text/x-ini"
    );
    assert_eq!(
        classify_named(b"{\"a\":1}\n{\"a\":2}\n", "x.ndjson").1,
        mime::JSON_LINES
    );
    let long = format!("[{}1]", "\"entry\", ".repeat(20_000));
    assert_eq!(classify_named(long.as_bytes(), "x").1, mime::JSON);
    let deep = "[".repeat(60_000) + &"]".repeat(60_000);
    assert_eq!(classify_named(deep.as_bytes(), "x").1, mime::JSON);
}

#[test]
fn notebooks_need_their_name_and_their_key() {
    assert_eq!(
        classify_named(b"{\"cells\": [], \"nbformat\": 4}", "a.ipynb").1,
        mime::NOTEBOOK
    );
    assert_eq!(
        classify_named(b"{\"cells\": [], \"nbformat\": 4}", "a.txt").1,
        mime::JSON
    );
    assert_eq!(classify_named(b"{\"other\": 4}", "a.ipynb").1, mime::JSON);
}

#[test]
fn mail_needs_its_name_and_headers() {
    let mail = b"Received: from a\r\n\tby b\r\nFrom: a@example.org\r\nSubject: x\r\n\r\nHello";
    for name in ["a.eml", "page.mht", "page.mhtml"] {
        assert_eq!(classify_named(mail, name), (Document, mime::EML), "{name}");
    }
    assert_eq!(classify_named(mail, "a.txt"), (Text, mime::PLAIN));
    let parts = b"Content-Type: multipart/mixed; boundary=b\n\n--b\n";
    assert_eq!(classify_named(parts, "a.eml"), (Document, mime::EML));
    let mailbox = b"From a@example.org Mon\nX-Odd: 1\nbroken line\nSubject: x\n\ny";
    assert_eq!(classify_named(mailbox, "a.eml"), (Document, mime::EML));
    assert_eq!(
        classify_named(b"Note: none of this\nis mail", "a.eml"),
        (Text, mime::PLAIN)
    );
    assert_eq!(
        classify_named(b"Hello\n\nFrom: me", "a.eml"),
        (Text, mime::PLAIN)
    );
}

#[test]
fn encodings_are_named() {
    let utf16: Vec<u8> = "Größe;Wert\n1;2\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    for (bytes, expected) in [
        ("Grüße".as_bytes().to_vec(), "UTF-8"),
        (b"\xEF\xBB\xBFa".to_vec(), "UTF-8"),
        ([b"\xFF\xFE".as_slice(), &utf16].concat(), "UTF-16LE"),
        (utf16, "UTF-16LE"),
        (b"\xFF\xFE\0\0a\0\0\0".to_vec(), "UTF-32LE"),
        (
            b"Gr\xFC\xDFe aus M\xFCnchen und K\xF6ln".to_vec(),
            "windows-1252",
        ),
    ] {
        let class = class(&bytes, "a.csv");
        assert_eq!(
            (class.kind, class.encoding),
            (Text, Some(expected)),
            "{bytes:?}"
        );
    }
    assert_eq!(
        class(b"plain", "a").hint().encoding,
        None,
        "the rest may differ from the start"
    );
    assert_eq!(
        class(b"\xFF\xFEa\0", "a").hint().encoding.as_deref(),
        Some("UTF-16LE")
    );
}

#[test]
fn controls_make_a_binary() {
    assert_eq!(classify_named(b"abc\0def", "a.txt").0, Binary);
    assert_eq!(
        classify_named(b"\x01\x02\x03abcdefg", "a.txt").0,
        Text,
        "30 of 100 are still text"
    );
    assert_eq!(classify_named(b"\x01\x02\x03\x04abcdef", "a.txt").0, Binary);
    assert_eq!(
        classify_named(b"\x1b[31mred\x1b[0m\x0c\r\n", "a.txt").0,
        Text
    );
    let legacy = |controls: usize| [vec![0xFC; 100 - controls], vec![1; controls]].concat();
    assert_eq!(classify_named(&legacy(5), "a.txt").0, Text);
    assert_eq!(classify_named(&legacy(6), "a.txt").0, Binary);
}

#[test]
fn a_character_at_the_edge_of_the_sample_is_not_broken() {
    for before in 65_530..65_540 {
        let text = "a".repeat(before) + "€€";
        let class = class(text.as_bytes(), "a.txt");
        assert_eq!(class.encoding, Some("UTF-8"), "{before}");
    }
}

#[test]
fn blank_files_are_distinguished_from_files_that_begin_with_blanks() {
    let blank = |bytes: &[u8]| {
        let mut input = Cursor::new(bytes);
        let class = classify(&mut input, "a.txt").unwrap();
        is_blank(&mut input, &class, 1 << 20).unwrap()
    };
    assert!(blank(b""));
    assert!(blank(b"\xEF\xBB\xBF \r\n\t"));
    assert!(blank(b"\xFF\xFE \0\n\0"));
    assert!(blank(&vec![b' '; 200_000]));
    assert!(!blank(&[vec![b' '; 200_000], b"x".to_vec()].concat()));
    assert!(!blank(b" x "));
    assert!(!blank(b"%PDF-1.4"));
}

#[test]
fn extensions_are_those_of_the_last_name() {
    assert_eq!(file_extension("/a.b/c.TXT"), "txt");
    assert_eq!(file_extension("c:\\x.y\\name"), "");
    assert_eq!(file_extension("archive.tar.gz"), "gz");
    assert_eq!(file_extension("Dockerfile"), "dockerfile");
    assert_eq!(file_extension("a.this is a sentence, not an extension"), "");
}

#[test]
fn open_documents_in_one_file_are_texts_of_their_own_type() {
    let flat = |kind: &str| {
        format!(
            "<?xml version='1.0'?><office:document xmlns:office=\"urn:oasis:names:tc:opendocument:xmlns:office:1.0\" \
             office:mimetype=\"application/vnd.oasis.opendocument.{kind}\"><office:body/></office:document>"
        )
    };
    for (kind, expected) in [
        ("text", mime::FODT),
        ("spreadsheet", mime::FODS),
        ("presentation", mime::FODP),
        ("chart", mime::XML),
    ] {
        assert_eq!(classify_named(flat(kind).as_bytes(), "x"), (Text, expected));
    }
}

#[test]
fn a_long_chat_is_not_markup_but_long_markup_is() {
    let chat = "<ann> hello\n<bob> hi\n".repeat(5000);
    assert_eq!(
        classify_named(chat.as_bytes(), "chat.txt"),
        (Text, mime::PLAIN)
    );
    let list = format!("<list>{}</list>", "<entry>1</entry>".repeat(10_000));
    assert_eq!(classify_named(list.as_bytes(), "x"), (Text, mime::XML));
}
