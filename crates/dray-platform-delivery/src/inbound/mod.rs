//! Handles messages of users: each message becomes durable work exactly once. Its files are fetched within limits and
//! uploaded into the session's sandbox (platform-delivery 11).

pub mod listener;
mod long_text;
pub(crate) mod origin;
pub mod poll;
pub(crate) mod pollers;
mod receive;
mod session;
mod workspace;

pub(crate) use receive::MessageReceiver;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use dray_bus::{Bus, Meta};
use dray_http_server::ByteLimit;
use dray_platform::{
    ButtonPress, ChatMove, ErrorKind, InboundAttachment, InboundMessage, InboundSink,
    PlatformError, StatusUpdate,
};
use dray_presentation::name;
use dray_proto::v1;
use dray_service::ReplaceableValue;
use dray_types::{Clock, Deadline, OperationId, Sha256Digest, TenantId};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::config::Config;
use crate::deliver::wire_target;
use crate::platform_cache::PlatformCache;
use crate::questions::QuestionService;
use crate::status::StatusUpdates;
use crate::uploads::UploadService;

/// Longest time for the work on one message.
const MESSAGE_TIMEOUT: std::time::Duration = std::time::Duration::from_hours(1);

/// Most attachments of one message that are fetched. One entry reports the others as not available.
pub(crate) const MAX_ATTACHMENTS: usize = 50;

/// Longest name or reference of an attachment in bytes.
const MAX_FIELD_BYTES: usize = 1024;

/// Presses that are decided in the background, after the platform got its confirmation.
pub(crate) const MAX_BACKGROUND_PRESSES: usize = 64;

/// Most bytes of the bodies of all requests to the listener that have no response yet. A signature can be verified only
/// when the body is complete, so these bytes may be from anyone.
pub(crate) const MAX_WAITING_BODY_BYTES: u64 = 64 << 20;

/// The state that handles messages and uploads of users.
#[derive(Debug)]
pub(crate) struct InboundService {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) config: ReplaceableValue<Config>,
    pub(crate) accounts: AccountRegistry,
    /// Stores the leases of pollers.
    pub(crate) platform_cache: PlatformCache,
    pub(crate) statuses: StatusUpdates,
    pub(crate) uploads: UploadService,
    pub(crate) receiver: MessageReceiver,
    pub(crate) questions: QuestionService,
    /// Decides presses after their confirmation.
    pub(crate) tasks: TaskTracker,
    pub(crate) press_permits: Arc<Semaphore>,
    /// Memory for the bodies of requests to the listener.
    pub(crate) body_memory: ByteLimit,
}

/// The sink of one account. A message is durable when [`InboundSink::message`] returns.
#[derive(Clone, Debug)]
pub struct DurableInboundSink {
    pub(crate) service: Arc<InboundService>,
    pub(crate) account: Arc<PlatformAccount>,
}

