//! Restarts one or several dead letters, or shows what a restart would do.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use dray_bus::dead::{LetterError, LetterState};
use dray_proto::v1::ConsoleAction;
use dray_types::{Deadline, Fault, FaultCode, OperationId};
use maud::html;

use super::{MAX_LETTERS, frame, letter_fault};
use crate::audit::ActionRequest;
use crate::form::ActionForm;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;

/// Time that work gets from its restart, because its first deadline has passed.
const RESTART_TIME: Duration = Duration::from_mins(10);

/// The outcome of one letter.
#[derive(Debug)]
enum RestartOutcome {
    Started,
    WouldStart,
    AlreadyStarted,
    AlreadyDone,
    Failed(Fault),
}

impl RestartOutcome {
    fn sentence(&self) -> String {
        match self {
            Self::Started => "was started again".to_owned(),
            Self::WouldStart => "would be started again".to_owned(),
            Self::AlreadyStarted => "is left alone: it was started again before".to_owned(),
            Self::AlreadyDone => "is left alone: its work is done".to_owned(),
            Self::Failed(fault) => format!("was not started again: {}", fault.message),
        }
    }
}

/// `POST /letters/redrive`: starts the chosen letters, or says what a start would do.
pub(crate) async fn redrive_selected(
    State(state): State<ConsoleState>,
    ActionForm { session, fields }: ActionForm,
) -> Response {
    let sequences: Vec<u64> = fields
        .all("letter")
        .filter_map(|sequence| sequence.parse().ok())
        .take(MAX_LETTERS)
        .collect();
    // Every value except `start` is a plan, so that a form without the value of its button starts no work.
    let is_plan = fields.get("mode") != "start";
    let mut outcomes = Vec::new();
    // One after the other, so that the audit events are in the order of the restarts; one failure stops no other.
    for sequence in sequences {
        outcomes.push((
            sequence,
            restart_letter(&state, &session, sequence, is_plan).await,
        ));
    }
    let content = html! {
        @if outcomes.is_empty() { p role="alert" { "No letter was chosen." } }
        ul {
            @for (sequence, outcome) in &outcomes {
                li { a href={ "/letters/" (sequence) } { "#" (sequence) } " " (outcome.sentence()) "." }
            }
        }
        p { a href="/letters" { "Back to the dead letters" } }
    };
    let title = if is_plan {
        "What a restart would do"
    } else {
        "Restart"
    };
    frame(&state, &session, title).render(&content)
}

async fn restart_letter(
    state: &ConsoleState,
    session: &ConsoleSession,
    sequence: u64,
    is_plan: bool,
) -> RestartOutcome {
    // This also checks that the letter is of this tenant.
    let summary = match state.read_letter(sequence).await {
        Ok(details) => details.summary,
        Err(fault) => return RestartOutcome::Failed(fault),
    };
    match summary.state {
        LetterState::Restarted => return RestartOutcome::AlreadyStarted,
        LetterState::Resolved => return RestartOutcome::AlreadyDone,
        LetterState::Open | LetterState::Unknown if is_plan => return RestartOutcome::WouldStart,
        LetterState::Open | LetterState::Unknown => {}
    }
    let action = ActionRequest {
        action: ConsoleAction::Redrive,
        target: format!("dead letter {sequence}"),
        time: RESTART_TIME,
        // The restart appears on the timeline of the work.
        operation: OperationId::new(summary.operation).ok(),
    };
    let action = match state.begin_action(session, action).await {
        Ok(action) => action,
        Err(fault) => return RestartOutcome::Failed(fault),
    };
    let deadline = Deadline::after(state.now_ms(), RESTART_TIME);
    let letters = state.bus.dead_letters();
    let started = letters.redrive(sequence, Some(deadline)).await;
    let outcome = started.map_err(|error| match error {
        LetterError::AlreadyRestarted(_) => {
            Fault::new(FaultCode::Denied, "It was started again before.").detail("already_started")
        }
        LetterError::AlreadyResolved(_) => {
            Fault::new(FaultCode::Denied, "Its work is done.").detail("already_done")
        }
        other => letter_fault(&other),
    });
    match action.finish(outcome).await {
        // The bus knows this restart already: another operator was faster.
        Ok(published) if published.duplicate => RestartOutcome::AlreadyStarted,
        Ok(_) => RestartOutcome::Started,
        Err(fault) => RestartOutcome::Failed(fault),
    }
}
