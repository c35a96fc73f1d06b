//! Serves one client of the proxy: reads its request, identifies it, opens the connection, and hands it to a tunnel or
//! to a forwarded request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::Meta;
use dray_guard::proxy_token::ProxyIdentity;
use dray_guard::{RequestKind, RuleDecision};
use dray_service::ReplaceableValue;
use dray_types::{Clock, Deadline, TenantId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::authority::InterceptionAuthority;
use super::certificate::ClientCertificate;
use super::client::ClientStream;
use super::client_tls::ClientTls;
use super::head::{
    HeadError, MAX_HEAD_BYTES, ProxyRequest, RequestRecipient, RequestTarget, check_beginning,
    head_length, parse_head, tunnel_url,
};
use super::http2::{StreamSlot, StreamSlots};
use super::identify::{ClientRequest, IdentifiedClient};
use super::listener::UnidentifiedPermit;
use super::meter::{ByteCounts, ByteLimits, LimitReached};
use super::open::overrides_of;
use super::refusal::{ConnectionEnd, ProxyRefusal};
use super::socks::SocksReply;
use crate::audit::{AuditedConnection, Auditor, ProxyProtocol};
use crate::config::ProxySettings;
use crate::fetch::{Fetcher, HeldAnswer, MethodOverrides, OpenConnection};
use crate::limits::FetchAdmission;
use crate::metrics::{ProxyMetrics, UNKNOWN_PROTOCOL};
use crate::record::RequestedOrigin;

/// The head of a granted tunnel over HTTP.
const TUNNEL_GRANT: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The forward proxy: the state that all its clients share.
#[derive(Debug)]
pub struct ForwardProxy {
    settings: ReplaceableValue<ProxySettings>,
    fetcher: Arc<Fetcher>,
    admission: FetchAdmission,
    auditor: Auditor,
    metrics: ProxyMetrics,
    clock: Clock,
    audit_required: bool,
    drain: CancellationToken,
    cut: CancellationToken,
    authority: Option<Arc<InterceptionAuthority>>,
    client_tls: Option<ClientTls>,
    streams: StreamSlots,
}

/// The conditions of one tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunnelTerms<'a> {
    /// The identity of the client.
    pub(super) identity: &'a ProxyIdentity,
    /// Whether the connection is an intercepted tunnel.
    pub(super) is_intercepted: bool,
    /// The bytes that grant it.
    pub(super) grant: &'a [u8],
    /// The instant at which the connection ends at the latest.
    pub(super) ends_at: Instant,
}

/// What ends an open connection from outside of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndConditions<'a> {
    /// The instant at which it ends at the latest.
    pub(super) ends_at: Instant,
    /// The answer of a person that allows it; `None` where no person was asked.
    pub(super) answer: Option<&'a HeldAnswer>,
}

impl ForwardProxy {
    /// A proxy over the pipeline of `fetcher`, whose policy holds for it too. `audit_required`: no byte passes without
    /// a published event.
    pub fn new(
        settings: ProxySettings,
        fetcher: Arc<Fetcher>,
        auditor: Auditor,
        metrics: ProxyMetrics,
        clock: Clock,
        audit_required: bool,
    ) -> Self {
        Self {
            admission: FetchAdmission::new(settings.sizes),
            streams: StreamSlots::new(&settings),
            settings: ReplaceableValue::new(settings),
            fetcher,
            auditor,
            metrics,
            clock,
            audit_required,
            drain: CancellationToken::new(),
            cut: CancellationToken::new(),
            authority: None,
            client_tls: None,
        }
    }

    /// Speaks TLS with clients, and asks for their certificates if it has authorities for them.
    #[must_use]
    pub fn with_client_tls(mut self, client_tls: Option<ClientTls>) -> Self {
        self.client_tls = client_tls;
        self
    }

    pub(super) const fn client_tls(&self) -> Option<&ClientTls> {
        self.client_tls.as_ref()
    }

    /// Intercepts the tunnels that the policy files name, with certificates of this authority. Without an authority
    /// they are refused.
    #[must_use]
    pub fn with_authority(mut self, authority: Option<Arc<InterceptionAuthority>>) -> Self {
        self.authority = authority;
        self
    }

    pub(super) fn authority(&self) -> Option<&InterceptionAuthority> {
        self.authority.as_deref()
    }

    pub(super) fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// A place for a stream of HTTP/2 of this tenant, or without an identity.
    pub(super) fn enter_stream(
        &self,
        tenant: Option<TenantId>,
    ) -> Result<StreamSlot, ProxyRefusal> {
        let max_per_tenant = self.settings().sizes.per_tenant;
        self.streams.enter(tenant, max_per_tenant)
    }

