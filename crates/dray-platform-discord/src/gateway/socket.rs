//! The WebSocket of the gateway, with JSON messages.

use std::fmt;
use std::time::Duration;

use dray_http::Upgraded;
use dray_platform::{ErrorKind, PlatformError};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use crate::api::DiscordApi;

/// Largest message, in bytes: one message lists all channels of a server.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// How long sending a close frame may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// One message of the gateway.
#[derive(Debug, Deserialize)]
pub(super) struct GatewayPayload {
    pub(super) op: u64,
    #[serde(default)]
    pub(super) d: Value,
    #[serde(default)]
    pub(super) s: Option<u64>,
    #[serde(default)]
    pub(super) t: Option<String>,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum SocketRead {
    Payload(GatewayPayload),
    /// Closed by the other side, with its code when it gave one.
    Closed(Option<u16>),
}

pub(super) struct GatewaySocket {
    stream: WebSocketStream<Upgraded>,
    response_timeout: Duration,
}

impl GatewaySocket {
    /// Opens a connection at an HTTP address. An error carries the delay to wait if the gateway names one.
    pub(super) async fn open(api: &DiscordApi, url: &str) -> Result<Self, PlatformError> {
        // The handshake is made here, so that the connection has the TLS roots and timeouts of the API's client.
        let key = generate_key();
        let request = api
            .client
            .get(url)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", &key);
        let response = request.send(&|_| {}).await?;
        let connect_error = |reason: &str| PlatformError::new(ErrorKind::Transient, reason);
        if response.status() != 101 {
            let status = response.status().to_string();
            let error = connect_error("could not connect to the gateway").code(status);
            return Err(match response.retry_after() {
                Some(wait) => error.with_retry_after(wait),
                None => error,
            });
        }
        // RFC 6455, section 4.1: proves that the server read this request and supports WebSocket.
        if response.header("sec-websocket-accept") != Some(&derive_accept_key(key.as_bytes())) {
            return Err(connect_error("the gateway did not open a WebSocket"));
        }
        // The receiver must not wait forever for a server that answers 101 and then stops.
        let upgraded = timeout(api.response_timeout, response.into_upgrade()).await;
        let upgraded =
            upgraded.map_err(|_| connect_error("could not connect to the gateway"))??;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let stream = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
        Ok(Self {
            stream,
            response_timeout: api.response_timeout,
        })
    }

    /// Waits for the greeting (opcode 10) and returns the interval of heartbeats.
    pub(super) async fn hello(&mut self) -> Result<Duration, PlatformError> {
        let hello_error = || PlatformError::new(ErrorKind::Transient, "the gateway sent no hello");
        let read = timeout(self.response_timeout, self.next()).await;
        let SocketRead::Payload(GatewayPayload { op: 10, d, .. }) =
            read.map_err(|_| hello_error())??
        else {
            return Err(hello_error());
        };
        let interval = d.get("heartbeat_interval").and_then(Value::as_u64);
        interval
            // An interval of zero would panic in `interval_at`.
            .filter(|interval| *interval > 0)
            .map(Duration::from_millis)
            .ok_or_else(hello_error)
    }

    /// Reads the next message. Cancellation safe: a dropped future loses no message.
    pub(super) async fn next(&mut self) -> Result<SocketRead, PlatformError> {
        loop {
            let message = match self.stream.next().await {
                None => return Ok(SocketRead::Closed(None)),
                Some(Err(cause)) => {
                    let error = PlatformError::new(
                        ErrorKind::Transient,
                        "the connection to the gateway broke",
                    );
                    return Err(error.caused_by(cause));
                }
                Some(Ok(message)) => message,
            };
            match message {
                Message::Text(text) => {
                    let payload = serde_json::from_str(&text).map_err(|cause| {
                        let error = PlatformError::new(
                            ErrorKind::Transient,
                            "the gateway sent malformed JSON",
                        );
                        error.caused_by(cause)
                    })?;
                    return Ok(SocketRead::Payload(payload));
                }
                Message::Close(frame) => {
                    return Ok(SocketRead::Closed(frame.map(|frame| frame.code.into())));
                }
                // The library answers pings. Binary messages would be compressed, which was not requested.
                _ => {}
            }
        }
    }

    pub(super) async fn send(&mut self, value: &Value) -> Result<(), PlatformError> {
        let sending = self.stream.send(Message::text(value.to_string()));
        let send_error =
            || PlatformError::new(ErrorKind::Transient, "could not send to the gateway");
        match timeout(self.response_timeout, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) => Err(send_error().caused_by(cause)),
            Err(_) => Err(send_error()),
        }
    }

    /// Sends a close frame. Code 1000 ends the session; after other codes it can be resumed.
    pub(super) async fn close(mut self, code: u16) {
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: "".into(),
        };
        // The connection is dropped even if this fails.
        let _ = timeout(CLOSE_TIMEOUT, self.stream.close(Some(frame))).await;
    }
}

impl fmt::Debug for GatewaySocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewaySocket").finish_non_exhaustive()
    }
}
