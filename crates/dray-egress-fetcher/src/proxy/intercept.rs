//! Tunnels into which the proxy looks: TLS with the client under a certificate of the operator's authority, judged
//! requests, and TLS with the target, whose certificate is verified as in a fetch.
//!
//! The requests are for the host and port for which the tunnel was opened: the head for the target is built from the
//! judged URL. Each is read strictly, judged and recorded before the target gets a byte of it, and the next one is read
//! when its response is complete. [`super::kept`] decides whether there is a next one. A request for WebSocket is judged
//! likewise; once its target agrees, messages pass unread.

use std::time::Duration;

use bytes::Bytes;
use dray_guard::{CanonicalUrl, Code, RequestKind, RuleDecision};
use dray_types::Deadline;
use http::header::CONNECTION;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client::ClientStream;
use super::forward::{ForwardedRequest, target_head};
use super::head::{ProxyRequest, RequestRecipient, head_length};
use super::kept::{KeptOutcome, KeptRequest, KeptTarget, is_keepable, read_body};
use super::meter::{ByteCounts, ByteLimits, StreamBounds, TargetStream};
use super::open::refusal_of;
use super::refusal::{ConnectionEnd, ProxyRefusal};
use super::serve::{ForwardProxy, TunnelTerms, read_head};
use super::websocket;
use crate::audit::AuditedConnection;
use crate::dial::Io;
use crate::error::FetchPhase;
use crate::fetch::OpenConnection;
use crate::record::HopRecord;

/// Most requests of one tunnel.
const MAX_TUNNEL_REQUESTS: usize = 256;
/// Longest wait for another request in a tunnel.
const NEXT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The stream of a client inside its tunnel.
type InnerClient<S> = ClientStream<TlsStream<ClientStream<S>>>;

/// The side of a tunnel towards its target, from one request to the next.
struct InterceptedTunnel<'a> {
    terms: TunnelTerms<'a>,
    /// The URL for which it was opened, without a path.
    url: CanonicalUrl,
    /// The judged connection; `None` once it can carry no further request.
    opened: Option<OpenConnection>,
    /// The one before, which is closed. Its slots and its place in quotas stay taken until the next one is opened.
    spent: Option<OpenConnection>,
    /// The open one after TLS, once it carries requests that can have successors.
    target: Option<KeptTarget>,
    /// How it was opened, for the events of further requests on it.
    hop: HopRecord,
    /// End of the answer that let the tunnel pass, without those for single requests.
    approval_ends: Option<Instant>,
}

/// A judged and recorded request.
enum BegunRequest {
    /// One that may have successors, with its whole body.
    Kept(Box<http::request::Parts>, Bytes),
    /// The last one of its tunnel, whose body follows, and the secured connection for it.
    Last(Box<http::request::Parts>, Box<dyn Io>),
}

impl InterceptedTunnel<'_> {
    /// Closes the connection to the target. A tunnel that waits for a request counts as one that has it.
    fn close_target(&mut self) {
        self.target = None;
        self.spent = self.opened.take();
    }

    /// Gives up the connection to the target, and its slots.
    fn release(&mut self) {
        self.target = None;
        self.opened = None;
        self.spent = None;
    }
}

impl ForwardProxy {
    /// Runs a granted tunnel whose `ClientHello` was judged.
    pub(super) async fn run_intercepted<S>(
        &self,
        client: ClientStream<S>,
        opened: OpenConnection,
        mut audited: AuditedConnection,
        terms: TunnelTerms<'_>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // Before anything can fail, so that the event of a refusal says it too.
        audited.is_intercepted = true;
        let mut client = match self.accept_tls(client, &opened.url).await {
            Ok(client) => client,
            Err(refusal) => {
                // The target and the slots are free before the client gets its response.
                drop(opened);
                return audited.refused(refusal).await;
            }
        };
        let auditor = audited.tunnel();
        let mut tunnel = InterceptedTunnel {
            terms,
            url: opened.url.clone(),
            approval_ends: opened.approval_ends,
            opened: Some(opened),
            spent: None,
            target: None,
            hop: HopRecord::default(),
        };
        for number in 1..=MAX_TUNNEL_REQUESTS {
            let is_last = number == MAX_TUNNEL_REQUESTS;
            let serving = self.serve_request(client, &mut tunnel, audited, is_last);
            let Some(kept) = Box::pin(serving).await else {
                return;
            };
            client = kept;
            if !self.await_request(&mut client, &mut tunnel).await {
                tunnel.release();
                return client.close_with(b"").await;
            }
            let deadline = Deadline::after(self.now_ms(), self.settings().open_timeout);
            audited = auditor.begin_request(deadline);
        }
    }

