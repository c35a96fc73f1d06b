//! Tunnels into which the proxy looks: TLS with the client under a certificate of the operator's authority, one judged
//! request, and TLS with the target, whose certificate is verified as in a fetch.
//!
//! A tunnel carries one request, for the host and port for which it was opened: the head for the target is built from the
//! judged URL, and after the response the tunnel closes. So nothing that a client hides behind or inside a request
//! reaches a target. The target gets its first byte after the request was judged and recorded. A request for WebSocket is
//! judged likewise; once its target agrees, messages pass unread.

use dray_guard::{CanonicalUrl, Code, RequestKind, RuleDecision};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client::ClientStream;
use super::forward::{ForwardedRequest, target_head};
use super::head::{ProxyRequest, RequestRecipient};
use super::meter::{ByteCounts, ByteLimits, TargetStream};
use super::open::refusal_of;
use super::refusal::{ConnectionEnd, ProxyRefusal};
use super::serve::{ForwardProxy, TunnelTerms, read_head};
use super::websocket;
use crate::audit::AuditedConnection;
use crate::dial::Io;
use crate::error::FetchPhase;
use crate::fetch::OpenConnection;

/// The stream of a client inside its tunnel.
type InnerClient<S> = ClientStream<TlsStream<ClientStream<S>>>;

impl ForwardProxy {
    /// Runs a granted tunnel whose `ClientHello` was judged.
    pub(super) async fn run_intercepted<S>(
        &self,
        client: ClientStream<S>,
        mut opened: OpenConnection,
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
        let begun = self.begin_request(&mut client, &mut opened, &mut audited, &terms);
        let (io, request) = match Box::pin(begun).await {
            Ok(begun) => begun,
            Err(refusal) => {
                drop(opened);
                audited.refused(refusal).await;
                return client.close_with(&refusal.http_response()).await;
            }
        };
        let ends_at = opened.ends_at(terms.ends_at);
        let OpenConnection {
            decision, slots, ..
        } = opened;
        let decision = decision.as_ref();
        let end = self
            .run_request(client, io, request, decision, &mut audited, ends_at)
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
            .server_config(url.host(), self.now_s())
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

    /// Reads and judges the request, records it, and does the TLS handshake with the target.
    async fn begin_request<S>(
        &self,
        client: &mut InnerClient<S>,
        opened: &mut OpenConnection,
        audited: &mut AuditedConnection,
        terms: &TunnelTerms<'_>,
    ) -> Result<(Box<dyn Io>, http::request::Parts), ProxyRefusal>
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
        self.judge_request(&request, opened, audited, terms).await?;
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
        let limits = self.settings().limits;
        let io = opened.take_io();
        let target =
            TargetStream::new(io, limits, audited.counts.clone()).with_quota(opened.quota.clone());
        let record = &mut audited.record;
        let secured = self
            .fetcher()
            .secure_target(Box::new(target), &opened.url, record)
            .await;
        let io = secured.map_err(|failure| refusal_of(&failure, record))?;
        Ok((io, head))
    }

    /// Judges the request as one in absolute form. The connection is then one for its URL.
    async fn judge_request(
        &self,
        request: &ProxyRequest,
        opened: &mut OpenConnection,
        audited: &mut AuditedConnection,
        terms: &TunnelTerms<'_>,
    ) -> Result<(), ProxyRefusal> {
        let url = request
            .url_in_tunnel(&opened.url)
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
        let job = self.job(terms.identity, &url, kind);
        let ports = &self.settings().connect_ports;
        let record = &mut audited.record;
        self.fetcher()
            .judge_request(&job, ports, opened, record)
            .await
            .map_err(|failure| refusal_of(&failure, record))
    }

    /// Sends the request and returns the response. The limit of the rule counts what is inside of TLS.
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
