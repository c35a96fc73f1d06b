//! A receiver of webhooks for tests and the demo.
//!
//! It verifies signatures, compares files with the digests in their event, and accepts every key once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dray_http::fake_server::{
    ConnectionClosed, ContentDigest, FakeServer, FormData, ReceivedRequest, Reply, SharedState,
    bytes_reply, cut_reply, json_reply, with_header,
};
use dray_types::Secret;
use serde_json::{Value, json};

use crate::options::WebhookAddress;
use crate::sign;

/// The secret with which events must be signed.
pub const SHARED_SECRET: &str = "fake-secret-of-a-webhook";

/// A fault to inject into the next event, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The event is refused with this status; it is not accepted.
    Refuse(u16),
    /// The event is refused with 429 and this delay; it is not accepted.
    RateLimit(Duration),
    /// The event is accepted, but the connection is closed instead of a response.
    LoseResponse,
    /// The connection is closed after the first bytes.
    CloseDuringBody,
    /// The response is a success with an empty list of files, but the event is not accepted.
    ForgetFiles,
    /// The event is accepted, and the response is truncated.
    Gibberish,
    /// The event is accepted, and the response has this status and an empty body.
    Bare(u16),
    /// The event is accepted, and the response has the digest of other bytes.
    OtherBytes,
}

/// An event that the receiver accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedEvent {
    /// The event's id at the receiver, which becomes the message id of the sender.
    pub id: String,
    /// Path that it was posted to.
    pub path: String,
    /// Value of `Idempotency-Key`; may be empty.
    pub key: String,
    /// The JSON of the event, as signed.
    pub event: Value,
    /// Names and contents of its files.
    pub files: Vec<(String, ContentDigest)>,
}

#[derive(Debug, Default)]
struct FakeState {
    events: Vec<ReceivedEvent>,
    faults: Vec<InjectedFault>,
    downloads: Vec<Vec<u8>>,
}

/// A receiver on a loopback port; dropping the value stops it.
#[derive(Debug)]
pub struct FakeReceiver {
    server: FakeServer<FakeState>,
}

impl FakeReceiver {
    /// Starts a receiver. Every path below `/hooks/` accepts events.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let server = FakeServer::start(FakeState::default(), |shared, request| {
            Box::pin(respond_to_request(shared, request)) as _
        })
        .await?;
        Ok(Self { server })
    }

    /// Options for the address with this path, which must begin with `/hooks/`.
    pub fn hook(&self, path: &str) -> WebhookAddress {
        WebhookAddress {
            url: Secret::new(format!("{}{path}", self.server.shared().url())),
            secret: Secret::new(SHARED_SECRET),
            allow_http: true,
            upload_limit: None,
        }
    }

    /// Adds a fault for an event. Each event uses one, in order.
    pub fn script(&self, fault: InjectedFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// The received events of a path, oldest first.
    pub fn received_events(&self, path: &str) -> Vec<ReceivedEvent> {
        let state = self.server.shared().lock();
        let events = state.events.iter().filter(|event| event.path == path);
        events.cloned().collect()
    }

    /// Bytes of bodies read until now.
    pub fn received(&self) -> u64 {
        self.server.shared().received()
    }

    /// Stores a file for inbound events and returns its URL.
    pub fn keep(&self, bytes: Vec<u8>) -> String {
        let shared = self.server.shared();
        let mut state = shared.lock();
        state.downloads.push(bytes);
        format!("{}/files/{}", shared.url(), state.downloads.len() - 1)
    }
}

fn error_reply(status: u16, reason: &str) -> Reply {
    json_reply(status, &json!({ "error": reason }))
}

