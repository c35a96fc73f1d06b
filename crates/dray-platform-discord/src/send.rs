//! One message with its attachments, and the count that proves it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_content::kind::{AudioKind, ContentKind};
use dray_content::name;
use dray_http::MultipartForm;
use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, SendRequest, UploadProgress, http, plan,
};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use crate::api::DiscordApi;

/// Route of files.
pub(crate) const ATTACHMENT_ROUTE: &str = "attachment";
/// Route of a voice message.
pub(crate) const VOICE_ROUTE: &str = "voice";
/// Longest nonce, in characters.
const MAX_NONCE_CHARACTERS: usize = 25;
/// Flag: links get no preview.
const NO_EMBEDS: u64 = 4;
/// Flag: a voice message.
const IS_VOICE: u64 = 8192;
/// Samples of a second in Opus, for all inputs.
const OPUS_RATE: f64 = 48_000.0;

/// Whether a file can be a voice message.
pub(crate) fn is_voice(file: &OutgoingFile) -> bool {
    matches!(
        file.detected.kind,
        ContentKind::Audio(AudioKind::OggOpus { .. })
    ) && file.size > 0
}

pub(crate) async fn send_step(
    api: &DiscordApi,
    send: SendRequest<'_>,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    if step_files(send).any(|(_, file)| file.size == 0) {
        return Err(PlatformError::new(
            ErrorKind::Empty,
            "the file has no bytes",
        ));
    }
    let mut with_reply = !send.delivery.target.reply_to.is_empty();
    let mut may_open = true;
    loop {
        match send_once(api, send, with_reply, progress).await {
            Err(error) if error.kind() == ErrorKind::NoThread && with_reply => with_reply = false,
            // An archived thread is opened again where that is allowed, once.
            Err(error) if error.platform_code() == "50083" && may_open => {
                may_open = false;
                open_channel(api, target_channel(send))
                    .await
                    .map_err(|_| error)?;
            }
            other => return other,
        }
    }
}

fn step_files(send: SendRequest<'_>) -> impl Iterator<Item = (usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step)
}

/// Threads are channels of their own.
fn target_channel(send: SendRequest<'_>) -> &str {
    let target = &send.delivery.target;
    if target.thread.is_empty() {
        &target.chat
    } else {
        &target.thread
    }
}

/// Only digits can stand in a path.
pub(crate) fn checked_id(id: &str) -> Result<&str, PlatformError> {
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(id)
    } else {
        Err(PlatformError::new(
            ErrorKind::NotFound,
            "a channel is a number",
        ))
    }
}

async fn open_channel(api: &DiscordApi, channel: &str) -> Result<(), PlatformError> {
    let url = api.url(&format!("/channels/{}", checked_id(channel)?));
    let request = api.client.patch(&url).json(&json!({ "archived": false }));
    let opened = api.call(request, &|_| {});
    opened.await.map(drop)
}

async fn send_once(
    api: &DiscordApi,
    send: SendRequest<'_>,
    with_reply: bool,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let url = api.url(&format!(
        "/channels/{}/messages",
        checked_id(target_channel(send))?
    ));
    let message = message_json(send, with_reply).await?;
    let request = api.client.post(&url);
    let request = if send.step.files().is_empty() {
        request.json(&message)
    } else {
        request.multipart(multipart_form(send, &message).await?)
    };
    let answer = api.call(request, &|bytes| progress.sent(bytes)).await?;
    confirm_files(send, &answer)
}

async fn message_json(send: SendRequest<'_>, with_reply: bool) -> Result<Value, PlatformError> {
    let is_voice_message = send.step.route() == VOICE_ROUTE;
    let nonce: String = send.key.chars().take(MAX_NONCE_CHARACTERS).collect();
    let mut message = json!({
        "content": send.step.text(),
        "allowed_mentions": { "parse": [] },
        "nonce": nonce,
        "enforce_nonce": true,
        "flags": match send.step.route() {
            VOICE_ROUTE => IS_VOICE,
            plan::LINK_ROUTE => NO_EMBEDS,
            _ => 0,
        },
    });
    let Some(fields) = message.as_object_mut() else {
        return Ok(message);
    };
    if with_reply {
        let reply =
            json!({ "message_id": send.delivery.target.reply_to, "fail_if_not_exists": false });
        fields.insert("message_reference".to_owned(), reply);
    }
    let mut attachments = Vec::new();
    for (place, (_, file)) in step_files(send).enumerate() {
        let mut attachment = json!({ "id": place, "filename": visible_name(send, file) });
        if let (true, Some(attachment)) = (is_voice_message, attachment.as_object_mut()) {
            attachment.insert("duration_secs".to_owned(), opus_seconds(file).await?.into());
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

/// The visible name; Discord hides pictures behind a prefix of it.
fn visible_name(send: SendRequest<'_>, file: &OutgoingFile) -> String {
    let clean = name::clean_name(&file.name);
    if send.delivery.flags.spoiler {
        format!("SPOILER_{clean}")
    } else {
        clean
    }
}

/// Length of an Opus file: the sample that its last page ends with (RFC 7845, 4).
async fn opus_seconds(file: &OutgoingFile) -> Result<f64, PlatformError> {
    let mut body = file.source.open().await?;
    let mut ahead: Vec<u8> = Vec::new();
    let mut last = 0_u64;
    while let Some(piece) = body.try_next().await? {
        ahead.extend_from_slice(&piece);
        let mut kept = 0;
        for at in 0..ahead.len().saturating_sub(14) {
            let header = ahead.get(at..at + 14).unwrap_or_default();
            if let Some(granule) = header
                .strip_prefix(b"OggS")
                .and_then(|rest| rest.get(2..10))
            {
                let granule = u64::from_le_bytes(granule.try_into().unwrap_or_default());
                if granule != u64::MAX {
                    last = last.max(granule);
                }
            }
            kept = at + 1;
        }
        ahead.drain(..kept);
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
    for (place, (_, file)) in step_files(send).enumerate() {
        let body = http::request_body(file.source.open().await?);
        let field = format!("files[{place}]");
        let called = visible_name(send, file);
        form = form.file(&field, &called, file.detected.media_type, file.size, body);
    }
    Ok(form)
}

/// Counts what the message shows: a success with fewer attachments than were sent does not count as delivered.
fn confirm_files(
    send: SendRequest<'_>,
    answer: &Value,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let wrong = |why: &str| PlatformError::new(ErrorKind::Unknown, why).ambiguous();
    let id = answer
        .get("id")
        .and_then(Value::as_str)
        .filter(|id| !id.is_empty())
        .ok_or_else(|| wrong("the answer is no message"))?;
    let confirmed = |file, size| ConfirmedFile {
        file,
        message_id: id.to_owned(),
        file_id: String::new(),
        size,
        route: send.step.route().to_owned(),
        provisional: false,
    };
    if send.step.files().is_empty() {
        return Ok(vec![confirmed(None, None)]);
    }
    let none = Vec::new();
    let shown = answer
        .get("attachments")
        .and_then(Value::as_array)
        .unwrap_or(&none);
    if shown.len() != send.step.files().len() {
        return Err(wrong("the message shows another number of files"));
    }
    step_files(send)
        .zip(shown)
        .map(|((index, file), shown)| {
            let size = shown.get("size").and_then(Value::as_u64);
            if size.is_some_and(|size| size != file.size) {
                return Err(wrong("the message shows a file of another size"));
            }
            Ok(confirmed(Some(index), size))
        })
        .collect()
}
