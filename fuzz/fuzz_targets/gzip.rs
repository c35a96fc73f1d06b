//! Compressed streams: the decoder neither panics nor stalls, reports its progress correctly, expands no more than it
//! may, and has the same result for any chunks of the input.
//!
//! The first byte chooses the coding, the second the size of the chunks; the rest is the stream.

#![no_main]

use dray_egress_fetcher::coding::{BodyDecoder, ContentCoding, DecodeError};
use libfuzzer_sys::fuzz_target;

/// Output after which decoding stops, as it does at a size limit.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

fn decode(
    coding: ContentCoding,
    input: &[u8],
    chunk_bytes: usize,
    output_bytes: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = BodyDecoder::new(coding);
    let mut output = vec![0; output_bytes];
    let mut decoded = Vec::new();
    let mut consumed = 0;
    for mut rest in input.chunks(chunk_bytes) {
        loop {
            let progress = decoder.step(rest, &mut output)?;
            assert!(progress.read <= rest.len() && progress.written <= output_bytes);
            consumed += progress.read;
            decoded.extend_from_slice(&output[..progress.written]);
            assert!(
                decoded.len() <= (1 << 20) + output_bytes
                    || decoded.len() <= consumed * 1000 + output_bytes,
                "the expansion is bounded"
            );
            rest = &rest[progress.read..];
            if progress.written < output_bytes {
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
    let [kind, chunk_bytes, stream @ ..] = bytes else {
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
    let in_chunks = decode(
        coding,
        stream,
        usize::from(*chunk_bytes).max(1),
        1 + usize::from(*chunk_bytes) * 7,
    );
    match (whole, in_chunks) {
        (Ok(whole), Ok(in_chunks)) => assert_eq!(whole, in_chunks),
        // The chunks may determine which of several faults is found first, but not whether one is found.
        (whole, in_chunks) => assert_eq!(
            whole.is_err(),
            in_chunks.is_err(),
            "{whole:?} {in_chunks:?}"
        ),
    }
});
