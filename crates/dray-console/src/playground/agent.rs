//! The client of the orchestrator's public API: its agents, files for them, and chats.

use std::time::Duration;

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_dial::chat::{ChatClient, ChatError, ChatKind, ChatStream};
use dray_http::{HttpClient, HttpError, HttpResponse, HttpTimeouts, MultipartForm, RequestBuilder};
use dray_types::{Fault, FaultCode, Secret, TenantId};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use crate::calls::PAGE_TIMEOUT;
use crate::settings::AgentEndpoint;
use crate::text::shown;

/// Longest pause within an answer, and longest time until it begins.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);
/// Largest list of agents, and largest reply to an upload, in bytes.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// Header of the list of agents with the tenant of the orchestrator.
const TENANT_HEADER: &str = "dray-tenant";
/// How long the orchestrator keeps an uploaded file: as long as a login may last.
const FILE_SECONDS: &str = "43200";

/// A file that a person attached to a message.
pub(super) struct ChosenFile {
    pub(super) name: String,
    pub(super) content: Bytes,
}

/// The orchestrator, with the key of the console.
#[derive(Debug)]
pub(crate) struct AgentClient {
    /// Base of the plain API, which ends in `/v1`.
    base: String,
    key: Option<Secret>,
    http: HttpClient,
    chat: ChatClient,
}

impl AgentClient {
    /// # Errors
    /// The client cannot be made.
    pub(crate) fn new(endpoint: &AgentEndpoint) -> Result<Self, dray_dial::Error> {
        let base = format!("{}/v1", endpoint.url.trim_end_matches('/'));
        let page_timeouts = HttpTimeouts {
            connect: PAGE_TIMEOUT,
            idle: PAGE_TIMEOUT,
            response: PAGE_TIMEOUT,
        };
        let answer_timeouts = HttpTimeouts {
            idle: ANSWER_TIMEOUT,
            response: ANSWER_TIMEOUT,
            ..page_timeouts
        };
        // The client follows no redirects, so the key is sent only to this base URL.
        let key = endpoint.key.clone();
        // A turn has effects, so it is not repeated.
        let chat =
            ChatClient::open(&base, key.clone(), answer_timeouts, None, Duration::ZERO)?.once();
        Ok(Self {
            http: HttpClient::new(page_timeouts, None)?,
            base,
            key,
            chat,
        })
    }

    /// URL of the chat endpoint.
    pub(super) fn chat_url(&self) -> String {
        format!("{}/chat/completions", self.base)
    }

    /// Whether requests carry a key.
    pub(super) const fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Names of the agents of this tenant that the console's key may use.
    ///
    /// # Errors
    /// The orchestrator serves another tenant, or does not respond.
    pub(super) async fn agents(&self, tenant: &TenantId) -> Result<Vec<String>, Fault> {
        let request = self.with_key(self.http.get(&format!("{}/models", self.base)));
        let sent = request.send(&|_| ()).await;
        let served = sent.as_ref().ok().map(served_tenant);
        let reply = json_reply(sent).await?;
        // Its agents use the sessions and files of its tenant, so a login of another one must not reach it.
        if served.is_some_and(|served| served != tenant.token()) {
            return Err(Fault::new(
                FaultCode::Unsupported,
                "The orchestrator serves another tenant than this console.",
            )
            .detail("other_tenant")
            .advice("`orchestrator.tenant` names the tenant of an orchestrator."));
        }
        let listed = reply.get("data").and_then(Value::as_array);
        let names = listed.into_iter().flatten().filter_map(|agent| {
            let name = agent.get("id")?.as_str()?;
            Some(name.to_owned())
        });
        Ok(names.collect())
    }

    /// Uploads a file and returns its id.
    pub(super) async fn upload(&self, file: ChosenFile) -> Result<String, Fault> {
        let size = u64::try_from(file.content.len()).unwrap_or(u64::MAX);
        let body = stream::iter([Ok(file.content)]).boxed();
        let form = MultipartForm::new()
            .text("purpose", "user_data")
            .text("expires_after[anchor]", "created_at")
            .text("expires_after[seconds]", FILE_SECONDS)
            // The orchestrator detects the type from the bytes.
            .file("file", &file.name, "application/octet-stream", size, body);
        let request = self.http.post(&format!("{}/files", self.base));
        let request = self.with_key(request.multipart(form));
        let reply = json_reply(request.send(&|_| ()).await).await?;
        let id = reply.get("id").and_then(Value::as_str);
        id.map(str::to_owned).ok_or_else(unreadable_fault)
    }

