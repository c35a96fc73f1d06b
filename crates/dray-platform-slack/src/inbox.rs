//! Events and presses of buttons that Slack posts to the webhook of this service, verified by signature.

use dray_platform::{
    ButtonPress, DeliveryTarget, ErrorKind, InboundAttachment, InboundMessage, PlatformError,
    WebhookReply, WebhookRequest,
};
use dray_types::Sha256Digest;
use hmac::{Hmac, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use url::form_urlencoded;

use crate::PLATFORM_NAME;
use crate::options::SlackOptions;

/// Largest difference between a time stamp and our clock, in seconds; older requests may be replays.
const MAX_SIGNATURE_AGE_SECONDS: u64 = 300;

/// Reads one request: a check of the webhook's address, or an event. `now` is the time in Unix seconds.
pub(crate) fn read_webhook(
    account: &str,
    options: &SlackOptions,
    request: &WebhookRequest,
    now: u64,
) -> Result<WebhookReply, PlatformError> {
    // The signature is verified before the body is parsed. It also covers the request by which Slack checks the
    // address.
    verify_signature(options, request, now)?;
    // Interactions are forms with JSON in them; events are JSON.
    let payload = form_urlencoded::parse(&request.body).find(|(name, _)| name == "payload");
    let is_form = request.headers.iter().any(|(name, value)| {
        name == "content-type" && value.starts_with("application/x-www-form-urlencoded")
    });
    let bytes = match &payload {
        Some((_, payload)) if is_form => payload.as_bytes(),
        _ => &request.body,
    };
    let event: Value = serde_json::from_slice(bytes).map_err(|cause| {
        PlatformError::new(ErrorKind::BadFormat, "the event is not JSON").caused_by(cause)
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
        workspaces: workspaces_of(&event),
        ..WebhookReply::default()
    };
    // Slack always names it. Without it, the event could be of any workspace that uses the app.
    if reply.workspaces.is_empty() {
        return Err(PlatformError::new(
            ErrorKind::BadFormat,
            "the event names no workspace",
        ));
    }
    if text("/type") == "event_callback"
        && let Some(event) = event.get("event")
    {
        reply.messages.extend(inbound_message(account, event));
    }
    if text("/type") == "block_actions" {
        reply.presses.extend(button_press(account, &event));
    }
    Ok(reply)
}

/// Verifies `v0=HMAC-SHA256(secret, "v0:" timestamp ":" body)`, in constant time.
fn verify_signature(
    options: &SlackOptions,
    request: &WebhookRequest,
    now: u64,
) -> Result<(), PlatformError> {
    let refused = |reason: &str| PlatformError::new(ErrorKind::Auth, reason);
    let header = |name: &str| {
        request
            .headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    };
    // HMAC accepts an empty key, with which anyone could sign.
    if options.signing_secret.is_empty() {
        return Err(refused("no signing secret is configured"));
    }
    let stamp =
        header("x-slack-request-timestamp").ok_or_else(|| refused("the timestamp is missing"))?;
    let sent: u64 = stamp
        .parse()
        .map_err(|_| refused("the timestamp is not a number"))?;
    if now.abs_diff(sent) > MAX_SIGNATURE_AGE_SECONDS {
        return Err(refused("the signature is too old"));
    }
    let signature = header("x-slack-signature")
        .and_then(|signature| signature.strip_prefix("v0="))
        .and_then(|digits| digits.parse::<Sha256Digest>().ok())
        .ok_or_else(|| refused("no signature"))?;
    let mut mac = Hmac::<Sha256>::new_from_slice(options.signing_secret.expose().as_bytes())
        .map_err(|_| refused("the signing secret cannot be used"))?;
    mac.update(format!("v0:{stamp}:").as_bytes());
    // The signature covers the bytes as received: parsing and writing the JSON again would change them.
    mac.update(&request.body);
    mac.verify_slice(signature.as_bytes())
        .map_err(|_| refused("the signature is not Slack's"))
}

/// Ids of the workspaces that an event or an interaction is for, and of the organizations where the app is installed in a
/// whole organization. In a channel that several workspaces share, `team_id` is the sender's workspace, which need not be
/// one of them.
fn workspaces_of(event: &Value) -> Vec<String> {
    let authorizations = event.get("authorizations").and_then(Value::as_array);
    let authorizations = authorizations.into_iter().flatten();
    let installations = authorizations.flat_map(|installation| {
        let is_organization = installation.get("is_enterprise_install") == Some(&Value::Bool(true));
        let organization = installation
            .get("enterprise_id")
            .filter(|_| is_organization);
        [installation.get("team_id"), organization]
    });
    let receiving = installations.chain([event.get("context_team_id")]);
    let mut ids = text_values(receiving);
    if ids.is_empty() {
        // The last two are those of interactions; the team of an app of an organization is null there.
        let team = event.get("team_id").or_else(|| event.pointer("/team/id"));
        ids = text_values([team.or_else(|| event.pointer("/enterprise/id"))]);
    }
    ids
}

fn text_values<'a>(values: impl IntoIterator<Item = Option<&'a Value>>) -> Vec<String> {
    let texts = values.into_iter().filter_map(|value| value?.as_str());
    let texts = texts.filter(|text| !text.is_empty());
    texts.map(str::to_owned).collect()
}

/// A message of a user; messages of bots and of Slack itself are left out.
fn inbound_message(account: &str, event: &Value) -> Option<InboundMessage> {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_message = matches!(text("type"), "message" | "app_mention")
        // Other subtypes are notices and corrections.
        && matches!(text("subtype"), "" | "file_share" | "thread_broadcast" | "me_message");
    // Two bots that reply to each other would never stop. Files of people can come with a `bot_id` that is null.
    if !is_message || !text("bot_id").is_empty() || text("user").is_empty() {
        return None;
    }
    let files = [event].into_iter().chain(forwarded_messages(event));
    let files = files.flat_map(|part| list_of(part, "files"));
    // A mention arrives as `message` and as `app_mention` with the same time stamp, so it counts once.
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
        text: message_text(event),
        attachments: files.map(inbound_attachment).collect(),
    })
}

