//! Calls and work that concern sessions and their uploads.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Meta, WorkCompleted, WorkDelivery, WorkFailure};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_service::Request;
use dray_types::Fault;
use tokio::time::timeout;

use super::{SandboxTransfer, report};
use crate::error::Error;
use crate::wire;

/// Longest id of a session, in bytes.
const MAX_SESSION_BYTES: usize = 128;
/// Largest number of additional roots of a session.
const MAX_ROOTS: usize = 32;
/// Most bytes of all additional roots. The record of a session, with its chat and directories, has at most 64 KiB.
const MAX_ROOTS_BYTES: usize = 32 << 10;
/// Part of the time of a call that is left for reading the uploads after they were placed.
const SETTLE_MARGIN: Duration = Duration::from_secs(2);

impl SandboxTransfer {
    /// Binds a sandbox, a chat, or both to a session.
    pub async fn bind(
        self: Arc<Self>,
        request: Request<v1::BindSessionRequest>,
    ) -> Result<v1::Session, Fault> {
        let Request { meta, body } = request;
        let bound = self.try_bind(&meta, body).await;
        bound.map_err(|error| report(&meta, error))
    }

    async fn try_bind(
        &self,
        meta: &Meta,
        body: v1::BindSessionRequest,
    ) -> Result<v1::Session, Error> {
        check_session(&body.session)?;
        check_chat(body.chat.as_ref())?;
        // Without an id of the chat, no chat finds the session, and every delivery to it is rejected.
        if body.chat.as_ref().is_some_and(|chat| chat.chat.is_empty()) {
            return Err(InvalidMessage::Missing("chat.chat").into());
        }
        if body.roots.len() > MAX_ROOTS {
            return Err(InvalidMessage::field("roots", "must have at most 32 entries").into());
        }
        if body.roots.iter().map(Vec::len).sum::<usize>() > MAX_ROOTS_BYTES {
            return Err(InvalidMessage::field("roots", "must have at most 32 KiB together").into());
        }
        for (field, path) in [
            ("working_directory", &body.working_directory),
            ("uploads_directory", &body.uploads_directory),
        ] {
            if !path.is_empty() {
                wire::path(field, path)?;
            }
        }
        for root in &body.roots {
            wire::path("roots", root)?;
        }
        let handle = if body.sandbox.is_empty() {
            None
        } else {
            Some(self.resolve(&meta.tenant, &body.sandbox).await?)
        };
        let now = self.clock.now_ms();
        // The closure is called again when another writer came first, so it only changes the record.
        let change = |session: &mut v1::Session| {
            // Paths belong to a sandbox: without a new one the old ones stay.
            if let Some(handle) = &handle {
                session.sandbox = Some(wire::handle(handle));
                session
                    .working_directory
                    .clone_from(&body.working_directory);
                session
                    .uploads_directory
                    .clone_from(&body.uploads_directory);
                session.roots.clone_from(&body.roots);
            }
            if let Some(chat) = &body.chat {
                session.chat = Some(v1::ChatTarget {
                    // A session is bound to a chat and a thread, not to one message.
                    reply_to: String::new(),
                    ..chat.clone()
                });
            }
            session.changed_at_ms = now;
        };
        self.sessions
            .change(&meta.tenant, &body.session, change)
            .await
    }

    /// Returns the sandbox, the directories and the chat that are bound to a session.
    pub async fn show(
        self: Arc<Self>,
        request: Request<v1::ShowSessionRequest>,
    ) -> Result<v1::Session, Fault> {
        let Request { meta, body } = request;
        let shown = self.sessions.show(&meta.tenant, &body.session).await;
        shown.map_err(|error| report(&meta, error))
    }

