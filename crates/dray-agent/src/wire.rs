//! Serialises answers: as the chunks of a stream (quickapps 3.2), and as the complete answer made from them (3.3).
//!
//! Keys have a fixed order, and the output depends only on the events and the arguments of [`ChunkWriter::new`]: equal
//! events result in equal bytes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::citation::{CitationIndex, CitationSource};
use crate::event::{AnswerEnd, Event, FinishReason, ModelUsage, StageStatus, TokenUsage};
use crate::message::{Attachment, ToolCall};

mod delta;
mod line;
mod merge;
#[cfg(test)]
mod tests;

use delta::PlainDelta;
use line::LineFrame;
pub use line::{DONE_LINE, write_event_line};
pub use merge::MergedAnswer;

/// Writes the chunks of one answer.
#[derive(Clone, Debug)]
pub struct ChunkWriter {
    id: String,
    created: u64,
    model: Option<String>,
    /// Whether chunks follow `OpenAI`'s API exactly.
    is_plain: bool,
    attachments: u32,
    calls: u32,
    stages: BTreeMap<u32, ShownStage>,
    /// Frame of the chunks with a delta; created with the first one.
    frame: Option<LineFrame>,
    /// The text so far, for its citations; empty unless the client uses `OpenAI`'s API.
    text: String,
    citations: CitationIndex,
}

/// The number of sent attachments of a stage, and whether the end of the stage was sent.
#[derive(Clone, Copy, Debug, Default)]
struct ShownStage {
    attachments: u32,
    closed: bool,
}

impl ChunkWriter {
    /// A writer for the answer `id` (a UUID), made at `created` (Unix seconds), with the model's name if known.
    pub fn new(id: impl Into<String>, created: u64, model: Option<String>) -> Self {
        Self {
            id: id.into(),
            created,
            model,
            is_plain: false,
            attachments: 0,
            calls: 0,
            stages: BTreeMap::new(),
            frame: None,
            text: String::new(),
            citations: CitationIndex::default(),
        }
    }

    /// Makes the chunks follow `OpenAI`'s API: every choice has a `finish_reason`, and tokens are in a separate chunk.
    #[must_use]
    pub const fn plain(mut self) -> Self {
        self.is_plain = true;
        self
    }

    /// The first chunk: the role, before any other event.
    pub fn start(&self) -> Value {
        self.delta(json!({ "role": "assistant" }))
    }

    /// Adds the line of [`ChunkWriter::start`] to `out`.
    pub fn write_start(&mut self, out: &mut Vec<u8>) {
        self.write_delta(out, &PlainDelta::of_start());
    }

    /// Adds the lines of an event to `out`: [`write_event_line`] of each chunk of [`ChunkWriter::event`].
    pub fn write_event(&mut self, out: &mut Vec<u8>, event: Event) {
        if let Some(delta) = PlainDelta::of(&event) {
            self.write_delta(out, &delta);
            self.note_event(&event);
            return;
        }
        for chunk in self.event(event) {
            write_event_line(out, &chunk);
        }
    }

    fn write_delta(&mut self, out: &mut Vec<u8>, delta: &PlainDelta<'_>) {
        let frame = self.frame.take();
        let frame = frame.unwrap_or_else(|| LineFrame::of(&self.delta(Value::Null)));
        frame.write(out, delta);
        self.frame = Some(frame);
    }

    /// Records what later chunks depend on.
    fn note_event(&mut self, event: &Event) {
        match event {
            // Answers of DIAL have no annotations, so their text need not be kept.
            Event::Content(text) if self.is_plain => self.text.push_str(text),
            Event::StageOpened { stage, .. } => {
                self.stages.insert(*stage, ShownStage::default());
            }
            Event::StageClosed { stage, .. } => {
                self.stages.entry(*stage).or_default().closed = true;
            }
            _ => {}
        }
    }

