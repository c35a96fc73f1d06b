//! Both ways against their fake servers.

mod bridge;
mod cloud;

use dray_platform::conformance::{SeenFile, VisibleMessage};
use dray_platform::{
    DeliveryTarget, OutgoingDelivery, OutgoingFile, Platform, SendFlags, SendRequest,
    UploadProgress,
};

use crate::fake_server::StoredMessage;

#[derive(Debug)]
struct NoProgress;

impl UploadProgress for NoProgress {
    fn sent(&self, _: u64) {}
}

fn target(chat: &str) -> DeliveryTarget {
    DeliveryTarget {
        platform: "whatsapp".to_owned(),
        account: String::new(),
        chat: chat.to_owned(),
        thread: String::new(),
        reply_to: String::new(),
    }
}

fn delivery(chat: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
    OutgoingDelivery {
        id: "d".to_owned(),
        target: target(chat),
        message: String::new(),
        files,
        flags: SendFlags::default(),
    }
}

fn visible_messages(stored: Vec<StoredMessage>) -> Vec<VisibleMessage> {
    stored
        .into_iter()
        .map(|message| VisibleMessage {
            message_id: message.id,
            text: message.text,
            files: message
                .file
                .into_iter()
                .map(|(name, content)| SeenFile {
                    name,
                    size: content.size,
                    sha256: content.sha256,
                })
                .collect(),
            thread: String::new(),
            reply_to: message.reply_to,
        })
        .collect()
}

/// Prepares and sends the first step of a delivery.
async fn deliver(
    platform: &dyn Platform,
    delivery: &OutgoingDelivery,
) -> Result<dray_platform::ConfirmedFile, dray_platform::PlatformError> {
    let limits = platform.limits(&delivery.target).await?;
    let steps = platform.plan(delivery, &limits);
    let mut send = SendRequest {
        delivery,
        step: steps.first().unwrap(),
        prepared: "",
        key: "key",
    };
    let prepared = platform.prepare(send, &NoProgress).await?;
    send.prepared = &prepared;
    let confirmed = platform.send(send, &NoProgress).await?;
    Ok(confirmed.into_iter().next().unwrap())
}
