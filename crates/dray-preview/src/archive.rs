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
use dray_transfer_engine::{GetTreeOptions, Sink, TreeFormat};
use dray_types::Sha256Digest;
use futures_util::{StreamExt as _, stream};
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
        let error = "only a directory is an archive";
        return Err(Error::new(ErrorKind::NotDirectory, error).into());
    }
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

/// The archive as it is made, from its first chunk on.
async fn archive_body(
    view: SandboxView,
    permit: OwnedSemaphorePermit,
) -> Result<Body, PreviewError> {
    let (chunks, mut received) = mpsc::channel(QUEUED_CHUNKS);
    let mut archive_task = JoinSet::new();
    archive_task.spawn(async move {
        make_archive(&view, chunks).await;
        drop(permit);
    });
    // Limits of directories are checked before the first chunk, while the response can still have a status.
    let first_chunk = match received.recv().await.transpose() {
        Ok(first_chunk) => first_chunk,
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            return Err(PreviewError::DirectoryTooLarge);
        }
        Err(error) => return Err(error.into()),
    };
    // Dropping the set with the response ends the reading in the sandbox.
    let later_chunks = stream::unfold(
        (received, archive_task),
        |(mut received, archive_task)| async {
            let chunk = received.recv().await?;
            Some((chunk, (received, archive_task)))
        },
    );
    let first_chunk = stream::iter(first_chunk.map(Ok));
    Ok(Body::from_stream(first_chunk.chain(later_chunks)))
}

async fn make_archive(view: &SandboxView, chunks: mpsc::Sender<Result<Bytes, Error>>) {
    let mut sink = ClientSink {
        chunks: chunks.clone(),
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
    if let Err(failed) = outcome {
        // Before the first chunk the request fails as a whole, and is counted and logged there.
        if sink.has_sent {
            view.metrics().responded(failed.error.kind().as_str());
            let preview = &view.found.preview.preview_id;
            tracing::warn!(error = %failed, preview, "an archive broke off");
        }
        // An error in the stream breaks the connection; without one, half an archive would look complete.
        let _ = timeout(CLIENT_STALL_TIMEOUT, chunks.send(Err(failed.error))).await;
    }
}

/// The client as the destination of an archive.
struct ClientSink {
    chunks: mpsc::Sender<Result<Bytes, Error>>,
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
        let client_error = |why: &str| Error::new(ErrorKind::Timeout, why);
        match timeout(CLIENT_STALL_TIMEOUT, self.chunks.send(Ok(chunk))).await {
            Ok(Ok(())) => {
                self.metrics.sent(length);
                Ok(())
            }
            Ok(Err(_)) => Err(client_error("the client is gone")),
            Err(_) => Err(client_error("the client takes nothing")),
        }
    }

    async fn finish(&mut self, _sha256: Sha256Digest, _size: u64) -> Result<(), Error> {
        Ok(())
    }

    async fn abort(&mut self) {}
}
