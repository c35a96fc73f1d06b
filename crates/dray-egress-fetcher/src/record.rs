//! The facts of one fetch, written down while they happen, so that they are complete however it ends.
//!
//! Audit events and metrics are made from it. It holds no query, fragment, user info, header value or body byte (S-5).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dray_guard::{
    CanonicalUrl, ClassifiedAddress, Code, DnssecStatus, PolicyStep, RuleDecision, RuleName,
    RuleOwner, StepLog, StepObserver as _,
};
use tokio::time::Instant;

use crate::body::BodyCounts;
use crate::coding::ContentCoding;
use crate::error::FetchPhase;
use crate::fetch::QuestionId;
use crate::sink::ContentOrigin;
use crate::tls::TlsSession;

mod probable_target;

pub use probable_target::RequestedOrigin;

/// One fetch so far.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of the audit event, and they are independent"
)]
pub struct FetchRecord {
    /// SHA-256 (hex) of the effective policy (C-4).
    pub policy_digest: String,
    /// SHA-256 (hex) of the policy files; empty without them.
    pub rules_digest: String,
    /// Decision of the policy files about the last URL that they judged.
    pub decision: Option<RuleDecision>,
    /// Whether that refused a method which the request names in place of that of its request line.
    pub is_override_refused: bool,
    /// The first rule or limit in report-only mode that would have refused it.
    pub reported: Option<Arc<RuleName>>,
    /// The first line of a robots.txt that would have refused it, where that is only reported.
    pub robots_reported: Option<Arc<RuleName>>,
    /// The quota that refused or ended it.
    pub quota: Option<Arc<RuleName>>,
    /// The question about the last host of which a person was asked.
    pub question: Option<QuestionId>,
    /// The end of the answer that let the request pass.
    pub approval_ends: Option<Instant>,
    /// Names of the operator's credentials that were sent.
    pub credentials: Vec<String>,
    /// Use of the cache for the last hop; `None` without a cache.
    pub cache: Option<CacheUse>,
    /// Decision of the robots.txt of the last host; `None` where it was not fetched.
    pub robots: Option<RobotsRecord>,
    /// Method of the request; empty where it is not visible.
    pub method: String,
    /// The operator's switch for all fetches.
    pub admin_enabled: bool,
    /// The app's switch; `None` when the app sets none.
    pub app_enabled: Option<bool>,
    /// The first URL, when it could be read.
    pub url: Option<CanonicalUrl>,
    /// The probable parts of the first URL, if it could not be read.
    pub tried: Option<RequestedOrigin>,
    /// Every hop that was entered or refused.
    pub hops: Vec<HopRecord>,
    /// Attempts after the first one.
    pub retries: u32,
    /// Redirects that were followed in the last attempt.
    pub redirect_count: u32,
    /// Media type as declared, sanitised.
    pub content_type: String,
    /// Body bytes that were received and stored so far.
    pub counts: BodyCounts,
    /// Body bytes of robots.txt files that were received for it, on the wire.
    pub robots_bytes: u64,
    /// Coding that was undone.
    pub coding: Option<ContentCoding>,
    /// SHA-256 (hex) of the stored bytes.
    pub sha256: String,
    /// Whether the sender stated the length, or the end was certain, and it matched.
    pub length_verified: bool,
    /// The steps of the judgement of the first URL.
    pub steps: StepLog,
    /// Whether this record explains a judgement without a fetch.
    pub lookup_only: bool,
    /// The end of the fetch; `None` while it runs.
    pub end: Option<FetchEnd>,
    /// Time spent in each phase.
    pub times: PhaseTimes,
    /// Failed DNS questions, by [`crate::resolve::DnsError::kind`].
    pub dns_errors: Vec<&'static str>,
    /// Connections whose peer was not the pinned address. Always none (T-2).
    pub pin_mismatches: u32,
    /// Start of the fetch; taken when it ends.
    began: Option<Instant>,
    /// The phase that is under way, and since when.
    under_way: Option<(FetchPhase, Instant)>,
}

/// Use of the cache for a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// A stored response was used without a question to its server.
    Hit,
    /// The server confirmed a stored response.
    Revalidated,
    /// No stored response could be used.
    Miss,
}

impl CacheUse {
    /// Every use, for labels.
    pub const ALL_USES: [Self; 3] = [Self::Hit, Self::Revalidated, Self::Miss];

    /// The name in audit events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
        }
    }
}

/// The decision of a robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RobotsRecord {
    /// The consequence for the request.
    pub outcome: RobotsOutcome,
    /// The line that decided, from 1; 0 where none did.
    pub line: u32,
}

