//! A fake Cloud API. `tests/python.rs` checks it with the client library pywa.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use dray_http::fake_server::{
    ConnectionClosed, ContentDigest, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply,
    json_reply, with_header,
};
use dray_types::Secret;
use serde_json::{Value, json};

use super::{InjectedFault, StoredMessage};

/// The only token that the server accepts.
pub const ACCESS_TOKEN: &str = "EAAfaketokenofanappthatisnone";
/// The id of the only phone number.
pub const PHONE_NUMBER_ID: &str = "106540352242922";
/// The secret that signs its webhooks.
pub const APP_SECRET: &str = "fake-app-secret";
/// Largest upload, in bytes.
const MAX_UPLOAD_BYTES: u64 = 100_000_000;

#[derive(Debug, Default)]
struct CloudState {
    media: BTreeMap<String, (Option<String>, ContentDigest)>,
    chats: BTreeMap<String, Vec<StoredMessage>>,
    downloads: BTreeMap<String, Vec<u8>>,
    faults: Vec<InjectedFault>,
    /// Status of the phone number.
    status: String,
    count: u64,
}

impl CloudState {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn fault(&mut self, is_match: impl Fn(&InjectedFault) -> bool) -> Option<InjectedFault> {
        let index = self.faults.iter().position(is_match)?;
        Some(self.faults.remove(index))
    }
}

const fn is_of_upload(fault: &InjectedFault) -> bool {
    matches!(
        fault,
        InjectedFault::CloseDuringBody | InjectedFault::TooLarge | InjectedFault::RefuseMediaType
    )
}

/// A Cloud API on a loopback port; dropping the value stops it.
#[derive(Debug)]
pub struct FakeCloudApi {
    server: FakeServer<CloudState>,
}

impl FakeCloudApi {
    /// Starts a server without chats and media.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let state = CloudState {
            status: "CONNECTED".to_owned(),
            ..CloudState::default()
        };
        let server = FakeServer::start(state, |shared, request| {
            Box::pin(respond_to_request(shared, request)) as _
        })
        .await?;
        Ok(Self { server })
    }

    /// The URL for the client option `base_url`.
    pub fn url(&self) -> String {
        format!("{}/v23.0", self.server.shared().url())
    }

    /// The only token that the server accepts, [`ACCESS_TOKEN`].
    pub fn token(&self) -> Secret {
        Secret::new(ACCESS_TOKEN)
    }

    /// Creates a chat with a new person, and returns the phone number.
    pub fn chat(&self) -> String {
        let mut state = self.server.shared().lock();
        let number = format!("4915700{:06}", state.next());
        state.chats.insert(number.clone(), Vec::new());
        number
    }

    /// Creates a chat with this id: a group, or a person who hides the phone number.
    pub fn create_chat(&self, id: &str) {
        let mut state = self.server.shared().lock();
        state.chats.insert(id.to_owned(), Vec::new());
    }

    /// The visible messages of a person, oldest first.
    pub fn visible_messages(&self, chat: &str) -> Vec<StoredMessage> {
        let state = self.server.shared().lock();
        state.chats.get(chat).cloned().unwrap_or_default()
    }

    /// Changes the status of the phone number.
    pub fn report_status(&self, status: &str) {
        status.clone_into(&mut self.server.shared().lock().status);
    }

    /// Adds a fault. Each upload or message uses the first one that applies to it.
    pub fn script(&self, fault: InjectedFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// Bytes of bodies read until now.
    pub fn received(&self) -> u64 {
        self.server.shared().received()
    }

    /// Stores media of a user, and returns its id.
    pub fn keep(&self, bytes: Vec<u8>) -> String {
        let mut state = self.server.shared().lock();
        let id = format!("{}", 9_000_000 + state.next());
        state.downloads.insert(id.clone(), bytes);
        id
    }
}

fn error_reply(status: u16, code: i64, message: &str) -> Reply {
    json_reply(
        status,
        &json!({ "error": { "message": message, "type": "OAuthException", "code": code, "fbtrace_id": "A" } }),
    )
}

async fn respond_to_request(
    shared: Arc<SharedState<CloudState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    if request.header("authorization") != Some(&format!("Bearer {ACCESS_TOKEN}")) {
        // The body is read first, or the client would get a broken connection instead of the status.
        request.into_reader().digest().await?;
        return Ok(error_reply(401, 190, "Invalid OAuth access token"));
    }
    let rest = path.strip_prefix("/v23.0/").unwrap_or_default();
    if request.method == "GET" {
        return Ok(get_media(&shared, &path, rest));
    }
    match rest.strip_prefix(PHONE_NUMBER_ID) {
        Some("/media") => upload_media(&shared, request).await,
        Some("/messages") => {
            let payload = request.json().await?;
            post_message(&shared, &payload)
        }
        _ => Ok(error_reply(404, 100, "Unknown path components")),
    }
}

