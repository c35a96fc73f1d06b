//! Opens a connection for a client of the proxy, by the steps of a hop up to the check of the peer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dray_guard::{AllowedPorts, CanonicalUrl, Chain, Code, RequestKind, RequestView, RuleDecision};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::approval::{AskScope, HeldAnswer};
use super::hop::HopAdmission;
use super::{FetchJob, Fetcher};
use crate::credential::Credential;
use crate::dial::{DialWinner, Io};
use crate::error::{FetchError, FetchPhase};
use crate::limits::{AddressSlot, FetchAdmission, FetchSlot, QuotaLease};
use crate::record::FetchRecord;

/// A connection to a judged address, whose peer was checked. No byte was written to it yet.
pub struct OpenConnection {
    /// The connected and checked stream.
    pub io: Box<dyn Io>,
    /// The URL for which it was opened.
    pub url: CanonicalUrl,
    /// Decision of the policy files about the connection; `None` without files.
    pub decision: Option<RuleDecision>,
    /// The quota that counts the bytes of the connection; `None` without policy files.
    pub quota: Option<QuotaLease>,
    /// The credential for the request; `None` for tunnels.
    pub credential: Option<Arc<Credential>>,
    /// The end of the approval that allows the connection; `None` where no person was asked.
    pub approval_ends: Option<Instant>,
    /// The answer that allows the connection; `None` where no person was asked.
    pub answer: Option<HeldAnswer>,
    /// Whether a request inside of it was judged already. Its tunnel was charged for the first one.
    pub is_charged: bool,
    /// Held as long as the connection lives.
    pub slots: (FetchSlot, AddressSlot),
}

impl std::fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenConnection")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl OpenConnection {
    /// Takes the stream, for another layer around it, and leaves an empty one.
    pub fn take_io(&mut self) -> Box<dyn Io> {
        std::mem::replace(&mut self.io, Box::new(tokio::io::empty()))
    }

    /// Whether the decision about another method of its request lets it pass.
    pub fn allows(&self, decision: &RuleDecision) -> bool {
        allows_method(decision, self.approval_ends.is_some())
    }

    /// The earlier one of `limit` and the end of the approval.
    pub fn ends_at(&self, limit: Instant) -> Instant {
        self.approval_ends.map_or(limit, |end| end.min(limit))
    }
}

impl Fetcher {
    /// Judges the URL of `request` as [`Fetcher::fetch`] does, connects to a judged address and checks the peer. Sends
    /// nothing, not even TLS. Its slots come from `admission`; `ports` narrows the ports of the operator's policy.
    ///
    /// # Errors
    ///
    /// Every refusal and failure up to there. A panic is one too: `internal`.
    pub async fn open_connection(
        &self,
        request: &FetchJob,
        ports: &AllowedPorts,
        admission: &FetchAdmission,
        record: &mut FetchRecord,
    ) -> Result<OpenConnection, FetchError> {
        record.begin();
        let opening =
            AssertUnwindSafe(self.open_judged(request, ports, admission, record)).catch_unwind();
        let opened = opening
            .await
            .unwrap_or_else(|_| Err(FetchError::new(Code::Internal, FetchPhase::Connect)));
        record.ended();
        if let Err(failure) = &opened {
            record.hop().code = Some(failure.code);
        }
        opened
    }

    /// Judges a request inside an intercepted tunnel by the rules, before a connection is opened for it. `is_approved`
    /// says whether a person has allowed the tunnel. Charges nothing; [`Self::judge_request`] follows.
    ///
    /// # Errors
    ///
    /// Every refusal.
    pub async fn check_request(
        &self,
        request: &FetchJob,
        ports: &AllowedPorts,
        is_approved: bool,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        let mut judged = FetchRecord::default();
        let checked = self
            .judge_inside(request, ports, is_approved, &mut judged)
            .await;
        let Err(failure) = checked else { return Ok(()) };
        record.take_judgement(judged);
        let url = record.url.clone();
        record.enter(0, url.as_ref());
        record.hop().code = Some(failure.code);
        Err(failure)
    }

    /// Judges a request inside the intercepted tunnel `opened` by everything that needs no network. The connection is
    /// then one for the URL of the request, with its decision and credential. The quota was charged for the tunnel and
    /// its first request together; every further one is charged here, in place of the one before. A request that the
    /// rules refuse is not charged.
    ///
    /// # Errors
    ///
    /// Every refusal.
    pub async fn judge_request(
        &self,
        request: &FetchJob,
        ports: &AllowedPorts,
        opened: &mut OpenConnection,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        // A separate record, because the record of the connection keeps its hop.
        let mut judged = FetchRecord::default();
        let is_approved = opened.approval_ends.is_some();
        let result = self
            .judge_inside(request, ports, is_approved, &mut judged)
            .await;
        let result = result.and_then(|chain| {
            if opened.is_charged {
                // The quota is given back first: one tunnel takes one place among concurrent requests.
                opened.quota = None;
                opened.quota = self.admit_quota(chain.policy(), &mut judged)?;
            }
            opened.is_charged = true;
            Ok(chain.current().clone())
        });
        record.take_judgement(judged);
        let url = result.inspect_err(|failure| record.hop().code = Some(failure.code))?;
        opened.credential = self.credential_for(request, &url);
        opened.decision.clone_from(&record.decision);
        // The tunnel may have needed an answer too; the earlier end counts.
        let ends = [opened.approval_ends, record.approval_ends];
        opened.approval_ends = ends.into_iter().flatten().min();
        opened.answer = held_answer(request, record).or(opened.answer.take());
        opened.url = url;
        Ok(())
    }

