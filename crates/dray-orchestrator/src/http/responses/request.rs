//! Reads requests of `/v1/responses` and converts them to requests of chat completions, which the same turns answer. A
//! member that is not supported is refused by its name and never ignored.

use dray_agent::failure::RequestFailure;
use dray_agent::message::plain_order::ORDER_CODE;
use serde_json::{Map, Value, json};

use super::items::{InputItems, read_input, read_items};
use super::parameters::{take_options, take_reasoning, take_text_format, take_tools};
use crate::http::plain_request::unsupported_failure;
use crate::responses::StoredRequest;

/// Parameters and their names in chat completions.
const PARAMETER_NAMES: [(&str, &str); 11] = [
    ("max_output_tokens", "max_completion_tokens"),
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("top_logprobs", "top_logprobs"),
    ("parallel_tool_calls", "parallel_tool_calls"),
    ("user", "user"),
    ("safety_identifier", "safety_identifier"),
    ("prompt_cache_key", "prompt_cache_key"),
    ("service_tier", "service_tier"),
];
/// Places in a request of chat completions, and the same in one of responses.
const PLACE_NAMES: [(&str, &str); 4] = [
    ("max_completion_tokens", "max_output_tokens"),
    ("reasoning_effort", "reasoning.effort"),
    ("verbosity", "text.verbosity"),
    ("response_format", "text.format"),
];
/// Members that this service does not support, with the reason.
const UNSUPPORTED_MEMBERS: [(&str, &str); 7] = [
    ("messages", "name the messages in 'input'"),
    ("prompt", "the agent's manifest has the prompt"),
    (
        "max_tool_calls",
        "the agent's manifest limits its iterations",
    ),
    (
        "context_management",
        "the agent's manifest decides about compaction",
    ),
    ("prompt_cache_retention", "the model's service decides it"),
    ("prompt_cache_options", "the model's service decides it"),
    ("moderation", "it is not available"),
];
/// The end of the place of a result's call in chat completions.
const RESULT_ID: &str = ".tool_call_id";
/// Limits of `metadata`, as in `OpenAI`'s API: pairs, characters of a name, characters of a value.
const METADATA_LIMITS: (usize, usize, usize) = (16, 64, 512);

/// A request that was read and checked, except for what chat completions check.
#[derive(Debug)]
pub(super) struct ResponseRequest {
    /// The body of chat completions, without messages.
    pub(super) chat: Map<String, Value>,
    /// Instructions for this response alone.
    pub(super) instructions: Option<String>,
    /// The new items of the conversation.
    pub(super) input: InputItems,
    /// Members that the response repeats.
    pub(super) echo: Map<String, Value>,
    /// Name of the agent.
    pub(super) model: String,
    pub(super) streams: bool,
    pub(super) runs_in_background: bool,
    pub(super) is_stored: bool,
    /// The response that this one continues.
    pub(super) previous: Option<String>,
    /// The conversation that this response is a part of.
    pub(super) conversation: Option<String>,
}

impl ResponseRequest {
    /// The request of a response in the background that another process began, with the items of its input.
    ///
    /// # Errors
    ///
    /// 400 for items that this version does not read.
    pub(super) fn resumed(
        stored: StoredRequest,
        input: Vec<Value>,
    ) -> Result<Self, RequestFailure> {
        Ok(Self {
            chat: stored.chat,
            instructions: stored.instructions,
            input: read_items(input)?,
            echo: Map::new(),
            model: stored.model,
            streams: false,
            runs_in_background: true,
            is_stored: true,
            previous: None,
            conversation: None,
        })
    }
}

