//! Items of `/v1/responses` as messages of chat completions.

use dray_agent::failure::RequestFailure;
use serde_json::{Map, Value, json};

use super::approval_items::{approval_call, approval_result, call_id};
use super::duplicates::is_repeated;
use super::input_parts::{InputPart, read_output, read_part};
use super::request::invalid;
use crate::http::plain_request::unsupported_failure;
use crate::records::random_id;

/// Most items of one request.
pub(super) const MAX_ITEMS: usize = 2_000;

/// The items that a request adds to a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct InputItems {
    /// The items as listed and stored, each with an id.
    pub(super) items: Vec<Value>,
    /// The same conversation as chat messages, for the model.
    pub(super) messages: Vec<InputMessage>,
}

/// A message, and the item from which it was made.
#[derive(Clone, Debug)]
pub(super) struct InputMessage {
    pub(super) message: Value,
    /// Index of the item in the request.
    pub(super) item: usize,
}

/// Reads `input`: a text, or a list of items.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn read_input(input: Value) -> Result<InputItems, RequestFailure> {
    match input {
        Value::String(text) => read_items(vec![json!({"role": "user", "content": text})]),
        Value::Array(items) => read_items(items),
        _ => Err(invalid("input", "It must be a string or a list of items.")),
    }
}

/// Reads items of a request, or stored items.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn read_items(items: Vec<Value>) -> Result<InputItems, RequestFailure> {
    if items.len() > MAX_ITEMS {
        return Err(invalid(
            "input",
            format!("It has more than {MAX_ITEMS} items."),
        ));
    }
    let mut read = InputItems::default();
    for (index, item) in items.into_iter().enumerate() {
        let field = format!("input.{index}");
        let Value::Object(mut item) = item else {
            return Err(invalid(&field, "It must be an object."));
        };
        item.retain(|_, value| !value.is_null());
        if is_repeated(&field, &item, &read.items)? {
            continue;
        }
        read.add(&field, index, &mut item)?;
        read.items.push(Value::Object(item));
    }
    Ok(read)
}

impl InputItems {
    fn add(
        &mut self,
        field: &str,
        index: usize,
        item: &mut Map<String, Value>,
    ) -> Result<(), RequestFailure> {
        for name in ["type", "id"] {
            if item.get(name).is_some_and(|value| !value.is_string()) {
                return Err(invalid(&format!("{field}.{name}"), "It must be a string."));
            }
        }
        let kind = item.get("type").and_then(Value::as_str);
        match kind.unwrap_or("message").to_owned().as_str() {
            "message" => {
                let message = read_message(field, item)?;
                self.push(index, message);
            }
            "function_call" => {
                let call = json!({
                    "id": text_of(field, item, "call_id")?,
                    "type": "function",
                    "function": {"name": text_of(field, item, "name")?, "arguments": text_of(field, item, "arguments")?},
                });
                complete(item, "fc_");
                self.add_call(index, call);
            }
            "function_call_output" => {
                let id = text_of(field, item, "call_id")?;
                let message = read_result(field, item, &id)?;
                complete(item, "fco_");
                self.add_result(index, message, &id);
            }
            "mcp_approval_request" => {
                let call = approval_call(field, item)?;
                self.add_call(index, call);
            }
            "mcp_approval_response" => {
                let (result, id) = approval_result(field, item)?;
                set_id(item, "mcpa_");
                self.add_result(index, result, &id);
            }
            // Chat completions have no field for it.
            "reasoning" => set_id(item, "rs_"),
            // Calls of the agent's own tools come back with the state.
            "mcp_call" | "mcp_list_tools" => set_id(item, "mcp_"),
            "item_reference" => {
                let reason = "only the 'input' of a response names items of stored responses";
                return Err(unsupported_failure(format!("{field}.type"), reason));
            }
            _ => {
                let reason = "items of this type are not supported";
                return Err(unsupported_failure(format!("{field}.type"), reason));
            }
        }
        Ok(())
    }

    /// Removes a question on approval, a call, or an output, with its part of the messages.
    pub(super) fn remove(&mut self, removed: &Value) {
        self.items.retain(|item| item != removed);
        let text = |name: &str| removed.get(name).and_then(Value::as_str);
        match text("type") {
            Some("function_call_output") => self.remove_result(text("call_id")),
            Some("function_call") => self.remove_call(text("call_id")),
            _ => self.remove_call(text("id").map(call_id).as_deref()),
        }
    }

    fn remove_result(&mut self, id: Option<&str>) {
        let is_result = |message: &Value| {
            let of = message.get("tool_call_id").and_then(Value::as_str);
            of.is_some() && of == id
        };
        self.messages.retain(|input| !is_result(&input.message));
    }

    fn remove_call(&mut self, id: Option<&str>) {
        self.messages.retain_mut(|input| {
            let Some(list) = input
                .message
                .get_mut("tool_calls")
                .and_then(Value::as_array_mut)
            else {
                return true;
            };
            list.retain(|call| call.get("id").and_then(Value::as_str) != id);
            if !list.is_empty() {
                return true;
            }
            let members = input.message.as_object_mut();
            let content = members.and_then(|members| {
                members.shift_remove("tool_calls");
                members.get("content")
            });
            content.is_some_and(|content| !content.is_null())
        });
    }

