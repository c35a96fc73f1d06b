//! Messages of users, from the JSON of the gateway and the API.

use dray_platform::{DeliveryTarget, InboundAttachment, InboundMessage};
use dray_presentation::size;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::PLATFORM_NAME;
use crate::options::DiscordOptions;

/// Types of messages that people write: a plain one and a reply. Others are notices, such as joins and pins.
const USER_MESSAGE_TYPES: [u64; 2] = [0, 19];
/// `IS_VOICE_MESSAGE` in a message's `flags`.
const VOICE_MESSAGE_FLAG: u64 = 8192;
/// Longest reference of an attachment, in bytes; it is stored with the message.
const MAX_REFERENCE_BYTES: usize = 1024;

/// The reference of an attachment: its current address, and the message in which to find a new one.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachmentReference {
    /// Id of the channel of the message.
    pub(crate) channel: String,
    /// Id of the message that it is attached to.
    pub(crate) message: String,
    /// The current address of the attachment, signed for this file and for about a day. Empty if it is too long to
    /// store.
    pub(crate) url: String,
}

/// A message of a person. `None` for messages of bots and of Discord itself, for messages without text and files, for
/// senders that are not listed, and for unknown shapes.
pub(crate) fn inbound_message(
    options: &DiscordOptions,
    own_id: &str,
    value: &Value,
) -> Option<InboundMessage> {
    let text = |pointer: &str| {
        let value_text = value.pointer(pointer).and_then(Value::as_str);
        value_text.unwrap_or_default()
    };
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    // Messages of bots are ignored: two bots could answer each other forever.
    let is_automatic = value.pointer("/author/bot").and_then(Value::as_bool) == Some(true)
        || value.get("webhook_id").is_some_and(|id| !id.is_null());
    let (id, channel, sender) = (text("/id"), text("/channel_id"), text("/author/id"));
    let is_user_type = USER_MESSAGE_TYPES.contains(&number("/type").unwrap_or_default());
    let has_valid_ids = is_id(id) && is_id(channel) && is_id(sender);
    if is_automatic || !is_user_type || !has_valid_ids || sender == own_id {
        return None;
    }
    let is_listed =
        |list: &[String], id: &str| list.is_empty() || list.iter().any(|listed| listed == id);
    if !is_listed(&options.senders, sender) {
        return None;
    }
    let attachments: Vec<_> = message_parts(value)
        .flat_map(|part| {
            let is_voice = flags_of(part) & VOICE_MESSAGE_FLAG != 0;
            let files = files_of(part);
            files.map(move |file| inbound_attachment(options, (channel, id), is_voice, file))
        })
        .collect();
    let message_text = message_text(value);
    if message_text.is_empty() && attachments.is_empty() {
        return None;
    }
    Some(InboundMessage {
        target: DeliveryTarget {
            platform: PLATFORM_NAME.to_owned(),
            account: String::new(),
            chat: channel.to_owned(),
            thread: String::new(),
            reply_to: String::new(),
        },
        message_id: id.to_owned(),
        sender: sender.to_owned(),
        text: message_text,
        attachments,
    })
}

/// A message, and the messages that it forwards. A forward has no content of its own: it is in the snapshots.
fn message_parts(message: &Value) -> impl Iterator<Item = &Value> {
    [message].into_iter().chain(forwarded_messages(message))
}

fn forwarded_messages(message: &Value) -> impl Iterator<Item = &Value> {
    let snapshots = message.get("message_snapshots").and_then(Value::as_array);
    let snapshots = snapshots.into_iter().flatten();
    snapshots.filter_map(|snapshot| snapshot.get("message"))
}

/// All files of a message, with those of the messages that it forwards.
pub(crate) fn attached_files(message: &Value) -> impl Iterator<Item = &Value> {
    message_parts(message).flat_map(files_of)
}

fn files_of(part: &Value) -> impl Iterator<Item = &Value> {
    let files = part.get("attachments").and_then(Value::as_array);
    files.into_iter().flatten()
}

