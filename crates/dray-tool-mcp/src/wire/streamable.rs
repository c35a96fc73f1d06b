//! The HTTP client below the streamable HTTP transport of `rmcp` (MCP 2025-03-26 and later). The transport handles
//! sessions, the protocol's headers and both kinds of handshake; this client handles the address, the credentials, the
//! limits and the meaning of failures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dray_http::HttpResponse;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::{HeaderName, HeaderValue, Method};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId,
    RequestParamsMeta as _, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

use super::events::{EventDecoder, message_data};
use super::limits::{InboundLimits, ValueCounter, response_id};
use super::response_stream::ResponseStream;
use super::{CLOSE_TIMEOUT, HttpSettings, is_type, parse_json, parse_messages, refusal};
use crate::error::WireError;

/// Longest wait for the response to `server/discover`, after which the server counts as one with `initialize`.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Most concurrent requests of one session; an agent calls tools concurrently.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// Most bytes of a response with a status of failure that are read for the error in it.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Most standing streams of a session, one after another. A server may end each one immediately.
const MAX_STANDING_STREAMS: usize = 500;

/// Longest wait for the standing stream of a session, which is optional for servers.
const STANDING_STREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a session has its standing stream. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StandingStream {
    is_expected: Arc<AtomicBool>,
    is_settled: CancellationToken,
    /// Number of requests for it.
    requested: Arc<AtomicUsize>,
}

impl StandingStream {
    /// Waits until the stream is open or refused. A server drops a question to the user for which no stream is open.
    pub(crate) async fn settled(&self) {
        if self.is_expected.load(Ordering::Relaxed) {
            // A stream that was not open in time may still open later.
            let _ =
                tokio::time::timeout(STANDING_STREAM_TIMEOUT, self.is_settled.cancelled()).await;
        }
    }
}

/// A transport to the endpoint at `url`.
pub(crate) fn open_streamable(
    url: &str,
    settings: &HttpSettings,
    standing: &StandingStream,
) -> StreamableHttpClientTransport<HttpBackend> {
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_concurrent_requests(MAX_CONCURRENT_REQUESTS);
    let backend = HttpBackend {
        settings: settings.clone(),
        standing: standing.clone(),
        inbound: InboundLimits::default(),
    };
    StreamableHttpClientTransport::with_client(backend, config)
}

/// Sends the messages of one session.
#[derive(Clone, Debug)]
pub(crate) struct HttpBackend {
    settings: HttpSettings,
    standing: StandingStream,
    inbound: InboundLimits,
}

/// The address for a message, with the protocol's headers.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) settings: HttpSettings,
    pub(super) inbound: InboundLimits,
    url: Arc<str>,
    session: Option<Arc<str>>,
    headers: HashMap<HeaderName, HeaderValue>,
}

/// The trace of a call of a tool.
fn called_traceparent(message: &ClientJsonRpcMessage) -> Option<&str> {
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    match &request.request {
        ClientRequest::CallToolRequest(call) => call.params.traceparent(),
        _ => None,
    }
}

impl Endpoint {
    pub(super) fn request(&self, method: Method) -> dray_http::RequestBuilder {
        let mut request = self.settings.request(method, &self.url);
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        self.headers.iter().fold(request, |request, (name, value)| {
            request.header(name.as_str(), &String::from_utf8_lossy(value.as_bytes()))
        })
    }

    async fn post(&self, message: &ClientJsonRpcMessage) -> Result<HttpResponse, WireError> {
        let request = self
            .request(Method::POST)
            // The protocol requires both.
            .header("accept", "application/json, text/event-stream")
            .json(message);
        // A task of the session sends messages, so the trace is taken from the message.
        let request = match called_traceparent(message) {
            Some(parent) => request.header("traceparent", parent),
            None => request,
        };
        Ok(request.send(&|_| {}).await?)
    }

    /// Whether the server has neither sessions nor `initialize` (MCP 2026-07-28).
    fn is_sessionless(&self) -> bool {
        // The key is a `HeaderName`, because a `HeaderName` and its text have different hashes.
        let method = HeaderName::from_static("mcp-method");
        self.headers.contains_key(&method)
    }

