//! Forwards one answer of the model while it arrives (quickapps 18.4).

use std::collections::{BTreeMap, HashSet};

use dray_agent::event::{Event, FinishReason, ModelUsage, StageStatus};
use dray_agent::message::{Attachment, FunctionCall, Message, ToolCall};
use dray_dial::chat::{CallDelta, ChunkDelta, StageDelta, StageEnd};
use dray_tool::{ClientGone, EventSink, StageWriter};
use serde_json::{Map, Value};

use super::provider_quirks::EXTRA_MEMBER;
use super::speech::TextRelay;
use crate::records::digest_prefix;

/// Most calls in one answer. An answer with more calls fails, because the model probably repeats itself without end.
const MAX_CALLS: usize = 128;

/// Longest id of a call in bytes. Some services put signatures of several KiB into it; a longer one, which each result
/// and each later request would repeat, is replaced.
const MAX_CALL_ID_BYTES: usize = 64 << 10;

/// Most bytes of text and calls of one answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Most bytes of log probabilities of an answer that is held back.
const MAX_HELD_LOGPROBS_BYTES: usize = 64 << 20;

/// An answer that is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidAnswer {
    /// The client has disconnected.
    Gone,
    /// The answer is too long or has too many calls.
    TooMuch,
    /// The model's service broke the answer off, and reported that as the reason of its end.
    Broken,
}

impl From<ClientGone> for InvalidAnswer {
    fn from(_: ClientGone) -> Self {
        Self::Gone
    }
}

/// One complete answer of the model.
#[derive(Debug, Default)]
pub(super) struct ModelAnswer {
    /// The answer's text, as the model wrote it.
    pub(super) content: String,
    /// The model's reasoning, which is not a part of the text.
    pub(super) reasoning: String,
    /// The calls that it requests, in order.
    pub(super) calls: Vec<ToolCall>,
    /// Files of the answer, each with content or an address.
    pub(super) attachments: Vec<Attachment>,
    /// State of the model's deployment, which gets it back in the next turn.
    pub(super) state: Option<Value>,
    /// The reason why the answer ended; `None` if the stream did not report it.
    pub(super) reason: Option<FinishReason>,
    /// The model that answered, as its service names it.
    pub(super) model: Option<String>,
    /// The answer's tokens, by model.
    pub(super) usage: Vec<ModelUsage>,
    /// The events of an answer that is held back, in order of arrival.
    pub(super) held: Vec<Event>,
}

/// Forwards an answer while it arrives, and collects it.
#[derive(Debug)]
pub(super) struct AnswerRelay<'a> {
    sink: &'a EventSink,
    speech: &'a mut TextRelay,
    propagates: bool,
    /// Whether the client gets reasoning, refusals and log probabilities, which clients of DIAL do not know.
    is_plain: bool,
    stages: BTreeMap<u32, StageWriter>,
    /// Calls in order of arrival, each with the number that the model gave it.
    calls: Vec<(u32, ToolCall)>,
    /// Bytes of text and calls.
    bytes: usize,
    has_begun: bool,
    /// If the answer is held back: the bytes of its log probabilities so far. Nothing is sent then, and
    /// [`ModelAnswer::held`] has the events.
    held_logprobs: Option<usize>,
    answer: ModelAnswer,
}

impl<'a> AnswerRelay<'a> {
    pub(super) fn new(
        sink: &'a EventSink,
        speech: &'a mut TextRelay,
        propagates: bool,
        is_plain: bool,
    ) -> Self {
        Self {
            sink,
            speech,
            propagates,
            is_plain,
            stages: BTreeMap::new(),
            calls: Vec::new(),
            bytes: 0,
            has_begun: false,
            held_logprobs: None,
            answer: ModelAnswer::default(),
        }
    }

    /// Sets whether the answer is held back. Stages of the model's deployment are left out then.
    #[must_use]
    pub(super) fn holding(mut self, holds: bool) -> Self {
        self.held_logprobs = holds.then_some(0);
        self.propagates &= !holds;
        self
    }