/// The operation id of a message. It is the same when the platform delivers the message again.
pub fn operation_of(account: &str, message: &InboundMessage) -> OperationId {
    let target = &message.target;
    let mut bytes = Vec::new();
    for part in [
        target.platform.as_str(),
        account,
        &target.chat,
        &message.message_id,
    ] {
        // Lengths separate the parts unambiguously for any content.
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    let mut hex = Sha256Digest::of(&bytes).to_hex();
    hex.truncate(40);
    // The text is printable and short, so it is a valid id.
    OperationId::new(format!("in-{hex}")).unwrap_or_else(|_| OperationId::mint())
}

impl DurableInboundSink {
    /// The tenant of this account's messages.
    pub(crate) fn tenant(&self) -> TenantId {
        self.account.tenant.clone().unwrap_or_default()
    }

    /// Keeps a press, and decides it in the background. Above [`MAX_BACKGROUND_PRESSES`], or without a record of its
    /// question, it is decided here.
    pub(crate) async fn begin_press(&self, press: ButtonPress) -> Result<(), PlatformError> {
        let (service, account) = (Arc::clone(&self.service), Arc::clone(&self.account));
        let stored = service.questions.keep_press(&account, &press).await;
        let is_kept = stored.map_err(|error| {
            PlatformError::new(ErrorKind::Transient, "could not keep a press").caused_by(error)
        })?;
        let permit = Arc::clone(&service.press_permits).try_acquire_owned();
        let Some(permit) = permit.ok().filter(|_| is_kept) else {
            service.questions.take_press(&account, &press).await;
            return Ok(());
        };
        let tasks = service.tasks.clone();
        tasks.spawn(async move {
            service.questions.take_press(&account, &press).await;
            drop(permit);
        });
        Ok(())
    }

    /// Stores messages in their order.
    pub(crate) async fn messages(
        &self,
        messages: impl IntoIterator<Item = InboundMessage>,
    ) -> Result<(), PlatformError> {
        let mut chats = BTreeSet::new();
        for message in messages {
            chats.insert(message.target.chat.clone());
            self.store_message(message).await?;
        }
        self.resume_deliveries(&chats).await;
        Ok(())
    }

    /// Stores a message as work.
    async fn store_message(&self, mut message: InboundMessage) -> Result<(), PlatformError> {
        let service = &self.service;
        let operation = operation_of(&self.account.name, &message);
        let deadline = Deadline::after(service.clock.now_ms(), MESSAGE_TIMEOUT);
        let meta = Meta::new(self.tenant(), deadline).with_operation(operation);
        let long_text = long_text::shorten(&service.receiver.store, &meta, &mut message).await?;
        let mut work = work_of(&self.account.name, message);
        work.attachments.splice(..0, long_text);
        let published = service.bus.publish_work(&meta, &work).await;
        published.map(drop).map_err(|error| {
            PlatformError::new(ErrorKind::Transient, "could not store a message").caused_by(error)
        })
    }

    /// Resumes deliveries that wait for a message of these chats.
    async fn resume_deliveries(&self, chats: &BTreeSet<String>) {
        let service = &self.service;
        let now_ms = service.clock.now_ms();
        let account = self.account.id();
        for chat in chats {
            // The time is stored before the deliveries are read: a delivery that is about to wait reads it afterwards.
            let cache = &service.platform_cache;
            cache.learn_message_time(&account, chat, now_ms).await;
        }
        if let Err(error) = service.statuses.log.index.refresh().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not read the index of deliveries"
            );
        }
        for chat in chats {
            service.statuses.window_opened(&self.account, chat).await;
        }
    }

    /// Records status updates of messages that were sent.
    pub(crate) async fn statuses(&self, updates: &[StatusUpdate]) -> Result<(), PlatformError> {
        for update in updates {
            self.service
                .statuses
                .status(&self.account, update)
                .await
                .map_err(|error| {
                    PlatformError::new(ErrorKind::Transient, "could not record a status update")
                        .caused_by(error)
                })?;
        }
        Ok(())
    }
}

#[async_trait]
impl InboundSink for DurableInboundSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        self.messages([message]).await
    }

    async fn status(&self, update: StatusUpdate) -> Result<(), PlatformError> {
        self.statuses(&[update]).await
    }

    async fn press(&self, press: ButtonPress) {
        let questions = &self.service.questions;
        questions.take_press(&self.account, &press).await;
    }

    async fn chat_moved(&self, moved: ChatMove) {
        let cache = &self.service.platform_cache;
        cache
            .learn_moved_chat(&self.account.id(), &moved.from, &moved.to)
            .await;
    }
}

