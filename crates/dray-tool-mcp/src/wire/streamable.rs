//! One endpoint for all: every message is a POST, its answer JSON or events (MCP 2025-03-26, transports).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dray_http::HttpResponse;
use http::Method;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::events::SseDecoder;
use super::{CLOSE_TIMEOUT, HttpSettings, is_response_to, is_type, parse_json, parse_messages};
use crate::error::WireError;

/// What the server sent at the beginning, and which answers are still to come.
#[derive(Debug, Default)]
struct StreamableState {
    session: Option<String>,
    version: Option<String>,
    open: HashMap<RequestId, CancellationToken>,
}

/// A server behind one endpoint.
#[derive(Debug)]
pub(super) struct StreamableTransport {
    url: String,
    manners: HttpSettings,
    out: mpsc::Sender<ServerJsonRpcMessage>,
    state: Mutex<StreamableState>,
}

impl StreamableTransport {
    pub(super) fn new(
        url: &str,
        manners: &HttpSettings,
        out: mpsc::Sender<ServerJsonRpcMessage>,
    ) -> Self {
        Self {
            url: url.to_owned(),
            manners: manners.clone(),
            out,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, StreamableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, method: Method) -> dray_http::RequestBuilder {
        let state = self.state();
        let mut request = self.manners.request(method, &self.url);
        for (name, value) in [
            ("mcp-session-id", &state.session),
            ("mcp-protocol-version", &state.version),
        ] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request
    }

    /// Sends a message; a request is done when its answer went on.
    pub(super) async fn send(&self, message: ClientJsonRpcMessage) -> Result<(), WireError> {
        let mut starts = false;
        let id = match &message {
            JsonRpcMessage::Request(request) => {
                starts = matches!(request.request, ClientRequest::InitializeRequest(_));
                Some(request.id.clone())
            }
            JsonRpcMessage::Notification(notification) => {
                self.stop_waiting(&notification.notification);
                None
            }
            _ => None,
        };
        let Some(id) = id else {
            let answer = self.post(&message).await?;
            drop(answer);
            return Ok(());
        };
        let given_up = CancellationToken::new();
        self.state().open.insert(id.clone(), given_up.clone());
        let outcome = tokio::select! {
            outcome = self.exchange(&message, &id, starts) => outcome,
            () = given_up.cancelled() => Ok(()),
        };
        self.state().open.remove(&id);
        outcome
    }

    /// A cancelled request needs its stream no more.
    fn stop_waiting(&self, notification: &ClientNotification) {
        if let ClientNotification::CancelledNotification(cancelled) = notification
            && let Some(id) = &cancelled.params.request_id
            && let Some(waiting) = self.state().open.remove(id)
        {
            waiting.cancel();
        }
    }

    async fn post(&self, message: &ClientJsonRpcMessage) -> Result<HttpResponse, WireError> {
        let request = self
            .request(Method::POST)
            .header("accept", "application/json, text/event-stream")
            .json(message);
        let answer = request.send(&|_| {}).await?;
        if answer.is_success() {
            Ok(answer)
        } else {
            Err(WireError::Status(answer.status()))
        }
    }

    async fn exchange(
        &self,
        message: &ClientJsonRpcMessage,
        id: &RequestId,
        starts: bool,
    ) -> Result<(), WireError> {
        let answer = self.post(message).await?;
        if starts && let Some(session) = answer.header("mcp-session-id") {
            self.state().session = Some(session.to_owned());
        }
        if is_type(&answer, "text/event-stream") {
            return self.stream(answer, id, starts).await;
        }
        if !is_type(&answer, "application/json") {
            return Err(WireError::Malformed(
                "its answer is neither JSON nor events",
            ));
        }
        let body = answer.bytes(self.manners.limit).await?;
        if self.pass(parse_json(&body)?, id, starts).await? {
            Ok(())
        } else {
            Err(WireError::Malformed("the answer is to another request"))
        }
    }

    async fn stream(
        &self,
        mut answer: HttpResponse,
        id: &RequestId,
        starts: bool,
    ) -> Result<(), WireError> {
        let limit = self.manners.limit;
        let mut events = SseDecoder::new(limit);
        let mut read = 0;
        while let Some(piece) = answer.chunk().await? {
            read += piece.len();
            if read > limit {
                return Err(WireError::TooLong(limit));
            }
            for event in events.push(&piece)? {
                let is_message = matches!(event.name.as_str(), "" | "message");
                // Servers open with an event that has an id and no data, to resume at.
                if is_message
                    && !event.data.is_empty()
                    && self
                        .pass(parse_json(event.data.as_bytes())?, id, starts)
                        .await?
                {
                    return Ok(());
                }
            }
        }
        Err(WireError::Broken(None))
    }

    /// Passes messages on; whether the answer was among them.
    async fn pass(&self, body: Value, id: &RequestId, starts: bool) -> Result<bool, WireError> {
        if starts && let Some(version) = body.pointer("/result/protocolVersion") {
            self.state().version = version.as_str().map(str::to_owned);
        }
        let mut is_answered = false;
        for message in parse_messages(body)? {
            is_answered |= is_response_to(&message, id);
            let sent = self.out.send(message).await;
            sent.map_err(|_| WireError::Broken(None))?;
        }
        Ok(is_answered)
    }

    /// Ends the session, when there is one; whether the server likes it does not matter.
    pub(super) async fn close(&self) {
        if self.state().session.is_none() {
            return;
        }
        let leaving = self.request(Method::DELETE);
        if let Ok(Err(error)) = tokio::time::timeout(CLOSE_TIMEOUT, leaving.send(&|_| {})).await {
            tracing::debug!(%error, "the session was not ended");
        }
    }
}
