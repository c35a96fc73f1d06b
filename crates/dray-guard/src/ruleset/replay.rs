//! Replays recorded requests: what another policy would have decided about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decide::{Caller, ObservedPart, RequestView, RuleDecision, UnrecordedPart};
use super::{RuleName, RuleSet};
use crate::RequestKind;
use crate::canon::CanonicalUrl;
use crate::reason::Code;

/// Most requests that are kept as examples of a difference.
const MAX_EXAMPLES: usize = 3;
/// Most differences that are listed.
const MAX_CHANGES: usize = 1000;

/// The name that stands for no policy.
const NO_POLICY: &str = "none";

/// A request that was recorded.
#[derive(Clone, Debug)]
pub struct RecordedRequest<'a> {
    /// The caller that sent the request.
    pub caller: Caller,
    /// The requested target.
    pub request: RequestView<'a>,
    /// The answer that a person had given about its host.
    pub answer: RecordedAnswer,
    /// Time in Unix milliseconds.
    pub time_ms: u64,
}

/// The answer of a person about the host of a recorded request. A policy that asks would find the same answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordedAnswer {
    /// No person had answered.
    #[default]
    Missing,
    /// A person had allowed the host.
    Allowed,
    /// A person had denied the host.
    Denied,
}

/// The outcome of a policy for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayOutcome {
    /// The request is allowed.
    Allow,
    /// The request is allowed and reported.
    Report,
    /// A person is asked.
    Ask,
    /// The request is refused.
    Deny,
}

impl ReplayOutcome {
    /// The outcome of a decision.
    pub fn of(decision: &RuleDecision) -> Self {
        match (decision.is_allowed(), &decision.reported) {
            (false, _) if decision.needs_approval() => Self::Ask,
            (false, _) => Self::Deny,
            (true, Some(_)) => Self::Report,
            (true, None) => Self::Allow,
        }
    }

    /// The name in output and files: `allow`, `report`, `ask` or `deny`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Report => "report",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The outcome with which that of the new policy is compared.
#[derive(Clone, Debug)]
pub enum ReplayBaseline<'a> {
    /// The decision of these rules; `None` stands for no policy.
    Rules(Option<&'a RuleSet>),
    /// The recorded outcome, and the rule that decided it.
    Recorded(ReplayOutcome, Arc<RuleName>),
}

/// A request as its audit event records it.
#[derive(Clone, Debug, Default)]
pub struct RequestRecord<'a> {
    /// Scheme of its URL.
    pub scheme: &'a str,
    /// Host of its URL; an IPv6 address may be without brackets.
    pub host: &'a str,
    /// Port of its URL.
    pub port: u32,
    /// Protocol of the proxy's client: `connect`, `http` or `socks5`; empty for a fetch.
    pub proxy_protocol: &'a str,
    /// Stage of a proxied connection: `refused`, `opened` or `closed`.
    pub proxy_stage: &'a str,
    /// Whether it was a request inside a tunnel into which the proxy looked.
    pub is_intercepted: bool,
    /// Method; empty for tunnels and where it was not recorded.
    pub method: &'a str,
    /// The caller that sent the request.
    pub caller: Caller,
    /// Time of the request in Unix milliseconds.
    pub time_ms: u64,
    /// `allow` or `deny`.
    pub verdict: &'a str,
    /// The reason of a refusal or failure; empty on success.
    pub code: &'a str,
    /// Phase in which it ended.
    pub phase: &'a str,
    /// Whether a host was only looked up.
    pub is_lookup: bool,
    /// The rule that decided; empty without a policy.
    pub decided_by: &'a str,
    /// The rule that would have refused the request if all report-only rules were in force; empty without one.
    pub reported_by: &'a str,
    /// SHA-256 of the policy files that decided; empty without them, and in events of older services.
    pub rules_digest: &'a str,
    /// Id of the question to a person about the host; empty without one.
    pub question_id: &'a str,
    /// The rule that refused a proxied connection, by name; empty without one.
    pub refused_by: &'a str,
    /// Whether the last URL that was judged was the target of a redirect.
    pub is_redirected: bool,
}

/// Name in [`RequestRecord::refused_by`] of the refusal of a method that fields or body of a request name in place of
/// that of its request line. The record has only the method of the request line.
pub const METHOD_OVERRIDE_RULE: &str = "method_override";

/// Name in [`RequestRecord::refused_by`] of the refusal of a connection whose event could not be published. The event of
/// the same connection as an open one comes before it.
pub const UNAUDITED_RULE: &str = "audit";

/// Refusals by policies that depend on other requests of the caller, which a replay does not count.
const COUNTED_CODES: [Code; 2] = [Code::QuotaExceeded, Code::Overloaded];

/// Refusals by policies: another policy may decide otherwise. All other refusals of these phases hold under every
/// policy.
const POLICY_CODES: [Code; 4] = [
    Code::PolicyDenied,
    Code::ApprovalRequired,
    Code::QuotaExceeded,
    Code::Overloaded,
];

