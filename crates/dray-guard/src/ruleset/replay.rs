//! What another policy would have decided about requests that happened.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decide::{Caller, RequestView, RuleDecision, Undecided};
use super::{RuleName, RuleSet};

/// Most requests that a difference keeps as examples.
const MAX_EXAMPLES: usize = 3;
/// Most differences that are kept apart.
const MAX_CHANGES: usize = 1000;

/// A request that happened.
#[derive(Clone, Debug)]
pub struct RecordedRequest<'a> {
    /// Who asked.
    pub caller: Caller,
    /// What was asked for.
    pub request: RequestView<'a>,
    /// When, in Unix milliseconds.
    pub time_ms: u64,
}

/// The outcome of a policy for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayOutcome {
    /// It passes.
    Allow,
    /// It passes and is reported.
    Report,
    /// A person is asked.
    Ask,
    /// It is refused.
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

/// Requests whose outcome differs in the same way: same host, port and tenant, same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayChange {
    /// The tenant.
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
    /// Requests about which one policy decides by what was not recorded.
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
        let (Ok(old), Ok(new)) = (outcome(old, recorded), outcome(new, recorded)) else {
            self.undecided += 1;
            return;
        };
        self.judged += 1;
        if old.0 == new.0 {
            self.unchanged += 1;
            return;
        }
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
) -> Result<(ReplayOutcome, Arc<RuleName>), Undecided> {
    let Some(rules) = rules else {
        let name = RuleName {
            name: "none".to_owned(),
            place: String::new(),
        };
        return Ok((ReplayOutcome::Allow, Arc::new(name)));
    };
    let decision = rules.decide_recorded(&recorded.caller, &recorded.request)?;
    let rule = match &decision.reported {
        Some(reported) => Arc::clone(reported),
        None => Arc::clone(&decision.rule),
    };
    Ok((ReplayOutcome::of(&decision), rule))
}
