//! Checks the configured backends when a caller requests it. No sandbox is opened.

use std::sync::Arc;
use std::time::Duration;

use dray_presentation::name::shown_text;
use dray_proto::v1::{self, BackendState};
use dray_sandbox::{BackendCheck, ErrorKind};
use dray_service::Request;
use dray_types::{Fault, whole_millis};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::{SandboxTransfer, report};
use crate::backends::Backends;
use crate::error::Error;

/// Longest time for all backends of one request.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Part of the caller's time that is left for the reply.
const REPLY_MARGIN: Duration = Duration::from_millis(300);
/// How long a result is reused, in milliseconds, so that callers cannot cause a flood of requests to a provider.
const REUSE_PERIOD_MS: u64 = 5_000;
/// Most characters of the text that describes a backend's state.
const MAX_TEXT_CHARACTERS: usize = 200;

impl SandboxTransfer {
    /// Asks each configured backend whether it works. For tenants that may name sandboxes by address: other tenants do
    /// not learn which backends exist.
    pub async fn check_backends(
        self: Arc<Self>,
        request: Request<v1::CheckBackendsRequest>,
    ) -> Result<v1::CheckBackendsReply, Fault> {
        let Request { meta, body } = request;
        let check = async {
            let settings = self.settings.get();
            if !settings.may_name_sandboxes(&meta.tenant) {
                return Err(Error::AddressDenied);
            }
            let mut names = settings.backends.names();
            names.retain(|name| body.backend.is_empty() || *name == body.backend);
            if names.is_empty() && !body.backend.is_empty() {
                return Err(Error::NoBackend(body.backend.clone()));
            }
            let remaining_time = meta.deadline.remaining(self.clock.now_ms());
            let until = Instant::now()
                + remaining_time
                    .saturating_sub(REPLY_MARGIN)
                    .min(CHECK_TIMEOUT);
            // All are checked concurrently: there are only as many as kinds of sandboxes.
            let backends = &settings.backends;
            let checks = names.into_iter();
            let checks = checks.map(|name| self.check_one(backends, name, until));
            Ok(v1::CheckBackendsReply {
                backends: join_all(checks).await,
            })
        };
        check.await.map_err(|error| report(&meta, error))
    }

    async fn check_one(
        &self,
        backends: &Backends,
        name: &'static str,
        until: Instant,
    ) -> v1::BackendCheck {
        let started = Instant::now();
        let checked_at_ms = self.clock.now_ms();
        let reply = async {
            let (backend, last) = backends.checked(name)?;
            // The lock is held during the request: concurrent callers wait for its result instead of sending other
            // requests.
            let mut last = last.lock().await;
            if let Some(check) = last.as_ref()
                && self.clock.now_ms().saturating_sub(check.checked_at_ms) < REUSE_PERIOD_MS
            {
                return Some(check.clone());
            }
            let mut check = to_wire(name, backend.check().await);
            check.checked_at_ms = checked_at_ms;
            check.milliseconds = milliseconds_since(started);
            *last = Some(check.clone());
            Some(check)
        };
        if let Ok(Some(check)) = timeout_at(until, reply).await {
            return check;
        }
        let timed_out = dray_sandbox::Error::new(ErrorKind::Timeout, "no response in time");
        let mut check = to_wire(name, Err(timed_out));
        check.checked_at_ms = checked_at_ms;
        check.milliseconds = milliseconds_since(started);
        check
    }
}

fn milliseconds_since(started: Instant) -> u32 {
    u32::try_from(whole_millis(started.elapsed())).unwrap_or(u32::MAX)
}

fn to_wire(
    name: &'static str,
    result: Result<BackendCheck, dray_sandbox::Error>,
) -> v1::BackendCheck {
    let mut check = v1::BackendCheck {
        backend: name.to_owned(),
        ..v1::BackendCheck::default()
    };
    let (state, detail) = match result {
        Ok(BackendCheck::Ready(detail)) => (BackendState::Ready, detail),
        Ok(BackendCheck::Refused(detail)) => {
            ErrorKind::Auth.as_str().clone_into(&mut check.failure);
            (BackendState::Failed, detail)
        }
        Ok(BackendCheck::Unverified(detail)) => (BackendState::Unverified, detail),
        Err(error) => {
            tracing::warn!(
                backend = name,
                error = &error as &dyn std::error::Error,
                "the check of a backend failed"
            );
            error.kind().as_str().clone_into(&mut check.failure);
            let sentence = failure_sentence(error.kind());
            (BackendState::Failed, sentence.to_owned())
        }
    };
    check.set_state(state);
    check.detail = shown_text(detail, MAX_TEXT_CHARACTERS);
    check
}

/// The cause of a backend's failure, without the text of its provider: that may repeat a credential.
const fn failure_sentence(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Auth => "The credentials are missing or were refused.",
        ErrorKind::Timeout => "It did not respond in time.",
        ErrorKind::ToolMissing => "The program for it is not installed.",
        ErrorKind::Unavailable => "It cannot be reached.",
        _ => "It sent an unexpected response.",
    }
}
