//! Calls that waited for the user: decisions are recorded, and the calls are made or continued.

use std::collections::HashMap;

use dray_agent::event::Event;
use dray_agent::message::{Message, Role, ToolCall};
use dray_tool::pipeline::CompletedCall;
use dray_tool::{AnswerMap, AnsweredQuestion, UserAnswer};
use futures_util::future::{join, join_all};
use futures_util::{Stream, StreamExt as _, stream};

use super::chat_approvals::{ChatOutcome, OpenQuestion};
use super::chat_calls::{ChatCallEnd, ChatGate};
use super::paused::{DecidedCall, ResumedCalls};
use super::prepare::with_stable_names;
use super::rounds::{LoopError, ToolLoop};
use super::tally::TurnTally;
use super::waiting::{MAX_QUESTION_ROUNDS, PausedQuestion, WaitingCall, waiting_or_ran};
use crate::approvals::{ApprovalDecision, ApprovalRecord, ApprovalStore, refusal_text};
use crate::records::RevisedRecord;

/// Result of a call that was not approved, since the user wrote something else first.
const NOT_APPROVED: &str =
    "The user was not asked to approve this call, and sent another message. It was not made.";

/// The store in which decisions are recorded, and their principal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settlement<'a> {
    pub(super) approvals: &'a ApprovalStore,
    pub(super) principal: &'a str,
}

/// Calls that waited for chats.
#[derive(Default)]
struct SettledCalls<'a> {
    /// Calls that are made or continued now.
    due: Vec<DueCall>,
    /// Calls that are not made, by the model's ids, with the results that the model gets.
    refused: Vec<(String, &'static str)>,
    /// Calls that still wait.
    waiting: Vec<WaitingCall>,
    /// Calls that were made or refused while others waited.
    ends: Vec<ChatCallEnd<'a>>,
}

/// A call that is made or continued now.
#[derive(Debug)]
pub(super) struct DueCall {
    pub(super) waiting: WaitingCall,
    /// Answers for the tool that asked; a call without them begins.
    answers: Option<AnswerMap>,
    /// The record of the decision of an earlier request's question.
    record: Option<UsedRecord>,
}

/// The id of a decision that a call uses, and its record, in which the result is kept.
type UsedRecord = (String, RevisedRecord<ApprovalRecord>);

/// A call that has a result.
struct EndedCall {
    /// The model's id of the call.
    id: String,
    ran: CompletedCall,
    record: Option<UsedRecord>,
}