    /// Removes a session, or only its sandbox.
    pub async fn unbind(
        self: Arc<Self>,
        request: Request<v1::UnbindSessionRequest>,
    ) -> Result<v1::UnbindSessionReply, Fault> {
        let Request { meta, body } = request;
        let unbound = async {
            if !body.sandbox_only {
                return self.sessions.forget(&meta.tenant, &body.session).await;
            }
            let session = match self.sessions.show(&meta.tenant, &body.session).await {
                Ok(session) => session,
                Err(Error::NoSession) => return Ok(false),
                Err(error) => return Err(error),
            };
            let now = self.clock.now_ms();
            self.sessions
                .change(&meta.tenant, &body.session, |session| {
                    session.sandbox = None;
                    session.changed_at_ms = now;
                })
                .await?;
            Ok(session.sandbox.is_some())
        };
        match unbound.await {
            Ok(found) => Ok(v1::UnbindSessionReply { found }),
            Err(error) => Err(report(&meta, error)),
        }
    }

    /// Finds the session to which a chat belongs.
    pub async fn find(
        self: Arc<Self>,
        request: Request<v1::FindSessionRequest>,
    ) -> Result<v1::Session, Fault> {
        let Request { meta, body } = request;
        let found = async {
            let chat = body.chat.ok_or(InvalidMessage::Missing("chat"))?;
            self.sessions.find(&meta.tenant, &chat).await
        };
        found.await.map_err(|error| report(&meta, error))
    }

    /// Puts the waiting uploads of a session into its sandbox and reports those that are new.
    pub async fn settle(
        self: Arc<Self>,
        request: Request<v1::SettleUploadsRequest>,
    ) -> Result<v1::SettleUploadsReply, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let settled = async {
            check_session(&body.session)?;
            let remaining = work_until.remaining(self.clock.now_ms());
            let place_until = work_until.earlier(SETTLE_MARGIN.min(remaining / 4));
            let placing = self.place_waiting(&meta, &body.session, place_until, None);
            let time = place_until.remaining(self.clock.now_ms());
            // Uploads that have ended are reported in any case: only the placement of the others failed.
            if let Ok(Err(error)) = timeout(time, Box::pin(placing)).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "uploads wait: they could not be placed"
                );
            }
            self.uploads.take_ended(&meta.tenant, &body).await
        };
        settled.await.map_err(|error| report(&meta, error))
    }

    /// Takes one upload: records it, and puts it into the sandbox when there is one that can be reached.
    pub async fn place(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::PlaceUpload>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery { meta, work, .. } = delivery;
        let placed = async {
            check_session(&work.session)?;
            check_chat(work.chat.as_ref())?;
            // The claim is kept before the upload is recorded: the upload may wait longer than the cache keeps its
            // file.
            let work = self.with_kept_claim(&meta, work).await?;
            // The upload is recorded before it is placed: a crash between the two leaves it waiting and not lost.
            self.uploads.record(&meta, &work).await?;
            let own = Some(&meta.operation);
            self.place_waiting(&meta, &work.session, meta.deadline, own)
                .await?;
            self.uploads
                .find(&meta.tenant, &work.session, &meta.operation)
                .await
        };
        match placed.await {
            Ok(upload) => Ok(WorkCompleted::event(&v1::UploadPlaced {
                operation_id: meta.operation.to_string(),
                upload: Some(upload),
            })),
            Err(error) => Err(report(&meta, error).into()),
        }
    }
}

fn check_session(session: &str) -> Result<(), InvalidMessage> {
    if session.is_empty() || session.len() > MAX_SESSION_BYTES {
        return Err(InvalidMessage::field("session", "must have 1 to 128 bytes"));
    }
    if session.chars().any(char::is_control) {
        return Err(InvalidMessage::field(
            "session",
            "must not contain control characters",
        ));
    }
    Ok(())
}

fn check_chat(chat: Option<&v1::ChatTarget>) -> Result<(), InvalidMessage> {
    let Some(chat) = chat else { return Ok(()) };
    let is_platform = !chat.platform.is_empty()
        && chat.platform.len() <= 64
        && chat
            .platform
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !is_platform {
        return Err(InvalidMessage::field(
            "chat.platform",
            "must be a lower-case word",
        ));
    }
    for (field, text) in [
        ("chat.account", &chat.account),
        ("chat.chat", &chat.chat),
        ("chat.thread", &chat.thread),
    ] {
        if text.len() > 4096 || text.chars().any(char::is_control) {
            return Err(InvalidMessage::field(
                field,
                "must have at most 4096 bytes and no control characters",
            ));
        }
    }
    Ok(())
}
