//! The input of commands: its failures are recorded, it is encoded as text where the channel needs that, and compressed
//! where that helps.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use tokio::sync::Notify;

/// Bytes of one line of base64: they become 76 characters, which every decoder takes.
const BASE64_LINE_BYTES: usize = 57;
/// Bytes that are sampled to decide on compression (sandbox-transfer R-3).
const SAMPLE_BYTES: usize = 64 << 10;
/// Least bytes for which compression is worth a second program.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// Records whether the source of an input failed, so that its error is reported and not that of a command cut short.
#[derive(Debug, Default)]
pub(super) struct WatchedInput {
    failure: Mutex<Option<Error>>,
    failed: Notify,
}

impl WatchedInput {
    /// Wraps a body so that its failure is recorded.
    pub(super) fn watch(body: Body) -> (Arc<Self>, Body) {
        let input = Arc::new(Self::default());
        let watched = Arc::clone(&input);
        let body = stream::unfold(Some((body, watched)), |state| async move {
            let (mut body, watched) = state?;
            match body.next().await? {
                Ok(chunk) => Some((Ok(chunk), Some((body, watched)))),
                Err(error) => {
                    let relayed = Error::new(error.kind(), "the source failed");
                    *watched.slot() = Some(error);
                    watched.failed.notify_one();
                    Some((Err(relayed), None))
                }
            }
        });
        (input, Body::new(body))
    }

    /// Awaits `call`, but drops it and fails as soon as the source fails.
    pub(super) async fn guard<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let response = tokio::select! {
            () = self.failed.notified() => Err(Error::new(ErrorKind::Unavailable, "the source failed")),
            response = call => response,
        };
        // Both branches check: the response may have been ready when the source failed.
        match self.slot().take() {
            Some(failure) => Err(failure),
            None => response,
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads ahead until `max_bytes` bytes have arrived, or the body ends. Returns these bytes, and the whole body, which
/// still begins with them.
pub(super) async fn peek(mut body: Body, max_bytes: usize) -> Result<(Bytes, Body), Error> {
    let mut chunks: VecDeque<Bytes> = VecDeque::new();
    let mut length = 0;
    let mut ended = false;
    while length < max_bytes && !ended {
        if let Some(chunk) = body.next().await {
            let chunk = chunk?;
            length += chunk.len();
            chunks.push_back(chunk);
        } else {
            ended = true;
        }
    }
    let rest = (!ended).then_some(body);
    let mut sample = BytesMut::with_capacity(max_bytes);
    for chunk in &chunks {
        let room = max_bytes - sample.len();
        sample.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
    }
    let whole = stream::unfold((chunks, rest), |(mut chunks, body)| async move {
        if let Some(chunk) = chunks.pop_front() {
            return Some((Ok(chunk), (chunks, body)));
        }
        let mut body = body?;
        let chunk = body.next().await?;
        let body = chunk.is_ok().then_some(body);
        Some((chunk, (chunks, body)))
    });
    Ok((sample.freeze(), Body::new(whole)))
}

/// Whether the first 64 KiB shrink by more than a tenth (sandbox-transfer R-3).
pub(super) fn shrinks(sample: &[u8]) -> bool {
    if sample.len() < MIN_COMPRESSED_BYTES {
        return false;
    }
    gzip(sample).is_some_and(|packed| packed.len() * 10 < sample.len() * 9)
}

/// Compresses everything into one gzip member.
pub(super) fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// Reads a sample ahead; returns whether compression helps, and the whole body.
pub(super) async fn sample(body: Body) -> Result<(bool, Body), Error> {
    let (sample, body) = peek(body, SAMPLE_BYTES).await?;
    Ok((shrinks(&sample), body))
}

/// Compresses a body as a gzip stream.
pub(super) fn compressed(body: Body) -> Body {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    Body::new(stream::try_unfold(
        Some((body, encoder)),
        |state| async move {
            let Some((mut body, mut encoder)) = state else {
                return Ok(None);
            };
            let broken = |error| Error::new(ErrorKind::Protocol, "compression").caused_by(error);
            while let Some(chunk) = body.next().await {
                encoder.write_all(&chunk?).map_err(broken)?;
                let packed = std::mem::take(encoder.get_mut());
                // The encoder holds bytes back, so a chunk of input need not give a chunk of output.
                if !packed.is_empty() {
                    return Ok(Some((packed.into(), Some((body, encoder)))));
                }
            }
            let packed = encoder.finish().map_err(broken)?;
            Ok(Some((packed.into(), None)))
        },
    ))
}

/// Encodes a body as base64 in lines of 76 characters.
pub(super) fn base64_lines(body: Body) -> Body {
    Body::new(stream::try_unfold(
        Some((body, BytesMut::new())),
        |state| async move {
            let Some((mut body, mut pending)) = state else {
                return Ok(None);
            };
            while pending.len() < BASE64_LINE_BYTES {
                match body.next().await {
                    Some(chunk) => pending.extend_from_slice(&chunk?),
                    None => return Ok(Some((lines(&pending).into(), None))),
                }
            }
            // Only whole lines are encoded, which are whole groups too, because padding may occur only at the end.
            let whole = pending.split_to(pending.len() - pending.len() % BASE64_LINE_BYTES);
            Ok(Some((lines(&whole).into(), Some((body, pending)))))
        },
    ))
}

/// Encodes bytes as lines of base64, each with its line break.
pub(super) fn lines(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(lines_length(bytes.len() as u64).try_into().unwrap_or(0));
    for line in bytes.chunks(BASE64_LINE_BYTES) {
        STANDARD.encode_string(line, &mut text);
        text.push('\n');
    }
    text
}

/// Length in bytes of [`lines`] for this many bytes.
pub(super) const fn lines_length(bytes: u64) -> u64 {
    bytes.div_ceil(3) * 4 + bytes.div_ceil(BASE64_LINE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_lines_is_known_before() {
        for size in [0, 1, 56, 57, 58, 114, 1000] {
            let text = lines(&vec![7; size]);
            assert_eq!(text.len() as u64, lines_length(size as u64), "{size}");
            assert!(text.lines().all(|line| line.len() <= 76));
        }
    }

    #[test]
    fn r_3_only_what_shrinks_is_compressed() {
        let mut random = vec![0; SAMPLE_BYTES];
        rand::RngCore::fill_bytes(&mut rand::rng(), &mut random);
        assert!(!shrinks(&random));
        assert!(shrinks(&vec![b'a'; SAMPLE_BYTES]));
        assert!(!shrinks(b"aaaaaaaa"));
    }

    #[tokio::test]
    async fn the_sample_is_still_part_of_the_body() {
        let chunks = [b"abc".as_slice(), b"de", b"f"].map(Bytes::from_static);
        for (most, seen) in [(4, b"abcd".as_slice()), (9, b"abcdef")] {
            let body = Body::new(stream::iter(chunks.clone().map(Ok))).exactly(6);
            let (sample, body) = peek(body, most).await.unwrap();
            assert_eq!(sample, seen);
            assert_eq!(body.read_all(10).await.unwrap(), b"abcdef");
        }
    }

    #[tokio::test]
    async fn a_source_that_fails_is_the_error_that_is_reported() {
        let broken = Body::new(stream::iter([Err(Error::new(
            ErrorKind::RateLimited,
            "wait",
        ))]));
        let (input, mut body) = WatchedInput::watch(broken);
        let response = async {
            while let Some(chunk) = body.next().await {
                chunk?;
            }
            Ok(())
        };
        let error = input.guard(response).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.context(), "wait");
    }
}
