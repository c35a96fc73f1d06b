//! Buttons under messages, and the interactions that their presses begin.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, SharedState, bytes_reply, json_reply,
};
use serde_json::{Value, json};

use super::{FakeDiscord, FakeState, StoredMessage, error_reply, json_text};

/// Id of the application of the bot.
const APPLICATION_ID: &str = "1";
/// Most characters of the label of a button.
const MAX_LABEL_CHARS: usize = 80;
/// Most characters of the custom id of a button.
const MAX_CUSTOM_ID_CHARS: usize = 100;
/// Most buttons of a row.
const MAX_ROW_BUTTONS: usize = 5;
/// Flag of a message that one person sees.
const EPHEMERAL_FLAG: u64 = 64;

/// A button under a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownButton {
    /// The text that a user sees.
    pub text: String,
    /// The data that a press sends to the bot.
    pub data: String,
}

/// Interactions caused by presses, and the replies that only the person who pressed sees.
#[derive(Debug, Default)]
pub(super) struct FakeInteractions {
    /// Whether each interaction was acknowledged, by its token.
    acknowledged: BTreeMap<String, bool>,
    /// Tokens by the ids of interactions.
    tokens: BTreeMap<String, String>,
    /// Text of messages that one person sees.
    notices: Vec<String>,
    /// Whether new interactions end before a response to them can arrive.
    end_immediately: bool,
}

impl StoredMessage {
    /// The buttons of the message, row after row.
    pub fn buttons(&self) -> Vec<ShownButton> {
        let buttons = rows(&self.payload).into_iter().flatten();
        buttons
            .map(|button| ShownButton {
                text: json_text(&button, "/label"),
                data: json_text(&button, "/custom_id"),
            })
            .collect()
    }
}

impl FakeDiscord {
    /// A person presses a button with this data under a message of the bot. Returns the event of the gateway.
    pub fn user_presses(&self, channel: &str, message: &str, person: &str, data: &str) -> Value {
        let mut state = self.server.shared().lock();
        let (id, token) = (state.next(), format!("aW50ZXJhY3Rpb24_{}", state.next()));
        let Some(known) = state.channels.get(channel) else {
            return Value::Null;
        };
        let shown = known.messages.iter().find(|shown| shown.id == message);
        // A press always has a message; one that was deleted meanwhile is empty here.
        let (payload, files) = match shown {
            Some(shown) => (shown.payload.clone(), shown.files.clone()),
            None => (json!({}), Vec::new()),
        };
        let shown = super::described_message(channel, message, &payload, &files);
        let user = json!({
            "id": person, "username": "ada", "global_name": "Ada L", "discriminator": "0", "avatar": null,
        });
        let mut event = json!({
            "id": id, "application_id": APPLICATION_ID, "type": 3, "token": token, "version": 1,
            "data": { "component_type": 2, "custom_id": data, "id": 2 },
            "channel_id": channel, "channel": super::channel_json(channel, known), "message": shown,
            "locale": "en-US", "entitlements": [], "app_permissions": "0", "attachment_size_limit": 10_485_760,
            "authorizing_integration_owners": {}, "context": 0,
        });
        let guild = known.guild.clone();
        if let Some(fields) = event.as_object_mut() {
            if guild.is_empty() {
                fields.insert("user".to_owned(), user);
            } else {
                let member = json!({
                    "user": user, "roles": [], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": false, "mute": false,
                    "permissions": "0", "flags": 0, "nick": "the boss",
                });
                fields.insert("member".to_owned(), member);
                fields.insert("guild_id".to_owned(), guild.into());
            }
        }
        if !state.interactions.end_immediately {
            state.interactions.tokens.insert(id, token.clone());
            state.interactions.acknowledged.insert(token, false);
        }
        state.gateway.broadcast("INTERACTION_CREATE", &event);
        event
    }

    /// Sends an event of the gateway once more, as it does after a resumption.
    pub fn repeat_event(&self, name: &str, event: &Value) {
        self.server.shared().lock().gateway.broadcast(name, event);
    }

    /// Makes all further interactions end before a response to them arrives.
    pub fn end_interactions(&self) {
        self.server.shared().lock().interactions.end_immediately = true;
    }

    /// Text of messages that one person saw after a press, oldest first.
    pub fn notices(&self) -> Vec<String> {
        self.server.shared().lock().interactions.notices.clone()
    }
}

