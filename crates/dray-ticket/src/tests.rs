//! Tests of tickets over HTTP connections, with the embedded store.

mod attacks;
mod destination;
mod direct;
mod download;
mod form;
mod grpc;
mod limits;
mod manage;
mod plain;
mod records;
mod refusals;
mod resumable;
mod server;
mod tus;
mod web_files;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::Bus;
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, Store, StoreOptions};
use dray_types::{Clock, OperationId, Sha256Digest};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::{
    IssuedTicket, Principal, StoredContent, TicketEndpoint, TicketLimits, TicketRecords,
    TicketRequest, TicketService,
};

/// Start of the clock of tests.
const START_MS: u64 = 1_800_000_000_000;

/// An endpoint with its own store and directory.
pub(crate) struct TestEndpoint {
    pub(crate) service: TicketService,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) address: SocketAddr,
    pub(crate) directory: TempDir,
    pub(crate) store_options: StoreOptions,
    _storage: EmbeddedS3,
    _stop: tokio_util::sync::DropGuard,
}

/// A response as received.
#[derive(Clone, Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Bytes,
}

impl TestEndpoint {
    pub(crate) async fn new() -> Self {
        Self::with(TicketLimits::default(), u64::MAX).await
    }

    pub(crate) async fn with(limits: TicketLimits, capacity: u64) -> Self {
        Self::start(limits, capacity, None, false).await
    }

    /// An endpoint over a store that clients reach too.
    pub(crate) async fn with_public_store() -> Self {
        Self::start(TicketLimits::default(), u64::MAX, None, true).await
    }

    /// An endpoint that makes calls.
    pub(crate) async fn with_bus(bus: Bus) -> Self {
        Self::start(TicketLimits::default(), u64::MAX, Some(bus), false).await
    }

    async fn start(limits: TicketLimits, capacity: u64, bus: Option<Bus>, is_public: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (storage, mut options) =
            EmbeddedS3::with_capacity(&directory.path().join("store"), capacity)
                .await
                .unwrap();
        if is_public {
            options.public_endpoint = options.endpoint.clone();
        }
        // Signatures of requests need the time of the machine; only tickets use the clock that tests move.
        let store = Store::open(&options, Clock::system()).await.unwrap();
        // Calls have deadlines, which the bus compares with its own clock.
        let clock = if bus.is_some() {
            Clock::system()
        } else {
            Clock::manual(START_MS)
        };
        let records = TicketRecords::directory(&directory.path().join("tickets")).unwrap();
        let mut service = TicketService::new(records, store.clone(), clock.clone(), limits);
        if let Some(bus) = bus {
            service = service.with_bus(bus);
        }
        let (address, stop) = serve(&service).await;
        Self {
            service,
            store,
            clock,
            address,
            directory,
            store_options: options,
            _storage: storage,
            _stop: stop,
        }
    }

    /// A second process over the same store and the same records.
    pub(crate) async fn replica(&self, limits: TicketLimits) -> (SocketAddr, impl Drop + use<>) {
        let records = self.service.inner.records.clone();
        let service = TicketService::new(records, self.store.clone(), self.clock.clone(), limits);
        serve(&service).await
    }

    /// A second process that reaches the store through another client.
    pub(crate) async fn replica_over(&self, store: Store) -> (SocketAddr, impl Drop + use<>) {
        let records = self.service.inner.records.clone();
        let limits = TicketLimits::default();
        serve(&TicketService::new(
            records,
            store,
            self.clock.clone(),
            limits,
        ))
        .await
    }

    /// Like [`Self::replica`], for an endpoint that makes calls.
    pub(crate) async fn replica_with_bus(&self, bus: Bus) -> (SocketAddr, impl Drop + use<>) {
        let records = self.service.inner.records.clone();
        let limits = TicketLimits::default();
        let service = TicketService::new(records, self.store.clone(), self.clock.clone(), limits);
        serve(&service.with_bus(bus)).await
    }

    pub(crate) async fn issue(&self, request: TicketRequest) -> String {
        let ticket = self.issue_ticket(request).await;
        ticket.url("")
    }

    pub(crate) async fn issue_ticket(&self, request: TicketRequest) -> IssuedTicket {
        let principal = Principal::default();
        self.service.issue(&principal, request).await.unwrap()
    }

