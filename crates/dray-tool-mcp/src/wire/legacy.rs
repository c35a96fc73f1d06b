//! Server-sent events and posts (MCP 2024-11-05, HTTP with SSE): a stream carries all answers and first names the
//! endpoint for posts, which must be of the same origin.

use dray_http::HttpResponse;
use http::Method;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use url::Url;

use super::events::{SseDecoder, SseEvent};
use super::{HttpSettings, is_type, parse_json, parse_messages};
use crate::error::{CloseReason, WireError};

/// A server with a stream and an endpoint.
#[derive(Debug)]
pub(super) struct SseTransport {
    endpoint: Url,
    manners: HttpSettings,
}

/// Opens the stream and waits for the endpoint.
pub(super) async fn open_sse(
    url: &str,
    manners: &HttpSettings,
    out: mpsc::Sender<ServerJsonRpcMessage>,
    grave: &CloseReason,
    reading: &mut JoinSet<()>,
) -> Result<SseTransport, WireError> {
    let base = Url::parse(url).map_err(|error| WireError::NotSent(error.into()))?;
    let request = manners
        .request(Method::GET, url)
        .header("accept", "text/event-stream")
        .header("cache-control", "no-store");
    let answer = request.send(&|_| {}).await?;
    if !answer.is_success() {
        return Err(WireError::Status(answer.status()));
    }
    if !is_type(&answer, "text/event-stream") {
        return Err(WireError::Malformed("it sends no events"));
    }
    let (found, endpoint) = oneshot::channel();
    let (limit, stone) = (manners.limit, grave.clone());
    reading.spawn(async move {
        let end = read_stream(answer, limit, found, &out).await;
        stone.bury(end);
    });
    let endpoint = endpoint.await.map_err(|_| grave.cause())?;
    Ok(SseTransport {
        endpoint: same_origin(&base, &endpoint)?,
        manners: manners.clone(),
    })
}

fn same_origin(base: &Url, endpoint: &str) -> Result<Url, WireError> {
    let endpoint = base
        .join(endpoint)
        .map_err(|_| WireError::Malformed("its endpoint is no address"))?;
    if endpoint.origin() == base.origin() {
        Ok(endpoint)
    } else {
        Err(WireError::Malformed("its endpoint is of another origin"))
    }
}

/// Reads until the stream ends; why it did.
async fn read_stream(
    mut answer: HttpResponse,
    limit: usize,
    found: oneshot::Sender<String>,
    out: &mpsc::Sender<ServerJsonRpcMessage>,
) -> WireError {
    let mut found = Some(found);
    let mut events = SseDecoder::new(limit);
    loop {
        let piece = match answer.chunk().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return WireError::Broken(None),
            Err(error) => return error.into(),
        };
        let complete = match events.push(&piece) {
            Ok(complete) => complete,
            Err(error) => return error,
        };
        for event in complete {
            if let Err(error) = take_event(event, &mut found, out).await {
                return error;
            }
        }
    }
}

async fn take_event(
    event: SseEvent,
    found: &mut Option<oneshot::Sender<String>>,
    out: &mpsc::Sender<ServerJsonRpcMessage>,
) -> Result<(), WireError> {
    match event.name.as_str() {
        "endpoint" => {
            if let Some(found) = found.take() {
                let _ = found.send(event.data);
            }
        }
        "" | "message" => {
            for message in parse_messages(parse_json(event.data.as_bytes())?)? {
                let sent = out.send(message).await;
                sent.map_err(|_| WireError::Broken(None))?;
            }
        }
        _ => {}
    }
    Ok(())
}

impl SseTransport {
    /// Posts a message; the answer comes through the stream.
    pub(super) async fn send(&self, message: &ClientJsonRpcMessage) -> Result<(), WireError> {
        let request = self
            .manners
            .request(Method::POST, self.endpoint.as_str())
            .json(message);
        let answer = request.send(&|_| {}).await?;
        if answer.is_success() {
            Ok(())
        } else {
            Err(WireError::Status(answer.status()))
        }
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
