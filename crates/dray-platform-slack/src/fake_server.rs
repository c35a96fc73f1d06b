//! A fake of the Web API for files and messages, for tests and the demo.
//!
//! It stores the visible messages, but only the size and a digest of each upload. A test with `slack_sdk`
//! (`tests/python.rs`) checks that it behaves like Slack.

mod buttons;
mod files;
mod state;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dray_http::fake_server::{
    ConnectionClosed, ContentDigest, FakeServer, FormData, ReceivedRequest, Reply, SharedState,
    bytes_reply, json_reply, with_header,
};
use dray_types::Secret;
use serde_json::{Value, json};

pub use buttons::{ShownButton, signature_headers};
use state::{FakeState, SlackFile};

/// The only token that the server accepts.
pub const BOT_TOKEN: &str = "xoxb-fake-token-of-an-app-that-is-none";
/// Scopes of that token, unless [`FakeSlack::grant`] changes them.
const BOT_SCOPES: &str = "files:read,files:write,chat:write";
/// The signing secret of its events.
pub const SIGNING_SECRET: &str = "fake-signing-secret";
/// A user whose conversation can be opened.
pub const USER_ID: &str = "U0FAKE";
/// Channel of the conversation with [`USER_ID`].
pub const DIRECT_CHANNEL: &str = "D0FAKE";

/// A fault to inject, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The next completion or message is refused with 429 and this delay.
    RateLimit(Duration),
    /// The next completion or message fails with 500, and no message appears.
    Fail,
    /// The next completion or message succeeds, but the connection is closed instead of a response.
    LoseResponse,
    /// The connection of the next completion or message is closed, and no message appears.
    LoseRequest,
    /// The connection of the next upload is closed after the first bytes.
    CloseDuringUpload,
    /// The next request for an upload address is refused as too large.
    TooLarge,
    /// The response to the next completion is `ok`, but the files are never shared.
    NeverShare,
    /// The next completion or message succeeds, but the response is malformed.
    Gibberish,
    /// The next completion or message is refused with this code.
    Refuse(&'static str),
    /// The response to the next upload states a smaller number of bytes.
    Miscount,
    /// The next share only becomes visible after this many calls of `files.info`.
    ShareLate(u32),
    /// This many calls of `files.info` fail.
    FailInfo(u32),
}

/// A visible message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The message's time stamp, which is also its id in the channel.
    pub ts: String,
    /// The message's text without escapes, as users see it.
    pub text: String,
    /// Time stamp of the root of its thread; empty for none.
    pub thread: String,
    /// Names and contents of its files.
    pub files: Vec<(String, ContentDigest)>,
    /// The text that its blocks show as code.
    pub code: String,
    /// The buttons of its blocks.
    pub buttons: Vec<ShownButton>,
}

/// A Web API on a loopback port; dropping the value stops it.
#[derive(Debug)]
pub struct FakeSlack {
    server: FakeServer<FakeState>,
}

impl FakeSlack {
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
        format!("{}/api", self.server.shared().url())
    }

    /// The only token that the server accepts, [`BOT_TOKEN`].
    pub fn token(&self) -> Secret {
        Secret::new(BOT_TOKEN)
    }

    /// Creates a channel and returns its id.
    pub fn channel(&self) -> String {
        let mut state = self.server.shared().lock();
        let id = format!("C{:08}", state.next());
        state.channels.insert(id.clone(), Vec::new());
        id
    }

    /// Gives the token these scopes and no others.
    pub fn grant(&self, scopes: &str) {
        self.server.shared().lock().scopes = Some(scopes.to_owned());
    }

    /// The visible messages of a channel, oldest first.
    pub fn visible_messages(&self, channel: &str) -> Vec<StoredMessage> {
        let state = self.server.shared().lock();
        state.channels.get(channel).cloned().unwrap_or_default()
    }

    /// Adds a fault. Each request uses the first one that applies to it.
    pub fn script(&self, fault: InjectedFault) {
        self.server.shared().lock().faults.push(fault);
    }

    /// Bytes of bodies read until now.
    pub fn received(&self) -> u64 {
        self.server.shared().received()
    }

    /// The requests until now: method, and whether there was a token.
    pub fn requests(&self) -> Vec<(String, bool)> {
        self.server.shared().lock().requests.clone()
    }
}

fn ok_reply(mut value: Value) -> Reply {
    if let Some(value) = value.as_object_mut() {
        value.insert("ok".to_owned(), true.into());
    }
    json_reply(200, &value)
}

fn error_reply(code: &str) -> Reply {
    json_reply(200, &json!({ "ok": false, "error": code }))
}