    /// The settings in force. A connection may take them several times; it keeps its times and limits from its
    /// beginning.
    pub fn settings(&self) -> Arc<ProxySettings> {
        self.settings.get()
    }

    /// Replaces the settings for later connections. Tokens of removed keys open no more connections; connections that
    /// are open stay open. Other numbers of places take effect only after a restart.
    pub fn set_settings(&self, settings: ProxySettings) {
        self.admission.set_sizes(settings.sizes);
        self.settings.replace(settings);
    }

    /// The slots of connections, which are separate from those of fetches.
    pub const fn admission(&self) -> &FetchAdmission {
        &self.admission
    }

    pub(super) const fn metrics(&self) -> &ProxyMetrics {
        &self.metrics
    }

    pub(super) const fn is_audit_required(&self) -> bool {
        self.audit_required
    }

    /// The byte limits of a tunnel: those of the configuration, and of the rule that allowed it.
    pub(super) fn limits_of(&self, opened: &OpenConnection) -> ByteLimits {
        let limits = self.settings().limits;
        let of_rule = opened.decision.as_ref().and_then(RuleDecision::max_bytes);
        ByteLimits {
            down: limits.down.min(of_rule.unwrap_or(u64::MAX)),
            ..limits
        }
    }

    /// Ends every open connection.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    /// Lets no connection begin anything new: each ends after its current request or tunnel.
    pub(super) fn drain(&self) {
        self.drain.cancel();
    }

    /// Cancelled when no connection may begin anything new.
    pub(super) const fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    /// Serves a client without a certificate until its connection ends. `permit` is given back once it is identified.
    pub async fn serve_client<S>(&self, io: S, permit: Option<UnidentifiedPermit>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_certified(io, None, permit).await;
    }

    /// Serves a client with the certificate that its TLS handshake verified.
    pub(super) async fn serve_certified<S>(
        &self,
        io: S,
        certificate: Option<ClientCertificate>,
        permit: Option<UnidentifiedPermit>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut client = ClientStream::new(io);
        let identified = Box::pin(self.identify(&mut client, certificate)).await;
        let IdentifiedClient { identity, request } = match identified {
            Ok(identified) => identified,
            Err(None) => return,
            Err(Some((refusal, last))) => {
                self.metrics.refused(UNKNOWN_PROTOCOL, refusal.code());
                let cause = std::error::Error::source(&refusal).map(ToString::to_string);
                tracing::debug!(
                    code = refusal.code(),
                    cause,
                    "refused a client of the proxy"
                );
                // The place is held meanwhile: a client that is refused again and again counts as unidentified.
                client.close_with(&last).await;
                return;
            }
        };
        drop(permit);
        let audited = self.begin(&identity, &request);
        let ends_at = Instant::now() + self.lifetime(&identity);
        match request {
            ClientRequest::Socks(target) => {
                Box::pin(self.serve_socks(client, &identity, &target, audited, ends_at)).await;
            }
            ClientRequest::Http(request) => {
                Box::pin(self.serve_http(client, &identity, *request, audited, ends_at)).await;
            }
        }
    }

    fn begin(&self, identity: &ProxyIdentity, request: &ClientRequest) -> AuditedConnection {
        let deadline = Deadline::after(self.clock.now_ms(), self.settings().open_timeout);
        let mut meta =
            Meta::new(identity.tenant.clone(), deadline).with_session(identity.session.clone());
        if let Some(app) = &identity.app {
            meta = meta.with_app(app.clone());
        }
        let protocol = match request {
            ClientRequest::Socks(_) => ProxyProtocol::Socks5,
            ClientRequest::Http(request) => match request.target {
                RequestTarget::Authority(_) => ProxyProtocol::Connect,
                RequestTarget::Absolute(_) | RequestTarget::Origin(_) => ProxyProtocol::Http,
            },
        };
        let mut audited = self
            .auditor
            .begin_connection(meta, protocol, self.metrics.clone());
        audited.client_certificate.clone_from(&identity.certificate);
        audited
    }

    /// Longest time of a connection: it does not outlive its token, nor its client certificate.
    fn lifetime(&self, identity: &ProxyIdentity) -> Duration {
        let remaining = identity
            .expires_s
            .saturating_mul(1000)
            .saturating_sub(self.clock.now_ms());
        self.settings()
            .tunnel_timeout
            .min(Duration::from_millis(remaining))
    }

