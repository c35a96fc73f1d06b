//! The bounds of one fetch: the rules and quotas of the policy files, the limits of its request, and their requirements
//! for a response.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dray_guard::{
    CallerRules, Code, EffectivePolicy, HostGrant, PolicyStep, RuleDecision, RuleOwner, RuleSet,
    StepObserver as _,
};
use dray_types::Clock;

use super::{FetchJob, FetchSettings, Fetcher, HostApprovals};
use crate::credential::CredentialStore;
use crate::error::{FetchError, FetchPhase};
use crate::limits::{QuotaExceeded, QuotaLease, QuotaTable};
use crate::record::FetchRecord;

/// Longest method in a record; longer ones are cut.
const MAX_METHOD_BYTES: usize = 32;

impl Fetcher {
    /// The rules of the policy files; `None` without files.
    pub fn rules(&self) -> Option<Arc<RuleSet>> {
        // A panic cannot leave an `Arc` half replaced.
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.clone()
    }

    /// Replaces the rules. Fetches and connections that were judged keep the old ones.
    pub fn set_rules(&self, rules: Arc<RuleSet>) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    /// Adds these credentials to requests for their hosts.
    #[must_use]
    pub fn with_credentials(self, credentials: CredentialStore) -> Self {
        let limits = self.settings().limits.clone();
        self.set_settings(FetchSettings {
            limits,
            credentials,
        });
        self
    }

    /// Asks people about hosts where the rules say so. Without it such hosts are refused.
    #[must_use]
    pub fn with_approvals(mut self, approvals: Arc<dyn HostApprovals>) -> Self {
        self.approvals = Some(approvals);
        self
    }

    /// Counts quotas by this clock; `replicas` processes share them.
    #[must_use]
    pub fn with_quotas(mut self, clock: Clock, replicas: u32) -> Self {
        self.quotas = QuotaTable::new(clock, replicas);
        self
    }

    /// Counts the request against the quotas of its caller. `None` without policy files.
    pub(super) fn admit_quota(
        &self,
        policy: &EffectivePolicy,
        record: &mut FetchRecord,
    ) -> Result<Option<QuotaLease>, FetchError> {
        let Some(CallerRules { rules, caller, .. }) = policy.rules() else {
            return Ok(None);
        };
        let admitted = self.quotas.admit(rules, caller);
        Self::observe_quota(admitted.as_ref().err(), record)?;
        Ok(admitted.ok().map(|(lease, reported)| {
            if let Some(reported) = reported {
                record.note_report(&reported);
            }
            lease
        }))
    }

    /// Checks that the quotas of the caller have room; counts nothing.
    pub(super) fn check_quota(
        &self,
        policy: &EffectivePolicy,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        let Some(CallerRules { rules, caller, .. }) = policy.rules() else {
            return Ok(());
        };
        let checked = self.quotas.check(rules, caller);
        Self::observe_quota(checked.as_ref().err(), record)
    }

    /// Adds the step to the explanation of a judgement.
    fn observe_quota(
        exceeded: Option<&QuotaExceeded>,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        let verdict = exceeded.map_or(Ok(()), |_| Err(Code::QuotaExceeded));
        let observed = record
            .steps
            .observe(PolicyStep::Quota, RuleOwner::Operator, verdict);
        let refills_in = exceeded.and_then(|exceeded| {
            record.quota = Some(Arc::clone(&exceeded.limit));
            exceeded.refills_in
        });
        observed
            .map_err(|code| FetchError::new(code, FetchPhase::Policy).with_retry_after(refills_in))
    }

    /// The rules for the caller of `request`, which hold for its whole chain (C-4).
    pub(super) fn caller_rules(
        &self,
        request: &FetchJob,
        grant: Option<HostGrant>,
        record: &mut FetchRecord,
    ) -> Option<CallerRules> {
        record.method = request
            .kind
            .method()
            .chars()
            .take(MAX_METHOD_BYTES)
            .collect();
        let rules = self.rules()?;
        rules.digest().clone_into(&mut record.rules_digest);
        Some(CallerRules {
            rules,
            caller: request.caller.clone(),
            kind: request.kind.clone(),
            grants: grant.into_iter().collect(),
        })
    }
}

/// The lower value of a limit and of the limit in the rule that allows the request.
pub(super) fn rule_limit(limit: u64, decision: Option<&RuleDecision>) -> u64 {
    let rule_limit = decision.and_then(RuleDecision::max_bytes);
    rule_limit.map_or(limit, |rule_limit| rule_limit.min(limit))
}

/// Checks that the rule that allowed the request allows this declared media type too.
pub(super) fn check_media_type(record: &FetchRecord, declared: &str) -> Result<(), FetchError> {
    let Some(decision) = &record.decision else {
        return Ok(());
    };
    decision
        .check_media_type(declared)
        .map_err(|code: Code| FetchError::new(code, FetchPhase::Head))
}

/// Adds the quota that caused a failure, if one did.
pub(super) fn quota_failure(
    failure: FetchError,
    quota: Option<&QuotaLease>,
    record: &mut FetchRecord,
) -> FetchError {
    if failure.code != Code::QuotaExceeded {
        return failure;
    }
    // This charges no byte: the bytes that were counted before show which quota it is.
    match quota.map(|quota| quota.charge(0)) {
        Some(Err(exceeded)) => {
            record.quota = Some(exceeded.limit);
            failure.with_retry_after(exceeded.refills_in)
        }
        _ => failure,
    }
}

/// When a quota refills, as a sentence.
pub(super) fn refill_time(delay: Duration) -> String {
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    match seconds {
        0..120 => format!("The quota refills in {seconds} seconds."),
        _ => format!("The quota refills in {} minutes.", seconds.div_ceil(60)),
    }
}
