//! Follows the redirect of a hop. Its target is judged, and a person may be asked about it.

use dray_guard::{Chain, Code, NextHop};

use super::hop::HopOutcome;
use super::{FetchContext, Fetcher, record_refusal};
use crate::error::{FetchError, FetchPhase};
use crate::record::{FetchRecord, RequestedOrigin};

impl Fetcher {
    /// Follows a redirect: its target becomes the current URL of the chain.
    pub(super) async fn follow(
        &self,
        chain: &mut Chain,
        status: u16,
        locations: &[Vec<u8>],
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<HopOutcome, FetchError> {
        let locations: Vec<&[u8]> = locations.iter().map(Vec::as_slice).collect();
        let next = self
            .redirect(chain, status, &locations, context, record)
            .await?;
        record.redirect_count = chain.followed();
        match next {
            NextHop::Follow => Ok(HopOutcome::Redirected),
            // This arm is not reached: `judge_head` returns `Redirect` only for statuses that are redirects.
            NextHop::Answer => Err(FetchError::new(Code::Internal, FetchPhase::Head)),
        }
    }

    /// Follows a redirect, with the answer of a person where the rules ask about its target.
    async fn redirect(
        &self,
        chain: &mut Chain,
        status: u16,
        locations: &[&[u8]],
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<NextHop, FetchError> {
        let tried = RequestedOrigin::redirect(chain.current(), locations);
        let refused = match chain.on_redirect(status, locations) {
            Ok(next) => return Ok(next),
            Err(refused) => refused,
        };
        let failure = record_refusal(record, chain.policy(), &refused, tried.clone());
        let (Code::ApprovalRequired, Some(target)) = (refused.code, &refused.target) else {
            return Err(failure);
        };
        let consulted = self.consult(context.request, target, true, record);
        chain.grant(context.budget.within_total(consulted).await??);
        // Removes the record of the refused hop: the approved hop is recorded again when it starts.
        record.hops.pop();
        chain
            .on_redirect(status, locations)
            .map_err(|refused| record_refusal(record, chain.policy(), &refused, tried))
    }
}
