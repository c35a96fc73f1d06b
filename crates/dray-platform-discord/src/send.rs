//! Sends one message with its attachments, and checks the response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_http::MultipartForm;
use dray_media_type::kind::{AudioKind, ContentKind};
use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, Route, SendRequest, UploadProgress,
    http, plan,
};
use dray_presentation::name;
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use crate::api::DiscordApi;

/// Route of files.
pub(crate) const ATTACHMENT_ROUTE: Route = Route::Attachment;
/// Route of a voice message.
pub(crate) const VOICE_ROUTE: Route = Route::Voice;
/// Longest nonce, in characters.
const MAX_NONCE_CHARACTERS: usize = 25;
/// Flag: no previews of links, because a preview robot would fetch the link.
pub(crate) const NO_EMBEDS: u64 = 4;
/// Flag: a voice message.
const IS_VOICE: u64 = 8192;
/// Code of a message that the filter for harmful links blocked.
const HARMFUL_LINK_CODE: &str = "240000";
/// Samples per second in Opus, for any input.
const OPUS_RATE: f64 = 48_000.0;

/// Whether a file can be a voice message: Opus in Ogg, and not empty.
pub(crate) fn is_voice(file: &OutgoingFile) -> bool {
    matches!(
        file.detected.kind,
        ContentKind::Audio(AudioKind::OggOpus { .. })
    ) && file.size > 0
}

/// Parts of a message that are sent only until Discord refuses them.
#[derive(Clone, Copy, Debug)]
struct MessageParts {
    reply: bool,
    link_previews: bool,
}

pub(crate) async fn send_step(
    api: &DiscordApi,
    send: SendRequest<'_>,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    // This is checked before the upload, because Discord would refuse the message after it.
    if step_files(send).any(|(_, file)| file.size == 0) {
        return Err(PlatformError::new(
            ErrorKind::Empty,
            "the file has no bytes",
        ));
    }
    // Each of three refusals is handled once, so the loop makes at most four requests.
    let mut parts = MessageParts {
        reply: !send.delivery.target.reply_to.is_empty(),
        link_previews: !matches!(send.step.route(), Route::Link | VOICE_ROUTE),
    };
    let mut may_unarchive = true;
    loop {
        match send_once(api, send, parts, progress).await {
            Err(error) if error.kind() == ErrorKind::NoThread && parts.reply => parts.reply = false,
            Err(error) if error.platform_code() == HARMFUL_LINK_CODE && parts.link_previews => {
                parts.link_previews = false;
            }
            // An archived thread is taken out of the archive if the bot may do that.
            Err(error) if error.platform_code() == "50083" && may_unarchive => {
                may_unarchive = false;
                unarchive_thread(api, target_channel(send))
                    .await
                    // The refusal of the message says more than the refusal of the change.
                    .map_err(|_| error)?;
            }
            other => return other,
        }
    }
}

fn step_files(send: SendRequest<'_>) -> impl Iterator<Item = (usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step)
}

/// The channel to send to. In Discord, a thread is a separate channel.
fn target_channel(send: SendRequest<'_>) -> &str {
    let target = &send.delivery.target;
    if target.thread.is_empty() {
        &target.chat
    } else {
        &target.thread
    }
}

/// Returns the id if it consists of digits: anything else could change the path of the request.
pub(crate) fn checked_id(id: &str) -> Result<&str, PlatformError> {
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(id)
    } else {
        Err(PlatformError::new(
            ErrorKind::NotFound,
            "the channel is not a number",
        ))
    }
}

async fn unarchive_thread(api: &DiscordApi, channel: &str) -> Result<(), PlatformError> {
    let url = api.url(&format!("/channels/{}", checked_id(channel)?));
    let request = api.client.patch(&url).json(&json!({ "archived": false }));
    let opened = api.call(request, &|_| {});
    opened.await.map(drop)
}

async fn send_once(
    api: &DiscordApi,
    send: SendRequest<'_>,
    parts: MessageParts,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let url = api.url(&format!(
        "/channels/{}/messages",
        checked_id(target_channel(send))?
    ));
    let message = message_json(send, parts).await?;
    let request = api.client.post(&url);
    let request = if send.step.files().is_empty() {
        request.json(&message)
    } else {
        request.multipart(multipart_form(send, &message).await?)
    };
    let response = api.call(request, &|bytes| progress.sent(bytes)).await?;
    confirm_files(send, &response)
}

