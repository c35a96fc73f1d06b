//! Messages of the contracts as JSON, for people and scripts: fields by name, contents by size.
//!
//! [`hide_secrets`] is for pages that show messages of others; [`message_json`] without it keeps every text unchanged.

use std::sync::LazyLock;

use dray_types::RedactedUrl;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};

/// The contracts, decoded once. `None` cannot occur in a correct build; messages would then be shown only by their
/// size.
static CONTRACT_POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).ok());

/// Parts of field names whose values are credentials, in lower case.
const SECRET_NAME_PARTS: [&str; 8] = [
    "authorization",
    "cookie",
    "credential",
    "password",
    "secret",
    "signature",
    "token",
    "api_key",
];
/// The replacement of a secret.
const HIDDEN_TEXT: &str = "(hidden)";

/// A message as JSON. `schema` is the value of its `Dray-Schema` header, `MESSAGE/REVISION`. File contents are replaced
/// by their size; a message that cannot be decoded is shown by its size.
pub fn message_json(schema: &str, payload: &[u8]) -> Value {
    decode_payload(schema, payload)
        .unwrap_or_else(|| json!({ "schema": schema, "bytes": payload.len() }))
}

fn decode_payload(schema: &str, payload: &[u8]) -> Option<Value> {
    // Revisions only add fields, so the newest contract reads them all.
    let (name, _revision) = schema.split_once('/')?;
    let descriptor = CONTRACT_POOL.as_ref()?.get_message_by_name(name)?;
    let message = DynamicMessage::decode(descriptor, payload).ok()?;
    let mut value = serde_json::to_value(&message).ok()?;
    hide_contents(&mut value);
    Some(value)
}

/// Replaces base64 contents by their number of bytes, because contents are long and private.
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

/// Hides values that may grant access: fields with the name of a credential, and user info, query and fragment of URLs,
/// which may contain a signature.
pub fn hide_secrets(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_secrets),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if is_secret_name(name) && !field.is_object() {
                    *field = HIDDEN_TEXT.into();
                } else {
                    hide_secrets(field);
                }
            }
        }
        Value::String(text) => {
            if text.contains("://") {
                *text = without_url_secrets(text);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a field or a header of this name contains a credential.
pub fn is_secret_name(name: &str) -> bool {
    // `apiKey`, `api-key` and `api_key` are one name.
    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    let name = plain(name);
    SECRET_NAME_PARTS
        .iter()
        .any(|part| name.contains(&plain(part)))
}

/// Removes user info, query and fragment of every URL in a text.
fn without_url_secrets(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let end = word.trim_end().len();
        let (word, space) = word.split_at(end);
        if word.contains("://") {
            format!("{}{space}", RedactedUrl::from_text(word))
        } else {
            format!("{word}{space}")
        }
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::v1;

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
        let shown = message_json("dray.v1.ToolCallResolved/1", &event.encode_to_vec());
        assert_eq!(shown["tool"], "send");
        assert_eq!(shown["resolved"]["arguments"]["inline"]["bytes"], 12);
    }

    #[test]
    fn unknown_messages_are_shown_by_size() {
        assert_eq!(message_json("", b"abc")["bytes"], 3);
        assert_eq!(message_json("dray.v1.Unheard/1", b"abc")["bytes"], 3);
    }

    #[test]
    fn credentials_and_the_queries_of_urls_are_hidden_at_every_depth() {
        let mut value = json!({
            "url": "https://me:pw@host.example/file?X-Amz-Signature=5ec2e7#frag",
            "text": "see https://host.example/a?sig=5ec2e7 and\nnothing else",
            "headers": [{ "name": "x", "apiKey": "5ec2e7" }, { "Authorization": "Bearer 5ec2e7" }],
            "refresh_token": ["5ec2e7"],
            "tool": "send",
        });
        hide_secrets(&mut value);
        let text = value.to_string();
        assert!(!text.contains("5ec2e7") && !text.contains("pw@"), "{text}");
        assert_eq!(value["url"], "https://host.example/file");
        assert_eq!(
            value["text"],
            "see https://host.example/a and\nnothing else"
        );
        assert_eq!(value["tool"], "send");
    }
}
