//! Calls whose approval was decided: the decision is recorded, and an approved call is made.

use dray_agent::message::{Message, Role};

use super::paused::DecidedCall;
use super::prepare::with_stable_names;
use super::rounds::{LoopError, ToolLoop};
use super::tally::TurnTally;
use crate::approvals::{ApprovalDecision, ApprovalStore, refusal_text};

/// Where decisions are recorded, and whose they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settlement<'a> {
    pub(super) approvals: &'a ApprovalStore,
    pub(super) principal: &'a str,
}

impl Settlement<'_> {
    /// Records all decisions, then makes the approved calls concurrently, and puts the results into their places.
    ///
    /// # Errors
    ///
    /// A decision that does not hold any more ends the request before a call is made whose own decision is not recorded.
    pub(super) async fn settle(
        self,
        mut decided: Vec<DecidedCall>,
        rounds: &ToolLoop<'_>,
        messages: &mut [Message],
        tally: &mut TurnTally,
    ) -> Result<(), LoopError> {
        if decided.is_empty() {
            return Ok(());
        }
        for call in &mut decided {
            let id = &call.paused.approval.id;
            let recorded =
                self.approvals
                    .decide(self.principal, id, &mut call.record, call.decision.clone());
            recorded.await.map_err(LoopError::Failed)?;
        }
        let (approved, refused): (Vec<_>, Vec<_>) = decided
            .into_iter()
            .partition(|call| call.decision == ApprovalDecision::Approved);
        for call in refused {
            if let ApprovalDecision::Refused { reason } = &call.decision {
                let text = refusal_text(reason.as_deref());
                place_result(
                    messages,
                    &call.paused.call.id,
                    Message::new(Role::Tool, text),
                );
            }
        }
        if !approved.is_empty() {
            rounds.announce_tools().await?;
        }
        let calls: Vec<_> = approved
            .iter()
            .map(|call| call.paused.call.clone())
            .collect();
        let ran = rounds.runner.call_all(&calls).await;
        for (mut call, ran) in approved.into_iter().zip(ran) {
            let result = rounds.take(ran?, tally).await?;
            let id = &call.paused.approval.id;
            self.approvals
                .keep_outcome(
                    self.principal,
                    id,
                    &mut call.record,
                    &with_stable_names(&result),
                )
                .await;
            place_result(messages, &call.paused.call.id, result);
        }
        Ok(())
    }
}

/// Puts a result in the place that was left for it. Ids of models may repeat, and the newest place is that of this turn.
fn place_result(messages: &mut [Message], id: &str, mut result: Message) {
    result.tool_call_id = Some(id.to_owned());
    let place = messages
        .iter_mut()
        .rfind(|message| message.role == Role::Tool && message.tool_call_id.as_deref() == Some(id));
    if let Some(place) = place {
        *place = result;
    }
}
