//! The item of a response that is being written: a message with its parts, or reasoning.

use dray_agent::citation::{Citation, CitationIndex, CitationSource};
use serde_json::{Map, Value, json};

/// Kinds of events and their members.
type ItemEvents = Vec<(&'static str, Value)>;

/// An item that is not complete.
#[derive(Debug)]
pub(super) enum OpenItem {
    /// Text for the person, or a refusal.
    Message(OpenMessage),
    /// The reasoning of the model.
    Reasoning(OpenReasoning),
}

/// A message that is being written.
#[derive(Debug)]
pub(super) struct OpenMessage {
    id: String,
    content: Vec<Value>,
    part: Option<OpenPart>,
}

/// Reasoning that is being written.
#[derive(Debug)]
pub(super) struct OpenReasoning {
    id: String,
    text: String,
}

/// A part that is being written.
#[derive(Debug)]
pub(super) struct OpenPart {
    is_refusal: bool,
    text: String,
    annotations: Vec<Value>,
    logprobs: Vec<Value>,
}

impl OpenPart {
    /// A part of text.
    pub(super) const fn text() -> Self {
        Self::new(false)
    }

    /// A part with the model's refusal.
    pub(super) const fn refusal() -> Self {
        Self::new(true)
    }

    const fn new(is_refusal: bool) -> Self {
        Self {
            is_refusal,
            text: String::new(),
            annotations: Vec::new(),
            logprobs: Vec::new(),
        }
    }

    fn body(&self) -> Value {
        if self.is_refusal {
            return json!({"type": "refusal", "refusal": self.text});
        }
        json!({
            "type": "output_text", "text": self.text, "annotations": self.annotations, "logprobs": self.logprobs,
        })
    }
}

impl OpenItem {
    pub(super) const fn message(id: String) -> Self {
        Self::Message(OpenMessage {
            id,
            content: Vec::new(),
            part: None,
        })
    }

    pub(super) const fn reasoning(id: String) -> Self {
        Self::Reasoning(OpenReasoning {
            id,
            text: String::new(),
        })
    }

    /// The events that begin the item.
    pub(super) fn opening(&self, output_index: usize) -> ItemEvents {
        let item = self.item("in_progress");
        let mut events = vec![(
            "response.output_item.added",
            json!({"output_index": output_index, "item": item}),
        )];
        if let Self::Reasoning(reasoning) = self {
            let part = json!({"type": "summary_text", "text": ""});
            let added = reasoning.event(output_index, "part", part);
            events.push(("response.reasoning_summary_part.added", added));
        }
        events
    }

    /// More text of the item.
    pub(super) fn delta(&mut self, output_index: usize, text: &str) -> (&'static str, Value) {
        match self {
            Self::Message(message) => message.delta(output_index, text),
            Self::Reasoning(reasoning) => {
                reasoning.text.push_str(text);
                let delta = reasoning.event(output_index, "delta", json!(text));
                ("response.reasoning_summary_text.delta", delta)
            }
        }
    }

    /// The item, and the events before the one that ends it.
    pub(super) fn closing(
        mut self,
        output_index: usize,
        status: &str,
        citations: &CitationIndex,
    ) -> (Value, ItemEvents) {
        let events = match &mut self {
            Self::Message(message) => message.close_part(output_index, citations),
            Self::Reasoning(reasoning) => {
                let part = json!({"type": "summary_text", "text": reasoning.text});
                let text = reasoning.event(output_index, "text", json!(reasoning.text));
                vec![
                    ("response.reasoning_summary_text.done", text),
                    (
                        "response.reasoning_summary_part.done",
                        reasoning.event(output_index, "part", part),
                    ),
                ]
            }
        };
        (self.item(status), events)
    }

    fn item(&self, status: &str) -> Value {
        match self {
            Self::Message(message) => json!({
                "id": message.id, "type": "message", "status": status, "role": "assistant", "content": message.content,
            }),
            Self::Reasoning(reasoning) => {
                let summary = if reasoning.text.is_empty() {
                    json!([])
                } else {
                    json!([{"type": "summary_text", "text": reasoning.text}])
                };
                json!({"id": reasoning.id, "type": "reasoning", "status": status, "summary": summary})
            }
        }
    }
}

impl OpenReasoning {
    fn event(&self, output_index: usize, name: &str, value: Value) -> Value {
        let item_fields =
            json!({"item_id": self.id, "output_index": output_index, "summary_index": 0});
        with_member(item_fields, name, value)
    }
}

impl OpenMessage {
    /// Opens a part of this kind, unless one is open. A part of the other kind ends.
    pub(super) fn open_part(
        &mut self,
        output_index: usize,
        part: OpenPart,
        citations: &CitationIndex,
    ) -> ItemEvents {
        let open = self.part.as_ref();
        if open.is_some_and(|open| open.is_refusal == part.is_refusal) {
            return Vec::new();
        }
        let mut events = self.close_part(output_index, citations);
        let added = self.event(output_index, "part", part.body());
        events.push(("response.content_part.added", added));
        self.part = Some(part);
        events
    }

    /// Adds the probabilities of the text that came last.
    pub(super) fn add_logprobs(&mut self, logprobs: &Value) {
        let tokens = logprobs.get("content").and_then(Value::as_array);
        if let (Some(part), Some(tokens)) = (&mut self.part, tokens) {
            part.logprobs.extend(tokens.iter().cloned());
        }
    }

    /// Cites a file at the end of the text.
    pub(super) fn cite(
        &mut self,
        output_index: usize,
        container: &str,
        id: &str,
        name: &str,
    ) -> (&'static str, Value) {
        let end = self
            .part
            .as_ref()
            .map_or(0, |part| part.text.chars().count());
        let annotation = json!({
            "type": "container_file_citation", "container_id": container, "file_id": id, "filename": name,
            "start_index": end, "end_index": end,
        });
        self.annotate(output_index, annotation)
    }

    fn annotate(&mut self, output_index: usize, annotation: Value) -> (&'static str, Value) {
        let Some(part) = &mut self.part else {
            return ("response.output_text.annotation.added", Value::Null);
        };
        let number = part.annotations.len();
        part.annotations.push(annotation.clone());
        let added = self.event(output_index, "annotation", annotation);
        let added = with_member(added, "annotation_index", json!(number));
        ("response.output_text.annotation.added", added)
    }

    fn delta(&mut self, output_index: usize, text: &str) -> (&'static str, Value) {
        let is_refusal = self.part.as_mut().is_some_and(|part| {
            part.text.push_str(text);
            part.is_refusal
        });
        let delta = self.event(output_index, "delta", json!(text));
        if is_refusal {
            return ("response.refusal.delta", delta);
        }
        // The model's service sends them after the text; they are in the part when it is done.
        let delta = with_member(delta, "logprobs", json!([]));
        ("response.output_text.delta", delta)
    }

    fn close_part(&mut self, output_index: usize, citations: &CitationIndex) -> ItemEvents {
        let text = self.part.as_ref().filter(|part| !part.is_refusal);
        let cited = text.map_or_else(Vec::new, |part| citations.find(&part.text));
        let mut events: ItemEvents = cited
            .into_iter()
            .map(|citation| self.annotate(output_index, annotation_of(citation)))
            .collect();
        let Some(part) = self.part.take() else {
            return events;
        };
        let text = json!(part.text);
        let done = if part.is_refusal {
            let done = self.event(output_index, "refusal", text);
            ("response.refusal.done", done)
        } else {
            let done = self.event(output_index, "text", text);
            let done = with_member(done, "logprobs", json!(part.logprobs));
            ("response.output_text.done", done)
        };
        let body = part.body();
        let part_done = self.event(output_index, "part", body.clone());
        self.content.push(body);
        events.extend([done, ("response.content_part.done", part_done)]);
        events
    }

    fn event(&self, output_index: usize, name: &str, value: Value) -> Value {
        let item_fields = json!({
            "item_id": self.id, "output_index": output_index, "content_index": self.content.len(),
        });
        with_member(item_fields, name, value)
    }
}

fn annotation_of(citation: Citation) -> Value {
    match citation.source {
        CitationSource::Page { url, title } => json!({
            "type": "url_citation", "start_index": citation.start, "end_index": citation.end, "url": url, "title": title,
        }),
        // The place where the file is cited, after its name.
        CitationSource::File { id, name } => json!({
            "type": "file_citation", "index": citation.end, "file_id": id, "filename": name,
        }),
    }
}

fn with_member(mut body: Value, name: &str, value: Value) -> Value {
    let members: Option<&mut Map<String, Value>> = body.as_object_mut();
    if let Some(members) = members {
        members.insert(name.to_owned(), value);
    }
    body
}
