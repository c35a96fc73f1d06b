//! A fake of the API and the gateway, for tests and the demo.
//!
//! It stores the visible messages, but only the size and a digest of each file. A test with discord.py checks that it
//! behaves like Discord.

mod buttons;
mod gateway;
mod people;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use dray_http::fake_server::{
    ConnectionClosed, ContentDigest, FakeServer, FormData, ReceivedRequest, Reply, SharedState,
    bytes_reply, json_reply, with_header,
};
use dray_types::Secret;
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub use buttons::ShownButton;
pub use gateway::{DisconnectAll, GatewayFault};
pub use people::{FileFault, USER_ID};

/// The only token that the server accepts.
pub const BOT_TOKEN: &str = "fake.token.of-a-bot-that-is-none";
/// Largest file in servers below boost level 2, in bytes.
const MAX_FILE_BYTES: u64 = 10 << 20;
/// Largest file in servers of boost level 2, in bytes.
const MAX_FILE_BYTES_LEVEL_2: u64 = 50 << 20;
/// Largest file in servers of boost level 3, in bytes.
const MAX_FILE_BYTES_LEVEL_3: u64 = 100 << 20;

/// A fault to inject, once.
#[derive(Clone, Debug, PartialEq)]
pub enum InjectedFault {
    /// The next message is refused with 429 and this delay.
    RateLimit(Duration),
    /// The next message gets an HTML page with this status and does not appear.
    Fail(u16),
    /// The next message appears, but the connection is closed instead of a response.
    LoseResponse,
    /// The connection is closed after the first bytes of the next message.
    CloseDuringBody,
    /// The next message is refused with this status, code and text.
    Refuse(u16, u64, &'static str),
    /// The next message appears, but the response has no attachments.
    ForgetFiles,
    /// The next message appears, but the response is not a message.
    Gibberish,
}

/// A visible message of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// The message's id. Ids increase over all channels.
    pub id: String,
    /// The message's text as it was sent, at most 2,000 characters.
    pub text: String,
    /// The message to which it replies; empty for none.
    pub reply_to: String,
    /// Names and contents of its files.
    pub files: Vec<(String, ContentDigest)>,
    /// The JSON with which it was created.
    pub payload: Value,
}

#[derive(Debug, Default)]
struct FakeChannel {
    /// Empty for a conversation with a person.
    guild: String,
    /// The channel of a thread; empty for other channels.
    parent: String,
    archived: bool,
    /// Messages of people, oldest first, without the addresses of their files.
    written: Vec<Value>,
    messages: Vec<StoredMessage>,
    nonces: BTreeMap<String, Value>,
}

#[derive(Debug, Default)]
struct FakeState {
    channels: BTreeMap<String, FakeChannel>,
    tiers: BTreeMap<String, u64>,
    /// The response to a request for the servers of the bot.
    servers: Vec<Value>,
    faults: Vec<InjectedFault>,
    requests: Vec<String>,
    count: u64,
    gateway: gateway::FakeGateway,
    interactions: buttons::FakeInteractions,
    connections: JoinSet<()>,
    files: BTreeMap<String, people::MessageFile>,
    file_faults: Vec<FileFault>,
    /// Part of the signature of file addresses. Incrementing it expires all addresses.
    signature: u64,
}

impl FakeState {
    fn next(&mut self) -> String {
        self.count += 1;
        // The ids are as long as real ones, which need more than the 53 bits of a JavaScript number.
        format!("{}", 1_000_000_000_000_000_000 + self.count)
    }
}

/// An API on a loopback port; dropping the value stops it.
#[derive(Debug)]
pub struct FakeDiscord {
    server: FakeServer<FakeState>,
}

impl FakeDiscord {
    /// Starts a server without channels.
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

    /// The URL for the client option `base_url`.
    pub fn url(&self) -> String {
        format!("{}/api/v10", self.server.shared().url())
    }

    /// The only token that the server accepts, [`BOT_TOKEN`].
    pub fn token(&self) -> Secret {
        Secret::new(BOT_TOKEN)
    }

    /// Creates a channel in a new server with this boost level, and returns its id.
    pub fn channel(&self, boosts: u64) -> String {
        let mut state = self.server.shared().lock();
        let (guild, id) = (state.next(), state.next());
        state.tiers.insert(guild.clone(), boosts);
        let channel = FakeChannel {
            guild,
            ..FakeChannel::default()
        };
        state.channels.insert(id.clone(), channel);
        id
    }

