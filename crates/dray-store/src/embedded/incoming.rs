//! Receives bodies of requests: they are written and hashed while the next bytes arrive, and checked before they become
//! visible.

use std::io::{self, IoSlice, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use s3s::TrailingHeaders;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, StreamingBlob};

use super::directory::ObjectDraft;
use super::error::DirectoryError;

/// Bytes that are gathered before they go to the thread that hashes and writes.
const BATCH_BYTES: usize = 512 << 10;
/// Longest time without a byte from a sender; then its upload is aborted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The sender's announcements about a body.
#[derive(Debug, Default)]
pub(super) struct AnnouncedBody {
    /// MD5 in base64, from `Content-MD5`.
    pub(super) md5: Option<String>,
    /// Checksums from the `x-amz-checksum-*` headers.
    pub(super) checksum: Checksum,
    /// Trailing headers, in which checksums appear after the body.
    pub(super) trailers: Option<TrailingHeaders>,
    /// The checksum that the trailer will contain: `x-amz-trailer` or `x-amz-sdk-checksum-algorithm`.
    pub(super) algorithm: Option<String>,
}

/// A body that arrived and matches its announcements.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) draft: ObjectDraft,
    /// All announced checksums, and no others: computing one costs as much as all other work on the request.
    pub(super) checksum: Checksum,
}

/// The state of the writing thread, passed from one batch to the next.
struct BodySink {
    draft: ObjectDraft,
    hasher: ChecksumHasher,
    md5: Option<Md5>,
}

/// Runs work that blocks on a thread for it. A panic of the work continues in the caller.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The task is never aborted, so its error is a panic.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Receives a body into a draft and checks it.
pub(super) async fn receive_body(
    draft: ObjectDraft,
    body: Option<StreamingBlob>,
    announced: AnnouncedBody,
) -> Result<ReceivedBody, DirectoryError> {
    let sink = BodySink {
        draft,
        hasher: announced.hasher(),
        md5: announced.md5.is_some().then(Md5::new),
    };
    let sink = match body {
        Some(body) => pump_body(body, sink).await?,
        None => sink,
    };
    // The checksum is checked before the draft gets a name: refused bytes never become visible.
    let checksum = sink.hasher.finalize();
    announced.verify(&checksum, sink.md5)?;
    Ok(ReceivedBody {
        draft: sink.draft,
        checksum,
    })
}

/// Reads from the network while the batch before is hashed and written.
async fn pump_body(mut body: StreamingBlob, sink: BodySink) -> Result<BodySink, DirectoryError> {
    let mut batch = Vec::new();
    let mut batch_bytes = 0;
    // A finished task to begin with, so that each round waits for the one before in the same way.
    let mut write_task = tokio::task::spawn_blocking(move || Ok(sink));
    loop {
        let next = match next_chunk(&mut body).await {
            Ok(next) => next,
            Err(error) => {
                // The draft occupies reserved space until its last write ends. The next upload may need the space.
                drop(write_task.await);
                return Err(error);
            }
        };
        let ended = next.is_none();
        if let Some(bytes) = next {
            batch_bytes += bytes.len();
            batch.push(bytes);
        }
        if batch_bytes >= BATCH_BYTES || ended {
            // At most one batch is written at any time, which bounds the memory and preserves the order.
            let mut sink = join_result(write_task.await)?;
            let chunks = std::mem::take(&mut batch);
            batch_bytes = 0;
            write_task = tokio::task::spawn_blocking(move || {
                sink.write(&chunks)?;
                Ok(sink)
            });
        }
        if ended {
            return join_result(write_task.await);
        }
    }
}

/// The next bytes of a body; `None` at its end.
async fn next_chunk(body: &mut StreamingBlob) -> Result<Option<Bytes>, DirectoryError> {
    let next = tokio::time::timeout(IDLE_TIMEOUT, body.next()).await;
    let next = next.map_err(|_| DirectoryError::Incomplete)?;
    next.transpose().map_err(DirectoryError::Body)
}

