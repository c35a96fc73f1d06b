//! Sends one event with its files, and reads the response that confirms it.

use dray_http::{HttpResponse, MultipartForm};
use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingFile, PlatformError, SendRequest, UploadProgress, http, plan,
};
use dray_presentation::name;
use serde_json::{Value, json};

use crate::api::{WebhookApi, status_error};
use crate::options::WebhookAddress;
use crate::sign;

/// Longest id that is accepted from a response, in bytes.
const MAX_ID_BYTES: usize = 512;

fn step_files(send: SendRequest<'_>) -> impl Iterator<Item = (usize, &OutgoingFile)> {
    plan::files_of(send.delivery, send.step)
}

/// Posts a step and reads the confirmation. `now` is the time in Unix seconds, for the signature.
pub(crate) async fn send_event(
    api: &WebhookApi,
    hook: &WebhookAddress,
    send: SendRequest<'_>,
    now: u64,
    progress: &dyn UploadProgress,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let event = event_json(send);
    let stamp = now.to_string();
    // Only the event is signed; it binds the files by their digests, which are known before the bytes are read.
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
        // The bytes of this part equal those that were signed: one value has one JSON text.
        let mut form = MultipartForm::new().json("event", &event);
        for (_, file) in step_files(send) {
            let body = http::request_body(file.source.open().await?);
            let file_name = name::clean_name(&file.name);
            form = form.file(
                "file",
                &file_name,
                file.detected.media_type,
                file.size,
                body,
            );
        }
        request.multipart(form)
    };
    let response = request.send(&|bytes| progress.sent(bytes)).await?;
    match response.status() {
        200..=299 => confirm_files(send, response).await,
        // After a lost response, 409 may mean that the receiver has the event. To a first request it is a refusal.
        409 if send.repeated => confirm_known_event(send, response).await,
        status => Err(status_error(status, response.retry_after())),
    }
}

/// The event as the receiver gets it; its fields are a contract with programs of operators.
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

/// Checks the receiver's response to the event. An empty response is enough, but its statements must be correct.
async fn confirm_files(
    send: SendRequest<'_>,
    response: HttpResponse,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    // The header is read before the body, which consumes the response.
    let location = response.header("location").map(str::to_owned);
    let receipt = read_receipt(response).await?;
    confirm(send, &receipt, location)
}

/// Checks a 409 to a repeated event. Other conflicts have this status too, so the receiver must name the event or its
/// files.
async fn confirm_known_event(
    send: SendRequest<'_>,
    response: HttpResponse,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let delay = response.retry_after();
    let receipt = read_receipt(response).await?;
    if receipt_id(&receipt).is_some() || receipt.get("files").is_some_and(Value::is_array) {
        return confirm(send, &receipt, None);
    }
    // The receiver may still be working on the first request.
    let error = PlatformError::new(ErrorKind::Transient, "a conflict without the event's id")
        .code("409")
        .ambiguous();
    Err(match delay {
        Some(delay) => error.with_retry_after(delay),
        None => error,
    })
}

/// The JSON of a response; `null` for none.
async fn read_receipt(response: HttpResponse) -> Result<Value, PlatformError> {
    let is_json = response
        .header("content-type")
        .is_some_and(|media_type| media_type.starts_with("application/json"));
    // An empty body of type JSON would fail to parse.
    let is_empty = response.status() == 204 || response.length() == Some(0);
    if !is_json || is_empty {
        return Ok(Value::Null);
    }
    Ok(response.json().await?)
}

/// The receiver's id of the event. Its length is bounded: it is stored in receipts.
fn receipt_id(receipt: &Value) -> Option<String> {
    let id = match receipt.get("id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => return None,
    };
    Some(id).filter(|id| is_usable_id(id))
}

const fn is_usable_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID_BYTES
}

/// The confirmations of a step that the receiver has, according to its response.
fn confirm(
    send: SendRequest<'_>,
    receipt: &Value,
    location: Option<String>,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    // A receiver that lists files must list the ones that were sent.
    if let Some(listed) = receipt.get("files").and_then(Value::as_array) {
        compare_files(send, listed)?;
    }
    // The id of the body, then `Location`, then the event's key: receipts need some id.
    let id = receipt_id(receipt)
        .or_else(|| location.filter(|location| is_usable_id(location)))
        .unwrap_or_else(|| send.key.to_owned());
    let confirmed = |file: Option<usize>, size| ConfirmedFile {
        file,
        message_id: id.clone(),
        file_id: String::new(),
        size,
        route: send.step.route(),
        provisional: false,
    };
    if send.step.files().is_empty() {
        return Ok(vec![confirmed(None, None)]);
    }
    Ok(step_files(send)
        .map(|(index, file)| confirmed(Some(index), Some(file.size)))
        .collect())
}

/// Checks that the files which the receiver lists are those that were sent, in order.
fn compare_files(send: SendRequest<'_>, listed: &[Value]) -> Result<(), PlatformError> {
    // The status was a success, so something of the event may be in use already.
    let mismatched_response =
        |reason: &str| PlatformError::new(ErrorKind::Unknown, reason).ambiguous();
    if listed.len() != send.step.files().len() {
        return Err(mismatched_response(
            "the receiver has another number of files",
        ));
    }
    for ((_, file), received) in step_files(send).zip(listed) {
        let size = received.get("size").and_then(Value::as_u64);
        if size.is_some_and(|size| size != file.size) {
            return Err(mismatched_response(
                "the receiver has a file of another size",
            ));
        }
        let digest = received.get("sha256").and_then(Value::as_str);
        if digest.is_some_and(|digest| !digest.eq_ignore_ascii_case(&file.sha256.to_hex())) {
            return Err(mismatched_response("the receiver has other bytes"));
        }
    }
    Ok(())
}
