//! Handles one message of a user: finds its session, fetches its files within limits, and publishes work that places
//! each file in the sandbox.

use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, Meta, WorkCompleted, WorkFailure};
use dray_media_type::kind;
use dray_platform::{ErrorKind, InboundAttachment, InboundSource, PlatformError};
use dray_presentation::{name, size};
use dray_proto::codes::DeliveryTask;
use dray_proto::v1;
use dray_service::ReplaceableValue;
use dray_store::{ArtifactLabel, ArtifactWriter, PutError, Store};
use dray_types::{Claim, Clock, Deadline, Fault, FaultCode, OperationId, whole_millis};
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

use super::{MESSAGE_TIMEOUT, long_text};
use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::config::Config;
use crate::deliver::ACCOUNT_GRACE_MS;
use crate::error::{DeliveryError, left_to_other_replica};
use crate::metrics::DeliveryMetrics;
use crate::platform_cache::PlatformCache;
use crate::uploads::PLACE_TIMEOUT;

/// Attempts to fetch one attachment: the first and two more (platform-delivery 11.2).
const MAX_FETCH_ATTEMPTS: u32 = 3;

/// How long a message waits for the session of its chat, in milliseconds after it was accepted: the service that answers
/// the first message may be about to bind it.
const BINDING_TIMEOUT_MS: u64 = 180_000;
/// Time between two looks for the session.
const BINDING_DELAY: Duration = Duration::from_secs(5);

/// Notice to a user whose chat has no session.
const UNBOUND_NOTICE: &str = "Your files were not taken: this chat is not connected to a session.";

/// The outcome of one attachment.
enum AttachmentResult {
    Stored(Claim),
    Unavailable(String),
}

/// The reason why an attachment was not stored.
enum FetchFailure {
    Platform(PlatformError),
    Store(PutError),
}

impl From<PlatformError> for FetchFailure {
    fn from(error: PlatformError) -> Self {
        Self::Platform(error)
    }
}

impl FetchFailure {
    /// The failure as one of the platform.
    ///
    /// # Errors
    /// The fault of a store that is away.
    fn platform_error(self) -> Result<PlatformError, Fault> {
        match self {
            Self::Platform(error) => Ok(error),
            Self::Store(error) if error.is_unavailable() => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an attachment waits for the store"
                );
                Err(error.into())
            }
            Self::Store(error) => {
                let error =
                    PlatformError::new(ErrorKind::Transient, "the store did not take the bytes")
                        .caused_by(error);
                Ok(error)
            }
        }
    }
}

/// Handles messages of users.
#[derive(Debug)]
pub(crate) struct MessageReceiver {
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) config: ReplaceableValue<Config>,
    pub(crate) accounts: AccountRegistry,
    pub(crate) platform_cache: PlatformCache,
    pub(crate) metrics: DeliveryMetrics,
}

impl MessageReceiver {
    /// Handles one message.
    ///
    /// # Errors
    /// The chat belongs to no session, or a temporary failure.
    pub(crate) async fn receive(
        &self,
        meta: &Meta,
        work: &v1::ReceiveMessage,
        epoch: u64,
        cancel: &CancellationToken,
    ) -> Result<WorkCompleted, WorkFailure> {
        let chat = work.chat.clone().unwrap_or_default();
        let found = self
            .accounts
            .find(&meta.tenant, &chat.platform, &chat.account);
        let account = found.map_err(|error| {
            // The replica that took the message has the account, which this one may be about to read.
            if self.is_younger(meta, ACCOUNT_GRACE_MS) {
                return left_to_other_replica();
            }
            Fault::from(error)
        })?;
        let Some(session) = self.session_of(meta, &account, &chat).await? else {
            return Err(self.handle_unbound_chat(meta, work).await);
        };
        let mut remaining_bytes = self.config.get().max_message.as_u64();
        let mut uploads = Vec::new();
        for (position, attachment) in work.attachments.iter().enumerate() {
            let fetching = self.fetch_attachment(
                meta,
                &account,
                attachment,
                (epoch, position),
                remaining_bytes,
            );
            let fetched = tokio::select! {
                fetched = fetching => fetched?,
                () = cancel.cancelled() => return Err(Fault::from(DeliveryError::Interrupted).into()),
            };
            // All files of a message share one limit, in their order.
            if let AttachmentResult::Stored(claim) = &fetched {
                remaining_bytes = remaining_bytes.saturating_sub(claim.artifact.size);
            }
            let upload = self
                .place(meta, work, &session, (position, attachment), fetched)
                .await?;
            uploads.push(upload);
        }
        Ok(WorkCompleted::event(&received_event(
            meta, work, session, uploads,
        )))
    }

    /// Whether the message was accepted less than this time ago. An operator's restart of its work has a nearer deadline
    /// and counts as old.
    fn is_younger(&self, meta: &Meta, age_ms: u64) -> bool {
        let accepted_ms = meta
            .deadline
            .unix_ms()
            .saturating_sub(whole_millis(MESSAGE_TIMEOUT));
        self.clock.now_ms() < accepted_ms.saturating_add(age_ms)
    }

