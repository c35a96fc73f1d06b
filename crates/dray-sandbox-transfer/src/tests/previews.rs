//! Previews over their own HTTP endpoint, with directories of this host as sandboxes.

mod documents;
mod links;
mod paths;
mod states;

use std::time::Duration;

use dray_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// Settings of a system with previews on a free port.
const WITH_PREVIEWS: [(&str, &str); 1] = [("sandbox-transfer.preview.listen", "127.0.0.1:0")];
/// Longest time for a response in these tests.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A response as received over the wire.
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// Whether the body is as long as the head announced.
    is_whole: bool,
}

impl Response {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends a request with exactly this target: an HTTP client would normalise it first.
async fn request(origin: &str, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    let mut stream = connect(origin).await;
    stream
        .write_all(request_head(origin, method, target, fields).as_bytes())
        .await
        .unwrap();
    let mut all = Vec::new();
    // A connection that breaks is an expected outcome here.
    let read = tokio::time::timeout(RESPONSE_TIMEOUT, stream.read_to_end(&mut all)).await;
    let _ = read.expect("a response comes in time");
    parse_response(method, &all)
}

async fn connect(origin: &str) -> TcpStream {
    #[expect(
        clippy::disallowed_methods,
        reason = "the endpoint of this test, on loopback"
    )]
    TcpStream::connect(origin.strip_prefix("http://").unwrap())
        .await
        .unwrap()
}

fn request_head(origin: &str, method: &str, target: &str, fields: &[(&str, &str)]) -> String {
    let host = origin.strip_prefix("http://").unwrap();
    let lines: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let fields = lines.concat();
    format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{fields}\r\n")
}

fn parse_response(method: &str, all: &[u8]) -> Response {
    let end = all
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a head came");
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut response = Response {
        status,
        body: all[end + 4..].to_vec(),
        head,
        is_whole: true,
    };
    if let Some(length) = response.field("content-length")
        && method != "HEAD"
        && status != 304
    {
        response.is_whole = length.parse::<usize>().unwrap() == response.body.len();
    }
    if response.field("transfer-encoding").is_some() {
        response.is_whole = response.body.ends_with(b"0\r\n\r\n");
    }
    response
}

/// The parts of a preview's link.
struct Link {
    origin: String,
    token: String,
    preview: v1::Preview,
}

impl Link {
    fn new(created: v1::CreatedPreview) -> Self {
        let (origin, token) = created.url.split_once("/v/").unwrap();
        Self {
            origin: origin.to_owned(),
            token: token.split('/').next().unwrap().to_owned(),
            preview: created.preview.unwrap(),
        }
    }

    async fn get(&self, area: &str, rest: &str) -> Response {
        self.send("GET", area, rest, &[]).await
    }

    async fn send(
        &self,
        method: &str,
        area: &str,
        rest: &str,
        fields: &[(&str, &str)],
    ) -> Response {
        let target = format!("/{area}/{}/{rest}", self.token);
        request(&self.origin, method, &target, fields).await
    }
}

impl TransferFixture {
    async fn with_previews() -> Self {
        Self::with(&WITH_PREVIEWS).await
    }

    async fn preview(&self, sandbox: v1::SandboxRef, path: &str) -> Link {
        Link::new(self.try_preview("acme", sandbox, path, 0).await.unwrap())
    }

    async fn try_preview(
        &self,
        tenant: &str,
        sandbox: v1::SandboxRef,
        path: &str,
        lifetime_seconds: u32,
    ) -> Result<v1::CreatedPreview, Fault> {
        let request = v1::CreatePreviewRequest {
            sandbox: Some(sandbox),
            path: path.as_bytes().to_vec(),
            lifetime_seconds,
            ..v1::CreatePreviewRequest::default()
        };
        self.ask_as(tenant, &request).await
    }
}