impl Settlement<'_> {
    /// Records all decisions, then makes and continues calls concurrently, and puts the results into their places.
    /// Returns the calls that still wait: those about which the client was not asked yet, and those whose tools ask
    /// again.
    ///
    /// # Errors
    ///
    /// A decision has become invalid, in which case no call is made; or a call ends the request, in which case the
    /// results of the others are kept.
    pub(super) async fn settle(
        self,
        resumed: ResumedCalls,
        rounds: &ToolLoop<'_>,
        messages: &mut [Message],
        tally: &mut TurnTally,
    ) -> Result<Vec<WaitingCall>, LoopError> {
        let mut due = self.record(resumed.decided, messages).await?;
        let repeated = resumed.repeated.into_iter().map(|call| DueCall {
            waiting: WaitingCall::approval(call),
            answers: None,
            record: None,
        });
        due.extend(repeated);
        let mut later = resumed.later;
        if resumed.ends_later {
            self.withdraw(&later).await;
            due.extend(ended_calls(std::mem::take(&mut later), messages));
        }
        let (in_chats, mut waiting): (Vec<_>, Vec<_>) = later
            .into_iter()
            .partition(|waiting| waiting.in_chat.is_some());
        if !due.is_empty() || !in_chats.is_empty() {
            rounds.announce_tools().await?;
            rounds.sink.send(Event::CallsStarted).await?;
        }
        // Where the client has to answer as well, its questions come first.
        let gate = ChatGate::new(rounds.chats.max_wait, !waiting.is_empty());
        // Both kinds of calls run concurrently: no call waits for a chat that decides about another one.
        let own = self.make_all(due, rounds, (&mut *messages, &mut *tally), &gate);
        let (own, in_chats) = join(own, settle_chats(in_chats, rounds, &gate)).await;
        // Results from chats are kept even where the other calls end the request: the decisions are used up by now, and
        // their calls have been made.
        let in_chats = in_chats?;
        let mut followed = Vec::new();
        let ends = (stream::iter(in_chats.ends), &mut followed);
        self.take_ends(
            ends,
            rounds,
            (&mut *messages, &mut *tally),
            &mut HashMap::new(),
        )
        .await?;
        for (id, text) in in_chats.refused {
            place_result(messages, &id, Message::new(Role::Tool, text));
        }
        let due = self.make_all(in_chats.due, rounds, (&mut *messages, tally), &gate);
        waiting.extend(due.await?);
        match own {
            Ok(own) => waiting.extend(own),
            Err(error) => {
                self.withdraw(&followed).await;
                return Err(error);
            }
        }
        waiting.extend(followed);
        waiting.extend(in_chats.waiting);
        if !waiting.is_empty() {
            rounds.keep_agent(messages);
        }
        Ok(waiting)
    }

    /// Makes and continues calls, asks chats what their tools ask, and continues them with the answers. Returns the
    /// calls that still wait.
    async fn make_all(
        self,
        due: Vec<DueCall>,
        rounds: &ToolLoop<'_>,
        (messages, tally): (&mut [Message], &mut TurnTally),
        gate: &ChatGate,
    ) -> Result<Vec<WaitingCall>, LoopError> {
        gate.begin_calls();
        let made = Box::pin(self.make(due, rounds, messages, tally)).await;
        let (repeated, mut records) = made.inspect_err(|_| gate.fail())?;
        let (open, mut waiting) = rounds.chats.ask_tools(repeated).await;
        if !waiting.is_empty() {
            gate.note_client();
        }
        gate.end_calls();
        let ends = rounds.follow_all(open, gate);
        let taken = (ends, &mut waiting);
        self.take_ends(taken, rounds, (messages, tally), &mut records)
            .await?;
        Ok(waiting)
    }

    /// Takes the ends of calls about which chats were asked, in the order in which they arrive. Calls that still wait
    /// are added to the others.
    ///
    /// # Errors
    ///
    /// The failure of the first call that ends the request. The results of the other calls are kept.
    async fn take_ends<'a>(
        self,
        (mut ends, waiting): (
            impl Stream<Item = ChatCallEnd<'a>> + Unpin,
            &mut Vec<WaitingCall>,
        ),
        rounds: &ToolLoop<'_>,
        (messages, tally): (&mut [Message], &mut TurnTally),
        records: &mut HashMap<String, UsedRecord>,
    ) -> Result<(), LoopError> {
        let mut kept: Result<(), LoopError> = Ok(());
        let mut still_open = Vec::new();
        while let Some(end) = ends.next().await {
            match end {
                ChatCallEnd::Ran(call, ran) => {
                    let record = records.remove(&call.id);
                    let (id, ran) = (call.id, *ran);
                    let ended = EndedCall { id, ran, record };
                    let result = self.keep(ended, rounds, messages, tally).await;
                    kept = kept.and(result);
                }
                ChatCallEnd::Refused(call, text) => {
                    place_result(messages, &call.id, Message::new(Role::Tool, text));
                }
                ChatCallEnd::Open(question) => still_open.push(question),
                ChatCallEnd::OfClient(call) => waiting.push(*call),
                ChatCallEnd::Failed(error) => kept = kept.and(Err(error)),
            }
        }
        kept?;
        waiting.extend(still_open.into_iter().map(|question| question.keep()));
        Ok(())
    }

    /// Makes and continues calls concurrently, and keeps each result before anyone is asked again. Returns the calls
    /// whose tools ask again, and their records.
    ///
    /// # Errors
    ///
    /// The failure of the first call that ends the request. The results of the other calls are kept.
    async fn make(
        self,
        due: Vec<DueCall>,
        rounds: &ToolLoop<'_>,
        messages: &mut [Message],
        tally: &mut TurnTally,
    ) -> Result<(Vec<WaitingCall>, HashMap<String, UsedRecord>), LoopError> {
        let ran = join_all(due.iter().map(|due| due.run(rounds))).await;
        let (mut asking, mut records) = (Vec::new(), HashMap::new());
        let mut kept: Result<(), LoopError> = Ok(());
        for (due, ran) in due.into_iter().zip(ran) {
            let round = due.next_round();
            let (call, record) = (due.waiting.call, due.record);
            let result = match ran.map(|ran| waiting_or_ran(call.clone(), ran, round)) {
                Ok(Ok(repeated)) => {
                    records.extend(record.map(|record| (call.id, record)));
                    asking.push(repeated);
                    Ok(())
                }
                Ok(Err(ran)) => {
                    let (id, ran) = (call.id, *ran);
                    let ended = EndedCall { id, ran, record };
                    self.keep(ended, rounds, messages, tally).await
                }
                Err(error) => Err(error),
            };
            kept = kept.and(result);
        }
        kept?;
        Ok((asking, records))
    }

    /// Keeps the result of a call, and puts it into its place.
    ///
    /// # Errors
    ///
    /// The client has disconnected. The result is kept also then.
    async fn keep(
        self,
        ended: EndedCall,
        rounds: &ToolLoop<'_>,
        messages: &mut [Message],
        tally: &mut TurnTally,
    ) -> Result<(), LoopError> {
        let mut ran = ended.ran;
        rounds.model.outgoing.stamp(&mut ran.message);
        if let Some((id, mut record)) = ended.record {
            let stored_result = with_stable_names(&ran.message);
            self.approvals
                .keep_outcome(self.principal, &id, &mut record, &stored_result)
                .await;
        }
        let reported = rounds.report_end(&mut ran, tally).await;
        place_result(messages, &ended.id, ran.message);
        reported
    }

    /// Withdraws questions that chats have not answered.
    async fn withdraw(self, later: &[WaitingCall]) {
        for approval in later.iter().filter_map(|waiting| waiting.in_chat.as_ref()) {
            self.approvals.withdraw(self.principal, &approval.id).await;
        }
    }

    /// Records the decisions. Returns the calls that they permit; the other calls have their results.
    ///
    /// # Errors
    ///
    /// A decision is invalid, or the bus fails. No call is made then, and the same request can be repeated.
    pub(super) async fn record(
        self,
        mut decided: Vec<DecidedCall>,
        messages: &mut [Message],
    ) -> Result<Vec<DueCall>, LoopError> {
        for call in &mut decided {
            let (id, record) = (&call.paused.approval.id, &mut call.record);
            // A chat that was asked as well may decide until the use.
            if record.value.chat.is_none() && record.value.is_undecided() {
                let decision = call.decision.clone();
                let noted = self
                    .approvals
                    .note_decision(self.principal, id, record, decision);
                noted.await.map_err(LoopError::Failed)?;
            }
        }
        self.use_all(&mut decided).await?;
        let mut due = Vec::with_capacity(decided.len());
        for call in decided {
            let waiting = call.paused.waiting;
            // A tool that asked learns that its question has no answer.
            if let ApprovalDecision::Refused { reason } = &call.decision
                && waiting.question.is_none()
            {
                let text = refusal_text(reason.as_deref());
                place_result(messages, &waiting.call.id, Message::new(Role::Tool, text));
                continue;
            }
            due.push(DueCall {
                waiting,
                answers: call.answers,
                record: Some((call.paused.approval.id, call.record)),
            });
        }
        Ok(due)
    }

    /// Uses the decisions that permit something. After an error none is used.
    async fn use_all(self, decided: &mut [DecidedCall]) -> Result<(), LoopError> {
        let (approvals, principal) = (self.approvals, self.principal);
        let mut used = Vec::new();
        for call in decided {
            let previous = call.record.value.clone();
            let (id, record) = (&call.paused.approval.id, &mut call.record);
            let result = match &record.value.decision {
                None => {
                    let decision = call.decision.clone();
                    approvals.decide(principal, id, record, decision).await
                }
                // A tool that asked continues with every answer, and only once.
                Some(decision) if decision.permits() || record.value.questions.is_some() => {
                    approvals.use_decision(principal, id, record).await
                }
                Some(_) => continue,
            };
            if let Err(failure) = result {
                for (call, previous) in used {
                    let call: &DecidedCall = call;
                    let id = &call.paused.approval.id;
                    approvals
                        .take_back(principal, id, &call.record, previous)
                        .await;
                }
                return Err(LoopError::Failed(failure));
            }
            used.push((call, previous));
        }
        Ok(())
    }
}

