//! The tools of the suite that ask the person, the model or the client.

use dray_mcp::{InputAnswer, InputQuestion};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitationSchema,
    InputRequest, InputRequests, InputRequiredResult,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::handler::ConformanceServer;

/// Names and descriptions.
pub(crate) const TOOLS: &[(&str, &str)] = &[
    ("test_elicitation", "Asks for a name and an address."),
    (
        "test_elicitation_sep1034_defaults",
        "Asks with default values.",
    ),
    ("test_elicitation_sep1330_enums", "Asks with choices."),
    ("test_streaming_elicitation", "Asks during a stream."),
    ("test_input_required_result_elicitation", "Asks for a name."),
    ("test_input_required_result_sampling", "Asks the model."),
    (
        "test_input_required_result_list_roots",
        "Asks for the roots.",
    ),
    (
        "test_input_required_result_request_state",
        "Asks with a state.",
    ),
    (
        "test_input_required_result_tampered_state",
        "Checks its state.",
    ),
    (
        "test_input_required_result_multiple_inputs",
        "Asks three times.",
    ),
    (
        "test_input_required_result_multi_round",
        "Asks in two rounds.",
    ),
    (
        "test_input_required_result_capabilities",
        "Asks what the client can.",
    ),
];

/// The result, where the tool is one of these.
pub(crate) async fn call(
    server: &ConformanceServer,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let name = request.name.as_ref();
    let response = match name {
        "test_input_required_result_sampling" => all_of(server, request, &[CAPITAL_INPUT])?,
        "test_input_required_result_list_roots" => all_of(server, request, &[ROOTS])?,
        "test_input_required_result_multiple_inputs" => {
            all_of(server, request, &[NAME_INPUT, GREETING_INPUT, ROOTS])?
        }
        "test_input_required_result_capabilities" => {
            let declared = json!(context.client_capabilities());
            let known = [NAME_INPUT, GREETING_INPUT, ROOTS].into_iter();
            let asked: Vec<_> = known
                .filter(|input| {
                    declared
                        .get(input.capability)
                        .is_some_and(|capability| !capability.is_null())
                })
                .collect();
            all_of(server, request, &asked)?
        }
        "test_input_required_result_multi_round" => multi_round(server, request)?,
        _ => match question(request)? {
            Some(question) => {
                let asked = server.gate.ask(context, request.into(), question).await?;
                answered_call(name, asked)
            }
            None => return Ok(None),
        },
    };
    Ok(Some(response))
}

/// The question of a tool that asks the user once.
fn question(request: &CallToolRequestParams) -> Result<Option<InputQuestion>, ErrorData> {
    let name = request.name.as_ref();
    let (key, message, schema, is_bound) = match name {
        "test_elicitation" => (
            "user",
            argument(request, "message"),
            schema(json!({
                "type": "object",
                "properties": {
                    "username": {"type": "string", "description": "User's response"},
                    "email": {"type": "string", "description": "User's email address"},
                },
                "required": ["username", "email"],
            }))?,
            false,
        ),
        "test_elicitation_sep1034_defaults" => (
            "defaults",
            "Check the values.".to_owned(),
            schema(defaults())?,
            false,
        ),
        "test_elicitation_sep1330_enums" => {
            ("choices", "Choose.".to_owned(), schema(choices())?, false)
        }
        "test_streaming_elicitation" | "test_input_required_result_elicitation" => (
            "user_name",
            "What is your name?".to_owned(),
            form("name", "string")?,
            false,
        ),
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => (
            "confirm",
            "Please confirm".to_owned(),
            form("ok", "boolean")?,
            true,
        ),
        _ => return Ok(None),
    };
    Ok(Some(InputQuestion {
        key,
        message,
        schema,
        binding: is_bound.then(|| name.to_owned()),
    }))
}

