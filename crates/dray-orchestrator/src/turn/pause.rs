//! A turn that begins to wait: what it did is kept, and its questions go to the client.

use dray_agent::approval::call_digest;
use dray_agent::canonical_json::canonical_json;
use dray_agent::clock::CLOCK_TOOL;
use dray_agent::event::{ApprovalRequest, Event, FinishReason};
use dray_agent::failure::RequestFailure;
use dray_agent::message::ToolCall;
use dray_agent::notify::LIST_TOOL;
use dray_agent::pair;
use dray_agent::skill::READ_SKILL_TOOL;
use dray_agent::state;
use dray_tool::pipeline::parse_arguments;
use dray_tool::{ClientGone, EventSink};
use serde_json::Value;

use super::approval_forms::{question_calls, question_text};
use super::open::OpenTurn;
use super::paused::{PausedApproval, PausedTurn, call_id};
use super::prepare::with_stable_names;
use super::rounds::LoopEnd;
use super::speech::ANSWER_SEPARATOR;
use crate::approvals::NewApproval;
use crate::http::ApprovalForm;

/// Synthetic tools whose results every request adds for itself.
const ADDED_AGAIN: [&str; 3] = [CLOCK_TOOL, LIST_TOOL, READ_SKILL_TOOL];

impl OpenTurn {
    /// Keeps what the server itself did in this request until the client continues the turn, and puts the ids that lead to it
    /// into the calls. Returns the questions on approval. Without anything to keep the calls stay as they are, and the store is
    /// not used.
    pub(super) async fn keep_paused(
        &self,
        state: &Value,
        end: &mut LoopEnd,
    ) -> Result<Questions, RequestFailure> {
        let round = self
            .messages
            .iter()
            .rposition(|message| !message.calls().is_empty());
        let Some((round, results)) = round.and_then(|at| self.messages.get(at..)?.split_first())
        else {
            return Ok(Questions::default());
        };
        if end.questions.is_empty() && results.is_empty() && !state_is_worth_keeping(state) {
            return Ok(Questions::default());
        }
        let paused = &self.parts.records.paused;
        let asked: Vec<_> = end.questions.iter().map(paused_approval).collect();
        let record = PausedTurn {
            created_ms: paused.now_ms(),
            state: state.clone(),
            round: with_stable_names(round),
            results: results.iter().map(with_stable_names).collect(),
            pending: end.pending.iter().map(|call| call.id.clone()).collect(),
            approvals: asked.iter().map(|(paused, _)| paused.clone()).collect(),
        };
        let token = paused.save(&self.principal, &record).await?;
        let (approvals, expires_ms) = (
            &self.parts.records.approvals,
            self.parts.records.approvals.expires_ms(),
        );
        let new: Vec<_> = asked
            .iter()
            .map(|(paused, _)| paused.approval.clone())
            .collect();
        approvals
            .open(&self.principal, &token, &new, expires_ms)
            .await?;
        for (number, call) in end.pending.iter_mut().enumerate() {
            call.id = call_id(&token, number);
        }
        let first = end.pending.len();
        let items = asked
            .into_iter()
            .enumerate()
            .map(|(number, (paused, arguments))| {
                let tool = paused.call.function.name;
                ApprovalRequest {
                    id: call_id(&token, first + number),
                    source: self.tools.approvals.source(&tool).to_owned(),
                    tool,
                    arguments,
                    digest: paused.approval.digest,
                    expires_ms,
                }
            });
        Ok(Questions {
            items: items.collect(),
            first_approval: new.into_iter().next().map(|approval| approval.id),
        })
    }

    /// Puts questions on approval to the client in the form that it knows.
    pub(super) async fn ask(
        &self,
        questions: &mut Questions,
        end: &mut LoopEnd,
        sink: &EventSink,
    ) -> Result<(), ClientGone> {
        let Some(approval) = &questions.first_approval else {
            return Ok(());
        };
        match self.tools.approvals.form() {
            ApprovalForm::Items | ApprovalForm::Unavailable => {}
            ApprovalForm::ClientTool => {
                let asked = std::mem::take(&mut questions.items);
                end.pending.extend(question_calls(&asked));
            }
            ApprovalForm::Text => {
                let asked = std::mem::take(&mut questions.items);
                let mut text = question_text(&asked, approval);
                if end.has_text {
                    text.insert_str(0, ANSWER_SEPARATOR);
                }
                sink.send(Event::Content(text)).await?;
                // The turn ends for the client; no call of its own waits beside a question in text.
                end.reason = FinishReason::Stop;
            }
        }
        Ok(())
    }
}

/// Questions on approval of a turn that waits.
#[derive(Debug, Default)]
pub(super) struct Questions {
    pub(super) items: Vec<ApprovalRequest>,
    /// Id of the first approval, by which a text names them.
    first_approval: Option<String>,
}

/// A call that waits for approval, and its arguments as canonical JSON.
fn paused_approval(call: &ToolCall) -> (PausedApproval, String) {
    let function = &call.function;
    // Calls whose arguments are not an object never wait.
    let arguments = parse_arguments(&function.arguments).unwrap_or_default();
    let digest = call_digest(&function.name, &arguments);
    let paused = PausedApproval {
        approval: NewApproval::new(&function.name, &digest),
        call: call.clone(),
    };
    (paused, canonical_json(&Value::Object(arguments)))
}

/// Whether a state has more than what the next request of the turn adds again by itself.
fn state_is_worth_keeping(state: &Value) -> bool {
    let Some(members) = state.as_object() else {
        return false;
    };
    members.iter().any(|(name, value)| {
        let rounds = value.as_array().filter(|_| name == state::HISTORY_KEY);
        // Any other member is needed: a session, or a state of the model or of the interpreter.
        rounds.is_none_or(|rounds| {
            let calls = rounds
                .iter()
                .filter_map(|round| round.get("tool_calls")?.as_array())
                .flatten();
            calls.into_iter().any(|call| !is_added_again(call))
        })
    })
}

/// Whether a call is one that every request adds again for the model: the time, the files, the skill on references.
fn is_added_again(call: &Value) -> bool {
    let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
    ADDED_AGAIN.iter().any(|tool| pair::is_synthetic(id, tool))
}
