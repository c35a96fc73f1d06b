//! A response while it is made: events of a turn as events and items of `/v1/responses`.

use dray_agent::citation::CitationIndex;
use dray_agent::event::{AnswerEnd, ApprovalRequest, Event, FinishReason, TokenUsage};
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Attachment, ToolCall};
use dray_agent::wire::write_event_line;
use dray_types::Clock;
use serde_json::{Map, Value, json};

use super::approval_items::{ITEM_PREFIX, answered_item_id, approval_item};
use super::mcp_items::{OpenMcpCalls, list_item};
use super::open_item::{OpenItem, OpenPart};
use super::references::item_id;
use crate::turn::question_calls;

mod resume;

/// Writes one response. Events are numbered from 0 in the order in which they are taken.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    id: String,
    clock: Clock,
    /// The response without `status`, `output` and the members that are known at its end.
    base: Map<String, Value>,
    /// Time at which the turn ended with a complete answer, in Unix seconds.
    completed_at: Option<u64>,
    sequence: u64,
    /// Items that were begun.
    begun: usize,
    events: Vec<Value>,
    output: Vec<Value>,
    open: Option<OpenItem>,
    answer: AnswerText,
    files: Vec<(String, String)>,
    citations: CitationIndex,
    calls: Vec<ToolCall>,
    approvals: Vec<ApprovalRequest>,
    /// The client's answers to earlier questions.
    approval_answers: Vec<Value>,
    mcp_calls: OpenMcpCalls,
    usage: Option<TokenUsage>,
}

/// The text of the answer that the next turn of the conversation gets.
#[derive(Debug, Default)]
struct AnswerText {
    content: String,
    refusal: String,
    attachments: Vec<Attachment>,
    state: Option<Value>,
}

impl ResponseWriter {
    /// A writer for the response `id`, made at `created` (Unix seconds), that repeats `echo` of its request. `clock`
    /// gives the time of its end.
    pub(super) fn new(id: &str, created: u64, echo: Map<String, Value>, clock: Clock) -> Self {
        let mut base = Map::new();
        base.insert("id".to_owned(), json!(id));
        base.insert("object".to_owned(), json!("response"));
        base.insert("created_at".to_owned(), json!(created));
        base.extend(echo);
        Self {
            id: id.to_owned(),
            clock,
            base,
            completed_at: None,
            sequence: 0,
            begun: 0,
            events: Vec::new(),
            output: Vec::new(),
            open: None,
            answer: AnswerText::default(),
            files: Vec::new(),
            citations: CitationIndex::default(),
            calls: Vec::new(),
            approvals: Vec::new(),
            approval_answers: Vec::new(),
            mcp_calls: OpenMcpCalls::default(),
            usage: None,
        }
    }

    fn new_item_id(&mut self, prefix: &str) -> String {
        let number = self.begun;
        self.begun += 1;
        item_id(prefix, &self.id, number)
    }

    /// The response with this status and the output so far.
    pub(super) fn response(&self, status: &str) -> Value {
        let mut response = self.base.clone();
        response.insert("status".to_owned(), json!(status));
        // A response that could not be stored has failed after its turn ended.
        let completed_at = self.completed_at.filter(|_| status == "completed");
        response.insert("completed_at".to_owned(), json!(completed_at));
        for name in ["error", "incomplete_details"] {
            response.entry(name).or_insert(Value::Null);
        }
        if status == "cancelled" {
            // In `OpenAI`'s API a cancelled response has no error.
            response.insert("error".to_owned(), Value::Null);
        }
        response.insert("output".to_owned(), json!(self.output));
        response.insert("usage".to_owned(), json!(self.usage.map(usage_members)));
        Value::Object(response)
    }

