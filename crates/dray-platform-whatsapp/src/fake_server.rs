//! Fake servers of both protocols, for tests and the demo: the Cloud API ([`FakeCloudApi`]) and a bridge
//! ([`FakeBridge`]). They store visible messages; the bodies of uploads are counted and hashed while they arrive.

mod bridge;
mod cloud;

pub use bridge::{BRIDGE_TOKEN, FakeBridge};
pub use cloud::{ACCESS_TOKEN, APP_SECRET, FakeCloudApi, PHONE_NUMBER_ID};

use std::time::Duration;

use dray_http::fake_server::ContentDigest;
use serde_json::Value;

/// A fault to inject, once. Each server ignores faults that its protocol does not have.
#[derive(Clone, Debug, PartialEq)]
pub enum InjectedFault {
    /// The next message is refused because of a rate limit, with this delay.
    RateLimit(Duration),
    /// The response to the next message is a page with this status; the message does not appear.
    Fail(u16),
    /// The next message appears, but the connection is closed instead of a response.
    LoseResponse,
    /// The connection of the next upload is closed after its first bytes.
    CloseDuringBody,
    /// The next upload is refused as too large.
    TooLarge,
    /// The next upload is refused, because the API takes no media of its type.
    RefuseMediaType,
    /// The next message is refused with this code.
    Refuse(i64),
    /// The next message appears, but the response contains no message.
    ForgetMessage,
    /// The next message appears, and the response is not valid in the protocol.
    Gibberish,
}

/// A message as users see it in its chat.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// The message's id, unique in its server.
    pub id: String,
    /// Text, or caption of the file; may be empty.
    pub text: String,
    /// Its type in the API: `text`, `image`, `document` …
    pub kind: String,
    /// The message to which it replies; empty without one.
    pub reply_to: String,
    /// The name (if it is visible) and the content of its file.
    pub file: Option<(Option<String>, ContentDigest)>,
    /// The JSON with which it was created.
    pub payload: Value,
}
