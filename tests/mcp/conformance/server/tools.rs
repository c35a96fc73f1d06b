//! The tools of the suite that need no input of a person.
#![expect(
    deprecated,
    reason = "scenarios of 2025-11-25 require sampling and logging"
)]

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    CreateMessageRequestParams, JsonObject, LoggingLevel, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProtocolVersion, ResourceContents, SamplingMessage, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::handler::{ChangedList, ConformanceServer};
use super::inputs;

/// A PNG of one pixel, in base64.
pub(crate) const PIXEL_PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
/// A WAV file without samples, in base64.
const EMPTY_WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
/// The time that the suite asks for between two notifications of one call.
const STEP_DELAY: Duration = Duration::from_millis(50);
/// Most tokens of a sample.
const MAX_SAMPLE_TOKENS: u32 = 100;

/// Names and descriptions.
const TOOLS: &[(&str, &str)] = &[
    ("test_simple_text", "Returns a text."),
    ("test_image_content", "Returns a picture."),
    ("test_audio_content", "Returns a sound."),
    ("test_embedded_resource", "Returns a resource."),
    ("test_multiple_content_types", "Returns several contents."),
    ("test_error_handling", "Fails."),
    (
        "test_custom_header",
        "Has an argument that clients repeat in a header.",
    ),
    ("test_tool_with_logging", "Sends log messages."),
    (
        "test_logging_tool",
        "Sends a log message to clients that set a level.",
    ),
    ("test_tool_with_progress", "Reports progress."),
    ("test_sampling", "Asks the client's model."),
    ("test_missing_capability", "Needs a client with sampling."),
    (
        "test_trigger_tool_change",
        "Announces a change of the tools.",
    ),
    (
        "test_trigger_prompt_change",
        "Announces a change of the prompts.",
    ),
];

pub(crate) fn definitions() -> impl Iterator<Item = Tool> {
    let plain = TOOLS.iter().chain(inputs::TOOLS);
    plain
        .map(|(name, description)| {
            let properties = match *name {
                "test_sampling" => json!({"prompt": {"type": "string"}}),
                "test_elicitation" => json!({"message": {"type": "string"}}),
                "test_custom_header" => {
                    json!({"region": {"type": "string", "x-mcp-header": "Region"}})
                }
                _ => json!({}),
            };
            let schema = json!({"type": "object", "properties": properties});
            Tool::new(*name, *description, json_object(schema))
        })
        .chain(std::iter::once(Tool::new(
            "json_schema_2020_12_tool",
            "Tool with JSON Schema 2020-12 features",
            json_object(json_schema_2020_12()),
        )))
}

pub(crate) fn json_object(value: Value) -> Arc<JsonObject> {
    let Value::Object(object) = value else {
        return Arc::default();
    };
    Arc::new(object)
}

/// The schema that has to arrive unchanged in `tools/list`.
fn json_schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

/// The result, where the tool is one of these.
pub(crate) async fn call(
    server: &ConformanceServer,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let content = match request.name.as_ref() {
        "test_tool_with_logging" => {
            for step in ["started", "processing data", "completed"] {
                log_message(context, &format!("Tool execution {step}")).await?;
            }
            vec![ContentBlock::text("Logged.")]
        }
        "test_logging_tool" => {
            if context.meta.log_level().is_some() {
                log_message(context, "A message of the tool.").await?;
            }
            vec![ContentBlock::text("Done.")]
        }
        "test_tool_with_progress" => {
            report_progress(context).await?;
            vec![ContentBlock::text("Done.")]
        }
        "test_sampling" => vec![sample(request, context).await?],
        "test_missing_capability" => {
            require_sampling(context)?;
            vec![ContentBlock::text("The client has sampling.")]
        }
        "test_trigger_tool_change" => vec![announce(server, ChangedList::Tools)],
        "test_trigger_prompt_change" => vec![announce(server, ChangedList::Prompts)],
        "test_error_handling" => {
            let text = "This tool intentionally returns an error for testing";
            return Ok(Some(
                CallToolResult::error(vec![ContentBlock::text(text)]).into(),
            ));
        }
        name => match fixed_content(name) {
            Some(content) => content,
            None => return Ok(None),
        },
    };
    Ok(Some(CallToolResult::success(content).into()))
}

/// The content of tools that return the same each time.
fn fixed_content(name: &str) -> Option<Vec<ContentBlock>> {
    let image = || ContentBlock::image(PIXEL_PNG, "image/png");
    Some(match name {
        "test_simple_text" => vec![ContentBlock::text(
            "This is a simple text response for testing.",
        )],
        "test_image_content" => vec![image()],
        "test_audio_content" => vec![ContentBlock::audio(EMPTY_WAV, "audio/wav")],
        "test_embedded_resource" => {
            let text = "This is an embedded resource content.";
            let resource = ResourceContents::text(text, "test://embedded-resource");
            vec![ContentBlock::resource(
                resource.with_mime_type("text/plain"),
            )]
        }
        "test_multiple_content_types" => {
            let data = json!({"test": "data", "value": 123}).to_string();
            let resource = ResourceContents::text(data, "test://mixed-content-resource");
            vec![
                ContentBlock::text("Multiple content types test:"),
                image(),
                ContentBlock::resource(resource.with_mime_type("application/json")),
            ]
        }
        "json_schema_2020_12_tool" | "test_custom_header" => vec![ContentBlock::text("Done.")],
        _ => return None,
    })
}

fn announce(server: &ConformanceServer, list: ChangedList) -> ContentBlock {
    // `send` fails without a subscriber, which is expected.
    let receivers = server.changes.send(list).unwrap_or_default();
    ContentBlock::text(format!("Announced to {receivers} subscribers."))
}

async fn log_message(context: &RequestContext<RoleServer>, text: &str) -> Result<(), ErrorData> {
    let params = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text));
    let sent = context.peer.notify_logging_message(params).await;
    sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    super::pass_time(STEP_DELAY).await;
    Ok(())
}

async fn report_progress(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else {
        return Ok(());
    };
    for progress in [0.0, 50.0, 100.0] {
        let params = ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
        let sent = context.peer.notify_progress(params).await;
        sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        super::pass_time(STEP_DELAY).await;
    }
    Ok(())
}

fn require_sampling(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let capabilities = context.client_capabilities();
    if capabilities.is_some_and(|capabilities| capabilities.sampling.is_some()) {
        return Ok(());
    }
    let needed = ClientCapabilities::builder().enable_sampling().build();
    Err(ErrorData::missing_required_client_capability(needed))
}

async fn sample(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<ContentBlock, ErrorData> {
    require_sampling(context)?;
    let version = context.protocol_version();
    if version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()) {
        let text = "Sampling during a call ended with 2025-11-25.";
        return Err(ErrorData::invalid_request(text, None));
    }
    let prompt = inputs::argument(request, "prompt");
    let params = CreateMessageRequestParams::new(
        vec![SamplingMessage::user_text(prompt)],
        MAX_SAMPLE_TOKENS,
    );
    let sampled = context.peer.create_message(params).await;
    let sampled = sampled.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let message = json!(sampled.message);
    Ok(ContentBlock::text(format!("LLM response: {message}")))
}
