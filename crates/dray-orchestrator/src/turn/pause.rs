//! A turn that begins to wait: its progress is stored, and its questions are sent to the client.

use std::collections::HashSet;

use dray_agent::approval::call_digest;
use dray_agent::canonical_json::canonical_json;
use dray_agent::event::{ApprovalRequest, Event, FinishReason};
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role};
use dray_agent::pair;
use dray_agent::state;
use dray_tool::pipeline::parse_arguments;
use dray_tool::{ClientGone, EventSink};
use serde_json::Value;

use super::approval_forms::{question_calls, question_text};
use super::approval_policy::ApprovalPolicy;
use super::open::OpenTurn;
use super::paused::{PausedApproval, PausedTurn, call_id};
use super::prepare::with_stable_names;
use super::question_forms::{InputRequest, input_calls, input_text};
use super::rounds::LoopEnd;
use super::speech::answer_separator;
use super::succession::ADDED_AGAIN;
use super::waiting::{AskPlan, WaitingCall, question_digest};
use crate::approvals::NewApproval;
use crate::http::ApprovalForm;

impl OpenTurn {
    /// Stores the results of the server's own calls until the client continues the turn, and gives the calls ids that
    /// name the stored record. Returns the questions for the client. If there is nothing to store, the calls stay
    /// unchanged.
    pub(super) async fn keep_paused(
        &self,
        state: &Value,
        end: &mut LoopEnd,
    ) -> Result<Questions, RequestFailure> {
        let Some((round, results)) = self.waiting_round(end) else {
            return Ok(Questions::default());
        };
        if end.questions.is_empty() && results.is_empty() && !state_is_worth_keeping(state) {
            return Ok(Questions::default());
        }
        let waiting = std::mem::take(&mut end.questions);
        let plan = AskPlan::new(waiting, &self.tools.approvals, !end.pending.is_empty());
        let paused = &self.parts.records.paused;
        let paused_calls: Vec<_> = plan.now.into_iter().map(paused_approval).collect();
        let resumed = self.resumed.as_ref().filter(|_| end.repeats_round);
        let record = PausedTurn {
            created_ms: paused.now_ms(),
            state: resumed.map_or_else(
                || state.clone(),
                |resumed| merged_state(&resumed.state, state),
            ),
            round,
            results,
            pending: end.pending.iter().map(|call| call.id.clone()).collect(),
            approvals: paused_calls
                .iter()
                .map(|(paused, _)| paused.clone())
                .collect(),
            later: plan.later,
            repeated: Vec::new(),
            replaces: resumed.map(|resumed| resumed.token.clone()),
        };
        let token = paused.save(&self.principal, &record).await?;
        let approvals = &self.parts.records.approvals;
        let expires_ms = approvals.expires_ms();
        let new: Vec<_> = paused_calls
            .iter()
            .map(|(paused, _)| paused.approval.clone())
            .collect();
        // Chats may decide before the client is asked; the turn then uses the decision when it continues.
        let later = record.later.iter();
        let later: Vec<_> = later.filter_map(|call| call.in_chat.clone()).collect();
        approvals
            .open(&self.principal, &token, &later, expires_ms)
            .await?;
        approvals
            .open(&self.principal, &token, &new, expires_ms)
            .await?;
        for (number, call) in end.pending.iter_mut().enumerate() {
            call.id = call_id(&token, number);
        }
        let mut questions = Questions {
            first_approval: new.into_iter().next().map(|approval| approval.id),
            ..Questions::default()
        };
        for (number, (paused, arguments)) in paused_calls.into_iter().enumerate() {
            let id = call_id(&token, end.pending.len() + number);
            questions.add(id, paused, arguments, expires_ms, &self.tools.approvals);
        }
        Ok(questions)
    }

    /// The message with the calls that wait, and the results of the other calls of its round.
    fn waiting_round(&self, end: &LoopEnd) -> Option<(Message, Vec<Message>)> {
        let questions = end.questions.iter().map(|waiting| &waiting.call);
        let waiting: HashSet<&str> = end
            .pending
            .iter()
            .chain(questions)
            .map(|call| call.id.as_str())
            .collect();
        // Ids of models may repeat, and the newest round is that of this turn.
        let is_round = |message: &Message| {
            let mut calls = message.calls().iter();
            calls.any(|call| waiting.contains(call.id.as_str()))
        };
        let round_index = self.messages.iter().rposition(is_round)?;
        let (round, after) = self.messages.get(round_index..)?.split_first()?;
        // Leaves a place for each call of an earlier request that waits again.
        let results = after
            .iter()
            .take_while(|message| message.role == Role::Tool)
            .filter(|message| {
                let id = message.tool_call_id.as_deref();
                id.is_none_or(|id| !waiting.contains(id))
            });
        Some((
            with_stable_names(round),
            results.map(with_stable_names).collect(),
        ))
    }

