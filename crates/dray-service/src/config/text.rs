//! Reads the text of a variable or flag by the schema of its field.

use serde_json::Value;

use super::schema::{SchemaNode, ValueKind};

/// Parses the text of a variable or flag by the schema of its field. The error describes valid values.
pub(super) fn read_text(node: SchemaNode<'_>, text: &str) -> Result<Value, String> {
    let invalid = || expected_text(node);
    // An empty variable is how an environment unsets an optional field.
    if text.is_empty() && node.is_nullable() {
        return Ok(Value::Null);
    }
    match node.kind() {
        ValueKind::Bool => match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(invalid()),
        },
        ValueKind::Integer => text
            .trim()
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| invalid()),
        ValueKind::Number => text
            .trim()
            .parse::<f64>()
            .map(Value::from)
            .map_err(|_| invalid()),
        ValueKind::Text | ValueKind::ByteSize | ValueKind::Period | ValueKind::Secret => {
            Ok(text.into())
        }
        ValueKind::List => read_list(node, text),
        ValueKind::Fields | ValueKind::Any => match serde_json::from_str(text) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(value),
            // A value of several types may be plain text; only text that begins like JSON has to be JSON.
            _ if node.kind() == ValueKind::Any && !text.starts_with(['{', '[']) => Ok(text.into()),
            _ => Err(invalid()),
        },
    }
}

fn read_list(node: SchemaNode<'_>, text: &str) -> Result<Value, String> {
    let text = text.trim();
    // A JSON list, for items that contain a comma.
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(|_| expected_text(node));
    }
    if text.is_empty() {
        return Ok(Value::Array(Vec::new()));
    }
    let item = node.items();
    text.split(',')
        .map(|part| match item {
            Some(item) => read_text(item, part.trim()),
            None => Ok(part.trim().into()),
        })
        .collect::<Result<Vec<_>, _>>()
        .map(Value::Array)
}

pub(super) fn expected_text(node: SchemaNode<'_>) -> String {
    match node.choices() {
        Some(words) => format!("must be one of: {}", words.join(", ")),
        None => node.kind().expectation().to_owned(),
    }
}
