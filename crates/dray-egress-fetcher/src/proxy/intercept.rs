//! Tunnels into which the proxy looks: TLS with the client under a certificate of the operator's authority, judged
//! requests, and TLS with the target, whose certificate is verified as in a fetch.
//!
//! The requests are for the host and port for which the tunnel was opened: the head for the target is built from the
//! judged URL. Each is read strictly, judged and recorded before the target gets a byte of it, and the next one is read
//! when its response is complete. [`super::persistent`] decides whether there is a next one. A request for WebSocket is
//! judged likewise; once its target agrees, messages pass unread.

use std::time::Duration;

use dray_guard::{CanonicalUrl, Code};
use dray_types::Deadline;
use http::header::UPGRADE;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client::ClientStream;
use super::form::FormCheck;
use super::forward::ForwardedRequest;
use super::head::{RequestRecipient, head_length};
use super::meter::{ByteCounts, ByteLimits, TargetStream};
use super::persistent::{PersistentTarget, is_keepable, read_body};
use super::refusal::{ConnectionEnd, ProxyRefusal};
use super::response::ResponseRules;
use super::serve::{EndConditions, ForwardProxy, TunnelTerms, read_head};
use crate::audit::{AuditedConnection, TunnelAuditor};
use crate::dial::Io;
use crate::error::FetchPhase;
use crate::fetch::OpenConnection;
use crate::record::HopRecord;

mod bounded;
mod target;

use bounded::{BoundedRequest, TunnelEnd, kept_head};

/// Most requests of one tunnel.
const MAX_TUNNEL_REQUESTS: usize = 256;
/// Longest wait for another request in a tunnel.
const NEXT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The stream of a client inside its tunnel.
type InnerClient<S> = ClientStream<TlsStream<ClientStream<S>>>;

/// The side of a tunnel towards its target, from one request to the next.
struct InterceptedTunnel<'a> {
    terms: TunnelTerms<'a>,
    /// The URL for which the tunnel was opened, without a path.
    url: CanonicalUrl,
    /// The judged connection; `None` once it can carry no further request.
    opened: Option<OpenConnection>,
    /// The earlier connection, which is closed. Its slots and its place in quotas stay taken until the next connection
    /// is opened.
    spent: Option<OpenConnection>,
    /// The open connection after TLS, once it carries requests that other requests may follow.
    target: Option<PersistentTarget>,
    /// The hop that opened the connection, for the events of further requests on it.
    hop: HopRecord,
    /// End of the answer that allowed the tunnel. Answers for single requests do not count.
    approval_ends: Option<Instant>,
}

/// The head of the last request for the target, and how its body is checked.
type LastHead = (http::request::Parts, Option<FormCheck>);

