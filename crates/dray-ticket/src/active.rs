//! The uploads that run in this process. A request for the offset waits for an upload that lost its connection.
//!
//! Without this wait, a client that reconnects before the end of its old connection is noticed would get an offset that
//! lacks the bytes in memory, and would send these bytes again. A request is registered before its lease is recorded,
//! so that a recorded lease always has an upload to wait for in the process that holds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Longest time without a byte after another request has requested the offset.
pub(crate) const HANDOVER_GRACE: Duration = Duration::from_secs(1);
/// Longest time for which a request for the offset waits.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The uploads at work, by the keys of their tickets. A ticket has more than one while a request takes over from an
/// earlier one, or is about to be refused. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveUploads(Arc<Mutex<HashMap<String, Vec<ActiveUpload>>>>);

#[derive(Clone, Debug, Default)]
struct ActiveUpload {
    /// Random name of the request.
    number: u64,
    /// Cancelled when another request needs the offset.
    handover_requested: CancellationToken,
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
            ..ActiveUpload::default()
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

    /// Waits until the uploads of a ticket ended, within limits.
    pub(crate) async fn settle(&self, key: &str) {
        let registered = {
            let uploads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            uploads.get(key).cloned().unwrap_or_default()
        };
        for upload in &registered {
            upload.handover_requested.cancel();
        }
        let all_ended = async {
            for upload in &registered {
                upload.ended.cancelled().await;
            }
        };
        // An upload that still receives bytes does not end within the timeout. The response then has the recorded
        // offset.
        let _ = tokio::time::timeout(HANDOVER_TIMEOUT, all_ended).await;
    }
}

impl ActiveGuard {
    /// Completes [`HANDOVER_GRACE`] after another request has requested the offset.
    pub(crate) async fn wait_for_handover(&self) {
        self.upload.handover_requested.cancelled().await;
        tokio::time::sleep(HANDOVER_GRACE).await;
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
