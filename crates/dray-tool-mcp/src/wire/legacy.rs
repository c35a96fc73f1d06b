//! Server-sent events and posts (MCP 2024-11-05, HTTP with SSE): a stream carries all responses and first names the
//! endpoint for posts, which must be of the same origin.

use dray_http::HttpResponse;
use http::Method;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::Sse;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use url::Url;

use super::events::{EventDecoder, message_data};
use super::limits::{InboundLimits, response_id};
use super::{HttpSettings, is_type, parse_json, parse_messages, refusal};
use crate::error::{CloseReason, WireError};

/// Messages of a server that wait for `rmcp` to take them. Beyond that its stream is not read until one is taken.
const MAX_WAITING_MESSAGES: usize = 64;

/// A server with a stream and an endpoint. Dropping it closes the stream; MCP 2024-11-05 has no message for the end.
#[derive(Debug)]
pub(crate) struct SseTransport {
    endpoint: Url,
    settings: HttpSettings,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
    inbound: InboundLimits,
    _reading: JoinSet<()>,
}

/// Where the stream's messages go.
struct MessageOutput {
    messages: mpsc::Sender<ServerJsonRpcMessage>,
    inbound: InboundLimits,
}

/// Opens the stream and waits for the endpoint. The reason why the stream ends later is stored in `close_reason`.
pub(crate) async fn open_sse(
    url: &str,
    settings: &HttpSettings,
    close_reason: &CloseReason,
) -> Result<SseTransport, WireError> {
    let base = Url::parse(url).map_err(|error| WireError::NotSent(error.into()))?;
    let request = settings
        .request(Method::GET, url)
        .header("accept", "text/event-stream")
        .header("cache-control", "no-store");
    let response = request.send(&|_| {}).await?;
    if !response.is_success() {
        return Err(refusal(&response));
    }
    if !is_type(&response, "text/event-stream") {
        return Err(WireError::Malformed("it sends no events"));
    }
    let (endpoint_sender, endpoint) = oneshot::channel();
    let (messages, incoming) = mpsc::channel(MAX_WAITING_MESSAGES);
    let (limit, reason) = (settings.limit, close_reason.clone());
    let inbound = InboundLimits::default();
    let output = MessageOutput {
        messages,
        inbound: inbound.clone(),
    };
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        let mut endpoint_sender = Some(endpoint_sender);
        let end = read_stream(response, limit, &mut endpoint_sender, &output).await;
        // The reason is set before the sender is dropped: the task that waits for the endpoint then reads the reason.
        reason.set(end);
        drop(endpoint_sender);
    });
    let endpoint = endpoint.await.map_err(|_| close_reason.cause())?;
    Ok(SseTransport {
        endpoint: same_origin(&base, &endpoint)?,
        settings: settings.clone(),
        incoming,
        inbound,
        _reading: reading,
    })
}

fn same_origin(base: &Url, endpoint: &str) -> Result<Url, WireError> {
    let endpoint = base
        .join(endpoint)
        .map_err(|_| WireError::Malformed("its endpoint is not an address"))?;
    // Every post contains credentials, so the server must not redirect them elsewhere.
    if endpoint.origin() == base.origin() {
        Ok(endpoint)
    } else {
        Err(WireError::Malformed("its endpoint is of another origin"))
    }
}

/// Reads until the stream ends; returns the reason.
async fn read_stream(
    mut response: HttpResponse,
    limit: usize,
    endpoint_sender: &mut Option<oneshot::Sender<String>>,
    output: &MessageOutput,
) -> WireError {
    let mut events = EventDecoder::new(limit);
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return WireError::Broken(None),
            Err(error) => return error.into(),
        };
        let counted = output.inbound.count_stream_bytes(chunk.len());
        let complete = match counted.and_then(|()| events.push(&chunk)) {
            Ok(complete) => complete,
            Err(error) => return error,
        };
        for event in complete {
            if let Err(error) = take_event(event, endpoint_sender, output).await {
                return error;
            }
        }
    }
}

async fn take_event(
    event: Sse,
    endpoint_sender: &mut Option<oneshot::Sender<String>>,
    output: &MessageOutput,
) -> Result<(), WireError> {
    if event.event.as_deref() == Some("endpoint") {
        // Only the first one counts: the endpoint must not change later.
        if let Some(endpoint_sender) = endpoint_sender.take() {
            // Without a receiver `open_sse` was cancelled, and this task ends with it.
            let _ = endpoint_sender.send(event.data.unwrap_or_default());
        }
    } else if let Some(data) = message_data(&event) {
        output.inbound.release_stream_bytes(data.len());
        let messages = parse_messages(parse_json(data.as_bytes())?)?;
        let share = data.len() / messages.len().max(1);
        for message in messages {
            if !output.inbound.admit(&message, share)? {
                continue;
            }
            let sent = output.messages.send(message).await;
            sent.map_err(|_| WireError::Broken(None))?;
        }
    }
    Ok(())
}

impl Transport<RoleClient> for SseTransport {
    type Error = WireError;

    /// Posts a message; the response comes through the stream.
    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), WireError>> + Send + 'static {
        let request = self.settings.request(Method::POST, self.endpoint.as_str());
        let request = request.json(&item);
        self.inbound.record_request(&item);
        let (inbound, answered) = (self.inbound.clone(), response_id(&item).cloned());
        async move {
            let response = request.send(&|_| {}).await;
            inbound.record_response(answered.as_ref());
            let response = response?;
            if response.is_success() {
                Ok(())
            } else {
                Err(refusal(&response))
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), WireError> {
        self.incoming.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_stays_with_its_server() {
        let base = Url::parse("https://mcp.example/sse").unwrap();
        for (endpoint, full) in [
            (
                "/messages/?session_id=1",
                "https://mcp.example/messages/?session_id=1",
            ),
            ("m", "https://mcp.example/m"),
            ("https://mcp.example:443/x", "https://mcp.example/x"),
        ] {
            assert_eq!(same_origin(&base, endpoint).unwrap().as_str(), full);
        }
        for wrong in [
            "http://mcp.example/x",
            "https://mcp.example:8443/x",
            "//evil.example/x",
            "https://mcp.example.evil.example/",
        ] {
            assert!(same_origin(&base, wrong).is_err(), "{wrong}");
        }
    }
}