async fn message_json(send: SendRequest<'_>, parts: MessageParts) -> Result<Value, PlatformError> {
    let is_voice_message = send.step.route() == VOICE_ROUTE;
    // Keys have 22 characters, so they are never cut.
    let nonce: String = send.key.chars().take(MAX_NONCE_CHARACTERS).collect();
    let mut message = json!({
        "content": send.step.text(),
        // The text of an agent must not notify anyone.
        "allowed_mentions": { "parse": [] },
        "nonce": nonce,
        "enforce_nonce": true,
        "flags": match send.step.route() {
            VOICE_ROUTE => IS_VOICE,
            _ if parts.link_previews => 0,
            _ => NO_EMBEDS,
        },
    });
    let Some(fields) = message.as_object_mut() else {
        return Ok(message);
    };
    if parts.reply {
        let reply =
            // The delivery must also succeed if the message was deleted meanwhile.
            json!({ "message_id": send.delivery.target.reply_to, "fail_if_not_exists": false });
        fields.insert("message_reference".to_owned(), reply);
    }
    let mut attachments = Vec::new();
    for (index, (_, file)) in step_files(send).enumerate() {
        let mut attachment = json!({ "id": index, "filename": visible_name(send, file) });
        if let (true, Some(attachment)) = (is_voice_message, attachment.as_object_mut()) {
            attachment.insert("duration_secs".to_owned(), opus_seconds(file).await?.into());
            // A voice message is refused without a waveform. It is only displayed, so a flat one is sent.
            let flat = STANDARD.encode([0_u8; 64]);
            attachment.insert("waveform".to_owned(), flat.into());
        }
        attachments.push(attachment);
    }
    if !attachments.is_empty() {
        fields.insert("attachments".to_owned(), attachments.into());
    }
    Ok(message)
}

/// The name that is shown. Discord hides pictures whose name begins with `SPOILER_`.
fn visible_name(send: SendRequest<'_>, file: &OutgoingFile) -> String {
    let clean = name::clean_name(&file.name);
    if send.delivery.flags.spoiler {
        format!("SPOILER_{clean}")
    } else {
        clean
    }
}

/// Length of an Opus file in seconds: the position at which its last page ends (RFC 7845, section 4).
async fn opus_seconds(file: &OutgoingFile) -> Result<f64, PlatformError> {
    let mut body = file.source.open().await?;
    let mut unread: Vec<u8> = Vec::new();
    let mut last = 0_u64;
    while let Some(chunk) = body.try_next().await? {
        unread.extend_from_slice(&chunk);
        // The last 14 bytes are kept, because a page header may continue in the next chunk.
        let mut consumed = 0;
        for start in 0..unread.len().saturating_sub(14) {
            let header = unread.get(start..start + 14).unwrap_or_default();
            if let Some(granule) = header
                .strip_prefix(b"OggS")
                .and_then(|rest| rest.get(2..10))
            {
                let granule = u64::from_le_bytes(granule.try_into().unwrap_or_default());
                // All bits set (RFC 3533, section 6) means that no packet ends on this page.
                if granule != u64::MAX {
                    last = last.max(granule);
                }
            }
            consumed = start + 1;
        }
        unread.drain(..consumed);
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "hours of sound are exact to the sample"
    )]
    let seconds = last as f64 / OPUS_RATE;
    Ok(seconds.max(0.1))
}

async fn multipart_form(
    send: SendRequest<'_>,
    message: &Value,
) -> Result<MultipartForm, PlatformError> {
    let mut form = MultipartForm::new().json("payload_json", message);
    for (index, (_, file)) in step_files(send).enumerate() {
        // The file is opened for each attempt, because a stream can be read only once.
        let body = http::request_body(file.source.open().await?);
        let field = format!("files[{index}]");
        let file_name = visible_name(send, file);
        form = form.file(
            &field,
            &file_name,
            file.detected.media_type,
            file.size,
            body,
        );
    }
    Ok(form)
}

/// Compares the attachments of the new message with those that were sent. A message with fewer of them counts as a
/// failure.
fn confirm_files(
    send: SendRequest<'_>,
    response: &Value,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    // The status was a success, so the message is probably visible.
    let unexpected = |reason: &str| PlatformError::new(ErrorKind::Unknown, reason).ambiguous();
    let id = response
        .get("id")
        .and_then(Value::as_str)
        .filter(|id| !id.is_empty())
        .ok_or_else(|| unexpected("the response is not a message"))?;
    let confirmed = |file, size| ConfirmedFile {
        file,
        message_id: id.to_owned(),
        file_id: String::new(),
        size,
        route: send.step.route(),
        provisional: false,
    };
    if send.step.files().is_empty() {
        return Ok(vec![confirmed(None, None)]);
    }
    let none = Vec::new();
    let attachments = response
        .get("attachments")
        .and_then(Value::as_array)
        .unwrap_or(&none);
    if attachments.len() != send.step.files().len() {
        return Err(unexpected(
            "the message does not have all files that were sent",
        ));
    }
    step_files(send)
        .zip(attachments)
        .map(|((index, file), attachment)| {
            let size = attachment.get("size").and_then(Value::as_u64);
            // Discord does not change files, so another size means another file.
            if size.is_some_and(|size| size != file.size) {
                return Err(unexpected(
                    "the message has a file of another size than was sent",
                ));
            }
            Ok(confirmed(Some(index), size))
        })
        .collect()
}