    /// Adds the bot to a server whose roles give it these permissions.
    pub fn join(&self, name: &str, permissions: u64) {
        let mut state = self.server.shared().lock();
        let id = state.next();
        state.servers.push(json!({
            "id": id, "name": name, "icon": null, "owner": false, "features": [],
            "permissions": permissions.to_string(),
        }));
    }

    /// Archives a thread: messages to it are refused until a client takes it out of the archive.
    pub fn archive(&self, channel: &str) {
        let mut state = self.server.shared().lock();
        if let Some(channel) = state.channels.get_mut(channel) {
            channel.archived = true;
        }
    }

    /// The visible messages of a channel, oldest first.
    pub fn visible_messages(&self, channel: &str) -> Vec<StoredMessage> {
        let state = self.server.shared().lock();
        state
            .channels
            .get(channel)
            .map(|channel| channel.messages.clone())
            .unwrap_or_default()
    }

    /// Adds a fault for a message. Each message uses one, in order.
    pub fn script(&self, fault: InjectedFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// Bytes of bodies read until now.
    pub fn received(&self) -> u64 {
        self.server.shared().received()
    }

    /// Requests until now: method and path.
    pub fn requests(&self) -> Vec<String> {
        self.server.shared().lock().requests.clone()
    }
}

fn error_reply(status: u16, code: u64, message: &str) -> Reply {
    json_reply(status, &json!({ "code": code, "message": message }))
}

/// Archives a thread, or takes it out of the archive.
fn change_channel(shared: &SharedState<FakeState>, id: &str, body: &Value) -> Reply {
    let mut state = shared.lock();
    let Some(channel) = state.channels.get_mut(id) else {
        return error_reply(404, 10_003, "Unknown Channel");
    };
    if let Some(archived) = body.get("archived").and_then(Value::as_bool) {
        channel.archived = archived;
    }
    json_reply(200, &channel_json(id, channel))
}

/// Blocks bots whose client has a name of another form than Discord requires.
async fn respond_to_request(
    shared: Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let agent = request.header("user-agent").unwrap_or_default();
    if request.header("authorization").is_some() && !agent.starts_with("DiscordBot (") {
        // The body is read first, or the client would get a broken connection instead of the status.
        request.into_reader().digest().await?;
        return Ok(error_reply(403, 40_333, "internal network error"));
    }
    route_request(shared, request).await
}

async fn route_request(
    shared: Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    if request.path.starts_with("/attachments/") {
        return Ok(people::get_file(&shared, &request));
    }
    if request.path.trim_end_matches('/') == "/gateway" {
        return gateway::open_connection(&shared, request);
    }
    let path = request
        .path
        .strip_prefix("/api/v10/")
        .unwrap_or_default()
        .to_owned();
    shared
        .lock()
        .requests
        .push(format!("{} {path}", request.method));
    if path.starts_with("interactions/") || path.starts_with("webhooks/") {
        return buttons::respond_to_interaction(&shared, &path, request).await;
    }
    if request.header("authorization") != Some(&format!("Bot {BOT_TOKEN}")) {
        // The body is read first, or the client would get a broken connection instead of the status.
        request.into_reader().digest().await?;
        return Ok(error_reply(401, 0, "401: Unauthorized"));
    }
    let parts: Vec<&str> = path.split('/').collect();
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["users", "@me"]) => Ok(json_reply(200, &user_json())),
        ("GET", ["users", "@me", "guilds"]) => {
            let servers = shared.lock().servers.clone();
            Ok(json_reply(200, &Value::Array(servers)))
        }
        ("GET", ["oauth2", "applications", "@me"]) => Ok(json_reply(200, &application_json())),
        ("GET", ["gateway", "bot"]) => Ok(json_reply(200, &FakeDiscord::bot(&shared))),
        ("GET", ["channels", id, "messages"]) => Ok(people::list_messages(&shared, id, &request)),
        ("GET", ["channels", id, "messages", message]) => {
            Ok(people::get_message(&shared, id, message))
        }
        ("GET", ["guilds", id]) => Ok(guild_reply(&shared, id)),
        ("GET", ["channels", id]) => Ok(shared.lock().channels.get(*id).map_or_else(
            || error_reply(404, 10_003, "Unknown Channel"),
            |channel| json_reply(200, &channel_json(id, channel)),
        )),
        ("PATCH", ["channels", id]) => {
            let body = request.json().await?;
            Ok(change_channel(&shared, id, &body))
        }
        ("PATCH", ["channels", id, "messages", message]) => {
            let body = request.json().await?;
            Ok(shared.lock().edit_message(id, message, &body))
        }
        ("POST", ["channels", id, "messages"]) => {
            let id = (*id).to_owned();
            post_message(&shared, &id, request).await
        }
        _ => Ok(error_reply(404, 0, "404: Not Found")),
    }
}

