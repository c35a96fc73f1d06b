//! One chunk of a streamed response.

use dray_agent::event::{ModelUsage, TokenUsage};
use dray_agent::message::Attachment;
use serde_json::Value;

/// The content that one chunk adds to the response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChunkDelta {
    /// The name of the responding model in the service.
    pub model: Option<String>,
    /// Text that is appended to the response.
    pub content: Option<String>,
    /// Text that is appended to the model's reasoning, as services of reasoning models show it.
    pub reasoning: Option<String>,
    /// Text that is appended to the model's refusal.
    pub refusal: Option<String>,
    /// Log probabilities of the chunk's text.
    pub logprobs: Option<Value>,
    /// Files that are added to the response.
    pub attachments: Vec<Attachment>,
    /// Changes of stages, each named by its number.
    pub stages: Vec<StageDelta>,
    /// Chunks of tool calls, each named by its number.
    pub tool_calls: Vec<CallDelta>,
    /// State that is merged into the earlier state, object by object.
    pub state: Option<Value>,
    /// All tokens; replaces earlier values.
    pub usage: Option<TokenUsage>,
    /// Tokens by model; replaces earlier values.
    pub statistics: Vec<ModelUsage>,
    /// The reason why the response ended, in the word of the service.
    pub finish_reason: Option<String>,
}

/// A change of a stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageDelta {
    /// Number of the stage in this response.
    pub index: u32,
    /// Text that is appended to the stage's name.
    pub name: Option<String>,
    /// Text that is appended to the stage's content.
    pub content: Option<String>,
    /// Files that are added to the stage.
    pub attachments: Vec<Attachment>,
    /// How the stage ended; `None` while it runs.
    pub status: Option<StageEnd>,
}

/// The result of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageEnd {
    /// The service reports it as completed.
    Completed,
    /// Any other status counts as failed.
    Failed,
}

/// A chunk of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallDelta {
    /// Number of the call in this response.
    pub index: u32,
    /// The call's id; sent once.
    pub id: Option<String>,
    /// Text that is appended to the name of the function.
    pub name: Option<String>,
    /// Text that is appended to the arguments.
    pub arguments: Option<String>,
    /// A member of Gemini's API with the signature of the reasoning before the call.
    pub extra_content: Option<Value>,
}

impl ChunkDelta {
    /// Parses a chunk, or a complete response, whose `message` counts as one large chunk.
    pub(super) fn read(chunk: &Value) -> Self {
        let mut read = Self {
            model: text_member(chunk, "model").filter(|model| !model.is_empty()),
            ..Self::default()
        };
        read.usage = chunk.get("usage").and_then(token_usage);
        let per_model = chunk.pointer("/statistics/usage_per_model");
        read.statistics = list_items(per_model)
            .filter_map(|usage| {
                Some(ModelUsage {
                    model: text_member(usage, "model").unwrap_or_default(),
                    tokens: token_usage(usage)?,
                })
            })
            .collect();
        // One response is requested, so only choice 0 counts. Some services leave its index out.
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        let Some(choice) = list_items(chunk.get("choices")).find(first) else {
            return read;
        };
        read.finish_reason = text_member(choice, "finish_reason");
        read.logprobs = choice
            .get("logprobs")
            .filter(|logprobs| logprobs.is_object())
            .cloned();
        let delta = choice.get("delta").filter(|delta| delta.is_object());
        let Some(delta) = delta.or_else(|| choice.get("message")) else {
            return read;
        };
        read.content = delta_content(delta);
        // Two names for the same member: DeepSeek and vLLM before 2026 write `reasoning_content`; later vLLM,
        // OpenRouter and Ollama write `reasoning`.
        read.reasoning =
            text_member(delta, "reasoning_content").or_else(|| text_member(delta, "reasoning"));
        read.refusal = text_member(delta, "refusal");
        read.tool_calls = with_index(delta.get("tool_calls"), call_delta);
        // The form before `tool_calls`, with one call and no id (OpenAI, "Create chat completion", deprecated).
        let function = delta.get("function_call").filter(|call| call.is_object());
        if let (Some(function), true) = (function, read.tool_calls.is_empty()) {
            read.tool_calls.push(CallDelta {
                index: 0,
                id: None,
                name: text_member(function, "name"),
                arguments: function_arguments(function),
                extra_content: None,
            });
        }
        if let Some(custom) = delta.get("custom_content") {
            read.attachments = delta_attachments(custom);
            read.stages = with_index(custom.get("stages"), stage_delta);
            read.state = custom
                .get("state")
                .filter(|state| !state.is_null())
                .cloned();
        }
        read
    }
}

/// The text of a response: a text, or the parts of a list that are texts.
fn delta_content(delta: &Value) -> Option<String> {
    match delta.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| text_member(part, "text"));
            Some(texts.collect())
        }
        _ => None,
    }
}

/// Arguments as text: some models write the object itself.
fn function_arguments(function: &Value) -> Option<String> {
    match function.get("arguments")? {
        Value::String(text) => Some(text.clone()),
        object @ Value::Object(_) => Some(object.to_string()),
        _ => None,
    }
}

