//! The rules of the policy files in a fetch: which ones hold, and what they demand of a response.

use std::sync::{Arc, PoisonError};

use dray_guard::{CallerRules, Code, RuleDecision, RuleSet};

use super::{FetchJob, Fetcher};
use crate::error::{FetchError, FetchPhase};
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

    /// The rules for the caller of `request`, which hold for its whole chain (C-4).
    pub(super) fn caller_rules(
        &self,
        request: &FetchJob,
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
        })
    }
}

/// The lower one of a limit and that of the rule that allows the request.
pub(super) fn rule_limit(limit: u64, decision: Option<&RuleDecision>) -> u64 {
    let of_rule = decision.and_then(RuleDecision::max_bytes);
    of_rule.map_or(limit, |of_rule| of_rule.min(limit))
}

/// Whether the rule that allowed the request allows this declared media type too.
pub(super) fn check_media_type(record: &FetchRecord, declared: &str) -> Result<(), FetchError> {
    let Some(decision) = &record.decision else {
        return Ok(());
    };
    decision
        .check_media_type(declared)
        .map_err(|code: Code| FetchError::new(code, FetchPhase::Head))
}
