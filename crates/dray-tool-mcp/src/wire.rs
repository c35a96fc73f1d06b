//! The three ways to a server as one transport of `rmcp`. Ours rather than the library's, because every answer is
//! bounded, no redirect or proxy is followed, and each failure says whether the server may have acted.

mod events;
mod legacy;
mod stdio;
mod streamable;

use std::sync::Arc;
use std::time::Duration;

use dray_http::HttpClient;
use dray_types::Secret;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{CloseReason, WireError};
use crate::options::ProgramCommand;

/// Messages of a server that may wait.
const MAX_WAITING_MESSAGES: usize = 64;

/// How long leave may be taken.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Where a server is.
#[derive(Clone, Debug)]
pub(crate) enum ServerAddress {
    /// One endpoint for all (2025-03-26 and later).
    Streamable(String),
    /// Server-sent events and posts (2024-11-05).
    Sse(String),
    /// A program of the operator.
    Stdio {
        /// Its name in the configuration.
        name: String,
        /// How it is started.
        command: ProgramCommand,
    },
}

/// How HTTP servers are spoken to.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    pub(crate) client: HttpClient,
    pub(crate) headers: Vec<(String, Secret)>,
    /// Most bytes of one answer.
    pub(crate) limit: usize,
}

impl HttpSettings {
    fn request(&self, method: http::Method, url: &str) -> dray_http::RequestBuilder {
        let request = self.client.request(method, url);
        self.headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value.expose())
        })
    }
}

#[derive(Debug)]
enum TransportKind {
    Streamable(streamable::StreamableTransport),
    Legacy(legacy::SseTransport),
    Stdio(stdio::StdioTransport),
}

/// A way to a server. Dropping it ends everything behind it, a program with its whole process group.
#[derive(Debug)]
pub(crate) struct McpTransport {
    kind: Arc<TransportKind>,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
    _reading: JoinSet<()>,
}

impl McpTransport {
    /// Makes the way. What ends it later is written on the grave.
    pub(crate) async fn open(
        target: &ServerAddress,
        manners: &HttpSettings,
        grave: &CloseReason,
    ) -> Result<Self, WireError> {
        let (out, incoming) = mpsc::channel(MAX_WAITING_MESSAGES);
        let mut reading = JoinSet::new();
        let kind =
            match target {
                ServerAddress::Streamable(url) => TransportKind::Streamable(
                    streamable::StreamableTransport::new(url, manners, out),
                ),
                ServerAddress::Sse(url) => TransportKind::Legacy(
                    legacy::open_sse(url, manners, out, grave, &mut reading).await?,
                ),
                ServerAddress::Stdio { name, command } => TransportKind::Stdio(
                    stdio::open_program(name, command, manners.limit, out, grave, &mut reading)?,
                ),
            };
        Ok(Self {
            kind: Arc::new(kind),
            incoming,
            _reading: reading,
        })
    }
}

impl Transport<RoleClient> for McpTransport {
    type Error = WireError;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), WireError>> + Send + 'static {
        let kind = Arc::clone(&self.kind);
        async move {
            match &*kind {
                TransportKind::Streamable(kind) => kind.send(item).await,
                TransportKind::Legacy(kind) => kind.send(&item).await,
                TransportKind::Stdio(kind) => kind.send(&item).await,
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), WireError> {
        match &*self.kind {
            TransportKind::Streamable(kind) => kind.close().await,
            TransportKind::Legacy(_) => {}
            TransportKind::Stdio(kind) => kind.close(&mut self.incoming).await,
        }
        Ok(())
    }
}

/// The messages in a body: one, or a batch of them.
fn parse_messages(value: Value) -> Result<Vec<ServerJsonRpcMessage>, WireError> {
    let all = match value {
        Value::Array(all) => all,
        one => vec![one],
    };
    all.into_iter()
        .map(|one| {
            serde_json::from_value(one).map_err(|_| WireError::Malformed("no message of JSON-RPC"))
        })
        .collect()
}

fn parse_json(bytes: &[u8]) -> Result<Value, WireError> {
    serde_json::from_slice(bytes).map_err(|_| WireError::Malformed("not JSON"))
}

/// Whether a message is the answer to a request. Some servers make texts of numbers.
fn is_response_to(message: &ServerJsonRpcMessage, id: &RequestId) -> bool {
    let of = match message {
        ServerJsonRpcMessage::Response(response) => Some(&response.id),
        ServerJsonRpcMessage::Error(error) => match &error.id {
            Some(of) => Some(of),
            None => return true,
        },
        _ => None,
    };
    of.is_some_and(|of| of.to_string() == id.to_string())
}

fn is_type(answer: &dray_http::HttpResponse, wanted: &str) -> bool {
    let kind = answer.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(wanted)
}
