//! The part of the engine's HTTP API that fixtures need: one blocking request per connection.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest time without a byte from the engine.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct EngineResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl EngineResponse {
    /// The body as JSON.
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the engine responds in JSON")
    }

    /// One text of a JSON object.
    pub(super) fn text(&self, key: &str) -> String {
        let json = self.json();
        let text = json.get(key).and_then(serde_json::Value::as_str);
        text.expect("the engine returns the member").to_owned()
    }
}

/// HTTP/1.0, so that the response ends with the connection and is never chunked.
pub(super) fn call_engine(
    socket: &Path,
    method: &str,
    target: &str,
    media_type: &str,
    body: &[u8],
) -> io::Result<EngineResponse> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let length = body.len();
    write!(
        stream,
        "{method} {target} HTTP/1.0\r\nHost: docker\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    parse_response(&response).ok_or_else(|| io::Error::other("not an HTTP response"))
}

fn parse_response(response: &[u8]) -> Option<EngineResponse> {
    // No header is needed: with HTTP/1.0 the body ends with the connection.
    let end = response
        .windows(4)
        .position(|window| window == b"\r\n\r\n")?;
    let (head, rest) = response.split_at_checked(end)?;
    let status = str::from_utf8(head).ok()?.split(' ').nth(1)?.parse().ok()?;
    let body = rest.get(4..)?.to_vec();
    Some(EngineResponse { status, body })
}

/// A request that must succeed.
pub(super) fn expect_success(
    socket: &Path,
    method: &str,
    target: &str,
    json: &serde_json::Value,
) -> EngineResponse {
    let body = if json.is_null() {
        Vec::new()
    } else {
        json.to_string().into_bytes()
    };
    let response = call_engine(socket, method, target, "application/json", &body);
    let response = response.expect("the engine responds");
    assert!(
        (200..400).contains(&response.status),
        "{method} {target}: {} {}",
        response.status,
        String::from_utf8_lossy(&response.body)
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_a_status_and_the_bytes_after_the_empty_line() {
        let response =
            parse_response(b"HTTP/1.1 201 Created\r\nA: b\r\n\r\n{\"Id\":\"x\"}").unwrap();
        assert_eq!((response.status, response.text("Id").as_str()), (201, "x"));
        assert!(parse_response(b"HTTP/1.1 200 OK\r\n").is_none());
    }
}
