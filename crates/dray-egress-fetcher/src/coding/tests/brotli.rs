//! Tests of `br`, with streams of the reference encoder (Node 20) and streams that no encoder makes.

use super::*;

/// `the quick brown fox ` forty times.
const TEXT: &str = "1b1f03f88d946ee6a20631a3c353686f39c824a5e508db74541648d7c63c00";
/// The empty file.
const EMPTY_STREAM: &str = "3b";
/// The text `content`.
const CONTENT_STREAM: &str = "1b0600f82500a290a800";
/// `content` with the "large window" extension and a window of 1 GiB.
const LARGE_WINDOW: &str = "115e1800e097008842a202";
/// 1 MiB of zeros.
const ONE_MEBIBYTE: &str = "5bffff8f7f02201e0b0472ef1f00";
/// 64 MiB of zeros.
const BOMB_STREAM: &str = "cfffff7ff82700e2b14020f7fe9ffffffff04f00c4610180eefd3fffffffe19f0088c32200ddfbfffcffffc73f\
                    0110870500baf7ff";

#[test]
fn b_4_brotli_is_decoded_for_every_split_of_the_input() {
    let content = b"the quick brown fox ".repeat(40);
    check(ContentCoding::Brotli, &hex(TEXT), Ok(&content));
    check(ContentCoding::Brotli, &hex(CONTENT_STREAM), Ok(b"content"));
    check(ContentCoding::Brotli, &hex(EMPTY_STREAM), Ok(b""));
}

#[test]
fn b_5_a_brotli_stream_without_its_end_is_truncated() {
    for stream in [TEXT, CONTENT_STREAM] {
        let whole = hex(stream);
        for length in 1..whole.len() {
            check(
                ContentCoding::Brotli,
                &whole[..length],
                Err(DecodeError::Truncated),
            );
        }
    }
}

#[test]
fn b_5_bytes_after_a_brotli_stream_are_an_error() {
    for more in [b"\0".to_vec(), hex(CONTENT_STREAM), hex(EMPTY_STREAM)] {
        let padded = [hex(CONTENT_STREAM), more].concat();
        check(
            ContentCoding::Brotli,
            &padded,
            Err(DecodeError::TrailingBytes),
        );
    }
}

#[test]
fn b_5_a_brotli_stream_that_expands_too_much_is_a_bomb() {
    let decode_all = |stream| decode(ContentCoding::Brotli, &hex(stream), 4096, 1 << 16);
    assert_eq!(
        decode_all(ONE_MEBIBYTE).map(|decoded| decoded.len()),
        Ok(1 << 20)
    );
    assert_eq!(decode_all(BOMB_STREAM), Err(DecodeError::Bomb));
}

#[test]
fn b_5_a_large_window_of_brotli_is_refused_before_its_memory_is_taken() {
    check(
        ContentCoding::Brotli,
        &hex(LARGE_WINDOW),
        Err(DecodeError::Corrupt),
    );
}

#[test]
fn b_4_bytes_that_are_not_brotli_are_never_a_file() {
    for wrong in [
        b"\x1f\x8b\x08plain".as_slice(),
        b"<!doctype html>",
        b"plain text that is long enough",
        // The reserved window size of RFC 7932, section 9.1.
        b"\x11\0\0\0",
        &[0xff; 64],
    ] {
        let decoded = decode(ContentCoding::Brotli, wrong, 4096, 4096);
        assert!(decoded.is_err(), "{}", wrong.escape_ascii());
    }
}

#[test]
fn b_5_no_changed_byte_of_a_brotli_stream_makes_the_decoder_panic() {
    let whole = hex(TEXT);
    for index in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[index] ^= 1 << bit;
            let whole_input = decode(ContentCoding::Brotli, &changed, 4096, 4096);
            let by_byte = decode(ContentCoding::Brotli, &changed, 1, 7);
            // The format has no checksum, so some changes decode; the result must not depend on how the input is split.
            assert_eq!(whole_input.ok(), by_byte.ok(), "byte {index}, bit {bit}");
        }
    }
}
