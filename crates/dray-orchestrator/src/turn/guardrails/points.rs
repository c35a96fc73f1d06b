//! The points of a turn at which guardrails judge, and what follows from their verdicts.

use dray_agent::event::{Event, FinishReason};
use dray_agent::manifest::guardrail::GuardrailEvent;
use dray_agent::message::{Content, Message, ToolCall};
use dray_tool::pipeline::{CompletedCall, parse_arguments};
use futures_util::future::join_all;
use serde_json::Value;

use super::facts::{text_of, turn_start};
use super::{GuardrailJudgement, Subject, has_guardrail};
use crate::turn::relay::ModelAnswer;
use crate::turn::rounds::{LoopEnd, LoopError, ToolLoop, stop_with};
use crate::turn::speech::TextRelay;
use crate::turn::tally::TurnTally;
use crate::turn::tool_runner::ToolRunner;

impl ToolLoop<'_> {
    /// Asks the model, with judgements before and after. Returns the answer, or the text in its place. `judged` is the
    /// number of messages at the last judgement of this request.
    pub(in crate::turn) async fn ask_judged(
        &mut self,
        messages: &mut [Message],
        (round, judged): (u32, &mut Option<usize>),
        speech: &mut TextRelay,
        tally: &mut TurnTally,
    ) -> Result<Result<ModelAnswer, String>, LoopError> {
        if let Some(text) = self.judge_prompt(messages, judged, tally).await? {
            return Ok(Err(text));
        }
        let answer = self
            .model
            .ask(messages, round, speech, self.sink, tally)
            .await;
        // The count comes before `?`, so that failed calls are counted as well.
        self.metrics.model(answer.is_ok());
        let mut answer = answer?;
        self.model.outgoing.deferred.resolve(&mut answer.calls);
        if self.model.holds_answers
            && let Some(text) = self.judge_answer(&mut answer, speech, tally).await?
        {
            return Ok(Err(text));
        }
        Ok(Ok(answer))
    }

    /// Returns the text in place of the answer if the model must not be called.
    async fn judge_prompt(
        &self,
        messages: &[Message],
        judged: &mut Option<usize>,
        tally: &mut TurnTally,
    ) -> Result<Option<String>, LoopError> {
        if !has_guardrail(self.runner.guardrails, GuardrailEvent::BeforeModel, None) {
            return Ok(None);
        }
        let earlier = judged.replace(messages.len());
        let new_from = earlier.unwrap_or_else(|| turn_start(messages));
        let subject = Subject::prompt(&self.model.outgoing.view(messages), new_from);
        let mut judging = Box::pin(self.runner.judge(subject));
        let judgement = tokio::select! {
            judgement = &mut judging => judgement,
            () = tokio::time::sleep(self.heartbeat) => {
                // Tools are not announced earlier: before the stream begins, a failure of the model still has an HTTP
                // status.
                self.announce_tools().await?;
                judging.await
            }
        }?;
        tally.tool(&judgement.usage);
        Ok(judgement.blocked)
    }

    /// Judges an answer that was held back, then sends it or its replacement. Returns the text in place of a blocked
    /// answer. The text beside calls of this service is not a part of a structured answer and not sent.
    async fn judge_answer(
        &self,
        answer: &mut ModelAnswer,
        speech: &mut TextRelay,
        tally: &mut TurnTally,
    ) -> Result<Option<String>, LoopError> {
        let judging = self.runner.judge(Subject::answer(answer));
        let judgement = Box::pin(judging).await?;
        tally.tool(&judgement.usage);
        if judgement.blocked.is_some() {
            return Ok(judgement.blocked);
        }
        if let Some(Value::String(text)) = judgement.replacement {
            // Files, reasoning and state of the answer may show what was replaced.
            *answer = ModelAnswer {
                held: vec![Event::Content(text.clone())],
                content: text,
                reason: answer.reason,
                ..ModelAnswer::default()
            };
        }
        let is_own = |call: &ToolCall| !self.client_tools.has(&call.function.name);
        let is_preamble = self.is_structured && answer.calls.iter().any(is_own);
        for event in std::mem::take(&mut answer.held) {
            match event {
                Event::Content(_) | Event::Logprobs(_) if is_preamble => {}
                Event::Content(text) => speech.send_text(self.sink, &text).await?,
                event => self.sink.send(event).await?,
            }
        }
        Ok(None)
    }

    /// Ends the turn with a text in place of an answer.
    pub(in crate::turn) async fn end_blocked(
        &self,
        text: &str,
        speech: &mut TextRelay,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        let end = stop_with(text, self.sink, speech, tally).await?;
        Ok(LoopEnd {
            reason: FinishReason::ContentFilter,
            ..end
        })
    }

    /// Judges the calls of a round before anyone is asked about them, so that a person approves the final arguments.
    /// Returns the results of the calls that are not made.
    pub(in crate::turn) async fn judge_calls(
        &self,
        calls: &mut [ToolCall],
        tally: &mut TurnTally,
    ) -> Result<Vec<Message>, LoopError> {
        let runner = &self.runner;
        if !calls.iter().any(|call| runner.judges_call(call)) {
            return Ok(Vec::new());
        }
        self.announce_tools().await?;
        let judged = join_all(calls.iter().map(|call| runner.judge_call(call))).await;
        let mut refused = Vec::new();
        for (call, judgement) in calls.iter_mut().zip(judged) {
            let judgement = judgement?;
            tally.tool(&judgement.usage);
            if let Some(text) = judgement.blocked {
                refused.push(ToolRunner::refused(call, &text));
            } else if let Some(arguments) = judgement.replacement {
                call.function.arguments = arguments.to_string();
            }
        }
        Ok(refused)
    }
}

impl ToolRunner<'_> {
    /// Whether guardrails judge a call before it is made. Calls of the client's tools and of unknown ones are not made
    /// here.
    fn judges_call(&self, call: &ToolCall) -> bool {
        let name = call.function.name.as_str();
        has_guardrail(self.guardrails, GuardrailEvent::BeforeTool, Some(name))
            && self
                .tools
                .iter()
                .any(|tool| tool.declaration().name == name)
    }

    async fn judge_call(&self, call: &ToolCall) -> Result<GuardrailJudgement, LoopError> {
        match parse_arguments(&call.function.arguments) {
            Ok(arguments) if self.judges_call(call) => {
                self.judge(Subject::call(call, arguments)).await
            }
            // A call whose arguments are not an object is never made.
            Ok(_) | Err(_) => Ok(GuardrailJudgement::default()),
        }
    }

    /// Judges the result of a call. A blocked result and a replaced result lose their files and their state, which may
    /// show the same content.
    pub(in crate::turn) async fn judge_result(
        &self,
        (name, arguments): (&str, &str),
        mut ran: CompletedCall,
    ) -> Result<CompletedCall, LoopError> {
        // A call whose tool asks the user has no result yet.
        if ran.question.is_some()
            || !has_guardrail(self.guardrails, GuardrailEvent::AfterTool, Some(name))
        {
            return Ok(ran);
        }
        let subject = Subject::result(name, arguments, text_of(&ran.message));
        // The future is on the heap: few tools are judged, and the futures of all calls would be larger with it.
        let judgement = Box::pin(self.judge(subject)).await?;
        ran.usage.extend(judgement.usage);
        ran.failed |= judgement.blocked.is_some();
        let replacement = match judgement.replacement {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        if let Some(text) = judgement.blocked.or(replacement) {
            ran.message.content = Some(Content::Text(text));
            ran.message.custom_content = None;
            ran.propagate.clear();
            "text/plain".clone_into(&mut ran.content_type);
        }
        Ok(ran)
    }
}
