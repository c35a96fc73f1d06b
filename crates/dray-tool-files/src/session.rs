//! The bindings of a turn's session: its sandbox and its chat.

use std::sync::Arc;
use std::time::Duration;

use dray_proto::v1::{self, sandbox_ref};
use dray_tool::{HandledFailure, ToolFailure};
use dray_types::FaultCode;
use tokio::sync::OnceCell;

use super::ask::{CallFailure, PeerService};
use super::scope::TurnScope;

/// Longest time that a turn waits for its session binding.
const MAX_SESSION_WAIT: Duration = Duration::from_secs(2);

/// The record of the turn's session, requested once.
#[derive(Debug)]
pub struct SessionBinding {
    scope: Arc<TurnScope>,
    bound: OnceCell<v1::Session>,
    /// The session record after a sandbox was bound in this turn to a session without one.
    bound_in_turn: OnceCell<v1::Session>,
}

impl SessionBinding {
    /// The binding of the turn's session. A new session has no binding, so it needs no request.
    pub(super) fn new(scope: Arc<TurnScope>, is_new: bool) -> Self {
        Self {
            scope,
            bound: OnceCell::new_with(is_new.then(v1::Session::default)),
            bound_in_turn: OnceCell::new(),
        }
    }

    /// The sandbox, chat and directories of the session; an empty record while requests for sessions fail.
    pub async fn bound(&self) -> &v1::Session {
        // A static, because the function returns a reference to it.
        static EMPTY_SESSION: v1::Session = v1::Session {
            session: String::new(),
            sandbox: None,
            chat: None,
            working_directory: Vec::new(),
            uploads_directory: Vec::new(),
            roots: Vec::new(),
            changed_at_ms: 0,
        };
        // A binding of this turn is newer than the record.
        if let Some(session) = self.bound_in_turn.get() {
            return session;
        }
        // Failures are not cached: a later call of the turn may reach the service.
        let found = self
            .bound
            .get_or_try_init(async || self.fetch_session().await)
            .await;
        found.unwrap_or(&EMPTY_SESSION)
    }

    async fn fetch_session(&self) -> Result<v1::Session, ()> {
        let services = &self.scope.services;
        let Some(session) = &self.scope.session else {
            return Ok(v1::Session::default());
        };
        if !services.config.sessions {
            return Ok(v1::Session::default());
        }
        if services.sessions_are_absent() {
            return Err(());
        }
        // Every turn starts with this request, so it must be short.
        let time = services
            .config
            .call_timeout
            .as_duration()
            .min(MAX_SESSION_WAIT);
        let meta = services.meta(time, Some(session));
        let request = v1::ShowSessionRequest {
            session: session.to_string(),
        };
        match services.ask(PeerService::Sandbox, &meta, &request).await {
            Ok(found) => Ok(found),
            Err(CallFailure::Refused(fault)) if fault.code == FaultCode::NotFound => {
                Ok(v1::Session::default())
            }
            Err(CallFailure::Refused(fault)) if fault.detail == "invalid_session_record" => {
                // The failure is about this session alone: the service works, so sessions of others are requested as
                // before.
                tracing::warn!(
                    error = &fault as &dyn std::error::Error,
                    "could not read the session of a turn, which continues without it"
                );
                Ok(v1::Session::default())
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not read the session of a turn, which continues without it"
                );
                services.note_absence();
                Err(())
            }
        }
    }

    /// Binds a sandbox to the session unless it has one. `{session}` in the address is replaced by the id of the
    /// session.
    ///
    /// # Errors
    ///
    /// The sandbox could not be bound, so the turn has no tools of sandboxes. The failure is logged.
    pub async fn bind(&self, address: &str) -> Result<(), CallFailure> {
        let Some(session) = &self.scope.session else {
            return Ok(());
        };
        if self.bound().await.sandbox.is_some() {
            return Ok(());
        }
        let services = &self.scope.services;
        let time = services.config.call_timeout.as_duration();
        let meta = services.meta(time, Some(session));
        let request = v1::BindSessionRequest {
            session: session.to_string(),
            sandbox: address.replace("{session}", session.as_str()),
            ..v1::BindSessionRequest::default()
        };
        match services.ask(PeerService::Sandbox, &meta, &request).await {
            Ok(bound) => {
                // An error means that a concurrent call has bound the session as well.
                let _ = self.bound_in_turn.set(bound);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "could not bind a sandbox to a session"
                );
                Err(error)
            }
        }
    }

    /// Whether anything is bound to the session.
    pub async fn is_bound(&self) -> bool {
        self.has_sandbox().await || self.has_chat().await
    }

    /// Whether the session has a sandbox.
    pub async fn has_sandbox(&self) -> bool {
        self.bound().await.sandbox.is_some()
    }

    /// Whether the session has a chat, which gets the files; otherwise they are attached to the response.
    pub async fn has_chat(&self) -> bool {
        self.bound().await.chat.is_some()
    }

    /// The session's sandbox, as requests name it.
    pub(super) async fn sandbox(&self) -> Result<v1::SandboxRef, ToolFailure> {
        let session = self.scope.session.as_ref();
        let session = session.filter(|_| self.scope.services.config.sessions);
        let (Some(session), true) = (session, self.has_sandbox().await) else {
            return Err(HandledFailure::new("This conversation has no sandbox.").into());
        };
        Ok(v1::SandboxRef {
            sandbox: Some(sandbox_ref::Sandbox::Session(session.to_string())),
        })
    }
}