    /// Handles a chat without a session: notifies the service that binds sessions, waits a while, and gives up with a
    /// notice to the user.
    async fn handle_unbound_chat(&self, meta: &Meta, work: &v1::ReceiveMessage) -> WorkFailure {
        let event = received_event(meta, work, String::new(), Vec::new());
        if let Err(error) = self.bus.publish_event_part(meta, "unbound", &event).await {
            tracing::warn!(%error, "could not report a message without a session");
        }
        let fault = Fault::new(FaultCode::NotFound, "This chat belongs to no session.")
            .detail("no_session")
            .advice("Bind the chat to a session, then send the files again.");
        if self.is_younger(meta, BINDING_TIMEOUT_MS) {
            // This detail parks the work, so that the wait uses up no attempts.
            let pending = fault.detail("binding_pending");
            return pending.retry_after(BINDING_DELAY).into();
        }
        if !work.attachments.is_empty() {
            self.notify_user(meta, work).await;
        }
        fault.into()
    }

    /// Notifies the user whose files could not be placed.
    async fn notify_user(&self, meta: &Meta, work: &v1::ReceiveMessage) {
        let notice = v1::DeliverFiles {
            delivery_id: derived_operation(&meta.operation, "notice").to_string(),
            target: work.chat.clone(),
            ..v1::DeliverFiles::default()
        };
        let notice = notice.with_task(DeliveryTask::Notice(UNBOUND_NOTICE.to_owned()));
        let envelope = meta
            .clone()
            .with_operation(derived_operation(&meta.operation, "notice"));
        if let Err(error) = self.bus.publish_work(&envelope, &notice).await {
            tracing::warn!(%error, "could not report lost files to a user");
        }
    }

    /// Fetches one attachment into the store.
    ///
    /// # Errors
    /// The store is away. The work is then parked, because the attachment is still on the platform.
    async fn fetch_attachment(
        &self,
        meta: &Meta,
        account: &PlatformAccount,
        attachment: &v1::ReceivedAttachment,
        (epoch, position): (u64, usize),
        remaining_bytes: u64,
    ) -> Result<AttachmentResult, Fault> {
        let unavailable = |reason: &str| Ok(AttachmentResult::Unavailable(reason.to_owned()));
        if !attachment.unavailable.is_empty() {
            return unavailable(&attachment.unavailable);
        }
        if attachment.kind == long_text::ATTACHMENT_KIND {
            let stored = long_text::stored_text(&self.store, &meta.tenant, attachment).await?;
            return Ok(stored.map_or_else(
                || AttachmentResult::Unavailable("it expired".to_owned()),
                AttachmentResult::Stored,
            ));
        }
        let max_bytes = self
            .config
            .get()
            .max_attachment
            .as_u64()
            .min(remaining_bytes);
        // The size is checked before any byte is fetched. A file that is larger than announced fails during the fetch.
        if attachment.size > max_bytes {
            return Ok(too_large(attachment.size, max_bytes));
        }
        let Some(inbox) = &account.inbox else {
            return unavailable("this account takes no files");
        };
        let inbound_attachment = to_inbound_attachment(attachment);
        let mut attempts = 0;
        loop {
            attempts += 1;
            // An operation for each attempt, so that the staged bytes of two attempts never mix.
            let operation = derived_operation(&meta.operation, &format!("a{position}t{attempts}"));
            let writer = self
                .store
                .writer(&meta.tenant, &operation, epoch)
                .deadline(meta.deadline);
            let error = match self
                .fetch_once(inbox.as_ref(), &inbound_attachment, writer, max_bytes)
                .await
            {
                Ok(claim) => return Ok(AttachmentResult::Stored(claim)),
                Err(failure) => failure.platform_error()?,
            };
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "an attachment was not fetched"
            );
            if error.kind() == ErrorKind::TooLarge {
                let size = attachment.size.max(max_bytes.saturating_add(1));
                return Ok(too_large(size, max_bytes));
            }
            let is_temporary =
                matches!(error.kind(), ErrorKind::Transient | ErrorKind::RateLimited);
            if !is_temporary || attempts >= MAX_FETCH_ATTEMPTS {
                return unavailable(kind_reason(error.kind()));
            }
            let wait = error
                .retry_after()
                .unwrap_or(Duration::from_secs(1) * attempts);
            tokio::time::sleep(wait.min(Duration::from_secs(30))).await;
        }
    }

    /// Streams the bytes into the store, regardless of the announced length.
    async fn fetch_once(
        &self,
        inbox: &dyn InboundSource,
        attachment: &InboundAttachment,
        mut writer: ArtifactWriter,
        max_bytes: u64,
    ) -> Result<Claim, FetchFailure> {
        let idle = self.config.get().fetch_idle.as_duration();
        let stalled_error =
            || PlatformError::new(ErrorKind::Transient, "the platform stopped sending");
        let opening = async {
            let described = inbox.describe(attachment).await?;
            let stream = inbox.fetch(&described).await?;
            Ok::<_, PlatformError>((described, stream))
        };
        let opened = tokio::time::timeout(idle, opening).await;
        let (described, mut stream) = opened.map_err(|_| stalled_error())??;
        let mut head: Vec<u8> = Vec::new();
        while let Some(bytes) = tokio::time::timeout(idle, stream.next())
            .await
            .map_err(|_| stalled_error())?
        {
            let bytes: Bytes = bytes?;
            // The bytes are counted as they arrive: the platform's size may be wrong or missing (platform-delivery
            // 11.2).
            if writer.size() + bytes.len() as u64 > max_bytes {
                return Err(
                    PlatformError::new(ErrorKind::TooLarge, "more bytes than allowed").into(),
                );
            }
            let head_bytes = kind::HEAD_BYTES.saturating_sub(head.len()).min(bytes.len());
            head.extend_from_slice(bytes.get(..head_bytes).unwrap_or_default());
            writer.write(bytes).await.map_err(FetchFailure::Store)?;
        }
        let file_name = name::upload_name(&described.name);
        let detected = kind::detect_kind(&head, &file_name, writer.size());
        let label = ArtifactLabel::new(detected.media_type, file_name);
        writer.finish(label).await.map_err(FetchFailure::Store)
    }

    /// Publishes the work that places one attachment in the sandbox, or that reports to the agent why it is not
    /// available.
    async fn place(
        &self,
        meta: &Meta,
        work: &v1::ReceiveMessage,
        session: &str,
        (position, attachment): (usize, &v1::ReceivedAttachment),
        fetched: AttachmentResult,
    ) -> Result<String, Fault> {
        let platform = work.chat.clone().unwrap_or_default().platform;
        let mut request = v1::PlaceUpload {
            session: session.to_owned(),
            name: attachment.name.clone(),
            chat: work.chat.clone(),
            message_id: work.message_id.clone(),
            position: u32::try_from(position).unwrap_or(u32::MAX),
            claimed_size: attachment.size,
            ..v1::PlaceUpload::default()
        };
        let mut audit = v1::DeliveryAudit {
            delivery_id: meta.operation.to_string(),
            direction: "in".to_owned(),
            platform: platform.clone(),
            session: session.to_owned(),
            name: name::shown_name(&attachment.name),
            size: attachment.size,
            route: attachment.kind.clone(),
            platform_message_id: work.message_id.clone(),
            ..v1::DeliveryAudit::default()
        };
        match fetched {
            AttachmentResult::Stored(claim) => {
                "stored".clone_into(&mut audit.state);
                audit.size = claim.artifact.size;
                audit.sha256 = claim.artifact.sha256.as_bytes().to_vec();
                // A message need not name its files; the name of the stored file is then the platform's later one.
                if request.name.is_empty() {
                    request.name.clone_from(&claim.artifact.name);
                    audit.name = name::shown_name(&request.name);
                }
                request.claim = Some(claim.into());
            }
            AttachmentResult::Unavailable(reason) => {
                "unavailable".clone_into(&mut audit.state);
                request.unavailable = reason;
            }
        }
        self.metrics.attachment(&platform, &audit.state);
        let operation = derived_operation(&meta.operation, &format!("a{position}"));
        // A separate deadline, because a file may wait for its sandbox much longer than this message takes.
        let deadline = Deadline::after(self.clock.now_ms(), PLACE_TIMEOUT);
        let envelope = meta
            .clone()
            .with_operation(operation.clone())
            .with_deadline(deadline);
        self.bus.publish_work(&envelope, &request).await?;
        if let Err(error) = self.bus.publish_audit(meta, &audit).await {
            tracing::error!(%error, "an audit line is lost");
        }
        Ok(operation.to_string())
    }
}

