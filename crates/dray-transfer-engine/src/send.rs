//! Writes one stream from a source into a sandbox, and supervises its progress.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use dray_sandbox::backend::Write;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Fingerprint;
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::engine::Engine;
use super::peer::{Progress, Source};
use super::schedule::TransferError;

/// The failure of the source itself, if it failed.
type SharedFailure = Arc<Mutex<Option<Error>>>;

impl Engine {
    /// Performs a write, with a digest computed beside it when that is wanted and possible. A failure of the source
    /// is distinguished from one of the sandbox.
    pub(super) async fn send(
        &self,
        write: Write<'_>,
        wants_digest: bool,
        source: &dyn Source,
        progress: &dyn Progress,
    ) -> Result<Option<Fingerprint>, TransferError> {
        let body = source
            .open(write.offset)
            .await
            .map_err(TransferError::host)?;
        let source_failure = SharedFailure::default();
        let (taken, taken_bytes) = watch::channel(write.offset);
        let body = count_taken(body, write.size, taken, Arc::clone(&source_failure));
        let writing = async {
            if wants_digest {
                self.sandbox.write_with_digest(write, body).await
            } else {
                self.sandbox.write(write, body).await.map(|()| None)
            }
        };
        let result = self
            .await_write(writing, taken_bytes, write.size, progress)
            .await;
        // The failure is read after the write has ended: the backend reports a failed source only as a failed body.
        let failed_source = source_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match (result, failed_source) {
            (_, Some(error)) => Err(TransferError::host(error)),
            (Err(error), None) => Err(TransferError::transport(error)),
            (Ok(digest), None) => Ok(digest),
        }
    }

    /// Waits for a write while bytes flow; after the last byte, for as long as the size allows.
    async fn await_write<T>(
        &self,
        writing: impl Future<Output = Result<T, Error>>,
        mut taken: watch::Receiver<u64>,
        size: u64,
        progress: &dyn Progress,
    ) -> Result<T, Error> {
        let mut writing = std::pin::pin!(writing);
        let deadline = Instant::now() + Self::total_timeout(size);
        let mut idle = Instant::now() + self.options.idle;
        // Without bytes to send, only the end of the write is awaited, without the idle timeout.
        let mut flowing = *taken.borrow() < size;
        loop {
            let until = if flowing {
                idle.min(deadline)
            } else {
                deadline
            };
            tokio::select! {
                biased;
                // The result is polled first: a write that has ended must not be reported as idle.
                result = &mut writing => return result,
                changed = taken.changed(), if flowing => {
                    let done = *taken.borrow_and_update();
                    flowing = changed.is_ok() && done < size;
                    idle = Instant::now() + self.options.idle;
                    progress.moved(done, size);
                }
                () = sleep_until(until) => {
                    let error = "the sandbox took no byte within the idle window, or did not end the write in time";
                    return Err(Error::new(ErrorKind::Timeout, error));
                }
            }
        }
    }
}

/// Passes the bytes on unchanged and publishes how many were taken. If there are too few or too many, the source has
/// failed.
fn count_taken(
    body: Body,
    size: u64,
    taken: watch::Sender<u64>,
    source_failure: SharedFailure,
) -> Body {
    let offset = *taken.borrow();
    let state = Some((body, offset, taken, source_failure));
    Body::new(stream::unfold(state, move |state| async move {
        let (mut body, mut done, taken, source_failure) = state?;
        let error = match body.next().await {
            Some(Ok(chunk)) => {
                done = done.saturating_add(chunk.len() as u64);
                if done <= size {
                    taken.send_replace(done);
                    return Some((Ok(chunk), Some((body, done, taken, source_failure))));
                }
                Error::new(
                    ErrorKind::Corrupted,
                    "the source has more bytes than it announced",
                )
            }
            Some(Err(error)) => error,
            None if done < size => Error::new(
                ErrorKind::Truncated,
                "the source has fewer bytes than it announced",
            ),
            None => return None,
        };
        let failure = Error::new(error.kind(), "the source failed");
        *source_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(error);
        Some((Err(failure), None))
    }))
}