async fn respond_to_request(
    shared: Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    let bearer = request.header("authorization").map(str::to_owned);
    shared.lock().requests.push((
        path.trim_start_matches("/api/").to_owned(),
        bearer.is_some(),
    ));
    if let Some(id) = path.strip_prefix("/upload/") {
        return receive_upload(&shared, id, request).await;
    }
    if path.starts_with("/files-pri/") {
        return files::download_file(&shared, &path, bearer.as_deref());
    }
    let Some(method) = path.strip_prefix("/api/") else {
        return Ok(json_reply(404, &json!({})));
    };
    let is_json = request
        .header("content-type")
        .is_some_and(|media_type| media_type.starts_with("application/json"));
    // Some clients send the arguments in the query.
    let form = if request.length().unwrap_or_default() == 0 {
        FormData {
            fields: request.parameters(),
            ..FormData::default()
        }
    } else if is_json {
        json_fields(&request.json().await?)
    } else {
        request.form().await?
    };
    let token = bearer
        .as_deref()
        .and_then(|bearer| bearer.strip_prefix("Bearer "))
        // Clients may send the token as an argument.
        .unwrap_or_else(|| form.field("token"));
    if token != BOT_TOKEN {
        return Ok(error_reply("invalid_auth"));
    }
    match method {
        "auth.test" => {
            let identity =
                json!({ "team": "fake", "team_id": "T1", "user": "dray", "user_id": "UBOT" });
            let granted = shared.lock().scopes.clone();
            let scopes = granted.as_deref().unwrap_or(BOT_SCOPES);
            Ok(with_header(ok_reply(identity), "x-oauth-scopes", scopes))
        }
        "conversations.open" => Ok(match form.field("users") {
            USER_ID => ok_reply(json!({ "channel": { "id": DIRECT_CHANNEL } })),
            _ => error_reply("user_not_found"),
        }),
        "files.getUploadURLExternal" => Ok(create_upload(&shared, &form)),
        "files.info" => Ok(files::file_info(&shared, form.field("file"))),
        "files.completeUploadExternal" => run_visible_method(&shared, &form, complete_upload),
        "chat.postMessage" => run_visible_method(&shared, &form, post_message),
        "chat.postEphemeral" => run_visible_method(&shared, &form, buttons::post_notice),
        "chat.update" => run_visible_method(&shared, &form, buttons::update_message),
        _ => Ok(error_reply("unknown_method")),
    }
}

/// Converts JSON arguments into form fields. Arrays are JSON in forms as well.
fn json_fields(value: &Value) -> FormData {
    let mut form = FormData::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        form.fields.push((name.clone(), text));
    }
    form
}

fn create_upload(shared: &SharedState<FakeState>, form: &FormData) -> Reply {
    let mut state = shared.lock();
    let length: u64 = form.field("length").parse().unwrap_or_default();
    // The real server refuses files without bytes with this code.
    if form.field("filename").is_empty() || length == 0 {
        return error_reply("missing_argument");
    }
    if state
        .fault(|fault| *fault == InjectedFault::TooLarge)
        .is_some()
    {
        return error_reply("file_upload_size_restricted");
    }
    let id = format!("F{:08}", state.next());
    state.files.insert(
        id.clone(),
        SlackFile {
            name: form.field("filename").to_owned(),
            length,
            ..SlackFile::default()
        },
    );
    let url = format!("{}/upload/{id}", shared.url());
    ok_reply(json!({ "upload_url": url, "file_id": id }))
}

async fn receive_upload(
    shared: &SharedState<FakeState>,
    id: &str,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let is_closed = shared
        .lock()
        .fault(|fault| *fault == InjectedFault::CloseDuringUpload)
        .is_some();
    if is_closed {
        // After one frame, the client has begun to send the body.
        let mut reader = request.into_reader();
        reader.more().await?;
        return Err(ConnectionClosed);
    }
    let is_form = request
        .header("content-type")
        .is_some_and(|media_type| media_type.starts_with("multipart/"));
    let content = if is_form {
        let form = request.form().await?;
        form.files
            .into_iter()
            .next()
            .ok_or(ConnectionClosed)?
            .content
    } else {
        request.into_reader().digest().await?
    };
    let mut state = shared.lock();
    let missing_bytes = u64::from(
        state
            .fault(|fault| *fault == InjectedFault::Miscount)
            .is_some(),
    );
    let Some(file) = state.files.get_mut(id) else {
        return Ok(bytes_reply(404, "text/plain", "not found".into()));
    };
    if content.size != file.length {
        return Ok(bytes_reply(400, "text/plain", "length mismatch".into()));
    }
    let reply_text = format!("OK - {}", content.size - missing_bytes);
    file.content = Some(content);
    Ok(bytes_reply(200, "text/plain", reply_text.into()))
}

