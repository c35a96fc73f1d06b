//! Sends a step: uploads its files (not visible yet), completes the uploads, and waits until the files are shared.

use std::time::Duration;

use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, ReconcileResult, SendRequest,
    UploadProgress, plan,
};
use dray_presentation::name;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::SlackApi;
use crate::plan::escape_text;

/// Interval between two requests for the shares of a file.
const SHARE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The uploads of a step, stored before anything is visible. A later attempt completes the same files.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PreparedUpload {
    /// The channel in which the files will be shared; for a user, the channel of the conversation.
    channel: String,
    /// Slack's ids of the files, in the order of the step.
    files: Vec<String>,
}

fn step_files(send: SendRequest<'_>) -> impl Iterator<Item = (usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step)
}

/// Uploads the files of a step, and returns what the completion needs as JSON. The files are not visible yet.
pub(crate) async fn prepare_uploads(
    api: &SlackApi,
    send: SendRequest<'_>,
    progress: &dyn UploadProgress,
) -> Result<String, PlatformError> {
    if send.step.files().is_empty() {
        return Ok(String::new());
    }
    // `files.getUploadURLExternal` refuses a length of 0 as a missing argument.
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
        // No message is visible after an upload, on success or on failure.
        let id = upload_file(api, file, progress)
            .await
            .map_err(|error| error.with_outcome(dray_platform::SendOutcome::NotSent))?;
        prepared.files.push(id);
    }
    serde_json::to_string(&prepared).map_err(|cause| {
        PlatformError::new(ErrorKind::Unknown, "could not encode the uploads").caused_by(cause)
    })
}

/// The channel of the target. For a user, opens the conversation; repeating that returns the same channel.
async fn target_channel(api: &SlackApi, send: SendRequest<'_>) -> Result<String, PlatformError> {
    let chat = send.delivery.target.chat.as_str();
    // Ids of users begin with U, or with W in Enterprise Grid.
    if !chat.starts_with(['U', 'W']) {
        return Ok(chat.to_owned());
    }
    let opened = api
        .form("conversations.open", &[("users", chat)])
        .await
        .map_err(|error| error.with_outcome(dray_platform::SendOutcome::NotSent))?;
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
    let file_name = name::clean_name(&file.name);
    let fields = [("filename", file_name.as_str()), ("length", &length)];
    let upload = api.form("files.getUploadURLExternal", &fields).await?;
    let text = |name: &str| {
        upload
            .get(name)
            .and_then(Value::as_str)
            .ok_or_else(|| PlatformError::new(ErrorKind::Unknown, "the response has no upload URL"))
    };
    let (url, id) = (text("upload_url")?, text("file_id")?.to_owned());
    let body = file.source.open().await?;
    let report_progress = |bytes| progress.sent(bytes);
    let media_type = file.detected.media_type;
    let response = api
        .upload(url, media_type, file.size, body, &report_progress)
        .await?;
    // `OK - N`: the number of bytes that Slack received.
    let received = response
        .trim()
        .strip_prefix("OK - ")
        .and_then(|count| count.parse::<u64>().ok());
    match received {
        Some(size) if size == file.size => Ok(id),
        // The file is not visible, so it can be uploaded again.
        Some(size) => Err(PlatformError::new(
            ErrorKind::Transient,
            format!("the server received {size} of {} bytes", file.size),
        )),
        None => Err(PlatformError::new(
            ErrorKind::Unknown,
            "the upload was not confirmed",
        )),
    }
}

/// Completes the uploads or posts the text, and waits until the files are shared.
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
    set_field(&mut request, "thread_ts", thread_timestamp(send));
    if !send.step.text().is_empty() {
        set_field(
            &mut request,
            "initial_comment",
            // The text is escaped, because Slack posts the comment as a message.
            &escape_text(send.step.text()),
        );
    }
    // From here on the files may be visible.
    let response = api.json("files.completeUploadExternal", &request).await?;
    let completed = response
        .get("files")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    // The files are counted, because Slack may report success and complete only some of the files.
    if completed != prepared.files.len() {
        let error = PlatformError::new(ErrorKind::Unknown, "not all files were completed");
        return Err(error.ambiguous());
    }
    match wait_for_shares(api, send, &prepared, wait).await? {
        ShareSearch::Shared(confirmed) => Ok(confirmed),
        ShareSearch::NotShared | ShareSearch::Unknown => Err(PlatformError::new(
            ErrorKind::Unknown,
            "completed, but not shared in time",
        )
        .ambiguous()),
    }
}