fn user_json() -> Value {
    json!({ "id": "1", "username": "fake", "discriminator": "0000", "avatar": null, "bot": true })
}

fn application_json() -> Value {
    json!({
        "id": "1", "name": "fake", "description": "", "icon": null, "bot_public": false,
        "bot_require_code_grant": false, "verify_key": "", "owner": user_json(), "team": null, "summary": "", "flags": 0,
    })
}

fn guild_reply(shared: &SharedState<FakeState>, id: &str) -> Reply {
    match shared.lock().tiers.get(id) {
        Some(tier) => json_reply(200, &json!({ "id": id, "premium_tier": tier })),
        None => error_reply(404, 10_004, "Unknown Guild"),
    }
}

fn channel_json(id: &str, channel: &FakeChannel) -> Value {
    let (last, name) = (people::newest_message(channel), "fake");
    if channel.guild.is_empty() {
        let person =
            json!({ "id": USER_ID, "username": "ada", "discriminator": "0", "avatar": null });
        return json!({ "id": id, "type": 1, "last_message_id": last, "recipients": [person] });
    }
    if channel.parent.is_empty() {
        return json!({
            "id": id, "type": 0, "guild_id": channel.guild, "name": name, "last_message_id": last, "position": 0,
            "parent_id": null, "permission_overwrites": [], "nsfw": false, "topic": null, "rate_limit_per_user": 0,
        });
    }
    json!({
        "id": id, "type": 11, "guild_id": channel.guild, "name": name, "last_message_id": last,
        "parent_id": channel.parent, "owner_id": USER_ID, "message_count": channel.written.len(), "member_count": 1,
        "thread_metadata": {
            "archived": channel.archived, "auto_archive_duration": 1440, "locked": false,
            "archive_timestamp": "2026-01-01T00:00:00+00:00",
        },
    })
}

async fn post_message(
    shared: &SharedState<FakeState>,
    id: &str,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let fault = {
        let mut state = shared.lock();
        let first = !state.faults.is_empty();
        first.then(|| state.faults.remove(0))
    };
    if fault == Some(InjectedFault::CloseDuringBody) {
        let mut reader = request.into_reader();
        // After one frame, the client has begun to send the body.
        reader.more().await?;
        return Err(ConnectionClosed);
    }
    let is_form = request
        .header("content-type")
        .is_some_and(|media_type| media_type.starts_with("multipart/"));
    let (payload, form) = if is_form {
        let form = request.form().await?;
        let payload =
            serde_json::from_str(form.field("payload_json")).map_err(|_| ConnectionClosed)?;
        (payload, form)
    } else {
        (request.json().await?, FormData::default())
    };
    match &fault {
        Some(InjectedFault::RateLimit(wait)) => {
            let body = json!({ "message": "You are being rate limited.", "retry_after": wait.as_secs_f64(), "global": false });
            return Ok(with_header(
                json_reply(429, &body),
                "retry-after",
                &wait.as_secs().to_string(),
            ));
        }
        Some(InjectedFault::Fail(status)) => {
            return Ok(bytes_reply(*status, "text/html", "<html>".into()));
        }
        Some(InjectedFault::Refuse(status, code, text)) => {
            return Ok(error_reply(*status, *code, text));
        }
        // With the other faults, the message appears.
        _ => {}
    }
    let reply = show_message(&mut shared.lock(), id, payload, form);
    match fault {
        Some(InjectedFault::LoseResponse) => Err(ConnectionClosed),
        Some(InjectedFault::Gibberish) => Ok(json_reply(200, &json!(["what"]))),
        Some(InjectedFault::ForgetFiles) => {
            Ok(json_reply(200, &json!({ "id": "1", "attachments": [] })))
        }
        _ => Ok(reply),
    }
}

