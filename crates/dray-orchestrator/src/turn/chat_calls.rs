//! Calls of a round that wait for chats, beside the other calls of the round: each is made as soon as its chat permits
//! it, even while others run or wait. What is not decided while the request is open waits with the paused turn.

use std::time::Duration;

use dray_agent::message::ToolCall;
use dray_tool::pipeline::CompletedCall;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::timeout;

use super::chat_approvals::{ChatOutcome, OpenQuestion};
use super::rounds::{LoopError, ToolLoop};
use super::settle::DueCall;
use super::waiting::{WaitingCall, waiting_or_ran};

/// The end of a call about which a chat was asked.
#[derive(Debug)]
pub(super) enum ChatCallEnd<'a> {
    /// The call was made or continued.
    Ran(ToolCall, Box<CompletedCall>),
    /// The call is not made, and the model gets this reason.
    Refused(ToolCall, &'static str),
    /// The call's chat has not decided.
    Open(Box<OpenQuestion<'a>>),
    /// The call's tool asks the client.
    OfClient(Box<WaitingCall>),
    /// The call ends the request.
    Failed(LoopError),
}

/// State that decides how long the questions of a round wait.
#[derive(Clone, Copy, Debug, Default)]
struct GateState {
    /// Number of groups of calls that run.
    running: usize,
    /// Whether the client has something to answer.
    client_waits: bool,
    has_failed: bool,
}

/// How long the questions of a round in chats wait: as long as calls of the round run, since the request is open
/// anyway, and for a while after that, unless the client has something to answer itself.
#[derive(Debug)]
pub(super) struct ChatGate {
    state: watch::Sender<GateState>,
    max_wait: Duration,
}

impl ChatGate {
    /// A gate for questions that wait `max_wait` after the last call.
    pub(super) fn new(max_wait: Duration, client_waits: bool) -> Self {
        let state = GateState {
            client_waits,
            ..GateState::default()
        };
        Self {
            state: watch::Sender::new(state),
            max_wait,
        }
    }

    /// Calls run from now on.
    pub(super) fn begin_calls(&self) {
        self.state.send_modify(|state| state.running += 1);
    }

    /// The calls of one [`Self::begin_calls`] have ended.
    pub(super) fn end_calls(&self) {
        let end = |state: &mut GateState| state.running = state.running.saturating_sub(1);
        self.state.send_modify(end);
    }

    /// The client has something to answer.
    pub(super) fn note_client(&self) {
        self.state.send_modify(|state| state.client_waits = true);
    }

    /// The request ends with an error.
    pub(super) fn fail(&self) {
        self.state.send_modify(|state| state.has_failed = true);
    }

    /// Waits until a question has to stop waiting.
    pub(super) async fn closed(&self) {
        let mut state = self.state.subscribe();
        loop {
            // No error is possible: this gate holds the sender.
            let idle = state.wait_for(|state| state.has_failed || state.running == 0);
            let is_over = idle
                .await
                .is_ok_and(|state| state.has_failed || state.client_waits);
            if is_over {
                return;
            }
            let changed =
                state.wait_for(|state| state.has_failed || state.client_waits || state.running > 0);
            if timeout(self.max_wait, changed).await.is_err() {
                return;
            }
        }
    }
}

impl<'a> ToolLoop<'a> {
    /// Asks a chat about a prepared call, and makes the call once the chat permits it.
    pub(super) async fn call_in_chat(
        &self,
        waiting: WaitingCall,
        token: &str,
        gate: &ChatGate,
    ) -> ChatCallEnd<'a> {
        match self.chats.ask(waiting, token).await {
            Ok(question) => Box::pin(self.follow(question, gate)).await,
            Err((call, text)) => ChatCallEnd::Refused(call, text),
        }
    }

    /// The ends of calls about which chats were asked, in the order in which they arrive.
    pub(super) fn follow_all<'s>(
        &'s self,
        open: Vec<OpenQuestion<'a>>,
        gate: &'s ChatGate,
    ) -> impl Stream<Item = ChatCallEnd<'a>> + Unpin {
        let calls = open.into_iter();
        let calls = calls.map(|question| Box::pin(self.follow(question, gate)));
        calls.collect::<FuturesUnordered<_>>()
    }

    /// Waits for the chat of a question, and makes or continues the call. The loop ends, because each call may ask at
    /// most `MAX_QUESTION_ROUNDS` times.
    pub(super) async fn follow(
        &self,
        mut open: OpenQuestion<'a>,
        gate: &ChatGate,
    ) -> ChatCallEnd<'a> {
        loop {
            let settled = self.chats.settle_one(&open.waiting, gate.closed()).await;
            let due = match settled {
                Ok(ChatOutcome::Waiting) => return ChatCallEnd::Open(Box::new(open)),
                Ok(ChatOutcome::Refused(text)) => {
                    return ChatCallEnd::Refused(open.keep().call, text);
                }
                Ok(ChatOutcome::Approved(_)) => DueCall::new(open.keep(), None),
                Ok(ChatOutcome::Answered(answers, _)) => DueCall::new(open.keep(), Some(answers)),
                Err(failure) => {
                    gate.fail();
                    return ChatCallEnd::Failed(LoopError::Failed(failure));
                }
            };
            gate.begin_calls();
            let ran = due.run(self).await;
            gate.end_calls();
            let round = due.next_round();
            let call = due.waiting.call;
            match ran.map(|ran| waiting_or_ran(call.clone(), ran, round)) {
                Ok(Ok(repeated)) => match self.chats.ask_tool(repeated).await {
                    Ok(question) => open = question,
                    Err(waiting) => {
                        gate.note_client();
                        return ChatCallEnd::OfClient(waiting);
                    }
                },
                Ok(Err(ran)) => return ChatCallEnd::Ran(call, ran),
                Err(error) => {
                    gate.fail();
                    return ChatCallEnd::Failed(error);
                }
            }
        }
    }
}
