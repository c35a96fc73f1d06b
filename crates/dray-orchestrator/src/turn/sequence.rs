//! The order of a turn, and its time limit. `hooks` and `rounds` are the parts of the sequence.

use dray_agent::event::FinishReason;
use dray_agent::manifest::hook::HookEvent;
use dray_agent::message::Message;

use super::hooks::{PlannedCall, call_hooks};
use super::paused::ResumedCalls;
use super::rounds::{LoopEnd, LoopError, ToolLoop, stop_at_budget};
use super::settle::Settlement;
use super::speech::TextRelay;
use super::tally::TurnTally;

/// Describes which part of a turn a request is.
#[derive(Debug, Default)]
pub(super) struct TurnPart {
    /// Whether the turn began in an earlier request, and this one brings results of the client's tools.
    pub(super) continues: bool,
    /// The beginning of the answer, which the client wrote; the model gets it last.
    pub(super) prefill: Option<Message>,
    /// Calls of an earlier request that waited for the client.
    pub(super) resumed: ResumedCalls,
    /// Whether another agent began the turn, and this agent continues it with its own hooks.
    pub(super) takes_over: bool,
}

/// The order of a turn: decisions about calls that waited, hooks of the start, the loop of model and tools, hooks of the
/// end. No hooks run after a failure, or in the middle of a turn that waits for its client.
#[derive(Debug)]
pub(super) struct TurnSequence<'a> {
    pub(super) hooks: &'a [PlannedCall],
    pub(super) part: TurnPart,
    pub(super) approvals: Settlement<'a>,
}

impl TurnSequence<'_> {
    /// Decisions come first: hooks and the model see their results.
    async fn run(
        self,
        rounds: &mut ToolLoop<'_>,
        messages: &mut Vec<Message>,
        speech: &mut TextRelay,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        let (start, end) = (HookEvent::OnRequestStart, HookEvent::OnCompletion);
        let TurnPart {
            continues,
            prefill,
            mut resumed,
            takes_over,
        } = self.part;
        if !continues {
            // The user wrote something else and is not asked again.
            resumed.end_later();
        }
        // The future is on the heap: few turns were paused, and all would be larger with it.
        let settling = self.approvals.settle(resumed, rounds, messages, tally);
        let waiting = Box::pin(settling).await?;
        if !waiting.is_empty() {
            return Ok(LoopEnd {
                reason: FinishReason::ToolCalls,
                pending: Vec::new(),
                questions: waiting,
                has_text: false,
                repeats_round: true,
                handoff: None,
                is_budget_reached: false,
            });
        }
        if !continues || takes_over {
            call_hooks(rounds, self.hooks, start, messages, tally).await?;
        }
        messages.extend(prefill);
        let loop_end = rounds.run(messages, speech, tally).await?;
        // The agent that ends the turn has hooks of its own.
        if !loop_end.waits() && loop_end.handoff.is_none() {
            let has_hooks = self.hooks.iter().any(|hook| hook.is_at(end));
            if let Some(checkpoints) = rounds.checkpoints.as_ref().filter(|_| has_hooks) {
                // Calls of hooks are not stored, so they must not be repeated.
                checkpoints.close().await.map_err(LoopError::Failed)?;
            }
            call_hooks(rounds, self.hooks, end, messages, tally).await?;
        }
        Ok(loop_end)
    }
}

/// Runs a turn until it ends, or until its time is over (the turn timeout). The time of setting up counts as well.
pub(super) async fn run_with_time_limit(
    sequence: TurnSequence<'_>,
    rounds: &mut ToolLoop<'_>,
    messages: &mut Vec<Message>,
    speech: &mut TextRelay,
    tally: &mut TurnTally,
) -> Result<LoopEnd, LoopError> {
    let (budget, sink) = (rounds.model.budget, rounds.sink);
    let running = Box::pin(sequence.run(rounds, messages, speech, tally));
    let Some(end) = budget.ends_at() else {
        return running.await;
    };
    match tokio::time::timeout_at(end, running).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Ok(stop_at_budget(&budget.timeout_text(), sink, speech, tally).await?),
    }
}
