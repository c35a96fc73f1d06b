//! Blocks with buttons, and the requests that Slack sends when users press them.

use dray_http::fake_server::FormData;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use url::form_urlencoded;

use super::state::FakeState;
use super::{FakeSlack, InjectedFault, plain_text};

/// Most characters of a rich text; the real server refuses more with this code.
const MAX_BLOCK_CHARS: usize = 12_000;

/// Most characters of the text of an update, with its escapes.
const MAX_UPDATE_CHARS: usize = 4000;

/// A button of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownButton {
    /// The text that a user sees.
    pub text: String,
    /// The value in the request that Slack sends when it is pressed.
    pub value: String,
}

impl FakeSlack {
    /// The body that Slack posts when a user presses a button with this value: a form with JSON. These bytes are
    /// signed.
    pub fn press(&self, channel: &str, ts: &str, user: &str, value: &str) -> String {
        let messages = self.visible_messages(channel);
        let message = messages.iter().find(|message| message.ts == ts);
        let visible_text = message.map_or("", |message| message.text.as_str());
        let escaped_text = visible_text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let payload = json!({
            "type": "block_actions", "team": { "id": "T1", "domain": "fake" }, "enterprise": null,
            "user": { "id": user, "username": "ada", "name": "ada", "team_id": "T1" },
            "container": { "type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": false },
            "channel": { "id": channel, "name": "ops" },
            "message": { "type": "message", "ts": ts, "text": escaped_text },
            "actions": [{
                "type": "button", "action_id": "answer-0", "block_id": "b", "value": value,
                "text": { "type": "plain_text", "text": "Approve" }, "action_ts": "1700000000.1",
            }],
        });
        form_urlencoded::Serializer::new(String::new())
            .append_pair("payload", &payload.to_string())
            .finish()
    }

    /// Messages that one user sees: user and text.
    pub fn notices(&self) -> Vec<(String, String)> {
        self.server.shared().lock().notices.clone()
    }
}

/// The headers with which Slack signs a body, sent at this Unix time in seconds.
pub fn signature_headers(body: &str, stamp: u64, secret: &str) -> [(&'static str, String); 2] {
    let signed = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map(|mut mac| {
        mac.update(format!("v0:{stamp}:{body}").as_bytes());
        dray_types::hex::hex_digits(&mac.finalize().into_bytes())
    });
    // HMAC takes a key of any length, so there is always a signature.
    let signature = signed.unwrap_or_default();
    [
        ("x-slack-request-timestamp", stamp.to_string()),
        ("x-slack-signature", format!("v0={signature}")),
    ]
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// Shows the blocks of a form in a message.
pub(super) fn show_blocks(
    state: &mut FakeState,
    form: &FormData,
    ts: &str,
) -> Result<(), &'static str> {
    let blocks: Value = serde_json::from_str(form.field("blocks")).unwrap_or_default();
    let blocks = blocks.as_array().cloned().unwrap_or_default();
    let elements = |kind: &str| -> Vec<Value> {
        let is_of_kind = |block: &&Value| text_at(block, "/type") == Some(kind);
        let blocks = blocks.iter().filter(is_of_kind);
        let lists = blocks.filter_map(|block| block.get("elements")?.as_array());
        lists.flatten().cloned().collect()
    };
    let mut code = String::new();
    for part in elements("rich_text") {
        let text = text_at(&part, "/elements/0/text").ok_or("invalid_blocks")?;
        if text.chars().count() > MAX_BLOCK_CHARS {
            return Err("msg_blocks_too_long");
        }
        if text_at(&part, "/type") == Some("rich_text_preformatted") {
            text.clone_into(&mut code);
        }
    }
    let mut buttons = Vec::new();
    for button in elements("actions") {
        let field = |pointer: &str| text_at(&button, pointer).ok_or("invalid_blocks");
        buttons.push(ShownButton {
            text: field("/text/text")?.to_owned(),
            value: field("/value")?.to_owned(),
        });
    }
    let mut messages = state.channels.values_mut().flatten();
    if let Some(message) = messages.find(|message| message.ts == ts) {
        (message.code, message.buttons) = (code, buttons);
    }
    Ok(())
}

pub(super) fn update_message(
    state: &mut FakeState,
    form: &FormData,
    _: Option<&InjectedFault>,
) -> Result<Value, &'static str> {
    let (channel, ts) = (form.field("channel"), form.field("ts").to_owned());
    if form.field("text").chars().count() > MAX_UPDATE_CHARS {
        return Err("msg_too_long");
    }
    let messages = state.channels.get_mut(channel).ok_or("channel_not_found")?;
    let message = messages.iter_mut().find(|message| message.ts == ts);
    message.ok_or("message_not_found")?.text = plain_text(form.field("text"));
    show_blocks(state, form, &ts)?;
    Ok(json!({ "ts": ts, "channel": channel }))
}

pub(super) fn post_notice(
    state: &mut FakeState,
    form: &FormData,
    _: Option<&InjectedFault>,
) -> Result<Value, &'static str> {
    if !state.channels.contains_key(form.field("channel")) {
        return Err("channel_not_found");
    }
    let notice = (
        form.field("user").to_owned(),
        plain_text(form.field("text")),
    );
    state.notices.push(notice);
    Ok(json!({ "message_ts": "1700000000.2" }))
}
