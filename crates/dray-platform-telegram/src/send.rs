//! Sends one visible request.

use std::time::Duration;

use dray_http::MultipartForm;
use dray_platform::{
    ConfirmedFile, DeliveryTarget, ErrorKind, OutgoingFile, PlatformError, Route, SendRequest,
    SendStep, UploadProgress, http,
};
use futures_util::future::{Either, select};
use serde_json::{Value, json};

use crate::api::TelegramApi;
use crate::plan::{
    ALBUM_ROUTE, ANIMATION_ROUTE, AUDIO_ROUTE, DOCUMENT_ROUTE, PHOTO_ROUTE, VIDEO_ROUTE,
    VOICE_ROUTE, native_route,
};
use crate::refusal::ApiError;
use crate::response;

/// Interval between two requests to show an action. Clients show one for five seconds.
const ACTION_INTERVAL: Duration = Duration::from_secs(4);

/// Delay after which a small upload shows an action. A large upload shows it immediately.
const ACTION_DELAY: Duration = Duration::from_secs(3);

/// Size from which an upload counts as large, in bytes.
const LARGE_UPLOAD_BYTES: u64 = 1_000_000;

/// A [`DeliveryTarget`] whose thread and reply were parsed as numbers.
#[derive(Clone, Debug)]
pub(crate) struct ChatAddress {
    chat: String,
    thread: Option<i64>,
    reply_to: Option<i64>,
}

impl ChatAddress {
    pub(crate) fn of(target: &DeliveryTarget) -> Result<Self, PlatformError> {
        // The error is `NoThread`, because the delivery service then sends without the thread or the reply.
        let number = |text: &str, description: &str| {
            let missing = || {
                PlatformError::new(
                    ErrorKind::NoThread,
                    format!("{description} is not a number"),
                )
            };
            (!text.is_empty())
                .then(|| text.parse().map_err(|_| missing()))
                .transpose()
        };
        Ok(Self {
            chat: target.chat.clone(),
            thread: number(&target.thread, "the thread")?,
            reply_to: number(&target.reply_to, "the message to answer")?,
        })
    }

    /// The fields that every method accepts, including `sendChatAction`.
    fn form(&self) -> MultipartForm {
        let mut form = MultipartForm::new().text("chat_id", &self.chat);
        if let Some(thread) = self.thread {
            form = form.text("message_thread_id", thread.to_string());
        }
        form
    }

    pub(crate) fn message(&self) -> MultipartForm {
        let form = self.form();
        match self.reply_to {
            None => form,
            Some(id) => {
                // The delivery must succeed even if the message to reply to was deleted.
                let reply = json!({ "message_id": id, "allow_sending_without_reply": true });
                form.text("reply_parameters", reply.to_string())
            }
        }
    }
}

pub(crate) async fn send_step(
    api: &TelegramApi,
    send: SendRequest<'_>,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    // The size is checked here, because the API refuses empty files only after the upload.
    if step_files(send).any(|file| file.size == 0) {
        return Err(PlatformError::new(
            ErrorKind::Empty,
            "the file has no bytes",
        ));
    }
    let address = ChatAddress::of(&send.delivery.target)?;
    let sent = send_once(api, send, &address, progress).await;
    sent.map_err(|refusal| match refusal.moved {
        Some(chat) => refusal.error.with_moved_to(chat.to_string()),
        None => refusal.error,
    })
}

/// The files of the step, in the order of sending.
fn step_files(send: SendRequest<'_>) -> impl Iterator<Item = &OutgoingFile> {
    let indices = send.step.files().iter();
    indices.filter_map(move |index| send.delivery.files.get(*index))
}

fn is_text(send: SendRequest<'_>) -> bool {
    matches!(send.step, SendStep::Text(_) | SendStep::Link(_))
}

