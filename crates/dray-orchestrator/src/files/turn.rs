//! What one turn may do with files, on behalf of one caller.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::manifest::feature::{ExternalUrlFetch, Features};
use dray_agent::message::Attachment;
use dray_bus::Meta;
use dray_proto::v1::{self, sandbox_ref};
use dray_tool::{HandledFailure, ToolCall, ToolFailure};
use dray_types::{FaultCode, OperationId, SessionId, Sha256Digest};
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::ask::{CallFailure, PeerService};
use super::context::FileCatalog;
use super::once::OnceMap;
use super::services::FileServices;

/// Time that is kept for saying what went wrong, before the caller of the tool gives up.
const REPORT_MARGIN: Duration = Duration::from_millis(300);

/// What a turn begins with.
#[derive(Clone, Debug, Default)]
pub struct TurnStart {
    /// Session whose sandbox and chat are used; one with an invalid id has neither.
    pub session: String,
    /// Whether the session is new: nothing is bound to it, so no request is needed.
    pub is_new: bool,
    /// Id of the turn: the same for a repeat of the same request, so that nothing is delivered twice.
    pub turn: String,
    /// Who asks.
    pub caller: Caller,
    /// The conversation, to which names of stored files are bound; empty for the session.
    pub conversation: String,
    /// What the manifest switches on.
    pub features: Features,
}

/// Files of one turn.
#[derive(Debug)]
pub struct TurnFiles {
    pub(super) services: FileServices,
    pub(super) session: Option<SessionId>,
    pub(super) turn: String,
    /// To what names of stored files are bound.
    pub(super) conversation: String,
    /// Names this request and no other one, not even a repeat of it: its calls share what they load.
    pub(super) request: String,
    pub(super) caller: Caller,
    pub(super) features: Features,
    pub(super) policy: Option<v1::AppPolicy>,
    /// Most bytes of one file.
    pub(super) limit: u64,
    bound: OnceCell<v1::Session>,
    /// What was bound in this turn, where nothing was before.
    given: OnceCell<v1::Session>,
    pub(super) catalog: Mutex<Option<FileCatalog>>,
    /// What the model is reminded of after each message of the user.
    pub(super) reminders: Mutex<Vec<Option<String>>>,
    pub(super) promoted: OnceMap<Attachment>,
    pub(super) kept: OnceMap<super::storage::KeptFile>,
    pub(super) home: OnceCell<String>,
    /// Paths that went to the person in this turn, as asked for and as they are.
    sent: Mutex<BTreeSet<Vec<u8>>>,
}

impl TurnFiles {
    /// The files of a turn.
    pub fn new(services: FileServices, opening: TurnStart) -> Self {
        let TurnStart {
            session,
            is_new,
            turn,
            caller,
            conversation,
            features,
        } = opening;
        let conversation = [conversation, session.clone(), turn.clone()]
            .into_iter()
            .find(|id| !id.is_empty())
            .unwrap_or_default();
        let default = services.config.size_limit.as_u64();
        Self {
            session: SessionId::new(session).ok(),
            turn,
            conversation,
            request: uuid::Uuid::new_v4().simple().to_string(),
            caller,
            policy: app_policy(&features.external_url_fetch),
            limit: features.file_loading.size_limit.unwrap_or(default),
            features,
            services,
            bound: OnceCell::new_with(is_new.then(v1::Session::default)),
            given: OnceCell::new(),
            catalog: Mutex::default(),
            reminders: Mutex::default(),
            promoted: OnceMap::default(),
            kept: OnceMap::default(),
            home: OnceCell::new(),
            sent: Mutex::default(),
        }
    }

    /// Most bytes of one file.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// What is bound to the session; an empty record while requests for sessions fail.
    pub async fn bound(&self) -> &v1::Session {
        static EMPTY_SESSION: v1::Session = v1::Session {
            session: String::new(),
            sandbox: None,
            chat: None,
            working_directory: Vec::new(),
            uploads_directory: Vec::new(),
            roots: Vec::new(),
            changed_at_ms: 0,
        };
        if let Some(given) = self.given.get() {
            return given;
        }
        let found = self.bound.get_or_try_init(async || self.look().await).await;
        found.unwrap_or(&EMPTY_SESSION)
    }

