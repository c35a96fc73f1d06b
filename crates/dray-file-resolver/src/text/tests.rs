//! Tables and properties of decoding: which content is text, and its decoded form.

use proptest::prelude::*;

use super::*;

/// Reads `content` in chunks of `step` bytes.
fn read(content: &[u8], step: usize) -> Result<String, BinaryContent> {
    let mut stream = TextStream::default();
    let mut text = String::new();
    for chunk in content.chunks(step.max(1)) {
        stream.push(chunk, &mut text)?;
    }
    stream.finish(&mut text)?;
    Ok(text)
}

fn check(content: &[u8], expected: Result<&str, &'static str>) {
    for step in [1, 2, 3, 7, usize::MAX >> 1] {
        let expected = expected.map(str::to_owned).map_err(BinaryContent);
        assert_eq!(read(content, step), expected, "{content:x?} by {step}");
    }
}

#[test]
fn the_five_signatures_have_their_names() {
    check(b"\x89PNG\r\n\x1a\nrest", Err("PNG image"));
    check(b"\xff\xd8\xff\xe0", Err("JPEG image"));
    check(b"GIF89a", Err("GIF image"));
    check(b"%PDF-1.7", Err("PDF document"));
    check(b"PK\x03\x04", Err("ZIP archive"));
}

#[test]
fn text_that_only_resembles_a_signature_passes() {
    check(b"GIF", Ok("GIF"));
    check(b" %PDF-", Ok(" %PDF-"));
    check(b"PK", Ok("PK"));
    check(b"BM MZ RIFF OggS ID3", Ok("BM MZ RIFF OggS ID3"));
}

#[test]
fn an_empty_file_is_an_empty_text() {
    check(b"", Ok(""));
    check(b"\xef\xbb\xbf", Ok(""));
}

#[test]
fn one_leading_bom_is_removed() {
    check("\u{feff}\u{feff}a".as_bytes(), Ok("\u{feff}a"));
}

#[test]
fn invalid_sequences_become_replacement_characters() {
    check(b"caf\xe9 au lait", Ok("caf\u{fffd} au lait"));
    check(b"cut \xf0\x9f\x98", Ok("cut \u{fffd}"));
    check(b"\xc3(", Ok("\u{fffd}("));
}

#[test]
fn r6_nul_bytes_are_binary() {
    check(b"a\0b", Err("NUL bytes"));
    check(b"h\0e\0l\0l\0o\0", Err("NUL bytes"));
}

#[test]
fn r6_utf16_and_utf32_are_decoded_when_a_bom_announces_them() {
    let text = "Grüße 😀\n";
    let wide = |bom: &[u8], units: Vec<u8>| [bom, &units].concat();
    let utf16 = text.encode_utf16();
    check(
        &wide(
            b"\xff\xfe",
            utf16.clone().flat_map(u16::to_le_bytes).collect(),
        ),
        Ok(text),
    );
    check(
        &wide(b"\xfe\xff", utf16.flat_map(u16::to_be_bytes).collect()),
        Ok(text),
    );
    let utf32 = text.chars().map(u32::from);
    check(
        &wide(
            b"\xff\xfe\0\0",
            utf32.clone().flat_map(u32::to_le_bytes).collect(),
        ),
        Ok(text),
    );
    check(
        &wide(b"\0\0\xfe\xff", utf32.flat_map(u32::to_be_bytes).collect()),
        Ok(text),
    );
}

#[test]
fn r6_broken_utf16_is_replaced_and_never_an_error() {
    check(b"\xff\xfea\0\x00\xd8b\0", Ok("a\u{fffd}b"));
    check(b"\xff\xfea\0\x00\xdc", Ok("a\u{fffd}"));
    check(b"\xff\xfea\0\x00\xd8", Ok("a\u{fffd}"));
    check(b"\xff\xfea\0b", Ok("a\u{fffd}"));
    check(b"\xff\xfea\0\0\0", Err("NUL bytes"));
}

#[test]
fn r6_a_high_share_of_control_characters_is_binary() {
    check(b"\x01\x02\x03\x04 abc", Err("control characters"));
    check(b"\xfe\x01 and some more", Err("control characters"));
    check(
        b"page\x0cpage\x1b[31mred\x1b[0m\x07",
        Ok("page\u{c}page\u{1b}[31mred\u{1b}[0m\u{7}"),
    );
    check(
        b"one \x01 in a long line of words",
        Ok("one \u{1} in a long line of words"),
    );
}

#[test]
fn r6_binary_that_begins_like_text_is_found_later() {
    let mut content = vec![b'a'; 3 * SNIFF_BYTES];
    content.push(0);
    assert_eq!(read(&content, 1000), Err(BinaryContent("NUL bytes")));
    let mut content = vec![b'a'; 3 * SNIFF_BYTES];
    content.extend(std::iter::repeat_n(1, 3 * SNIFF_BYTES));
    assert_eq!(
        read(&content, 1000),
        Err(BinaryContent("control characters"))
    );
}

#[test]
fn nothing_is_given_out_before_the_head_is_judged() {
    let mut stream = TextStream::default();
    let mut text = String::new();
    stream
        .push(&vec![b'a'; SNIFF_BYTES - 1], &mut text)
        .unwrap();
    assert_eq!(text, "");
    assert!(stream.push(b"\0", &mut text).is_err());
}

proptest! {
    #[test]
    fn r6_valid_utf8_of_any_script_passes(text in "[^\\x00-\\x1f\\x7f\u{feff}]{0,200}", step in 1_usize..50) {
        prop_assume!(BINARY_SIGNATURES.iter().all(|(signature, _)| !text.as_bytes().starts_with(signature)));
        prop_assert_eq!(read(text.as_bytes(), step), Ok(text));
    }

    #[test]
    fn any_chunking_gives_the_lossy_text(content in prop::collection::vec(1_u8.., 0..300), step in 1_usize..50) {
        prop_assert_eq!(read(&content, step), read(&content, usize::MAX >> 1));
        if let Ok(text) = read(&content, step) && !content.starts_with(b"\xff\xfe") && !content.starts_with(b"\xfe\xff") {
            let lossy = String::from_utf8_lossy(&content).into_owned();
            prop_assert_eq!(text, lossy.strip_prefix('\u{feff}').unwrap_or(&lossy));
        }
    }

    #[test]
    fn wide_text_is_decoded(text in "[^\\x00-\\x1f\\x7f]{0,100}", step in 1_usize..9) {
        let mut content = b"\xff\xfe".to_vec();
        content.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        prop_assume!(!text.starts_with('\0'));
        prop_assert_eq!(read(&content, step), Ok(text));
    }
}