async fn respond_to_request(
    shared: Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    if let Some(number) = request.path.strip_prefix("/files/") {
        let state = shared.lock();
        let bytes = number
            .parse()
            .ok()
            .and_then(|index: usize| state.downloads.get(index));
        return Ok(match bytes {
            Some(bytes) => bytes_reply(200, "application/octet-stream", bytes.clone().into()),
            None => error_reply(404, "no such file"),
        });
    }
    if request.method != "POST" || !request.path.starts_with("/hooks/") {
        return Ok(error_reply(404, "no such hook"));
    }
    let fault = {
        let mut state = shared.lock();
        (!state.faults.is_empty()).then(|| state.faults.remove(0))
    };
    if fault == Some(InjectedFault::CloseDuringBody) {
        // After one frame, the client has begun to send the body.
        request.into_reader().more().await?;
        return Err(ConnectionClosed);
    }
    let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
    let (key, stamp, signature) = (
        header("idempotency-key"),
        header("x-timestamp"),
        header("x-signature-256"),
    );
    let path = request.path.clone();
    let (event, form) = if header("content-type").starts_with("multipart/") {
        let form = request.form().await?;
        (form.field("event").to_owned(), form)
    } else {
        let body = request.into_reader().all().await?;
        (
            String::from_utf8(body).map_err(|_| ConnectionClosed)?,
            FormData::default(),
        )
    };
    // The signature covers only the event; the digests in it cover the files.
    let expected = sign::sign_body(&Secret::new(SHARED_SECRET), &stamp, event.as_bytes());
    if stamp.is_empty() || expected.ok() != Some(signature) {
        return Ok(error_reply(401, "signature"));
    }
    Ok(match fault {
        Some(InjectedFault::Refuse(status)) => error_reply(status, "scripted"),
        Some(InjectedFault::RateLimit(wait)) => with_header(
            error_reply(429, "slow down"),
            "retry-after",
            &wait.as_secs().to_string(),
        ),
        Some(InjectedFault::ForgetFiles) => json_reply(200, &json!({ "files": [] })),
        fault => accept_event(&shared, path, key, &event, form, fault.as_ref())?,
    })
}

fn accept_event(
    shared: &SharedState<FakeState>,
    path: String,
    key: String,
    event: &str,
    form: FormData,
    fault: Option<&InjectedFault>,
) -> Result<Reply, ConnectionClosed> {
    let Ok(event) = serde_json::from_str::<Value>(event) else {
        return Ok(error_reply(400, "event"));
    };
    let delivery = event.get("delivery_id").and_then(Value::as_str);
    if delivery.is_none_or(str::is_empty) {
        return Ok(error_reply(400, "delivery_id"));
    }
    let listed: Vec<Value> = form
        .files
        .iter()
        .map(|part| {
            let (size, digest) = (part.content.size, part.content.sha256.to_hex());
            json!({ "name": part.name, "size": size, "sha256": digest, "mime": part.media_type })
        })
        .collect();
    // All parts except the event must be files.
    if form.files.iter().any(|part| part.field != "file") {
        return Ok(error_reply(400, "parts"));
    }
    if !lists_same_files(&event, &listed) {
        return Ok(error_reply(422, "the files are not those of the event"));
    }
    let mut state = shared.lock();
    // This is checked before anything is stored, because a repeated event gets the id of the first one.
    let is_repeated =
        |known_event: &&ReceivedEvent| known_event.path == path && known_event.key == key;
    if let Some(known_event) = state.events.iter().find(is_repeated) {
        return Ok(json_reply(409, &json!({ "id": known_event.id })));
    }
    let id = format!("event-{}", state.events.len());
    let contents = form.files.into_iter();
    state.events.push(ReceivedEvent {
        id: id.clone(),
        path,
        key,
        event,
        files: contents.map(|part| (part.name, part.content)).collect(),
    });
    let body = json!({ "id": id, "files": listed });
    match fault {
        Some(InjectedFault::LoseResponse) => Err(ConnectionClosed),
        Some(InjectedFault::Gibberish) => {
            Ok(cut_reply("application/json", &body.to_string().into(), 5))
        }
        Some(InjectedFault::Bare(status)) => Ok(bytes_reply(*status, "text/plain", "".into())),
        Some(InjectedFault::OtherBytes) => {
            let other = json!({ "sha256": "00".repeat(32) });
            Ok(json_reply(
                200,
                &json!({ "id": id, "files": vec![other; listed.len()] }),
            ))
        }
        _ => Ok(json_reply(201, &body)),
    }
}

/// Whether an event lists the files in its request: sizes, digests and types, in order. Names are not compared: quotes
/// and line breaks in them have several encodings.
fn lists_same_files(event: &Value, received: &[Value]) -> bool {
    let none = Vec::new();
    let listed = event
        .get("files")
        .and_then(Value::as_array)
        .unwrap_or(&none);
    let is_same = |(listed, received): (&Value, &Value)| {
        ["size", "sha256", "mime"]
            .iter()
            .all(|field| listed.get(*field) == received.get(*field))
    };
    listed.len() == received.len() && listed.iter().zip(received).all(is_same)
}
