//! Builds the body of a chat completion from arguments (quickapps 24.1).

use dray_agent::manifest::orchestrator::Parameters;
use dray_agent::message::{Attachment, CustomContent, Message, Role};
use dray_tool::ToolFailure;
use serde_json::{Map, Value};

use crate::{attachment, schema};

/// Fields that this crate sets itself and that no argument may replace.
const RESERVED_FIELDS: &[&str] = &[
    "custom_fields",
    "messages",
    "model",
    "stream",
    "stream_options",
];

/// The `query` argument as text; empty without one.
pub(crate) fn query_text(arguments: &Map<String, Value>) -> String {
    match arguments.get("query") {
        Some(Value::String(query)) => query.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

/// A message of the user with files.
pub(crate) fn user_message(query: &str, files: Vec<Attachment>) -> Message {
    let mut message = Message::new(Role::User, query);
    message.custom_content = (!files.is_empty()).then(|| CustomContent {
        attachments: Some(files),
        ..CustomContent::default()
    });
    message
}

/// The body without its messages: configured values, which settings in the arguments override, and every other argument
/// as a separate field.
pub(crate) fn request_body(
    parameters: &Parameters,
    configuration: Option<&Value>,
    arguments: &Map<String, Value>,
) -> Result<Map<String, Value>, ToolFailure> {
    let mut arguments = arguments.clone();
    for own in ["query", attachment::ATTACHMENT_PARAMETER] {
        arguments.shift_remove(own);
    }
    let settings = configuration
        // Settings are taken out before the check below: a setting may have the name of a reserved field.
        .map(|schema| schema::take_settings(schema, &mut arguments))
        .unwrap_or_default();
    if let Some(name) = arguments
        .keys()
        .find(|name| RESERVED_FIELDS.contains(&name.as_str()))
    {
        return Err(ToolFailure::parameter(
            name,
            "The tool has no such argument.",
        ));
    }
    let mut body = match serde_json::to_value(parameters) {
        Ok(Value::Object(body)) => body,
        _ => Map::new(),
    };
    if !settings.is_empty() {
        let fields = body
            .entry("custom_fields")
            .or_insert_with(|| Map::new().into());
        if let Some(fields) = fields.as_object_mut() {
            let merged = fields
                .entry("configuration")
                .or_insert_with(|| Map::new().into());
            if let Some(merged) = merged.as_object_mut() {
                merged.extend(settings);
            }
        }
    }
    body.extend(arguments);
    // The member is set last, so that no value disables streaming.
    body.insert("stream".to_owned(), true.into());
    Ok(body)
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "tests read better with literals in place"
)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn build_body(
        parameters: Value,
        schema: Option<Value>,
        arguments: Value,
    ) -> Result<Value, ToolFailure> {
        let parameters = serde_json::from_value(parameters).unwrap();
        request_body(&parameters, schema.as_ref(), &object(arguments)).map(Value::Object)
    }

    #[test]
    fn settings_override_configured_ones_and_other_arguments_become_fields() {
        let body = build_body(
            json!({ "temperature": 0.5, "custom_fields": { "configuration": { "a": 1, "b": 2 } } }),
            Some(json!({ "properties": { "b": { "type": "integer" } } })),
            json!({ "query": "q", "attachment_urls": ["x"], "b": "3", "temperature": 1, "user": "u" }),
        );
        assert_eq!(
            body.unwrap(),
            json!({
                "temperature": 1, "custom_fields": { "configuration": { "a": 1, "b": 3 } }, "user": "u",
                "stream": true,
            })
        );
    }

    #[test]
    fn without_settings_there_are_no_fields_of_dial() {
        let body = build_body(json!({}), None, json!({ "query": "q" })).unwrap();
        assert_eq!(body, json!({ "stream": true }));
    }

    #[test]
    fn an_argument_never_replaces_a_reserved_field() {
        for name in RESERVED_FIELDS {
            let refused = build_body(json!({}), None, json!({ *name: [] })).unwrap_err();
            assert!(
                matches!(refused, ToolFailure::Parameter { name: wrong, .. } if wrong == *name)
            );
        }
    }

    #[test]
    fn an_absent_query_is_empty_and_another_type_is_its_text() {
        assert_eq!(query_text(&object(json!({}))), "");
        assert_eq!(query_text(&object(json!({ "query": null }))), "");
        assert_eq!(
            query_text(&object(json!({ "query": { "a": 1 } }))),
            "{\"a\":1}"
        );
    }
}