/// Runs a method whose effect is visible, with the next fault that applies to such methods.
fn run_visible_method(
    shared: &SharedState<FakeState>,
    form: &FormData,
    method: fn(&mut FakeState, &FormData, Option<&InjectedFault>) -> Result<Value, &'static str>,
) -> Result<Reply, ConnectionClosed> {
    let mut state = shared.lock();
    let fault = state.fault(|fault| {
        !matches!(
            fault,
            InjectedFault::CloseDuringUpload
                | InjectedFault::TooLarge
                | InjectedFault::Miscount
                | InjectedFault::FailInfo(_)
        )
    });
    match fault {
        Some(InjectedFault::RateLimit(wait)) => {
            let refused = json_reply(429, &json!({ "ok": false, "error": "ratelimited" }));
            let seconds = wait.as_secs().to_string();
            return Ok(with_header(refused, "retry-after", &seconds));
        }
        Some(InjectedFault::Fail) => return Ok(bytes_reply(500, "text/html", "<html>".into())),
        Some(InjectedFault::LoseRequest) => return Err(ConnectionClosed),
        Some(InjectedFault::Refuse(code)) => return Ok(error_reply(code)),
        _ => {}
    }
    let result = method(&mut state, form, fault.as_ref());
    match (fault, result) {
        (Some(InjectedFault::LoseResponse), _) => Err(ConnectionClosed),
        (Some(InjectedFault::Gibberish), _) => Ok(json_reply(200, &json!([1, 2]))),
        (_, Ok(value)) => Ok(ok_reply(value)),
        (_, Err(code)) => Ok(error_reply(code)),
    }
}

/// Removes the escapes, as Slack does when it shows a text.
fn plain_text(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        // `&amp;` is replaced last, or `&amp;lt;` would become `<`.
        .replace("&amp;", "&")
}

fn post_message(
    state: &mut FakeState,
    form: &FormData,
    _: Option<&InjectedFault>,
) -> Result<Value, &'static str> {
    let text = plain_text(form.field("text"));
    if text.is_empty() {
        return Err("no_text");
    }
    if text.chars().count() > 40_000 {
        return Err("msg_too_long");
    }
    let ts = show_message(
        state,
        form.field("channel"),
        form.field("thread_ts"),
        text,
        Vec::new(),
    )?;
    buttons::show_blocks(state, form, &ts)?;
    Ok(json!({ "ts": ts, "channel": form.field("channel") }))
}

fn show_message(
    state: &mut FakeState,
    channel: &str,
    thread: &str,
    text: String,
    files: Vec<(String, ContentDigest)>,
) -> Result<String, &'static str> {
    let ts = format!("1700000000.{:06}", state.next());
    // The first message creates the channel of the conversation.
    if channel == DIRECT_CHANNEL {
        state.channels.entry(DIRECT_CHANNEL.to_owned()).or_default();
    }
    let messages = state.channels.get_mut(channel).ok_or("channel_not_found")?;
    messages.push(StoredMessage {
        ts: ts.clone(),
        text,
        thread: thread.to_owned(),
        files,
        code: String::new(),
        buttons: Vec::new(),
    });
    Ok(ts)
}

fn complete_upload(
    state: &mut FakeState,
    form: &FormData,
    fault: Option<&InjectedFault>,
) -> Result<Value, &'static str> {
    let listed: Vec<Value> =
        serde_json::from_str(form.field("files")).map_err(|_| "invalid_arguments")?;
    // The real server was observed to fail with more files (platform-delivery 7.4).
    if listed.len() > 14 {
        return Err("internal_error");
    }
    let channel = match form.field("channel_id") {
        "" => form.field("channels").split(',').next().unwrap_or_default(),
        id => id,
    };
    let mut files = Vec::new();
    let mut ids = Vec::new();
    for item in &listed {
        let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
        let file = state.files.get(id).ok_or("file_not_found")?;
        let content = file.content.clone().ok_or("file_not_found")?;
        let title = item
            .get("title")
            .and_then(Value::as_str)
            .unwrap_or(&file.name);
        files.push((title.to_owned(), content));
        ids.push(id.to_owned());
    }
    // A completion may succeed without a share.
    if fault == Some(&InjectedFault::NeverShare) {
        return Ok(json!({ "files": listed }));
    }
    let comment = plain_text(form.field("initial_comment"));
    let ts = show_message(state, channel, form.field("thread_ts"), comment, files)?;
    let hidden_calls = match fault {
        Some(InjectedFault::ShareLate(calls)) => *calls,
        _ => 0,
    };
    for id in ids {
        if let Some(file) = state.files.get_mut(&id) {
            file.shared = Some((channel.to_owned(), ts.clone(), hidden_calls));
        }
    }
    Ok(json!({ "files": listed }))
}
