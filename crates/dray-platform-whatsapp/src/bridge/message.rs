//! Messages that the bridge returns.

use dray_platform::{DeliveryTarget, InboundAttachment, InboundMessage};
use serde::Deserialize;

/// A message as the bridge sends it. Missing fields are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct BridgeMessage {
    pub(super) message_id: String,
    pub(super) chat_id: String,
    sender_id: String,
    body: String,
    media_type: String,
    media_urls: Vec<String>,
    file_name: String,
}

impl BridgeMessage {
    /// Converts the message for the delivery service, under this account name.
    pub(super) fn into_inbound(self, account: &str) -> InboundMessage {
        let kind = match self.media_type.as_str() {
            "image" => "photo",
            "ptt" | "voice" => "voice",
            "audio" => "audio",
            "video" => "video",
            _ => "document",
        };
        let attachments = self
            .media_urls
            .iter()
            .map(|path| InboundAttachment {
                id: path.clone(),
                name: if self.file_name.is_empty() {
                    path.rsplit('/').next().unwrap_or_default().to_owned()
                } else {
                    self.file_name.clone()
                },
                // The bridge does not report the size; the caller reads to the end of the file.
                size: 0,
                media_type: String::new(),
                reference: path.clone(),
                kind: kind.to_owned(),
                unavailable: String::new(),
            })
            .collect();
        InboundMessage {
            target: DeliveryTarget {
                platform: crate::PLATFORM_NAME.to_owned(),
                account: account.to_owned(),
                chat: self.chat_id,
                thread: String::new(),
                reply_to: String::new(),
            },
            message_id: self.message_id,
            sender: self.sender_id,
            text: self.body,
            attachments,
        }
    }
}