    async fn serve_socks<S>(
        &self,
        client: ClientStream<S>,
        identity: &ProxyIdentity,
        target: &str,
        mut audited: AuditedConnection,
        ends_at: Instant,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let url = tunnel_url(target, |port| self.settings().is_plain_port(port));
        let kind = self.tunnel_kind(identity, &url);
        let terms = TunnelTerms {
            identity,
            is_intercepted: kind == RequestKind::Intercepted,
            grant: &SocksReply::Succeeded.message(),
            ends_at,
        };
        let judged = (kind, MethodOverrides::default());
        let opening = self.open(identity, url, target, judged, &mut audited);
        match Box::pin(opening).await {
            Ok(opened) => Box::pin(self.run_tunnel(client, opened, audited, terms)).await,
            Err(refusal) => {
                audited.refused(refusal).await;
                client.close_with(&refusal.socks_reply().message()).await;
            }
        }
    }

    async fn serve_http<S>(
        &self,
        client: ClientStream<S>,
        identity: &ProxyIdentity,
        request: ProxyRequest,
        mut audited: AuditedConnection,
        ends_at: Instant,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let url = request.url(|port| self.settings().is_plain_port(port));
        let (text, kind, overrides) = match &request.target {
            RequestTarget::Authority(authority) => {
                let kind = self.tunnel_kind(identity, &url);
                (authority, kind, MethodOverrides::default())
            }
            RequestTarget::Absolute(text) | RequestTarget::Origin(text) => {
                let kind = RequestKind::Request(request.method.to_string());
                (text, kind, overrides_of(&request))
            }
        };
        let is_request = !kind.is_tunnel();
        let terms = TunnelTerms {
            identity,
            is_intercepted: kind == RequestKind::Intercepted,
            grant: TUNNEL_GRANT,
            ends_at,
        };
        let has_other_host = url.as_ref().is_ok_and(|url| !request.has_fitting_host(url));
        let opened = if has_other_host {
            audited.record.tried = Some(RequestedOrigin::from_text(text));
            Err(ProxyRefusal::HostMismatch)
        } else {
            let judged = (kind, overrides);
            Box::pin(self.open(identity, url, text, judged, &mut audited)).await
        };
        let opened = opened.and_then(|opened| {
            if !is_request {
                return Ok((opened, None));
            }
            let form = self.form_check(identity, &request, &opened, &mut audited.record)?;
            Ok((opened, form))
        });
        match opened {
            Err(refusal) => {
                audited.refused(refusal).await;
                client.close_with(&refusal.http_response()).await;
            }
            Ok(opened) if is_request => {
                Box::pin(self.forward(client, request, opened, audited, ends_at)).await;
            }
            Ok((opened, _)) => {
                // The memory of the request is released before the tunnel, which may live long.
                drop(request);
                Box::pin(self.run_tunnel(client, opened, audited, terms)).await;
            }
        }
    }

    /// Runs an open connection until it ends by itself or must be ended.
    pub(super) async fn watch(
        &self,
        work: impl Future<Output = ConnectionEnd>,
        counts: &ByteCounts,
        ends: EndConditions<'_>,
    ) -> ConnectionEnd {
        tokio::select! {
            biased;
            // A limit shows as a broken connection in the layers above.
            end = work => match counts.limit_reached() {
                Some(LimitReached::Quota(_)) => ConnectionEnd::QuotaExceeded,
                Some(LimitReached::Up | LimitReached::Down) => ConnectionEnd::TooLarge,
                None => end,
            },
            () = self.cut.cancelled() => ConnectionEnd::Stopped,
            () = counts.idle(self.settings().idle_timeout) => ConnectionEnd::Idle,
            () = tokio::time::sleep_until(ends.ends_at) => ConnectionEnd::Expired,
            () = self.fetcher.answer_withdrawal(ends.answer) => ConnectionEnd::Denied,
        }
    }
}

/// Reads a request head. `None` when the client has disconnected.
pub(super) async fn read_head<S>(
    client: &mut ClientStream<S>,
    recipient: RequestRecipient,
) -> Result<ProxyRequest, Option<HeadError>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let mut searched = 0;
    let head = client.read_message(|bytes| match head_length(bytes, searched) {
        Some(length) if length <= MAX_HEAD_BYTES => {
            let head = bytes.get(..length).unwrap_or_default();
            Ok(Some((Bytes::copy_from_slice(head), 0)))
        }
        Some(_) => Err(HeadError::TooLarge),
        None if bytes.len() >= MAX_HEAD_BYTES => Err(HeadError::TooLarge),
        None => {
            check_beginning(bytes, searched)?;
            searched = bytes.len();
            Ok(None)
        }
    });
    let head = head.await?;
    let request = parse_head(&head, recipient).map_err(Some)?;
    // A forwarded request is read a second time, by the library that reads its body.
    if matches!(request.target, RequestTarget::Authority(_)) {
        client.consume(head.len());
    }
    Ok(request)
}
