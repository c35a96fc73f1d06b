//! The events of the calls of tools of one turn. They never contain arguments, results or messages of failures.

use std::time::Duration;

use dray_proto::v1::{self, TurnCallError, TurnCallOutcome};
use dray_tool::pipeline::{CallFailure, CompletedCall, RequestEnd};
use dray_types::whole_millis;
use tokio::time::Instant;

use super::{TurnReport, cut_name};
use crate::turn_events::TurnEvent;

/// How long a call runs before it has an event. Most calls end earlier, and cost one event instead of two.
const BEGIN_EVENT_DELAY: Duration = Duration::from_millis(250);
/// Calls of one turn that have events. The event of the turn's end counts all calls.
const MAX_REPORTED_CALLS: u32 = 500;
/// Most characters of the id of a call.
const MAX_ID_CHARACTERS: usize = 64;

/// One call of a tool while it runs. A call that is dropped before its end was cancelled.
#[derive(Debug)]
pub(in crate::turn) struct CallReport<'a> {
    report: &'a TurnReport,
    tool: &'a str,
    call: v1::TurnCall,
    started_at: Instant,
    /// Whether the call has events.
    is_reported: bool,
    has_ended: bool,
}

impl TurnReport {
    /// A call of a tool that begins now. `id` is the model's id of the call.
    pub(in crate::turn) fn begin_call<'a>(&'a self, tool: &'a str, id: &str) -> CallReport<'a> {
        let mut state = self.state();
        state.last_call = state.last_call.saturating_add(1);
        let call = v1::TurnCall {
            operation_id: self.operation.to_string(),
            agent: state.turn.agent.clone(),
            tool: cut_name(tool),
            call_id: shown_id(id),
            number: state.last_call,
            round: state.models.iter().map(|model| model.calls).sum(),
            begun_at_ms: self.queue.now_ms(),
        };
        drop(state);
        CallReport {
            report: self,
            tool,
            is_reported: call.number <= MAX_REPORTED_CALLS,
            call,
            started_at: Instant::now(),
            has_ended: false,
        }
    }
}

impl CallReport<'_> {
    /// Waits for the end of the call. Reports that it runs if that takes long.
    pub(in crate::turn) async fn watch<T>(
        &self,
        mut running: impl Future<Output = T> + Unpin,
    ) -> T {
        if let Ok(ended) = tokio::time::timeout(BEGIN_EVENT_DELAY, &mut running).await {
            return ended;
        }
        let call = Some(self.call.clone());
        self.send(TurnEvent::CallBegin(Box::new(v1::TurnCallBegun { call })));
        running.await
    }

    /// Reports the end of the call, and counts it.
    pub(in crate::turn) fn end(mut self, ended: &Result<CompletedCall, RequestEnd>) {
        let (outcome, failure) = call_end(ended);
        self.send_end(outcome, failure);
    }

    fn send_end(&mut self, outcome: TurnCallOutcome, failure: Option<CallFailure>) {
        self.has_ended = true;
        let elapsed = self.started_at.elapsed();
        let is_failed = outcome == TurnCallOutcome::Failed;
        self.report.count_call(self.tool, is_failed, elapsed);
        let (error, http_status) = failure.map_or((TurnCallError::Unspecified, 0), call_error);
        let ended = v1::TurnCallEnded {
            call: Some(std::mem::take(&mut self.call)),
            outcome: outcome.into(),
            error: error.into(),
            http_status: http_status.into(),
            duration_ms: whole_millis(elapsed),
        };
        self.send(TurnEvent::CallEnd(Box::new(ended)));
    }

    fn send(&self, event: TurnEvent) {
        if self.is_reported {
            self.report.send(&self.report.state(), event);
        }
    }
}

impl Drop for CallReport<'_> {
    fn drop(&mut self) {
        // The future of a call is dropped together with that of its turn.
        if !self.has_ended {
            self.send_end(TurnCallOutcome::Cancelled, None);
        }
    }
}

fn call_end(ended: &Result<CompletedCall, RequestEnd>) -> (TurnCallOutcome, Option<CallFailure>) {
    match ended {
        Ok(ran) if ran.failed => (TurnCallOutcome::Failed, ran.failure),
        Ok(ran)
            if ran
                .question
                .as_ref()
                .is_some_and(|question| !question.is_over) =>
        {
            (TurnCallOutcome::Asked, None)
        }
        Ok(_) => (TurnCallOutcome::Finished, None),
        Err(RequestEnd::Gone(_)) => (TurnCallOutcome::Cancelled, None),
        Err(RequestEnd::Stopped { failure, .. }) => (TurnCallOutcome::Failed, Some(*failure)),
        Err(RequestEnd::Failed(_)) => (TurnCallOutcome::Failed, Some(CallFailure::Tool(None))),
    }
}

fn call_error(failure: CallFailure) -> (TurnCallError, u16) {
    match failure {
        CallFailure::Arguments => (TurnCallError::InvalidArguments, 0),
        CallFailure::TimedOut => (TurnCallError::Timeout, 0),
        CallFailure::Tool(status) => (TurnCallError::ToolFailure, status.unwrap_or(0)),
    }
}

/// The id without characters that could hide or change what is shown beside it. Models choose ids, so an id may be any
/// text.
fn shown_id(id: &str) -> String {
    let visible = id.chars().filter(char::is_ascii_graphic);
    visible.take(MAX_ID_CHARACTERS).collect()
}

#[cfg(test)]
mod tests;
