//! Messages that programs post to us, signed as ours are.

use dray_platform::{
    DeliveryTarget, ErrorKind, InboundAttachment, InboundMessage, PlatformError, WebhookReply,
    WebhookRequest,
};
use serde::Deserialize;

use crate::options::WebhookOptions;
use crate::{PLATFORM_NAME, sign};

/// What a program writes.
#[derive(Debug, Deserialize)]
struct PostedMessage {
    /// Its id of the message: the same id is the same message.
    id: String,
    /// The configured name that it belongs to: answers go there.
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

/// Reads one request. `now` is the time in Unix seconds.
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
    sign::verify_signature(&options.inbound_secret, signed, &request.body, now)?;
    let wrong = |why: &str| PlatformError::new(ErrorKind::BadFormat, why);
    let message: PostedMessage = serde_json::from_slice(&request.body)
        .map_err(|cause| wrong("the message cannot be read").caused_by(cause))?;
    if message.id.is_empty() {
        return Err(wrong("the message has no id"));
    }
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

fn inbound_attachment(message: &str, index: usize, file: PostedFile) -> InboundAttachment {
    let unavailable = if file.url.is_empty() {
        "no address was given for this file"
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