/// Reads a body.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn read_response_request(body: Value) -> Result<ResponseRequest, RequestFailure> {
    let Value::Object(mut body) = body else {
        return Err(invalid("input", "The request must be a JSON object."));
    };
    body.retain(|_, value| !value.is_null());
    for (name, reason) in UNSUPPORTED_MEMBERS {
        if body.contains_key(name) {
            return Err(unsupported_failure(name, reason));
        }
    }
    let model = take_text(&mut body, "model")?.unwrap_or_default();
    let instructions = take_text(&mut body, "instructions")?;
    let streams = take_bool(&mut body, "stream", false)?;
    let runs_in_background = take_bool(&mut body, "background", false)?;
    let is_stored = take_bool(&mut body, "store", true)?;
    let previous = take_text(&mut body, "previous_response_id")?;
    let conversation = take_conversation(&mut body)?;
    check_state(
        runs_in_background,
        is_stored,
        previous.as_ref(),
        conversation.as_ref(),
    )?;
    let continues = previous.is_some() || conversation.is_some();
    let input = take_input(&mut body, continues)?;
    let mut chat = Map::new();
    let mut echo = usual_echo();
    echo.insert("model".to_owned(), json!(model));
    echo.insert("instructions".to_owned(), json!(instructions));
    echo.insert("background".to_owned(), json!(runs_in_background));
    echo.insert("store".to_owned(), json!(is_stored));
    echo.insert("previous_response_id".to_owned(), json!(previous));
    let named = conversation.as_ref().map(|id| json!({ "id": id }));
    echo.insert("conversation".to_owned(), json!(named));
    echo.insert("metadata".to_owned(), take_metadata(&mut body)?);
    take_text_format(&mut body, &mut chat, &mut echo)?;
    take_reasoning(&mut body, &mut chat, &mut echo)?;
    take_tools(&mut body, &mut chat, &mut echo)?;
    take_options(&mut body, &mut chat)?;
    for (name, chat_name) in PARAMETER_NAMES {
        if let Some(value) = body.shift_remove(name) {
            echo.insert(name.to_owned(), value.clone());
            chat.insert(chat_name.to_owned(), value);
        }
    }
    if !chat.contains_key("logprobs") && !body.contains_key("logprobs") {
        // Without its `include` the parameter has no effect in responses, and models refuse it without `logprobs`.
        chat.shift_remove("top_logprobs");
    }
    // The manifest decides about names that are not known here, as in chat completions.
    chat.extend(body);
    Ok(ResponseRequest {
        chat,
        instructions,
        input,
        echo,
        model,
        streams,
        runs_in_background,
        is_stored,
        previous,
        conversation,
    })
}

/// The failure of a request of chat completions, at the place of the request of responses. `items` are the input items
/// of the messages, in order; `None` for those of earlier responses and for instructions.
pub(super) fn at_place(mut failure: RequestFailure, items: &[Option<usize>]) -> RequestFailure {
    let Some(param) = failure.param.take() else {
        return failure;
    };
    let field = response_place(&param, items);
    failure.message = failure
        .message
        .replace(&format!("'{param}'"), &format!("'{field}'"))
        .replace(&format!("path {param}."), &format!("path {field}."));
    if failure.code.as_deref() == Some(ORDER_CODE) {
        failure.message = order_message(&param, failure.message);
    }
    failure.param = Some(field.into());
    failure
}

/// Rewords a problem of calls and their results for this API, which has items instead of messages.
fn order_message(param: &str, message: String) -> String {
    if param.ends_with(RESULT_ID) {
        return "No call is known for this output: neither the input nor what the request continues has one that waits."
            .to_owned();
    }
    match message.rsplit_once("These have no answer: ") {
        Some((_, ids)) => {
            format!("These calls have no output in the input, or these questions no answer: {ids}")
        }
        None => message,
    }
}

fn response_place(param: &str, items: &[Option<usize>]) -> String {
    if let Some(rest) = param.strip_prefix("messages.") {
        let (number, rest) = rest.split_once('.').unwrap_or((rest, ""));
        let item = number.parse::<usize>().ok().and_then(|at| *items.get(at)?);
        return match item {
            None => "input".to_owned(),
            Some(item) => {
                // Parts of responses are flat.
                let rest = rest
                    .trim_end_matches("tool_call_id")
                    .replace(".file.", ".")
                    .replace(".image_url.url", ".image_url");
                format!("input.{item}.{rest}")
                    .trim_end_matches('.')
                    .to_owned()
            }
        };
    }
    if param.starts_with("tools.") {
        return param.replace(".function.", ".");
    }
    if param == "messages" {
        return "input".to_owned();
    }
    for (chat, response) in PLACE_NAMES {
        if let Some(rest) = param.strip_prefix(chat)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            return format!("{response}{rest}");
        }
    }
    param.to_owned()
}

