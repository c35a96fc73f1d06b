//! A homeserver for tests and the demo: rooms, media and sync for one user.
//!
//! It stores visible messages. Uploads are hashed; up to 4 MiB of their bytes are stored for downloads.

mod response;
mod state;

use std::io;
use std::time::Duration;

use dray_http::fake_server::{ContentDigest, FakeServer};
use dray_types::Secret;
use serde_json::{Value, json};

use state::FakeState;

/// The only token that the server accepts.
pub const ACCESS_TOKEN: &str = "syt_fake_token_of_a_user";
/// The user to whom the token belongs.
pub const BOT_USER: &str = "@bot:fake.example";
/// The user who writes all other messages.
pub const OTHER_USER: &str = "@ada:fake.example";
/// Name of the server in the ids of users, rooms and files.
pub const SERVER_NAME: &str = "fake.example";

/// A fault to inject, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The next event is accepted normally.
    Nothing,
    /// The next event is refused with 429 and this delay.
    RateLimit(Duration),
    /// The response to the next event is 500; the event does not appear.
    Fail,
    /// The next event appears, but the connection is closed instead of a response.
    LoseResponse,
    /// The response to the next event is a success without an id.
    ForgetEvent,
    /// The next event appears, and the response is truncated.
    Gibberish,
    /// The next event is refused with this status and code.
    Refuse(u16, &'static str),
    /// The connection of the next upload is closed after the first bytes.
    CloseDuringUpload,
    /// The next upload is refused as too large.
    TooLarge,
    /// The response to the next upload has an invalid address.
    InvalidAddress,
    /// The response to the next sync is 502.
    FailSync,
    /// The next page of older messages is empty, although there are more.
    EmptyPage,
    /// From now on, the server does not support the calls of version 1.11.
    OldVersion,
    /// From now on, the server does not announce how large a file may be.
    NoLimit,
}

/// A message of the bot as users see it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// `event_id` under which the room shows it.
    pub event_id: String,
    /// The `content` of its event, as sent.
    pub content: Value,
    /// Digest of the file at its address; `None` for a text.
    pub file: Option<ContentDigest>,
}

/// A homeserver on a loopback port; dropping the value stops it.
#[derive(Debug)]
pub struct FakeHomeserver {
    server: FakeServer<FakeState>,
}

impl FakeHomeserver {
    /// Starts a server that accepts files of at most `largest` bytes.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(largest: u64) -> io::Result<Self> {
        let server = FakeServer::start(FakeState::new(largest), |shared, request| {
            Box::pin(response::respond_to_request(shared, request)) as _
        })
        .await?;
        Ok(Self { server })
    }

    /// The value for the `homeserver` option of a client.
    pub fn url(&self) -> String {
        self.server.shared().url()
    }

    /// The only token that the server accepts, [`ACCESS_TOKEN`].
    pub fn token(&self) -> Secret {
        Secret::new(ACCESS_TOKEN)
    }

    /// Creates a room with both users, and returns its id.
    pub fn room(&self) -> String {
        self.server.shared().lock().room()
    }

    /// Gives a room an alias.
    pub fn alias(&self, alias: &str, room: &str) {
        let mut state = self.server.shared().lock();
        state.aliases.insert(alias.to_owned(), room.to_owned());
    }

    /// Turns encryption on in a room, which cannot be undone.
    pub fn encrypt(&self, room: &str) {
        let mut state = self.server.shared().lock();
        state.encrypted.insert(room.to_owned());
    }

    /// The bot's visible messages in a room, oldest first.
    pub fn visible_messages(&self, room: &str) -> Vec<StoredMessage> {
        self.server.shared().lock().visible_messages(room)
    }

    /// Adds a fault. Each request uses the first one that applies to it.
    pub fn script(&self, fault: InjectedFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// Bytes of bodies read until now.
    pub fn received(&self) -> u64 {
        self.server.shared().received()
    }

    /// Requests until now: method and path, as sent.
    pub fn requests(&self) -> Vec<String> {
        self.server.shared().lock().requests.clone()
    }

    /// [`OTHER_USER`] writes in a room. Returns the id of the event.
    pub fn user_writes(&self, room: &str, content: &Value) -> String {
        let mut state = self.server.shared().lock();
        state.event(room, OTHER_USER, "m.room.message", content)
    }

    /// [`OTHER_USER`] causes an event that is not a message.
    pub fn something_happens(&self, room: &str, kind: &str) {
        let mut state = self.server.shared().lock();
        state.event(room, OTHER_USER, kind, &json!({ "body": "x" }));
    }

    /// The bot leaves a room and joins it again, between two responses to a sync. [`OTHER_USER`] wrote a message
    /// before, at this time in Unix milliseconds.
    pub fn bot_rejoins(&self, room: &str, content: &Value, sent_ms: u64) {
        let mut state = self.server.shared().lock();
        let now = std::mem::replace(&mut state.now, sent_ms);
        state.event(room, OTHER_USER, "m.room.message", content);
        state.now = now;
        state.join(room);
    }

    /// Sets the time of future events, in Unix milliseconds.
    pub fn set_time(&self, now: u64) {
        self.server.shared().lock().now = now;
    }

    /// Stores a file of a user, and returns its address.
    pub fn keep(&self, bytes: Vec<u8>) -> String {
        self.server.shared().lock().keep(bytes)
    }
}
