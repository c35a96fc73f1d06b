//! Servers that speak the same wires, for tests and the demo: the Cloud API ([`CloudDouble`]) and a bridge
//! ([`BridgeDouble`]). They keep what users see; bodies are counted and digested while they come.

mod bridge;
mod cloud;

pub use bridge::{BRIDGE_TOKEN, BridgeDouble};
pub use cloud::{ACCESS_TOKEN, APP_SECRET, CloudDouble, PHONE_NUMBER_ID};

use std::time::Duration;

use dray_http::double::ContentDigest;
use serde_json::Value;

/// A fault to inject, once.
#[derive(Clone, Debug, PartialEq)]
pub enum InjectedFault {
    /// The next message is refused for rate, with this delay.
    RateLimit(Duration),
    /// The next message is answered with this status and a page; nothing appears.
    Fail(u16),
    /// The next message appears, and the connection is closed.
    LoseAnswer,
    /// The connection of the next upload is closed after its first bytes.
    CloseDuringBody,
    /// The next upload is refused as too large.
    TooLarge,
    /// The next message is refused with this code.
    Refuse(i64),
    /// The next message appears, and the answer names none.
    ForgetMessage,
    /// The next message appears, and the answer is not of the wire.
    Gibberish,
}

/// A visible message.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// Its id.
    pub id: String,
    /// Text or caption.
    pub text: String,
    /// `text`, `image`, `document` …
    pub kind: String,
    /// The message it answers; empty for none.
    pub reply_to: String,
    /// Name (where the kind shows one) and content of its file.
    pub file: Option<(Option<String>, ContentDigest)>,
    /// All that was said about it.
    pub payload: Value,
}