/// The refusal of a message, if it is invalid.
fn message_refusal(
    channel: &FakeChannel,
    tier: u64,
    payload: &Value,
    form: &FormData,
) -> Option<Reply> {
    let content = json_text(payload, "/content");
    let limit = match tier {
        0 | 1 => MAX_FILE_BYTES,
        2 => MAX_FILE_BYTES_LEVEL_2,
        _ => MAX_FILE_BYTES_LEVEL_3,
    };
    let invalid = |errors: Value| {
        let body = json!({ "code": 50_035, "message": "Invalid Form Body", "errors": errors });
        Some(json_reply(400, &body))
    };
    if channel.archived {
        return Some(error_reply(400, 50_083, "Thread is archived"));
    }
    if json_text(payload, "/nonce").chars().count() > 25 {
        return invalid(json!({ "nonce": {} }));
    }
    if content.chars().count() > 2000 {
        return invalid(json!({ "content": {} }));
    }
    if form.files.len() > 10 {
        return invalid(json!({ "attachments": {} }));
    }
    if let Some(refusal) = buttons::component_refusal(payload) {
        return Some(refusal);
    }
    if content.is_empty() && form.files.is_empty() {
        return Some(error_reply(400, 50_006, "Cannot send an empty message"));
    }
    let is_large = form.files.iter().any(|file| file.content.size > limit);
    is_large.then(|| error_reply(413, 40_005, "Request entity too large"))
}

/// A field as text. Clients may write ids as numbers.
fn json_text(payload: &Value, pointer: &str) -> String {
    match payload.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// Stores a message as visible, unless one with this nonce exists.
fn show_message(state: &mut FakeState, id: &str, payload: Value, form: FormData) -> Reply {
    let message_id = state.next();
    let Some(channel) = state.channels.get_mut(id) else {
        return error_reply(404, 10_003, "Unknown Channel");
    };
    let tier = state.tiers.get(&channel.guild).copied().unwrap_or_default();
    if let Some(refusal) = message_refusal(channel, tier, &payload, &form) {
        return refusal;
    }
    let nonce = json_text(&payload, "/nonce");
    let enforced = payload.get("enforce_nonce").and_then(Value::as_bool) == Some(true);
    // Returns the earlier message, as Discord does with `enforce_nonce`.
    if let (true, Some(earlier)) = (enforced, channel.nonces.get(&nonce)) {
        return json_reply(200, earlier);
    }
    let files: Vec<(String, ContentDigest)> = form
        .files
        .into_iter()
        .map(|file| (file.name, file.content))
        .collect();
    let message = described_message(id, &message_id, &payload, &files);
    channel.messages.push(StoredMessage {
        id: message_id,
        text: json_text(&payload, "/content"),
        reply_to: json_text(&payload, "/message_reference/message_id"),
        files,
        payload,
    });
    if enforced && !nonce.is_empty() {
        channel.nonces.insert(nonce, message.clone());
    }
    json_reply(200, &message)
}

fn described_message(
    channel: &str,
    id: &str,
    payload: &Value,
    files: &[(String, ContentDigest)],
) -> Value {
    let attachments: Vec<Value> = files
        .iter()
        .enumerate()
        .map(|(index, (name, content))| {
            json!({
                "id": format!("{id}{index}"), "filename": name, "size": content.size,
                "url": format!("https://cdn.discordapp.com/attachments/{channel}/{id}/{index}"),
                "proxy_url": "https://media.discordapp.net/x",
            })
        })
        .collect();
    json!({
        "id": id, "channel_id": channel, "content": json_text(payload, "/content"), "attachments": attachments,
        "author": user_json(), "timestamp": "2026-01-01T00:00:00+00:00", "edited_timestamp": null, "tts": false,
        "mention_everyone": false, "mentions": [], "mention_roles": [], "embeds": [], "pinned": false, "type": 0,
        "nonce": json_text(payload, "/nonce"), "components": payload.get("components").unwrap_or(&json!([])),
    })
}
