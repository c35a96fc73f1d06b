//! A directory as a ZIP that is made while it is sent.

use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use dray_http_server::attachment_disposition;
use dray_presentation::name::clean_name;
use dray_sandbox::metadata::Metadata;
use dray_sandbox::{Error, ErrorKind, FileKind};
use dray_transfer_engine::{GetTreeOptions, ListOptions, Sink, TreeFormat};
use dray_types::Sha256Digest;
use futures_util::{Stream, StreamExt as _, stream};
use http::{Method, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::PreviewError;
use crate::headers::{TEXT_POLICY, response, set};
use crate::view::SandboxView;

/// Chunks that may wait between the sandbox and the client.
const QUEUED_CHUNKS: usize = 4;
/// Longest time for which a client may take no bytes.
const CLIENT_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves a directory as `NAME.zip`. Links, special files and what policy refuses are left out; `_skipped.txt` in the
/// archive names them.
pub(crate) async fn serve_archive(
    view: &SandboxView,
    method: &Method,
    permit: OwnedSemaphorePermit,
) -> Result<Response, PreviewError> {
    if view.kind() != FileKind::Directory {
        let error = "only a directory can be downloaded as an archive";
        return Err(Error::new(ErrorKind::NotDirectory, error).into());
    }
    check_limits(view).await?;
    let body = match *method {
        Method::HEAD => Body::empty(),
        _ => archive_body(view.clone(), permit).await?,
    };
    let mut response = response(StatusCode::OK, "application/zip", TEXT_POLICY, body);
    let name = format!("{}.zip", clean_name(view.name().as_bytes()));
    let headers = response.headers_mut();
    set(
        headers,
        header::CONTENT_DISPOSITION,
        &attachment_disposition(&name),
    );
    Ok(response)
}

/// Refuses a directory above the limits while the response can still have a status. A sandbox that sends a directory as
/// a tar shows its entries only as they are read.
async fn check_limits(view: &SandboxView) -> Result<(), PreviewError> {
    let limits = view.service.inner.system.tree_limits;
    let options = ListOptions {
        policy: &view.opened.policy,
        depth: u32::try_from(limits.depth).unwrap_or(u32::MAX),
        limit: limits.entries,
    };
    let path = &view.pinned.metadata.real_path;
    let listing = view.opened.engine.list(path, &options).await?;
    // Larger files are left out of the archive.
    let files = listing
        .entries
        .iter()
        .filter(|entry| entry.kind == FileKind::File);
    let sizes = files
        .map(|file| file.size)
        .filter(|size| *size <= limits.file);
    let total_bytes = sizes.fold(0_u64, u64::saturating_add);
    if listing.truncated || total_bytes > limits.total {
        return Err(PreviewError::DirectoryTooLarge);
    }
    Ok(())
}

/// The archive as it is made, from its first chunk on.
async fn archive_body(
    view: SandboxView,
    permit: OwnedSemaphorePermit,
) -> Result<Body, PreviewError> {
    let (chunks, received) = mpsc::channel(QUEUED_CHUNKS);
    let mut archive_task = JoinSet::new();
    archive_task.spawn(async move {
        let made = make_archive(&view, chunks).await;
        drop(permit);
        made
    });
    let mut chunks = Box::pin(chunk_stream(received, archive_task));
    // A directory that grew since the check of the limits fails before the first chunk, or breaks the archive off.
    let first_chunk = match chunks.next().await.transpose() {
        Ok(first_chunk) => first_chunk,
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            return Err(PreviewError::DirectoryTooLarge);
        }
        Err(error) => return Err(error.into()),
    };
    let first_chunk = stream::iter(first_chunk.map(Ok));
    Ok(Body::from_stream(first_chunk.chain(chunks)))
}

