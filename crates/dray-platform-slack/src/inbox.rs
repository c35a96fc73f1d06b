//! Events that Slack posts to us, verified by signature.

use dray_platform::{
    DeliveryTarget, ErrorKind, InboundAttachment, InboundMessage, PlatformError, WebhookReply,
    WebhookRequest, http,
};
use hmac::{Hmac, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use crate::PLATFORM_NAME;
use crate::options::SlackOptions;

/// How old a signature may be, in seconds; older ones may be replays.
const MAX_SIGNATURE_AGE_SECONDS: u64 = 300;

/// Reads one request. `now` is the time in Unix seconds.
pub(crate) fn read_webhook(
    account: &str,
    options: &SlackOptions,
    request: &WebhookRequest,
    now: u64,
) -> Result<WebhookReply, PlatformError> {
    verify_signature(options, request, now)?;
    let event: Value = serde_json::from_slice(&request.body).map_err(|cause| {
        PlatformError::new(ErrorKind::BadFormat, "the event is no JSON").caused_by(cause)
    })?;
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    if text("/type") == "url_verification" {
        return Ok(WebhookReply {
            status: 200,
            body: Some(("text/plain", text("/challenge").to_owned())),
            ..WebhookReply::default()
        });
    }
    let mut reply = WebhookReply {
        status: 200,
        ..WebhookReply::default()
    };
    if text("/type") == "event_callback"
        && let Some(event) = event.get("event")
    {
        reply.messages.extend(inbound_message(account, event));
    }
    Ok(reply)
}

/// `v0=HMAC-SHA256(secret, "v0:" timestamp ":" body)`, compared in constant time.
fn verify_signature(
    options: &SlackOptions,
    request: &WebhookRequest,
    now: u64,
) -> Result<(), PlatformError> {
    let refused = |why: &str| PlatformError::new(ErrorKind::Auth, why);
    let header = |name: &str| {
        request
            .headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    };
    if options.signing_secret.is_empty() {
        return Err(refused("no signing secret is configured"));
    }
    let stamp = header("x-slack-request-timestamp").ok_or_else(|| refused("no time stamp"))?;
    let sent: u64 = stamp
        .parse()
        .map_err(|_| refused("the time stamp is none"))?;
    if now.abs_diff(sent) > MAX_SIGNATURE_AGE_SECONDS {
        return Err(refused("the signature is too old"));
    }
    let signature = header("x-slack-signature")
        .and_then(|signature| signature.strip_prefix("v0="))
        .and_then(http::decode_signature)
        .ok_or_else(|| refused("no signature"))?;
    let mut mac = Hmac::<Sha256>::new_from_slice(options.signing_secret.expose().as_bytes())
        .map_err(|_| refused("the signing secret cannot be used"))?;
    mac.update(format!("v0:{stamp}:").as_bytes());
    mac.update(&request.body);
    mac.verify_slice(&signature)
        .map_err(|_| refused("the signature is not Slack's"))
}

/// A message of a user; what bots and Slack itself write is left out.
fn inbound_message(account: &str, event: &Value) -> Option<InboundMessage> {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_message = matches!(text("type"), "message" | "app_mention")
        && matches!(text("subtype"), "" | "file_share" | "thread_broadcast");
    if !is_message || event.get("bot_id").is_some() || text("user").is_empty() {
        return None;
    }
    // Mentions come a second time as messages; files only with those.
    let files = event.get("files").and_then(Value::as_array);
    Some(InboundMessage {
        target: DeliveryTarget {
            platform: PLATFORM_NAME.to_owned(),
            account: account.to_owned(),
            chat: text("channel").to_owned(),
            thread: text("thread_ts").to_owned(),
            reply_to: String::new(),
        },
        message_id: text("ts").to_owned(),
        sender: text("user").to_owned(),
        text: unescape_text(text("text")),
        attachments: files
            .map(|files| files.iter().map(inbound_attachment).collect())
            .unwrap_or_default(),
    })
}

fn unescape_text(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn inbound_attachment(file: &Value) -> InboundAttachment {
    let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default();
    let media_type = text("mimetype");
    let kind = match media_type.split('/').next() {
        Some("image") => "photo",
        Some("audio") => "audio",
        Some("video") => "video",
        _ => "document",
    };
    let reference = match text("url_private_download") {
        "" => text("url_private"),
        url => url,
    };
    let unavailable = if reference.is_empty() {
        "Slack gives no address for this file"
    } else {
        ""
    };
    InboundAttachment {
        id: text("id").to_owned(),
        name: text("name").to_owned(),
        size: file.get("size").and_then(Value::as_u64).unwrap_or_default(),
        media_type: media_type.to_owned(),
        reference: reference.to_owned(),
        kind: kind.to_owned(),
        unavailable: unavailable.to_owned(),
    }
}
