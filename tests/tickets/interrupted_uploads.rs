//! Tests an upload through a proxy that cuts connections, until the file is complete.
//!
//! `cargo xtask test` sends some megabytes; `cargo xtask soak -- tickets` sends the largest file of a ticket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::support::{self, up::UpServer};

/// Most requests of one upload.
const MAX_REQUESTS: u64 = 10_000;
/// Longest wait for bytes before the age of a connection is checked again.
const CUT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Size of an upload before the measured one, in bytes.
const WARM_UP_BYTES: u64 = 20_000_000;
/// Size of one write of the client, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// The size of an upload, and when its connections are cut.
pub(crate) struct CutUpload {
    /// Size of the file.
    pub(crate) size: u64,
    /// Bytes of a client after which its connection is cut.
    pub(crate) cut_bytes: u64,
    /// Time after which a connection is cut.
    pub(crate) cut_time: Duration,
}

/// A proxy to one address. Its threads end with the test.
struct CuttingProxy {
    address: SocketAddr,
    /// Bytes that clients sent.
    received: Arc<AtomicU64>,
    /// Connections that it cut.
    cuts: Arc<AtomicU64>,
}

impl CuttingProxy {
    fn start(target: SocketAddr, upload: &CutUpload) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
            cuts: Arc::default(),
        };
        let (received, cuts) = (proxy.received.clone(), proxy.cuts.clone());
        let (cut_bytes, cut_time) = (upload.cut_bytes, upload.cut_time);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let (received, cuts) = (received.clone(), cuts.clone());
                thread::spawn(move || {
                    let server = TcpStream::connect(target).unwrap();
                    if forward(&client, &server, &received, cut_bytes, cut_time) {
                        cuts.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        proxy
    }
}

/// Forwards one connection. Returns whether it was cut.
fn forward(
    client: &TcpStream,
    server: &TcpStream,
    received: &AtomicU64,
    cut_bytes: u64,
    cut_time: Duration,
) -> bool {
    let (mut response_source, mut response_target) =
        (server.try_clone().unwrap(), client.try_clone().unwrap());
    let responses = thread::spawn(move || {
        let _ = std::io::copy(&mut response_source, &mut response_target);
        let _ = response_target.shutdown(Shutdown::Write);
    });
    let (mut client, mut server) = (client, server);
    client.set_read_timeout(Some(CUT_POLL_INTERVAL)).unwrap();
    let started_at = Instant::now();
    let (mut remaining_bytes, mut buffer) = (cut_bytes, vec![0; CHUNK_BYTES]);
    let is_cut = loop {
        if remaining_bytes == 0 || started_at.elapsed() >= cut_time {
            break true;
        }
        let read_bytes = usize::try_from(remaining_bytes)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let count = match client.read(&mut buffer[..read_bytes]) {
            // A client that waits for its response is cut as well.
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) | Ok(0) => break false,
            Ok(count) => count,
        };
        received.fetch_add(count as u64, Ordering::Relaxed);
        remaining_bytes -= count as u64;
        if server.write_all(&buffer[..count]).is_err() {
            break false;
        }
    };
    let _ = server.shutdown(Shutdown::Write);
    if is_cut {
        // The client gets no response: its connection ends.
        let _ = client.shutdown(Shutdown::Both);
    }
    let _ = responses.join();
    is_cut
}

/// Fills the buffer with the bytes of the file from `start` on. Each byte is computed from its position, so the file is
/// never in memory as a whole.
fn fill(buffer: &mut [u8], start: u64) {
    for (byte, position) in buffer.iter_mut().zip(start..) {
        *byte = position.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    }
}

/// A client for resumable uploads of the IETF that stops only when the server refuses.
struct ResumableClient {
    address: SocketAddr,
    path: String,
    size: u64,
}

impl ResumableClient {
    /// Sends all bytes, and returns the document of the last response.
    fn send(&self) -> Value {
        let mut offset = 0;
        for _ in 0..MAX_REQUESTS {
            if let Some(response) = self.append(offset) {
                let (head, body) = response.split_once("\r\n\r\n").unwrap();
                // The status is 409 if a cut request reaches the server after the request that follows it.
                if !head.starts_with("HTTP/1.1 409") {
                    assert!(head.starts_with("HTTP/1.1 201"), "{response}");
                    return serde_json::from_str(body).unwrap();
                }
            }
            offset = self.offset();
        }
        panic!("the upload does not end");
    }

