//! A fast file server for measurements: `GET /<size>` returns that many bytes, with a correct length.
//!
//! The body is the same for one size and query: the query, when it is a number, is at its beginning, so that a
//! store that recognises content it has can be given content it has not.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::listen::ConnectionServer;

/// Bytes per write: large enough that system calls do not limit the throughput.
const BLOCK_BYTES: usize = 256 * 1024;

/// The server. Ends, connections included, when it is dropped.
#[derive(Debug)]
pub struct FileServer {
    server: ConnectionServer,
    next: AtomicU64,
}

impl FileServer {
    /// Starts on a free loopback port.
    ///
    /// # Errors
    /// The port cannot be bound.
    pub async fn start() -> io::Result<Self> {
        let block: Arc<[u8]> = vec![0x5a; BLOCK_BYTES].into();
        let serve = move |stream| serve_file(stream, Arc::clone(&block));
        Ok(Self {
            server: ConnectionServer::start((Ipv4Addr::LOCALHOST, 0).into(), serve).await?,
            next: AtomicU64::new(1),
        })
    }

    /// Address on loopback, to be used as `http://ADDRESS/SIZE?NUMBER`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A query that no request had before.
    pub fn fresh(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

async fn serve_file(mut stream: TcpStream, block: Arc<[u8]>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // A client that connects and sends nothing is not an error.
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&head);
    let target = text
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/');
    let (size, query) = target.split_once('?').unwrap_or((target, ""));
    let size: u64 = size.parse().unwrap_or_default();
    let mark = query.parse().unwrap_or(0_u64).to_be_bytes();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let marked = usize::try_from(size).unwrap_or(usize::MAX).min(mark.len());
    stream
        .write_all(mark.get(..marked).unwrap_or_default())
        .await?;
    let mut left = size - marked as u64;
    while left > 0 {
        let count = usize::try_from(left)
            .unwrap_or(BLOCK_BYTES)
            .min(BLOCK_BYTES);
        stream
            .write_all(block.get(..count).unwrap_or_default())
            .await?;
        left -= count as u64;
    }
    stream.shutdown().await
}