/// Finds out whether a step whose response was lost is visible. This is not possible for a text message.
pub(crate) async fn reconcile_step(
    api: &SlackApi,
    send: SendRequest<'_>,
    wait: Duration,
) -> Result<ReconcileResult, PlatformError> {
    if send.step.files().is_empty() {
        // Messages have no key to search for.
        return Ok(ReconcileResult::Unknown);
    }
    let prepared = read_prepared(send)?;
    Ok(match wait_for_shares(api, send, &prepared, wait).await? {
        ShareSearch::Shared(confirmed) => ReconcileResult::Sent(confirmed),
        ShareSearch::NotShared => ReconcileResult::NotSent,
        ShareSearch::Unknown => ReconcileResult::Unknown,
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

/// The thread of the target, or the message to reply to, because replies in Slack are messages in a thread.
fn thread_timestamp(send: SendRequest<'_>) -> &str {
    let target = &send.delivery.target;
    if target.thread.is_empty() {
        &target.reply_to
    } else {
        &target.thread
    }
}

fn set_field(request: &mut Value, name: &str, value: &str) {
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
        // Without this, Slack would format the text. With the escapes above, it is shown unchanged.
        "mrkdwn": false,
        // For a preview, Slack would fetch a link, which uses up a one-time link.
        "unfurl_links": false,
        "unfurl_media": false,
    });
    set_field(&mut request, "thread_ts", thread_timestamp(send));
    let response = api.json("chat.postMessage", &request).await?;
    let ts = response
        .get("ts")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if ts.is_empty() {
        let error = PlatformError::new(ErrorKind::Unknown, "the message has no timestamp");
        return Err(error.ambiguous());
    }
    Ok(vec![ConfirmedFile {
        file: None,
        message_id: ts.to_owned(),
        file_id: String::new(),
        size: None,
        route: send.step.route(),
        provisional: false,
    }])
}

/// The shares of a step, from the responses of `files.info`.
enum ShareSearch {
    /// Every file is shared in the channel.
    Shared(Vec<ConfirmedFile>),
    /// The time has passed, and no file was shared in the last response.
    NotShared,
    /// Some files are shared and others are not, or the last request failed.
    Unknown,
}

/// Waits until every file is shared in the channel, for at most `wait`.
async fn wait_for_shares(
    api: &SlackApi,
    send: SendRequest<'_>,
    prepared: &PreparedUpload,
    wait: Duration,
) -> Result<ShareSearch, PlatformError> {
    let end = Instant::now() + wait;
    let mut confirmed = Vec::new();
    // One time limit for all files, because they are shared together.
    for ((index, file), id) in step_files(send).zip(&prepared.files) {
        loop {
            let is_known_absent = match find_share(api, id, &prepared.channel).await {
                Ok(Some((ts, size))) => {
                    if size.is_some_and(|size| size != file.size) {
                        let error = PlatformError::new(
                            ErrorKind::Unknown,
                            "the shared file has another size",
                        );
                        return Err(error.ambiguous());
                    }
                    confirmed.push(ConfirmedFile {
                        file: Some(index),
                        message_id: ts,
                        file_id: String::new(),
                        size,
                        route: send.step.route(),
                        provisional: false,
                    });
                    break;
                }
                // One completion shares all files, so the share of an earlier file shows that the request succeeded.
                Ok(None) => confirmed.is_empty(),
                Err(error) => {
                    // The next request may succeed. A failed one does not show whether the file is shared.
                    tracing::debug!(%error, "could not look up a share");
                    false
                }
            };
            if Instant::now() >= end {
                return Ok(if is_known_absent {
                    ShareSearch::NotShared
                } else {
                    ShareSearch::Unknown
                });
            }
            tokio::time::sleep(
                SHARE_POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())),
            )
            .await;
        }
    }
    Ok(ShareSearch::Shared(confirmed))
}

/// The message that shares a file in a channel, and the size of the file in Slack.
async fn find_share(
    api: &SlackApi,
    id: &str,
    channel: &str,
) -> Result<Option<(String, Option<u64>)>, PlatformError> {
    let response = api.form("files.info", &[("file", id)]).await?;
    let size = response.pointer("/file/size").and_then(Value::as_u64);
    let shares = response.pointer("/file/shares");
    // The response groups the shares by the kind of channel.
    let share = ["public", "private"].iter().find_map(|kind| {
        let shared = shares?.get(*kind)?.get(channel)?.as_array()?;
        Some(shared.first()?.get("ts")?.as_str()?.to_owned())
    });
    Ok(share.map(|ts| (ts, size)))
}