    fn push(&mut self, item: usize, message: Value) {
        self.messages.push(InputMessage { message, item });
    }

    /// Adds a call to the preceding message of the assistant, as in chat completions.
    fn add_call(&mut self, item: usize, call: Value) {
        let last = self.messages.last_mut().map(|last| &mut last.message);
        let last = last.filter(|last| last.get("role").is_some_and(|role| role == "assistant"));
        match last.and_then(Value::as_object_mut) {
            Some(message) => {
                let calls = message.entry("tool_calls").or_insert_with(|| json!([]));
                if let Some(calls) = calls.as_array_mut() {
                    calls.push(call);
                }
            }
            None => self.push(
                item,
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            ),
        }
    }

    /// Inserts a result directly after the message with its call, or before all messages if the call is in an earlier
    /// response.
    fn add_result(&mut self, item: usize, message: Value, id: &str) {
        let calls_it = |input: &InputMessage| {
            let calls = input.message.get("tool_calls").and_then(Value::as_array);
            calls.is_some_and(|calls| {
                calls
                    .iter()
                    .any(|call| call.get("id").is_some_and(|known| known == id))
            })
        };
        let is_result =
            |input: &&InputMessage| input.message.get("role").is_some_and(|role| role == "tool");
        let from = self
            .messages
            .iter()
            .rposition(calls_it)
            .map_or(0, |at| at + 1);
        let results = self.messages.iter().skip(from).take_while(is_result);
        let at = from + results.count();
        self.messages.insert(at, InputMessage { message, item });
    }
}

/// The message of an item, which gets an id and a list of parts.
fn read_message(field: &str, item: &mut Map<String, Value>) -> Result<Value, RequestFailure> {
    let role = text_of(field, item, "role")?;
    if !matches!(role.as_str(), "user" | "assistant" | "system" | "developer") {
        let message = "It must be 'user', 'assistant', 'system' or 'developer'.";
        return Err(invalid(&format!("{field}.role"), message));
    }
    let is_answer = role == "assistant";
    let mut message = Map::new();
    message.insert("role".to_owned(), json!(role));
    match item.get("content") {
        Some(Value::String(text)) => {
            let part = if is_answer {
                json!({"type": "output_text", "text": text, "annotations": []})
            } else {
                json!({"type": "input_text", "text": text})
            };
            message.insert("content".to_owned(), json!(text));
            item.insert("content".to_owned(), json!([part]));
        }
        Some(Value::Array(parts)) => {
            let listed: Vec<_> = parts.iter().cloned().map(listed_part).collect();
            let mut content = Vec::with_capacity(parts.len());
            let mut links = Vec::new();
            for (number, part) in parts.iter().enumerate() {
                let field = format!("{field}.content.{number}");
                match read_part(&field, is_answer, part)? {
                    InputPart::Content(part) => content.push(part),
                    InputPart::Link(attachment) => links.push(attachment),
                }
            }
            message.insert("content".to_owned(), Value::Array(content));
            if !links.is_empty() {
                message.insert("custom_content".to_owned(), json!({ "attachments": links }));
            }
            item.insert("content".to_owned(), Value::Array(listed));
        }
        _ => {
            let message = "It must be a string or a list of parts.";
            return Err(invalid(&format!("{field}.content"), message));
        }
    }
    item.insert("type".to_owned(), json!("message"));
    item.insert("status".to_owned(), json!("completed"));
    set_id(item, "msg_");
    Ok(Value::Object(message))
}

/// The result of a function that the client called. Its parts get the members that are required of listed parts.
fn read_result(
    field: &str,
    item: &mut Map<String, Value>,
    id: &str,
) -> Result<Value, RequestFailure> {
    let result = read_output(field, item.get("output"))?;
    if let Some(Value::Array(parts)) = item.get_mut("output") {
        *parts = parts.drain(..).map(listed_part).collect();
    }
    let content = result.content;
    if result.links.is_empty() {
        return Ok(json!({"role": "tool", "tool_call_id": id, "content": content}));
    }
    let custom = json!({ "attachments": result.links });
    Ok(json!({"role": "tool", "tool_call_id": id, "content": content, "custom_content": custom}))
}

/// A part with the members that the API requires of listed parts, which requests may leave out.
fn listed_part(mut part: Value) -> Value {
    let required = match part.get("type").and_then(Value::as_str) {
        Some("output_text") => ("annotations", json!([])),
        Some("input_image") => ("detail", json!("auto")),
        _ => return part,
    };
    if let Value::Object(members) = &mut part {
        let (name, default) = required;
        let member = members.entry(name).or_insert(Value::Null);
        if member.is_null() {
            *member = default;
        }
    }
    part
}

pub(super) fn text_of(
    field: &str,
    item: &Map<String, Value>,
    name: &str,
) -> Result<String, RequestFailure> {
    match item.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(invalid(&format!("{field}.{name}"), "It must be a string.")),
    }
}

/// Gives an item an id unless it has one.
fn set_id(item: &mut Map<String, Value>, prefix: &str) {
    item.entry("id").or_insert_with(|| json!(random_id(prefix)));
}

/// Gives a call or a result the id and the status that the API requires of listed items.
fn complete(item: &mut Map<String, Value>, prefix: &str) {
    set_id(item, prefix);
    item.entry("status").or_insert_with(|| json!("completed"));
}

#[cfg(test)]
mod tests;
