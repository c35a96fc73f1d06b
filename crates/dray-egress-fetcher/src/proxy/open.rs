//! Opens the connection for a client: how its request is judged, and what the client gets after a refusal.

use dray_guard::proxy_token::ProxyIdentity;
use dray_guard::ruleset::overrides::body::FormBody;
use dray_guard::{
    CanonicalUrl, Code, PolicyStep, RequestKind, RequestView, RuleOwner, StepObserver as _,
};
use dray_types::ErrorChain;

use super::form::refuse_by;
use super::head::{ProxyRequest, overridden_methods};
use super::refusal::ProxyRefusal;
use super::serve::ForwardProxy;
use crate::audit::AuditedConnection;
use crate::error::{FetchError, FetchPhase};
use crate::fetch::{FetchJob, MethodOverrides, OpenConnection};
use crate::record::{FetchRecord, RequestedOrigin};
use crate::tls::TlsError;

impl ForwardProxy {
    /// Judges, connects and checks the peer.
    pub(super) async fn open(
        &self,
        identity: &ProxyIdentity,
        url: Result<CanonicalUrl, Code>,
        text: &str,
        (kind, overrides): (RequestKind, MethodOverrides),
        audited: &mut AuditedConnection,
    ) -> Result<OpenConnection, ProxyRefusal> {
        if kind == RequestKind::Intercepted && self.authority().is_none() {
            audited.record.url = url.ok();
            return Err(ProxyRefusal::NoAuthority);
        }
        let record = &mut audited.record;
        let url = match url {
            Ok(url) => url,
            // The operator's switch is judged first (3.1).
            Err(_) if !self.fetcher().admin().enabled => {
                let verdict = Err(Code::DisabledByAdmin);
                let _ =
                    record
                        .steps
                        .observe(PolicyStep::OperatorSwitch, RuleOwner::Operator, verdict);
                return Err(ProxyRefusal::Guard(
                    Code::DisabledByAdmin,
                    FetchPhase::Policy,
                ));
            }
            Err(code) => {
                let _ = record
                    .steps
                    .observe(PolicyStep::Url, RuleOwner::BuiltIn, Err(code));
                record.tried = Some(RequestedOrigin::from_text(text));
                return Err(ProxyRefusal::Guard(code, FetchPhase::Url));
            }
        };
        let settings = self.settings();
        let ports = if kind.is_tunnel() {
            &settings.connect_ports
        } else {
            &settings.http_ports
        };
        let job = FetchJob {
            overrides,
            ..self.job(identity, &url, kind)
        };
        let opened = self
            .fetcher()
            .open_connection(&job, ports, self.admission(), record)
            .await;
        opened.map_err(|failure| refusal_of(&failure, record))
    }

    /// Judges methods that a request names in addition to its request line.
    pub(super) fn judge_methods(
        &self,
        identity: &ProxyIdentity,
        methods: impl Iterator<Item = String>,
        opened: &OpenConnection,
        record: &mut FetchRecord,
    ) -> Result<(), ProxyRefusal> {
        let Some(rules) = self.fetcher().rules() else {
            return Ok(());
        };
        for method in methods {
            let view = RequestView::request(&opened.url, &method);
            let decision = rules.decide(&identity.caller(), &view);
            if !opened.allows(&decision) {
                return Err(refuse_by(decision, record));
            }
        }
        Ok(())
    }

    /// How a tunnel is judged: whether the policy files want to see what it carries.
    pub(super) fn tunnel_kind(
        &self,
        identity: &ProxyIdentity,
        url: &Result<CanonicalUrl, Code>,
    ) -> RequestKind {
        match (url, self.fetcher().rules()) {
            (Ok(url), Some(rules)) => rules.tunnel_kind(identity.tenant.as_str(), url),
            _ => RequestKind::Tunnel,
        }
    }

    /// The request of a client in the terms of a fetch.
    pub(super) fn job(
        &self,
        identity: &ProxyIdentity,
        url: &CanonicalUrl,
        kind: RequestKind,
    ) -> FetchJob {
        FetchJob {
            url: url.to_string(),
            app_policy: identity.policy(),
            tenant: identity.tenant.to_string(),
            // A session has the share of slots that an app has among fetches.
            app: identity.session.to_string(),
            caller: identity.caller(),
            kind,
            remaining: self.settings().open_timeout,
            ..FetchJob::default()
        }
    }
}

/// What the head of a request says about further methods: in its fields, and in the type of its body.
pub(super) fn overrides_of(request: &ProxyRequest) -> MethodOverrides {
    let has_unreadable_form =
        request.has_body() && matches!(FormBody::of(&request.fields), FormBody::Unreadable);
    MethodOverrides {
        methods: overridden_methods(&request.fields).collect(),
        has_unreadable_form,
    }
}

/// The refusal that the client gets for a failure.
pub(super) fn refusal_of(failure: &FetchError, record: &FetchRecord) -> ProxyRefusal {
    let cause = std::error::Error::source(failure).map(|cause| ErrorChain(cause).to_string());
    tracing::info!(code = %failure.code, phase = %failure.phase, cause, "refused a proxied connection");
    match (failure.code, record.question) {
        (Code::ApprovalRequired, Some(id)) => ProxyRefusal::Approval(id),
        (Code::QuotaExceeded, _) => ProxyRefusal::quota(failure.retry_after),
        (Code::TlsError, _) if is_about_certificate(failure) => ProxyRefusal::TargetCertificate,
        (code, _) => ProxyRefusal::Guard(code, failure.phase),
    }
}

fn is_about_certificate(failure: &FetchError) -> bool {
    let cause = std::error::Error::source(failure);
    let cause = cause.and_then(|cause| cause.downcast_ref::<TlsError>());
    cause.is_some_and(TlsError::is_about_certificate)
}
