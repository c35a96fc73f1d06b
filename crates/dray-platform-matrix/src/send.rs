//! The invisible upload, and the event that shows it.

use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, Route, SendOutcome, SendRequest,
    SendStep, UploadProgress, plan,
};
use dray_presentation::name;
use serde_json::{Map, Value, json};

use crate::api::{MatrixApi, media_parts};

// Routes of files.
pub(crate) const FILE_ROUTE: Route = Route::File;
pub(crate) const IMAGE_ROUTE: Route = Route::Image;
pub(crate) const VIDEO_ROUTE: Route = Route::Video;
pub(crate) const AUDIO_ROUTE: Route = Route::Audio;
pub(crate) const VOICE_ROUTE: Route = Route::Voice;

fn step_file(send: SendRequest<'_>) -> Option<(usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step).next()
}

/// Uploads the file of a step, unless the homeserver has it already. Returns its address; empty for a text.
pub(crate) async fn prepare_upload(
    api: &MatrixApi,
    send: SendRequest<'_>,
    progress: &dyn UploadProgress,
) -> Result<String, PlatformError> {
    let Some((_, file)) = step_file(send) else {
        return Ok(String::new());
    };
    // The room is checked before the upload, so that no file is uploaded for a room that refuses the event.
    api.room(&send.delivery.target.chat).await?;
    if let Some(uri) = &file.file_id {
        return check_known_file(api, uri).await;
    }
    let body = file.source.open().await?;
    let file_name = name::clean_name(&file.name);
    let report_progress = |bytes| progress.sent(bytes);
    let name_and_type = (file_name.as_str(), file.detected.media_type);
    match api
        .upload(name_and_type, file.size, body, &report_progress)
        .await
    {
        // A homeserver that refuses an upload may close the connection before its response is read.
        Err(error) if error.kind() == ErrorKind::Transient => {
            Err(size_refusal(api, file, error).await)
        }
        other => other,
    }
    // An upload is never visible, neither after success nor after failure.
    .map_err(|error| error.with_outcome(SendOutcome::NotSent))
}

/// Converts a broken upload into a size error, if the file exceeds the limit of the homeserver.
async fn size_refusal(
    api: &MatrixApi,
    file: &OutgoingFile,
    upload_error: PlatformError,
) -> PlatformError {
    match api.max_upload_bytes().await {
        Ok(Some(largest)) if file.size > largest => {
            let error = PlatformError::new(
                ErrorKind::TooLarge,
                "the upload broke; the file is larger than the limit",
            );
            error
                .with_numbers(file.size, largest)
                .caused_by(upload_error)
        }
        _ => upload_error,
    }
}

/// Checks an address from an earlier delivery. Homeservers accept events with any address, so a stale one would show
/// a message without its file.
async fn check_known_file(api: &MatrixApi, uri: &str) -> Result<String, PlatformError> {
    match api.download(uri).await {
        // Only the head of the response is read; dropping it closes the connection.
        Ok(_) => Ok(uri.to_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Forbidden) => {
            let stale_id =
                PlatformError::new(ErrorKind::StaleFileId, "the homeserver has no such file");
            Err(stale_id.caused_by(error))
        }
        Err(error) => Err(error),
    }
}

/// Sends the event of a step, which makes it visible. The room is checked again: it may be encrypted by now.
pub(crate) async fn send_event(
    api: &MatrixApi,
    send: SendRequest<'_>,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let room = api.room(&send.delivery.target.chat).await?;
    let event = event_content(send)?;
    let response = api.put(&room, send.key, &event).await.map_err(too_long)?;
    let id = response.get("event_id").and_then(Value::as_str);
    // Ids of events begin with a dollar sign; another value is not a confirmation.
    let Some(id) = id.filter(|id| id.starts_with('$')) else {
        let error = PlatformError::new(ErrorKind::Unknown, "the response has no event id");
        return Err(error.ambiguous());
    };
    Ok(vec![ConfirmedFile {
        file: step_file(send).map(|(index, _)| index),
        message_id: id.to_owned(),
        file_id: send.prepared.to_owned(),
        size: None,
        route: send.step.route(),
        provisional: false,
    }])
}

/// Converts a size error to a length error: files are only referenced, so only the text can make an event too large.
fn too_long(error: PlatformError) -> PlatformError {
    if error.kind() == ErrorKind::TooLarge {
        let code = error.platform_code().to_owned();
        return PlatformError::new(ErrorKind::TooLong, "the event is too large")
            .code(code)
            .caused_by(error);
    }
    error
}

fn event_content(send: SendRequest<'_>) -> Result<Value, PlatformError> {
    let mut event = match step_file(send) {
        Some((_, file)) => file_content(send, file)?,
        None => Map::from_iter([
            ("msgtype".to_owned(), "m.text".into()),
            ("body".to_owned(), send.step.text().into()),
        ]),
    };
    // MSC3952: an empty list of mentions, so that names in the text notify no one.
    event.insert("m.mentions".to_owned(), json!({}));
    if matches!(send.step, SendStep::Link(_)) {
        // An empty list of previews, because a preview robot would use up a one-time link.
        event.insert("com.beeper.linkpreviews".to_owned(), json!([]));
    }
    let target = &send.delivery.target;
    if let Some(relation) = event_relation(&target.thread, &target.reply_to) {
        event.insert("m.relates_to".to_owned(), relation);
    }
    Ok(event.into())
}

fn file_content(
    send: SendRequest<'_>,
    file: &OutgoingFile,
) -> Result<Map<String, Value>, PlatformError> {
    // `prepare` did not run, or its result was changed.
    if media_parts(send.prepared).is_none() {
        let error = PlatformError::new(ErrorKind::Unknown, "the file was not uploaded");
        return Err(error);
    }
    let kind = match send.step.route() {
        IMAGE_ROUTE => "m.image",
        VIDEO_ROUTE => "m.video",
        AUDIO_ROUTE | VOICE_ROUTE => "m.audio",
        _ => "m.file",
    };
    let file_name = name::clean_name(&file.name);
    let body = match send.step.text() {
        "" => &file_name,
        text => text,
    };
    let mut info = json!({ "size": file.size, "mimetype": file.detected.media_type });
    if let (Some((width, height)), Some(info)) = (file.detected.dimensions, info.as_object_mut()) {
        info.insert("w".to_owned(), width.into());
        info.insert("h".to_owned(), height.into());
    }
    let mut event = Map::from_iter([
        ("msgtype".to_owned(), kind.into()),
        // With a file name beside it, the body is the caption.
        ("body".to_owned(), body.into()),
        ("filename".to_owned(), file_name.as_str().into()),
        ("info".to_owned(), info),
        ("url".to_owned(), send.prepared.into()),
    ]);
    if send.step.route() == VOICE_ROUTE {
        event.insert("org.matrix.msc3245.voice".to_owned(), json!({}));
    }
    Ok(event)
}

/// The relation to a thread or to a message; `None` for neither.
fn event_relation(thread: &str, reply_to: &str) -> Option<Value> {
    // In a thread without a reply, clients without support for threads show a reply to its root.
    let reply_target = json!({ "event_id": if reply_to.is_empty() { thread } else { reply_to } });
    if !thread.is_empty() {
        return Some(json!({
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": reply_to.is_empty(),
            "m.in_reply_to": reply_target,
        }));
    }
    (!reply_to.is_empty()).then(|| json!({ "m.in_reply_to": reply_target }))
}
