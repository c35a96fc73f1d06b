//! Invisible uploads, the completion that shows them, and the look for the share that proves it.

use std::time::Duration;

use dray_content::name;
use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, ReconcileResult, SendRequest,
    UploadProgress, plan,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::SlackApi;
use crate::plan::escape_text;

/// Between two looks for a share.
const SHARE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What was uploaded for a step: kept before anything is visible.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PreparedUpload {
    /// Channel that the files will be shared in; that of a user's conversation when the target is a user.
    channel: String,
    /// Slack's ids of the files, in the order of the step.
    files: Vec<String>,
}

fn step_files(send: SendRequest<'_>) -> impl Iterator<Item = (usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step)
}

/// Uploads the files of a step. They are not visible yet.
pub(crate) async fn prepare_uploads(
    api: &SlackApi,
    send: SendRequest<'_>,
    progress: &dyn UploadProgress,
) -> Result<String, PlatformError> {
    if send.step.files().is_empty() {
        return Ok(String::new());
    }
    if step_files(send).any(|(_, file)| file.size == 0) {
        return Err(PlatformError::new(
            ErrorKind::Empty,
            "the file has no bytes",
        ));
    }
    let mut prepared = PreparedUpload {
        channel: target_channel(api, send).await?,
        files: Vec::new(),
    };
    for (_, file) in step_files(send) {
        // Nothing here is visible, on success or on failure.
        let id = upload_file(api, file, progress)
            .await
            .map_err(|error| error.at(dray_platform::SendOutcome::NotSent))?;
        prepared.files.push(id);
    }
    serde_json::to_string(&prepared).map_err(|cause| {
        PlatformError::new(ErrorKind::Unknown, "not written down").caused_by(cause)
    })
}

/// The channel of the target; a conversation is opened for a user.
async fn target_channel(api: &SlackApi, send: SendRequest<'_>) -> Result<String, PlatformError> {
    let chat = send.delivery.target.chat.as_str();
    if !chat.starts_with(['U', 'W']) {
        return Ok(chat.to_owned());
    }
    let opened = api
        .form("conversations.open", &[("users", chat)])
        .await
        .map_err(|error| error.at(dray_platform::SendOutcome::NotSent))?;
    let id = opened.pointer("/channel/id").and_then(Value::as_str);
    id.map(str::to_owned)
        .ok_or_else(|| PlatformError::new(ErrorKind::Unknown, "no conversation was opened"))
}

async fn upload_file(
    api: &SlackApi,
    file: &OutgoingFile,
    progress: &dyn UploadProgress,
) -> Result<String, PlatformError> {
    let length = file.size.to_string();
    let called = name::clean_name(&file.name);
    let fields = [("filename", called.as_str()), ("length", &length)];
    let place = api.form("files.getUploadURLExternal", &fields).await?;
    let text = |name: &str| {
        place.get(name).and_then(Value::as_str).ok_or_else(|| {
            PlatformError::new(ErrorKind::Unknown, "no place for the upload was given")
        })
    };
    let (url, id) = (text("upload_url")?, text("file_id")?.to_owned());
    let body = file.source.open().await?;
    let told = |bytes| progress.sent(bytes);
    let media_type = file.detected.media_type;
    let answer = api.upload(url, media_type, file.size, body, &told).await?;
    // `OK - N`: the bytes that Slack has.
    let taken = answer
        .trim()
        .strip_prefix("OK - ")
        .and_then(|count| count.parse::<u64>().ok());
    match taken {
        Some(size) if size == file.size => Ok(id),
        Some(size) => Err(PlatformError::new(
            ErrorKind::Transient,
            format!("{size} of {} bytes were taken", file.size),
        )),
        None => Err(PlatformError::new(
            ErrorKind::Unknown,
            "the upload was not confirmed",
        )),
    }
}

/// Shows it, and waits for the proof.
pub(crate) async fn send_step(
    api: &SlackApi,
    send: SendRequest<'_>,
    wait: Duration,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    if send.step.files().is_empty() {
        return send_text(api, send).await;
    }
    let prepared = read_prepared(send)?;
    let listed: Vec<Value> = step_files(send)
        .zip(&prepared.files)
        .map(|((_, file), id)| json!({ "id": id, "title": name::clean_name(&file.name) }))
        .collect();
    let mut request = json!({ "files": listed, "channel_id": prepared.channel });
    put_member(&mut request, "thread_ts", thread_timestamp(send));
    if !send.step.text().is_empty() {
        put_member(
            &mut request,
            "initial_comment",
            &escape_text(send.step.text()),
        );
    }
    let answer = api.json("files.completeUploadExternal", &request).await?;
    let told = answer
        .get("files")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    if told != prepared.files.len() {
        let error = PlatformError::new(ErrorKind::Unknown, "not all files were completed");
        return Err(error.ambiguous());
    }
    match wait_for_shares(api, send, &prepared, wait).await? {
        Some(confirmed) => Ok(confirmed),
        None => Err(
            PlatformError::new(ErrorKind::Unknown, "completed, but not shared in time").ambiguous(),
        ),
    }
}

