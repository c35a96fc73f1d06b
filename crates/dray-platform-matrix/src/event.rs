//! Reads messages of users from events.

use dray_platform::{DeliveryTarget, InboundAttachment, InboundMessage};
use serde_json::Value;

use crate::PLATFORM_NAME;
use crate::api::media_parts;

/// The message of an event by a user other than `own_user`. `None` for other events, such as notices of bots and
/// corrections.
pub(crate) fn inbound_message(
    account: &str,
    own_user: &str,
    room: &str,
    event: &Value,
) -> Option<InboundMessage> {
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let sender = text("/sender");
    let id = text("/event_id");
    if text("/type") != "m.room.message" || sender == own_user || sender.is_empty() || id.is_empty()
    {
        return None;
    }
    let relation = text("/content/m.relates_to/rel_type");
    // A correction repeats a message that was already received.
    if relation == "m.replace" {
        return None;
    }
    let body = text("/content/body");
    let file_name = text("/content/filename");
    let kind = match text("/content/msgtype") {
        "m.image" => "photo",
        "m.video" => "video",
        "m.audio" if event.pointer("/content/org.matrix.msc3245.voice").is_some() => "voice",
        "m.audio" => "audio",
        "m.file" => "document",
        // `m.notice` is intentionally missing: bots write it, and the agent must not reply to them.
        "m.text" | "m.emote" => "",
        _ => return None,
    };
    let caption = match (kind, file_name) {
        ("", _) => body,
        // Before version 1.10 of the specification the body was the name of the file.
        (_, "") => "",
        (_, file_name) if file_name == body => "",
        _ => body,
    };
    let thread = match relation {
        "m.thread" => text("/content/m.relates_to/event_id"),
        _ => "",
    };
    let name = if file_name.is_empty() {
        body
    } else {
        file_name
    };
    let attachments = if kind.is_empty() {
        Vec::new()
    } else {
        vec![inbound_attachment(id, name, kind, event)]
    };
    Some(InboundMessage {
        target: DeliveryTarget {
            platform: PLATFORM_NAME.to_owned(),
            account: account.to_owned(),
            chat: room.to_owned(),
            thread: thread.to_owned(),
            reply_to: String::new(),
        },
        message_id: id.to_owned(),
        sender: sender.to_owned(),
        text: caption.to_owned(),
        attachments,
    })
}

fn inbound_attachment(id: &str, name: &str, kind: &str, event: &Value) -> InboundAttachment {
    let content = event.get("content");
    let find = |pointer: &str| content.and_then(|content| content.pointer(pointer));
    let uri = find("/url").and_then(Value::as_str).unwrap_or_default();
    let unavailable = if find("/file").is_some_and(|file| !file.is_null()) {
        "the file is encrypted"
    } else if media_parts(uri).is_none() {
        "the message has no content URI of the file"
    } else {
        ""
    };
    let media_type = find("/info/mimetype").and_then(Value::as_str);
    InboundAttachment {
        id: id.to_owned(),
        name: name.to_owned(),
        size: find("/info/size")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        media_type: media_type.unwrap_or_default().to_owned(),
        reference: uri.to_owned(),
        kind: kind.to_owned(),
        unavailable: unavailable.to_owned(),
    }
}