/// Members of a response with the values that apply if its request left them out, as in `OpenAI`'s API. The numbers are
/// never null, as the Open Responses specification requires (<https://www.openresponses.org/reference>).
fn usual_echo() -> Map<String, Value> {
    let usual = json!({
        "max_output_tokens": null, "max_tool_calls": null, "parallel_tool_calls": true, "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "top_logprobs": 0, "truncation": "disabled", "user": null, "safety_identifier": null, "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null}, "text": {"format": {"type": "text"}}, "service_tier": "default",
    });
    match usual {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn check_state(
    runs_in_background: bool,
    is_stored: bool,
    previous: Option<&String>,
    conversation: Option<&String>,
) -> Result<(), RequestFailure> {
    if previous.is_some() && conversation.is_some() {
        let message = "It cannot be set together with 'conversation'.";
        return Err(invalid("previous_response_id", message));
    }
    if !is_stored && runs_in_background {
        return Err(invalid(
            "background",
            "It needs 'store': there would be nothing to poll.",
        ));
    }
    if !is_stored && conversation.is_some() {
        return Err(invalid(
            "store",
            "A response of a conversation is always stored.",
        ));
    }
    Ok(())
}

/// Takes `input`. An empty text or list counts as a missing input, as in `OpenAI`'s API; a message with an empty text
/// does not.
fn take_input(
    body: &mut Map<String, Value>,
    continues: bool,
) -> Result<InputItems, RequestFailure> {
    let input = body.shift_remove("input").filter(|input| {
        let is_empty_text = input.as_str().is_some_and(str::is_empty);
        let is_empty_list = input.as_array().is_some_and(Vec::is_empty);
        !is_empty_text && !is_empty_list
    });
    match input {
        Some(input) => read_input(input),
        None if continues => Ok(InputItems::default()),
        None => Err(RequestFailure::of_parameter(
            "input",
            "missing_required_parameter",
            "One of 'input', 'previous_response_id' and 'conversation' is required.",
        )),
    }
}

fn take_conversation(body: &mut Map<String, Value>) -> Result<Option<String>, RequestFailure> {
    match body.shift_remove("conversation") {
        None => Ok(None),
        Some(Value::String(id)) => Ok(Some(id)),
        Some(Value::Object(named)) => match named.get("id") {
            Some(Value::String(id)) => Ok(Some(id.clone())),
            _ => Err(invalid("conversation.id", "It must be a string.")),
        },
        Some(_) => Err(invalid(
            "conversation",
            "It must be an id or an object with an id.",
        )),
    }
}

/// Takes `metadata`, which is kept with the object and not sent to the model.
pub(super) fn take_metadata(body: &mut Map<String, Value>) -> Result<Value, RequestFailure> {
    let (most, name_chars, value_chars) = METADATA_LIMITS;
    let metadata = match body.shift_remove("metadata") {
        None => return Ok(json!({})),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err(invalid("metadata", "It must be an object.")),
    };
    let fits = metadata.iter().all(|(name, value)| {
        let value = value.as_str();
        name.chars().count() <= name_chars
            && value.is_some_and(|value| value.chars().count() <= value_chars)
    });
    if !fits || metadata.len() > most {
        let message = format!(
            "It has at most {most} strings of {value_chars} characters, with names of {name_chars}."
        );
        return Err(invalid("metadata", message));
    }
    Ok(Value::Object(metadata))
}

fn take_text(body: &mut Map<String, Value>, name: &str) -> Result<Option<String>, RequestFailure> {
    match body.shift_remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(name, "It must be a string.")),
    }
}

fn take_bool(
    body: &mut Map<String, Value>,
    name: &str,
    usual: bool,
) -> Result<bool, RequestFailure> {
    match body.shift_remove(name) {
        None => Ok(usual),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(_) => Err(invalid(name, "It must be true or false.")),
    }
}

/// A value that a parameter cannot have.
pub(super) fn invalid(param: &str, message: impl Into<String>) -> RequestFailure {
    let message = format!("Invalid value for '{param}': {}", message.into());
    RequestFailure::of_parameter(param, "invalid_value", message)
}

#[cfg(test)]
mod tests;
