//! A server that speaks the Bot API, for tests and the demo.
//!
//! It keeps what users see and nothing else: bodies are counted and digested while they come, not held. It is proved
//! with python-telegram-bot in `tests/python.rs`.

mod album;
mod answer;
mod fault;
mod files;
mod form;
mod media;
mod methods;
mod multipart;
mod server;
mod shown;
mod state;
mod updates;
mod users;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use dray_types::Secret;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use fault::InjectedFault;
pub use shown::{ShownFile, StoredMessage};
pub use users::UserFile;

use state::{FakeState, SharedState};

/// The token that it takes.
pub const BOT_TOKEN: &str = "4242:AAE-double-token-of-a-bot-that-is-none";

/// Largest upload of the hosted API, in bytes.
pub const MAX_UPLOAD_BYTES: u64 = 50 << 20;

/// Largest photo, in bytes.
pub const MAX_PHOTO_BYTES: u64 = 10 << 20;

/// Largest file that a bot may fetch from the hosted API, in bytes.
pub const MAX_DOWNLOAD_BYTES: u64 = 20 << 20;

/// A Bot API server on a loopback port; it ends when this is dropped.
#[derive(Debug)]
pub struct FakeTelegram {
    address: SocketAddr,
    shared: Arc<SharedState>,
    _serving: JoinSet<()>,
}

impl FakeTelegram {
    /// Starts one with the limits of the hosted API.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(MAX_UPLOAD_BYTES).await
    }

    /// Starts one that takes uploads of this many bytes, as an own server takes 2000 MB.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start_with(upload: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(SharedState::new(upload));
        let mut serving = JoinSet::new();
        serving.spawn(server::serve_connections(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            _serving: serving,
        })
    }

    /// What the `base_url` of a client must be.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The token that it takes.
    pub fn token(&self) -> Secret {
        Secret::new(BOT_TOKEN)
    }

    /// Makes a private chat with a new user, and returns its id.
    pub fn chat(&self) -> i64 {
        self.state().new_chat(false)
    }

    /// Makes a group with one topic, `7`, and returns its id.
    pub fn group(&self) -> i64 {
        self.state().new_chat(true)
    }

    /// Turns a group into a supergroup with another id, which is returned.
    pub fn upgrade(&self, group: i64) -> i64 {
        self.state().upgrade(group)
    }

    /// What the chat shows, oldest first.
    pub fn seen(&self, chat: i64) -> Vec<StoredMessage> {
        self.state().seen(chat)
    }

    /// The actions (`upload_document` …) that were shown in the chat.
    pub fn actions(&self, chat: i64) -> Vec<String> {
        self.state().actions(chat)
    }

    /// Makes this happen to the next request that it can happen to. Several happen one after the other.
    pub fn script(&self, fault: InjectedFault) {
        self.state().faults.push_back(fault);
    }

    /// Bytes read from all connections, heads of requests aside.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::SeqCst)
    }

    /// Every request until now: method of the API, or `file`.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Forgets every file id that it gave.
    pub fn forget_files(&self) {
        self.state().files.clear();
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.shared.state()
    }
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
