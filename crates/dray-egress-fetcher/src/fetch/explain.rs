//! Judges a URL without fetching it. Every step is judged by the code that judges a fetch.

use dray_guard::robots::RobotsMode;
use dray_guard::{CanonicalUrl, Host, RuleDecision, StepLog};

use super::approval::AskScope;
use super::{FetchContext, FetchFailure, FetchJob, Fetcher, record_failure};
use crate::error::FetchError;
use crate::limits::FetchSlot;
use crate::record::{FetchEnd, FetchRecord};

/// The judgement of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyExplanation {
    /// The steps that were judged, in order.
    pub steps: StepLog,
    /// The failure that a fetch would have; `None` when no judged step refuses the URL.
    pub refusal: Option<FetchFailure>,
    /// Whether every step was judged. `false` if the host is a name that was not looked up, or if a fetch would request
    /// its robots.txt.
    pub complete: bool,
    /// SHA-256 (hex) of the policy files; empty without them.
    pub rules_digest: String,
    /// The rule of the policy files that decided; empty where none did.
    pub decided_by: String,
    /// The quota that is used up; empty without one.
    pub quota: String,
    /// The rule or limit in report-only mode that would have refused the request; empty without one.
    pub reported_by: String,
}

impl Fetcher {
    /// Judges `request` as [`Fetcher::fetch`] does, up to the point where it would connect. Connects to nothing.
    ///
    /// With `resolve_names` a name is looked up once, in a slot of its tenant, app and host, as for a fetch. Otherwise
    /// no query is sent. Without a lookup, limits that depend on load are not judged. Responses are never judged.
    pub async fn explain(
        &self,
        request: &FetchJob,
        resolve_names: bool,
        record: &mut FetchRecord,
    ) -> PolicyExplanation {
        record.begin();
        record.lookup_only = true;
        let judged = self.judge_steps(request, resolve_names, record).await;
        record.ended();
        let (refusal, complete) = match judged {
            Ok(complete) => {
                record.end = Some(FetchEnd::Judged);
                (None, complete)
            }
            Err(failure) => (Some(record_failure(request, record, &failure)), true),
        };
        let decision = record.decision.as_ref();
        PolicyExplanation {
            steps: record.steps.clone(),
            refusal,
            complete,
            rules_digest: record.rules_digest.clone(),
            decided_by: decision.map_or_else(String::new, |decision| decision.rule.to_string()),
            quota: record
                .quota
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            reported_by: record
                .reported_by()
                .map_or_else(String::new, ToString::to_string),
        }
    }

    /// Returns whether every step was judged.
    async fn judge_steps(
        &self,
        request: &FetchJob,
        resolve_names: bool,
        record: &mut FetchRecord,
    ) -> Result<bool, FetchError> {
        let (chain, context) = self
            .begin_approved(request, AskScope::EXPLANATION, record)
            .await?;
        self.check_quota(chain.policy(), record)?;
        let url = chain.current().clone();
        let is_name = matches!(url.host(), Host::Name(_));
        if is_name && !resolve_names {
            return Ok(false);
        }
        record.enter(0, Some(&url));
        // A literal address needs no query, so nothing has to be limited.
        let _slot = if is_name {
            Some(self.lookup_slot(&url, &context).await?)
        } else {
            None
        };
        let judge = self.current_judge()?;
        self.pin(&chain, &url, &judge, &context, record).await?;
        // Only a fetch requests the file.
        let rule_mode = record.decision.as_ref().and_then(RuleDecision::robots);
        Ok(rule_mode.unwrap_or(context.settings.limits.robots) == RobotsMode::Ignore)
    }

    /// The slot of a lookup. A target whose breaker is open is refused as a fetch of it is.
    async fn lookup_slot(
        &self,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
    ) -> Result<FetchSlot, FetchError> {
        self.check_breaker(url, &context.request.tenant)?;
        let request = Self::slot_request(url, context, false);
        let slot = context
            .budget
            .within_total(context.admission.slot(request))
            .await?;
        slot.map_err(super::hop::overloaded_error)
    }
}
