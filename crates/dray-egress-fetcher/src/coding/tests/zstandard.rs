//! Tests of `zstd`, with frames of the reference encoder (1.5.4) and frames that are written by hand.

use super::*;

/// `the quick brown fox ` forty times, with a checksum.
const TEXT: &str =
    "28b52ffd0458dd0000a074686520717569636b2062726f776e20666f78200100125e35996c7193c6";
/// [`TEXT`] without a checksum.
const TEXT_WITHOUT_CHECKSUM: &str =
    "28b52ffd0058dd0000a074686520717569636b2062726f776e20666f78200100125e3599";
/// [`TEXT`] compressed with `--long=27`: a window of 128 MiB.
const LONG_WINDOW: &str =
    "28b52ffd0488dd0000a074686520717569636b2062726f776e20666f78200100125e35996c7193c6";
/// The empty file, with a content size and a checksum.
const EMPTY_FRAME: &str = "28b52ffd240001000099e9d851";
/// `content`, with a checksum.
const CONTENT_FRAME: &str = "28b52ffd0458390000636f6e74656e74fca9c531";
/// Frame header without content size and checksum, with a window of 8 MiB.
const FRAME_HEADER: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
/// Largest size of a block, in bytes.
const MAX_BLOCK: u32 = 128 << 10;

/// A block header (RFC 8878, section 3.1.1.2), with type 0 for raw bytes, 1 for a repeated byte.
fn block(is_last: bool, kind: u32, size: u32) -> Vec<u8> {
    let header = u32::from(is_last) | kind << 1 | size << 3;
    header.to_le_bytes()[..3].to_vec()
}

/// A frame of zeros: blocks of one repeated byte.
fn zeros(header: &[u8], blocks: u32) -> Vec<u8> {
    let mut frame = header.to_vec();
    for index in 1..=blocks {
        frame.extend(block(index == blocks, 1, MAX_BLOCK));
        frame.push(0);
    }
    frame
}

/// A frame with this header and one raw block.
fn raw_frame(header: &[u8], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len()).unwrap();
    [header.to_vec(), block(true, 0, size), content.to_vec()].concat()
}

/// A skippable frame (RFC 8878, section 3.1.2).
fn skippable(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_le_bytes();
    [&[0x5a, 0x2a, 0x4d, 0x18], length.as_slice(), content].concat()
}

fn check_zstandard(input: &[u8], expected: Result<&[u8], DecodeError>) {
    check(ContentCoding::Zstandard, input, expected);
}

#[test]
fn b_4_zstd_is_decoded_for_every_split_of_the_input() {
    let content = b"the quick brown fox ".repeat(40);
    check_zstandard(&hex(TEXT), Ok(&content));
    check_zstandard(&hex(TEXT_WITHOUT_CHECKSUM), Ok(&content));
    check_zstandard(&hex(CONTENT_FRAME), Ok(b"content"));
    check_zstandard(&hex(EMPTY_FRAME), Ok(b""));
    check_zstandard(&raw_frame(&FRAME_HEADER, b"raw"), Ok(b"raw"));
}

#[test]
fn b_5_all_zstd_frames_are_read_and_skippable_ones_are_left_out() {
    let frames = [
        skippable(b""),
        hex(CONTENT_FRAME),
        skippable(b"28b52ffd"),
        hex(EMPTY_FRAME),
        raw_frame(&FRAME_HEADER, b", more"),
        skippable(b"end"),
    ];
    check_zstandard(&frames.concat(), Ok(b"content, more"));
}

#[test]
fn b_5_the_number_of_zstd_frames_is_bounded() {
    let limit = MAX_MEMBERS as usize;
    for frame in [skippable(b""), raw_frame(&FRAME_HEADER, b"")] {
        let decode_frames =
            |count| decode(ContentCoding::Zstandard, &frame.repeat(count), 1 << 16, 64);
        assert_eq!(decode_frames(limit), Ok(Vec::new()));
        assert_eq!(decode_frames(limit + 1), Err(DecodeError::Members));
    }
}

#[test]
fn b_5_a_zstd_stream_without_its_end_is_truncated() {
    let whole = [hex(TEXT), skippable(b"skipped"), hex(CONTENT_FRAME)].concat();
    let frame_ends = [hex(TEXT).len(), whole.len() - hex(CONTENT_FRAME).len()];
    for length in (1..whole.len()).filter(|length| !frame_ends.contains(length)) {
        check_zstandard(&whole[..length], Err(DecodeError::Truncated));
    }
}

#[test]
fn b_5_bytes_after_a_zstd_frame_must_be_a_frame() {
    for (more, expected) in [
        (b"\0".as_slice(), DecodeError::Truncated),
        (b"\0\0\0\0\0", DecodeError::Corrupt),
        (b"trailing text", DecodeError::Corrupt),
    ] {
        check_zstandard(&[&hex(CONTENT_FRAME), more].concat(), Err(expected));
    }
}

