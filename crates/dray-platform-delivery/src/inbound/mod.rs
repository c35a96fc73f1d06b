//! The way in: what a user writes becomes durable work once, its files are fetched within limits and put on their way
//! into the session's sandbox (platform-delivery 11).

pub mod listener;
pub(crate) mod origin;
pub mod poll;
mod receive;

use std::sync::Arc;

use async_trait::async_trait;
use dray_bus::Meta;
use dray_platform::{ErrorKind, InboundMessage, InboundSink, PlatformError, StatusUpdate};
use dray_proto::v1;
use dray_types::{Deadline, OperationId, Sha256Digest, TenantId};

use crate::accounts::PlatformAccount;
use crate::deliver::{DeliveryService, wire_target};

/// How long the work on a message may take.
const MESSAGE_TIMEOUT: std::time::Duration = std::time::Duration::from_hours(1);

/// Attachments of one message; those beyond are reported as not available.
pub(crate) const MAX_ATTACHMENTS: usize = 50;

/// Most bytes of a message's text that travel with it.
const TEXT_MOST: usize = 32 * 1024;

/// Longest name or reference of an attachment.
const FIELD_MOST: usize = 1024;

/// The door of one account: what it takes is durable when it says so.
#[derive(Clone, Debug)]
pub struct DurableInboundSink {
    pub(crate) desk: Arc<DeliveryService>,
    pub(crate) account: Arc<PlatformAccount>,
}

/// The operation of a message: the same message sent twice is one.
pub fn operation_of(account: &str, message: &InboundMessage) -> OperationId {
    let target = &message.target;
    let mut bytes = Vec::new();
    for part in [
        target.platform.as_str(),
        account,
        &target.chat,
        &message.message_id,
    ] {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    let mut hex = Sha256Digest::of(&bytes).to_hex();
    hex.truncate(40);
    // Printable and short, so that this cannot fail.
    OperationId::new(format!("in-{hex}")).unwrap_or_else(|_| OperationId::mint())
}

impl DurableInboundSink {
    /// Whose messages these are.
    pub(crate) fn tenant(&self) -> TenantId {
        self.account.tenant.clone().unwrap_or_default()
    }

    /// News on what was sent.
    pub(crate) async fn statuses(&self, updates: &[StatusUpdate]) -> Result<(), PlatformError> {
        for update in updates {
            self.desk
                .status(&self.account, update)
                .await
                .map_err(|error| {
                    PlatformError::new(ErrorKind::Transient, "a status was not taken")
                        .caused_by(error)
                })?;
        }
        Ok(())
    }
}

#[async_trait]
impl InboundSink for DurableInboundSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        let desk = &self.desk;
        let operation = operation_of(&self.account.name, &message);
        let chat = message.target.chat.clone();
        let deadline = Deadline::after(desk.clock.now_ms(), MESSAGE_TIMEOUT);
        let meta = Meta::new(self.tenant(), deadline).with_operation(operation);
        let work = work_of(&self.account.name, message);
        desk.bus.publish_work(&meta, &work).await.map_err(|error| {
            PlatformError::new(ErrorKind::Transient, "a message was not stored").caused_by(error)
        })?;
        if let Err(error) = desk.index.refresh().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "deliveries cannot be looked through"
            );
        }
        desk.window_opened(&self.account, &chat).await;
        Ok(())
    }
}

/// A message as work. Everything is bounded: the work has to fit a message of the bus.
fn work_of(account: &str, message: InboundMessage) -> v1::ReceiveMessage {
    let InboundMessage {
        mut target,
        message_id,
        sender,
        text,
        attachments,
    } = message;
    account.clone_into(&mut target.account);
    v1::ReceiveMessage {
        chat: Some(wire_target(target)),
        message_id: cut_text(&message_id, FIELD_MOST),
        sender: cut_text(&sender, FIELD_MOST),
        text: cut_text(&text, TEXT_MOST),
        attachments: attachments
            .into_iter()
            .take(MAX_ATTACHMENTS)
            .map(|attachment| {
                // A reference that does not fit is of no use.
                let is_long = attachment.reference.len() > FIELD_MOST;
                v1::ReceivedAttachment {
                    id: cut_text(&attachment.id, FIELD_MOST),
                    name: cut_text(&attachment.name, 255),
                    size: attachment.size,
                    media_type: cut_text(&attachment.media_type, 255),
                    unavailable: if is_long && attachment.unavailable.is_empty() {
                        "the platform's reference is too long".to_owned()
                    } else {
                        cut_text(&attachment.unavailable, 255)
                    },
                    reference: if is_long {
                        String::new()
                    } else {
                        attachment.reference
                    },
                    kind: cut_text(&attachment.kind, 64),
                }
            })
            .collect(),
    }
}

/// At most so many bytes, cut between characters.
fn cut_text(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(chat: &str, id: &str) -> InboundMessage {
        InboundMessage {
            target: format!("telegram:{chat}").parse().unwrap(),
            message_id: id.to_owned(),
            sender: "u".to_owned(),
            text: String::new(),
            attachments: Vec::new(),
        }
    }

    #[test]
    fn the_same_message_is_one_operation_and_others_are_others() {
        let one = operation_of("bot", &message("1", "7"));
        assert_eq!(one, operation_of("bot", &message("1", "7")));
        assert_ne!(one, operation_of("bot", &message("1", "8")));
        assert_ne!(one, operation_of("other", &message("1", "7")));
        // Parts do not run into each other.
        assert_ne!(
            operation_of("bot", &message("1", "23")),
            operation_of("bot", &message("12", "3"))
        );
    }

    #[test]
    fn a_huge_message_still_fits_the_bus() {
        let mut huge = message("1", &"9".repeat(5000));
        huge.text = "é".repeat(100_000);
        let attachment = dray_platform::InboundAttachment {
            id: "x".repeat(5000),
            name: "n".repeat(5000),
            size: 1,
            media_type: String::new(),
            reference: "r".repeat(5000),
            kind: "document".to_owned(),
            unavailable: String::new(),
        };
        huge.attachments = vec![attachment; 500];
        let work = work_of("bot", huge);
        assert!(prost::Message::encoded_len(&work) < 128 * 1024 - 4096);
        assert_eq!(work.attachments.len(), MAX_ATTACHMENTS);
        assert!(!work.attachments[0].unavailable.is_empty());
    }
}
