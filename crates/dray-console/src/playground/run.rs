//! One turn: uploads the files, sends the request, and receives the answer until it ends or is cancelled.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::message::{Content, CustomContent, Message, Role};
use dray_dial::chat::ChatAnswer;
use dray_types::{Fault, FaultCode};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::agent::{AgentClient, ChosenFile, answer_fault};
use super::conversation::{Conversation, TurnEnding};
use crate::audit::RecordedAction;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;

/// Longest time for a turn.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_mins(30);
/// Interval at which it is checked whether the login is still open.
const LOGIN_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A turn that was begun and recorded.
pub(super) struct TurnRun {
    pub(super) state: ConsoleState,
    pub(super) agents: Arc<AgentClient>,
    pub(super) session: ConsoleSession,
    pub(super) conversation: Arc<Conversation>,
    pub(super) action: RecordedAction,
    pub(super) cancel: CancellationToken,
    pub(super) text: String,
    pub(super) files: Vec<ChosenFile>,
}

impl TurnRun {
    /// Runs the turn to its end, and records the outcome.
    pub(super) async fn run(self) {
        let Self {
            state,
            agents,
            session,
            conversation,
            action,
            cancel,
            text,
            files,
        } = self;
        let mut answer = ChatAnswer::default();
        let answering = request_answer(&agents, &conversation, &mut answer, text, files);
        let ended = tokio::select! {
            ended = answering => Some(ended),
            () = cancel.cancelled() => None,
            () = login_ends(&state, &session) => None,
            () = tokio::time::sleep(TURN_TIMEOUT) => Some(Err(timeout_fault())),
        };
        let (ending, outcome) = match ended {
            None => (TurnEnding::Cancelled, Err(cancelled_fault())),
            Some(Err(fault)) => (TurnEnding::Failed(Box::new(fault.clone())), Err(fault)),
            Some(Ok(())) => (done_ending(&answer), Ok(())),
        };
        // The outcome is recorded first, so that the audit stream has the outcome when the page shows the end.
        let _ = action.finish(outcome).await;
        conversation.end_turn(ending, answer);
    }
}

/// Sends the message and receives the answer. Dropping the future closes the connection, which ends the agent's work.
async fn request_answer(
    agents: &AgentClient,
    conversation: &Conversation,
    answer: &mut ChatAnswer,
    text: String,
    files: Vec<ChosenFile>,
) -> Result<(), Fault> {
    let mut ids = Vec::new();
    // One after the other, so that a cancelled turn leaves at most one incomplete upload.
    for file in files {
        ids.push(agents.upload(file).await?);
    }
    let request = conversation.set_question(question(&text, &ids));
    let opened = agents.stream_answer(request).await;
    let mut stream = opened.map_err(|error| answer_fault(&error))?;
    while let Some(delta) = stream.next().await.map_err(|error| answer_fault(&error))? {
        conversation.add(answer, delta)?;
    }
    Ok(())
}

/// The message with its files. Its empty `custom_content` announces that this client reads stages, files and state in
/// the `custom_content` of the answer.
fn question(text: &str, file_ids: &[String]) -> Message {
    let mut message = Message::new(Role::User, text);
    if !file_ids.is_empty() {
        let text = json!({ "type": "text", "text": text });
        let files = file_ids
            .iter()
            .map(|id| json!({ "type": "file", "file": { "file_id": id } }));
        let parts = std::iter::once(text).chain(files).map(into_object);
        message.content = Some(Content::Parts(parts.collect()));
    }
    message.custom_content = Some(CustomContent::default());
    message
}

fn into_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Waits until the login of the turn has ended, because the turn must not spend more after that.
async fn login_ends(state: &ConsoleState, session: &ConsoleSession) {
    while state.sessions.is_open(&session.login, state.now_ms()) {
        tokio::time::sleep(LOGIN_CHECK_INTERVAL).await;
    }
}

fn done_ending(answer: &ChatAnswer) -> TurnEnding {
    let ending = answer.ending();
    let tokens = ending.usage.as_ref();
    TurnEnding::Done {
        reason: ending.finish_reason.clone().unwrap_or_default(),
        tokens: tokens.map(|tokens| (tokens.prompt, tokens.completion)),
    }
}

fn cancelled_fault() -> Fault {
    // The audit event of a turn that a person ended has this code.
    Fault::new(FaultCode::Timeout, "The turn was cancelled.").detail("cancelled")
}

fn timeout_fault() -> Fault {
    Fault::new(
        FaultCode::Timeout,
        "The answer took longer than 30 minutes.",
    )
    .detail("turn_timeout")
}
