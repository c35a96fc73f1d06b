//! A delivery of one step, sent as the delivery service sends it. For tests of one platform besides the suite.

use crate::delivery::{ConfirmedFile, DeliveryTarget, OutgoingFile, SendFlags};
use crate::error::{ErrorKind, PlatformError};
use crate::platform::{OutgoingDelivery, Platform, SendRequest, UploadProgress};

/// Ignores the progress of uploads.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl UploadProgress for NoProgress {
    fn sent(&self, _bytes: u64) {}
}

/// A delivery of these files to `target`, without flags.
pub fn plain_delivery(
    target: DeliveryTarget,
    message: &str,
    files: Vec<OutgoingFile>,
) -> OutgoingDelivery {
    OutgoingDelivery {
        id: "d".to_owned(),
        target,
        message: message.to_owned(),
        files,
        flags: SendFlags::default(),
    }
}

/// Plans the delivery, and prepares and sends its only step under `key`.
///
/// # Errors
///
/// The errors of the platform, and [`ErrorKind::Unknown`] when the plan does not have exactly one step.
pub async fn send_only_step(
    platform: &dyn Platform,
    delivery: &OutgoingDelivery,
    key: &str,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    prepare_and_send(platform, delivery, key, false).await
}

/// Like [`send_only_step`], after a request with the same key whose response was lost.
///
/// # Errors
///
/// Those of [`send_only_step`].
pub async fn repeat_only_step(
    platform: &dyn Platform,
    delivery: &OutgoingDelivery,
    key: &str,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    prepare_and_send(platform, delivery, key, true).await
}

async fn prepare_and_send(
    platform: &dyn Platform,
    delivery: &OutgoingDelivery,
    key: &str,
    repeated: bool,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let limits = platform.limits(&delivery.target).await?;
    let steps = platform.plan(delivery, &limits);
    let [step] = steps.as_slice() else {
        let error = format!("the plan has {} steps instead of one", steps.len());
        return Err(PlatformError::new(ErrorKind::Unknown, error));
    };
    let mut send = SendRequest {
        delivery,
        step,
        prepared: "",
        key,
        repeated,
    };
    let prepared = platform.prepare(send, &NoProgress).await?;
    send.prepared = &prepared;
    platform.send(send, &NoProgress).await
}