    /// One request with the rest of the file; `None` when its connection broke.
    fn append(&self, offset: u64) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!(
            "PATCH {} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-type: application/partial-upload\r\n\
             upload-offset: {offset}\r\nupload-complete: ?1\r\ncontent-length: {}\r\n\r\n",
            self.path,
            self.size - offset,
        );
        stream.write_all(head.as_bytes()).ok()?;
        let (mut position, mut buffer) = (offset, vec![0; CHUNK_BYTES]);
        while position < self.size {
            let count = usize::try_from(self.size - position)
                .unwrap_or(usize::MAX)
                .min(CHUNK_BYTES);
            fill(&mut buffer[..count], position);
            stream.write_all(&buffer[..count]).ok()?;
            position += count as u64;
        }
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        (!response.is_empty()).then_some(response)
    }

    /// Number of bytes that the server has.
    fn offset(&self) -> u64 {
        for _ in 0..MAX_REQUESTS {
            let mut stream = TcpStream::connect(self.address).unwrap();
            let head = format!(
                "HEAD {} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n",
                self.path
            );
            let mut response = String::new();
            let read = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.read_to_string(&mut response));
            let offset = response
                .lines()
                .find_map(|line| line.strip_prefix("upload-offset: "));
            if let (Ok(_), Some(offset)) = (read, offset) {
                return offset.parse().unwrap();
            }
        }
        panic!("the server does not return the offset");
    }
}

/// Most resident memory that a process had since [`reset_peak_memory`], in bytes.
fn peak_memory(process: u32) -> u64 {
    status_bytes(process, "VmHWM:")
}

/// Resets the peak of a process, and returns its resident memory in bytes.
fn reset_peak_memory(process: u32) -> u64 {
    // proc(5): 5 resets the peak to the present size.
    std::fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
    status_bytes(process, "VmRSS:")
}

fn status_bytes(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}

/// Uploads through the proxy, and checks that the file arrives completely, with few bytes sent twice and little memory.
pub(crate) fn upload_through_cuts(upload: &CutUpload, max_memory_bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let server = UpServer::start(directory.path(), &["--tickets", "127.0.0.1:0"], "tickets: ");
    let target = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    let client = |address: SocketAddr, size: u64| {
        let mut command = Command::new(support::dray());
        command
            .args(["ticket", "--json", "upload", "--endpoint", &server.url])
            .args(["--size", &size.to_string()])
            .env("HOME", directory.path());
        let receipt: Value = serde_json::from_str(&support::stdout(&mut command)).unwrap();
        let (_, path) = receipt["url"].as_str().unwrap().split_once("/t/").unwrap();
        ResumableClient {
            address,
            path: format!("/t/{path}"),
            size,
        }
    };
    // The code of the program becomes resident when it first runs. The measurement excludes that memory.
    client(target, WARM_UP_BYTES).send();
    let before = reset_peak_memory(server.id());
    let proxy = CuttingProxy::start(target, upload);
    let started_at = Instant::now();
    let document = client(proxy.address, upload.size).send();
    let elapsed = started_at.elapsed();
    assert_eq!(
        document["sha256"],
        digest_of_file(upload.size),
        "{document}"
    );
    let cuts = proxy.cuts.load(Ordering::Relaxed);
    assert!(cuts >= upload.size / upload.cut_bytes, "{cuts} cuts");
    let sent = proxy.received.load(Ordering::Relaxed);
    assert!(
        sent <= upload.size + upload.size / 50,
        "{sent} bytes were sent for {}",
        upload.size
    );
    let added_memory = peak_memory(server.id()).saturating_sub(before);
    assert!(
        added_memory <= max_memory_bytes,
        "{added_memory} more bytes of memory"
    );
    println!(
        "{} bytes in {cuts} cuts: {sent} bytes sent, {added_memory} bytes of memory above idle, {elapsed:?}",
        upload.size
    );
    server.end();
}

fn digest_of_file(size: u64) -> String {
    let (mut hasher, mut position, mut buffer) = (Sha256::new(), 0, vec![0; CHUNK_BYTES]);
    while position < size {
        let count = usize::try_from(size - position)
            .unwrap_or(usize::MAX)
            .min(CHUNK_BYTES);
        fill(&mut buffer[..count], position);
        hasher.update(&buffer[..count]);
        position += count as u64;
    }
    dray_types::hex::hex_digits(&hasher.finalize())
}
