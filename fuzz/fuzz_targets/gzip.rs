//! Compressed streams: the decoder neither panics nor stalls, keeps its promise about progress, expands no more than it
//! may, and gives the same result however the input is cut.
//!
//! The first byte chooses the coding, the second the size of the pieces; the rest is the stream.

#![no_main]

use dray_egress_fetcher::coding::{BodyDecoder, ContentCoding, DecodeError};
use libfuzzer_sys::fuzz_target;

/// Output after which a stream is given up, as a size limit would.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

fn decode(
    coding: ContentCoding,
    input: &[u8],
    piece: usize,
    room: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = BodyDecoder::new(coding);
    let mut output = vec![0; room];
    let mut decoded = Vec::new();
    let mut consumed = 0;
    for mut rest in input.chunks(piece) {
        loop {
            let progress = decoder.step(rest, &mut output)?;
            assert!(progress.read <= rest.len() && progress.written <= room);
            consumed += progress.read;
            decoded.extend_from_slice(&output[..progress.written]);
            assert!(
                decoded.len() <= (1 << 20) + room || decoded.len() <= consumed * 1000 + room,
                "the work bound holds"
            );
            rest = &rest[progress.read..];
            if progress.written < room {
                assert!(
                    rest.is_empty(),
                    "short output means that all input was used"
                );
                break;
            }
            if decoded.len() > MAX_OUTPUT_BYTES {
                return Ok(decoded);
            }
        }
    }
    decoder.finish()?;
    Ok(decoded)
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, piece, stream @ ..] = bytes else {
        return;
    };
    let coding = match kind % 4 {
        0 => ContentCoding::Gzip,
        1 => ContentCoding::Deflate,
        2 => ContentCoding::Brotli,
        _ => ContentCoding::Zstandard,
    };
    let whole = decode(coding, stream, usize::MAX >> 1, 64 * 1024);
    if whole
        .as_ref()
        .is_ok_and(|decoded| decoded.len() > MAX_OUTPUT_BYTES)
    {
        return;
    }
    let pieces = decode(
        coding,
        stream,
        usize::from(*piece).max(1),
        1 + usize::from(*piece) * 7,
    );
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        // Which of several faults is met first may depend on the cut, that there is one may not.
        (whole, pieces) => assert_eq!(whole.is_err(), pieces.is_err(), "{whole:?} {pieces:?}"),
    }
});