    async fn judge_inside(
        &self,
        request: &FetchJob,
        ports: &AllowedPorts,
        is_approved: bool,
        judged: &mut FetchRecord,
    ) -> Result<Chain, FetchError> {
        let scope = AskScope {
            may_ask: true,
            ports: Some(ports),
        };
        let (chain, _) = self.begin_approved(request, scope, judged).await?;
        judge_overrides(request, &chain, is_approved, judged)?;
        Ok(chain)
    }

    /// Does the TLS handshake with the target of a connection, and verifies its certificate for the host of `url` as in
    /// a fetch.
    ///
    /// # Errors
    ///
    /// As the handshake of a fetch.
    pub async fn secure_target(
        &self,
        io: Box<dyn Io>,
        url: &CanonicalUrl,
        record: &mut FetchRecord,
    ) -> Result<Box<dyn Io>, FetchError> {
        let handshake = self.tls.handshake(io, url.host());
        let handshake = tokio::time::timeout(self.settings().limits.tls, handshake).await;
        let (code, cause) = match handshake {
            Ok(Ok((io, session))) => {
                record.hop().tls = Some(session);
                return Ok(io);
            }
            Ok(Err(error)) => (error.code(), Some(error)),
            Err(_) => (Code::Timeout, None),
        };
        record.hop().code = Some(code);
        let failure = FetchError::new(code, FetchPhase::Tls);
        Err(match cause {
            Some(cause) => failure.because(cause),
            None => failure,
        })
    }

    /// The credential of the operator for a request of the proxy.
    fn credential_for(&self, request: &FetchJob, url: &CanonicalUrl) -> Option<Arc<Credential>> {
        match &request.kind {
            // The response to a TRACE contains the fields of the request (RFC 9110, section 9.3.8), and some servers
            // read `trace` as `TRACE`.
            RequestKind::Request(method) if !method.eq_ignore_ascii_case("TRACE") => {
                let settings = self.settings();
                settings.credentials.find(&request.caller.tenant, url)
            }
            _ => None,
        }
    }

    async fn open_judged(
        &self,
        request: &FetchJob,
        ports: &AllowedPorts,
        admission: &FetchAdmission,
        record: &mut FetchRecord,
    ) -> Result<OpenConnection, FetchError> {
        let scope = AskScope {
            may_ask: true,
            ports: Some(ports),
        };
        let (mut chain, mut context) = self.begin_approved(request, scope, record).await?;
        context.admission = admission;
        let url = chain.current().clone();
        record.enter(0, Some(&url));
        if !ports.allows(url.port()) {
            return Err(FetchError::new(Code::PortNotAllowed, FetchPhase::Policy));
        }
        judge_overrides(request, &chain, false, record)?;
        let quota = self.admit_quota(chain.policy(), record)?;
        self.check_connection_breaker(&url)?;
        let HopAdmission {
            slot,
            address,
            pinned,
        } = self.admit(&chain, &url, &context, record).await?;
        chain.record_network(&pinned);
        let connected = self.connect(&pinned, address, &context, record).await;
        let winner = connected.inspect_err(|failure| {
            self.count_target_failure(&url, &request.tenant, failure);
        })?;
        self.check_peer(&winner, record)?;
        self.note_connection(&url);
        let credential = self.credential_for(request, &url);
        let DialWinner {
            stream,
            slot: address,
            ..
        } = winner;
        Ok(OpenConnection {
            io: stream.io,
            url,
            decision: record.decision.clone(),
            quota,
            credential,
            approval_ends: record.approval_ends,
            answer: held_answer(request, record),
            is_charged: false,
            slots: (slot, address),
        })
    }
}

/// The answer of a person that allowed the request in its judgement.
pub(super) fn held_answer(request: &FetchJob, record: &FetchRecord) -> Option<HeldAnswer> {
    let id = record.approval_ends.and(record.question)?;
    Some(HeldAnswer {
        tenant: request.caller.tenant.clone(),
        id,
    })
}

/// Judges the methods that the request names in place of that of its request line, which was judged before.
/// `is_approved` says whether a person has allowed the host in another judgement than this one.
fn judge_overrides(
    request: &FetchJob,
    chain: &Chain,
    is_approved: bool,
    record: &mut FetchRecord,
) -> Result<(), FetchError> {
    let Some(caller_rules) = chain.policy().rules() else {
        return Ok(());
    };
    let is_approved = is_approved || record.approval_ends.is_some();
    let (rules, caller, url) = (
        &caller_rules.rules,
        &caller_rules.caller,
        chain.current().clone(),
    );
    let overrides = &request.overrides;
    let views = overrides.methods.iter();
    let views = views.map(|method| RequestView::request(&url, method));
    // A form that cannot be read may name any method.
    let hidden = overrides
        .has_unreadable_form
        .then(|| RequestView::request(&url, request.kind.method()).with_hidden_method());
    let mut decisions = views.chain(hidden).map(|view| rules.decide(caller, &view));
    match decisions.find(|decision| !allows_method(decision, is_approved)) {
        Some(decision) => {
            record.note_refused_method(decision);
            Err(FetchError::new(Code::PolicyDenied, FetchPhase::Policy))
        }
        None => Ok(()),
    }
}

/// Whether the decision about a further method of a request lets it pass. An answer of a person is about the host, so it
/// holds for every method.
fn allows_method(decision: &RuleDecision, is_approved: bool) -> bool {
    decision.is_allowed() || (is_approved && decision.needs_approval())
}