fn join_result(
    result: Result<Result<BodySink, DirectoryError>, tokio::task::JoinError>,
) -> Result<BodySink, DirectoryError> {
    match result {
        Ok(sink) => sink,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl BodySink {
    /// Writes one batch, usually with one system call, and hashes it while it is in the processor's cache.
    fn write(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        let length: usize = chunks.iter().map(Bytes::len).sum();
        // The space is reserved before the write, so that the capacity is never exceeded.
        self.draft.reserve(length as u64)?;
        write_chunks(&mut self.draft.file, chunks)?;
        for chunk in chunks {
            self.hasher.update(chunk);
            if let Some(md5) = &mut self.md5 {
                md5.update(chunk);
            }
        }
        Ok(())
    }
}

/// Writes all chunks in order.
fn write_chunks(file: &mut impl Write, chunks: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<_> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
    let mut rest = slices.as_mut_slice();
    // Empty slices at the front would make a complete write look like a file that takes no more bytes.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl AnnouncedBody {
    /// Creates the hashers for the checksums that headers or a trailer announce.
    fn hasher(&self) -> ChecksumHasher {
        let named = |name: &str| {
            self.algorithm
                .as_deref()
                .is_some_and(|algorithm| algorithm.to_ascii_lowercase().ends_with(name))
        };
        let checksum = &self.checksum;
        ChecksumHasher {
            crc32: (checksum.checksum_crc32.is_some() || named("crc32")).then(Default::default),
            crc32c: (checksum.checksum_crc32c.is_some() || named("crc32c")).then(Default::default),
            sha1: (checksum.checksum_sha1.is_some() || named("sha1")).then(Default::default),
            sha256: (checksum.checksum_sha256.is_some() || named("sha256")).then(Default::default),
            crc64nvme: (checksum.checksum_crc64nvme.is_some() || named("crc64nvme"))
                .then(Default::default),
        }
    }

    /// Compares everything that was announced, before or after the body.
    fn verify(&self, sent: &Checksum, md5: Option<Md5>) -> Result<(), DirectoryError> {
        // Trailers exist only once the body was read to its end.
        let trailers = self.trailers.as_ref().and_then(TrailingHeaders::take);
        let trailer = |name: &str| {
            trailers
                .as_ref()
                .and_then(|map| map.get(name))
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let announced = &self.checksum;
        let pairs = [
            (
                "x-amz-checksum-crc32",
                &announced.checksum_crc32,
                &sent.checksum_crc32,
            ),
            (
                "x-amz-checksum-crc32c",
                &announced.checksum_crc32c,
                &sent.checksum_crc32c,
            ),
            (
                "x-amz-checksum-sha1",
                &announced.checksum_sha1,
                &sent.checksum_sha1,
            ),
            (
                "x-amz-checksum-sha256",
                &announced.checksum_sha256,
                &sent.checksum_sha256,
            ),
            (
                "x-amz-checksum-crc64nvme",
                &announced.checksum_crc64nvme,
                &sent.checksum_crc64nvme,
            ),
        ];
        for (name, header, sent) in pairs {
            // A header has priority over the trailer of the same name.
            let expected = header.clone().or_else(|| trailer(name));
            if expected.is_some() && expected != *sent {
                return Err(DirectoryError::BadDigest);
            }
        }
        if let (Some(expected), Some(md5)) = (&self.md5, md5)
            && *expected != STANDARD.encode(md5.finalize())
        {
            return Err(DirectoryError::BadDigest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::{FutureExt as _, stream};

    use super::*;
    use crate::embedded::directory::ServedDirectory;
    use crate::embedded::layout::DirectoryLayout;

    /// A file that takes a few bytes at a time and is interrupted before each.
    #[derive(Default)]
    struct ShortWriter {
        written: Vec<u8>,
        calls: usize,
    }

    impl Write for ShortWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls % 2 == 1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = bytes.len().min(3);
            self.written.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn chunks_are_written_in_order_by_short_writes() {
        let chunks: Vec<Bytes> = ["", "a", "", "bcdefgh", "ij", ""]
            .into_iter()
            .map(Bytes::from)
            .collect();
        let mut file = ShortWriter::default();
        write_chunks(&mut file, &chunks).unwrap();
        assert_eq!(file.written, b"abcdefghij");
    }

    #[test]
    fn a_write_of_no_bytes_is_an_error_unless_there_are_no_chunks() {
        let mut full: &mut [u8] = &mut [];
        let error = write_chunks(&mut full, &[Bytes::from("x")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        write_chunks(&mut full, &[]).unwrap();
        write_chunks(&mut full, &[Bytes::new()]).unwrap();
    }

    #[test]
    fn an_interrupted_body_leaves_no_draft_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let root = tempfile::tempdir().unwrap();
        let directory = ServedDirectory::open(root.path(), u64::MAX).unwrap();
        let interrupted = [Ok(Bytes::from("abc")), Err(io::Error::other("reset"))];
        let body = StreamingBlob::wrap(stream::iter(interrupted));
        let draft = directory.draft().unwrap();
        runtime.block_on(async {
            // The only thread for writes is busy until the end of this block.
            let (release, released) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let receiving = receive_body(draft, Some(body), AnnouncedBody::default());
            tokio::pin!(receiving);
            let outcome = receiving.as_mut().now_or_never();
            assert!(outcome.is_none(), "{outcome:?} before the write ended");
            drop(release);
            assert!(busy.await.unwrap().is_err());
            let error = receiving.await.unwrap_err();
            assert!(matches!(error, DirectoryError::Body(_)), "{error:?}");
        });
        let drafts = DirectoryLayout::new(root.path()).temporary();
        assert_eq!(std::fs::read_dir(drafts).unwrap().count(), 0);
    }
}
