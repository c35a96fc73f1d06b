//! Tests of content codings: every split of the input, and every kind of malformed stream.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::*;

mod brotli;
mod zstandard;

/// The bytes of a hexadecimal text.
fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|index| u8::from_str_radix(&text[index..index + 2], 16).unwrap())
        .collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zlib(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Decodes with input chunks of `chunk_bytes` and an output buffer of `buffer_bytes`.
fn decode(
    coding: ContentCoding,
    input: &[u8],
    chunk_bytes: usize,
    buffer_bytes: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = BodyDecoder::new(coding);
    let mut output = vec![0; buffer_bytes];
    let mut decoded = Vec::new();
    for mut rest in input.chunks(chunk_bytes) {
        loop {
            let progress = decoder.step(rest, &mut output)?;
            decoded.extend_from_slice(&output[..progress.written]);
            rest = &rest[progress.read..];
            if progress.written < buffer_bytes {
                assert!(
                    rest.is_empty(),
                    "short output means that all input was used"
                );
                break;
            }
        }
    }
    decoder.finish()?;
    Ok(decoded)
}

#[test]
fn b_5_the_number_of_members_is_bounded() {
    let member = gzip(b"");
    let limit = MAX_MEMBERS as usize;
    assert_eq!(
        decode(ContentCoding::Gzip, &member.repeat(limit), 1 << 16, 4096),
        Ok(Vec::new())
    );
    assert_eq!(
        decode(
            ContentCoding::Gzip,
            &member.repeat(limit + 1),
            1 << 16,
            4096
        ),
        Err(DecodeError::Members)
    );
}

fn check(coding: ContentCoding, input: &[u8], expected: Result<&[u8], DecodeError>) {
    for (chunk_bytes, buffer_bytes) in [(1, 1), (1, 4096), (7, 3), (4096, 1), (1 << 20, 1 << 16)] {
        assert_eq!(
            decode(coding, input, chunk_bytes, buffer_bytes).as_deref(),
            expected.as_ref().map(|bytes| *bytes),
            "chunks of {chunk_bytes} bytes, a buffer of {buffer_bytes}"
        );
    }
}

#[test]
fn b_4_gzip_and_zlib_are_decoded_for_every_split_of_the_input() {
    let content = b"the quick brown fox ".repeat(40);
    check(ContentCoding::Gzip, &gzip(&content), Ok(&content));
    check(ContentCoding::Deflate, &zlib(&content), Ok(&content));
    check(ContentCoding::Gzip, &gzip(b""), Ok(b""));
}

#[test]
fn b_9_an_empty_body_is_an_empty_file_in_every_coding() {
    check(ContentCoding::Gzip, b"", Ok(b""));
    check(ContentCoding::Deflate, b"", Ok(b""));
    check(ContentCoding::Brotli, b"", Ok(b""));
    check(ContentCoding::Zstandard, b"", Ok(b""));
}

#[test]
fn b_5_all_members_are_read() {
    let mut both = gzip(b"first,");
    both.extend(gzip(b""));
    both.extend(gzip(b"second"));
    check(ContentCoding::Gzip, &both, Ok(b"first,second"));
}

#[test]
fn b_5_optional_header_fields_are_skipped() {
    let plain = gzip(b"content");
    let mut full = vec![0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 255];
    full.extend_from_slice(&[3, 0, 1, 2, 3]);
    full.extend_from_slice(b"name\0comment\0");
    full.extend_from_slice(&[0xaa, 0xbb]);
    full.extend_from_slice(&plain[10..]);
    check(ContentCoding::Gzip, &full, Ok(b"content"));
    full[3] |= 0x20;
    check(ContentCoding::Gzip, &full, Err(DecodeError::Corrupt));
}

#[test]
fn b_5_checksum_and_length_of_each_member_are_checked() {
    let compressed = gzip(b"content");
    for from_end in 1..=8 {
        let mut wrong = compressed.clone();
        let index = wrong.len() - from_end;
        wrong[index] ^= 1;
        check(ContentCoding::Gzip, &wrong, Err(DecodeError::Mismatch));
        wrong.extend(gzip(b"more"));
        check(ContentCoding::Gzip, &wrong, Err(DecodeError::Mismatch));
    }
    let mut wrong = zlib(b"content");
    *wrong.last_mut().unwrap() ^= 1;
    check(ContentCoding::Deflate, &wrong, Err(DecodeError::Corrupt));
}

#[test]
fn b_5_a_missing_or_short_trailer_is_an_error() {
    let compressed = gzip(b"content");
    for length in 1..compressed.len() {
        check(
            ContentCoding::Gzip,
            &compressed[..length],
            Err(DecodeError::Truncated),
        );
    }
    let compressed = zlib(b"content");
    for length in 1..compressed.len() {
        check(
            ContentCoding::Deflate,
            &compressed[..length],
            Err(DecodeError::Truncated),
        );
    }
}

#[test]
fn b_5_bytes_after_the_last_member_are_an_error() {
    let mut padded = gzip(b"content");
    padded.push(0);
    check(ContentCoding::Gzip, &padded, Err(DecodeError::Corrupt));
    let mut padded = zlib(b"content");
    padded.push(b'x');
    check(
        ContentCoding::Deflate,
        &padded,
        Err(DecodeError::TrailingBytes),
    );
}

#[test]
fn b_5_more_than_a_thousand_to_one_is_a_bomb_after_the_first_mebibyte() {
    let small = vec![0; 1 << 20];
    assert_eq!(
        decode(ContentCoding::Gzip, &gzip(&small), 4096, 1 << 16).map(|decoded| decoded.len()),
        Ok(1 << 20)
    );
    let large = vec![0; 8 << 20];
    assert_eq!(
        decode(ContentCoding::Gzip, &gzip(&large), 4096, 1 << 16),
        Err(DecodeError::Bomb)
    );
    assert_eq!(
        decode(ContentCoding::Deflate, &zlib(&large), 4096, 1 << 16),
        Err(DecodeError::Bomb)
    );
}

#[test]
fn b_4_raw_deflate_is_not_the_zlib_form() {
    let raw = &zlib(b"content")[2..];
    assert!(decode(ContentCoding::Deflate, raw, 4096, 4096).is_err());
    assert!(decode(ContentCoding::Gzip, b"plain text", 4096, 4096).is_err());
}
