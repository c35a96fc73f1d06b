//! Messages of the bus as JSON for people and scripts: fields by name, contents by size.

use std::sync::LazyLock;

use dray_bus::MessageHeaders;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};

/// The contracts, decoded once. `None` cannot occur in a correct build, and then messages are shown by size.
static CONTRACT_POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(dray_proto::DESCRIPTORS).ok());

/// A message as JSON. File contents are replaced by their size; a message that cannot be decoded is shown by its
/// size.
pub(crate) fn message_json(headers: &MessageHeaders, payload: &[u8]) -> Value {
    let schema = headers.get("Dray-Schema").unwrap_or_default();
    decode_payload(schema, payload)
        .unwrap_or_else(|| json!({ "schema": schema, "bytes": payload.len() }))
}

fn decode_payload(schema: &str, payload: &[u8]) -> Option<Value> {
    // `MESSAGE/REVISION`: revisions only add fields, so the newest contract reads them all.
    let (name, _revision) = schema.split_once('/')?;
    let descriptor = CONTRACT_POOL.as_ref()?.get_message_by_name(name)?;
    let message = DynamicMessage::decode(descriptor, payload).ok()?;
    let mut value = serde_json::to_value(&message).ok()?;
    hide_contents(&mut value);
    Some(value)
}

/// Replaces base64 of contents by the number of bytes that it stands for: contents are long, and belong to users.
fn hide_contents(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_contents),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::String(text) if name == "inline" => {
                        *field = json!({ "bytes": decoded_length(text) });
                    }
                    other => hide_contents(other),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn decoded_length(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// Unix milliseconds as RFC 3339; as a number when they are out of range.
pub(crate) fn rfc3339_time(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|unix_ms| jiff::Timestamp::from_millisecond(unix_ms).ok())
        .map_or_else(|| unix_ms.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use dray_proto::v1;
    use prost::Message as _;

    use super::*;

    #[test]
    fn contents_are_shown_by_size() {
        let event = v1::ToolCallResolved {
            tool: "send".to_owned(),
            resolved: Some(v1::ResolvedArguments {
                arguments: Some(v1::Content {
                    body: Some(v1::content::Body::Inline(bytes::Bytes::from_static(
                        b"{\"secret\":1}",
                    ))),
                }),
                ..v1::ResolvedArguments::default()
            }),
            ..v1::ToolCallResolved::default()
        };
        let shown = decode_payload("dray.v1.ToolCallResolved/1", &event.encode_to_vec()).unwrap();
        assert_eq!(shown["tool"], "send");
        assert_eq!(shown["resolved"]["arguments"]["inline"]["bytes"], 12);
    }

    #[test]
    fn unknown_messages_are_shown_by_size() {
        let shown = message_json(&MessageHeaders::new(), b"abc");
        assert_eq!(shown["bytes"], 3);
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339_time(0), "1970-01-01T00:00:00Z");
    }
}