    /// Stores content and makes a ticket for it.
    pub(crate) async fn issue_download(&self, bytes: &Bytes, name: &str) -> String {
        let principal = Principal::default();
        let label = ArtifactLabel::new("text/plain", name);
        let claim = self
            .store
            .put(
                &principal.tenant,
                &OperationId::mint(),
                bytes.clone(),
                label,
            )
            .await
            .unwrap();
        let content = StoredContent {
            sha256: claim.artifact.sha256.to_hex(),
            size: claim.artifact.size,
            media_type: claim.artifact.media_type,
            name: claim.artifact.name,
        };
        self.issue(TicketRequest::download(content)).await
    }

    pub(crate) async fn send(&self, head: &str, body: &[u8]) -> TestResponse {
        send(self.address, head, body).await
    }

    /// Sends a request without a body.
    pub(crate) async fn send_empty(&self, head: &str) -> TestResponse {
        send_raw(self.address, head, b"").await
    }

    pub(crate) async fn is_stored(&self, bytes: &[u8]) -> bool {
        let tenant = Principal::default().tenant;
        let found = self.store.find(&tenant, Sha256Digest::of(bytes)).await;
        found.unwrap().is_some()
    }

    /// Files of the store below a prefix of keys.
    pub(crate) fn count_files(&self, part: &str) -> usize {
        let mut count = 0;
        let mut directories = vec![self.directory.path().join("store")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.to_string_lossy().contains(part) {
                    count += 1;
                }
            }
        }
        count
    }
}

impl TestResponse {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The name of the problem in the body.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/problem+json"));
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(document["status"], self.status);
        assert!(!document["detail"].as_str().unwrap().is_empty());
        assert!(!document["advice"].as_str().unwrap().is_empty());
        let kind = document["type"].as_str().unwrap();
        kind.rsplit([':', '#']).next().unwrap().to_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

async fn serve(service: &TicketService) -> (SocketAddr, tokio_util::sync::DropGuard) {
    let endpoint = TicketEndpoint::bind(([127, 0, 0, 1], 0).into(), None)
        .await
        .unwrap();
    let address = endpoint.base_url().strip_prefix("http://").unwrap();
    let address = address.parse().unwrap();
    let stop = CancellationToken::new();
    let serving = endpoint.serve(service.clone(), Some([7; 32].into()), stop.clone());
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the runtime of the test"
    )]
    tokio::spawn(serving);
    (address, stop.drop_guard())
}

/// Bytes of any length with varied values and without a known signature.
pub(crate) fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

#[expect(clippy::disallowed_methods, reason = "the endpoint of the test")]
pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Sends a request: its first line and its own fields, then the body with its length.
pub(crate) async fn send(address: SocketAddr, head: &str, body: &[u8]) -> TestResponse {
    let head = format!("{head}\r\ncontent-length: {}", body.len());
    send_raw(address, &head, body).await
}

/// Sends a request as it is.
pub(crate) async fn send_raw(address: SocketAddr, head: &str, body: &[u8]) -> TestResponse {
    let mut stream = connect(address).await;
    let head = with_version(head);
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses early may close before all bytes are written.
    let _ = stream.write_all(body).await;
    read_response(&mut stream).await
}

pub(crate) fn with_version(head: &str) -> String {
    let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!("{fields}\r\n")
    };
    format!("{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}\r\n")
}

pub(crate) async fn read_response(stream: &mut TcpStream) -> TestResponse {
    let mut response_bytes = Vec::new();
    let read = stream.read_to_end(&mut response_bytes);
    let read = tokio::time::timeout(Duration::from_mins(1), read);
    // A reset after the response is ignored.
    let _ = read.await.expect("a response in time");
    parse_response(&response_bytes)
}

pub(crate) fn parse_response(response_bytes: &[u8]) -> TestResponse {
    let end = response_bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n");
    let end = end.expect("the head of a response");
    let head = String::from_utf8(response_bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    TestResponse {
        status,
        head,
        body: Bytes::copy_from_slice(&response_bytes[end + 4..]),
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    let wait = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .expect("the condition in time");
}

/// Sends the head and a part of the body, and breaks the connection.
pub(crate) async fn break_after(fixture: &TestEndpoint, head: &str, part: &[u8]) {
    let mut stream = connect(fixture.address).await;
    let head = with_version(head);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(part).await.unwrap();
    stream.shutdown().await.unwrap();
}
