//! Handles requests.

use std::sync::Arc;

use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, bytes_reply, cut_reply, json_reply, with_header,
};
use percent_encoding::percent_decode_str;

use super::fault::{FaultPoint, InjectedFault};
use super::form::{self, FormData};
use super::response::{ApiResponse, MethodError};
use super::state::SharedState;
use super::{BOT_TOKEN, methods, updates};

pub(super) async fn respond_to_request(
    shared: Arc<SharedState>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    // Some clients escape the colon of the token.
    let path = percent_decode_str(&request.path)
        .decode_utf8_lossy()
        .into_owned();
    if let Some(path) = path.strip_prefix(&format!("/file/bot{BOT_TOKEN}/")) {
        return Ok(download_file(&shared, path));
    }
    let Some((token, method)) = path
        .strip_prefix("/bot")
        .and_then(|rest| rest.split_once('/'))
    else {
        return Ok(error_reply(&MethodError::of(404, "Not Found")));
    };
    shared.state().requests.push(method.to_owned());
    if token != BOT_TOKEN {
        // The token is checked after the body was read, because a client that still writes would get a broken
        // connection instead of the status.
        let refusal = if token.contains(':') {
            MethodError::of(401, "Unauthorized")
        } else {
            MethodError::of(404, "Not Found")
        };
        return reply_after_body(request, error_reply(&refusal)).await;
    }
    let is_send = method.starts_with("send") && method != "sendChatAction";
    let fault = is_send
        .then(|| shared.state().fault(FaultPoint::Send))
        .flatten();
    // 1 MiB more for the fields and headers of the form.
    if request
        .length()
        .is_some_and(|length| length > shared.upload + (1 << 20))
    {
        let refusal = MethodError::of(413, "Request Entity Too Large");
        return reply_after_body(request, error_reply(&refusal)).await;
    }
    let method = method.to_owned();
    if let Some(fault) = fault {
        return faulty_response(&shared, &method, request, fault).await;
    }
    let form = form::read_form(request).await?;
    Ok(response_reply(
        &call_method(&shared, &method, &form, None).await,
    ))
}

async fn call_method(
    shared: &Arc<SharedState>,
    method: &str,
    form: &FormData,
    fault: Option<&InjectedFault>,
) -> ApiResponse {
    if method == "getUpdates" {
        return updates::get_updates(shared, form).await;
    }
    methods::call_method(shared, method, form, fault)
}

async fn faulty_response(
    shared: &Arc<SharedState>,
    method: &str,
    request: ReceivedRequest,
    fault: InjectedFault,
) -> Result<Reply, ConnectionClosed> {
    match fault {
        InjectedFault::CloseDuringBody | InjectedFault::StallDuringBody => {
            let mut reader = request.into_reader();
            // After one frame, the client has begun to send the body.
            let _ = reader.more().await;
            if fault == InjectedFault::StallDuringBody {
                std::future::pending::<()>().await;
            }
            return Err(ConnectionClosed);
        }
        InjectedFault::RateLimit(seconds) => {
            let refusal = error_reply(&MethodError::rate_limit(seconds));
            return reply_after_body(request, refusal).await;
        }
        InjectedFault::Refuse(code, reason) => {
            let refusal = error_reply(&MethodError::of(code, &reason));
            return reply_after_body(request, refusal).await;
        }
        InjectedFault::FailAfterBody(status) => {
            return reply_after_body(request, error_page(status)).await;
        }
        _ => {}
    }
    // The other faults only change the response, so the method is run.
    let form = form::read_form(request).await?;
    let response = call_method(shared, method, &form, Some(&fault)).await;
    match fault {
        InjectedFault::LoseResponse => Err(ConnectionClosed),
        InjectedFault::NeverRespond => std::future::pending().await,
        InjectedFault::TruncateResponse => {
            let mut text = response_json(&response).to_string();
            text.truncate(text.len() / 2);
            Ok(bytes_reply(200, "application/json", text.into()))
        }
        _ => Ok(response_reply(&response)),
    }
}

/// Reads the whole body, then sends `reply`.
async fn reply_after_body(
    request: ReceivedRequest,
    reply: Reply,
) -> Result<Reply, ConnectionClosed> {
    request.into_reader().digest().await?;
    Ok(reply)
}

fn response_json(response: &ApiResponse) -> serde_json::Value {
    match response {
        Ok(result) => serde_json::json!({ "ok": true, "result": result }),
        Err(refusal) => refusal.body(),
    }
}

fn response_reply(response: &ApiResponse) -> Reply {
    match response {
        Ok(_) => json_reply(200, &response_json(response)),
        Err(refusal) => error_reply(refusal),
    }
}

fn error_reply(refusal: &MethodError) -> Reply {
    let reply = json_reply(refusal.code, &refusal.body());
    let wait = refusal
        .parameters
        .as_ref()
        .and_then(|all| all.get("retry_after"));
    match wait.and_then(serde_json::Value::as_u64) {
        Some(wait) => with_header(reply, "retry-after", &wait.to_string()),
        None => reply,
    }
}

/// The error page of a proxy in front of the API.
fn error_page(status: u16) -> Reply {
    bytes_reply(status, "text/html", "<html><h1>nginx</h1></html>".into())
}

fn download_file(shared: &Arc<SharedState>, path: &str) -> Reply {
    let mut state = shared.state();
    state.requests.push("file".to_owned());
    let bytes = state
        .files
        .values()
        .find(|file| file.path == path)
        .and_then(|file| file.bytes.clone());
    let fault = state.fault(FaultPoint::Download);
    drop(state);
    let Some(bytes) = bytes else {
        return error_reply(&MethodError::of(404, "Not Found"));
    };
    match fault {
        Some(InjectedFault::RedirectDownload(to)) => with_header(error_page(302), "location", &to),
        Some(InjectedFault::CutDownload) => {
            let half = bytes.len() / 2;
            cut_reply("application/octet-stream", &bytes, half)
        }
        _ => bytes_reply(200, "application/octet-stream", bytes),
    }
}