    /// The chunks of an event: one for each event, except that [`Event::ToolCalls`] has one for each call.
    pub fn event(&mut self, event: Event) -> Vec<Value> {
        self.note_event(&event);
        let chunk = match event {
            Event::Content(content) => self.delta(json!({ "content": content })),
            Event::Sources(sources) => {
                self.citations.add(sources);
                return Vec::new();
            }
            // The name that services of reasoning models use; `OpenAI`'s own API has none.
            Event::Reasoning(text) => self.delta(json!({ "reasoning_content": text })),
            Event::Refusal(text) => self.delta(json!({ "refusal": text })),
            Event::Logprobs(logprobs) => self.logprobs(logprobs),
            Event::ToolsStarted
            | Event::CallsStarted
            | Event::OutputFile { .. }
            | Event::ApprovalRequests(_)
            | Event::McpTools(_)
            | Event::McpCallStarted(_)
            | Event::McpCallEnded(_) => {
                return Vec::new();
            }
            Event::Attachment(attachment) => {
                let index = next_index(&mut self.attachments);
                let attachment = attachment_members(index, attachment);
                self.delta(json!({ "custom_content": { "attachments": [attachment] } }))
            }
            Event::StageOpened { stage, name } => {
                self.stage(json!({ "index": stage, "name": name, "status": null }))
            }
            Event::StageName { stage, name } => {
                self.stage(json!({ "index": stage, "name": name, "status": null }))
            }
            Event::StageContent { stage, content } => {
                self.stage(json!({ "index": stage, "content": content, "status": null }))
            }
            Event::StageAttachment { stage, attachment } => {
                let index = next_index(&mut self.stages.entry(stage).or_default().attachments);
                let attachment = attachment_members(index, attachment);
                self.stage(json!({ "index": stage, "attachments": [attachment], "status": null }))
            }
            Event::StageClosed { stage, status } => self.close(stage, status),
            Event::State(state) => self.delta(json!({ "custom_content": { "state": state } })),
            Event::ToolCalls(calls) => return calls.iter().map(|call| self.call(call)).collect(),
        };
        vec![chunk]
    }

    /// Chunks that close the stages which are still open, in order of opening.
    pub fn close_open(&mut self, status: StageStatus) -> Vec<Value> {
        // Numbers increase in order of opening, so the order of keys is that order.
        let open = self.stages.iter().filter(|(_, shown)| !shown.closed);
        let open: Vec<_> = open.map(|(stage, _)| *stage).collect();
        open.into_iter()
            .map(|stage| self.close(stage, status))
            .collect()
    }

    /// The chunk with the citations of the answer, before its end; `None` without any. `OpenAI`'s API has only pages
    /// there.
    pub fn annotations(&self) -> Option<Value> {
        let citations = self.citations.find(&self.text);
        let annotations = citations.into_iter().filter_map(|cited| {
            let CitationSource::Page { url, title } = cited.source else {
                return None;
            };
            let url_citation = json!({
                "start_index": cited.start, "end_index": cited.end, "title": title, "url": url,
            });
            Some(json!({ "type": "url_citation", "url_citation": url_citation }))
        });
        let annotations: Vec<_> = annotations.collect();
        (!annotations.is_empty()).then(|| self.delta(json!({ "annotations": annotations })))
    }

    /// The last chunk of an answer, which is sent after all work has ended.
    pub fn end(&self, ending: &AnswerEnd) -> Value {
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(0));
        choice.insert("finish_reason".to_owned(), json!(ending.reason.as_str()));
        // No `finish_reason` beside it, in contrast to all other chunks (quickapps 3.2).
        choice.insert("delta".to_owned(), json!({}));
        let mut chunk = self.chunk(choice);
        self.add_usage(&mut chunk, ending);
        chunk
    }

    /// The last chunk of an answer that failed; the error event comes after it (quickapps 4).
    pub fn end_of_failed(&self) -> Value {
        self.end(&AnswerEnd {
            reason: FinishReason::Stop,
            ..AnswerEnd::default()
        })
    }

    /// A chunk without choices that has the tokens, for clients that request `include_usage`.
    pub fn usage(&self, ending: &AnswerEnd) -> Value {
        let mut chunk = self.chunk_of(Vec::new());
        self.add_usage(&mut chunk, ending);
        chunk
    }

    fn add_usage(&self, chunk: &mut Value, ending: &AnswerEnd) {
        let Some(members) = chunk.as_object_mut() else {
            return;
        };
        if let Some(tokens) = ending.usage {
            let mut usage = usage_members(tokens);
            if self.is_plain {
                add_details(&mut usage, tokens);
            }
            members.insert("usage".to_owned(), Value::Object(usage));
        }
        if !ending.per_model.is_empty() {
            let models = (0..).zip(&ending.per_model);
            let models: Vec<_> = models
                .map(|(index, model)| model_usage_entry(index, model))
                .collect();
            members.insert(
                "statistics".to_owned(),
                json!({ "usage_per_model": models }),
            );
        }
    }

    fn logprobs(&self, logprobs: Value) -> Value {
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(0));
        choice.insert("finish_reason".to_owned(), Value::Null);
        choice.insert("delta".to_owned(), json!({}));
        choice.insert("logprobs".to_owned(), logprobs);
        self.chunk(choice)
    }

    fn close(&mut self, stage: u32, status: StageStatus) -> Value {
        self.stages.entry(stage).or_default().closed = true;
        self.stage(json!({ "index": stage, "status": status.as_str() }))
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let index = next_index(&mut self.calls);
        let call = json!({
            "index": index,
            "id": call.id,
            "type": "function",
            "function": { "name": call.function.name, "arguments": call.function.arguments },
        });
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(0));
        if self.is_plain {
            // DIAL's chunks of calls have no such key (quickapps 3.2); typed clients of `OpenAI`'s API require it.
            choice.insert("finish_reason".to_owned(), Value::Null);
        }
        choice.insert(
            "delta".to_owned(),
            json!({ "content": null, "tool_calls": [call] }),
        );
        self.chunk(choice)
    }

    fn stage(&self, stage: Value) -> Value {
        let mut stages = Map::new();
        stages.insert("stages".to_owned(), Value::Array(vec![stage]));
        let mut delta = Map::new();
        delta.insert("custom_content".to_owned(), Value::Object(stages));
        self.delta(Value::Object(delta))
    }

    fn delta(&self, delta: Value) -> Value {
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(0));
        choice.insert("finish_reason".to_owned(), Value::Null);
        choice.insert("delta".to_owned(), delta);
        self.chunk(choice)
    }

    fn chunk(&self, choice: Map<String, Value>) -> Value {
        self.chunk_of(vec![Value::Object(choice)])
    }

    fn chunk_of(&self, choices: Vec<Value>) -> Value {
        let mut chunk = Map::new();
        chunk.insert("id".to_owned(), json!(self.id));
        chunk.insert("object".to_owned(), json!("chat.completion.chunk"));
        chunk.insert("created".to_owned(), json!(self.created));
        if let Some(model) = &self.model {
            chunk.insert("model".to_owned(), json!(model));
        }
        chunk.insert("choices".to_owned(), Value::Array(choices));
        // Present in every chunk, as in the backend's (quickapps 3.2).
        chunk.insert("usage".to_owned(), Value::Null);
        Value::Object(chunk)
    }
}