/// The chunks that a task sends, and its failure after the last one. Dropping the stream with the response ends the
/// task, and with it the reading in the sandbox.
fn chunk_stream(
    received: mpsc::Receiver<Bytes>,
    task: JoinSet<Result<(), Error>>,
) -> impl Stream<Item = Result<Bytes, Error>> {
    // The task is dropped before the receiver. Otherwise it could see the closed channel, and report the end of a client
    // that left as a failure.
    stream::unfold((task, received), |(mut task, mut received)| async {
        if let Some(chunk) = received.recv().await {
            return Some((Ok(chunk), (task, received)));
        }
        // An error in the stream breaks the connection; without one, half an archive would look complete.
        let error = match task.join_next().await? {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => error,
            Err(panic) => {
                tracing::error!(%panic, "the task of an archive failed");
                Error::new(ErrorKind::Unavailable, "the archive could not be made")
            }
        };
        Some((Err(error), (task, received)))
    })
}

async fn make_archive(view: &SandboxView, chunks: mpsc::Sender<Bytes>) -> Result<(), Error> {
    let mut sink = ClientSink {
        chunks,
        metrics: view.metrics().clone(),
        has_sent: false,
    };
    let options = GetTreeOptions {
        policy: &view.opened.policy,
        limits: view.service.inner.system.tree_limits,
        format: TreeFormat::Zip,
    };
    let engine = &view.opened.engine;
    let path = &view.pinned.metadata.real_path;
    let outcome = engine
        .get_tree(path, &options, &mut sink, &(), &CancellationToken::new())
        .await;
    let Err(failed) = outcome else {
        return Ok(());
    };
    // Before the first chunk the request fails as a whole, and is counted and logged there.
    if sink.has_sent {
        view.metrics().responded(failed.error.kind().as_str());
        let preview = &view.found.preview.preview_id;
        tracing::warn!(error = %failed, preview, "an archive broke off");
    }
    Err(failed.error)
}

/// The client as the destination of an archive.
struct ClientSink {
    chunks: mpsc::Sender<Bytes>,
    metrics: crate::metrics::PreviewMetrics,
    /// Whether a byte was sent.
    has_sent: bool,
}

#[async_trait]
impl Sink for ClientSink {
    async fn begin(&mut self, _directory: &Metadata) -> Result<(), Error> {
        // Bytes that were sent cannot be taken back.
        if self.has_sent {
            let error = "the archive would have to begin again";
            return Err(Error::new(ErrorKind::ChangedDuringTransfer, error));
        }
        Ok(())
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        self.has_sent = true;
        let length = chunk.len();
        let client_error = |reason: &str| Error::new(ErrorKind::Timeout, reason);
        match timeout(CLIENT_STALL_TIMEOUT, self.chunks.send(chunk)).await {
            Ok(Ok(())) => {
                self.metrics.sent(length);
                Ok(())
            }
            Ok(Err(_)) => Err(client_error("the client is gone")),
            Err(_) => Err(client_error("the client accepted no bytes in time")),
        }
    }

    async fn finish(&mut self, _sha256: Sha256Digest, _size: u64) -> Result<(), Error> {
        Ok(())
    }

    async fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of a response whose task ends with `end` after one chunk.
    async fn chunks_of(end: fn() -> Result<(), Error>) -> Vec<Result<Bytes, ErrorKind>> {
        let (chunks, received) = mpsc::channel(QUEUED_CHUNKS);
        let mut task = JoinSet::new();
        task.spawn(async move {
            chunks.send(Bytes::from_static(b"PK")).await.unwrap();
            end()
        });
        let chunks = chunk_stream(received, task);
        let chunks = chunks.map(|chunk| chunk.map_err(|error| error.kind()));
        chunks.collect().await
    }

    #[tokio::test]
    async fn an_archive_whose_task_fails_or_panics_ends_with_an_error_and_is_never_complete() {
        let chunk = Ok(Bytes::from_static(b"PK"));
        assert_eq!(chunks_of(|| Ok(())).await, std::slice::from_ref(&chunk));
        let gone_error = || Err(Error::new(ErrorKind::SandboxGone, "gone"));
        assert_eq!(
            chunks_of(gone_error).await,
            [chunk.clone(), Err(ErrorKind::SandboxGone)]
        );
        let panics = || panic!("a defect");
        assert_eq!(
            chunks_of(panics).await,
            [chunk, Err(ErrorKind::Unavailable)]
        );
    }
}