/// The consequence of a robots.txt for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsOutcome {
    /// The robots.txt allows the request.
    Allowed,
    /// The robots.txt refuses the request, which the configuration only reports.
    Reported,
    /// The robots.txt refuses the request.
    Denied,
}

impl RobotsOutcome {
    /// The name in audit events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Reported => "reported",
            Self::Denied => "denied",
        }
    }
}

/// The end of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// The file was stored.
    Stored,
    /// No step refuses the URL, and the request only asked for the judgement.
    Judged,
    /// The fetch was refused or failed.
    Failed {
        /// The reason, as in the reply.
        code: Code,
        /// The phase that was under way.
        phase: FetchPhase,
    },
    /// The future was dropped, since its caller had disconnected.
    Cancelled {
        /// The phase that was under way.
        phase: FetchPhase,
    },
}

/// Time spent by phase, over all hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// The whole fetch, waiting included.
    pub total: Duration,
    /// Resolving, over all hops.
    pub dns: Duration,
    /// Connecting, over all hops.
    pub connect: Duration,
    /// TLS handshakes, over all hops.
    pub tls: Duration,
    /// Waiting for response heads, over all hops.
    pub head: Duration,
    /// Receiving the body, storing included.
    pub body: Duration,
}

impl PhaseTimes {
    fn add(&mut self, phase: FetchPhase, time: Duration) {
        match phase {
            FetchPhase::Dns => self.dns += time,
            FetchPhase::Connect => self.connect += time,
            FetchPhase::Tls => self.tls += time,
            FetchPhase::Head => self.head += time,
            FetchPhase::Body => self.body += time,
            // These phases do no separate I/O, or are part of another phase.
            FetchPhase::Policy | FetchPhase::Url | FetchPhase::Sink | FetchPhase::Total => {}
        }
    }
}

/// One request of the chain, or the attempt to make one.
#[derive(Clone, Debug, Default)]
pub struct HopRecord {
    /// Number of the attempt, 0 for the first one of the fetch.
    pub attempt: u32,
    /// Number within the chain, 0 for the first URL.
    pub index: u32,
    /// The URL of the request; `None` for a target that could not be read.
    pub url: Option<CanonicalUrl>,
    /// The probable parts of that target.
    pub tried: Option<RequestedOrigin>,
    /// CNAME targets of the answer.
    pub cnames: Vec<String>,
    /// Every address of the answer, with its class.
    pub answers: Vec<ClassifiedAddress>,
    /// The address of the connection. If no connection was made, the first address that was tried.
    pub chosen: Option<SocketAddr>,
    /// Address of the other end of the connection.
    pub peer: Option<SocketAddr>,
    /// The upstream proxy that made the connection; `None` without one.
    pub upstream_proxy: Option<SocketAddr>,
    /// Local port of the connection; 0 without one.
    pub local_port: u16,
    /// Version and certificate, once the handshake succeeded.
    pub tls: Option<TlsSession>,
    /// Status of the response.
    pub status: Option<u16>,
    /// HTTP version of the response.
    pub http_version: Option<http::Version>,
    /// The DNSSEC status that the resolver reports; `None` where no name was resolved.
    pub dnssec: Option<DnssecStatus>,
    /// Whether the hop is a request for a robots.txt.
    pub is_robots: bool,
    /// The reason if the chain ended here.
    pub code: Option<Code>,
}

impl FetchRecord {
    /// Starts the clock of the fetch, in phase [`FetchPhase::Policy`].
    pub(crate) fn begin(&mut self) {
        let now = Instant::now();
        self.began = Some(now);
        self.under_way = Some((FetchPhase::Policy, now));
    }

    /// Begins the judgement of the first URL again, with an answer that was not available before.
    pub(crate) fn judge_again(&mut self) {
        self.steps = StepLog::default();
        self.hops.clear();
    }

    /// Enters `phase` and adds the time of the one before to its total.
    pub(crate) fn at(&mut self, phase: FetchPhase) {
        let now = Instant::now();
        if let Some((before, since)) = self.under_way.replace((phase, now)) {
            self.times.add(before, now - since);
        }
    }

    /// The fetch ended, or was cancelled: notes the times that are still running. Returns the phase that was under
    /// way; `None` when it had ended before.
    pub(crate) fn ended(&mut self) -> Option<FetchPhase> {
        let now = Instant::now();
        // The instant is taken, so that a second call changes nothing.
        if let Some(began) = self.began.take() {
            self.times.total = now - began;
        }
        let (phase, since) = self.under_way.take()?;
        self.times.add(phase, now - since);
        Some(phase)
    }

