//! The invisible upload, and the event that shows it.

use dray_content::name;
use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, SendOutcome, SendRequest, SendStep,
    UploadProgress, plan,
};
use serde_json::{Map, Value, json};

use crate::api::{MatrixApi, media_parts};

/// Routes of files.
pub(crate) const FILE_ROUTE: &str = "file";
pub(crate) const IMAGE_ROUTE: &str = "image";
pub(crate) const VIDEO_ROUTE: &str = "video";
pub(crate) const AUDIO_ROUTE: &str = "audio";
pub(crate) const VOICE_ROUTE: &str = "voice";

fn step_file(send: SendRequest<'_>) -> Option<(usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step).next()
}

/// Uploads the file of a step, unless the homeserver has it; its address.
pub(crate) async fn prepare_upload(
    api: &MatrixApi,
    send: SendRequest<'_>,
    progress: &dyn UploadProgress,
) -> Result<String, PlatformError> {
    let Some((_, file)) = step_file(send) else {
        return Ok(String::new());
    };
    api.room(&send.delivery.target.chat).await?;
    if let Some(known) = &file.file_id {
        return known_still(api, known).await;
    }
    let body = file.source.open().await?;
    let called = name::clean_name(&file.name);
    let told = |bytes| progress.sent(bytes);
    let what = (called.as_str(), file.detected.media_type);
    match api.upload(what, file.size, body, &told).await {
        // A homeserver that has enough may close before its refusal is read.
        Err(error) if error.kind() == ErrorKind::Transient => {
            Err(size_refusal(api, file, error).await)
        }
        other => other,
    }
    // Nothing here is visible, on success or on failure.
    .map_err(|error| error.at(SendOutcome::NotSent))
}

/// A refusal for size, when an upload that broke is larger than the homeserver takes.
async fn size_refusal(api: &MatrixApi, file: &OutgoingFile, broke: PlatformError) -> PlatformError {
    match api.largest().await {
        Ok(Some(largest)) if file.size > largest => {
            let error =
                PlatformError::new(ErrorKind::TooLarge, "the upload broke, and is too large");
            error.with_numbers(file.size, largest).caused_by(broke)
        }
        _ => broke,
    }
}

/// Homeservers take events with any address; whether one still leads somewhere must be asked.
async fn known_still(api: &MatrixApi, uri: &str) -> Result<String, PlatformError> {
    match api.download(uri).await {
        Ok(_) => Ok(uri.to_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Forbidden) => {
            let stale =
                PlatformError::new(ErrorKind::StaleFileId, "the homeserver has no such file");
            Err(stale.caused_by(error))
        }
        Err(error) => Err(error),
    }
}

/// Shows it.
pub(crate) async fn send_event(
    api: &MatrixApi,
    send: SendRequest<'_>,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let room = api.room(&send.delivery.target.chat).await?;
    let event = event_content(send)?;
    let answer = api.put(&room, send.key, &event).await.map_err(too_long)?;
    let id = answer.get("event_id").and_then(Value::as_str);
    let Some(id) = id.filter(|id| id.starts_with('$')) else {
        let error = PlatformError::new(ErrorKind::Unknown, "the answer names no event");
        return Err(error.ambiguous());
    };
    Ok(vec![ConfirmedFile {
        file: step_file(send).map(|(index, _)| index),
        message_id: id.to_owned(),
        file_id: send.prepared.to_owned(),
        size: None,
        route: send.step.route().to_owned(),
        provisional: false,
    }])
}

/// What is too large in an event is its text.
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
    // The text notifies no one, even if it contains mentions.
    event.insert("m.mentions".to_owned(), json!({}));
    if matches!(send.step, SendStep::Link(_)) {
        // No previews: robots would use links up.
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
    let called = name::clean_name(&file.name);
    let body = match send.step.text() {
        "" => &called,
        text => text,
    };
    let mut info = json!({ "size": file.size, "mimetype": file.detected.media_type });
    if let (Some((width, height)), Some(info)) = (file.detected.dimensions, info.as_object_mut()) {
        info.insert("w".to_owned(), width.into());
        info.insert("h".to_owned(), height.into());
    }
    let mut event = Map::from_iter([
        ("msgtype".to_owned(), kind.into()),
        ("body".to_owned(), body.into()),
        ("filename".to_owned(), called.as_str().into()),
        ("info".to_owned(), info),
        ("url".to_owned(), send.prepared.into()),
    ]);
    if send.step.route() == VOICE_ROUTE {
        event.insert("org.matrix.msc3245.voice".to_owned(), json!({}));
    }
    Ok(event)
}

/// The thread it belongs to, and the message it answers.
fn event_relation(thread: &str, reply_to: &str) -> Option<Value> {
    let answered = json!({ "event_id": if reply_to.is_empty() { thread } else { reply_to } });
    if !thread.is_empty() {
        return Some(json!({
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": reply_to.is_empty(),
            "m.in_reply_to": answered,
        }));
    }
    (!reply_to.is_empty()).then(|| json!({ "m.in_reply_to": answered }))
}