    /// Sends a request for a streamed answer. Dropping the answer ends the work of the agent.
    pub(super) async fn stream_answer(&self, body: Value) -> Result<ChatStream, ChatError> {
        self.chat.stream(&Caller::default(), "", body).await
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.authorization("Bearer", key),
            None => request,
        }
    }
}

/// The tenant that an orchestrator names. One of an earlier version names none and serves `default`.
fn served_tenant(response: &HttpResponse) -> String {
    match response.header(TENANT_HEADER) {
        Some(tenant) => tenant.to_owned(),
        None => TenantId::default().token(),
    }
}

async fn json_reply(sent: Result<HttpResponse, HttpError>) -> Result<Value, Fault> {
    let response = sent.map_err(|error| unreachable_fault(&error))?;
    let (status, is_success) = (response.status(), response.is_success());
    // The body is limited before it is parsed.
    let body = response.bytes(MAX_REPLY_BYTES).await;
    let body = body.map_err(|error| unreachable_fault(&error))?;
    let reply: Option<Value> = serde_json::from_slice(&body).ok();
    if !is_success {
        let message = reply.as_ref().and_then(|reply| {
            let message = reply.pointer("/error/message")?;
            message.as_str()
        });
        return Err(status_fault(status, message.unwrap_or_default()));
    }
    reply.ok_or_else(unreadable_fault)
}

fn unreachable_fault(error: &HttpError) -> Fault {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the orchestrator did not respond to the playground"
    );
    let code = if error.is_timeout() {
        FaultCode::Timeout
    } else {
        FaultCode::Unavailable
    };
    Fault::new(code, "The orchestrator does not respond.")
        .detail("orchestrator_unreachable")
        .advice("Check that it runs, and at which address it listens for chats (`orchestrator.listen`).")
}

fn unreadable_fault() -> Fault {
    Fault::new(
        FaultCode::Internal,
        "The reply of the orchestrator does not follow its API.",
    )
    .detail("orchestrator_reply")
}

/// The fault for a status of the orchestrator, with its message if it sent one.
fn status_fault(status: u16, message: &str) -> Fault {
    let code = match status {
        401 | 403 => FaultCode::Denied,
        404 => FaultCode::NotFound,
        408 | 504 => FaultCode::Timeout,
        413 => FaultCode::TooLarge,
        429 => FaultCode::RateLimited,
        400..500 => FaultCode::InvalidArgument,
        _ => FaultCode::Unavailable,
    };
    let sentence = match message {
        "" => format!("The orchestrator responded with status {status}."),
        message => shown(message),
    };
    let fault = Fault::new(code, sentence).detail(format!("status_{status}"));
    if status == 401 {
        return fault.advice("Give the console the key of one of `orchestrator.clients`.");
    }
    fault
}

/// The fault of an answer that failed.
pub(super) fn answer_fault(error: &ChatError) -> Fault {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "an answer for the playground failed"
    );
    let sentence = error.display_message.as_deref();
    match error.kind {
        ChatKind::Status(status) => status_fault(status, sentence.unwrap_or(&error.message)),
        ChatKind::Connect => {
            Fault::new(FaultCode::Unavailable, "The orchestrator does not respond.")
                .detail("orchestrator_unreachable")
        }
        ChatKind::Timeout => Fault::new(
            FaultCode::Timeout,
            "No part of the answer arrived for ten minutes.",
        )
        .detail("answer_timeout"),
        ChatKind::Broken => Fault::new(
            FaultCode::Unavailable,
            shown(sentence.unwrap_or("The answer broke off.")),
        )
        .detail("answer_broken"),
        ChatKind::Malformed => unreadable_fault(),
    }
}
