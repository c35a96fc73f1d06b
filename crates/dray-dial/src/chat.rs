//! Chat completions of DIAL deployments and of any model with this API (quickapps 3, 17, 18.4).

mod answer;
mod delta;
mod error;
mod plain_chunk;
mod stream;
mod surrogates;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use dray_agent::caller::{Caller, TraceSource, trace_headers};
use dray_http::{HttpClient, HttpTimeouts, RequestBuilder};
use dray_types::Secret;
use serde_json::Value;
use tokio_util::task::TaskTracker;

use crate::core::{MAX_TOOL_SILENCE, READ_RETRIES, with_caller};
use crate::error::Error;
use crate::origin::{DialOrigin, canonical_path};
use crate::retry::RetryPolicy;

pub use answer::{AnswerEnding, ChatAnswer};
pub use delta::{CallDelta, ChunkDelta, StageDelta, StageEnd};
pub use error::{ChatError, ChatKind};
pub use stream::ChatStream;

/// A client of chat completions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChatClient {
    http: HttpClient,
    target: ChatTarget,
    retry: RetryPolicy,
    once: bool,
    trace: Option<TraceSource>,
    /// Tasks that read the ends of responses whose last event was taken.
    body_ends: TaskTracker,
}

#[derive(Clone, Debug)]
enum ChatTarget {
    Dial {
        origin: DialOrigin,
        api_version: String,
    },
    Open {
        base: String,
        key: Option<Secret>,
    },
}

impl ChatClient {
    /// Creates a client of any model at `{base}/chat/completions`. `key` is the bearer token of the model; no
    /// credentials of the caller are sent there (R2).
    ///
    /// # Errors
    ///
    /// The file of certificate authorities cannot be used.
    pub fn open(
        base: &str,
        key: Option<Secret>,
        limits: HttpTimeouts,
        ca_file: Option<&Path>,
        backoff: Duration,
    ) -> Result<Self, Error> {
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self {
            http: HttpClient::new(limits, ca_file)?,
            target: ChatTarget::Open { base, key },
            retry: RetryPolicy {
                base: backoff,
                retries: READ_RETRIES,
            },
            once: false,
            trace: None,
            body_ends: TaskTracker::new(),
        })
    }

    pub(crate) fn of_core(
        http: HttpClient,
        origin: DialOrigin,
        api_version: String,
        retry: RetryPolicy,
    ) -> Self {
        Self {
            http,
            target: ChatTarget::Dial {
                origin,
                api_version,
            },
            retry,
            once: false,
            trace: None,
            body_ends: TaskTracker::new(),
        }
    }

    /// Whether requests carry this service's own key or no key, instead of the key of the caller.
    pub const fn has_own_key(&self) -> bool {
        matches!(self.target, ChatTarget::Open { .. })
    }

    /// The same client, whose requests name the trace that they belong to.
    #[must_use]
    pub const fn with_trace(mut self, source: TraceSource) -> Self {
        self.trace = Some(source);
        self
    }

    /// The same client for calls that their callers limit: the service may be silent for an hour.
    #[must_use]
    pub(crate) fn with_tool_timeouts(self) -> Self {
        Self {
            http: self
                .http
                .with_body_timeouts(MAX_TOOL_SILENCE, MAX_TOOL_SILENCE),
            ..self
        }
    }

    /// The same client without retries: for deployments whose calls have effects, such as agents.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Requests a response, with all forwarded headers of the caller if the peer is DIAL. `body` determines whether it
    /// streams. While no part of the response has arrived, connection errors, 429 and 5xx are retried up to twice.
    pub async fn stream(
        &self,
        caller: &Caller,
        deployment: &str,
        body: Value,
    ) -> Result<ChatStream, ChatError> {
        self.stream_with(caller, None, deployment, body).await
    }

    /// [`ChatClient::stream`] with only those forwarded headers that `headers` names.
    pub async fn stream_with(
        &self,
        caller: &Caller,
        headers: Option<&[String]>,
        deployment: &str,
        body: Value,
    ) -> Result<ChatStream, ChatError> {
        // The body is serialised into bytes: `Value`'s `Display` checks and copies each fragment once more.
        let body = serde_json::to_vec(&body)
            .map_err(|_| ChatError::new(ChatKind::Malformed, "the request is not JSON"))?;
        self.send_body(caller, headers, deployment, body.into())
            .await
    }

    /// [`ChatClient::stream`] with a body that is serialised already.
    pub async fn stream_bytes(
        &self,
        caller: &Caller,
        deployment: &str,
        body: Bytes,
    ) -> Result<ChatStream, ChatError> {
        self.send_body(caller, None, deployment, body).await
    }

    /// Sends a request until it is accepted or must not be sent again. All attempts share the bytes.
    async fn send_body(
        &self,
        caller: &Caller,
        headers: Option<&[String]>,
        deployment: &str,
        body: Bytes,
    ) -> Result<ChatStream, ChatError> {
        for attempt in 1.. {
            let request = self.request(caller, headers, deployment)?;
            let request = trace_headers(self.trace)
                .iter()
                .fold(request, |request, (name, value)| {
                    request.header(name, value)
                });
            let error = match request
                .bytes("application/json", body.clone())
                .send(&|_| ())
                .await
            {
                Ok(response) if response.is_success() => {
                    return Ok(ChatStream::new(response, self.body_ends.clone()));
                }
                Ok(response) => Error::of(response).await,
                Err(error) => error.into(),
            };
            let may_retry = !self.once && error.is_transient();
            if !(may_retry && self.retry.wait_for_retry(attempt, error.retry_after).await) {
                return Err(error.into());
            }
        }
        // Only the compiler requires this line: the retry policy ends the loop.
        Err(ChatError::new(ChatKind::Connect, "no attempt is left"))
    }

    fn request(
        &self,
        caller: &Caller,
        headers: Option<&[String]>,
        deployment: &str,
    ) -> Result<RequestBuilder, ChatError> {
        match &self.target {
            ChatTarget::Dial {
                origin,
                api_version,
            } => {
                // An id with `..` or an escaped slash would choose another path of the origin.
                let id = canonical_path("", deployment).ok_or_else(|| {
                    ChatError::new(ChatKind::Status(404), "the deployment's id is not plain")
                })?;
                let url = origin.url(&format!("openai/deployments/{id}/chat/completions"));
                let mut request = with_caller(self.http.post(&url), caller);
                if !api_version.is_empty() {
                    request = request.query(&[("api-version", api_version)]);
                }
                let is_forwarded = |name: &str| {
                    headers.is_none_or(|all| {
                        all.iter()
                            .any(|permitted| permitted.eq_ignore_ascii_case(name))
                    })
                };
                for (name, value) in caller
                    .forwarded
                    .iter()
                    .filter(|(name, _)| is_forwarded(name))
                {
                    request = request.header(name, value);
                }
                Ok(request)
            }
            ChatTarget::Open { base, key } => {
                let request = self.http.post(&format!("{base}/chat/completions"));
                Ok(match key {
                    Some(key) => request.authorization("Bearer", key),
                    None => request,
                })
            }
        }
    }
}