/// The reason why the components of a message are refused; `None` when they are not.
pub(super) fn component_refusal(payload: &Value) -> Option<Reply> {
    let rows = rows(payload);
    let mut ids = Vec::new();
    let is_valid = rows.iter().all(|row| {
        (1..=MAX_ROW_BUTTONS).contains(&row.len())
            && row.iter().all(|button| {
                let (label, id) = (json_text(button, "/label"), json_text(button, "/custom_id"));
                let is_new = !ids.contains(&id);
                ids.push(id.clone());
                is_new
                    && json_text(button, "/type") == "2"
                    && (1..=MAX_LABEL_CHARS).contains(&label.chars().count())
                    && (1..=MAX_CUSTOM_ID_CHARS).contains(&id.chars().count())
            })
    });
    if is_valid {
        return None;
    }
    let body = json!({
        "code": 50_035, "message": "Invalid Form Body", "errors": { "components": {} },
    });
    Some(json_reply(400, &body))
}

/// The components of each row.
fn rows(payload: &Value) -> Vec<Vec<Value>> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let rows = list(payload.get("components"));
    rows.iter().map(|row| list(row.get("components"))).collect()
}

/// Answers requests about interactions, which have no other credential than the token in their path.
pub(super) async fn respond_to_interaction(
    shared: &Arc<SharedState<FakeState>>,
    path: &str,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    // The token in the path is the credential; a client must not send the bot's token as well.
    let has_token = request.header("authorization").is_some();
    let wants_body = request.parameter("with_response").is_some();
    let body = request.json().await?;
    if has_token {
        return Ok(error_reply(401, 0, "401: Unauthorized"));
    }
    let mut state = shared.lock();
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["interactions", id, token, "callback"] => {
            Ok(state.acknowledge(id, token, &body, wants_body))
        }
        ["webhooks", APPLICATION_ID, token] => Ok(state.follow_up(token, &body)),
        _ => Ok(error_reply(404, 10_015, "Unknown Webhook")),
    }
}

impl FakeState {
    fn acknowledge(&mut self, id: &str, token: &str, body: &Value, wants_body: bool) -> Reply {
        let interactions = &mut self.interactions;
        if interactions.tokens.get(id).map(String::as_str) != Some(token) {
            return error_reply(404, 10_062, "Unknown interaction");
        }
        if interactions.acknowledged.insert(token.to_owned(), true) == Some(true) {
            return error_reply(400, 40_060, "Interaction has already been acknowledged.");
        }
        // Type 6 acknowledges the press and shows nothing. The clients of this fake send no other type.
        if body.get("type") != Some(&json!(6)) {
            return error_reply(400, 50_035, "Invalid Form Body");
        }
        if !wants_body {
            return bytes_reply(204, "text/plain", bytes::Bytes::new());
        }
        json_reply(200, &json!({ "interaction": { "id": id, "type": 3 } }))
    }

    fn follow_up(&mut self, token: &str, body: &Value) -> Reply {
        // Follow-ups are accepted only after the acknowledgement.
        if self.interactions.acknowledged.get(token) != Some(&true) {
            return error_reply(404, 10_015, "Unknown Webhook");
        }
        let text = json_text(body, "/content");
        if text.is_empty() || text.chars().count() > 2000 {
            return error_reply(400, 50_035, "Invalid Form Body");
        }
        let flags = body.get("flags").and_then(Value::as_u64);
        if flags.unwrap_or_default() & EPHEMERAL_FLAG != 0 {
            self.interactions.notices.push(text);
        }
        // For follow-ups `wait` always counts as true, so there is always a message.
        let id = self.next();
        json_reply(200, &super::described_message("1", &id, body, &[]))
    }

    /// Changes a message of the bot: its text, and its components where the request names them.
    pub(super) fn edit_message(&mut self, channel: &str, message: &str, body: &Value) -> Reply {
        let Some(known) = self.channels.get_mut(channel) else {
            return error_reply(404, 10_003, "Unknown Channel");
        };
        let Some(stored) = known
            .messages
            .iter_mut()
            .find(|stored| stored.id == message)
        else {
            return error_reply(404, 10_008, "Unknown Message");
        };
        let text = json_text(body, "/content");
        if text.chars().count() > 2000 {
            let errors = json!({ "code": 50_035, "message": "Invalid Form Body", "errors": { "content": {} } });
            return json_reply(400, &errors);
        }
        if let Some(refusal) = component_refusal(body) {
            return refusal;
        }
        if let (Some(fields), Some(changes)) = (stored.payload.as_object_mut(), body.as_object()) {
            fields.extend(changes.clone());
        }
        stored.text = json_text(&stored.payload, "/content");
        let described = super::described_message(channel, message, &stored.payload, &stored.files);
        json_reply(200, &described)
    }
}
