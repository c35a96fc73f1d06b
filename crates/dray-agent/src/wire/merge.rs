//! Merges the chunks of a streamed response into one response (quickapps 3.3).

use serde_json::{Map, Value, json};

/// All chunks so far, merged into one.
#[derive(Clone, Debug, Default)]
pub struct MergedAnswer {
    merged: Map<String, Value>,
}

impl MergedAnswer {
    /// Adds the next chunk: objects merge key by key, texts are appended, arrays merge by the `index` of their
    /// elements, other values are replaced, and `null` has no effect.
    pub fn add(&mut self, chunk: Value) {
        let Value::Object(chunk) = chunk else { return };
        for (key, value) in chunk {
            match self.merged.get_mut(&key) {
                Some(merged) if key == "choices" => merge_delta(merged, value),
                // Other members are equal in all chunks, except for the usage, which the last one has.
                Some(merged) if !value.is_null() => *merged = value,
                Some(_) => {}
                None => {
                    self.merged.insert(key, value);
                }
            }
        }
    }

    /// [`MergedAnswer::into_answer`] for clients of `OpenAI`'s API: `content`, `refusal` and `logprobs` are present
    /// even if they are `null`.
    pub fn into_plain_answer(self) -> Value {
        let mut answer = self.into_answer();
        let choices = answer.get_mut("choices").and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten() {
            if let Some(choice) = choice.as_object_mut() {
                choice.entry("logprobs").or_insert(Value::Null);
            }
            if let Some(message) = choice.get_mut("message").and_then(Value::as_object_mut) {
                for member in ["content", "refusal"] {
                    message.entry(member).or_insert(Value::Null);
                }
            }
        }
        answer
    }

    /// The answer as one object: `delta` becomes `message`, without any `index` inside.
    pub fn into_answer(self) -> Value {
        let mut answer = self.merged;
        if let Some(object) = answer.get_mut("object") {
            *object = json!("chat.completion");
        }
        let choices = answer.get_mut("choices").and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten() {
            if let Some(choice) = choice.as_object_mut() {
                let mut message = choice.shift_remove("delta").unwrap_or_else(|| json!({}));
                drop_indices(&mut message);
                choice.insert("message".to_owned(), message);
            }
        }
        Value::Object(answer)
    }
}

fn merge_delta(merged: &mut Value, more: Value) {
    match (merged, more) {
        // A `null` has no effect: deltas of a stage carry `status: null` beside each text.
        (_, Value::Null) => {}
        (Value::String(merged), Value::String(more)) => merged.push_str(&more),
        (Value::Object(merged), Value::Object(more)) => {
            for (key, value) in more {
                match merged.get_mut(&key) {
                    Some(existing) => merge_delta(existing, value),
                    None => {
                        merged.insert(key, value);
                    }
                }
            }
        }
        (Value::Array(merged), Value::Array(more)) => {
            for element in more {
                let has_same_index = |existing: &&mut Value| {
                    let index = element.get("index");
                    index.is_some() && existing.get("index") == index
                };
                // Most deltas extend the newest item.
                match merged.iter_mut().rev().find(has_same_index) {
                    Some(existing) => merge_delta(existing, element),
                    None => merged.push(element),
                }
            }
        }
        (merged, more) => *merged = more,
    }
}

/// Removes every `index` except inside the state, which the next turn reads unchanged.
fn drop_indices(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.shift_remove("index");
            for (key, member) in members {
                if key != "state" {
                    drop_indices(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(drop_indices),
        _ => {}
    }
}
