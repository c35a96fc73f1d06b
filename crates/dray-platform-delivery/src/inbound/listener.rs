//! The HTTP listener for webhooks of platforms, and for uploads of browsers and services. It is plain HTTP, for use
//! behind a proxy that terminates TLS.
//!
//! Every request must name a host that the operator listed (platform-delivery 14.8). Webhooks are authenticated by
//! the platform's own signature, uploads by a bearer token; pages of other origins may upload when they are listed.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, post};
use bytes::Bytes;
use dray_bus::Meta;
use dray_http_server::{BytePermit, ConnectionLimits, body_failure_status, with_text_paths};
use dray_platform::{ErrorKind, InboundSink as _, PlatformError, WebhookReply, WebhookRequest};
use dray_proto::v1;
use dray_types::{Deadline, Fault, FaultCode, Sha256Digest, TenantId};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::InboundService;
use super::workspace::find_owner;
use super::{DurableInboundSink, origin};

/// Longest body of a request about an upload in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Longest time for one request, and for its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until `stop` is cancelled, and then finishes the running requests.
pub(crate) async fn serve_until(
    service: Arc<InboundService>,
    listener: TcpListener,
    stop: CancellationToken,
) {
    let router = with_text_paths(inbound_router(service));
    // Without a drain timeout it always completes.
    let _ = dray_http_server::serve(listener, router, ConnectionLimits::default(), stop).await;
}

/// Makes the routes of the listener.
pub(crate) fn inbound_router(service: Arc<InboundService>) -> Router {
    let uploads = Router::new()
        .route("/uploads", post(prepare_upload))
        .route("/uploads/{id}/finish", post(finish_upload))
        .layer(from_fn_with_state(
            Arc::clone(&service),
            origin::allow_origins,
        ));
    Router::new()
        .route("/platforms/{account}/webhook", any(post_webhook))
        .merge(uploads)
        .with_state(service)
}

/// Whether a `Host` header names this service. Without configured hosts only this machine's own names do.
pub fn is_our_host(hosts: &[String], header: Option<&str>) -> bool {
    let Some(host) = header.map(without_port) else {
        return false;
    };
    // A name with a dot at its end is the same name (RFC 1034, 3.1).
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if hosts.is_empty() {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        return host == "localhost"
            || address
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
    }
    hosts.iter().any(|own| own.eq_ignore_ascii_case(&host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            // A colon inside an IPv6 address does not begin a port.
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            name
        }
        _ => host,
    }
}

async fn post_webhook(
    State(service): State<Arc<InboundService>>,
    Path(account): Path<String>,
    request: Request,
) -> Response {
    // The host is checked first, so that a page that rebinds a name to this address reaches nothing (14.8).
    if let Some(refused) = refuse_other_host(&service, request.headers()) {
        return refused;
    }
    let Some(account) = service.accounts.named(&account) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Some(inbox) = account.inbox.clone() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let method = request.method().to_string();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request
        .headers()
        .iter()
        .filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        })
        .collect();
    let (body, _memory) = match read_body(&service, request, inbox.max_webhook_bytes()).await {
        Ok(read) => read,
        Err(status) => {
            tracing::warn!(account = %account.name, %status, "the body of a webhook request is refused");
            return status.into_response();
        }
    };
    let incoming = WebhookRequest {
        method,
        query,
        headers,
        body,
    };
    let reply = match inbox.webhook(&incoming) {
        Ok(reply) => reply,
        Err(error) => {
            tracing::warn!(account = %account.name, error = &error as &dyn std::error::Error, "a webhook request is refused");
            return match error.kind() {
                ErrorKind::Auth => StatusCode::UNAUTHORIZED,
                _ => StatusCode::BAD_REQUEST,
            }
            .into_response();
        }
    };
    let owner = find_owner(&service, account, &incoming, reply);
    match tokio::time::timeout(REQUEST_TIMEOUT, owner).await {
        Ok(Ok(Some((account, reply)))) => {
            take_webhook(DurableInboundSink { service, account }, reply).await
        }
        // Any other status would make the platform send the request again.
        Ok(Ok(None)) => StatusCode::OK.into_response(),
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not find the account of a webhook request"
            );
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
        Err(_elapsed) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Stores all messages of a webhook, and only then confirms them to the platform.
