//! The uploads that run in this process. A request for the offset waits for an upload that lost its connection.
//!
//! Without this wait, a client that reconnects before the end of its old connection is noticed would get an offset that
//! lacks the bytes in memory, and would send these bytes again. A request is registered before its lease is recorded,
//! so that a recorded lease always has an upload to wait for in the process that holds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longest time without a byte while another request waits for the offset.
const HANDOVER_GRACE: Duration = Duration::from_secs(1);
/// Time for which such a request ends a silent upload. An upload that moves for so long has its usual timeout again,
/// because a sender that cannot continue would have to send everything again.
const HANDOVER_WINDOW: Duration = Duration::from_secs(2);
/// Longest time for which a request for the offset waits for an upload that records its last bytes.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The uploads at work, by the keys of their tickets. A ticket has more than one while a request takes over from an
/// earlier one, or is about to be refused. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveUploads(Arc<Mutex<HashMap<String, Vec<ActiveUpload>>>>);

#[derive(Clone, Debug)]
struct ActiveUpload {
    /// Random name of the request.
    number: u64,
    /// The end of [`HANDOVER_WINDOW`] of the newest request for the offset.
    handover_until: watch::Sender<Option<Instant>>,
    /// Cancelled when the body has ended, or counts as broken.
    received: CancellationToken,
    /// Cancelled when the upload has ended and its bytes are recorded.
    ended: CancellationToken,
}

/// An upload that is registered until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveGuard {
    uploads: ActiveUploads,
    key: String,
    upload: ActiveUpload,
}

impl ActiveUploads {
    /// Registers an upload beside those that are already registered under the key.
    pub(crate) fn register(&self, key: &str) -> ActiveGuard {
        let upload = ActiveUpload {
            number: rand::random(),
            handover_until: watch::Sender::new(None),
            received: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        let mut uploads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uploads
            .entry(key.to_owned())
            .or_default()
            .push(upload.clone());
        ActiveGuard {
            uploads: self.clone(),
            key: key.to_owned(),
            upload,
        }
    }

    /// Waits until the uploads of a ticket ended, or turned out to move.
    pub(crate) async fn settle(&self, key: &str) {
        let registered = {
            let uploads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            uploads.get(key).cloned().unwrap_or_default()
        };
        let until = Instant::now() + HANDOVER_WINDOW;
        for upload in &registered {
            upload.handover_until.send_replace(Some(until));
        }
        let all_settled = async {
            for upload in &registered {
                upload.settle(until).await;
            }
        };
        // The response has the recorded offset in any case.
        let _ = tokio::time::timeout(HANDOVER_TIMEOUT, all_settled).await;
    }
}

impl ActiveUpload {
    /// Waits until the upload ended. Returns at `until` when it still receives bytes.
    async fn settle(&self, until: Instant) {
        tokio::select! {
            () = self.ended.cancelled() => return,
            () = tokio::time::sleep_until(until) => {}
        }
        if self.received.is_cancelled() {
            self.ended.cancelled().await;
        }
    }
}

impl ActiveGuard {
    /// Completes when the upload was silent for [`HANDOVER_GRACE`] while another request waited for the offset. Called
    /// again after each frame.
    pub(crate) async fn wait_for_handover(&self) {
        let mut requests = self.upload.handover_until.subscribe();
        loop {
            let until = *requests.borrow_and_update();
            let now = Instant::now();
            let silent_at = now + HANDOVER_GRACE;
            if until.is_some_and(|until| silent_at <= until) {
                tokio::time::sleep_until(silent_at).await;
                return;
            }
            // The sender lives as long as this guard.
            let _ = requests.changed().await;
        }
    }

    /// Records that no further bytes are read.
    pub(crate) fn end_receiving(&self) {
        self.upload.received.cancel();
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        let mut uploads = self
            .uploads
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(registered) = uploads.get_mut(&self.key) {
            registered.retain(|upload| upload.number != self.upload.number);
            if registered.is_empty() {
                uploads.remove(&self.key);
            }
        }
        drop(uploads);
        self.upload.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the upload is ended by a silence of this length.
    async fn ends_after(guard: &ActiveGuard, silence: Duration) -> bool {
        let wait = tokio::time::timeout(silence, guard.wait_for_handover());
        wait.await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_moves_keeps_its_timeout_after_a_request_for_the_offset() {
        let uploads = ActiveUploads::default();
        let guard = uploads.register("t");
        let receiving = async {
            for _ in 0..4 {
                assert!(!ends_after(&guard, HANDOVER_GRACE / 2).await);
            }
            assert!(!ends_after(&guard, 3 * HANDOVER_TIMEOUT).await);
        };
        tokio::join!(uploads.settle("t"), receiving);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_upload_ends_while_a_request_waits_for_the_offset() {
        let uploads = ActiveUploads::default();
        let guard = uploads.register("t");
        // The last bytes of a broken connection may come after the request.
        let receiving = async {
            assert!(!ends_after(&guard, HANDOVER_GRACE / 2).await);
            assert!(ends_after(&guard, 3 * HANDOVER_TIMEOUT).await);
            guard.end_receiving();
            // Recording them takes longer than the window.
            tokio::time::sleep(HANDOVER_WINDOW).await; // paused clock
        };
        let mut settled = std::pin::pin!(uploads.settle("t"));
        tokio::select! {
            () = &mut settled => panic!("the offset is reported before the last bytes are recorded"),
            () = receiving => {}
        }
        drop(guard);
        settled.await;
    }
}