    /// Bytes of text and calls so far.
    pub(super) const fn received_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether any of the answer has arrived; what the client saw cannot be taken back.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes the next chunk.
    pub(super) async fn take(&mut self, delta: ChunkDelta) -> Result<(), InvalidAnswer> {
        if has_content(&delta) && !std::mem::replace(&mut self.has_begun, true) {
            self.begin().await?;
        }
        if self.answer.model.is_none() {
            self.answer.model = delta.model;
        }
        for stage in delta.stages {
            self.forward_stage(stage).await?;
        }
        if let Some(reasoning) = &delta.reasoning {
            if !self.is_plain {
                // Clients of DIAL do not get it, so `forward` does not count it.
                self.count_bytes(reasoning.len())?;
            }
            self.answer.reasoning.push_str(reasoning);
        }
        if self.is_plain {
            let thought = delta.reasoning.map(Event::Reasoning);
            let refusal = delta.refusal.map(Event::Refusal);
            for event in thought.into_iter().chain(refusal) {
                self.forward(event).await?;
            }
        }
        if let Some(content) = delta.content.filter(|content| !content.is_empty()) {
            // Text or calls mean that the deployment's own work has ended (quickapps 18.4).
            self.close_stages(StageStatus::Completed).await?;
            self.count_bytes(content.len())?;
            self.answer.content.push_str(&content);
            self.emit(Event::Content(content)).await?;
        }
        if let Some(logprobs) = delta.logprobs.filter(|_| self.is_plain) {
            self.emit(Event::Logprobs(logprobs)).await?;
        }
        for attachment in delta.attachments {
            let attachment = with_address(attachment);
            self.emit(Event::Attachment(attachment.clone())).await?;
            self.answer.attachments.push(attachment);
        }
        if !delta.tool_calls.is_empty() {
            self.close_stages(StageStatus::Completed).await?;
        }
        for call in delta.tool_calls {
            self.add_call(call)?;
        }
        if let Some(state) = delta.state {
            merge_delta(self.answer.state.get_or_insert(Value::Null), state);
        }
        // Statistics by model include the total. Later numbers replace earlier ones: the last chunk has the final
        // numbers.
        if !delta.statistics.is_empty() {
            self.answer.usage = delta.statistics;
        } else if let Some(tokens) = delta.usage {
            self.answer.usage = vec![ModelUsage {
                model: String::new(),
                tokens,
            }];
        }
        if let Some(reason) = delta.finish_reason {
            self.answer.reason = Some(finish_reason(&reason).ok_or(InvalidAnswer::Broken)?);
        }
        Ok(())
    }

    /// The complete answer to these messages, after its last chunk.
    pub(super) async fn finish(mut self, messages: &[Message]) -> Result<ModelAnswer, ClientGone> {
        self.close_stages(StageStatus::Completed).await?;
        let is_cut_off = self.answer.reason == Some(FinishReason::Length);
        if self.answer.reason == Some(FinishReason::ContentFilter) {
            // The filter stopped the model, so its calls may be incomplete, and none of them is made.
            self.calls.clear();
        }
        self.answer.calls = with_call_ids(self.calls, is_cut_off, messages);
        // Some services end an answer of text with this reason. A client would look for calls, and find none.
        if self.answer.calls.is_empty() && self.answer.reason == Some(FinishReason::ToolCalls) {
            self.answer.reason = Some(FinishReason::Stop);
        }
        Ok(self.answer)
    }

    /// Closes the open stages of an answer that broke off, and returns the tokens that it reported before.
    pub(super) async fn finish_broken(mut self) -> Result<Vec<ModelUsage>, ClientGone> {
        self.close_stages(StageStatus::Failed).await?;
        Ok(self.answer.usage)
    }

    /// Forwards reasoning or a refusal, which are not part of the answer's text.
    async fn forward(&mut self, event: Event) -> Result<(), InvalidAnswer> {
        if let Event::Reasoning(text) | Event::Refusal(text) = &event {
            if text.is_empty() {
                return Ok(());
            }
            self.count_bytes(text.len())?;
        }
        self.emit(event).await
    }