/// Converts a message to work. All lengths are limited, because the work has to fit into a message of the bus.
fn work_of(account: &str, message: InboundMessage) -> v1::ReceiveMessage {
    let InboundMessage {
        mut target,
        message_id,
        sender,
        text,
        attachments,
    } = message;
    account.clone_into(&mut target.account);
    let left_out = left_out_entry(attachments.get(MAX_ATTACHMENTS..).unwrap_or_default());
    let accepted = attachments.into_iter().take(MAX_ATTACHMENTS);
    v1::ReceiveMessage {
        chat: Some(wire_target(target)),
        message_id: cut_text(&message_id, MAX_FIELD_BYTES),
        sender: cut_text(&sender, MAX_FIELD_BYTES),
        text,
        attachments: accepted
            .map(|attachment| {
                // A shortened reference would be invalid.
                let is_long = attachment.reference.len() > MAX_FIELD_BYTES;
                v1::ReceivedAttachment {
                    id: cut_text(&attachment.id, MAX_FIELD_BYTES),
                    name: short_name(&attachment.name),
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
            .chain(left_out)
            .collect(),
    }
}

/// An entry that reports the attachments above the limit to the agent (platform-delivery 11.1). There is one entry for
/// all of them, because the work has to fit into a message of the bus.
fn left_out_entry(left_out: &[InboundAttachment]) -> Option<v1::ReceivedAttachment> {
    (!left_out.is_empty()).then(|| v1::ReceivedAttachment {
        name: match left_out.len() {
            1 => "1 more file".to_owned(),
            count => format!("{count} more files"),
        },
        size: left_out
            .iter()
            .fold(0, |sum, attachment| sum.saturating_add(attachment.size)),
        unavailable: format!("only the first {MAX_ATTACHMENTS} files of a message are taken"),
        ..v1::ReceivedAttachment::default()
    })
}

/// A name that fits, with its extension. A cut at the end would lose the extension, which decides how the file is read.
fn short_name(sent: &str) -> String {
    // A message may leave the name out; the platform then knows it.
    if sent.is_empty() {
        return String::new();
    }
    name::clean_name(sent)
}

/// Cuts a text to at most this many bytes, at a character boundary.
fn cut_text(text: &str, max_bytes: usize) -> String {
    let mut end = text.len().min(max_bytes);
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

    fn file(size: u64) -> InboundAttachment {
        InboundAttachment {
            id: "f".to_owned(),
            name: "a.txt".to_owned(),
            size,
            media_type: String::new(),
            reference: "r".to_owned(),
            kind: "document".to_owned(),
            unavailable: String::new(),
        }
    }

    #[test]
    fn equal_messages_have_one_operation_and_different_ones_do_not() {
        let one = operation_of("bot", &message("1", "7"));
        assert_eq!(one, operation_of("bot", &message("1", "7")));
        assert_ne!(one, operation_of("bot", &message("1", "8")));
        assert_ne!(one, operation_of("other", &message("1", "7")));
        // The boundary between chat and message id is part of the digest.
        assert_ne!(
            operation_of("bot", &message("1", "23")),
            operation_of("bot", &message("12", "3"))
        );
    }

    #[test]
    fn a_huge_message_still_fits_the_bus() {
        let mut huge = message("1", &"9".repeat(5000));
        huge.text = "é".repeat(long_text::MAX_TEXT_BYTES / 2);
        let attachment = InboundAttachment {
            id: "x".repeat(5000),
            name: "n".repeat(5000),
            reference: "r".repeat(5000),
            ..file(1)
        };
        huge.attachments = vec![attachment; 500];
        let work = work_of("bot", huge);
        assert!(prost::Message::encoded_len(&work) < 128 * 1024 - 4096);
        assert!(!work.attachments[0].unavailable.is_empty());
    }

    #[test]
    fn a_long_name_keeps_its_extension() {
        for (sent, expected) in [
            (format!("{}.csv", "报".repeat(90)), ".csv"),
            (
                format!("C:\\{}\\report.docx", "x".repeat(400)),
                "report.docx",
            ),
            (format!("{}/report.docx", "x".repeat(400)), "report.docx"),
            (String::new(), ""),
        ] {
            let mut long = message("1", "7");
            long.attachments = vec![InboundAttachment {
                name: sent,
                ..file(1)
            }];
            let name = &work_of("bot", long).attachments[0].name;
            assert!(name.ends_with(expected) && name.len() <= 200, "{name}");
        }
    }

    #[test]
    fn attachments_above_the_limit_are_reported_as_not_available() {
        let mut many = message("1", "7");
        many.attachments = vec![file(10); MAX_ATTACHMENTS + 3];
        let work = work_of("bot", many);
        assert_eq!(work.attachments.len(), MAX_ATTACHMENTS + 1);
        let rest = work.attachments.last().unwrap();
        assert_eq!(rest.name, "3 more files");
        assert_eq!(rest.size, 30);
        assert_eq!(
            rest.unavailable,
            "only the first 50 files of a message are taken"
        );

        let mut full = message("1", "8");
        full.attachments = vec![file(10); MAX_ATTACHMENTS];
        assert_eq!(work_of("bot", full).attachments.len(), MAX_ATTACHMENTS);
    }
}