impl RequestRecord<'_> {
    /// The recorded decision.
    pub fn baseline(&self) -> ReplayBaseline<'static> {
        // A request that failed later, or that its target refused, passed the policy.
        let is_refused = self.verdict == "deny" && self.is_policy_code();
        let (outcome, rule) = match self.reported_by {
            _ if is_refused && self.code == Code::ApprovalRequired.as_str() => {
                (ReplayOutcome::Ask, self.decided_by)
            }
            _ if is_refused => (ReplayOutcome::Deny, self.decided_by),
            "" => (ReplayOutcome::Allow, self.decided_by),
            reported => (ReplayOutcome::Report, reported),
        };
        let rule = RuleName {
            // The name contains the place of the rule, because the policy may have changed since.
            name: if rule.is_empty() { NO_POLICY } else { rule }.to_owned(),
            place: String::new(),
        };
        ReplayBaseline::Recorded(outcome, Arc::new(rule))
    }

    /// Adds the request to a replay. Three kinds of records are skipped: those that are not about a request (a lookup,
    /// the end of a connection), refusals of the configuration or the guard, and records whose URL cannot be read.
    pub fn compare(
        &self,
        replay: &mut PolicyReplay,
        baseline: &ReplayBaseline<'_>,
        new: Option<&RuleSet>,
    ) {
        // One event of each connection counts: the one that says that it is open, or that it was refused before that.
        let is_later = self.proxy_stage == "closed" || self.refused_by == UNAUDITED_RULE;
        if self.is_lookup || is_later || self.is_other_refusal() {
            return;
        }
        let is_recorded = matches!(baseline, ReplayBaseline::Recorded(..));
        // The same files decide the same, even about parts that events do not contain.
        if is_recorded && new.is_some_and(|rules| rules.digest() == self.rules_digest) {
            replay.add_unchanged();
            return;
        }
        let host = match self.host {
            address if address.contains(':') && !address.starts_with('[') => format!("[{address}]"),
            host => host.to_owned(),
        };
        // The URL has no path, because events do not contain one.
        let text = format!("{}://{host}:{}/", self.scheme, self.port);
        let Ok(url) = CanonicalUrl::parse(&text) else {
            return;
        };
        let kind = match self.proxy_protocol {
            "" => RequestKind::Fetch,
            "http" => RequestKind::Request(self.method.to_owned()),
            _ if self.is_intercepted => RequestKind::Request(self.method.to_owned()),
            // The requests inside a tunnel were not recorded, and a policy that intercepts it would judge them.
            _ => new.map_or(RequestKind::Tunnel, |rules| {
                rules.tunnel_kind(&self.caller.tenant, &url)
            }),
        };
        let mut request = kind.view(&url);
        if kind != RequestKind::Tunnel {
            // An event contains only a hash of the path.
            request.path = ObservedPart::Unrecorded;
            if self.method.is_empty() && kind != RequestKind::Fetch {
                request.method = ObservedPart::Unrecorded;
            }
            if self.refused_by == METHOD_OVERRIDE_RULE {
                request.method = ObservedPart::Unrecorded;
            }
        }
        let recorded = RecordedRequest {
            caller: self.caller.clone(),
            request,
            answer: self.answer(),
            time_ms: self.time_ms,
        };
        let depends_on_more = self.has_code(&COUNTED_CODES) || self.is_redirect_refused();
        if is_recorded && depends_on_more && passes(new, &recorded) {
            replay.undecided += 1;
            return;
        }
        replay.compare(baseline, new, &recorded);
    }

    fn answer(&self) -> RecordedAnswer {
        match self.question_id {
            "" => RecordedAnswer::Missing,
            _ if self.code == Code::ApprovalRequired.as_str() => RecordedAnswer::Missing,
            // The refused method was judged after the host, which the person had allowed.
            _ if self.code == Code::PolicyDenied.as_str()
                && self.refused_by != METHOD_OVERRIDE_RULE =>
            {
                RecordedAnswer::Denied
            }
            _ => RecordedAnswer::Allowed,
        }
    }

    fn is_other_refusal(&self) -> bool {
        let is_early =
            matches!(self.phase, "policy" | "url") || self.code == Code::SsrfBlocked.as_str();
        self.verdict == "deny" && is_early && !self.is_policy_code()
    }

    /// Whether the policy allowed the recorded URL and refused the target of a redirect, which is not judged here.
    fn is_redirect_refused(&self) -> bool {
        self.is_redirected && self.verdict == "deny" && self.is_policy_code()
    }

    fn is_policy_code(&self) -> bool {
        self.has_code(&POLICY_CODES)
    }

    fn has_code(&self, codes: &[Code]) -> bool {
        codes.iter().any(|code| code.as_str() == self.code)
    }
}