    /// Asks the client in a form that it supports.
    pub(super) async fn ask(
        &self,
        questions: &mut Questions,
        end: &mut LoopEnd,
        sink: &EventSink,
    ) -> Result<(), ClientGone> {
        let Some(first) = &questions.first_approval else {
            return Ok(());
        };
        let policy = &self.tools.approvals;
        let mut text = None;
        if !questions.inputs.is_empty() {
            let inputs = std::mem::take(&mut questions.inputs);
            match policy.input_form() {
                ApprovalForm::Text => {
                    // A plan has at most one question in text.
                    text = inputs.first().map(|request| input_text(request, first));
                }
                _ => end.pending.extend(input_calls(&inputs)),
            }
        }
        if !questions.items.is_empty() {
            match policy.form() {
                ApprovalForm::Items | ApprovalForm::Unavailable => {}
                ApprovalForm::ClientTool => {
                    let items = std::mem::take(&mut questions.items);
                    end.pending.extend(question_calls(&items));
                }
                ApprovalForm::Text => {
                    let items = std::mem::take(&mut questions.items);
                    text = Some(question_text(&items, first));
                }
            }
        }
        if let Some(mut text) = text {
            if end.has_text {
                text.insert_str(0, answer_separator(self.response.is_dial));
            }
            sink.send(Event::Content(text)).await?;
            // For the client the turn ends here; no call of its own waits beside a question in text.
            end.reason = FinishReason::Stop;
        }
        Ok(())
    }
}

/// Questions of a turn that waits.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Calls that wait for approval.
    pub(super) items: Vec<ApprovalRequest>,
    /// Questions of tools to the user.
    inputs: Vec<InputRequest>,
    /// Id of the first record, by which a text names them.
    first_approval: Option<String>,
}

impl Questions {
    fn add(
        &mut self,
        id: String,
        paused: PausedApproval,
        arguments: String,
        expires_ms: u64,
        policy: &ApprovalPolicy,
    ) {
        let tool = paused.waiting.call.function.name;
        let source = policy.source(&tool).to_owned();
        let digest = paused.approval.digest.clone();
        let chat = paused.approval.chat;
        match paused.waiting.question {
            None => self.items.push(ApprovalRequest {
                expires_ms: chat.as_ref().map_or(expires_ms, |chat| chat.expires_ms),
                chat: chat.map(|chat| chat.name),
                id,
                source,
                tool,
                arguments,
                digest,
            }),
            Some(question) => self.inputs.push(InputRequest {
                expires_ms: chat.as_ref().map_or(expires_ms, |chat| chat.expires_ms),
                chat: chat.map(|chat| chat.name),
                not_in_chat: question.not_in_chat,
                id,
                source,
                tool,
                questions: question.asked.questions,
                digest,
            }),
        }
    }
}

/// A call about which the client is asked, and its arguments as canonical JSON.
fn paused_approval(mut waiting: WaitingCall) -> (PausedApproval, String) {
    let function = &waiting.call.function;
    // Calls whose arguments are not an object never wait.
    let arguments = parse_arguments(&function.arguments).unwrap_or_default();
    let tool_question = waiting.question.as_ref().map(|question| &question.asked);
    let digest = match tool_question {
        None => call_digest(&function.name, &arguments),
        Some(tool_question) => question_digest(&function.name, &arguments, tool_question),
    };
    let mut approval = NewApproval::new(&function.name, &digest);
    approval.questions = tool_question.map(|tool_question| tool_question.questions.clone());
    // The approval of a chat's question has a record already.
    let approval = waiting.in_chat.take().unwrap_or(approval);
    let paused = PausedApproval { approval, waiting };
    (paused, canonical_json(&Value::Object(arguments)))
}

/// The state of a turn that waits again in the same round: the rounds before it are those of the earlier record.
fn merged_state(earlier: &Value, newer: &Value) -> Value {
    let mut merged = earlier.clone();
    if let (Some(merged), Some(newer)) = (merged.as_object_mut(), newer.as_object()) {
        let others = newer.iter().filter(|(name, _)| *name != state::HISTORY_KEY);
        merged.extend(others.map(|(name, value)| (name.clone(), value.clone())));
    }
    merged
}

/// Whether a state contains more than the next request of the turn inserts again by itself.
fn state_is_worth_keeping(state: &Value) -> bool {
    let Some(members) = state.as_object() else {
        return false;
    };
    members.iter().any(|(name, value)| {
        let rounds = value.as_array().filter(|_| name == state::HISTORY_KEY);
        // Every other member is needed: a session, or a state of the model or of the interpreter.
        rounds.is_none_or(|rounds| {
            let calls = rounds
                .iter()
                .filter_map(|round| round.get("tool_calls")?.as_array())
                .flatten();
            calls.into_iter().any(|call| !is_added_again(call))
        })
    })
}

/// Whether every request inserts this call again for the model: the time, the files, the skill on references.
fn is_added_again(call: &Value) -> bool {
    let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
    ADDED_AGAIN.iter().any(|tool| pair::is_synthetic(id, tool))
}
