//! MSG files built by hand, and broken ones.

use std::io::{Cursor, Write as _};

use crate::formats::text::testing::{convert_bytes, convert_to_markdown, test_hint};
use crate::limits::{Damage, Failure, Limits};

/// A compound file of these streams.
fn file(streams: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut cfb = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    for (path, bytes) in streams {
        if let Some((storage, _)) = path.rsplit_once('/') {
            cfb.create_storage_all(storage).unwrap();
        }
        cfb.create_stream(path).unwrap().write_all(bytes).unwrap();
    }
    cfb.flush().unwrap();
    cfb.into_inner().into_inner()
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A table of fixed properties.
fn property_table(header: usize, entries: &[(u32, u64)]) -> Vec<u8> {
    let mut table = vec![0; header];
    for (tag, value) in entries {
        table.extend(tag.to_le_bytes());
        table.extend([0; 4]);
        table.extend(value.to_le_bytes());
    }
    table
}

fn msg(streams: &[(&str, Vec<u8>)]) -> String {
    convert_to_markdown("application/vnd.ms-outlook", "msg", &file(streams))
}

#[test]
fn headers_and_body_are_listed() {
    let text = msg(&[
        ("__substg1.0_0037001F", wide("Größe")),
        ("__substg1.0_0C1A001F", wide("Jane Doe")),
        ("__substg1.0_0C1F001F", wide("/O=ORG/CN=JANE")),
        ("__substg1.0_5D01001F", wide("jane@a.example")),
        (
            "__substg1.0_1000001F",
            wide("Hello\r\nthere\r\n\r\n# bye\0"),
        ),
        ("__substg1.0_10130102", b"<p>html</p>".to_vec()),
        (
            "__properties_version1.0",
            property_table(32, &[(0x0039_0040, 135_698_634_000_000_000)]),
        ),
    ]);
    assert_eq!(
        text,
        "- From: Jane Doe <jane@a.example>\n- Date: 2031-01-05T14:30:00Z\n- Subject: Größe\n\nHello\nthere\n\n\\# bye\n"
    );
}

#[test]
fn recipients_and_attachments_are_listed_without_blind_copies() {
    let kind = |kind| property_table(8, &[(0x0C15_0003, kind)]);
    let text = msg(&[
        ("__substg1.0_0E04001F", wide("not needed")),
        (
            "__recip_version1.0_#00000000/__substg1.0_3001001F",
            wide("Bob"),
        ),
        (
            "__recip_version1.0_#00000000/__substg1.0_39FE001F",
            wide("bob@a.example"),
        ),
        (
            "__recip_version1.0_#00000000/__properties_version1.0",
            kind(1),
        ),
        (
            "__recip_version1.0_#00000001/__substg1.0_3001001F",
            wide("Carol"),
        ),
        (
            "__recip_version1.0_#00000001/__properties_version1.0",
            kind(2),
        ),
        (
            "__recip_version1.0_#00000002/__substg1.0_3001001F",
            wide("Secret"),
        ),
        (
            "__recip_version1.0_#00000002/__properties_version1.0",
            kind(3),
        ),
        (
            "__attach_version1.0_#00000000/__substg1.0_3707001F",
            wide("long name.pdf"),
        ),
        (
            "__attach_version1.0_#00000000/__substg1.0_370E001F",
            wide("application/pdf"),
        ),
        (
            "__attach_version1.0_#00000000/__substg1.0_37010102",
            vec![0; 5000],
        ),
        (
            "__attach_version1.0_#00000001/__substg1.0_3704001F",
            wide("x.bin"),
        ),
    ]);
    assert_eq!(
        text,
        "- To: Bob <bob@a.example>\n- Cc: Carol\n\n### Attachments\n\n\
         - long name.pdf (application/pdf, 5000 bytes)\n- x.bin\n"
    );
}

#[test]
fn strings_of_eight_bits_are_in_the_code_page_of_the_message() {
    let text = msg(&[
        ("__substg1.0_0037001E", b"\xCF\xF0\xE8\xE2\xE5\xF2".to_vec()),
        ("__substg1.0_0E04001E", b"\xC0; \xC1".to_vec()),
        (
            "__properties_version1.0",
            property_table(32, &[(0x3FFD_0003, 1251)]),
        ),
    ]);
    assert_eq!(text, "- To: А; Б\n- Subject: Привет\n");
}

#[test]
fn html_and_then_compressed_rtf_stand_in_for_the_body() {
    let html = msg(&[
        ("__substg1.0_1000001F", wide(" \r\n")),
        (
            "__substg1.0_10130102",
            b"<meta charset=windows-1252><b>\xE9</b>".to_vec(),
        ),
    ]);
    assert_eq!(html, "**é**\n");
    let rtf = [&[0_u8; 8][..], b"MELA", &[0; 4], b"{\\rtf1 {\\b x}}"].concat();
    assert_eq!(msg(&[("__substg1.0_10090102", rtf)]), "**x**\n");
}

#[test]
fn damaged_files_are_reported() {
    let convert = |bytes: &[u8]| {
        convert_bytes(
            &test_hint("application/vnd.ms-outlook", "msg"),
            bytes,
            Limits::default(),
        )
        .failure
    };
    let whole = file(&[("__substg1.0_1000001F", wide(&"text ".repeat(5000)))]);
    assert_eq!(convert(b""), Some(Failure::Corrupt(Damage::Structure)));
    assert_eq!(
        convert(whole.get(..600).unwrap()),
        Some(Failure::Corrupt(Damage::Structure))
    );
    assert_eq!(convert(&file(&[("x", Vec::new())])), Some(Failure::NoText));
    let packed = file(&[("__substg1.0_10090102", vec![1; 40])]);
    assert_eq!(
        convert(&packed),
        Some(Failure::Corrupt(Damage::Compression))
    );
}

#[test]
fn a_body_beyond_the_limit_is_cut() {
    let limits = Limits {
        max_text_bytes: 1000,
        ..Limits::default()
    };
    let whole = file(&[("__substg1.0_1000001F", wide(&"text ".repeat(5000)))]);
    let conversion = convert_bytes(
        &test_hint("application/vnd.ms-outlook", "msg"),
        &whole,
        limits,
    );
    assert!(conversion.stopped.is_some() && conversion.markdown.len() > 900);
}

#[test]
fn html_without_a_declaration_is_in_the_code_page_of_the_message() {
    let text = msg(&[
        (
            "__substg1.0_10130102",
            b"<p>\xCF\xF0\xE8\xE2\xE5\xF2</p>".to_vec(),
        ),
        (
            "__properties_version1.0",
            property_table(32, &[(0x3FFD_0003, 1252), (0x3FDE_0003, 1251)]),
        ),
    ]);
    assert_eq!(text, "Привет\n");
    // UTF-16 cannot be the code page of 8-bit strings.
    let text = msg(&[
        ("__substg1.0_0037001E", b"\xCF\xF0\xE8\xE2\xE5\xF2".to_vec()),
        (
            "__properties_version1.0",
            property_table(32, &[(0x3FFD_0003, 1200), (0x3FDE_0003, 1251)]),
        ),
    ]);
    assert_eq!(text, "- Subject: Привет\n");
}

#[test]
fn html_that_was_wrapped_into_rtf_is_read_as_html() {
    let rtf = b"{\\rtf1\\ansi\\fromhtml1 {\\*\\htmltag64 <ul><li>}one\\htmlrtf\\par\\htmlrtf0 {\\*\\htmltag <li>}\
        {\\*\\htmltag84 <a href=\"https://a.example/\">}\\htmlrtf HYPERLINK x\\htmlrtf0 two{\\*\\htmltag92 </a></ul>}}";
    let packed = [&[0_u8; 8][..], b"MELA", &[0; 4], rtf].concat();
    assert_eq!(
        msg(&[("__substg1.0_10090102", packed)]),
        "- one\n- [two](https://a.example/)\n"
    );
}

#[test]
fn only_a_damaged_body_is_lost() {
    let whole = file(&[
        ("__substg1.0_0037001F", wide("Subject line")),
        ("__substg1.0_10090102", vec![1; 40]),
        (
            "__attach_version1.0_#00000000/__substg1.0_3704001F",
            wide("x.bin"),
        ),
    ]);
    let conversion = convert_bytes(
        &test_hint("application/vnd.ms-outlook", "msg"),
        &whole,
        Limits::default(),
    );
    assert_eq!(
        conversion.markdown,
        "- Subject: Subject line\n\n### Attachments\n\n- x.bin\n"
    );
    assert_eq!(
        (conversion.failure, conversion.warnings),
        (None, vec!["the body of the message is damaged".to_owned()])
    );
}

#[test]
fn messages_within_and_files_by_reference_are_listed() {
    let text = msg(&[
        ("__substg1.0_0037001F", wide("Fwd")),
        (
            "__attach_version1.0_#00000000/__substg1.0_3001001F",
            wide("The message within"),
        ),
        (
            "__attach_version1.0_#00000000/__substg1.0_3701000D/__substg1.0_0037001F",
            wide("inner"),
        ),
        (
            "__attach_version1.0_#00000001/__substg1.0_370D001F",
            wide("\\\\server\\share\\plan.pdf"),
        ),
    ]);
    assert_eq!(
        text,
        "- Subject: Fwd\n\n### Attachments\n\n- The message within\n- \\\\\\server\\share\\plan.pdf\n"
    );
}