/// A judged and recorded request.
enum BegunRequest {
    /// A request after which the connection can carry another one.
    Kept(Box<BoundedRequest>),
    /// The last one of its tunnel, whose body follows, and the secured connection for it.
    Last(Box<LastHead>, Box<dyn Io>),
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
            let serving = self.serve_request(client, &mut tunnel, (audited, &auditor), is_last);
            let Some(kept) = Box::pin(serving).await else {
                return;
            };
            client = kept;
            if !self.await_request(&mut client, &mut tunnel).await {
                tunnel.release();
                return client.close_with(b"").await;
            }
            audited = self.begin_operation(&auditor);
        }
    }

    /// Waits for the first byte of another request. Returns whether one came. A tunnel that waits holds its slots.
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
            // The target is polled before the client: a target that has closed must be noticed before a request is
            // sent to it.
            never = idle => match never {},
            read = client.read_ahead() => read.is_ok(),
        }
    }

    /// Runs one request. Returns the client if it may send another request.
    async fn serve_request<S>(
        &self,
        mut client: InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        (mut audited, auditor): (AuditedConnection, &TunnelAuditor),
        is_last: bool,
    ) -> Option<InnerClient<S>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let begun = self.begin_request(&mut client, tunnel, &mut audited, is_last);
        let begun = match Box::pin(begun).await {
            Ok(begun) => begun,
            Err(refusal) => return refuse_request(client, tunnel, audited, refusal).await,
        };
        let mut request = match begun {
            BegunRequest::Kept(request) => *request,
            BegunRequest::Last(head, io) => {
                self.finish_tunnel(client, tunnel, (*head, io), audited)
                    .await;
                return None;
            }
        };
        let sending = self.run_bounded(&mut client, tunnel, &mut request, (&mut audited, auditor));
        let ended = match sending.await {
            Ok(ended) => ended,
            Err(refusal) => return refuse_request(client, tunnel, audited, refusal).await,
        };
        match ended {
            Ok(()) => {
                audited.close_early(ConnectionEnd::Closed);
                Some(client)
            }
            Err(TunnelEnd { end, refusal, .. }) => {
                // The place is free before the event is published.
                tunnel.release();
                let last = refusal.map(ProxyRefusal::http_response);
                let closing = client.close_with(last.as_deref().unwrap_or_default());
                tokio::join!(closing, audited.closed(end));
                None
            }
        }
    }

    /// Begins the record of a further request of a tunnel.
    fn begin_operation(&self, auditor: &TunnelAuditor) -> AuditedConnection {
        let deadline = Deadline::after(self.now_ms(), self.settings().open_timeout);
        auditor.begin_request(deadline)
    }

    /// Runs the last request of a tunnel, with its body.
    async fn finish_tunnel<S>(
        &self,
        client: InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        (head, io): (LastHead, Box<dyn Io>),
        mut audited: AuditedConnection,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Some(opened) = tunnel.opened.take() else {
            return audited.closed(ConnectionEnd::Broken).await;
        };
        let ends_at = opened.ends_at(tunnel.terms.ends_at);
        let OpenConnection {
            decision,
            credential,
            slots,
            answer,
            ..
        } = opened;
        let ends = EndConditions {
            ends_at,
            answer: answer.as_ref(),
        };
        let rules = ResponseRules {
            decision: decision.as_ref(),
            credential: credential.as_deref(),
        };
        let end = self
            .run_request(client, io, head, rules, &mut audited, ends)
            .await;
        // The slots are kept until the last byte: the connection counts against its tenant until then.
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
        let (head, form) = self
            .admit_request(&request, tunnel, audited, is_kept)
            .await?;
        if !is_kept {
            let (io, _) = self.secure(tunnel, audited).await?;
            return Ok(BegunRequest::Last(Box::new((head, form)), io));
        }
        let head = kept_head(head, &request);
        client.consume(head_bytes);
        let reading = read_body(client, &request);
        let body = timeout(self.settings().idle_timeout, reading).await;
        let body = body.unwrap_or(Err(ProxyRefusal::SlowRequest))?;
        if let (Some(form), Some(opened)) = (form, &tunnel.opened) {
            let judged = (opened, &mut audited.record);
            self.judge_form(tunnel.terms.identity, form, &body, judged)?;
        }
        self.begin_target(tunnel, audited).await?;
        Ok(BegunRequest::Kept(Box::new(BoundedRequest {
            request,
            head,
            body,
        })))
    }

    /// Sends the last request of a tunnel and returns the response. For WebSocket, the limit of the rule holds for all
    /// bytes inside of TLS, as in a tunnel; otherwise for the content of the response.
    async fn run_request<S>(
        &self,
        client: InnerClient<S>,
        io: Box<dyn Io>,
        (head, form): LastHead,
        rules: ResponseRules<'_>,
        audited: &mut AuditedConnection,
        ends: EndConditions<'_>,
    ) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let is_upgrade = head.headers.contains_key(UPGRADE);
        let limits = ByteLimits {
            up: u64::MAX,
            down: if is_upgrade {
                rules.max_bytes()
            } else {
                u64::MAX
            },
        };
        let inner_counts = ByteCounts::default();
        let forwarded = ForwardedRequest {
            head,
            form,
            target: Box::new(TargetStream::new(io, limits, inner_counts.clone())),
            rules,
            ends,
        };
        let end = self.run_forwarded(client, forwarded, audited).await;
        match inner_counts.limit_reached() {
            Some(_) => ConnectionEnd::TooLarge,
            None => end,
        }
    }
}

/// Ends a tunnel whose request was refused.
async fn refuse_request<S>(
    client: InnerClient<S>,
    tunnel: &mut InterceptedTunnel<'_>,
    audited: AuditedConnection,
    refusal: ProxyRefusal,
) -> Option<InnerClient<S>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    tunnel.release();
    audited.refused(refusal).await;
    client.close_with(&refusal.http_response()).await;
    None
}
