//! Messages that programs of the operator post to this service, signed in the same way as its events.

use dray_platform::{
    DeliveryTarget, ErrorKind, InboundAttachment, InboundMessage, PlatformError, WebhookReply,
    WebhookRequest,
};
use serde::Deserialize;

use crate::options::WebhookOptions;
use crate::{PLATFORM_NAME, sign};

/// A message as a program posts it. All fields but the first two may be missing.
#[derive(Debug, Deserialize)]
struct PostedMessage {
    /// The program's id of the message. A second message with this id is a repetition of the first one.
    id: String,
    /// Name of a configured address, to which replies are sent.
    target: String,
    #[serde(default)]
    thread: String,
    #[serde(default)]
    sender: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    files: Vec<PostedFile>,
}

#[derive(Debug, Deserialize)]
struct PostedFile {
    #[serde(default)]
    name: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    mime: String,
    #[serde(default)]
    url: String,
}

/// Reads one request. `now` is the time in Unix seconds. Replays are refused by age here and by id in the caller.
pub(crate) fn read_webhook(
    account: &str,
    options: &WebhookOptions,
    request: &WebhookRequest,
    now: u64,
) -> Result<WebhookReply, PlatformError> {
    let header = |name: &str| {
        let found = request.headers.iter().find(|(header, _)| header == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let signed = (header("x-timestamp"), header("x-signature-256"));
    // The signature covers the received bytes, so it is verified before they are parsed.
    sign::verify_signature(&options.inbound_secret, signed, &request.body, now)?;
    let invalid_message = |reason: &str| PlatformError::new(ErrorKind::BadFormat, reason);
    let message: PostedMessage = serde_json::from_slice(&request.body)
        .map_err(|cause| invalid_message("could not parse the message").caused_by(cause))?;
    if message.id.is_empty() {
        return Err(invalid_message("the message has no id"));
    }
    // The agent could not reply to a message with an unknown name.
    options.hook(&message.target)?;
    let attachments = message.files.into_iter().enumerate();
    Ok(WebhookReply {
        status: 200,
        messages: vec![InboundMessage {
            target: DeliveryTarget {
                platform: PLATFORM_NAME.to_owned(),
                account: account.to_owned(),
                chat: message.target,
                thread: message.thread,
                reply_to: String::new(),
            },
            attachments: attachments
                .map(|(index, file)| inbound_attachment(&message.id, index, file))
                .collect(),
            message_id: message.id,
            sender: message.sender,
            text: message.text,
        }],
        ..WebhookReply::default()
    })
}

/// The claims of the message are not checked here. The address is checked when the file is fetched.
fn inbound_attachment(message: &str, index: usize, file: PostedFile) -> InboundAttachment {
    let unavailable = if file.url.is_empty() {
        "the message has no URL of this file"
    } else {
        ""
    };
    InboundAttachment {
        id: format!("{message}/{index}"),
        name: file.name,
        size: file.size,
        media_type: file.mime,
        reference: file.url,
        kind: "document".to_owned(),
        unavailable: unavailable.to_owned(),
    }
}
