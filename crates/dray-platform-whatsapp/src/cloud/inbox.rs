//! Webhook requests of Meta: messages of users and the status of ours, verified by signature.

use dray_platform::{
    ChatMove, DeliveryTarget, ErrorKind, InboundAttachment, InboundMessage, PlatformError,
    StatusUpdate, WebhookReply, WebhookRequest,
};
use dray_types::Sha256Digest;
use hmac::{Hmac, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use url::form_urlencoded;

use super::{CloudOptions, content};

/// Responds to the verification of the address, or parses a signed notification. Unknown fields and kinds are ignored,
/// so that Meta does not send them again.
pub(super) fn read_webhook(
    account: &str,
    options: &CloudOptions,
    request: &WebhookRequest,
) -> Result<WebhookReply, PlatformError> {
    if request.method == "GET" {
        return verify_subscription(options, &request.query);
    }
    // The signature is verified before the body is parsed.
    verify_signature(options, request)?;
    let notification: Value = serde_json::from_slice(&request.body).map_err(|cause| {
        PlatformError::new(ErrorKind::BadFormat, "the webhook is not JSON").caused_by(cause)
    })?;
    let mut reply = WebhookReply {
        status: 200,
        ..WebhookReply::default()
    };
    for value in each_member(&notification, "entry")
        .flat_map(|entry| each_member(entry, "changes"))
        .filter_map(|change| change.get("value"))
    {
        // One app receives the notifications of all its numbers.
        let is_own_number = value
            .pointer("/metadata/phone_number_id")
            .and_then(Value::as_str)
            .is_some_and(|number| number == options.phone_number_id);
        if is_own_number {
            for message in each_member(value, "messages") {
                reply.messages.extend(inbound_message(account, message));
                reply.moved_chats.extend(moved_chats(message));
            }
            reply
                .statuses
                .extend(each_member(value, "statuses").filter_map(status_update));
        }
    }
    Ok(reply)
}

/// Responds to Meta's verification of the address: the token must be the configured one, and the challenge is returned.
fn verify_subscription(options: &CloudOptions, query: &str) -> Result<WebhookReply, PlatformError> {
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let value = |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_ref())
            .unwrap_or_default()
    };
    let verify_token = options.verify_token.expose();
    // An empty token would match a request without one.
    if value("hub.mode") != "subscribe"
        || verify_token.is_empty()
        || !is_same_token(verify_token, value("hub.verify_token"))
    {
        return Err(PlatformError::new(
            ErrorKind::Auth,
            "the verify token is not the configured one",
        ));
    }
    // Meta sends digits. The filter keeps other text, such as markup, from being returned by this server.
    let challenge: String = value("hub.challenge")
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(256)
        .collect();
    Ok(WebhookReply {
        status: 200,
        body: Some(("text/plain", challenge)),
        ..WebhookReply::default()
    })
}

/// Compares tokens by their MACs, in a time that does not depend on where they differ.
fn is_same_token(expected: &str, received: &str) -> bool {
    let Ok(key) = Hmac::<Sha256>::new_from_slice(expected.as_bytes()) else {
        return false;
    };
    let mac = |token: &str| key.clone().chain_update(token);
    mac(expected)
        .verify_slice(&mac(received).finalize().into_bytes())
        .is_ok()
}

/// `sha256=HMAC-SHA256(app secret, body)`, compared in constant time.
fn verify_signature(options: &CloudOptions, request: &WebhookRequest) -> Result<(), PlatformError> {
    let refused = |reason: &str| PlatformError::new(ErrorKind::Auth, reason);
    // HMAC accepts an empty key, with which anyone could sign.
    if options.app_secret.is_empty() {
        return Err(refused("no app secret is configured"));
    }
    let signature = request
        .headers
        .iter()
        .find(|(name, _)| name == "x-hub-signature-256")
        .and_then(|(_, value)| value.strip_prefix("sha256="))
        .and_then(|digits| digits.parse::<Sha256Digest>().ok())
        .ok_or_else(|| refused("no signature"))?;
    let mut mac = Hmac::<Sha256>::new_from_slice(options.app_secret.expose().as_bytes())
        .map_err(|_| refused("the app secret cannot be used"))?;
    // The signature covers the bytes as received: parsing and writing the JSON again would change them.
    mac.update(&request.body);
    mac.verify_slice(signature.as_bytes())
        .map_err(|_| refused("the signature is not Meta's"))
}