fn list_of<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let list = value.get(name).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The messages that a message forwards. Slack lists them among the attachments, with this mark; the others are previews.
fn forwarded_messages(event: &Value) -> impl Iterator<Item = &Value> {
    list_of(event, "attachments").filter(|part| part.get("is_share") == Some(&Value::Bool(true)))
}

/// The text of a message. Forwarded texts are marked, because the sender need not have written them.
fn message_text(event: &Value) -> String {
    let text_of = |part: &Value, name: &str| {
        let text = part.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(unescape_text)
    };
    let forwarded = forwarded_messages(event).filter_map(|part| {
        // A message of blocks has only this summary, which for a message of files says nothing.
        let has_files = list_of(part, "files").next().is_some();
        let summary = || text_of(part, "fallback").filter(|_| !has_files);
        text_of(part, "text").or_else(summary)
    });
    let texts = text_of(event, "text")
        .into_iter()
        .chain(forwarded.map(|text| format!("Forwarded message:\n{text}")));
    texts.collect::<Vec<_>>().join("\n\n")
}

/// The press in an interaction. `None` for elements that are not buttons, and for buttons outside of messages.
fn button_press(account: &str, event: &Value) -> Option<ButtonPress> {
    let text = |pointer: &str| {
        let text = event.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    // One interaction has one action.
    if text("/actions/0/type")? != "button" {
        return None;
    }
    Some(ButtonPress {
        target: DeliveryTarget {
            platform: PLATFORM_NAME.to_owned(),
            account: account.to_owned(),
            chat: text("/channel/id")?,
            thread: text("/message/thread_ts").unwrap_or_default(),
            reply_to: String::new(),
        },
        message_id: text("/message/ts")?,
        text: unescape_text(&text("/message/text").unwrap_or_default()),
        sender: text("/user/id")?,
        sender_name: text("/user/name")
            .or_else(|| text("/user/username"))
            .unwrap_or_default(),
        data: text("/actions/0/value")?,
        reference: String::new(),
    })
}

/// Undoes the escapes of markup that Slack adds to every text.
fn unescape_text(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        // `&amp;` is replaced last, because otherwise `&amp;lt;` would become `<`.
        .replace("&amp;", "&")
}

/// Whether a reference is the id of a file, in place of its URL.
pub(crate) fn is_file_id(reference: &str) -> bool {
    !reference.is_empty() && reference.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

pub(crate) fn inbound_attachment(file: &Value) -> InboundAttachment {
    let text = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or_default();
    let media_type = text("mimetype");
    let kind = match media_type.split('/').next() {
        Some("image") => "photo",
        Some("audio") => "audio",
        Some("video") => "video",
        _ => "document",
    };
    // Some files have only `url_private`. Files of shared channels have only an id, with which `files.info` responds.
    let urls = [text("url_private_download"), text("url_private")];
    let url = urls.into_iter().find(|url| !url.is_empty());
    let id = Some(text("id")).filter(|id| is_file_id(id));
    let reference = url.or(id).unwrap_or_default();
    let unavailable = if reference.is_empty() {
        "Slack reported no URL of this file"
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