    async fn look(&self) -> Result<v1::Session, ()> {
        let services = &self.services;
        let Some(session) = &self.session else {
            return Ok(v1::Session::default());
        };
        if !services.config.sessions {
            return Ok(v1::Session::default());
        }
        if services.sessions_are_absent() {
            return Err(());
        }
        // It stands before everything else that a turn does, so it may not take long.
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
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a turn goes on without its session"
                );
                services.note_absence();
                Err(())
            }
        }
    }

    /// Gives the session a sandbox unless it has one. `{session}` in the address stands for its id. Without a sandbox
    /// the turn goes on: its tools are not there.
    pub async fn bind(&self, address: &str) {
        let Some(session) = &self.session else {
            return;
        };
        if self.bound().await.sandbox.is_some() {
            return;
        }
        let services = &self.services;
        let time = services.config.call_timeout.as_duration();
        let meta = services.meta(time, Some(session));
        let request = v1::BindSessionRequest {
            session: session.to_string(),
            sandbox: address.replace("{session}", session.as_str()),
            ..v1::BindSessionRequest::default()
        };
        match services.ask(PeerService::Sandbox, &meta, &request).await {
            Ok(bound) => {
                let _ = self.given.set(bound);
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a session got no sandbox"
            ),
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

    /// Whether the session has a chat, which gets the files; otherwise they are attached to the answer.
    pub async fn has_chat(&self) -> bool {
        self.bound().await.chat.is_some()
    }

    /// The session's sandbox, as requests name it.
    pub(super) async fn sandbox(&self) -> Result<v1::SandboxRef, ToolFailure> {
        let session = self
            .session
            .as_ref()
            .filter(|_| self.services.config.sessions);
        let (Some(session), true) = (session, self.has_sandbox().await) else {
            return Err(HandledFailure::new("This conversation has no sandbox.").into());
        };
        Ok(v1::SandboxRef {
            sandbox: Some(sandbox_ref::Sandbox::Session(session.to_string())),
        })
    }

    /// Time left for a call, less what it takes to say that it failed.
    #[expect(
        clippy::unused_self,
        reason = "a turn may come to have a limit of its own"
    )]
    pub(super) fn left(&self, call: &ToolCall) -> Duration {
        let left = call.deadline.saturating_duration_since(Instant::now());
        left.saturating_sub(REPORT_MARGIN.min(left / 10))
    }

    /// The envelope of a question within a call.
    pub(super) fn meta(&self, time: Duration) -> Meta {
        self.services.meta(time, self.session.as_ref())
    }

    /// The envelope of a short question within a call.
    pub(super) fn short(&self, call: &ToolCall) -> Meta {
        let most = self.services.config.call_timeout.as_duration();
        self.meta(self.left(call).min(most))
    }

    /// The id of something that a call does, the same when the call is repeated.
    pub(super) fn operation(&self, what: &str) -> OperationId {
        let session = self.session.as_ref().map_or("", SessionId::as_str);
        let digest = Sha256Digest::of(format!("{session}\0{}\0{what}", self.turn).as_bytes());
        let hex = digest.to_hex();
        OperationId::new(format!("turn-{}", hex.get(..40).unwrap_or_default()))
            .unwrap_or_else(|_| OperationId::mint())
    }

    /// What the caller shows DIAL, for services that load DIAL's files.
    pub(super) fn credentials(&self) -> v1::DialCredentials {
        let text = |secret: &Option<dray_types::Secret>| {
            let secret = secret.as_ref().map(|secret| secret.expose().to_owned());
            secret.unwrap_or_default()
        };
        v1::DialCredentials {
            api_key: text(&self.caller.api_key),
            authorization: text(&self.caller.authorization),
        }
    }

    /// Notes paths that a person has got.
    pub(super) fn note_sent(&self, paths: impl IntoIterator<Item = Vec<u8>>) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.extend(paths.into_iter().filter(|path| !path.is_empty()));
    }

    /// Paths that a person has got in this turn.
    pub(super) fn sent(&self) -> BTreeSet<Vec<u8>> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.clone()
    }

    /// Whether a person has got this path in this turn.
    pub(super) fn was_sent(&self, path: &[u8]) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.contains(path)
    }

    /// The catalog of the conversation's files as JSON.
    pub(super) fn catalog_json(&self) -> Bytes {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog.as_ref().map_or_else(Bytes::new, FileCatalog::json)
    }
}

/// Longest time that a turn waits to know its session.
const MAX_SESSION_WAIT: Duration = Duration::from_secs(2);

/// The policy of the manifest; nothing when it says nothing.
fn app_policy(feature: &ExternalUrlFetch) -> Option<v1::AppPolicy> {
    let ExternalUrlFetch {
        enabled,
        host_allowlist,
    } = feature.clone();
    (enabled.is_some() || host_allowlist.is_some()).then(|| v1::AppPolicy {
        enabled,
        host_allowlist: host_allowlist.map(|patterns| v1::HostAllowlist { patterns }),
    })
}

/// The text of an argument; nothing when it is absent, `null` or empty.
pub(super) fn text_argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let text = arguments.get(name)?.as_str()?;
    Some(text).filter(|text| !text.trim().is_empty())
}
