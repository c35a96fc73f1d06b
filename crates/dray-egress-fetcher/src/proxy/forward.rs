//! A plain HTTP request in absolute form: one request to one judged target.
//!
//! hyper reads the request a second time from the bytes that the strict reader accepted, except the target, in which it
//! refuses characters that clients send. It frames both bodies. The head for the target is built from the judged URL and
//! the accepted fields, never copied. After the response the connection closes, so a second request on it reaches
//! nothing. No redirect is followed. No upgrade passes but WebSocket inside an intercepted tunnel, whose head for the
//! target asks for it.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_guard::{CanonicalUrl, Code};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::body::LimitedBody;
use super::client::ClientStream;
use super::expect::{CONTINUE_EXPECTATION, await_agreement, expects_agreement};
use super::form::{FormCheck, MethodInBody, RequestBody};
use super::head::{HeadError, MAX_FIELDS, MAX_HEAD_BYTES, ProxyRequest, RequestFraming};
use super::meter::{ByteCounts, TargetStream};
use super::refusal::{ConnectionEnd, ProxyRefusal};
use super::response::{
    BUFFER_BYTES, ResponseContent, ResponseRules, client_builder, drop_content,
    refusal_without_head, remove_hop_fields, unify_length,
};
use super::serve::{EndConditions, ForwardProxy};
use super::target_path::request_target;
use super::websocket::{self, PendingUpgrade};
use crate::audit::AuditedConnection;
use crate::credential::Credential;
use crate::dial::Io;
use crate::error::FetchPhase;
use crate::fetch::OpenConnection;
use crate::head::body_framing;
use crate::wire::InterimIo;

type ForwardBody = Either<LimitedBody, Full<Bytes>>;

/// The request for the target, and the connection for it; taken once.
type PendingRequest = Mutex<Option<PreparedRequest>>;

/// The head for the target, the check of the body that follows, and the connection.
type PreparedRequest = (
    http::request::Parts,
    Option<FormCheck>,
    SendRequest<RequestBody>,
);

/// A request for a target, and the connection to it.
pub(super) struct ForwardedRequest<'a> {
    /// The head for the target.
    pub(super) head: http::request::Parts,
    /// The check of the body, if it is a form.
    pub(super) form: Option<FormCheck>,
    /// The connection, whose bytes are counted.
    pub(super) target: Box<dyn Io>,
    /// What the response has to meet.
    pub(super) rules: ResponseRules<'a>,
    /// What ends the request from outside of it.
    pub(super) ends: EndConditions<'a>,
}

impl ForwardProxy {
    /// Records that the connection is open, sends the request, returns the response, and closes.
    pub(super) async fn forward<S>(
        &self,
        client: ClientStream<S>,
        request: ProxyRequest,
        (opened, form): (OpenConnection, Option<FormCheck>),
        mut audited: AuditedConnection,
        ends_at: Instant,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if let Some(credential) = &opened.credential {
            audited.record.note_credential(&credential.name);
        }
        let Ok(head) = target_head(&request, &opened.url, opened.credential.as_deref()) else {
            // The fields were accepted and the URL is canonical, so this does not happen.
            let refusal = ProxyRefusal::Response;
            audited.refused(refusal).await;
            return client.close_with(&refusal.http_response()).await;
        };
        if let Err(refusal) = self.record_opened(&mut audited).await {
            audited.refused(refusal).await;
            return client.close_with(&refusal.http_response()).await;
        }
        let limits = self.settings().limits;
        let ends_at = opened.ends_at(ends_at);
        let OpenConnection {
            io,
            slots,
            decision,
            quota,
            credential,
            answer,
            ..
        } = opened;
        let target = TargetStream::new(io, limits, audited.counts.clone()).with_quota(quota);
        let forwarded = ForwardedRequest {
            head,
            form,
            target: Box::new(target),
            rules: ResponseRules {
                decision: decision.as_ref(),
                credential: credential.as_deref(),
            },
            ends: EndConditions {
                ends_at,
                answer: answer.as_ref(),
            },
        };
        let end = self.run_forwarded(client, forwarded, &mut audited).await;
        drop(slots);
        audited.closed(end).await;
    }