async fn take_webhook(sink: DurableInboundSink, reply: WebhookReply) -> Response {
    let WebhookReply {
        status,
        body,
        messages,
        statuses,
        presses,
        moved_chats,
        workspaces: _,
    } = reply;
    let stored = async {
        for moved in moved_chats {
            sink.chat_moved(moved).await;
        }
        // A platform repeats messages that were not confirmed; the operation id makes a repetition harmless.
        Box::pin(sink.messages(messages)).await?;
        sink.statuses(&statuses).await?;
        for press in presses {
            // The press is kept before the platform gets its confirmation, and decided afterwards: Slack waits for 3 s.
            sink.begin_press(press).await?;
        }
        Ok::<_, PlatformError>(())
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, stored).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a webhook request was not stored"
            );
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        Err(_elapsed) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
    // A handler that does not set a status has 0.
    let status = StatusCode::from_u16(status.max(100)).unwrap_or(StatusCode::OK);
    let status = if status.as_u16() == 100 {
        StatusCode::OK
    } else {
        status
    };
    match body {
        Some((media_type, text)) => {
            (status, [(header::CONTENT_TYPE, media_type)], text).into_response()
        }
        None => status.into_response(),
    }
}

#[derive(Deserialize)]
struct AnnouncedUpload {
    session: String,
    name: String,
    size: u64,
    #[serde(default)]
    sha256: String,
    #[serde(default)]
    media_type: String,
}

async fn prepare_upload(State(service): State<Arc<InboundService>>, request: Request) -> Response {
    let tenant = match authorize_upload(&service, request.headers()) {
        Ok(tenant) => tenant,
        Err(refused) => return *refused,
    };
    let (body, _memory) = match read_body(&service, request, MAX_BODY_BYTES).await {
        Ok(read) => read,
        Err(status) => return status.into_response(),
    };
    let Ok(announced) = serde_json::from_slice::<AnnouncedUpload>(&body) else {
        return fault_response(&invalid_request(
            "The body is not the JSON of an announced upload.",
        ));
    };
    // A browser cannot use a claim, so its upload needs a session that collects it.
    if announced.session.is_empty() {
        return fault_response(&invalid_request("`session` is missing."));
    }
    let sha256 = match announced.sha256.as_str() {
        "" => Vec::new(),
        hex => match hex.parse::<Sha256Digest>() {
            Ok(digest) => digest.as_bytes().to_vec(),
            Err(_) => {
                return fault_response(&invalid_request("sha256 is not 64 hexadecimal digits."));
            }
        },
    };
    let upload_request = v1::PrepareUploadRequest {
        session: announced.session,
        name: announced.name,
        size: announced.size,
        sha256,
        media_type: announced.media_type,
    };
    let reply = match service
        .uploads
        .prepare_upload(&request_meta(&service, tenant), &upload_request)
        .await
    {
        Ok(reply) => reply,
        Err(error) => return fault_response(&Fault::from(error)),
    };
    let url = reply.url.unwrap_or_default();
    let headers: serde_json::Map<String, serde_json::Value> = reply
        .headers
        .into_iter()
        .map(|header| (header.name, header.value.into()))
        .collect();
    json_response(
        StatusCode::OK,
        &json!({
            "upload_id": reply.upload_id,
            "url": url.url,
            "headers": headers,
            "expires_at_ms": url.expires_at_ms,
        }),
    )
}