fn call_delta(index: u32, call: &Value) -> CallDelta {
    let function = call.get("function").unwrap_or(&Value::Null);
    let extra = call.get("extra_content").filter(|extra| extra.is_object());
    CallDelta {
        index,
        id: text_member(call, "id"),
        name: text_member(function, "name"),
        arguments: function_arguments(function),
        extra_content: extra.cloned(),
    }
}

fn stage_delta(index: u32, stage: &Value) -> StageDelta {
    StageDelta {
        index,
        name: text_member(stage, "name"),
        content: text_member(stage, "content"),
        attachments: delta_attachments(stage),
        status: text_member(stage, "status").map(|status| match status.as_str() {
            "completed" => StageEnd::Completed,
            _ => StageEnd::Failed,
        }),
    }
}

fn delta_attachments(holder: &Value) -> Vec<Attachment> {
    list_items(holder.get("attachments"))
        .filter_map(|attachment| {
            // An attachment of an unknown form must not make the response fail.
            let mut attachment: Attachment = serde_json::from_value(attachment.clone()).ok()?;
            // The index counts within this response; the response to the client numbers its attachments itself.
            attachment.rest.shift_remove("index");
            Some(attachment)
        })
        .collect()
}

/// The tokens of a usage; `None` without a number of tokens of the prompt or of the answer, so that they are estimated.
fn token_usage(usage: &Value) -> Option<TokenUsage> {
    // Some gateways count in JavaScript or Python and write `5.0`.
    let count = |pointer| {
        let number = usage.pointer(pointer)?;
        let count = number.as_u64().or_else(|| whole_number(number.as_f64()?));
        count.filter(|count| *count <= TokenUsage::MAX_COUNT)
    };
    let (prompt, completion) = (count("/prompt_tokens"), count("/completion_tokens"));
    prompt.or(completion)?;
    let detail = |pointer| count(pointer).unwrap_or_default();
    Some(TokenUsage {
        prompt: prompt.unwrap_or_default(),
        completion: completion.unwrap_or_default(),
        cached: detail("/prompt_tokens_details/cached_tokens"),
        cache_written: detail("/prompt_tokens_details/cache_write_tokens"),
        reasoning: detail("/completion_tokens_details/reasoning_tokens"),
    })
}

/// A number without a fraction, as a whole one.
fn whole_number(number: f64) -> Option<u64> {
    // This text has no exponent and no fraction, so it can be parsed as an integer.
    let text = format!("{number:.0}");
    (number.fract() == 0.0).then(|| text.parse().ok())?
}

/// Items with their `index`, otherwise with their position.
fn with_index<T>(list: Option<&Value>, read: impl Fn(u32, &Value) -> T) -> Vec<T> {
    list_items(list)
        .zip(0_u32..)
        .map(|(item, position)| {
            let index = item.get("index").and_then(Value::as_u64);
            let index = index.map_or(position, |index| u32::try_from(index).unwrap_or(u32::MAX));
            read(index, item)
        })
        .collect()
}

fn list_items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

fn text_member(holder: &Value, name: &str) -> Option<String> {
    holder.get(name)?.as_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_that_a_gateway_counts_in_floating_point_are_tokens() {
        let usage = json!({"prompt_tokens": 5.0, "completion_tokens": 2.5,
            "prompt_tokens_details": {"cached_tokens": 1e20}});
        let tokens = token_usage(&usage).unwrap();
        assert_eq!((tokens.prompt, tokens.completion, tokens.cached), (5, 0, 0));
    }

    #[test]
    fn numbers_of_tokens_that_no_call_has_are_not_reported() {
        let usage = json!({"prompt_tokens": 1_u64 << 63, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": -1, "cache_write_tokens": 3}});
        let expected = TokenUsage {
            completion: 7,
            cache_written: 3,
            ..TokenUsage::default()
        };
        assert_eq!(token_usage(&usage), Some(expected));
        for usage in [
            json!({"prompt_tokens": u64::MAX, "completion_tokens": 4_294_967_296_u64}),
            json!({"prompt_tokens": -5, "completion_tokens": 1.5, "total_tokens": "many"}),
            json!({}),
            json!(5),
        ] {
            assert_eq!(token_usage(&usage), None, "{usage}");
            let chunk = json!({"choices": [], "usage": usage,
                "statistics": {"usage_per_model": [{"model": "m", "prompt_tokens": -1}]}});
            let read = ChunkDelta::read(&chunk);
            assert_eq!((read.usage, read.statistics), (None, vec![]));
        }
    }

    #[test]
    fn a_call_of_the_older_form_is_a_call_of_a_tool() {
        let call = json!({"name": "f", "arguments": "{}"});
        let expected = CallDelta {
            name: Some("f".to_owned()),
            arguments: Some("{}".to_owned()),
            ..CallDelta::default()
        };
        for member in ["delta", "message"] {
            let chunk = json!({"choices": [{"finish_reason": "function_call",
                member: {"content": null, "function_call": call}}]});
            assert_eq!(
                ChunkDelta::read(&chunk).tool_calls,
                std::slice::from_ref(&expected)
            );
        }
        let both = json!({"choices": [{"delta": {
            "function_call": call, "tool_calls": [{"id": "a", "function": {"name": "g"}}]}}]});
        let read = ChunkDelta::read(&both).tool_calls;
        assert_eq!((read.len(), read[0].id.as_deref()), (1, Some("a")));
    }
}
