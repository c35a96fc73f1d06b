//! Connections and requests.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::answer::{Answer, MethodError};
use super::fault::{FaultPoint, InjectedFault};
use super::form::{self, FormData};
use super::multipart::FormReader;
use super::state::SharedState;
use super::{BOT_TOKEN, methods, updates};

/// The connection is closed.
#[derive(Debug)]
pub(super) struct ConnectionClosed;

impl std::fmt::Display for ConnectionClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed on purpose")
    }
}

impl std::error::Error for ConnectionClosed {}

type Reply = Response<BoxBody<Bytes, ConnectionClosed>>;

pub(super) async fn serve_connections(listener: TcpListener, shared: Arc<SharedState>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| respond_to_request(Arc::clone(&shared), request));
            // Connections that break are what some tests are about.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

async fn respond_to_request(
    shared: Arc<SharedState>,
    request: Request<Incoming>,
) -> Result<Reply, ConnectionClosed> {
    // Some clients escape the colon of the token.
    let path = percent_decode_str(request.uri().path())
        .decode_utf8_lossy()
        .into_owned();
    if let Some(path) = path.strip_prefix(&format!("/file/bot{BOT_TOKEN}/")) {
        return download_file(&shared, path);
    }
    let Some((token, method)) = path
        .strip_prefix("/bot")
        .and_then(|rest| rest.split_once('/'))
    else {
        return Ok(error_reply(&MethodError::of(404, "Not Found")));
    };
    shared.state().requests.push(method.to_owned());
    if token != BOT_TOKEN {
        // The body is not read: the real server does not wait for it either.
        let refusal = if token.contains(':') {
            MethodError::of(401, "Unauthorized")
        } else {
            MethodError::of(404, "Not Found")
        };
        return reply_after_body(&shared, request, error_reply(&refusal)).await;
    }
    let is_send = method.starts_with("send") && method != "sendChatAction";
    let fault = is_send
        .then(|| shared.state().fault(FaultPoint::Send))
        .flatten();
    let length = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > shared.upload + (1 << 20)) {
        let refusal = MethodError::of(413, "Request Entity Too Large");
        return reply_after_body(&shared, request, error_reply(&refusal)).await;
    }
    let method = method.to_owned();
    if let Some(fault) = fault {
        return faulty_response(&shared, &method, request, fault).await;
    }
    let form = form::read_form(request, &shared)
        .await
        .map_err(|_| ConnectionClosed)?;
    Ok(answer_reply(
        &call_method(&shared, &method, &form, None).await,
    ))
}

async fn call_method(
    shared: &Arc<SharedState>,
    method: &str,
    form: &FormData,
    fault: Option<&InjectedFault>,
) -> Answer {
    if method == "getUpdates" {
        return updates::get_updates(shared, form).await;
    }
    methods::call_method(shared, method, form, fault)
}

async fn faulty_response(
    shared: &Arc<SharedState>,
    method: &str,
    request: Request<Incoming>,
    fault: InjectedFault,
) -> Result<Reply, ConnectionClosed> {
    match fault {
        InjectedFault::CloseDuringBody | InjectedFault::StallDuringBody => {
            let mut reader = FormReader::new(request.into_body(), Arc::clone(shared));
            let _ = reader.more().await;
            if fault == InjectedFault::StallDuringBody {
                std::future::pending::<()>().await;
            }
            return Err(ConnectionClosed);
        }
        InjectedFault::RateLimit(seconds) => {
            return reply_after_body(
                shared,
                request,
                error_reply(&MethodError::rate_limit(seconds)),
            )
            .await;
        }
        InjectedFault::Refuse(code, why) => {
            return reply_after_body(shared, request, error_reply(&MethodError::of(code, &why)))
                .await;
        }
        InjectedFault::FailAfterBody(status) => {
            return reply_after_body(shared, request, error_page(status)).await;
        }
        _ => {}
    }
    let form = form::read_form(request, shared)
        .await
        .map_err(|_| ConnectionClosed)?;
    let answered = call_method(shared, method, &form, Some(&fault)).await;
    match fault {
        InjectedFault::LoseAnswer => Err(ConnectionClosed),
        InjectedFault::NeverAnswer => std::future::pending().await,
        InjectedFault::CutAnswer => {
            let mut text = answer_json(&answered).to_string();
            text.truncate(text.len() / 2);
            Ok(bytes_reply(200, "application/json", text.into()))
        }
        _ => Ok(answer_reply(&answered)),
    }
}

/// Answers after the body was read.
async fn reply_after_body(
    shared: &Arc<SharedState>,
    request: Request<Incoming>,
    reply: Reply,
) -> Result<Reply, ConnectionClosed> {
    let reader = FormReader::new(request.into_body(), Arc::clone(shared));
    reader.skip().await.map_err(|_| ConnectionClosed)?;
    Ok(reply)
}

fn answer_json(answer: &Answer) -> serde_json::Value {
    match answer {
        Ok(result) => serde_json::json!({ "ok": true, "result": result }),
        Err(refusal) => refusal.body(),
    }
}

fn answer_reply(answer: &Answer) -> Reply {
    match answer {
        Ok(_) => bytes_reply(
            200,
            "application/json",
            answer_json(answer).to_string().into(),
        ),
        Err(refusal) => error_reply(refusal),
    }
}

fn error_reply(refusal: &MethodError) -> Reply {
    let text = refusal.body().to_string();
    let mut reply = bytes_reply(refusal.code, "application/json", text.into());
    let wait = refusal
        .parameters
        .as_ref()
        .and_then(|all| all.get("retry_after"));
    if let Some(wait) = wait.and_then(serde_json::Value::as_u64) {
        reply.headers_mut().insert(RETRY_AFTER, wait.into());
    }
    reply
}

/// What a proxy in front of the API says.
fn error_page(status: u16) -> Reply {
    bytes_reply(status, "text/html", "<html><h1>nginx</h1></html>".into())
}

fn bytes_reply(status: u16, content: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(full_body(body));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let content = hyper::header::HeaderValue::from_static(content);
    reply.headers_mut().insert(CONTENT_TYPE, content);
    reply
}

fn full_body(body: Bytes) -> BoxBody<Bytes, ConnectionClosed> {
    Full::new(body)
        .map_err(|never: Infallible| match never {})
        .boxed()
}

fn download_file(shared: &Arc<SharedState>, path: &str) -> Result<Reply, ConnectionClosed> {
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
        return Ok(error_reply(&MethodError::of(404, "Not Found")));
    };
    match fault {
        Some(InjectedFault::RedirectDownload(to)) => {
            let mut reply = error_page(302);
            let to = to.parse().map_err(|_| ConnectionClosed)?;
            reply.headers_mut().insert(LOCATION, to);
            Ok(reply)
        }
        Some(InjectedFault::CutDownload) => {
            let half = bytes.slice(..bytes.len() / 2);
            let frames = stream::iter([Ok(Frame::data(half)), Err(ConnectionClosed)]);
            let mut reply = Response::new(StreamBody::new(frames).boxed());
            reply
                .headers_mut()
                .insert(CONTENT_LENGTH, bytes.len().into());
            Ok(reply)
        }
        _ => Ok(bytes_reply(200, "application/octet-stream", bytes)),
    }
}