async fn finish_upload(
    State(service): State<Arc<InboundService>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let tenant = match authorize_upload(&service, request.headers()) {
        Ok(tenant) => tenant,
        Err(refused) => return *refused,
    };
    let finish_request = v1::FinishUploadRequest { upload_id: id };
    match service
        .uploads
        .finish_upload(&request_meta(&service, tenant), &finish_request)
        .await
    {
        Ok(reply) => {
            let artifact = reply.claim.unwrap_or_default().artifact.unwrap_or_default();
            let digest = Sha256Digest::try_from(artifact.sha256.as_slice());
            json_response(
                StatusCode::OK,
                &json!({
                    "operation_id": reply.operation_id,
                    "name": artifact.name,
                    "size": artifact.size,
                    "sha256": digest.map(Sha256Digest::to_hex).unwrap_or_default(),
                }),
            )
        }
        Err(error) => fault_response(&Fault::from(error)),
    }
}

fn request_meta(service: &InboundService, tenant: TenantId) -> Meta {
    Meta::new(
        tenant,
        Deadline::after(service.clock.now_ms(), REQUEST_TIMEOUT),
    )
}

/// The whole body with its memory, or the status for one that is too long, too slow or breaks off, or for which other
/// requests leave no memory.
async fn read_body(
    service: &InboundService,
    request: Request<Body>,
    max_bytes: usize,
) -> Result<(Bytes, BytePermit), StatusCode> {
    let read = async {
        let memory = service.body_memory.try_acquire(0);
        let mut memory = memory.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let mut body = Vec::new();
        let mut chunks = request.into_body().into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| body_failure_status(&error))?;
            let bytes = body.len() + chunk.len();
            if bytes > max_bytes {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            // Memory is taken as the bytes arrive and not as announced: a peer that announces much and sends nothing
            // must not keep others out.
            if !memory.resize(bytes as u64) {
                return Err(StatusCode::SERVICE_UNAVAILABLE);
            }
            body.extend_from_slice(&chunk);
        }
        Ok((Bytes::from(body), memory))
    };
    // The time between two chunks has a limit too, but a peer could send single bytes for days.
    let read = tokio::time::timeout(REQUEST_TIMEOUT, read).await;
    read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
}

fn refuse_other_host(service: &InboundService, headers: &HeaderMap) -> Option<Response> {
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    (!is_our_host(&service.config.get().hosts, host))
        .then(|| StatusCode::MISDIRECTED_REQUEST.into_response())
}

/// The tenant of the request's bearer token.
fn authorize_upload(
    service: &InboundService,
    headers: &HeaderMap,
) -> Result<TenantId, Box<Response>> {
    if let Some(refused) = refuse_other_host(service, headers) {
        return Err(Box::new(refused));
    }
    let presented_token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    // Digests are compared, so that the timing reveals nothing about the token.
    let presented_token = Sha256Digest::of(presented_token.as_bytes());
    let config = service.config.get();
    config
        .upload_tokens
        .iter()
        .find(|(_, token)| Sha256Digest::of(token.expose().as_bytes()) == presented_token)
        .and_then(|(tenant, _)| TenantId::new(tenant.as_str()).ok())
        .ok_or_else(|| Box::new(StatusCode::UNAUTHORIZED.into_response()))
}

fn invalid_request(message: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, message)
}

fn fault_response(fault: &Fault) -> Response {
    let status = StatusCode::from_u16(fault.code.http_status());
    json_response(
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        &json!({
            "error": { "code": fault.code.as_str(), "detail": fault.detail, "message": fault.message },
        }),
    )
}

fn json_response(status: StatusCode, body: &serde_json::Value) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_hosts_are_ours_and_this_machine_when_none_is_listed() {
        let listed = ["Files.Example".to_owned()];
        for (hosts, header, expected) in [
            (&listed[..], Some("files.example"), true),
            (&listed[..], Some("files.example:8443"), true),
            (&listed[..], Some("evil.example"), false),
            (&listed[..], Some("localhost"), false),
            (&listed[..], None, false),
            (&[][..], Some("localhost:80"), true),
            (&[][..], Some("127.0.0.1:9"), true),
            (&[][..], Some("[::1]:9"), true),
            (&[][..], Some("[::1]"), true),
            (&[][..], Some("rebound.example"), false),
            (&[][..], Some("10.0.0.1"), false),
        ] {
            assert_eq!(is_our_host(hosts, header), expected, "{header:?}");
        }
    }
}
