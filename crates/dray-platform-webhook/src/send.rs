//! One event with its files, and the answer that proves it.

use dray_content::name;
use dray_http::{HttpResponse, MultipartForm};
use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, SendRequest, UploadProgress, http, plan,
};
use serde_json::{Value, json};

use crate::api::{WebhookApi, of_status};
use crate::options::WebhookAddress;
use crate::sign;

/// Longest id that is taken from an answer, in bytes.
const MAX_ID_BYTES: usize = 512;

fn step_files(send: SendRequest<'_>) -> impl Iterator<Item = (usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step)
}

/// Posts a step. `now` is the time in Unix seconds.
pub(crate) async fn send_event(
    api: &WebhookApi,
    hook: &WebhookAddress,
    send: SendRequest<'_>,
    now: u64,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let event = event_json(send);
    let stamp = now.to_string();
    // The files are bound to it by their digests.
    let signature = sign::sign_body(&hook.secret, &stamp, event.to_string().as_bytes())?;
    let request = api
        .client
        .post(hook.url.expose())
        .header("idempotency-key", send.key)
        .header("x-timestamp", &stamp)
        .header("x-signature-256", &signature);
    let request = if send.step.files().is_empty() {
        request.bytes("application/json", event.to_string().into())
    } else {
        let mut form = MultipartForm::new().json("event", &event);
        for (_, file) in step_files(send) {
            let body = http::request_body(file.source.open().await?);
            let called = name::clean_name(&file.name);
            form = form.file("file", &called, file.detected.media_type, file.size, body);
        }
        request.multipart(form)
    };
    let answer = request.send(&|bytes| progress.sent(bytes)).await?;
    match answer.status() {
        // 409: this key was there before.
        200..=299 | 409 => confirm_files(send, answer).await,
        status => Err(of_status(status, answer.retry_after())),
    }
}

/// The event for the receiver.
fn event_json(send: SendRequest<'_>) -> Value {
    let target = &send.delivery.target;
    let listed: Vec<Value> = step_files(send)
        .map(|(_, file)| {
            json!({
                "name": name::clean_name(&file.name),
                "size": file.size,
                "sha256": file.sha256.to_hex(),
                "mime": file.detected.media_type,
            })
        })
        .collect();
    json!({
        "delivery_id": send.delivery.id,
        "target": { "name": target.chat, "thread": target.thread, "reply_to": target.reply_to },
        "caption": send.step.text(),
        "files": listed,
    })
}

/// Reads what the receiver says of what it took: nothing is enough, but what it says must be right.
async fn confirm_files(
    send: SendRequest<'_>,
    answer: HttpResponse,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let place = answer.header("location").map(str::to_owned);
    let is_json = answer
        .header("content-type")
        .is_some_and(|media_type| media_type.starts_with("application/json"));
    let is_empty = answer.status() == 204 || answer.length() == Some(0);
    let told: Value = if is_json && !is_empty {
        answer.json().await?
    } else {
        Value::Null
    };
    if let Some(listed) = told.get("files").and_then(Value::as_array) {
        compare_files(send, listed)?;
    }
    let id = match told.get("id") {
        Some(Value::String(id)) => Some(id.clone()),
        Some(Value::Number(id)) => Some(id.to_string()),
        _ => place,
    };
    let id = id
        .filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES)
        .unwrap_or_else(|| send.key.to_owned());
    let confirmed = |file: Option<usize>, size| ConfirmedFile {
        file,
        message_id: id.clone(),
        file_id: String::new(),
        size,
        route: send.step.route().to_owned(),
        provisional: false,
    };
    if send.step.files().is_empty() {
        return Ok(vec![confirmed(None, None)]);
    }
    Ok(step_files(send)
        .map(|(index, file)| confirmed(Some(index), Some(file.size)))
        .collect())
}

/// Whether the files that the receiver names are those that were sent, in order.
fn compare_files(send: SendRequest<'_>, listed: &[Value]) -> Result<(), PlatformError> {
    let wrong = |why: &str| PlatformError::new(ErrorKind::Unknown, why).ambiguous();
    if listed.len() != send.step.files().len() {
        return Err(wrong("the receiver has another number of files"));
    }
    for ((_, file), told) in step_files(send).zip(listed) {
        let size = told.get("size").and_then(Value::as_u64);
        if size.is_some_and(|size| size != file.size) {
            return Err(wrong("the receiver has a file of another size"));
        }
        let digest = told.get("sha256").and_then(Value::as_str);
        if digest.is_some_and(|digest| !digest.eq_ignore_ascii_case(&file.sha256.to_hex())) {
            return Err(wrong("the receiver has other bytes"));
        }
    }
    Ok(())
}