    /// Lets the stream of a plain client begin when it would begin with an answer that is not held back, so that
    /// heartbeats keep it open.
    async fn begin(&mut self) -> Result<(), ClientGone> {
        if self.held_logprobs.is_some() && self.is_plain {
            self.sink.send(Event::ToolsStarted).await?;
        }
        Ok(())
    }

    /// Sends an event, or holds it back.
    async fn emit(&mut self, event: Event) -> Result<(), InvalidAnswer> {
        if let Some(held_logprobs) = &mut self.held_logprobs {
            if let Event::Logprobs(logprobs) = &event {
                *held_logprobs += logprobs.to_string().len();
                if *held_logprobs > MAX_HELD_LOGPROBS_BYTES {
                    return Err(InvalidAnswer::TooMuch);
                }
            }
            self.answer.held.push(event);
            return Ok(());
        }
        match event {
            Event::Content(text) => self.speech.send_text(self.sink, &text).await?,
            event => self.sink.send(event).await?,
        }
        Ok(())
    }

    async fn forward_stage(&mut self, delta: StageDelta) -> Result<(), ClientGone> {
        if !self.propagates {
            return Ok(());
        }
        let stage = match (self.stages.get(&delta.index), delta.name) {
            (Some(stage), name) => {
                if let Some(name) = name {
                    stage.name(name).await?;
                }
                stage.clone()
            }
            (None, Some(name)) => {
                let stage = self.sink.open(Some(name)).await?;
                self.stages.insert(delta.index, stage.clone());
                stage
            }
            // A stage without a name is not opened.
            (None, None) => return Ok(()),
        };
        if let Some(content) = delta.content.filter(|content| !content.is_empty()) {
            stage.content(content).await?;
        }
        for attachment in delta.attachments {
            stage.attachment(with_address(attachment)).await?;
        }
        if let Some(end) = delta.status {
            self.stages.remove(&delta.index);
            stage.close(stage_status(end)).await?;
        }
        Ok(())
    }

    async fn close_stages(&mut self, status: StageStatus) -> Result<(), ClientGone> {
        for stage in std::mem::take(&mut self.stages).into_values() {
            stage.close(status).await?;
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), InvalidAnswer> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_ANSWER_BYTES {
            return Err(InvalidAnswer::TooMuch);
        }
        Ok(())
    }

    /// Adds a delta of a call. The same number with another id and a name is another call; some services write a new id
    /// into each part of a call, and the name into the first.
    fn add_call(&mut self, delta: CallDelta) -> Result<(), InvalidAnswer> {
        let id = bounded_id(delta.id.unwrap_or_default());
        let is_part = id.is_empty() || delta.name.as_deref().unwrap_or_default().is_empty();
        let known = self.calls.iter().rposition(|(index, call)| {
            *index == delta.index && (is_part || call.id.is_empty() || call.id == id)
        });
        let position = known.unwrap_or(self.calls.len());
        if known.is_none() {
            if position >= MAX_CALLS {
                return Err(InvalidAnswer::TooMuch);
            }
            self.calls.push((delta.index, empty_call()));
        }
        let arguments = delta.arguments.unwrap_or_default();
        let name = delta.name.unwrap_or_default();
        let extra = delta.extra_content;
        let extra_bytes = extra.as_ref().map_or(0, |extra| extra.to_string().len());
        self.count_bytes(arguments.len() + name.len() + extra_bytes)?;
        let Some((_, call)) = self.calls.get_mut(position) else {
            return Ok(());
        };
        if call.id.is_empty() {
            call.id = id;
        }
        // Some services repeat the whole name in each part.
        if call.function.name != name {
            call.function.name.push_str(&name);
        }
        call.function.arguments.push_str(&arguments);
        call.rest
            .extend(extra.map(|extra| (EXTRA_MEMBER.to_owned(), extra)));
        Ok(())
    }
}

/// Whether a chunk has a part of the answer. The first chunk of most services has a role alone.
fn has_content(delta: &ChunkDelta) -> bool {
    let texts = [&delta.content, &delta.reasoning, &delta.refusal];
    texts.into_iter().flatten().any(|text| !text.is_empty())
        || !delta.tool_calls.is_empty()
        || !delta.stages.is_empty()
        || !delta.attachments.is_empty()
        || delta.state.is_some()
}

