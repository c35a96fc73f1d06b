//! Methods that the body of a request names, for requests whose rules depend on the method.
//!
//! A body is not held back: it is scanned as it passes. The request is broken off before the target has both a whole
//! name of this kind and the end of the body. A short body is known before it is sent, and a form in it is judged by
//! the methods that it names.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dray_guard::proxy_token::ProxyIdentity;
use dray_guard::ruleset::overrides::body::{FormBody, FormScanner};
use dray_guard::ruleset::overrides::methods_in_query;
use dray_guard::{Code, RequestView, RuleDecision};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::head::ProxyRequest;
use super::refusal::ProxyRefusal;
use super::serve::ForwardProxy;
use crate::fetch::OpenConnection;
use crate::record::FetchRecord;

/// Check of a form for methods that the request must not name.
#[derive(Debug)]
pub(super) struct FormCheck {
    scanner: FormScanner,
    /// The decision about a method that is not known, which refuses.
    decision: RuleDecision,
}

impl FormCheck {
    /// The decision by which a form that names a method is refused.
    pub(super) const fn decision(&self) -> &RuleDecision {
        &self.decision
    }
}

impl ForwardProxy {
    /// The check of the body of a judged request; `None` where every method is allowed, or the body is not a form.
    ///
    /// # Errors
    ///
    /// `policy_denied` for a form that cannot be read.
    pub(super) fn form_check(
        &self,
        identity: &ProxyIdentity,
        request: &ProxyRequest,
        opened: &OpenConnection,
        record: &mut FetchRecord,
    ) -> Result<Option<FormCheck>, ProxyRefusal> {
        let Some(rules) = self.fetcher().rules().filter(|_| request.has_body()) else {
            return Ok(None);
        };
        let view = RequestView::request(&opened.url, request.method.as_str()).with_hidden_method();
        let decision = rules.decide(&identity.caller(), &view);
        if opened.allows(&decision) {
            return Ok(None);
        }
        match FormBody::of(&request.fields) {
            FormBody::Other => Ok(None),
            FormBody::Unreadable => Err(refuse_by(decision, record)),
            FormBody::Form(scanner) => Ok(Some(FormCheck { scanner, decision })),
        }
    }

    /// Checks a whole body before it is sent.
    ///
    /// # Errors
    ///
    /// `policy_denied` for a form that names a forbidden method, or a form in a syntax whose values are not read.
    pub(super) fn judge_form(
        &self,
        identity: &ProxyIdentity,
        mut check: FormCheck,
        body: &[u8],
        (opened, record): (&OpenConnection, &mut FetchRecord),
    ) -> Result<(), ProxyRefusal> {
        if !check.scanner.finds_method(body) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(body);
        let methods: Vec<String> = methods_in_query(&text).collect();
        if !check.scanner.is_query() || methods.is_empty() {
            return Err(refuse_by(check.decision, record));
        }
        self.judge_methods(identity, methods.into_iter(), opened, record)
    }
}

/// Notes the decision that refuses a request after its request line was allowed.
pub(super) fn refuse_by(decision: RuleDecision, record: &mut FetchRecord) -> ProxyRefusal {
    record.note_refused_method(decision);
    ProxyRefusal::Guard(Code::PolicyDenied, crate::error::FetchPhase::Policy)
}

/// The body of a client's request. One that names a method fails, if a check is set.
#[derive(Debug)]
pub(super) struct RequestBody {
    source: BodySource,
    scanner: Option<FormScanner>,
}

/// Where the bytes of a body come from.
#[derive(Debug)]
enum BodySource {
    /// The client.
    Client(Incoming),
    /// The client, once the target agrees to the body.
    Awaited(oneshot::Receiver<Incoming>),
    /// Nowhere: the target has responded without it. The connection to the target ends with the response.
    Unwanted,
}

/// The error of a body that names a method.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body names a method that is not allowed")]
pub(super) struct MethodInBody;

impl RequestBody {
    pub(super) fn new(body: Incoming, check: Option<FormCheck>) -> Self {
        Self {
            source: BodySource::Client(body),
            scanner: check.map(|check| check.scanner),
        }
    }

    /// A body that the returned sender hands over later, or never.
    pub(super) fn awaited(check: Option<FormCheck>) -> (Self, oneshot::Sender<Incoming>) {
        let (sender, receiver) = oneshot::channel();
        let awaited = Self {
            source: BodySource::Awaited(receiver),
            scanner: check.map(|check| check.scanner),
        };
        (awaited, sender)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let BodySource::Awaited(receiver) = &mut self.source {
            let body = ready!(Pin::new(receiver).poll(cx));
            self.source = body.map_or(BodySource::Unwanted, BodySource::Client);
        }
        let BodySource::Client(body) = &mut self.source else {
            return Poll::Pending;
        };
        let Some(frame) = ready!(Pin::new(body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(io::Error::other)?;
        if let (Some(scanner), Some(data)) = (&mut self.scanner, frame.data_ref())
            && scanner.finds_method(data)
        {
            return Poll::Ready(Some(Err(io::Error::other(MethodInBody))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.source, BodySource::Client(body) if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Client(body) => body.size_hint(),
            // The head says how the body is framed.
            BodySource::Awaited(_) | BodySource::Unwanted => SizeHint::default(),
        }
    }
}