    /// The first events.
    pub(super) fn start(&mut self, is_queued: bool) {
        let status = if is_queued { "queued" } else { "in_progress" };
        let created = json!({ "response": self.response(status) });
        self.emit("response.created", created.clone());
        if is_queued {
            self.emit("response.queued", created);
        }
        let begun = json!({ "response": self.response("in_progress") });
        self.emit("response.in_progress", begun);
    }

    /// The events so far that were not taken.
    pub(super) fn take_events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.events)
    }

    /// The items of the request, by which calls name their approvals.
    pub(super) fn note_input(&mut self, input: &[Value]) {
        let is_answer = |item: &&Value| item["type"] == "mcp_approval_response";
        self.approval_answers = input.iter().filter(is_answer).cloned().collect();
    }

    /// The id of the item that asked for the approval of a call, as the client has it.
    fn approval_item_id(&self, call_id: String) -> String {
        answered_item_id(&self.approval_answers, &call_id).unwrap_or(call_id)
    }

    /// Takes an event of the turn.
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Content(text) => self.text(&text),
            Event::Reasoning(text) => self.reasoning(&text),
            Event::Refusal(text) => self.refusal(&text),
            Event::Logprobs(logprobs) => {
                if let Some(OpenItem::Message(message)) = &mut self.open {
                    message.add_logprobs(&logprobs);
                }
            }
            Event::Attachment(attachment) => self.answer.attachments.push(attachment),
            Event::OutputFile { id, name } => self.files.push((id, name)),
            Event::Sources(sources) => self.citations.add(sources),
            Event::State(state) => self.answer.state = Some(state),
            Event::ToolCalls(calls) => self.calls.extend(calls),
            Event::ApprovalRequests(requests) => self.approvals.extend(requests),
            Event::McpTools(list) => {
                self.close("completed");
                let id = self.new_item_id("mcpl_");
                let (item, events) = list_item(&id, list, self.index());
                self.emit_all(events);
                self.finish_item(item);
            }
            Event::McpCallStarted(mut call) => {
                // A call that continues after the answer of a chat keeps its item.
                if self.mcp_calls.is_open(&call) {
                    return;
                }
                self.close("completed");
                let approval_id = call.approval_id.take();
                call.approval_id = approval_id.map(|id| self.approval_item_id(id));
                let id = self.new_item_id("mcp_");
                let (item, events) = self.mcp_calls.begin(&id, call, self.output.len());
                self.emit_all(events);
                self.output.push(item);
            }
            Event::McpCallEnded(end) => {
                let events = self.mcp_calls.end(&end, &mut self.output);
                self.emit_all(events);
            }
            // Stages exist only in DIAL's API.
            Event::ToolsStarted
            | Event::CallsStarted
            | Event::StageOpened { .. }
            | Event::StageName { .. }
            | Event::StageContent { .. }
            | Event::StageAttachment { .. }
            | Event::StageClosed { .. } => {}
        }
    }

    /// Ends the last items and records how the response ended. [`ResponseWriter::end`] returns the event that ends it.
    pub(super) fn finish(&mut self, ending: &AnswerEnd) -> &'static str {
        let incomplete_reason = match ending.reason {
            FinishReason::Length => Some("max_output_tokens"),
            FinishReason::ContentFilter => Some("content_filter"),
            FinishReason::Stop | FinishReason::ToolCalls => None,
        };
        self.cite_files();
        self.close(match incomplete_reason {
            Some(_) => "incomplete",
            None => "completed",
        });
        self.abandon_calls();
        for call in self.calls.clone() {
            self.call(&call, incomplete_reason.is_some() && is_cut_off(&call));
        }
        for request in self.approvals.clone() {
            let place = self.new_item_id(ITEM_PREFIX);
            let item = approval_item(&place, &request);
            let added = json!({"output_index": self.index(), "item": item});
            self.emit("response.output_item.added", added);
            self.finish_item(item);
        }
        self.usage = ending.usage;
        let Some(reason) = incomplete_reason else {
            self.completed_at = Some(self.clock.now_ms() / 1000);
            return "completed";
        };
        let details = json!({ "reason": reason });
        self.base.insert("incomplete_details".to_owned(), details);
        "incomplete"
    }

    /// Closes items that a failure left open.
    pub(super) fn fail(&mut self, failure: &RequestFailure) {
        self.close("incomplete");
        self.abandon_calls();
        // The API's codes are a closed set. Codes of this service and of models are in a member of their own.
        let code = match failure.status {
            429 => "rate_limit_exceeded",
            400 | 413 | 422 => "invalid_prompt",
            _ => "server_error",
        };
        let mut error = Map::new();
        error.insert("code".to_owned(), json!(code));
        error.insert("message".to_owned(), json!(failure.message));
        if let Some(reason) = &failure.code {
            error.insert("reason".to_owned(), json!(reason));
        }
        self.base.insert("error".to_owned(), error.into());
    }

    /// The event that ends the response.
    pub(super) fn end(&mut self, status: &str) -> Value {
        let response = self.response(status);
        let kind = match status {
            "completed" => "response.completed",
            "incomplete" => "response.incomplete",
            // The API has no event for cancelled responses.
            _ => "response.failed",
        };
        self.emit(kind, json!({ "response": response }));
        response
    }

    /// The answer as the next turn of the conversation gets it: a message of chat completions.
    pub(super) fn answer_message(&self) -> Value {
        let answer = &self.answer;
        let mut message = json!({"role": "assistant", "content": answer.content});
        let mut custom = Map::new();
        if let Some(state) = &answer.state {
            custom.insert("state".to_owned(), state.clone());
        }
        if !answer.attachments.is_empty() {
            let named = answer.attachments.iter().map(stable_attachment);
            custom.insert("attachments".to_owned(), named.collect());
        }
        if let Some(members) = message.as_object_mut() {
            if !answer.refusal.is_empty() {
                members.insert("refusal".to_owned(), json!(answer.refusal));
            }
            let mut calls = self.calls.clone();
            calls.extend(question_calls(&self.approvals));
            if !calls.is_empty() {
                members.insert("tool_calls".to_owned(), json!(calls));
            }
            if !custom.is_empty() {
                members.insert("custom_content".to_owned(), Value::Object(custom));
            }
        }
        message
    }

    fn emit(&mut self, kind: &str, body: Value) {
        let mut event = Map::new();
        event.insert("type".to_owned(), json!(kind));
        event.insert("sequence_number".to_owned(), json!(self.sequence));
        if let Value::Object(body) = body {
            event.extend(body);
        }
        self.sequence = self.sequence.saturating_add(1);
        self.events.push(Value::Object(event));
    }

    fn emit_all(&mut self, events: Vec<(&'static str, Value)>) {
        for (kind, body) in events {
            self.emit(kind, body);
        }
    }

    fn index(&self) -> usize {
        self.output.len()
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.answer.content.push_str(text);
        self.in_message(OpenPart::text());
        self.delta(text);
    }

    fn refusal(&mut self, text: &str) {
        self.answer.refusal.push_str(text);
        self.in_message(OpenPart::refusal());
        self.delta(text);
    }

    fn reasoning(&mut self, text: &str) {
        if !matches!(self.open, Some(OpenItem::Reasoning(_))) {
            let id = self.new_item_id("rs_");
            self.open_item(OpenItem::reasoning(id));
        }
        self.delta(text);
    }

    /// Opens a message and a part of it, unless they are open.
    fn in_message(&mut self, part: OpenPart) {
        if !matches!(self.open, Some(OpenItem::Message(_))) {
            let id = self.new_item_id("msg_");
            self.open_item(OpenItem::message(id));
        }
        let index = self.index();
        if let Some(OpenItem::Message(message)) = &mut self.open {
            let events = message.open_part(index, part, &self.citations);
            self.emit_all(events);
        }
    }

    fn open_item(&mut self, item: OpenItem) {
        self.close("completed");
        let events = item.opening(self.index());
        self.open = Some(item);
        self.emit_all(events);
    }

    fn delta(&mut self, text: &str) {
        let index = self.index();
        if let Some(open) = &mut self.open {
            let (kind, body) = open.delta(index, text);
            self.emit(kind, body);
        }
    }

    fn close(&mut self, status: &str) {
        let Some(open) = self.open.take() else { return };
        let (item, events) = open.closing(self.index(), status, &self.citations);
        self.emit_all(events);
        self.finish_item(item);
    }

    fn finish_item(&mut self, item: Value) {
        let done = json!({"output_index": self.index(), "item": item});
        self.emit("response.output_item.done", done);
        self.output.push(item);
    }

    /// Cites the files of the answer at the end of its text.
    fn cite_files(&mut self) {
        let files = std::mem::take(&mut self.files);
        if files.is_empty() {
            return;
        }
        self.in_message(OpenPart::text());
        let container = self.id.replace("resp_", "cntr_");
        let index = self.index();
        for (id, name) in files {
            if let Some(OpenItem::Message(message)) = &mut self.open {
                let (kind, body) = message.cite(index, &container, &id, &name);
                self.emit(kind, body);
            }
        }
    }

    fn abandon_calls(&mut self) {
        let events = self.mcp_calls.abandon(&mut self.output);
        self.emit_all(events);
    }

    /// Adds the item of a call. The arguments of a call that was cut off have no end, which clients take for a call to
    /// make.
    fn call(&mut self, call: &ToolCall, is_cut_off: bool) {
        let (index, id) = (self.index(), self.new_item_id("fc_"));
        let function = &call.function;
        let item = |arguments: &str, status: &str| {
            json!({
                "id": id, "type": "function_call", "status": status, "call_id": call.id, "name": function.name,
                "arguments": arguments,
            })
        };
        let item_fields = json!({"item_id": id, "output_index": index});
        let with = |name: &str, value: Value| {
            let mut body = item_fields.clone();
            if let Some(body) = body.as_object_mut() {
                body.insert(name.to_owned(), value);
            }
            body
        };
        let arguments = json!(function.arguments);
        let mut done = with("arguments", arguments.clone());
        if let Some(done) = done.as_object_mut() {
            done.insert("name".to_owned(), json!(function.name));
        }
        let added = json!({"output_index": index, "item": item("", "in_progress")});
        self.emit("response.output_item.added", added);
        let delta = with("delta", arguments);
        self.emit("response.function_call_arguments.delta", delta);
        let status = if is_cut_off {
            "incomplete"
        } else {
            self.emit("response.function_call_arguments.done", done);
            "completed"
        };
        self.finish_item(item(&function.arguments, status));
    }
}

/// Whether the arguments of a call are not complete.
fn is_cut_off(call: &ToolCall) -> bool {
    serde_json::from_str::<Map<String, Value>>(&call.function.arguments).is_err()
}

/// Adds one event of a stream of responses to `out`: its name is before its data.
pub(super) fn write_response_event(out: &mut Vec<u8>, event: &Value) {
    let kind = event.get("type").and_then(Value::as_str);
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.unwrap_or_default().as_bytes());
    out.push(b'\n');
    write_event_line(out, event);
}

/// A file under its stable name: its link would expire.
fn stable_attachment(attachment: &Attachment) -> Value {
    let mut attachment = attachment.clone();
    if let Some(name) = attachment.rest.get("key").and_then(Value::as_str) {
        attachment.url = Some(name.to_owned());
    }
    json!(attachment)
}

fn usage_members(tokens: TokenUsage) -> Value {
    json!({
        "input_tokens": tokens.prompt,
        "input_tokens_details": {
            "cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_written,
        },
        "output_tokens": tokens.completion,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.prompt.saturating_add(tokens.completion),
    })
}
