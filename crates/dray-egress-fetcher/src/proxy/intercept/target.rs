//! The connection to the target of an intercepted tunnel, and the judgement of each request that it carries.

use dray_guard::RequestKind;

use super::super::form::FormCheck;
use super::super::forward::target_head;
use super::super::head::ProxyRequest;
use super::super::meter::{ByteCounts, StreamQuota, TargetStream};
use super::super::open::{overrides_of, refusal_of};
use super::super::persistent::PersistentTarget;
use super::super::refusal::ProxyRefusal;
use super::super::serve::ForwardProxy;
use super::super::websocket;
use super::InterceptedTunnel;
use crate::audit::AuditedConnection;
use crate::dial::Io;
use crate::error::FetchPhase;
use crate::fetch::{FetchJob, MethodOverrides};

impl ForwardProxy {
    /// Makes a connection ready for the request, judges the request and records it. Returns the head for the target,
    /// and the check of the body.
    pub(super) async fn admit_request(
        &self,
        request: &ProxyRequest,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
        is_kept: bool,
    ) -> Result<(http::request::Parts, Option<FormCheck>), ProxyRefusal> {
        reuse_target(tunnel, audited, is_kept);
        let job = self.request_job(request, tunnel)?;
        if tunnel.opened.is_none() {
            // A request that the rules refuse opens no connection, and is not charged for one.
            let is_approved = tunnel.approval_ends.is_some();
            self.check_request(&job, is_approved, audited).await?;
            self.open_target(tunnel, audited).await?;
        }
        self.judge_request(&job, tunnel, audited).await?;
        let opened = tunnel.opened.as_mut().ok_or(ProxyRefusal::Response)?;
        let identity = tunnel.terms.identity;
        let form = self.form_check(identity, request, opened, &mut audited.record)?;
        let credential = opened.credential.as_deref();
        if let Some(credential) = credential {
            audited.record.note_credential(&credential.name);
        }
        // The fields were accepted and the URL is canonical, so this does not happen.
        let head = target_head(request, &opened.url, credential);
        let mut head = head.map_err(|_| ProxyRefusal::Response)?;
        if request.wants_websocket() {
            websocket::set_upgrade(&mut head.headers);
        }
        // An event that cannot be stored stops the request before the target sees a byte of it.
        self.record_opened(audited).await?;
        Ok((head, form))
    }

    /// Begins TLS and HTTP on a new connection to the target.
    pub(super) async fn begin_target(
        &self,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
    ) -> Result<(), ProxyRefusal> {
        if tunnel.target.is_none() {
            let (io, wire) = self.secure(tunnel, audited).await?;
            tunnel.target = Some(PersistentTarget::start(io, wire).await?);
        }
        Ok(())
    }

    /// Opens a new connection to the target of the tunnel.
    async fn open_target(
        &self,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
    ) -> Result<(), ProxyRefusal> {
        // The new connection takes the slots and the place of the closed one.
        drop(tunnel.spent.take());
        let url = tunnel.url.clone();
        let text = url.to_string();
        let identity = tunnel.terms.identity;
        let judged = (RequestKind::Intercepted, MethodOverrides::default());
        let opened = self.open(identity, Ok(url), &text, judged, audited).await?;
        tunnel.approval_ends = opened.approval_ends;
        tunnel.opened = Some(opened);
        Ok(())
    }

    /// Does the TLS handshake with the target. Returns the stream inside, and quotas and counts of what is on the wire.
    pub(super) async fn secure(
        &self,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
    ) -> Result<(Box<dyn Io>, (StreamQuota, ByteCounts)), ProxyRefusal> {
        let opened = tunnel.opened.as_mut().ok_or(ProxyRefusal::Response)?;
        let limits = self.settings().limits;
        let io = opened.take_io();
        let counts = audited.counts.clone();
        let target = TargetStream::new(io, limits, counts.clone()).with_quota(opened.quota.clone());
        let quota = target.quota();
        let record = &mut audited.record;
        let secured = self
            .fetcher()
            .secure_target(Box::new(target), &opened.url, record)
            .await;
        let io = secured.map_err(|failure| refusal_of(&failure, record))?;
        tunnel.hop = record.hop().clone();
        Ok((io, (quota, counts)))
    }

    /// The request in the terms of a fetch, as one in absolute form.
    fn request_job(
        &self,
        request: &ProxyRequest,
        tunnel: &InterceptedTunnel<'_>,
    ) -> Result<FetchJob, ProxyRefusal> {
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
        Ok(FetchJob {
            overrides: overrides_of(request),
            ..self.job(tunnel.terms.identity, &url, kind)
        })
    }

    /// Judges the request by the rules, before a connection is opened for it. `is_approved` says whether a person has
    /// allowed the tunnel.
    async fn check_request(
        &self,
        job: &FetchJob,
        is_approved: bool,
        audited: &mut AuditedConnection,
    ) -> Result<(), ProxyRefusal> {
        let ports = &self.settings().connect_ports;
        let record = &mut audited.record;
        self.fetcher()
            .check_request(job, ports, is_approved, record)
            .await
            .map_err(|failure| refusal_of(&failure, record))
    }

    /// Judges the request on its connection, which is then one for its URL.
    async fn judge_request(
        &self,
        job: &FetchJob,
        tunnel: &mut InterceptedTunnel<'_>,
        audited: &mut AuditedConnection,
    ) -> Result<(), ProxyRefusal> {
        let ports = &self.settings().connect_ports;
        let opened = tunnel.opened.as_mut().ok_or(ProxyRefusal::Response)?;
        opened.approval_ends = tunnel.approval_ends;
        let wire_quota = tunnel.target.as_ref().map(PersistentTarget::wire_quota);
        // The stream holds the place of the request before, which the next one takes.
        wire_quota.inspect(|quota| quota.set(None));
        let record = &mut audited.record;
        self.fetcher()
            .judge_request(job, ports, opened, record)
            .await
            .map_err(|failure| refusal_of(&failure, record))?;
        wire_quota.inspect(|quota| quota.set(opened.quota.clone()));
        Ok(())
    }
}

/// Keeps the connection to the target if it can carry the request, or gives it up.
fn reuse_target(
    tunnel: &mut InterceptedTunnel<'_>,
    audited: &mut AuditedConnection,
    is_kept: bool,
) {
    audited.record.url = Some(tunnel.url.clone());
    let Some(target) = &tunnel.target else { return };
    // The last request needs a separate connection, for its body.
    if is_kept && target.is_ready() {
        audited.counts = target.counts_from_now();
        audited.record.hops = vec![tunnel.hop.clone()];
    } else {
        tunnel.release();
    }
}