    /// Sends the request of `client` and returns the response. Both connections are closed at the end.
    pub(super) async fn run_forwarded<S>(
        &self,
        client: ClientStream<S>,
        forwarded: ForwardedRequest<'_>,
        audited: &mut AuditedConnection,
    ) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ForwardedRequest {
            head,
            form,
            target,
            rules,
            ends,
        } = forwarded;
        let status = OnceLock::new();
        let form_decision = form.as_ref().map(|form| form.decision().clone());
        let response = ResponseCheck {
            rules,
            status: &status,
            refused: OnceLock::new(),
            wants_websocket: head.headers.contains_key(UPGRADE),
            upgrade: Mutex::new(None),
            counts: &audited.counts,
            idle_timeout: self.settings().idle_timeout,
            is_silent: OnceLock::new(),
        };
        let exchange = Box::pin(exchange(client, target, (head, form), &response));
        let end = self.watch(exchange, &audited.counts, ends).await;
        audited.record.hop().status = status.get().copied();
        let refused = response.refused.get();
        if let (Some(Code::PolicyDenied), Some(decision)) = (refused, form_decision) {
            audited.record.note_refused_method(decision);
        }
        match refused {
            Some(code) => ConnectionEnd::of_response(*code),
            None if response.is_silent.get().is_some() => ConnectionEnd::Idle,
            None => end,
        }
    }
}

/// The conditions for a response, and the result of checking them.
struct ResponseCheck<'a> {
    /// What the response has to meet.
    rules: ResponseRules<'a>,
    /// Status of the target, once there is one.
    status: &'a OnceLock<u16>,
    /// The reason why the rule refused it.
    refused: OnceLock<Code>,
    /// Whether the request asks for WebSocket.
    wants_websocket: bool,
    /// Both ends, once the target agreed to WebSocket.
    upgrade: Mutex<Option<PendingUpgrade>>,
    /// The bytes of the connection.
    counts: &'a ByteCounts,
    /// Longest silence before a response.
    idle_timeout: Duration,
    /// Set when the target was silent for so long.
    is_silent: OnceLock<()>,
}

impl ResponseCheck<'_> {
    /// The refusal that the client gets in place of a response, from the error of the request.
    fn failure(&self, error: &hyper::Error) -> ProxyRefusal {
        if let Some(limit) = self.counts.limit_reached() {
            return ProxyRefusal::of_limit(limit);
        }
        if error.source().is_some_and(is_method_in_body) {
            // It is set once: there is one request.
            let _ = self.refused.set(Code::PolicyDenied);
            return ProxyRefusal::Guard(Code::PolicyDenied, FetchPhase::Policy);
        }
        // hyper reports a failed body of the client, a dropped task and some heads as user errors. The task is polled
        // here until the end, and this module does not make such heads, so the body is the cause.
        if error.is_user() {
            return ProxyRefusal::Head(HeadError::Body);
        }
        let refusal = refusal_without_head(error);
        if refusal == ProxyRefusal::Response {
            // It is set once, as above.
            let _ = self.refused.set(Code::MalformedResponse);
        }
        refusal
    }

    /// Records that the response is malformed, and makes the one that the client gets in its place.
    fn refuse_malformed(&self) -> Response<ForwardBody> {
        // It is set once: there is one request.
        let _ = self.refused.set(Code::MalformedResponse);
        refusal_response(ProxyRefusal::Response)
    }
}

/// Whether a form that names a method caused the error of a request body.
fn is_method_in_body(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    let inner = error.and_then(io::Error::get_ref);
    matches!(inner, Some(inner) if inner.is::<MethodInBody>())
}

