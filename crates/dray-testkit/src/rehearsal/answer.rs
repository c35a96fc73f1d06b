//! Builds the response to a request from a rule.

use serde_json::{Map, Value, json};

use super::script::{
    ScriptedCall, ScriptedReply, ScriptedStage, ScriptedUsage, last_user, newest_result,
    request_messages,
};

/// A response in chunks.
pub(super) struct RehearsalResponse {
    /// The deltas, in order.
    pub(super) deltas: Vec<Value>,
    /// Finish reason of the last chunk.
    pub(super) finish: String,
    /// Token counts, as the `usage` member.
    pub(super) usage: Value,
    /// Id of the answer; equal requests get equal ids.
    pub(super) id: String,
}

/// Builds the response of a rule to a request.
pub(super) fn build_response(reply: &ScriptedReply, body: &Value) -> RehearsalResponse {
    let messages = request_messages(body);
    let text = reply
        .say
        .replace("{user}", &last_user(messages))
        .replace("{result}", &newest_result(messages));
    let mut deltas = vec![json!({ "role": "assistant" })];
    for (index, stage) in reply.stages.iter().enumerate() {
        deltas.extend(stage_deltas(index, stage));
    }
    // The text is divided by characters, since a chunk is JSON and cannot end in the middle of one.
    let characters: Vec<char> = text.chars().collect();
    let chunk_characters = reply.piece.unwrap_or(usize::MAX).max(1);
    for chunk in characters.chunks(chunk_characters) {
        deltas.push(json!({ "content": chunk.iter().collect::<String>() }));
    }
    for (index, attachment) in reply.attachments.iter().enumerate() {
        let mut attachment = attachment.clone();
        if let Some(members) = attachment.as_object_mut() {
            members.insert("index".to_owned(), json!(index));
        }
        deltas.push(json!({ "custom_content": { "attachments": [attachment] } }));
    }
    if let Some(state) = &reply.state {
        deltas.push(json!({ "custom_content": { "state": state } }));
    }
    for (index, call) in reply.call.iter().enumerate() {
        deltas.extend(call_deltas(messages.len(), index, call));
    }
    let default_reason = if reply.call.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let usage = reply.usage.unwrap_or_else(|| ScriptedUsage {
        prompt: word_count(
            &body
                .get("messages")
                .map(Value::to_string)
                .unwrap_or_default(),
        ),
        completion: word_count(&text),
    });
    RehearsalResponse {
        deltas,
        finish: reply
            .finish_reason
            .clone()
            .unwrap_or_else(|| default_reason.to_owned()),
        usage: json!({
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt.saturating_add(usage.completion),
        }),
        id: format!("rehearsal-{}", messages.len()),
    }
}

fn word_count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// The deltas of a call as models stream it: first its name, then its arguments.
fn call_deltas(message_count: usize, index: usize, call: &ScriptedCall) -> [Value; 2] {
    let arguments = match &call.arguments {
        Value::String(text) => text.clone(),
        Value::Null => "{}".to_owned(),
        arguments => arguments.to_string(),
    };
    // The position in the conversation makes ids of later rounds differ without randomness.
    let id = format!("call_{message_count}_{index}");
    let function = json!({ "name": call.name, "arguments": "" });
    let first = json!({ "index": index, "id": id, "type": "function", "function": function });
    let rest = json!({ "index": index, "function": { "arguments": arguments } });
    [first, rest].map(|call| json!({ "tool_calls": [call] }))
}

fn stage_deltas(index: usize, stage: &ScriptedStage) -> Vec<Value> {
    let delta = |stage: Value| json!({ "custom_content": { "stages": [stage] } });
    let mut deltas = vec![delta(
        json!({ "index": index, "name": stage.name, "status": null }),
    )];
    if !stage.content.is_empty() {
        deltas.push(delta(
            json!({ "index": index, "content": stage.content, "status": null }),
        ));
    }
    if let Some(status) = &stage.status {
        deltas.push(delta(json!({ "index": index, "status": status })));
    }
    deltas
}

impl RehearsalResponse {
    /// The chunks of a stream. Token counts are in the last chunk or, with `apart`, in a separate one.
    pub(super) fn chunks(&self, model: &str, usage: bool, apart: bool) -> Vec<Value> {
        let chunk = |choices: Value, usage: Value| {
            json!({
                "id": self.id, "object": "chat.completion.chunk", "created": 0, "model": model,
                "choices": choices, "usage": usage,
            })
        };
        let choice = |delta: &Value, finish: Value| json!([{ "index": 0, "finish_reason": finish, "delta": delta }]);
        let deltas = self.deltas.iter();
        let mut chunks: Vec<_> = deltas
            .map(|delta| chunk(choice(delta, Value::Null), Value::Null))
            .collect();
        let counted = if usage && !apart {
            self.usage.clone()
        } else {
            Value::Null
        };
        chunks.push(chunk(choice(&json!({}), json!(self.finish)), counted));
        if usage && apart {
            chunks.push(chunk(json!([]), self.usage.clone()));
        }
        chunks
    }

    /// The same answer without a stream: all deltas joined.
    pub(super) fn whole(&self, model: &str) -> Value {
        let mut message = json!({ "role": "assistant", "content": null });
        for delta in &self.deltas {
            add_delta(&mut message, delta);
        }
        json!({
            "id": self.id, "object": "chat.completion", "created": 0, "model": model,
            "choices": [{ "index": 0, "finish_reason": self.finish, "message": message }],
            "usage": self.usage,
        })
    }
}

/// Adds a delta: objects by key, lists by index, texts at the end.
fn add_delta(whole: &mut Value, delta: &Value) {
    match (whole, delta) {
        (_, Value::Null) => {}
        (Value::Object(whole), Value::Object(delta)) => add_members(whole, delta),
        (Value::Array(whole), Value::Array(delta)) => {
            for item in delta {
                let same = whole
                    .iter_mut()
                    // Parts of a list in a stream are matched by their `index`, not by their position.
                    .find(|known| known.get("index") == item.get("index"));
                match same {
                    Some(known) => add_delta(known, item),
                    None => whole.push(item.clone()),
                }
            }
        }
        (Value::String(whole), Value::String(delta)) => whole.push_str(delta),
        (whole, delta) => *whole = delta.clone(),
    }
}

fn add_members(whole: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (key, value) in delta {
        match whole.get_mut(key) {
            // These two repeat in every delta; appending them would double the text.
            Some(known) if key != "role" && key != "index" => add_delta(known, value),
            Some(_) => {}
            None => {
                whole.insert(key.clone(), value.clone());
            }
        }
    }
}