    async fn exchange(
        self,
        message: &ClientJsonRpcMessage,
        id: &RequestId,
    ) -> Result<StreamableHttpPostResponse, WireError> {
        let response = self.post(message).await?;
        if !response.is_success() {
            let refused = refusal(&response);
            let error = self.error_in(response, id).await;
            return error.ok_or(refused);
        }
        let session = response.header("mcp-session-id").map(str::to_owned);
        if is_type(&response, "text/event-stream") {
            let stream = ResponseStream::new(response, self, id.clone());
            return Ok(StreamableHttpPostResponse::Sse(stream.events(), session));
        }
        if !is_type(&response, "application/json") {
            return Err(WireError::Malformed(
                "its response is neither JSON nor events",
            ));
        }
        let body = response.bytes(self.settings.limit).await?;
        let messages = parse_messages(parse_json(&body)?)?;
        let (mut messages, is_answered) = admit_response(messages, body.len(), id, &self.inbound)?;
        if !is_answered {
            return Err(WireError::Malformed("the response is to another request"));
        }
        if messages.len() > 1 {
            let events = messages.iter().filter_map(message_event).map(Ok);
            let events = stream::iter(events.collect::<Vec<_>>()).boxed();
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let message = messages.pop().ok_or(WireError::Broken(None))?;
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    /// The JSON-RPC error in a response with a failure status. Servers without sessions send their errors in this way
    /// (MCP 2026-07-28); for other servers, the status is more specific.
    async fn error_in(
        &self,
        response: HttpResponse,
        id: &RequestId,
    ) -> Option<StreamableHttpPostResponse> {
        if !self.is_sessionless() || matches!(response.status(), 401 | 403) {
            return None;
        }
        let body = response.bytes(MAX_ERROR_BYTES).await.ok()?;
        let mut message = serde_json::from_slice(&body).ok()?;
        let is_error = matches!(message, ServerJsonRpcMessage::Error(_));
        let is_error = is_error && address_response(&mut message, id);
        is_error.then_some(StreamableHttpPostResponse::Json(message, None))
    }
}

impl HttpBackend {
    fn endpoint(
        &self,
        url: Arc<str>,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Endpoint {
        Endpoint {
            settings: self.settings.clone(),
            inbound: self.inbound.clone(),
            url,
            session,
            headers,
        }
    }
}

/// Asks for the versions of a server. Every failure that an earlier server may return becomes a JSON-RPC error, after
/// which the transport continues with `initialize`.
async fn discover(
    endpoint: Endpoint,
    message: &ClientJsonRpcMessage,
    id: &RequestId,
) -> Result<StreamableHttpPostResponse, WireError> {
    let exchange = Box::pin(endpoint.exchange(message, id));
    let reason = match tokio::time::timeout(DISCOVER_TIMEOUT, exchange).await {
        Ok(Ok(StreamableHttpPostResponse::Json(message, _))) if !is_discovery(&message) => {
            "its response is not one to `server/discover`".to_owned()
        }
        Ok(Ok(response)) => return Ok(response),
        // A server that refuses access, or cannot be reached, would respond to `initialize` in the same way.
        Ok(Err(
            error @ (WireError::Status(401) | WireError::Challenged(_) | WireError::NotSent(_)),
        )) => return Err(error),
        Ok(Err(error)) => error.to_string(),
        Err(_) => WireError::Idle.to_string(),
    };
    tracing::debug!(
        reason,
        "the session with an MCP server begins with `initialize`"
    );
    let error = ErrorData::invalid_request(reason, None);
    let error = ServerJsonRpcMessage::error(error, Some(id.clone()));
    Ok(StreamableHttpPostResponse::Json(error, None))
}

pub(super) fn is_discovery(message: &ServerJsonRpcMessage) -> bool {
    match message {
        JsonRpcMessage::Response(response) => {
            matches!(response.result, ServerResult::DiscoverResult(_))
        }
        other => matches!(other, JsonRpcMessage::Error(_)),
    }
}

/// Whether a message is the response to a request. If so, it gets the id of the request in the spelling of the request.
pub(super) fn address_response(message: &mut ServerJsonRpcMessage, id: &RequestId) -> bool {
    let response_id = match message {
        JsonRpcMessage::Response(response) => &mut response.id,
        JsonRpcMessage::Error(error) => {
            // An error without an id belongs to the POST whose response contains it, and that POST carried one request.
            error.id.get_or_insert_with(|| id.clone())
        }
        _ => return false,
    };
    // The ids are compared as text, since some servers answer the id 1 with "1".
    let is_response = response_id.to_string() == id.to_string();
    if is_response {
        *response_id = id.clone();
    }
    is_response
}

/// The messages of a response's body for the session, and whether the response to the request with this id is among
/// them. `bytes` is their length together.
pub(super) fn admit_response(
    messages: Vec<ServerJsonRpcMessage>,
    bytes: usize,
    id: &RequestId,
    inbound: &InboundLimits,
) -> Result<(Vec<ServerJsonRpcMessage>, bool), WireError> {
    let share = bytes / messages.len().max(1);
    let (mut admitted, mut is_answered) = (Vec::new(), false);
    for mut message in messages {
        if address_response(&mut message, id) {
            // This response is not counted, because the limit on the body applies to it already.
            is_answered = true;
            admitted.push(message);
            continue;
        }
        let is_needed = inbound.admit(&message, share)?;
        // `rmcp` ends the stream at any response, and the one to this request would be lost.
        let is_other_response = matches!(
            message,
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
        );
        if is_needed && !is_other_response {
            admitted.push(message);
        }
    }
    Ok((admitted, is_answered))
}

pub(super) fn message_event(message: &ServerJsonRpcMessage) -> Option<Sse> {
    let data = serde_json::to_string(message).ok()?;
    Some(Sse::default().data(data))
}

impl StreamableHttpClient for HttpBackend {
    type Error = WireError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<WireError>> {
        let endpoint = self.endpoint(uri, session_id, custom_headers);
        let outcome = if let JsonRpcMessage::Request(request) = &message {
            match request.request {
                ClientRequest::DiscoverRequest(_) => {
                    discover(endpoint, &message, &request.id).await
                }
                _ => endpoint.exchange(&message, &request.id).await,
            }
        } else {
            // Usually status 202 without a body.
            let posted = endpoint.post(&message).await;
            self.inbound.record_response(response_id(&message));
            match posted {
                Ok(response) if response.is_success() => Ok(StreamableHttpPostResponse::Accepted),
                Ok(response) => Err(refusal(&response)),
                Err(error) => Err(error),
            }
        };
        if let Ok(
            StreamableHttpPostResponse::Json(_, Some(_))
            | StreamableHttpPostResponse::Sse(_, Some(_)),
        ) = &outcome
        {
            // A session has a standing stream (MCP 2025-11-25), which the transport opens next.
            self.standing.is_expected.store(true, Ordering::Relaxed);
        }
        outcome.map_err(StreamableHttpError::Client)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<WireError>> {
        let endpoint = self.endpoint(uri, Some(session_id), custom_headers);
        let leaving = endpoint.request(Method::DELETE);
        // The response of the server does not matter.
        if let Ok(Err(error)) = tokio::time::timeout(CLOSE_TIMEOUT, leaving.send(&|_| {})).await {
            tracing::debug!(%error, "the session was not ended");
        }
        Ok(())
    }

    /// The standing stream of a session (MCP 2025-11-25), on which servers ask the user. It is optional for servers.
    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<WireError>> {
        if self.standing.requested.fetch_add(1, Ordering::Relaxed) >= MAX_STANDING_STREAMS {
            tracing::warn!("a standing stream of an MCP server ends too often");
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let endpoint = self.endpoint(uri, session_id, custom_headers);
        let mut request = endpoint
            .request(Method::GET)
            .header("accept", "text/event-stream");
        if let Some(last) = &last_event_id {
            request = request.header("last-event-id", last);
        }
        let opened = request.send(&|_| {}).await;
        self.standing.is_settled.cancel();
        match opened {
            Ok(response) if response.is_success() && is_type(&response, "text/event-stream") => {
                Ok(standing_events(response, endpoint))
            }
            // A session works without it, so a failure here does not end the session.
            _ => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}

/// The events of a standing stream until it ends, breaks, or contains an event above a limit.
fn standing_events(
    response: HttpResponse,
    endpoint: Endpoint,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let decoder = EventDecoder::new(endpoint.settings.limit);
    let chunks = stream::unfold(
        (response, decoder, endpoint.inbound),
        |(mut response, mut decoder, inbound)| async move {
            let chunk = response.chunk().await.ok()??;
            let mut events = decoder.push(&chunk).ok()?;
            let counted = inbound.count_stream_bytes(chunk.len());
            counted
                .and_then(|()| admit_events(&mut events, &inbound))
                .inspect_err(|error| tracing::debug!(%error, "a standing stream is closed"))
                .ok()?;
            Some((
                stream::iter(events.into_iter().map(Ok)),
                (response, decoder, inbound),
            ))
        },
    );
    chunks.flatten().boxed()
}

/// Checks the messages in events against the limits, and removes the data of events without a message for the session.
fn admit_events(events: &mut [Sse], inbound: &InboundLimits) -> Result<(), WireError> {
    for event in events {
        let Some(data) = message_data(event) else {
            continue;
        };
        inbound.release_stream_bytes(data.len());
        ValueCounter::default().add(data.as_bytes())?;
        // The transport leaves out what cannot be parsed.
        let messages = parse_json(data.as_bytes()).and_then(parse_messages);
        let messages = messages.unwrap_or_default();
        let share = data.len() / messages.len().max(1);
        let mut is_needed = false;
        for message in messages {
            is_needed |= inbound.admit(&message, share)?;
        }
        if !is_needed {
            // The id stays, because the stream is resumed after it.
            event.data = None;
        }
    }
    Ok(())
}
