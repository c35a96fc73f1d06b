//! A small DIAL Core that stores files in memory and implements the files API (quickapps 5.1) over HTTP/1.
//!
//! Buckets belong to keys, files have metadata, uploads support `If-Match` and `If-None-Match`. It records every
//! request, and can inject faults for single files ([`InjectedFault`]). It checks no permissions beyond bucket
//! ownership and sharing, and its data is lost when it is dropped.

mod api;
mod body;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dray_types::Sha256Digest;
use http::HeaderMap;

use crate::listen::{ConnectionServer, serve_http};

pub use api::{AccessGrant, ApiFault, ApiState};

/// The server. It and its connections end when it is dropped.
#[derive(Debug)]
pub struct DialCore {
    server: ConnectionServer,
    state: Arc<Mutex<DialState>>,
}

/// A fault of one file. It lasts until [`DialCore::clear_file_fault`] removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Requests for metadata and content get this status.
    Status(u16),
    /// Metadata are correct, but the request for the content gets this status.
    ContentStatus(u16),
    /// Requests for metadata and content get a redirect to this URL.
    Redirect(String),
    /// The status comes with `Retry-After` in seconds.
    Busy(u16, u64),
    /// Metadata are not JSON.
    GarbledMetadata,
    /// Metadata have no length, and the content is sent chunked.
    NoLength,
    /// Metadata have this length; the content is sent chunked and unchanged.
    MetadataLength(u64),
    /// Metadata have this length; the content has its real length.
    WrongMetadataLength(u64),
    /// The connection breaks after half of the promised bytes.
    Truncated,
    /// No response is ever sent.
    Silent,
    /// The content stops after its first half and the connection stays open.
    Stalled,
    /// Metadata state no length, the content never ends.
    Endless,
    /// The content claims a content coding.
    Encoded,
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// HTTP method, such as `GET`.
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// All headers as received, including the key.
    pub headers: HeaderMap,
}

impl ReceivedRequest {
    /// A header's value; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// One stored file.
#[derive(Clone, Debug)]
struct StoredFile {
    content: Bytes,
    media_type: String,
    /// SHA-256 of the content, computed once, so that measured clients do not wait for it.
    etag: String,
}

impl StoredFile {
    fn new(content: Bytes, media_type: String) -> Self {
        let etag = Sha256Digest::of(&content).to_hex();
        Self {
            content,
            media_type,
            etag,
        }
    }
}

/// The state of the server. Paths are decoded: `bucket/folder/name`.
#[derive(Debug, Default)]
struct DialState {
    /// Bucket of every key.
    keys: HashMap<String, String>,
    /// Pairs of a key and a file in another bucket that the key may read.
    shared: HashSet<(String, String)>,
    files: BTreeMap<String, StoredFile>,
    file_faults: HashMap<String, InjectedFault>,
    requests: Vec<ReceivedRequest>,
    api: ApiState,
}

impl DialCore {
    /// Listens on a free loopback port, without keys and files.
    pub async fn start() -> io::Result<Self> {
        let state = Arc::new(Mutex::new(DialState::default()));
        let shared = Arc::clone(&state);
        let serve = move |stream| {
            let state = Arc::clone(&shared);
            serve_http(stream, move |request| {
                let state = Arc::clone(&state);
                async move { serve::answer_request(&state, request).await }
            })
        };
        let server = ConnectionServer::start((Ipv4Addr::LOCALHOST, 0).into(), serve).await?;
        Ok(Self { server, state })
    }

    /// Base URL without a slash at the end, as for `DIAL_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Address on loopback, for clients that take no URL.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Makes `key` the owner of `bucket`.
    pub fn add_key(&self, key: impl Into<String>, bucket: impl Into<String>) {
        self.lock().keys.insert(key.into(), bucket.into());
    }

    /// Lets `key` read one file of another user's bucket. `path` is decoded: `bucket/folder/name`.
    pub fn share(&self, key: impl Into<String>, path: impl Into<String>) {
        self.lock().shared.insert((key.into(), path.into()));
    }

    /// Stores a file. `path` is decoded: `bucket/folder/name`.
    pub fn put(&self, path: impl Into<String>, content: impl Into<Bytes>, media_type: &str) {
        let file = StoredFile::new(content.into(), media_type.to_owned());
        self.lock().files.insert(path.into(), file);
    }

    /// The content under a decoded path.
    pub fn file(&self, path: &str) -> Option<Bytes> {
        self.lock().files.get(path).map(|file| file.content.clone())
    }

    /// Makes requests for the file `path` meet `fault` until it is removed.
    pub fn inject_file_fault(&self, path: impl Into<String>, fault: InjectedFault) {
        self.lock().file_faults.insert(path.into(), fault);
    }

    /// Removes the fault of one file.
    pub fn clear_file_fault(&self, path: &str) {
        self.lock().file_faults.remove(path);
    }

    /// Every request so far.
    pub fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.lock().requests.clone()
    }

    /// `METHOD target` of every request so far.
    pub fn requests(&self) -> Vec<String> {
        let request_line =
            |request: &ReceivedRequest| format!("{} {}", request.method, request.target);
        self.lock().requests.iter().map(request_line).collect()
    }

    fn lock(&self) -> MutexGuard<'_, DialState> {
        lock_state(&self.state)
    }
}

fn lock_state(state: &Mutex<DialState>) -> MutexGuard<'_, DialState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