/// Waits for the decisions of chats about calls of an earlier request, or of a process that has ended.
///
/// # Errors
///
/// 400 for a decision that another request has used, 503 while the bus fails and no decision was used.
async fn settle_chats<'a>(
    in_chats: Vec<WaitingCall>,
    rounds: &ToolLoop<'a>,
    gate: &ChatGate,
) -> Result<SettledCalls<'a>, LoopError> {
    let mut settled = SettledCalls::default();
    if in_chats.is_empty() {
        return Ok(settled);
    }
    let chats = rounds.chats;
    let checkpoints = rounds.checkpoints.as_ref();
    if checkpoints.is_some_and(|checkpoints| !checkpoints.has_client()) {
        // No later request continues a response in the background, so each call is made once its chat permits it.
        let open = in_chats.into_iter();
        let open = open.map(|waiting| OpenQuestion::new(waiting, chats));
        let ends = rounds.follow_all(open.collect(), gate);
        settled.ends = ends.collect().await;
        return Ok(settled);
    }
    let calls: Vec<_> = in_chats.iter().collect();
    let outcomes = chats.settle(&calls, gate).await;
    let outcomes = outcomes.map_err(LoopError::Failed)?;
    for (mut waiting, outcome) in in_chats.into_iter().zip(outcomes) {
        let (answers, record) = match outcome {
            ChatOutcome::Waiting => {
                settled.waiting.push(waiting);
                continue;
            }
            ChatOutcome::Refused(text) => {
                settled.refused.push((waiting.call.id, text));
                continue;
            }
            ChatOutcome::Approved(record) => (None, Some(*record)),
            ChatOutcome::Answered(answers, record) => (Some(answers), record.map(|record| *record)),
        };
        let approval = waiting.in_chat.take();
        settled.due.push(DueCall {
            waiting,
            answers,
            record: approval.map(|approval| approval.id).zip(record),
        });
    }
    Ok(settled)
}

