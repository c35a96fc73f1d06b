//! Bodies on their way into the folder: written and hashed beside the network, checked before anything sees them.

use std::io::{self, Write as _};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use s3s::TrailingHeaders;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, StreamingBlob};

use super::error::FolderError;
use super::folder::ObjectDraft;

/// Bytes gathered before they are handed to the thread that hashes and writes.
const BATCH_BYTES: usize = 512 << 10;
/// Time without a byte after which a body is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// What the sender says about a body.
#[derive(Debug, Default)]
pub(super) struct AnnouncedBody {
    /// `Content-MD5`.
    pub(super) md5: Option<String>,
    /// `x-amz-checksum-*` headers.
    pub(super) checksum: Checksum,
    /// Where checksums appear after the body.
    pub(super) trailers: Option<TrailingHeaders>,
    /// `x-amz-trailer` or `x-amz-sdk-checksum-algorithm`: which checksum the trailer will hold.
    pub(super) algorithm: Option<String>,
}

/// A body that arrived and is what was announced.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) draft: ObjectDraft,
    /// All checksums that were announced, and no others: computing them costs as much as the rest.
    pub(super) checksum: Checksum,
}

/// What the writing thread works with.
struct BodySink {
    draft: ObjectDraft,
    hasher: ChecksumHasher,
    md5: Option<Md5>,
}

/// Runs what blocks on a thread for that.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Takes a body into a draft.
pub(super) async fn receive_body(
    draft: ObjectDraft,
    body: Option<StreamingBlob>,
    announced: AnnouncedBody,
) -> Result<ReceivedBody, FolderError> {
    let sink = BodySink {
        draft,
        hasher: announced.hasher(),
        md5: announced.md5.is_some().then(Md5::new),
    };
    let sink = match body {
        Some(body) => pump_body(body, sink).await?,
        None => sink,
    };
    let checksum = sink.hasher.finalize();
    announced.verify(&checksum, sink.md5)?;
    Ok(ReceivedBody {
        draft: sink.draft,
        checksum,
    })
}

/// Reads from the network while the batch before is hashed and written.
async fn pump_body(mut body: StreamingBlob, sink: BodySink) -> Result<BodySink, FolderError> {
    let mut batch = Vec::new();
    let mut gathered = 0;
    let mut working = tokio::task::spawn_blocking(move || Ok(sink));
    loop {
        let next = tokio::time::timeout(IDLE_TIMEOUT, body.next())
            .await
            .map_err(|_| FolderError::Incomplete)?;
        let ended = next.is_none();
        if let Some(bytes) = next.transpose().map_err(FolderError::Body)? {
            gathered += bytes.len();
            batch.push(bytes);
        }
        if gathered >= BATCH_BYTES || ended {
            let mut sink = join_result(working.await)?;
            let pieces = std::mem::take(&mut batch);
            gathered = 0;
            working = tokio::task::spawn_blocking(move || {
                sink.write(&pieces)?;
                Ok(sink)
            });
        }
        if ended {
            return join_result(working.await);
        }
    }
}

fn join_result(
    worked: Result<Result<BodySink, FolderError>, tokio::task::JoinError>,
) -> Result<BodySink, FolderError> {
    match worked {
        Ok(sink) => sink,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl BodySink {
    fn write(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        for piece in pieces {
            self.draft.reserve(piece.len() as u64)?;
            self.draft.file.write_all(piece)?;
            self.hasher.update(piece);
            if let Some(md5) = &mut self.md5 {
                md5.update(piece);
            }
        }
        Ok(())
    }
}

impl AnnouncedBody {
    /// For what was announced.
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
    fn verify(&self, got: &Checksum, md5: Option<Md5>) -> Result<(), FolderError> {
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
                &got.checksum_crc32,
            ),
            (
                "x-amz-checksum-crc32c",
                &announced.checksum_crc32c,
                &got.checksum_crc32c,
            ),
            (
                "x-amz-checksum-sha1",
                &announced.checksum_sha1,
                &got.checksum_sha1,
            ),
            (
                "x-amz-checksum-sha256",
                &announced.checksum_sha256,
                &got.checksum_sha256,
            ),
            (
                "x-amz-checksum-crc64nvme",
                &announced.checksum_crc64nvme,
                &got.checksum_crc64nvme,
            ),
        ];
        for (name, header, got) in pairs {
            let wanted = header.clone().or_else(|| trailer(name));
            if wanted.is_some() && wanted != *got {
                return Err(FolderError::BadDigest);
            }
        }
        if let (Some(wanted), Some(md5)) = (&self.md5, md5)
            && *wanted != STANDARD.encode(md5.finalize())
        {
            return Err(FolderError::BadDigest);
        }
        Ok(())
    }
}
