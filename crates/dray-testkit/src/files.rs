//! A fast file server for measurements: `GET /<size>` returns that many bytes, with a correct length.
//!
//! Equal sizes and queries give equal bodies. A query that is a number is at the beginning of the body, so that a test
//! can request content that a deduplicating store does not have.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::listen::ConnectionServer;

/// Bytes per write: large enough that system calls do not limit the throughput.
const BLOCK_BYTES: usize = 256 * 1024;

/// The server. It and its connections end when it is dropped.
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
    pub fn unused_query(&self) -> u64 {
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
    let mut remaining = size - marked as u64;
    while remaining > 0 {
        let count = usize::try_from(remaining)
            .unwrap_or(BLOCK_BYTES)
            .min(BLOCK_BYTES);
        stream
            .write_all(block.get(..count).unwrap_or_default())
            .await?;
        remaining -= count as u64;
    }
    stream.shutdown().await
}