fn received_event(
    meta: &Meta,
    work: &v1::ReceiveMessage,
    session: String,
    uploads: Vec<String>,
) -> v1::MessageReceived {
    v1::MessageReceived {
        operation_id: meta.operation.to_string(),
        session,
        chat: work.chat.clone(),
        message_id: work.message_id.clone(),
        sender: work.sender.clone(),
        text: work.text.clone(),
        uploads,
    }
}

/// An operation that follows from another, the same one for a repeated message.
pub(super) fn derived_operation(operation: &OperationId, prefix: &str) -> OperationId {
    OperationId::new(format!("{prefix}-{}", operation.ledger_token()))
        .unwrap_or_else(|_| operation.clone())
}

fn too_large(size_bytes: u64, max_bytes: u64) -> AttachmentResult {
    AttachmentResult::Unavailable(format!(
        "too large ({})",
        size::over_limit(size_bytes, max_bytes)
    ))
}

/// The reason why an attachment is not available, as a phrase for the agent.
const fn kind_reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound | ErrorKind::StaleFileId => "the platform no longer has it",
        ErrorKind::Auth | ErrorKind::Forbidden => "the platform did not let us fetch it",
        ErrorKind::Empty => "it is empty",
        _ => "it could not be fetched",
    }
}

fn to_inbound_attachment(attachment: &v1::ReceivedAttachment) -> InboundAttachment {
    let v1::ReceivedAttachment {
        id,
        name,
        size,
        media_type,
        reference,
        kind,
        unavailable,
    } = attachment.clone();
    InboundAttachment {
        id,
        name,
        size,
        media_type,
        reference,
        kind,
        unavailable,
    }
}
