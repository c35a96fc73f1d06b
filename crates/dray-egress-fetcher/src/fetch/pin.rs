//! Resolves the name of a hop and checks its addresses.

use std::sync::Arc;

use dray_guard::{
    CanonicalName, CanonicalUrl, Chain, DnsAnswer, Host, Judge, PinnedAddresses, PolicyStep,
    RefusedHop, RuleOwner, StepObserver as _,
};

use super::{FetchContext, Fetcher};
use crate::error::{FetchError, FetchPhase};
use crate::record::FetchRecord;

impl Fetcher {
    /// Resolves the name and checks the addresses. Every address that is dialled comes from this function.
    pub(super) async fn pin(
        &self,
        chain: &Chain,
        url: &CanonicalUrl,
        judge: &Arc<Judge>,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<PinnedAddresses, FetchError> {
        let judged = match url.host() {
            Host::Ip(ip) => judge.judge_literal(*ip, url.port(), chain.context()),
            Host::Name(name) => {
                let answer = self.look_up(name, judge, context, record).await;
                let verdict = answer.as_ref().map(|_| ()).map_err(|error| error.code);
                // The verdict is only recorded here; the refusal is returned below with its cause.
                let _ = record
                    .steps
                    .observe(PolicyStep::Resolution, RuleOwner::BuiltIn, verdict);
                judge.judge_answer(&answer?, url.port(), chain.context())
            }
        };
        let verdict = judged.as_ref().map(|_| ()).map_err(|refused| refused.code);
        let _ = record
            .steps
            .observe(PolicyStep::Addresses, RuleOwner::Operator, verdict);
        match judged {
            Ok(pinned) => {
                // The audit event lists every address of the DNS response, not only those that are dialled (section
                // 18).
                record.hop().answers = pinned.judged().to_vec();
                Ok(pinned)
            }
            Err(RefusedHop { code, judged }) => {
                record.hop().answers = judged;
                Err(FetchError::new(code, FetchPhase::Dns))
            }
        }
    }

    /// Resolves a name by DNS within the timeout of that phase.
    async fn look_up(
        &self,
        name: &CanonicalName,
        judge: &Judge,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<DnsAnswer, FetchError> {
        record.at(FetchPhase::Dns);
        let lookup = context
            .budget
            .within(
                FetchPhase::Dns,
                context.settings.limits.dns,
                self.network.resolver.lookup(name, judge),
            )
            .await;
        record.at(FetchPhase::Policy);
        let answer = lookup
            .inspect_err(|_| record.dns_errors.push("timeout"))?
            // The cause may contain text of the resolver, so it is only logged (I-8).
            .map_err(|error| {
                record.dns_errors.push(error.kind());
                FetchError::new(error.code(), FetchPhase::Dns).because(error)
            })?;
        let hop = record.hop();
        hop.cnames.clone_from(&answer.cnames);
        hop.dnssec = Some(answer.dnssec);
        Ok(answer)
    }
}