fn next_index(counter: &mut u32) -> u32 {
    let index = *counter;
    *counter = counter.saturating_add(1);
    index
}

/// An attachment with its index and its non-empty fields. Clients require exactly one of content and address: the
/// address has priority, and the reference URL replaces a missing one.
fn attachment_members(index: u32, attachment: Attachment) -> Map<String, Value> {
    let is_filled = |text: &String| !text.is_empty();
    let reference = attachment.reference_url.filter(is_filled);
    let mut data = attachment.data.filter(is_filled);
    let mut url = attachment.url.filter(is_filled);
    if url.is_some() {
        // Newer clients refuse an attachment with both (quickapps 3.1).
        data = None;
    } else if data.is_none() {
        url.clone_from(&reference);
        data = url.is_none().then(String::new);
    }
    let mut members = Map::new();
    members.insert("index".to_owned(), json!(index));
    for (key, value) in [
        ("type", attachment.kind.filter(is_filled)),
        ("title", attachment.title.filter(is_filled)),
        ("data", data),
        ("url", url),
        ("reference_url", reference),
        (
            "reference_type",
            attachment.reference_type.filter(is_filled),
        ),
    ] {
        if let Some(value) = value {
            members.insert(key.to_owned(), Value::String(value));
        }
    }
    members
}

fn usage_members(tokens: TokenUsage) -> Map<String, Value> {
    let mut usage = Map::new();
    usage.insert("prompt_tokens".to_owned(), json!(tokens.prompt));
    usage.insert("completion_tokens".to_owned(), json!(tokens.completion));
    let total = tokens.prompt.saturating_add(tokens.completion);
    usage.insert("total_tokens".to_owned(), json!(total));
    usage
}

/// Adds the details of the tokens within the totals, which DIAL's API does not have.
fn add_details(usage: &mut Map<String, Value>, tokens: TokenUsage) {
    // The counts are omitted unless the model's service counts these tokens, because 0 would be wrong.
    let prompt = [
        ("cached_tokens", tokens.cached),
        ("cache_write_tokens", tokens.cache_written),
    ];
    let counted = prompt.into_iter().filter(|(_, count)| *count > 0);
    let details: Map<_, _> = counted
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect();
    if !details.is_empty() {
        usage.insert("prompt_tokens_details".to_owned(), json!(details));
    }
    if tokens.reasoning > 0 {
        let details = json!({ "reasoning_tokens": tokens.reasoning });
        usage.insert("completion_tokens_details".to_owned(), details);
    }
}

fn model_usage_entry(index: u32, model: &ModelUsage) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("index".to_owned(), json!(index));
    entry.insert("model".to_owned(), json!(model.model));
    entry.extend(usage_members(model.tokens));
    entry
}
