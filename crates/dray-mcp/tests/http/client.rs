//! Requests over a plain connection, with everything under the control of a test.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Longest wait for a response.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A response as it was on the wire.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl RawResponse {
    /// A field of the head; empty where it is absent.
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }

    /// The message of the protocol, alone or as the last event of a stream.
    pub(crate) fn message(&self) -> Value {
        let mut events = self
            .body
            .lines()
            .rev()
            .filter_map(|line| line.strip_prefix("data: "));
        let text = events.next().unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends one request and reads the response to its end.
pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> RawResponse {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in fields {
        write!(request, "{name}: {value}\r\n").unwrap();
    }
    write!(request, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    tokio::task::spawn_blocking(move || exchange(address, &request))
        .await
        .unwrap()
}

/// Sends a request as it is, and reads the response to its end.
pub(crate) fn exchange(address: SocketAddr, request: &str) -> RawResponse {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    // A server that refuses a long request may close before it has read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    RawResponse {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// The client data in every request of 2026-07-28.
pub(crate) fn request_meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// A request of 2026-07-28 under a token; `None` sends none.
pub(crate) async fn call(
    address: SocketAddr,
    token: Option<&str>,
    method: &str,
    params: Value,
) -> RawResponse {
    call_with(address, token, method, params, json!({})).await
}

/// Like [`call`], of a client with these capabilities.
pub(crate) async fn call_with(
    address: SocketAddr,
    token: Option<&str>,
    method: &str,
    mut params: Value,
    capabilities: Value,
) -> RawResponse {
    params["_meta"] = request_meta(&capabilities);
    let name = ["name", "uri", "taskId"]
        .iter()
        .find_map(|field| params[field].as_str());
    let name = name.unwrap_or_default().to_owned();
    let authorization = format!("Bearer {}", token.unwrap_or_default());
    let mut fields = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", method),
    ];
    if !name.is_empty() {
        fields.push(("Mcp-Name", &name));
    }
    if token.is_some() {
        fields.push(("Authorization", &authorization));
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    send(address, "POST", "/mcp", &fields, &body.to_string()).await
}