/// Requests with the same difference: the same host, port and tenant, and the same two rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayChange {
    /// Tenant that sent the requests.
    pub tenant: String,
    /// Host and port.
    pub target: String,
    /// The outcome and rule of the old policy.
    pub old: (ReplayOutcome, Arc<RuleName>),
    /// The outcome and rule of the new policy.
    pub new: (ReplayOutcome, Arc<RuleName>),
    /// Number of requests.
    pub count: u64,
    /// Times of the first few, in Unix milliseconds.
    pub times_ms: Vec<u64>,
}

type ChangeKey = (
    String,
    String,
    (ReplayOutcome, Arc<RuleName>),
    (ReplayOutcome, Arc<RuleName>),
);

/// The difference of two policies over recorded requests.
#[derive(Clone, Debug, Default)]
pub struct PolicyReplay {
    changes: BTreeMap<ChangeKey, (u64, Vec<u64>)>,
    /// Requests that were judged by both policies.
    pub judged: u64,
    /// Requests with the same outcome.
    pub unchanged: u64,
    /// Requests with another outcome.
    pub changed: u64,
    /// Requests about which one of the policies cannot decide, because a part was not recorded.
    pub undecided: u64,
    /// Changed requests beyond the differences that are kept.
    pub not_listed: u64,
}

impl PolicyReplay {
    /// Judges one request by both policies. `None` stands for no policy, which allows everything.
    pub fn add(
        &mut self,
        old: Option<&RuleSet>,
        new: Option<&RuleSet>,
        recorded: &RecordedRequest<'_>,
    ) {
        self.compare(&ReplayBaseline::Rules(old), new, recorded);
    }

    /// Judges one request by a policy, and compares the outcome with another one.
    pub fn compare(
        &mut self,
        baseline: &ReplayBaseline<'_>,
        new: Option<&RuleSet>,
        recorded: &RecordedRequest<'_>,
    ) {
        let old = match baseline {
            ReplayBaseline::Rules(rules) => outcome(*rules, recorded),
            ReplayBaseline::Recorded(outcome, rule) => Ok((*outcome, Arc::clone(rule))),
        };
        let (Ok(old), Ok(new)) = (old, outcome(new, recorded)) else {
            self.undecided += 1;
            return;
        };
        if old.0 == new.0 {
            self.add_unchanged();
            return;
        }
        self.judged += 1;
        self.changed += 1;
        let request = &recorded.request;
        let target = format!("{}:{}", request.host, request.port);
        let key = (recorded.caller.tenant.clone(), target, old, new);
        if self.changes.len() >= MAX_CHANGES && !self.changes.contains_key(&key) {
            self.not_listed += 1;
            return;
        }
        let (count, times) = self.changes.entry(key).or_default();
        *count += 1;
        if times.len() < MAX_EXAMPLES {
            times.push(recorded.time_ms);
        }
    }

    fn add_unchanged(&mut self) {
        self.judged += 1;
        self.unchanged += 1;
    }

    /// The differences, those with the most requests first.
    pub fn changes(&self) -> Vec<ReplayChange> {
        let mut changes: Vec<ReplayChange> = self
            .changes
            .iter()
            .map(
                |((tenant, target, old, new), (count, times))| ReplayChange {
                    tenant: tenant.clone(),
                    target: target.clone(),
                    old: old.clone(),
                    new: new.clone(),
                    count: *count,
                    times_ms: times.clone(),
                },
            )
            .collect();
        changes.sort_by_key(|change| std::cmp::Reverse(change.count));
        changes
    }
}

fn outcome(
    rules: Option<&RuleSet>,
    recorded: &RecordedRequest<'_>,
) -> Result<(ReplayOutcome, Arc<RuleName>), UnrecordedPart> {
    let Some(rules) = rules else {
        let name = RuleName {
            name: NO_POLICY.to_owned(),
            place: String::new(),
        };
        return Ok((ReplayOutcome::Allow, Arc::new(name)));
    };
    let mut decision = rules.decide_recorded(&recorded.caller, &recorded.request)?;
    if recorded.answer == RecordedAnswer::Allowed {
        decision = decision.approved();
    }
    let rule = match &decision.reported {
        Some(reported) => Arc::clone(reported),
        None => Arc::clone(&decision.rule),
    };
    let outcome = match (ReplayOutcome::of(&decision), recorded.answer) {
        (ReplayOutcome::Ask, RecordedAnswer::Denied) => ReplayOutcome::Deny,
        (outcome, _) => outcome,
    };
    Ok((outcome, rule))
}

/// Whether a policy lets the request pass, as far as it decides about single requests.
fn passes(rules: Option<&RuleSet>, recorded: &RecordedRequest<'_>) -> bool {
    let outcome = outcome(rules, recorded).map(|(outcome, _)| outcome);
    matches!(outcome, Ok(ReplayOutcome::Allow | ReplayOutcome::Report))
}
