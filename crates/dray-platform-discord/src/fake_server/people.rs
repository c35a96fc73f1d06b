//! Messages and files of users.

use bytes::Bytes;
use dray_http::fake_server::{
    ReceivedRequest, Reply, SharedState, bytes_reply, cut_reply, json_reply,
};
use dray_types::Sha256Digest;
use serde_json::{Value, json};

use super::{FakeDiscord, FakeState, error_reply};

/// The user that writes all messages of people.
pub const USER_ID: &str = "777000000000000001";

/// The type of a reference to a message that is forwarded.
const FORWARD_REFERENCE_TYPE: u64 = 1;

/// A fault of a file download, which happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// The file does not exist.
    Missing,
    /// The full length is announced, but only half of the bytes are sent.
    Short,
    /// The file is longer than the message announced.
    Long,
    /// The response redirects to another host.
    Redirect,
}

/// An attachment that a person sent.
#[derive(Debug)]
pub(super) struct MessageFile {
    content: Bytes,
    media_type: &'static str,
}

impl FakeDiscord {
    /// Creates a conversation between the bot and a person, and returns its id.
    pub fn conversation(&self) -> String {
        let mut state = self.server.shared().lock();
        let id = state.next();
        state
            .channels
            .insert(id.clone(), super::FakeChannel::default());
        id
    }

    /// Creates a thread in a channel, and returns its id.
    pub fn thread(&self, parent: &str) -> String {
        let mut state = self.server.shared().lock();
        let id = state.next();
        let guild = state.channels.get(parent);
        let thread = super::FakeChannel {
            guild: guild.map(|parent| parent.guild.clone()).unwrap_or_default(),
            parent: parent.to_owned(),
            ..super::FakeChannel::default()
        };
        state.channels.insert(id.clone(), thread);
        id
    }

    /// Adds a message of a person with these files (names and contents), and returns its id.
    pub fn user_writes(&self, channel: &str, text: &str, files: &[(&str, &[u8])]) -> String {
        self.write_message(channel, text, files, &json!({}))
    }

    /// Like [`Self::user_writes`], with the fields of `other` in place of those of a person's message.
    pub fn write_message(
        &self,
        channel: &str,
        text: &str,
        files: &[(&str, &[u8])],
        other: &Value,
    ) -> String {
        let shared = self.server.shared();
        let mut state = shared.lock();
        let id = state.next();
        let mut attachments = Vec::new();
        for (name, content) in files {
            let file = state.next();
            let media_type = if content.starts_with(b"\x89PNG") {
                "image/png"
            } else {
                "text/plain"
            };
            attachments.push(json!({
                "id": file, "filename": name, "size": content.len(), "content_type": media_type,
            }));
            let content = Bytes::copy_from_slice(content);
            state.files.insert(
                file,
                MessageFile {
                    content,
                    media_type,
                },
            );
        }
        let guild = state.channels.get(channel).map(|known| known.guild.clone());
        let mut message = json!({
            "id": id, "channel_id": channel, "content": text, "type": 0, "flags": 0,
            "author": { "id": USER_ID, "username": "ada", "discriminator": "0", "global_name": "Ada", "avatar": null },
            "attachments": attachments, "timestamp": "2026-01-01T00:00:00+00:00", "edited_timestamp": null,
            "tts": false, "mention_everyone": false, "mentions": [], "mention_roles": [], "embeds": [],
            "pinned": false, "components": [],
        });
        // These fields come last, because they replace the fields above.
        if let (Some(fields), Some(other)) = (message.as_object_mut(), other.as_object()) {
            fields.extend(other.clone());
        }
        if message.pointer("/message_reference/type") == Some(&json!(FORWARD_REFERENCE_TYPE)) {
            move_content_to_snapshot(&mut message);
        }
        if let Some(channel) = state.channels.get_mut(channel) {
            // Messages are stored without addresses, which are signed again for each response.
            channel.written.push(message.clone());
        }
        state.sign(&shared.url(), &mut message);
        if let Some(guild) = guild.filter(|guild| !guild.is_empty())
            && let Some(fields) = message.as_object_mut()
        {
            // Only events of the gateway have the id of the server.
            fields.insert("guild_id".to_owned(), guild.into());
        }
        state.gateway.broadcast("MESSAGE_CREATE", &message);
        id
    }

    /// Adds a message of a person that forwards another one with this text and these files, and returns its id.
    pub fn user_forwards(&self, channel: &str, text: &str, files: &[(&str, &[u8])]) -> String {
        let reference =
            json!({ "type": FORWARD_REFERENCE_TYPE, "channel_id": channel, "message_id": "1" });
        let other = json!({ "message_reference": reference });
        self.write_message(channel, text, files, &other)
    }

    /// Deletes a message of a person, with its files.
    pub fn delete(&self, channel: &str, message: &str) {
        let mut state = self.server.shared().lock();
        if let Some(channel) = state.channels.get_mut(channel) {
            channel
                .written
                .retain(|stored| stored.get("id") != Some(&json!(message)));
        }
        state.signature += 1;
    }

    /// Expires the addresses of all existing files.
    pub fn expire(&self) {
        self.server.shared().lock().signature += 1;
    }