/// Looks whether a step whose answer was lost is there.
pub(crate) async fn reconcile_step(
    api: &SlackApi,
    send: SendRequest<'_>,
    wait: Duration,
) -> Result<ReconcileResult, PlatformError> {
    if send.step.files().is_empty() {
        return Ok(ReconcileResult::Unknown);
    }
    let prepared = read_prepared(send)?;
    Ok(match wait_for_shares(api, send, &prepared, wait).await? {
        Some(confirmed) => ReconcileResult::Sent(confirmed),
        None => ReconcileResult::NotSent,
    })
}

fn read_prepared(send: SendRequest<'_>) -> Result<PreparedUpload, PlatformError> {
    let prepared: PreparedUpload = serde_json::from_str(send.prepared).map_err(|cause| {
        PlatformError::new(ErrorKind::Unknown, "the files were not uploaded").caused_by(cause)
    })?;
    if prepared.files.len() == step_files(send).count() {
        Ok(prepared)
    } else {
        Err(PlatformError::new(
            ErrorKind::Unknown,
            "other files were uploaded",
        ))
    }
}

/// The thread: that of the target, or that of the message to answer.
fn thread_timestamp(send: SendRequest<'_>) -> &str {
    let target = &send.delivery.target;
    if target.thread.is_empty() {
        &target.reply_to
    } else {
        &target.thread
    }
}

fn put_member(request: &mut Value, name: &str, value: &str) {
    if let (false, Some(request)) = (value.is_empty(), request.as_object_mut()) {
        request.insert(name.to_owned(), value.into());
    }
}

async fn send_text(
    api: &SlackApi,
    send: SendRequest<'_>,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let channel = target_channel(api, send).await?;
    let mut request = json!({
        "channel": channel,
        "text": escape_text(send.step.text()),
        "mrkdwn": false,
        "unfurl_links": false,
        "unfurl_media": false,
    });
    put_member(&mut request, "thread_ts", thread_timestamp(send));
    let answer = api.json("chat.postMessage", &request).await?;
    let ts = answer.get("ts").and_then(Value::as_str).unwrap_or_default();
    if ts.is_empty() {
        let error = PlatformError::new(ErrorKind::Unknown, "the message has no time stamp");
        return Err(error.ambiguous());
    }
    Ok(vec![ConfirmedFile {
        file: None,
        message_id: ts.to_owned(),
        file_id: String::new(),
        size: None,
        route: send.step.route().to_owned(),
        provisional: false,
    }])
}

/// Waits until every file is shared in the channel; `None` when that does not come in time.
async fn wait_for_shares(
    api: &SlackApi,
    send: SendRequest<'_>,
    prepared: &PreparedUpload,
    wait: Duration,
) -> Result<Option<Vec<ConfirmedFile>>, PlatformError> {
    let end = Instant::now() + wait;
    let mut confirmed = Vec::new();
    for ((index, file), id) in step_files(send).zip(&prepared.files) {
        loop {
            match find_share(api, id, &prepared.channel).await {
                Ok(Some((ts, size))) => {
                    if size.is_some_and(|size| size != file.size) {
                        let error =
                            PlatformError::new(ErrorKind::Unknown, "another size is shared");
                        return Err(error.ambiguous());
                    }
                    confirmed.push(ConfirmedFile {
                        file: Some(index),
                        message_id: ts,
                        file_id: String::new(),
                        size,
                        route: send.step.route().to_owned(),
                        provisional: false,
                    });
                    break;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "a look for a share failed");
                }
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            tokio::time::sleep(
                SHARE_POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())),
            )
            .await;
        }
    }
    Ok(Some(confirmed))
}

/// The message that shares a file in a channel, and the bytes that Slack has.
async fn find_share(
    api: &SlackApi,
    id: &str,
    channel: &str,
) -> Result<Option<(String, Option<u64>)>, PlatformError> {
    let answer = api.form("files.info", &[("file", id)]).await?;
    let size = answer.pointer("/file/size").and_then(Value::as_u64);
    let shares = answer.pointer("/file/shares");
    let found = ["public", "private"].iter().find_map(|kind| {
        let shared = shares?.get(*kind)?.get(channel)?.as_array()?;
        Some(shared.first()?.get("ts")?.as_str()?.to_owned())
    });
    Ok(found.map(|ts| (ts, size)))
}