/// The id of a call, or its digest if it is too long.
fn bounded_id(id: String) -> String {
    if id.len() <= MAX_CALL_ID_BYTES {
        return id;
    }
    format!("call_{}", digest_prefix(&id, 24))
}

fn empty_call() -> ToolCall {
    ToolCall {
        id: String::new(),
        kind: "function".to_owned(),
        function: FunctionCall {
            name: String::new(),
            arguments: String::new(),
            rest: Map::new(),
        },
        rest: Map::new(),
    }
}

/// The calls in the order of their numbers, each with an id that no other call of the conversation has: results name
/// calls by it, and so do deliveries, which happen once for each id. With `is_cut_off`, the model's limit ended the last
/// one.
fn with_call_ids(
    mut calls: Vec<(u32, ToolCall)>,
    is_cut_off: bool,
    messages: &[Message],
) -> Vec<ToolCall> {
    if calls.is_empty() {
        return Vec::new();
    }
    // The sort is stable: calls that share a number stay in their order of arrival.
    calls.sort_by_key(|(index, _)| *index);
    // Some services number the calls of each answer from zero.
    let earlier = messages.iter().flat_map(Message::calls);
    let mut known: HashSet<String> = earlier.map(|call| call.id.clone()).collect();
    let mut identified = Vec::with_capacity(calls.len());
    let last = calls.len().saturating_sub(1);
    for (position, (_, mut call)) in calls.into_iter().enumerate() {
        // Services send no text for a call without arguments; clients and other models parse it as JSON. A call that
        // was cut off before its arguments must not look complete.
        let may_miss_arguments = is_cut_off && position == last;
        if call.function.arguments.trim().is_empty() && !may_miss_arguments {
            "{}".clone_into(&mut call.function.arguments);
        }
        if call.id.is_empty() || known.contains(&call.id) {
            call.id = unused_id(position, &call.function, &known);
        }
        known.insert(call.id.clone());
        identified.push(call);
    }
    identified
}

/// An id for a call without one. It is a digest and not random: equal answers to equal messages give equal bytes
/// (quickapps 44.4 R16).
fn unused_id(position: usize, function: &FunctionCall, known: &HashSet<String>) -> String {
    let mut text = format!("{position}\n{}\n{}", function.name, function.arguments);
    loop {
        let id = format!("call_{}", digest_prefix(&text, 24));
        if !known.contains(&id) {
            return id;
        }
        // An earlier round has the same call.
        text = id;
    }
}

const fn stage_status(end: StageEnd) -> StageStatus {
    match end {
        StageEnd::Completed => StageStatus::Completed,
        StageEnd::Failed => StageStatus::Failed,
    }
}

/// A file with an address: where there is neither content nor URL, the URL is that of its source.
fn with_address(mut attachment: Attachment) -> Attachment {
    if attachment.data.is_none() && attachment.url.is_none() {
        match &attachment.reference_url {
            Some(url) => attachment.url = Some(url.clone()),
            None => attachment.data = Some(String::new()),
        }
    }
    attachment
}

/// The meaning of a service's reason for the end of an answer; `None` if the service broke the answer off. Beside the
/// names of `OpenAI`'s API, services such as those of Mistral, `DeepSeek`, Gemini, `vLLM` and `OpenRouter` have their own.
fn finish_reason(reason: &str) -> Option<FinishReason> {
    Some(match reason.to_ascii_lowercase().as_str() {
        "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "max_output_tokens" | "model_length" => FinishReason::Length,
        "content_filter" | "safety" | "sensitive" | "blocklist" | "prohibited_content"
        | "recitation" | "spii" => FinishReason::ContentFilter,
        "error"
        | "abort"
        | "aborted"
        | "cancelled"
        | "network_error"
        | "insufficient_system_resource"
        | "malformed_function_call" => return None,
        _ => FinishReason::Stop,
    })
}

/// Objects key by key, texts concatenated, all else replaced (quickapps 3.3).
fn merge_delta(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge_delta(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::String(into), Value::String(from)) => into.push_str(&from),
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests;
