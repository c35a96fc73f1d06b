//! Reads messages of users and presses of buttons from updates.

use dray_platform::{ButtonPress, ChatMove, DeliveryTarget, InboundAttachment, InboundMessage};
use dray_presentation::size;
use serde::Deserialize;
use serde_json::Value;

use crate::PLATFORM_NAME;
use crate::content::MessageContent;
use crate::rich;

/// An update, with the two fields that contain messages. All other fields are ignored.
#[derive(Debug, Deserialize)]
struct BotUpdate {
    message: Option<UpdateMessage>,
    channel_post: Option<UpdateMessage>,
}

#[derive(Debug, Deserialize)]
struct UpdateMessage {
    message_id: i64,
    message_thread_id: Option<i64>,
    #[serde(default)]
    is_topic_message: bool,
    from: Option<UpdateParty>,
    sender_chat: Option<UpdateParty>,
    chat: UpdateParty,
    text: Option<String>,
    caption: Option<String>,
    #[serde(default)]
    photo: Vec<UpdateContent>,
    document: Option<UpdateContent>,
    audio: Option<UpdateContent>,
    voice: Option<UpdateContent>,
    video: Option<UpdateContent>,
    animation: Option<UpdateContent>,
    video_note: Option<UpdateContent>,
    sticker: Option<UpdateContent>,
    rich_message: Option<Value>,
    #[serde(flatten)]
    content: MessageContent,
    migrate_to_chat_id: Option<i64>,
    migrate_from_chat_id: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct UpdateParty {
    id: i64,
    #[serde(default)]
    is_bot: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct UpdateContent {
    file_id: String,
    #[serde(default)]
    file_size: u64,
    #[serde(default)]
    file_name: String,
    #[serde(default)]
    mime_type: String,
    #[serde(default)]
    width: u64,
    #[serde(default)]
    height: u64,
    #[serde(default)]
    is_animated: bool,
    #[serde(default)]
    is_video: bool,
}

/// The number of an update, by which it is acknowledged. `None` for JSON that is not an update.
pub(crate) fn update_id(update: &Value) -> Option<i64> {
    update.get("update_id")?.as_i64()
}

/// The move of a group that became a supergroup: a message of the service in the old or the new chat.
pub(crate) fn chat_move(update: &Value) -> Option<ChatMove> {
    let message = BotUpdate::deserialize(update).ok()?.message?;
    let chat = message.chat.id;
    let (from, to) = match (message.migrate_from_chat_id, message.migrate_to_chat_id) {
        (Some(from), _) => (from, chat),
        (None, to) => (chat, to?),
    };
    Some(ChatMove {
        from: from.to_string(),
        to: to.to_string(),
    })
}

/// The message in an update. `None` for updates of other kinds, for messages of other bots, and for messages without text
/// and files. `download` is the largest file that can be fetched, in bytes.
pub(crate) fn inbound_message(
    account: &str,
    update: &Value,
    download: Option<u64>,
) -> Result<Option<InboundMessage>, serde_json::Error> {
    let update = BotUpdate::deserialize(update)?;
    let Some(message) = update.message.or(update.channel_post) else {
        return Ok(None);
    };
    // Two bots that reply to each other would never stop. Posts of anonymous administrators and of channels come from a
    // bot of Telegram too, with the chat that they are sent for.
    let is_of_bot = message.from.as_ref().is_some_and(|from| from.is_bot);
    if is_of_bot && message.sender_chat.is_none() {
        return Ok(None);
    }
    let attachments = inbound_attachments(&message, download);
    let rich_text = message.rich_message.as_ref().map(rich::plain_text);
    let text = message.text.or(message.caption).or(rich_text);
    let text = text.or(message.content.into_text()).unwrap_or_default();
    if text.is_empty() && attachments.is_empty() {
        return Ok(None);
    }
    // Groups without topics number the thread of a reply as well, and sending to that number fails.
    let thread = message
        .message_thread_id
        .filter(|_| message.is_topic_message);
    // Posts of a channel, and of anonymous administrators, have no user.
    let sender = message.from.or(message.sender_chat);
    let sender = sender.map_or(message.chat.id, |sender| sender.id);
    Ok(Some(InboundMessage {
        target: chat_target(account, message.chat.id, thread),
        message_id: message.message_id.to_string(),
        sender: sender.to_string(),
        text,
        attachments,
    }))
}

fn chat_target(account: &str, chat: i64, thread: Option<i64>) -> DeliveryTarget {
    DeliveryTarget {
        platform: PLATFORM_NAME.to_owned(),
        account: account.to_owned(),
        chat: chat.to_string(),
        thread: thread.map(|id| id.to_string()).unwrap_or_default(),
        reply_to: String::new(),
    }
}

#[derive(Debug, Deserialize)]
struct CallbackQuery {
    id: String,
    from: UpdatePerson,
    message: CallbackMessage,
    data: String,
}

#[derive(Debug, Deserialize)]
struct UpdatePerson {
    id: i64,
    #[serde(default)]
    first_name: String,
    #[serde(default)]
    last_name: String,
}

/// The message of a pressed button. A message that is too old has only a chat and an id (`InaccessibleMessage`).
#[derive(Debug, Deserialize)]
struct CallbackMessage {
    message_id: i64,
    chat: UpdateParty,
    message_thread_id: Option<i64>,
    #[serde(default)]
    is_topic_message: bool,
    #[serde(default)]
    text: String,
}

/// The press in an update. `None` for other updates, for a button without a message of a bot, and for a button without
/// data (inline results, games).
pub(crate) fn button_press(account: &str, update: &Value) -> Option<ButtonPress> {
    let query = CallbackQuery::deserialize(update.get("callback_query")?).ok()?;
    let (person, message) = (query.from, query.message);
    let thread = message
        .message_thread_id
        .filter(|_| message.is_topic_message);
    Some(ButtonPress {
        target: chat_target(account, message.chat.id, thread),
        message_id: message.message_id.to_string(),
        text: message.text,
        sender: person.id.to_string(),
        sender_name: format!("{} {}", person.first_name, person.last_name)
            .trim()
            .to_owned(),
        data: query.data,
        reference: query.id,
    })
}

fn inbound_attachments(message: &UpdateMessage, download: Option<u64>) -> Vec<InboundAttachment> {
    // A photo has several sizes; the largest is the original.
    let photo = message
        .photo
        .iter()
        .max_by_key(|size| size.width.saturating_mul(size.height));
    // An animation is under `document` as well.
    let document = message
        .document
        .as_ref()
        .filter(|_| message.animation.is_none());
    [
        ("photo", photo),
        ("document", document),
        ("audio", message.audio.as_ref()),
        ("voice", message.voice.as_ref()),
        ("video", message.video.as_ref()),
        ("animation", message.animation.as_ref()),
        ("video_note", message.video_note.as_ref()),
        ("sticker", message.sticker.as_ref()),
    ]
    .into_iter()
    .filter_map(|(kind, file)| Some((kind, file?.clone())))
    .chain(rich_files(message))
    .map(|(kind, file)| inbound_attachment(kind, &file, message.message_id, download))
    .collect()
}

/// The files of a rich message; without those of a shape that is not known.
fn rich_files(message: &UpdateMessage) -> impl Iterator<Item = (&'static str, UpdateContent)> {
    let files = message.rich_message.iter().flat_map(rich::files);
    files.filter_map(|(kind, file)| Some((kind, UpdateContent::deserialize(file).ok()?)))
}

fn inbound_attachment(
    kind: &str,
    file: &UpdateContent,
    message_id: i64,
    download: Option<u64>,
) -> InboundAttachment {
    // Photos, voice messages and stickers have no name and no type.
    let (extension, media_type) = match kind {
        "photo" => ("jpg", "image/jpeg"),
        "voice" => ("ogg", "audio/ogg"),
        "video" | "animation" | "video_note" => ("mp4", "video/mp4"),
        "sticker" if file.is_animated => ("tgs", "application/gzip"),
        "sticker" if file.is_video => ("webm", "video/webm"),
        "sticker" => ("webp", "image/webp"),
        "audio" => ("mp3", "audio/mpeg"),
        _ => ("bin", ""),
    };
    // The media type and the name are claims of the sender's client; an empty one is replaced.
    let or_default_text = |reported: &str, default: String| {
        if reported.is_empty() {
            default
        } else {
            reported.to_owned()
        }
    };
    let unavailable = download
        .filter(|limit| file.file_size > *limit)
        .map(|limit| too_big(file.file_size, limit))
        .unwrap_or_default();
    InboundAttachment {
        id: file.file_id.clone(),
        name: or_default_text(&file.file_name, format!("{kind}_{message_id}.{extension}")),
        size: file.file_size,
        media_type: or_default_text(&file.mime_type, media_type.to_owned()),
        reference: file.file_id.clone(),
        kind: kind.to_owned(),
        unavailable,
    }
}

/// `over 20 MB, cannot fetch (42 MB of 20 MB)`.
fn too_big(bytes: u64, limit: u64) -> String {
    format!(
        "over {}, cannot fetch ({})",
        size::human_size(limit),
        size::over_limit(bytes, limit)
    )
}
