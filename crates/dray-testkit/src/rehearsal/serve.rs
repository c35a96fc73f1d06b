//! The routes of the scripted model.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};

use super::answer::{RehearsalResponse, build_response};
use super::script::{ScriptedFailure, ScriptedReply};
use super::{RehearsalState, RehearsedRequest, lock_state};

/// The error that breaks the connection if the script requires it.
#[derive(Debug)]
pub(super) struct ConnectionCut;

impl fmt::Display for ConnectionCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script cut the response")
    }
}

impl std::error::Error for ConnectionCut {}

type Body = BoxBody<Bytes, ConnectionCut>;

/// Handles one request according to the script; an error breaks the connection.
pub(super) async fn answer_request(
    state: &Mutex<RehearsalState>,
    request: Request<Incoming>,
) -> Result<Response<Body>, ConnectionCut> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map_err(|_| ConnectionCut)?.to_bytes();
    // A body that is not JSON is `null`; it is recorded anyway.
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let path = head.uri.path();
    lock_state(state).requests.push(RehearsedRequest {
        target: head.uri.to_string(),
        headers: head.headers.clone(),
        body: body.clone(),
    });
    let Some((model, dial)) = requested_model(path, &body) else {
        return Ok(failed_response(404, "the path does not exist"));
    };
    let Some(reply) = choose_reply(state, &model, &body) else {
        return Ok(failed_response(400, "no rule of the script matches"));
    };
    pause_reply(&reply).await;
    if let Some(fail) = &reply.fail {
        return Ok(scripted_failure(fail));
    }
    let response = build_response(&reply, &body);
    if body.get("stream") == Some(&json!(true)) {
        let usage = body.pointer("/stream_options/include_usage") == Some(&json!(true));
        return Ok(streamed_response(
            &reply,
            &response.chunks(&model, usage, !dial),
        ));
    }
    if reply.cut_after.is_some() {
        return Err(ConnectionCut);
    }
    Ok(whole_response(&response, &model))
}

/// The requested model, and whether the path is one of DIAL's.
fn requested_model(path: &str, body: &Value) -> Option<(String, bool)> {
    if path == "/v1/chat/completions" || path == "/chat/completions" {
        let model = body
            .get("model")
            .and_then(Value::as_str)
            .unwrap_or_default();
        return Some((model.to_owned(), false));
    }
    let rest = path.strip_prefix("/openai/deployments/")?;
    let model = rest.strip_suffix("/chat/completions")?;
    let model = percent_encoding::percent_decode_str(model).decode_utf8_lossy();
    Some((model.into_owned(), true))
}

/// The reply of the first rule that matches and is not used up.
fn choose_reply(state: &Mutex<RehearsalState>, model: &str, body: &Value) -> Option<ScriptedReply> {
    let mut state = lock_state(state);
    let RehearsalState {
        script, use_counts, ..
    } = &mut *state;
    let mut rules = script.rules.iter().zip(use_counts);
    let (rule, use_count) = rules.find(|(rule, use_count)| {
        // This and the count below are under one lock, so that concurrent requests do not share the last use.
        rule.times.is_none_or(|times| **use_count < times) && rule.when.matches(model, body)
    })?;
    *use_count += 1;
    Some(rule.reply.clone())
}

async fn pause_reply(reply: &ScriptedReply) {
    if reply.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    }
}

fn http_response(status: u16, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn full_body(body: String) -> Body {
    Full::new(Bytes::from(body))
        .map_err(|never| match never {})
        .boxed()
}

fn failed_response(status: u16, message: &str) -> Response<Body> {
    let body =
        json!({ "error": { "message": message, "type": "rehearsal", "code": status.to_string() } });
    http_response(status, "application/json", full_body(body.to_string()))
}

fn scripted_failure(fail: &ScriptedFailure) -> Response<Body> {
    match &fail.body {
        Some(body) => http_response(fail.status, "application/json", full_body(body.to_string())),
        None => failed_response(fail.status, &fail.message),
    }
}

fn whole_response(response: &RehearsalResponse, model: &str) -> Response<Body> {
    http_response(
        200,
        "application/json",
        full_body(response.whole(model).to_string()),
    )
}

fn streamed_response(reply: &ScriptedReply, chunks: &[Value]) -> Response<Body> {
    let sent_chunks = reply.cut_after.unwrap_or(usize::MAX);
    let mut frames: Vec<_> = chunks
        .iter()
        .take(sent_chunks)
        .map(|chunk| Ok(Bytes::from(format!("data: {chunk}\n\n"))))
        .collect();
    if reply.cut_after.is_some() {
        frames.push(Err(ConnectionCut));
    } else {
        frames.push(Ok(Bytes::from_static(b"data: [DONE]\n\n")));
    }
    let delay = Duration::from_millis(reply.delay_ms);
    let frames = stream::unfold(frames.into_iter(), move |mut frames| async move {
        let frame = frames.next()?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        } else if frame.is_err() {
            // hyper writes buffered bytes only when it is polled again, and the connection must break after that.
            tokio::task::yield_now().await;
        }
        Some((frame.map(Frame::data), frames))
    });
    http_response(
        200,
        "text/event-stream",
        BoxBody::new(StreamBody::new(frames)),
    )
}