#[test]
fn b_5_checksum_and_content_size_of_a_zstd_frame_are_checked() {
    for from_end in 1..=4 {
        let mut wrong = hex(TEXT);
        let index = wrong.len() - from_end;
        wrong[index] ^= 1;
        check_zstandard(&wrong, Err(DecodeError::Mismatch));
    }
    let mut wrong = hex(CONTENT_FRAME);
    wrong[9] ^= 1;
    check_zstandard(&wrong, Err(DecodeError::Mismatch));
    // A single segment of six bytes with five and with seven bytes of content.
    let header = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 6];
    check_zstandard(&raw_frame(&header, b"sixsix"), Ok(b"sixsix"));
    check_zstandard(&raw_frame(&header, b"five5"), Err(DecodeError::Mismatch));
    // Four bytes of content size beside a window, so that the block may be larger than the size.
    let header = [0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x68, 6, 0, 0, 0];
    check_zstandard(&raw_frame(&header, b"seven77"), Err(DecodeError::Mismatch));
}

#[test]
fn b_4_a_window_of_8_mib_is_accepted_and_a_larger_one_is_not() {
    let whole = raw_frame(&FRAME_HEADER, b"x");
    check_zstandard(&whole, Ok(b"x"));
    // Each of these headers claims more: 9 MiB, 128 MiB, 3.75 TiB, and single segments of 8 MiB + 1 and 2^64 - 1 bytes.
    let too_large: [&[u8]; 4] = [
        &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x69],
        &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff],
        &[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 1, 0, 0x80, 0],
        &[
            0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
    ];
    for header in too_large {
        check_zstandard(&raw_frame(header, b"x"), Err(DecodeError::WindowTooLarge));
    }
    check_zstandard(&hex(LONG_WINDOW), Err(DecodeError::WindowTooLarge));
}

#[test]
fn b_5_a_zstd_stream_that_expands_too_much_is_a_bomb() {
    let decode_all = |stream: &[u8]| {
        let decoded = decode(ContentCoding::Zstandard, stream, 4096, 1 << 16);
        decoded.map(|decoded| decoded.len())
    };
    assert_eq!(decode_all(&zeros(&FRAME_HEADER, 8)), Ok(1 << 20));
    assert_eq!(
        decode_all(&zeros(&FRAME_HEADER, 512)),
        Err(DecodeError::Bomb)
    );
    // The frame has no last block: the bomb is found before the stream turns out to be truncated.
    let endless = &zeros(&FRAME_HEADER, 512)[..511 * 4];
    assert_eq!(decode_all(endless), Err(DecodeError::Bomb));
    // Many small frames together expand too much as well.
    let frames = zeros(&FRAME_HEADER, 1).repeat(64);
    assert_eq!(decode_all(&frames), Err(DecodeError::Bomb));
}

#[test]
fn b_5_blocks_and_headers_that_violate_the_format_are_corrupt() {
    let after_header = |bytes: &[u8]| [FRAME_HEADER.as_slice(), bytes, &[0; 16]].concat();
    for wrong in [
        // A reserved block type.
        after_header(&block(true, 3, 1)),
        // Blocks above 128 KiB, of every type.
        after_header(&block(true, 0, MAX_BLOCK + 1)),
        after_header(&block(true, 1, MAX_BLOCK + 1)),
        after_header(&block(true, 2, MAX_BLOCK + 1)),
        // A compressed block without content.
        after_header(&block(true, 2, 0)),
        // The reserved bit of the descriptor.
        raw_frame(&[0x28, 0xb5, 0x2f, 0xfd, 0x08, 0x68], b"x"),
        // A dictionary, which the content coding does not have.
        raw_frame(&[0x28, 0xb5, 0x2f, 0xfd, 0x01, 0x68, 7], b"x"),
        // A block larger than its window of 1 KiB.
        [
            [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x00].to_vec(),
            block(true, 1, 1025),
            vec![0],
        ]
        .concat(),
        b"<!doctype html>".to_vec(),
        b"\x1f\x8b\x08plain".to_vec(),
    ] {
        check_zstandard(&wrong, Err(DecodeError::Corrupt));
    }
}

#[test]
fn b_5_no_changed_byte_of_a_zstd_stream_makes_the_decoder_panic() {
    let whole = hex(TEXT_WITHOUT_CHECKSUM);
    for index in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[index] ^= 1 << bit;
            let whole_input = decode(ContentCoding::Zstandard, &changed, 4096, 4096);
            let by_byte = decode(ContentCoding::Zstandard, &changed, 1, 7);
            assert_eq!(whole_input.ok(), by_byte.ok(), "byte {index}, bit {bit}");
        }
    }
}