    /// Takes over the judgement of a request inside an intercepted tunnel. The hop of the tunnel stays.
    pub(crate) fn take_judgement(&mut self, judged: Self) {
        self.policy_digest = judged.policy_digest;
        self.rules_digest = judged.rules_digest;
        self.url = judged.url.or(self.url.take());
        self.tried = judged.tried;
        self.method = judged.method;
        self.steps = judged.steps;
        self.decision = judged.decision;
        self.is_override_refused = judged.is_override_refused;
        self.quota = judged.quota.or(self.quota.take());
        self.reported = judged.reported.or(self.reported.take());
        self.question = judged.question.or(self.question);
        self.approval_ends = judged.approval_ends;
    }

    /// Notes what the policy files decide about the URL of a hop.
    pub(crate) fn note_decision(&mut self, decision: Option<RuleDecision>) {
        let Some(decision) = decision else { return };
        if let Some(reported) = &decision.reported {
            self.note_report(reported);
        }
        self.decision = Some(decision);
    }

    /// Notes the decision that refuses a method which the request names in addition to its request line.
    pub(crate) fn note_refused_method(&mut self, decision: RuleDecision) {
        self.note_decision(Some(decision));
        self.is_override_refused = true;
        // A log keeps the first judgement of a step, which was that of the request line, so the log is replaced.
        self.steps = StepLog::default();
        let verdict = Err(Code::PolicyDenied);
        let step = PolicyStep::PolicyRules;
        let _ = self.steps.observe(step, RuleOwner::Operator, verdict);
    }

    /// The rule in report mode that would have refused the fetch. A rule comes before a robots.txt, which has fields of
    /// its own.
    pub fn reported_by(&self) -> Option<&Arc<RuleName>> {
        self.reported.as_ref().or(self.robots_reported.as_ref())
    }

    /// Notes what would have been refused; the first one counts.
    pub(crate) fn note_report(&mut self, rule: &Arc<RuleName>) {
        self.reported.get_or_insert_with(|| Arc::clone(rule));
    }

    /// Notes the head of the response of a hop.
    pub(crate) fn note_head(&mut self, parts: &http::response::Parts) {
        let hop = self.hop();
        hop.status = Some(parts.status.as_u16());
        hop.http_version = Some(parts.version);
    }

    /// Notes that a credential is sent, by name.
    pub(crate) fn note_credential(&mut self, name: &str) {
        if !self.credentials.iter().any(|credential| credential == name) {
            self.credentials.push(name.to_owned());
        }
    }

    /// Appends the record of a hop.
    pub(crate) fn enter(&mut self, index: u32, url: Option<&CanonicalUrl>) {
        self.hops.push(HopRecord {
            attempt: self.retries,
            index,
            url: url.cloned(),
            ..HopRecord::default()
        });
    }

    /// Closes a failed attempt; another one follows.
    pub(crate) fn retry(&mut self, code: Code) {
        self.at(FetchPhase::Policy);
        self.hop().code = Some(code);
        self.retries += 1;
        self.redirect_count = 0;
    }

    /// Whether the fetch had an earlier hop, including that of a robots.txt or of an earlier attempt.
    pub(crate) const fn continues(&self) -> bool {
        self.hops.len() > 1 || self.retries > 0
    }

    /// Returns the hop that is under way.
    pub(crate) fn hop(&mut self) -> &mut HopRecord {
        if self.hops.is_empty() {
            self.enter(0, None);
        }
        let last = self.hops.len() - 1;
        // An empty list has got its first hop above.
        #[expect(
            clippy::indexing_slicing,
            reason = "the index of the last element of a list that is not empty"
        )]
        &mut self.hops[last]
    }

    /// Where the file of this fetch comes from: the hosts of its last attempt, each once.
    pub(crate) fn origin(&self, media_type: &str) -> ContentOrigin {
        let attempt = self
            .hops
            .iter()
            .filter(|hop| hop.attempt == self.retries && !hop.is_robots)
            .filter_map(|hop| hop.url.as_ref());
        let mut hosts: Vec<String> = Vec::new();
        for url in attempt {
            let host = url.host().to_string();
            // The last one sent the bytes, even where the chain came back to an earlier host.
            hosts.retain(|earlier| *earlier != host);
            hosts.push(host);
        }
        ContentOrigin {
            hosts,
            policy_digest: self.policy_digest.clone(),
            rules_digest: self.rules_digest.clone(),
            media_type: media_type.to_owned(),
        }
    }

    /// Number of the hop in which the fetch ended.
    pub fn last_hop(&self) -> u32 {
        self.hops.last().map_or(0, |hop| hop.index)
    }
}