    /// Waits for the first byte of another request; whether there is one. A tunnel that waits holds its slots.
    async fn await_request<S>(
        &self,
        client: &mut InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
    ) -> bool
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let limit = NEXT_REQUEST_TIMEOUT.min(self.settings().idle_timeout);
        let ends_at = (Instant::now() + limit).min(tunnel.terms.ends_at);
        let idle = async {
            match &mut tunnel.target {
                Some(target) => target.keep_idle().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // A process that stops does not wait for tunnels between two requests.
            () = self.draining().cancelled() => false,
            () = tokio::time::sleep_until(ends_at) => false,
            // Before the client: a target that has closed must be noticed before a request is sent to it.
            never = idle => match never {},
            read = client.read_ahead() => read.is_ok(),
        }
    }

    /// Runs one request; the client if it may send another one.
    async fn serve_request<S>(
        &self,
        mut client: InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        mut audited: AuditedConnection,
        is_last: bool,
    ) -> Option<InnerClient<S>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let begun = self.begin_request(&mut client, tunnel, &mut audited, is_last);
        let begun = match Box::pin(begun).await {
            Ok(begun) => begun,
            Err(refusal) => {
                tunnel.release();
                audited.refused(refusal).await;
                client.close_with(&refusal.http_response()).await;
                return None;
            }
        };
        let (head, body) = match begun {
            BegunRequest::Kept(head, body) => (*head, body),
            BegunRequest::Last(head, io) => {
                self.finish_tunnel(client, tunnel, (*head, io), audited)
                    .await;
                return None;
            }
        };
        let outcome = self
            .run_kept(&mut client, tunnel, (head, body), &mut audited)
            .await;
        match outcome {
            Ok(()) => {
                audited.close_early(ConnectionEnd::Closed);
                Some(client)
            }
            Err((end, refusal)) => {
                // The place is free before the event is published.
                tunnel.release();
                let last = refusal.map(ProxyRefusal::http_response);
                let closing = client.close_with(last.as_deref().unwrap_or_default());
                tokio::join!(closing, audited.closed(end));
                None
            }
        }
    }

    /// Runs the last request of a tunnel, with its body.
    async fn finish_tunnel<S>(
        &self,
        client: InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        (head, io): (http::request::Parts, Box<dyn Io>),
        mut audited: AuditedConnection,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Some(opened) = tunnel.opened.take() else {
            return audited.closed(ConnectionEnd::Broken).await;
        };
        let ends_at = opened.ends_at(tunnel.terms.ends_at);
        let OpenConnection {
            decision, slots, ..
        } = opened;
        let end = self
            .run_request(client, io, head, decision.as_ref(), &mut audited, ends_at)
            .await;
        // Not before the last byte: the connection counts against its tenant until then.
        drop(slots);
        audited.closed(end).await;
    }

    /// Does the TLS handshake with the client, as the host of `url`.
    async fn accept_tls<S>(
        &self,
        client: ClientStream<S>,
        url: &CanonicalUrl,
    ) -> Result<InnerClient<S>, ProxyRefusal>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let authority = self.authority().ok_or(ProxyRefusal::NoAuthority)?;
        let config = authority
            .server_config(url.host(), self.now_ms() / 1000)
            .map_err(|error| {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "no certificate for an intercepted tunnel"
                );
                ProxyRefusal::Guard(Code::Internal, FetchPhase::Tls)
            })?;
        let accepting = TlsAcceptor::from(config).accept(client);
        let accepted = timeout(self.settings().hello_timeout, accepting).await;
        match accepted {
            Ok(Ok(stream)) => Ok(ClientStream::new(stream)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a client refused the certificate of the proxy");
                Err(ProxyRefusal::ClientTls)
            }
            Err(_) => Err(ProxyRefusal::ClientTls),
        }
    }

    /// Reads and judges a request, records it, and makes the connection to the target ready for it.
    async fn begin_request<S>(
        &self,
        client: &mut InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
        is_last: bool,
    ) -> Result<BegunRequest, ProxyRefusal>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // A target reads origin form, and so does this reader: an absolute URL could name another host.
        let reading = read_head(client, RequestRecipient::Server);
        let request = match timeout(self.settings().head_timeout, reading).await {
            Ok(read) => {
                read.map_err(|error| error.map_or(ProxyRefusal::SlowRequest, ProxyRefusal::Head))?
            }
            Err(_) => return Err(ProxyRefusal::SlowRequest),
        };
        let head_bytes = head_length(client.ahead(), 0).unwrap_or_default();
        let body_bytes = client.ahead().len().saturating_sub(head_bytes);
        let may_continue = !is_last && !self.draining().is_cancelled();
        let is_kept = may_continue && is_keepable(&request, body_bytes);
        self.prepare_target(tunnel, audited, is_kept).await?;
        self.judge_request(&request, tunnel, audited).await?;
        let opened = tunnel.opened.as_mut().ok_or(ProxyRefusal::Response)?;
        let credential = opened.credential.as_deref();
        if let Some(credential) = credential {
            audited.record.note_credential(&credential.name);
        }
        // Accepted fields and a canonical URL always make a request.
        let head = target_head(&request, &opened.url, credential);
        let mut head = head.map_err(|_| ProxyRefusal::Response)?;
        if request.wants_websocket() {
            websocket::set_upgrade(&mut head.headers);
        }
        // An event that cannot be stored stops the request before the target sees a byte of it.
        self.record_opened(audited).await?;
        if !is_kept {
            let (io, _) = self.secure(tunnel, audited).await?;
            return Ok(BegunRequest::Last(Box::new(head), io));
        }
        if !request.has_body() {
            // Without it, the connection may carry another request (RFC 9112, section 9.3). A target that does not read
            // a body would take it for one.
            head.headers.remove(CONNECTION);
        }
        client.consume(head_bytes);
        let reading = read_body(client, &request);
        let body = timeout(self.settings().idle_timeout, reading).await;
        let body = body.unwrap_or(Err(ProxyRefusal::SlowRequest))?;
        if tunnel.target.is_none() {
            let (io, wire) = self.secure(tunnel, audited).await?;
            tunnel.target = Some(KeptTarget::start(io, wire).await?);
        }
        Ok(BegunRequest::Kept(Box::new(head), body))
    }

    /// Opens a connection to the target of the tunnel, if none can carry the request.
    async fn prepare_target(
        &self,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
        is_kept: bool,
    ) -> Result<(), ProxyRefusal> {
        if let Some(target) = &tunnel.target {
            // The last request needs a connection of its own, for its body.
            if is_kept && target.is_ready() {
                audited.counts = target.counts_from_now();
                audited.record.url = Some(tunnel.url.clone());
                audited.record.hops = vec![tunnel.hop.clone()];
                return Ok(());
            }
            tunnel.release();
        }
        if tunnel.opened.is_none() {
            // The new connection takes its slots and its place.
            drop(tunnel.spent.take());
            let url = tunnel.url.clone();
            let text = url.to_string();
            let identity = tunnel.terms.identity;
            let kind = RequestKind::Intercepted;
            let opened = self.open(identity, Ok(url), &text, kind, audited).await?;
            tunnel.approval_ends = opened.approval_ends;
            tunnel.opened = Some(opened);
        }
        Ok(())
    }

    /// Does the TLS handshake with the target. Returns the stream inside, and bounds and counts of what is on the wire.
    async fn secure(
        &self,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
    ) -> Result<(Box<dyn Io>, (StreamBounds, ByteCounts)), ProxyRefusal> {
        let opened = tunnel.opened.as_mut().ok_or(ProxyRefusal::Response)?;
        let limits = self.settings().limits;
        let io = opened.take_io();
        let counts = audited.counts.clone();
        let target = TargetStream::new(io, limits, counts.clone()).with_quota(opened.quota.clone());
        let bounds = target.bounds();
        let record = &mut audited.record;
        let secured = self
            .fetcher()
            .secure_target(Box::new(target), &opened.url, record)
            .await;
        let io = secured.map_err(|failure| refusal_of(&failure, record))?;
        tunnel.hop = record.hop().clone();
        Ok((io, (bounds, counts)))
    }

    /// Judges the request as one in absolute form. The connection is then one for its URL.
    async fn judge_request(
        &self,
        request: &ProxyRequest,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
    ) -> Result<(), ProxyRefusal> {
        let url = request
            .url_in_tunnel(&tunnel.url)
            .map_err(|code| match code {
                Some(code) => ProxyRefusal::Guard(code, FetchPhase::Url),
                None => ProxyRefusal::HostMismatch,
            })?;
        if !request.has_fitting_host(&url) {
            return Err(ProxyRefusal::HostMismatch);
        }
        if request.wants_websocket() && !request.is_websocket_handshake() {
            return Err(ProxyRefusal::WebSocket);
        }
        let kind = RequestKind::Request(request.method.to_string());
        let job = self.job(tunnel.terms.identity, &url, kind);
        let ports = &self.settings().connect_ports;
        let opened = tunnel.opened.as_mut().ok_or(ProxyRefusal::Response)?;
        opened.approval_ends = tunnel.approval_ends;
        let bounds = tunnel.target.as_ref().map(KeptTarget::wire_bounds);
        // The stream holds the place of the request before, which the next one takes.
        bounds.inspect(|bounds| bounds.set_quota(None));
        let record = &mut audited.record;
        self.fetcher()
            .judge_request(&job, ports, opened, record)
            .await
            .map_err(|failure| refusal_of(&failure, record))?;
        bounds.inspect(|bounds| bounds.set_quota(opened.quota.clone()));
        Ok(())
    }

    /// Sends a request that may have successors, and returns the response. An error ends the tunnel, with a last response
    /// for the client where it got none.
    async fn run_kept<S>(
        &self,
        client: &mut InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        (head, body): (http::request::Parts, Bytes),
        audited: &mut AuditedConnection,
    ) -> Result<(), (ConnectionEnd, Option<ProxyRefusal>)>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (Some(target), Some(opened)) = (tunnel.target.as_mut(), &tunnel.opened) else {
            return Err((ConnectionEnd::Broken, Some(ProxyRefusal::Response)));
        };
        let ends_at = opened.ends_at(tunnel.terms.ends_at);
        let request = KeptRequest {
            head,
            body,
            decision: opened.decision.as_ref(),
        };
        let (mut status, mut outcome) = (None, KeptOutcome::Broken);
        let exchanging = async {
            outcome = target.exchange(client, request, &mut status).await;
            outcome.end()
        };
        let watching = self.watch(exchanging, &audited.counts, ends_at);
        let end = Box::pin(watching).await;
        audited.record.hop().status = status;
        if target.exceeds_rule() {
            return Err((ConnectionEnd::TooLarge, None));
        }
        match (end, outcome) {
            (
                ConnectionEnd::Closed,
                KeptOutcome::Answered {
                    keeps_client: true,
                    keeps_target,
                },
            ) => {
                if !(keeps_target && target.is_ready()) {
                    tunnel.close_target();
                }
                Ok(())
            }
            (end, KeptOutcome::Refused(refusal)) => Err((end, Some(refusal))),
            (end, KeptOutcome::Answered { .. } | KeptOutcome::Broken) => Err((end, None)),
        }
    }

    /// Sends the last request of a tunnel and returns the response. The limit of the rule counts what is inside of TLS.
    async fn run_request<S>(
        &self,
        client: InnerClient<S>,
        io: Box<dyn Io>,
        head: http::request::Parts,
        decision: Option<&RuleDecision>,
        audited: &mut AuditedConnection,
        ends_at: Instant,
    ) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let of_rule = decision.and_then(RuleDecision::max_bytes);
        let limits = ByteLimits {
            up: u64::MAX,
            down: of_rule.unwrap_or(u64::MAX),
        };
        let inner_counts = ByteCounts::default();
        let forwarded = ForwardedRequest {
            head,
            target: Box::new(TargetStream::new(io, limits, inner_counts.clone())),
            decision,
            ends_at,
        };
        let end = self.run_forwarded(client, forwarded, audited).await;
        match inner_counts.limit_reached() {
            Some(_) => ConnectionEnd::TooLarge,
            None => end,
        }
    }
}
