//! The caller of a turn, and the metadata of the requests to other services on its behalf.

use std::sync::OnceLock;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::manifest::feature::{ExternalUrlFetch, Features};
use dray_bus::Meta;
use dray_proto::v1;
use dray_tool::ToolCall;
use dray_types::{OperationId, SessionId, Sha256Digest};
use tokio::time::Instant;

use super::services::FileServices;

/// Time that is reserved for reporting a failure before the deadline of the call.
const REPORT_MARGIN: Duration = Duration::from_millis(300);

/// The caller, the session and the features of one turn. It does not change while the turn runs.
#[derive(Debug)]
pub struct TurnScope {
    pub(super) services: FileServices,
    /// The session; `None` if its id is not valid.
    pub(super) session: Option<SessionId>,
    pub(super) turn: String,
    /// See [`Self::request`]. Made for the first call that needs it, because most turns have none.
    pub(super) request: OnceLock<String>,
    pub(super) caller: Caller,
    pub(super) features: Features,
}

impl TurnScope {
    /// A unique id of this request, which differs even for a repetition: the calls of one request share loaded files.
    pub(super) fn request(&self) -> &str {
        self.request
            .get_or_init(|| uuid::Uuid::new_v4().simple().to_string())
    }

    /// Most bytes of one file.
    pub fn limit(&self) -> u64 {
        let default = self.services.config.size_limit.as_u64();
        self.features.file_loading.size_limit.unwrap_or(default)
    }

    /// The policy of the manifest for web addresses; `None` if it has none.
    pub(super) fn policy(&self) -> Option<v1::AppPolicy> {
        let ExternalUrlFetch {
            enabled,
            host_allowlist,
        } = self.features.external_url_fetch.clone();
        (enabled.is_some() || host_allowlist.is_some()).then(|| v1::AppPolicy {
            enabled,
            host_allowlist: host_allowlist.map(|patterns| v1::HostAllowlist { patterns }),
        })
    }

    /// The session's id as requests carry it; empty without a session.
    pub(super) fn session_text(&self) -> String {
        let session = self.session.as_ref();
        session.map(ToString::to_string).unwrap_or_default()
    }

    /// The envelope of a request within a call.
    pub(super) fn meta(&self, time: Duration) -> Meta {
        self.services.meta(time, self.session.as_ref())
    }

    /// The envelope of a short request within a call.
    pub(super) fn short_meta(&self, call: &ToolCall) -> Meta {
        let max_time = self.services.config.call_timeout.as_duration();
        self.meta(time_left(call).min(max_time))
    }

    /// The id of an action of a call; a repeated call has the same id.
    pub(super) fn operation(&self, description: &str) -> OperationId {
        let session = self.session.as_ref().map_or("", SessionId::as_str);
        let digest =
            Sha256Digest::of(format!("{session}\0{}\0{description}", self.turn).as_bytes());
        let hex = digest.to_hex();
        OperationId::new(format!("turn-{}", hex.get(..40).unwrap_or_default()))
            .unwrap_or_else(|_| OperationId::mint())
    }

    /// The caller's credentials for DIAL, for services that load DIAL's files.
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

    /// Whether the model has the tools over the files of DIAL.
    pub(super) fn reads_drive(&self) -> bool {
        self.services.drive.is_some() && self.features.dial_files.is_some()
    }
}

/// Time left for a call, minus the time to report a failure.
pub(super) fn time_left(call: &ToolCall) -> Duration {
    let remaining = call.deadline.saturating_duration_since(Instant::now());
    remaining.saturating_sub(REPORT_MARGIN.min(remaining / 10))
}