fn each_member<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// `None` for kinds without content, such as reactions.
fn inbound_message(account: &str, message: &Value) -> Option<InboundMessage> {
    let text = |pointer: &str| {
        message
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    // People who have a user name may hide their number. Their id for this business remains.
    let sender = match text("/from") {
        "" => text("/from_user_id"),
        number => number,
    };
    let chat = match text("/group_id") {
        "" => sender,
        group => group,
    };
    let kind = text("/type");
    let content = message.get(kind);
    let attachments = match (kind, content) {
        ("image" | "video" | "audio" | "document" | "sticker", Some(content)) => {
            vec![inbound_attachment(kind, content, text("/id"))]
        }
        _ => Vec::new(),
    };
    let Some(message_text) = content::message_text(kind, content.unwrap_or(&Value::Null)) else {
        tracing::debug!(kind, "ignored a message without content");
        return None;
    };
    Some(InboundMessage {
        target: DeliveryTarget {
            platform: crate::PLATFORM_NAME.to_owned(),
            account: account.to_owned(),
            chat: chat.to_owned(),
            thread: String::new(),
            reply_to: String::new(),
        },
        message_id: text("/id").to_owned(),
        sender: sender.to_owned(),
        text: message_text,
        attachments,
    })
}

/// The ids of a person that Meta reports as changed: the phone number, and the business-scoped user id.
fn moved_chats(message: &Value) -> impl Iterator<Item = ChatMove> {
    let changes = [
        ("/from", "/system/wa_id"),
        ("/system/previous_user_id", "/system/user_id"),
    ];
    let is_change = matches!(
        message.pointer("/system/type").and_then(Value::as_str),
        Some("user_changed_number" | "user_changed_user_id")
    );
    changes.into_iter().filter_map(move |(before, now)| {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let (from, to) = (text(before)?, text(now)?);
        let is_moved = is_change && !from.is_empty() && !to.is_empty() && from != to;
        is_moved.then(|| ChatMove {
            from: from.to_owned(),
            to: to.to_owned(),
        })
    })
}

fn inbound_attachment(kind: &str, content: &Value, message: &str) -> InboundAttachment {
    let text = |name: &str| {
        content
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let media_type = text("mime_type");
    // Voice messages are audio too; only this field distinguishes them.
    let is_voice = content.get("voice").and_then(Value::as_bool) == Some(true);
    let (kind, extension) = match (kind, dray_media_type::essence(media_type).as_str()) {
        ("audio", _) if is_voice => ("voice", "ogg"),
        ("audio", "audio/mpeg") => ("audio", "mp3"),
        ("audio", "audio/mp4") => ("audio", "m4a"),
        ("audio", _) => ("audio", "ogg"),
        ("image", "image/png") => ("photo", "png"),
        ("image", _) => ("photo", "jpg"),
        ("video", _) => ("video", "mp4"),
        ("sticker", _) => ("sticker", "webp"),
        _ => ("document", "bin"),
    };
    // Only documents have names. For other kinds, the end of the message id makes the names distinct.
    let file_name = text("filename");
    let end: String = message
        .chars()
        .rev()
        .filter(char::is_ascii_alphanumeric)
        .take(8)
        .collect();
    InboundAttachment {
        id: text("id").to_owned(),
        name: if file_name.is_empty() {
            format!("{kind}_{end}.{extension}")
        } else {
            file_name.to_owned()
        },
        size: content
            .get("file_size")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        media_type: media_type.to_owned(),
        reference: text("id").to_owned(),
        kind: kind.to_owned(),
        unavailable: String::new(),
    }
}

/// A status without an id or a name is ignored.
fn status_update(status: &Value) -> Option<StatusUpdate> {
    let text = |name: &str| status.get(name).and_then(Value::as_str);
    let code = status.pointer("/errors/0/code").and_then(Value::as_i64);
    Some(StatusUpdate {
        message_id: text("id")?.to_owned(),
        status: text("status")?.to_owned(),
        code: code.map(|code| code.to_string()).unwrap_or_default(),
    })
}