async fn send_once(
    api: &TelegramApi,
    send: SendRequest<'_>,
    address: &ChatAddress,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, ApiError> {
    if is_text(send) {
        // For a preview, Telegram would fetch the link and so use up a one-time link.
        let preview = json!({ "is_disabled": true });
        let form = address
            .message()
            .text("text", send.step.text())
            .text("link_preview_options", preview.to_string());
        let result = api.call("sendMessage", form, 0, &|_| {}).await?;
        return Ok(response::confirm_text(send.step, result)?);
    }
    let method = method_name(send)?;
    let form = match method {
        "sendMediaGroup" => album_form(address, send).await?,
        _ => single_form(address, send).await?,
    };
    let size = step_files(send)
        // A file that is sent by its id has no bytes in the request.
        .filter(|file| file.file_id.is_none())
        .map(|file| file.size)
        .sum();
    let report_progress = |bytes| progress.sent(bytes);
    let sending = std::pin::pin!(api.call(method, form, size, &report_progress));
    let showing = std::pin::pin!(show_action(api, address, step_route(send), size));
    // `show_action` never returns; it is dropped when the upload ends.
    let result = match select(sending, showing).await {
        Either::Left((result, _)) => result?,
        Either::Right((never, _)) => match never {},
    };
    Ok(response::confirm_files(send.delivery, send.step, result)?)
}

fn method_name(send: SendRequest<'_>) -> Result<&'static str, PlatformError> {
    let no_method = || PlatformError::new(ErrorKind::UnsupportedKind, "no such route");
    Ok(match (step_route(send), send.step.files().len()) {
        (_, 0) => return Err(no_method()),
        // There are no albums of animations or voice messages, so these have no method.
        (PHOTO_ROUTE | VIDEO_ROUTE | AUDIO_ROUTE | DOCUMENT_ROUTE | ALBUM_ROUTE, 2..) => {
            "sendMediaGroup"
        }
        (PHOTO_ROUTE, _) => "sendPhoto",
        (VIDEO_ROUTE, _) => "sendVideo",
        (ANIMATION_ROUTE, 1) => "sendAnimation",
        (AUDIO_ROUTE, _) => "sendAudio",
        (VOICE_ROUTE, 1) => "sendVoice",
        (DOCUMENT_ROUTE, _) => "sendDocument",
        _ => return Err(no_method()),
    })
}

/// The route of the step. An album with one file has the route of that file.
fn step_route(send: SendRequest<'_>) -> Route {
    match (send.step.route(), send.step.files()) {
        (ALBUM_ROUTE, [_]) => {
            let only_file = step_files(send).next();
            only_file.map_or(ALBUM_ROUTE, |file| native_route(file, send.delivery.flags))
        }
        (route, _) => route,
    }
}

/// Adds a part with the bytes of a file, opened here so that every attempt reads them from the beginning.
async fn file_part(
    form: MultipartForm,
    name: &str,
    file: &OutgoingFile,
) -> Result<MultipartForm, PlatformError> {
    let body = http::request_body(file.source.open().await?);
    let media_type = file.detected.media_type;
    Ok(form.file(name, &file.name, media_type, file.size, body))
}

async fn single_form(
    address: &ChatAddress,
    send: SendRequest<'_>,
) -> Result<MultipartForm, PlatformError> {
    let route = step_route(send);
    let mut form = address.message();
    if !send.step.text().is_empty() {
        form = form.text("caption", send.step.text());
    }
    if route == DOCUMENT_ROUTE {
        // Without this field, the server turns music into audio messages and animations into MP4.
        form = form.text("disable_content_type_detection", "true");
    }
    if route == VIDEO_ROUTE {
        form = form.text("supports_streaming", "true");
    }
    // The methods of the other routes have no such parameter.
    if send.delivery.flags.spoiler && matches!(route, PHOTO_ROUTE | VIDEO_ROUTE | ANIMATION_ROUTE) {
        form = form.text("has_spoiler", "true");
    }
    for file in step_files(send) {
        form = match &file.file_id {
            Some(id) => form.text(route.as_str(), id),
            None => file_part(form, route.as_str(), file).await?,
        };
    }
    Ok(form)
}

async fn album_form(
    address: &ChatAddress,
    send: SendRequest<'_>,
) -> Result<MultipartForm, PlatformError> {
    let mut media = Vec::new();
    for (position, file) in step_files(send).enumerate() {
        let kind = match send.step.route() {
            ALBUM_ROUTE => native_route(file, send.delivery.flags),
            route => route,
        };
        let source = file
            .file_id
            // The id of a file on the server, or the name of a part of this form.
            .clone()
            .unwrap_or_else(|| format!("attach://file{position}"));
        let mut item = json!({ "type": kind.as_str(), "media": source });
        let mut set_field = |name: &str, value: Value| {
            if let Some(item) = item.as_object_mut() {
                item.insert(name.to_owned(), value);
            }
        };
        // Clients show the caption of an album if only its first item has one.
        if position == 0 && !send.step.text().is_empty() {
            set_field("caption", send.step.text().into());
        }
        if kind == DOCUMENT_ROUTE {
            set_field("disable_content_type_detection", true.into());
        }
        if kind == VIDEO_ROUTE {
            set_field("supports_streaming", true.into());
        }
        if send.delivery.flags.spoiler && matches!(kind, PHOTO_ROUTE | VIDEO_ROUTE) {
            set_field("has_spoiler", true.into());
        }
        media.push(item);
    }
    let mut form = address
        .message()
        .text("media", Value::Array(media).to_string());
    for (position, file) in step_files(send).enumerate() {
        if file.file_id.is_none() {
            form = file_part(form, &format!("file{position}"), file).await?;
        }
    }
    Ok(form)
}

/// Shows in the chat that a file is being uploaded, until the future is dropped. Failures are only logged.
async fn show_action(
    api: &TelegramApi,
    address: &ChatAddress,
    route: Route,
    size: u64,
) -> std::convert::Infallible {
    let action = match route {
        PHOTO_ROUTE | ALBUM_ROUTE => "upload_photo",
        VIDEO_ROUTE | ANIMATION_ROUTE => "upload_video",
        AUDIO_ROUTE | VOICE_ROUTE => "upload_voice",
        _ => "upload_document",
    };
    // A small upload usually ends before this delay, so no action is shown for it.
    if size < LARGE_UPLOAD_BYTES {
        tokio::time::sleep(ACTION_DELAY).await;
    }
    loop {
        let form = address.form().text("action", action);
        if let Err(error) = api.ask("sendChatAction", form).await {
            tracing::debug!(%error, "could not show an action");
        }
        tokio::time::sleep(ACTION_INTERVAL).await;
    }
}