fn flags_of(part: &Value) -> u64 {
    part.get("flags")
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

/// The text of a message. Forwarded texts are marked, because the sender need not have written them.
fn message_text(message: &Value) -> String {
    let content = |part: &Value| {
        let content = part.get("content").and_then(Value::as_str);
        content.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let forwarded = forwarded_messages(message).filter_map(content);
    let texts = content(message)
        .into_iter()
        .chain(forwarded.map(|text| format!("Forwarded message:\n{text}")));
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Whether a text is an id: a number of at most 64 bits, which is also safe in a path.
pub(crate) fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
}

/// The name that the sender gave a file. `filename` has only ASCII characters; where that changed the name, `title` is the
/// original one, of which clients show the extension from `filename`.
fn file_name(title: &str, file_name: &str) -> String {
    let extension = file_name
        .rsplit_once('.')
        .map_or_else(String::new, |(_, extension)| format!(".{extension}"));
    let has_extension = title.to_lowercase().ends_with(&extension.to_lowercase());
    match title {
        "" => file_name.to_owned(),
        title if has_extension => title.to_owned(),
        title => format!("{title}{extension}"),
    }
}

fn inbound_attachment(
    options: &DiscordOptions,
    (channel, message): (&str, &str),
    is_voice: bool,
    file: &Value,
) -> InboundAttachment {
    let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default();
    let media_type = text("content_type");
    let kind = match media_type.split('/').next() {
        // Voice messages are `audio/ogg` files; only the flag of the message distinguishes them.
        _ if is_voice => "voice",
        Some("image") => "photo",
        Some("audio") => "audio",
        Some("video") => "video",
        _ => "document",
    };
    let bytes = file.get("size").and_then(Value::as_u64);
    let bytes = bytes.unwrap_or_default();
    let mut reference = AttachmentReference {
        channel: channel.to_owned(),
        message: message.to_owned(),
        url: text("url").to_owned(),
    };
    // The other half is for the ids and the escapes of JSON.
    if reference.url.len() > MAX_REFERENCE_BYTES / 2 {
        // Without an address, the message is read again to find one.
        reference.url.clear();
    }
    let limit = options.download_limit.map(dray_types::ByteSize::as_u64);
    let unavailable = match limit {
        Some(limit) if bytes > limit => {
            format!("too large ({})", size::over_limit(bytes, limit))
        }
        _ => String::new(),
    };
    InboundAttachment {
        id: text("id").to_owned(),
        name: file_name(text("title"), text("filename")),
        size: bytes,
        media_type: media_type.to_owned(),
        reference: serde_json::to_string(&reference).unwrap_or_default(),
        kind: kind.to_owned(),
        unavailable,
    }
}

#[cfg(test)]
mod tests {
    use dray_types::ByteSize;
    use serde_json::json;

    use super::*;

    fn message_json(change: &dyn Fn(&mut Value)) -> Value {
        let mut value = json!({
            "id": "10", "channel_id": "20", "type": 0, "content": "look", "flags": 0,
            "author": { "id": "30", "username": "ada" },
            "attachments": [{
                "id": "40", "filename": "a.png", "size": 5, "content_type": "image/png",
                "url": "https://cdn.discordapp.com/attachments/20/40/a.png?ex=1&is=2&hm=3",
            }],
        });
        change(&mut value);
        value
    }

    #[test]
    fn a_message_with_a_file_is_read() {
        let options = DiscordOptions::default();
        let read = inbound_message(&options, "1", &message_json(&|_| {})).unwrap();
        assert_eq!(
            (
                read.target.chat.as_str(),
                read.message_id.as_str(),
                read.sender.as_str()
            ),
            ("20", "10", "30")
        );
        let file = &read.attachments[0];
        assert_eq!(
            (file.name.as_str(), file.size, file.kind.as_str()),
            ("a.png", 5, "photo")
        );
        let reference: AttachmentReference = serde_json::from_str(&file.reference).unwrap();
        assert_eq!(
            (reference.channel.as_str(), reference.message.as_str()),
            ("20", "10")
        );
        let voice = message_json(&|value| value["flags"] = json!(8192));
        let voice = inbound_message(&options, "1", &voice).unwrap();
        assert_eq!(voice.attachments[0].kind, "voice");
    }

    #[test]
    fn a_forward_has_the_text_and_the_files_of_the_forwarded_message() {
        let forward = message_json(&|value| {
            let file = value["attachments"].take();
            value["attachments"] = json!([]);
            value["content"] = json!("");
            value["message_reference"] =
                json!({ "type": 1, "channel_id": "21", "message_id": "11" });
            value["message_snapshots"] = json!([
                { "message": { "content": "read this", "attachments": file, "flags": 8192 } },
            ]);
        });
        let read = inbound_message(&DiscordOptions::default(), "1", &forward).unwrap();
        assert_eq!(read.text, "Forwarded message:\nread this");
        let file = &read.attachments[0];
        assert_eq!((file.id.as_str(), file.kind.as_str()), ("40", "voice"));
        let reference: AttachmentReference = serde_json::from_str(&file.reference).unwrap();
        assert_eq!(reference.message, "10", "the address is in the forward");
    }

    #[test]
    fn messages_of_bots_and_unlisted_senders_are_skipped() {
        let changes: [&dyn Fn(&mut Value); 9] = [
            &|value| value["author"]["bot"] = json!(true),
            &|value| value["webhook_id"] = json!("9"),
            &|value| value["author"]["id"] = json!("1"),
            &|value| value["author"]["id"] = json!("31"),
            &|value| value["type"] = json!(7),
            &|value| value["id"] = json!("../x"),
            &|value| value["channel_id"] = Value::Null,
            &|value| value["channel_id"] = json!("99999999999999999999999"),
            &|value| {
                value["content"] = json!("");
                value["attachments"] = json!([]);
            },
        ];
        let options = DiscordOptions {
            senders: vec!["30".to_owned(), "1".to_owned()],
            ..DiscordOptions::default()
        };
        assert!(inbound_message(&options, "1", &message_json(&|_| {})).is_some());
        for (index, change) in changes.iter().enumerate() {
            assert_eq!(
                inbound_message(&options, "1", &message_json(*change)),
                None,
                "{index}"
            );
        }
    }

    #[test]
    fn files_have_the_names_that_their_senders_gave_them() {
        for (title, sent, expected) in [
            ("", "a.png", "a.png"),
            ("отчёт 1", "1.csv", "отчёт 1.csv"),
            ("отчёт.CSV", "unknown.csv", "отчёт.CSV"),
            ("報告", "unknown", "報告"),
        ] {
            assert_eq!(file_name(title, sent), expected);
        }
        let titled = message_json(&|value| value["attachments"][0]["title"] = json!("写真"));
        let read = inbound_message(&DiscordOptions::default(), "1", &titled).unwrap();
        assert_eq!(read.attachments[0].name, "写真.png");
    }

    #[test]
    fn a_file_over_the_limit_is_reported_with_both_sizes() {
        let options = DiscordOptions {
            download_limit: Some(ByteSize::bytes(4)),
            ..DiscordOptions::default()
        };
        let read = inbound_message(&options, "1", &message_json(&|_| {})).unwrap();
        assert_eq!(read.attachments[0].unavailable, "too large (5 B of 4 B)");
    }

    #[test]
    fn an_address_that_is_too_long_is_requested_again() {
        let long = message_json(&|value| {
            value["attachments"][0]["url"] = json!(format!("https://x/{}", "y".repeat(2000)));
        });
        let read = inbound_message(&DiscordOptions::default(), "1", &long).unwrap();
        assert!(read.attachments[0].reference.len() < MAX_REFERENCE_BYTES);
        let reference: AttachmentReference =
            serde_json::from_str(&read.attachments[0].reference).unwrap();
        assert_eq!(reference.url, "");
    }
}