/// One request and one response.
async fn exchange<S>(
    mut client: ClientStream<S>,
    target: Box<dyn Io>,
    (head, form): (http::request::Parts, Option<FormCheck>),
    check: &ResponseCheck<'_>,
) -> ConnectionEnd
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = client_builder()
        .handshake(TokioIo::new(InterimIo::new(target)))
        .await;
    let Ok((sender, connection)) = handshake else {
        return ConnectionEnd::Broken;
    };
    // The head for the target has the judged one.
    client.hide_target();
    let pending: PendingRequest = Mutex::new(Some((head, form, sender)));
    let service = service_fn(|request: Request<Incoming>| {
        let pending = pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        async move {
            let mut response = answer(pending, request, check).await;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                // One request for each judged target.
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        // Without keep-alive hyper adds `close` to the `Connection` of a 101 too, which strict clients refuse.
        .keep_alive(check.wants_websocket)
        .auto_date_header(false)
        .max_headers(MAX_FIELDS)
        .max_buf_size(MAX_HEAD_BYTES.max(BUFFER_BYTES))
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    let running = async {
        // Failures of the connection reach the request or the body that waits for it.
        let _ = connection.with_upgrades().await;
        std::future::pending::<Infallible>().await
    };
    tokio::pin!(running);
    let served = tokio::select! {
        served = serving => served,
        _ = &mut running => return ConnectionEnd::Broken,
    };
    let upgrade = check.upgrade.lock();
    let upgrade = upgrade.unwrap_or_else(PoisonError::into_inner).take();
    match (served, upgrade) {
        (Ok(()), Some(upgrade)) => tokio::select! {
            end = upgrade.relay_messages(check.counts) => end,
            // The connection is still polled, because only then does it hand its stream over to the upgrade.
            _ = &mut running => ConnectionEnd::Broken,
        },
        (Ok(()), None) if check.status.get().is_some() => ConnectionEnd::Closed,
        _ => ConnectionEnd::Broken,
    }
}

/// Sends the request to the target, with the body of the client's request. Returns the response for the client.
async fn answer(
    pending: Option<PreparedRequest>,
    mut request: Request<Incoming>,
    check: &ResponseCheck<'_>,
) -> Response<ForwardBody> {
    let Some(prepared) = pending else {
        return refusal_response(ProxyRefusal::Response);
    };
    let client = hyper::upgrade::on(&mut request);
    let mut response = match send_prepared(prepared, request.into_body(), check).await {
        Ok(response) => response,
        Err(refusal) => return refusal_response(refusal),
    };
    let target = hyper::upgrade::on(&mut response);
    let (mut parts, body) = response.into_parts();
    // Ambiguous framing is refused as in a fetch, and so is another protocol than the one that was asked
    // for.
    let framing = body_framing(parts.version, &parts.headers);
    let is_upgrade = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let is_agreed = check.wants_websocket && websocket::is_agreement(&parts.headers);
    let framing = match framing {
        Ok(framing) if !is_upgrade || is_agreed => framing,
        _ => return check.refuse_malformed(),
    };
    // It is set once: there is one request.
    let _ = check.status.set(parts.status.as_u16());
    if check.rules.remove_credential(&mut parts.headers).is_err() {
        return check.refuse_malformed();
    }
    let content = match check
        .rules
        .check(parts.status, &parts.headers, framing, &body)
    {
        Ok(content) => content,
        Err(code) => {
            // It is set once, as above.
            let _ = check.refused.set(code);
            return refusal_response(ProxyRefusal::Guard(code, FetchPhase::Head));
        }
    };
    remove_hop_fields(&mut parts.headers);
    unify_length(&mut parts.headers, framing);
    parts.version = http::Version::HTTP_11;
    if content == ResponseContent::Dropped {
        drop_content(parts.status, &mut parts.headers);
        return Response::from_parts(parts, Either::Right(Full::default()));
    }
    if is_upgrade {
        websocket::set_upgrade(&mut parts.headers);
        let upgrade = PendingUpgrade { client, target };
        *check.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }
    let body = LimitedBody::new(body, check.rules.max_bytes(), check.counts.clone());
    Response::from_parts(parts, Either::Left(body))
}

/// Sends the request with the body of the client's request, and waits for the head of the response. A body that its
/// target has to agree to is dropped when the response comes first.
async fn send_prepared(
    (head, form, mut sender): PreparedRequest,
    body: Incoming,
    check: &ResponseCheck<'_>,
) -> Result<Response<Incoming>, ProxyRefusal> {
    let (request, awaited) = if head.headers.contains_key(EXPECT) {
        let (request_body, sender_of_body) = RequestBody::awaited(form);
        let mut request = Request::from_parts(head, request_body);
        let agreement = await_agreement(&mut request);
        (request, Some((agreement, sender_of_body, body)))
    } else {
        let request_body = RequestBody::new(body, form);
        (Request::from_parts(head, request_body), None)
    };
    let handing_over = async {
        if let Some((agreement, sender_of_body, body)) = awaited {
            agreement.await;
            // A connection that is gone takes no body.
            let _ = sender_of_body.send(body);
        }
        std::future::pending::<Infallible>().await
    };
    let sent = tokio::select! {
        biased;
        sent = sender.send_request(request) => sent,
        () = check.counts.idle(check.idle_timeout) => {
            // It is set once: there is one request.
            let _ = check.is_silent.set(());
            return Err(ProxyRefusal::Guard(Code::Timeout, FetchPhase::Head));
        }
        never = handing_over => match never {},
    };
    sent.map_err(|error| {
        tracing::debug!(%error, "a target sent no valid response");
        check.failure(&error)
    })
}

fn refusal_response(refusal: ProxyRefusal) -> Response<ForwardBody> {
    let body = Full::new(Bytes::from(refusal.body()));
    let mut response = Response::new(Either::Right(body));
    *response.status_mut() = refusal.status();
    let fields = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&refusal.proxy_status()) {
        fields.insert(HeaderName::from_static("proxy-status"), value);
    }
    if let Some(seconds) = refusal.retry_after() {
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Removes the fields that a CGI server takes for the field `name`, because `_` stands for `-` there (RFC 3875, section
/// 4.1.18).
fn remove_namesakes(fields: &mut HeaderMap, name: &HeaderName) {
    let variable = name.as_str().replace('-', "_");
    let namesakes: Vec<HeaderName> = fields
        .keys()
        .filter(|other| other.as_str().replace('-', "_") == variable)
        .cloned()
        .collect();
    for namesake in namesakes {
        fields.remove(namesake);
    }
}

/// The head for the target, from the judged URL and the fields that travel on.
pub(super) fn target_head(
    request: &ProxyRequest,
    url: &CanonicalUrl,
    credential: Option<&Credential>,
) -> Result<http::request::Parts, http::Error> {
    let target = request_target(request, url, credential);
    let mut head = Request::builder()
        .method(request.method.clone())
        .uri(Uri::try_from(target.as_ref())?)
        .body(())?
        .into_parts()
        .0;
    let mut fields = request.fields.clone();
    remove_hop_fields(&mut fields);
    fields.remove(EXPECT);
    // The proxy declares the length of the body itself.
    fields.remove(CONTENT_LENGTH);
    fields.remove(HOST);
    head.headers
        .insert(HOST, HeaderValue::from_str(&url.host_header())?);
    head.headers.extend(fields);
    if expects_agreement(request) {
        let expectation = HeaderValue::from_static(CONTINUE_EXPECTATION);
        head.headers.insert(EXPECT, expectation);
    }
    if let Some((name, value)) = credential.and_then(Credential::header) {
        remove_namesakes(&mut head.headers, &name);
        head.headers.insert(name, value);
    }
    match request.framing {
        RequestFraming::Empty => {}
        RequestFraming::Length(length) => {
            head.headers
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        // hyper sends no body of a GET or HEAD whose head does not frame it.
        RequestFraming::Chunked => {
            head.headers
                .insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    head.headers
        .insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(head)
}
