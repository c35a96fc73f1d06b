//! The target of all connections: a process in its own network namespace. The client of a tunnel first sends the
//! number of bytes that it requests. A plain request gets a short response.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::print_line;

/// Port to which clients open tunnels with `CONNECT` or SOCKS5.
pub(super) const TUNNEL_PORT: u16 = 443;
/// Port of plain requests.
pub(super) const HTTP_PORT: u16 = 80;
/// First message of a tunnel in which the target returns all bytes. Any other number is the count of bytes to send.
pub(super) const ECHO_ORDER: u64 = 0;
/// The line that the process prints once it listens.
pub(super) const READY_LINE: &str = "ready";
/// Body of a response to a plain request.
pub(super) const RESPONSE_BODY: &str = "a short response";
/// Bytes that are written together.
const CHUNK_BYTES: usize = 128 << 10;
/// Most bytes of a request head.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Serves both ports until the process is killed.
#[expect(
    clippy::disallowed_methods,
    reason = "the connections end with this process"
)]
pub(crate) async fn serve(address: Ipv4Addr) -> anyhow::Result<()> {
    let tunnels = TcpListener::bind((address, TUNNEL_PORT)).await?;
    let requests = TcpListener::bind((address, HTTP_PORT)).await?;
    print_line(READY_LINE);
    loop {
        tokio::select! {
            accepted = tunnels.accept() => {
                let (stream, _) = accepted.context("no further tunnel")?;
                tokio::spawn(serve_tunnel(stream));
            }
            accepted = requests.accept() => {
                let (stream, _) = accepted.context("no further request")?;
                tokio::spawn(serve_request(stream));
            }
        }
    }
}

/// Serves the request of one tunnel. Fails if the client closes its connection early.
async fn serve_tunnel(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut remaining = stream.read_u64().await?;
    if remaining == ECHO_ORDER {
        // Ends when the client closes, so that idle tunnels stay open.
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await?;
        return Ok(());
    }
    let chunk = vec![0x5a; CHUNK_BYTES];
    while remaining > 0 {
        let count = usize::try_from(remaining)
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        stream
            .write_all(chunk.get(..count).unwrap_or_default())
            .await?;
        remaining -= count as u64;
    }
    stream.shutdown().await
}

async fn serve_request(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::with_capacity(1 << 10);
    // One request for each connection, without a body.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let length = RESPONSE_BODY.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{RESPONSE_BODY}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
