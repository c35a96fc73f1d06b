//! The three transports to a server. They are streamable HTTP of `rmcp` over `dray-http`, programs with lines on their
//! standard streams, and the server-sent events of 2024-11-05, which `rmcp` does not have. Every response is bounded,
//! no redirect or proxy is followed, and each failure says whether the server may have acted.

mod events;
mod legacy;
mod limits;
mod program_lines;
mod program_log;
mod response_stream;
mod stdio;
mod streamable;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_http::HttpClient;
use dray_types::Secret;
use rmcp::model::ServerJsonRpcMessage;
use serde_json::Value;

pub(crate) use self::legacy::open_sse;
pub(crate) use self::stdio::{ProgramHandshake, open_program};
pub(crate) use self::streamable::{StandingStream, open_streamable};
use crate::error::WireError;
use crate::oauth::Challenge;
use crate::options::ProgramCommand;

/// Longest time for closing a session.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a server, with its protocol.
#[derive(Clone, Debug)]
pub(crate) enum ServerAddress {
    /// Streamable HTTP: one endpoint for all messages (MCP 2025-03-26 and later).
    Streamable(String),
    /// Server-sent events from one endpoint, and posts to another (MCP 2024-11-05).
    Sse(String),
    /// A program of the operator.
    Stdio {
        /// The server's name in the configuration.
        name: String,
        /// The command that starts it.
        command: ProgramCommand,
        /// Longest wait for the response to `server/discover`, which names the versions of the program.
        discovery_timeout: Duration,
    },
}

impl ServerAddress {
    /// The address in the form of a manifest.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Streamable(url) | Self::Sse(url) => url.clone(),
            Self::Stdio { name, .. } => format!("stdio:{name}"),
        }
    }

    /// The handshake that begins a session. Servers over HTTP report their versions without a wait.
    pub(crate) fn handshake(&self) -> ProgramHandshake {
        match self {
            Self::Stdio {
                discovery_timeout, ..
            } => ProgramHandshake::new(*discovery_timeout),
            Self::Streamable(_) | Self::Sse(_) => ProgramHandshake::new(Duration::ZERO),
        }
    }
}

/// The settings of requests to servers over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(crate) client: HttpClient,
    pub(crate) headers: Vec<(String, Secret)>,
    /// The token of a sign-in, in addition to the headers.
    pub(crate) token: AccessToken,
    /// Most bytes of one response.
    pub(crate) limit: usize,
}

impl HttpSettings {
    fn request(&self, method: http::Method, url: &str) -> dray_http::RequestBuilder {
        let request = self.client.request(method, url);
        let request = self.headers.iter().fold(request, |request, (name, value)| {
            request.secret_header(name, value)
        });
        match self.token.get() {
            Some(token) => request.authorization("Bearer", &token),
            None => request,
        }
    }
}

/// The access token of one server, which a sign-in can replace during a session. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessToken(Arc<Mutex<Option<Secret>>>);

impl AccessToken {
    pub(crate) fn get(&self) -> Option<Secret> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set(&self, token: Option<Secret>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

/// The failure of a response with this status.
fn refusal(response: &dray_http::HttpResponse) -> WireError {
    let status = response.status();
    let header = response.header("www-authenticate");
    // After a 401 without the header, the well-known URLs may still name the authorization server (RFC 9728 section 3).
    if status == 401 || (status == 403 && header.is_some()) {
        let header = header.unwrap_or_default().to_owned();
        return WireError::Challenged(Box::new(Challenge { status, header }));
    }
    WireError::Status(status)
}

/// The messages in a body: one, or a batch of them.
fn parse_messages(value: Value) -> Result<Vec<ServerJsonRpcMessage>, WireError> {
    let values = match value {
        // Only MCP 2025-03-26 has batches.
        Value::Array(values) => values,
        single => vec![single],
    };
    let messages = values.into_iter().map(serde_json::from_value);
    let messages: Result<_, _> = messages.collect();
    messages.map_err(|_| WireError::Malformed("its response is not a JSON-RPC message"))
}

/// Byte-order mark, which some servers write first (RFC 8259 section 8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn parse_json(bytes: &[u8]) -> Result<Value, WireError> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    limits::ValueCounter::default().add(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| {
        // `serde_json` reports the recursion limit only in this text.
        let is_deep = error.to_string().starts_with("recursion limit exceeded");
        WireError::Malformed(if is_deep {
            "a message has more than 127 levels"
        } else {
            "not JSON"
        })
    })
}

fn is_type(response: &dray_http::HttpResponse, expected: &str) -> bool {
    let kind = response.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(expected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_may_begin_with_a_byte_order_mark_and_has_a_limit_of_levels() {
        assert_eq!(parse_json(b"\xef\xbb\xbf{}").unwrap(), json!({}));
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse_json(nested(127).as_bytes()).is_ok());
        let prefix = "the server does not respond as an MCP server: ";
        for (text, reason) in [
            (nested(128), "a message has more than 127 levels"),
            ("noise {}".to_owned(), "not JSON"),
        ] {
            let error = parse_json(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), format!("{prefix}{reason}"));
        }
    }
}