fn get_media(shared: &SharedState<CloudState>, path: &str, id: &str) -> Reply {
    let state = shared.lock();
    if let Some(bytes) = path
        .strip_prefix("/lookaside/")
        .and_then(|id| state.downloads.get(id))
    {
        return bytes_reply(200, "application/octet-stream", bytes.clone().into());
    }
    if id == PHONE_NUMBER_ID {
        return json_reply(
            200,
            &json!({
                "display_phone_number": "+1 555-010-0100", "verified_name": "Fake", "status": state.status, "id": id,
            }),
        );
    }
    match state.downloads.get(id) {
        Some(bytes) => json_reply(
            200,
            &json!({
                "messaging_product": "whatsapp", "id": id, "file_size": bytes.len(), "mime_type": "text/plain",
                "url": format!("{}/lookaside/{id}", shared.url()), "sha256": "",
            }),
        ),
        None => error_reply(404, 100, "Unsupported get request"),
    }
}

async fn upload_media(
    shared: &SharedState<CloudState>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let fault = shared.lock().fault(is_of_upload);
    if fault == Some(InjectedFault::CloseDuringBody) {
        let mut reader = request.into_reader();
        // After one frame, the client has begun to send the body.
        reader.more().await?;
        return Err(ConnectionClosed);
    }
    let form = request.form().await?;
    if fault == Some(InjectedFault::TooLarge) {
        return Ok(bytes_reply(413, "text/html", "<html>".into()));
    }
    if fault == Some(InjectedFault::RefuseMediaType) {
        let reason = "(#100) Param file must be a file with one of the following types: text/plain";
        return Ok(error_reply(400, 100, reason));
    }
    let Some(file) = form.files.into_iter().next() else {
        return Ok(error_reply(400, 100, "file is required"));
    };
    if file.content.size > MAX_UPLOAD_BYTES {
        return Ok(bytes_reply(413, "text/html", "<html>".into()));
    }
    let mut state = shared.lock();
    let id = format!("{}", 1_000_000 + state.next());
    state
        .media
        .insert(id.clone(), (Some(file.name), file.content));
    Ok(json_reply(200, &json!({ "id": id })))
}

fn post_message(
    shared: &SharedState<CloudState>,
    payload: &Value,
) -> Result<Reply, ConnectionClosed> {
    let mut state = shared.lock();
    let fault = state.fault(|fault| !is_of_upload(fault));
    match &fault {
        Some(InjectedFault::RateLimit(wait)) => {
            let refused = error_reply(429, 130_429, "Rate limit hit");
            return Ok(with_header(
                refused,
                "retry-after",
                &wait.as_secs().to_string(),
            ));
        }
        Some(InjectedFault::Fail(status)) => {
            return Ok(bytes_reply(*status, "text/html", "<html>".into()));
        }
        Some(InjectedFault::Refuse(code)) => return Ok(error_reply(400, *code, "refused")),
        _ => {}
    }
    let message_id = match show_message(&mut state, payload) {
        Ok(id) => id,
        Err((code, reason)) => return Ok(error_reply(400, code, reason)),
    };
    match fault {
        Some(InjectedFault::LoseResponse) => Err(ConnectionClosed),
        Some(InjectedFault::Gibberish) => Ok(json_reply(200, &json!("what"))),
        Some(InjectedFault::ForgetMessage) => Ok(json_reply(200, &json!({ "messages": [] }))),
        _ => Ok(json_reply(
            200,
            &json!({
                "messaging_product": "whatsapp",
                "contacts": [{ "input": payload["to"], "wa_id": payload["to"] }],
                "messages": [{ "id": message_id, "message_status": "accepted" }],
            }),
        )),
    }
}

fn show_message(state: &mut CloudState, payload: &Value) -> Result<String, (i64, &'static str)> {
    let text = |pointer: &str| {
        let value = payload.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    // Business-scoped user ids have a field of their own; in that for numbers they reach no one.
    let (chat, kind) = match text("/recipient") {
        id if id.is_empty() => (text("/to").replace('.', ""), text("/type")),
        id => (id, text("/type")),
    };
    // The API accepts numbers with and without the plus sign.
    let number = chat.trim_start_matches('+').to_owned();
    let id = format!("wamid.{:08}", state.next());
    let file = match kind.as_str() {
        "text" => None,
        "image" | "video" | "audio" | "document" => {
            let media = text(&format!("/{kind}/id"));
            let (_, content) = state.media.get(&media).ok_or((131_053, "unknown media"))?;
            let file_name = text(&format!("/{kind}/filename"));
            Some(((kind == "document").then_some(file_name), content.clone()))
        }
        _ => return Err((131_051, "unsupported type")),
    };
    let message_text = match kind.as_str() {
        "text" => text("/text/body"),
        _ => text(&format!("/{kind}/caption")),
    };
    let max_characters = if kind == "text" { 4096 } else { 1024 };
    if message_text.chars().count() > max_characters || (kind == "text" && message_text.is_empty())
    {
        return Err((100, "the text has a wrong length"));
    }
    let messages = state
        .chats
        .get_mut(&number)
        .ok_or((131_026, "Message undeliverable"))?;
    messages.push(StoredMessage {
        id: id.clone(),
        text: message_text,
        kind,
        reply_to: text("/context/message_id"),
        file,
        payload: payload.clone(),
    });
    Ok(id)
}