    /// Adds a fault for a download. Each download uses one, in order.
    pub fn script_file(&self, fault: FileFault) {
        self.server.shared().lock().file_faults.push(fault);
    }
}

/// A forward has no content: that of the forwarded message is in a snapshot.
fn move_content_to_snapshot(message: &mut Value) {
    let Some(fields) = message.as_object_mut() else {
        return;
    };
    let content = fields.insert("content".to_owned(), json!(""));
    let attachments = fields.insert("attachments".to_owned(), json!([]));
    let original = json!({ "type": 0, "flags": 0, "content": content, "attachments": attachments });
    let snapshots = json!([{ "message": original }]);
    fields.insert("message_snapshots".to_owned(), snapshots);
}

impl FakeState {
    /// Adds the addresses of its files to a message, with the current signature.
    pub(super) fn sign(&self, url: &str, message: &mut Value) {
        let snapshots = message
            .get_mut("message_snapshots")
            .and_then(Value::as_array_mut);
        for snapshot in snapshots.into_iter().flatten() {
            if let Some(original) = snapshot.get_mut("message") {
                self.sign(url, original);
            }
        }
        let files = message.get_mut("attachments").and_then(Value::as_array_mut);
        for file in files.into_iter().flatten() {
            let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default();
            let (id, name) = (text("id").to_owned(), text("filename").to_owned());
            let address = format!("{url}/attachments/1/{id}/{name}?{}", self.signed(&id));
            if let Some(fields) = file.as_object_mut() {
                fields.insert("url".to_owned(), address.clone().into());
                fields.insert("proxy_url".to_owned(), address.into());
            }
        }
    }

    fn signed(&self, file: &str) -> String {
        let seed = format!("{file}/{}", self.signature);
        format!(
            "ex=6{0}&is=5{0}&hm={1}",
            self.signature,
            Sha256Digest::of(seed.as_bytes()).to_hex()
        )
    }

    fn written(&self, channel: &str) -> impl DoubleEndedIterator<Item = &Value> {
        let channel = self.channels.get(channel);
        channel
            .into_iter()
            .flat_map(|channel| channel.written.iter())
    }
}

/// The id of the newest message of a channel.
pub(super) fn newest_message(channel: &super::FakeChannel) -> Value {
    let last = channel.written.last().and_then(|message| message.get("id"));
    last.cloned().unwrap_or_default()
}

/// Lists messages after an id, newest first, up to the requested number.
pub(super) fn list_messages(
    shared: &SharedState<FakeState>,
    channel: &str,
    request: &ReceivedRequest,
) -> Reply {
    let number = |name: &str| {
        request
            .parameter(name)
            .and_then(|value| value.parse::<u64>().ok())
    };
    let (after, limit) = (
        number("after").unwrap_or_default(),
        number("limit").unwrap_or(50),
    );
    let state = shared.lock();
    let id = |message: &Value| message.get("id")?.as_str()?.parse::<u64>().ok();
    let mut messages: Vec<Value> = state
        .written(channel)
        .filter(|message| id(message).is_some_and(|id| id > after))
        // The oldest after the id, not the newest, because clients page forwards.
        .take(usize::try_from(limit.min(100)).unwrap_or(100))
        .cloned()
        .collect();
    // Discord always lists the newest first.
    messages.reverse();
    for message in &mut messages {
        state.sign(&shared.url(), message);
    }
    json_reply(200, &Value::Array(messages))
}

/// One message by its id, with new addresses of its files.
pub(super) fn get_message(shared: &SharedState<FakeState>, channel: &str, id: &str) -> Reply {
    let state = shared.lock();
    let stored = state
        .written(channel)
        .find(|message| message.get("id").and_then(Value::as_str) == Some(id));
    let Some(mut message) = stored.cloned() else {
        return error_reply(404, 10_008, "Unknown Message");
    };
    state.sign(&shared.url(), &mut message);
    json_reply(200, &message)
}

/// A file by its signed address. Requests with a token get 404.
pub(super) fn get_file(shared: &SharedState<FakeState>, request: &ReceivedRequest) -> Reply {
    let mut state = shared.lock();
    let not_found = || {
        bytes_reply(
            404,
            "text/plain",
            "This content is no longer available.".into(),
        )
    };
    let id = request.path.split('/').nth(3).unwrap_or_default();
    let is_signed = request.query == state.signed(id);
    if request.header("authorization").is_some() || !is_signed {
        return not_found();
    }
    let fault = (!state.file_faults.is_empty()).then(|| state.file_faults.remove(0));
    let Some(MessageFile {
        content,
        media_type,
    }) = state.files.get(id)
    else {
        return not_found();
    };
    match fault {
        None => bytes_reply(200, media_type, content.clone()),
        Some(FileFault::Missing) => not_found(),
        Some(FileFault::Short) => cut_reply(media_type, content, content.len() / 2),
        Some(FileFault::Long) => {
            let longer = [content.as_ref(), b"more"].concat();
            bytes_reply(200, media_type, longer.into())
        }
        Some(FileFault::Redirect) => {
            let moved = bytes_reply(302, media_type, Bytes::new());
            dray_http::fake_server::with_header(moved, "location", "http://127.0.0.1:1/elsewhere")
        }
    }
}
