//! A fake server of the Bot API, for tests and the demo.
//!
//! It stores the visible messages, but only the size and a digest of each upload. A test with python-telegram-bot
//! (`tests/python.rs`) checks that it behaves like Telegram.

mod album;
mod buttons;
mod fault;
mod files;
mod form;
mod media;
mod methods;
mod response;
mod server;
mod state;
mod stored_message;
mod updates;
mod users;

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use dray_http::fake_server::{self, FakeServer, ReceivedRequest};
use dray_types::Secret;
use futures_util::FutureExt as _;

pub use buttons::{CallbackNotice, ShownButton};
pub use fault::InjectedFault;
pub use stored_message::{ShownFile, StoredMessage};
pub use users::UserFile;

use state::{FakeState, SharedState};

/// The only token that the server accepts.
pub const BOT_TOKEN: &str = "4242:AAE-fake-token-of-a-bot-that-is-none";

/// Largest upload of the hosted API, in bytes.
pub const MAX_UPLOAD_BYTES: u64 = 50 << 20;

/// Largest photo, in bytes.
pub const MAX_PHOTO_BYTES: u64 = 10 << 20;

/// Largest file that a bot may fetch from the hosted API, in bytes.
pub const MAX_DOWNLOAD_BYTES: u64 = 20 << 20;

/// A Bot API server on a loopback port. Dropping the value stops it.
#[derive(Debug)]
pub struct FakeTelegram {
    shared: Arc<SharedState>,
    server: FakeServer<()>,
}

impl FakeTelegram {
    /// Starts a server with the limits of the hosted API.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(MAX_UPLOAD_BYTES).await
    }

    /// Starts a server with this upload limit in bytes. A self-hosted Bot API server allows 2000 MB.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start_with(upload: u64) -> io::Result<Self> {
        let shared = Arc::new(SharedState::new(upload));
        let state = Arc::clone(&shared);
        let response = move |_: Arc<fake_server::SharedState<()>>, request: ReceivedRequest| {
            server::respond_to_request(Arc::clone(&state), request).boxed()
        };
        Ok(Self {
            shared,
            server: FakeServer::start((), response).await?,
        })
    }

    /// The URL for the client option `base_url`.
    pub fn url(&self) -> String {
        self.server.shared().url()
    }

    /// The only token that the server accepts, [`BOT_TOKEN`].
    pub fn token(&self) -> Secret {
        Secret::new(BOT_TOKEN)
    }

    /// Creates a private chat with a new user, and returns its id.
    pub fn chat(&self) -> i64 {
        self.state().new_chat(false)
    }

    /// Creates a group with the topic `7`, and returns its id.
    pub fn group(&self) -> i64 {
        self.state().new_chat(true)
    }

    /// Upgrades a group to a supergroup, and returns the new id.
    pub fn upgrade(&self, group: i64) -> i64 {
        self.state().upgrade(group)
    }

    /// The visible messages of a chat, oldest first.
    pub fn visible_messages(&self, chat: i64) -> Vec<StoredMessage> {
        self.state().visible_messages(chat)
    }

    /// The actions (`upload_document` …) that were shown in the chat.
    pub fn actions(&self, chat: i64) -> Vec<String> {
        self.state().actions(chat)
    }

    /// Adds a fault. Each request uses the first one that applies to it.
    pub fn script(&self, fault: InjectedFault) {
        self.state().faults.push_back(fault);
    }

    /// Bytes of all request bodies that were read, without request heads.
    pub fn received(&self) -> u64 {
        self.server.shared().received()
    }

    /// All requests until now: the API method, or `file` for a download.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Forgets all file ids, so that later uses of them are refused.
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