/// The calls whose tools are informed that the user cancels. Those that waited for an approval are not made.
fn ended_calls(later: Vec<WaitingCall>, messages: &mut [Message]) -> Vec<DueCall> {
    let mut due = Vec::with_capacity(later.len());
    for waiting in later {
        let Some(question) = &waiting.question else {
            let result = Message::new(Role::Tool, NOT_APPROVED);
            place_result(messages, &waiting.call.id, result);
            continue;
        };
        due.push(DueCall {
            answers: Some(question.asked.answered(&UserAnswer::Cancelled).answers),
            waiting,
            record: None,
        });
    }
    due
}

impl DueCall {
    /// A call that this request has asked a chat about.
    pub(super) const fn new(waiting: WaitingCall, answers: Option<AnswerMap>) -> Self {
        Self {
            waiting,
            answers,
            record: None,
        }
    }

    /// Number of the question that the tool asks if it asks now.
    pub(super) fn next_round(&self) -> u32 {
        let question = self.waiting.question.as_ref();
        question.map_or(1, |question| question.round + 1)
    }

    pub(super) async fn run(&self, rounds: &ToolLoop<'_>) -> Result<CompletedCall, LoopError> {
        let runner = &rounds.runner;
        let call = &self.waiting.call;
        let (Some(question), Some(answers)) = (&self.waiting.question, &self.answers) else {
            let approval = self.waiting.asked_as.as_deref();
            return runner.call_with(call, None, true, approval).await;
        };
        let is_cancelled = answers
            .values()
            .all(|answer| *answer == UserAnswer::Cancelled);
        if question.asked.is_over && is_cancelled {
            // The server got this answer already.
            let function = &call.function;
            let judged = (function.name.as_str(), function.arguments.as_str());
            return runner
                .judge_result(judged, ended_call(call, question))
                .await;
        }
        let answered = AnsweredQuestion {
            resume: question.asked.resume.clone(),
            answers: answers.clone(),
        };
        let may_ask = question.round < MAX_QUESTION_ROUNDS && !is_cancelled;
        runner.call_with(call, Some(&answered), may_ask, None).await
    }
}

/// The result of a call whose server was answered with `cancel`.
fn ended_call(call: &ToolCall, question: &PausedQuestion) -> CompletedCall {
    CompletedCall {
        message: Message {
            tool_call_id: Some(call.id.clone()),
            ..question.result.clone()
        },
        propagate: Vec::new(),
        usage: Vec::new(),
        content_type: String::new(),
        failed: false,
        failure: None,
        milliseconds: 0,
        question: None,
    }
}

/// Replaces the empty result of a call. Ids of models may repeat, and the newest one belongs to this turn.
pub(super) fn place_result(messages: &mut [Message], id: &str, mut result: Message) {
    result.tool_call_id = Some(id.to_owned());
    let placeholder = messages
        .iter_mut()
        .rfind(|message| message.role == Role::Tool && message.tool_call_id.as_deref() == Some(id));
    if let Some(placeholder) = placeholder {
        *placeholder = result;
    }
}
