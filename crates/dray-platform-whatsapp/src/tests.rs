//! Both accounts with their fake servers.

mod bridge;
mod cloud;

use dray_platform::conformance::{SeenFile, VisibleMessage, plain_delivery, send_only_step};
use dray_platform::{DeliveryTarget, OutgoingDelivery, OutgoingFile, Platform};

use crate::fake_server::StoredMessage;

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
    plain_delivery(target(chat), "", files)
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
    let confirmed = send_only_step(platform, delivery, "key").await?;
    Ok(confirmed.into_iter().next().unwrap())
}