fn answered_call(name: &str, answer: InputAnswer) -> CallToolResponse {
    let (action, content) = match answer {
        InputAnswer::Pending(pending) => return pending.into(),
        InputAnswer::Refused => ("decline", Value::Null),
        InputAnswer::Accepted(content) => ("accept", content),
    };
    let text = match name {
        "test_elicitation" => format!("User response: action={action}, content={content}"),
        // Only an answer with a valid state reaches this line.
        "test_input_required_result_request_state" => "state-ok".to_owned(),
        "test_input_required_result_elicitation" => {
            let given = content.get("name").and_then(Value::as_str);
            format!("Hello, {}!", given.unwrap_or_default())
        }
        _ => format!("Elicitation completed: action={action}, content={content}"),
    };
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

/// A request that a client can fulfil.
#[derive(Clone, Copy)]
struct ClientInput {
    key: &'static str,
    /// The capability that a client declares for it.
    capability: &'static str,
    /// The request, in JSON.
    request: &'static str,
}

const NAME_INPUT: ClientInput = ClientInput {
    key: "user_name",
    capability: "elicitation",
    request: r#"{"method": "elicitation/create", "params": {"mode": "form", "message": "What is your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}"#,
};
const CAPITAL_INPUT: ClientInput = ClientInput {
    key: "capital_question",
    capability: "sampling",
    request: r#"{"method": "sampling/createMessage", "params": {"maxTokens": 100, "messages": [
        {"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}]}}"#,
};
const GREETING_INPUT: ClientInput = ClientInput {
    key: "greeting",
    capability: "sampling",
    request: r#"{"method": "sampling/createMessage", "params": {"maxTokens": 50, "messages": [
        {"role": "user", "content": {"type": "text", "text": "Generate a greeting"}}]}}"#,
};
const ROOTS: ClientInput = ClientInput {
    key: "client_roots",
    capability: "roots",
    request: r#"{"method": "roots/list", "params": {}}"#,
};

/// Asks for all inputs in one result, with a signed state.
fn all_of(
    server: &ConformanceServer,
    request: &CallToolRequestParams,
    inputs: &[ClientInput],
) -> Result<CallToolResponse, ErrorData> {
    let name = request.name.as_ref();
    let given = request.input_responses.as_ref();
    if let (Some(given), Some(state)) = (given, request.request_state.as_deref()) {
        server.gate.open(state, name)?;
        if inputs.iter().all(|input| given.contains_key(input.key)) {
            let text = format!("Answers: {}", json!(given));
            return Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        }
    }
    let requests = inputs
        .iter()
        .map(|input| Ok((input.key.to_owned(), client_request(input.request)?)))
        .collect::<Result<InputRequests, ErrorData>>()?;
    let state = server.gate.seal("all", name);
    Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
}

/// Asks for a name, then for a colour. The signed state says which round it is.
fn multi_round(
    server: &ConformanceServer,
    request: &CallToolRequestParams,
) -> Result<CallToolResponse, ErrorData> {
    let name = request.name.as_ref();
    let state = request.request_state.as_deref();
    let round = state
        .map(|state| server.gate.open(state, name))
        .transpose()?;
    let (key, message, field) = match round.as_deref() {
        None => ("step1", "Step 1: What is your name?", "name"),
        Some("step1") => ("step2", "Step 2: What is your favorite color?", "color"),
        Some(_) => {
            return Ok(CallToolResult::success(vec![ContentBlock::text("Both known.")]).into());
        }
    };
    let properties = json!({field: {"type": "string"}});
    let schema = json!({"type": "object", "properties": properties, "required": [field]});
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let asked = json!({"method": "elicitation/create", "params": params}).to_string();
    let requests = InputRequests::from([(key.to_owned(), client_request(&asked)?)]);
    let state = server.gate.seal(key, name);
    Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
}

fn client_request(text: &str) -> Result<InputRequest, ErrorData> {
    serde_json::from_str(text).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A form with one required field.
pub(crate) fn form(field: &str, kind: &str) -> Result<ElicitationSchema, ErrorData> {
    schema(json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]}))
}

fn schema(value: Value) -> Result<ElicitationSchema, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A text among the arguments of a call; empty without it.
pub(crate) fn argument(request: &CallToolRequestParams, name: &str) -> String {
    let argument_text = request.arguments.as_ref();
    let argument_text = argument_text.and_then(|argument_text| argument_text.get(name)?.as_str());
    argument_text.unwrap_or_default().to_owned()
}

/// SEP-1034: a default for each type.
fn defaults() -> Value {
    json!({"type": "object", "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    }})
}

/// SEP-1330: each form of a choice.
fn choices() -> Value {
    let plain = json!(["option1", "option2", "option3"]);
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]);
    json!({"type": "object", "properties": {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }})
}
