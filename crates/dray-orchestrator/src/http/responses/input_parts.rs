//! Parts of messages and results in `/v1/responses`.

use dray_agent::failure::RequestFailure;
use dray_media_type::type_of_name;
use serde_json::{Map, Value, json};

use super::request::invalid;
use crate::http::DETAIL_FIELD;
use crate::http::plain_request::unsupported_failure;

/// A part of a message.
pub(super) enum InputPart {
    /// A part of chat completions.
    Content(Value),
    /// A file by its address, which only tools read.
    Link(Value),
}

/// Reads a part of a message; `is_answer` for one of the assistant's.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn read_part(
    field: &str,
    is_answer: bool,
    part: &Value,
) -> Result<InputPart, RequestFailure> {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    for name in ["detail", "filename"] {
        let value = part.get(name).filter(|value| !value.is_null());
        if value.is_some_and(|value| !value.is_string()) {
            return Err(invalid(&format!("{field}.{name}"), "It must be a string."));
        }
    }
    let kind = text("type").unwrap_or_default();
    let required = |name: &str| {
        text(name).ok_or_else(|| invalid(&format!("{field}.{name}"), "It is required."))
    };
    let content = match (kind, is_answer) {
        ("input_text", false) | ("output_text", true) => {
            json!({"type": "text", "text": required("text")?})
        }
        ("refusal", true) => json!({"type": "refusal", "refusal": required("refusal")?}),
        ("input_image", false) => match (text("image_url"), text("file_id")) {
            (Some(url), None) => {
                let detail = text("detail").unwrap_or("auto");
                json!({"type": "image_url", "image_url": {"url": url, "detail": detail}})
            }
            (None, Some(id)) => {
                let mut file = Map::from_iter([("file_id".to_owned(), json!(id))]);
                file.extend(text("detail").map(|detail| (DETAIL_FIELD.to_owned(), json!(detail))));
                json!({"type": "file", "file": file})
            }
            _ => return Err(invalid(field, "It needs either 'image_url' or 'file_id'.")),
        },
        ("input_file", false) => {
            let name = text("filename");
            match (text("file_data"), text("file_id"), text("file_url")) {
                (Some(data), None, None) => {
                    json!({"type": "file", "file": {"file_data": data, "filename": name}})
                }
                (None, Some(id), None) => {
                    json!({"type": "file", "file": {"file_id": id, "filename": name}})
                }
                (None, None, Some(url)) => return Ok(InputPart::Link(linked_file(url, name))),
                _ => {
                    let message = "It needs one of 'file_data', 'file_id' and 'file_url'.";
                    return Err(invalid(field, message));
                }
            }
        }
        ("input_audio", false) => {
            json!({"type": "input_audio", "input_audio": part.get("input_audio")})
        }
        _ => {
            let reason = "parts of this type are not supported in a message of this role";
            return Err(unsupported_failure(format!("{field}.type"), reason));
        }
    };
    Ok(InputPart::Content(content))
}

fn linked_file(url: &str, name: Option<&str>) -> Value {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().filter(|last| !last.is_empty());
    let name = name.or(last).unwrap_or("file");
    json!({"title": name, "url": url, "type": type_of_name(name)})
}

/// The content of a result in chat completions: text if it has only text, or parts.
#[derive(Debug)]
pub(super) struct ResultContent {
    pub(super) content: Value,
    /// Files by their addresses, which only tools read.
    pub(super) links: Vec<Value>,
}

/// Reads the result of a call: a text, or a list of texts, pictures and files.
///
/// # Errors
///
/// 400 with the place in `param`.
pub(super) fn read_output(
    field: &str,
    output: Option<&Value>,
) -> Result<ResultContent, RequestFailure> {
    let parts = match output {
        Some(Value::String(text)) => {
            return Ok(ResultContent {
                content: json!(text),
                links: Vec::new(),
            });
        }
        Some(Value::Array(parts)) => parts,
        _ => {
            let message = "It must be a string or a list of parts.";
            return Err(invalid(&format!("{field}.output"), message));
        }
    };
    let (mut content, mut links) = (Vec::with_capacity(parts.len()), Vec::new());
    for (number, part) in parts.iter().enumerate() {
        let field = format!("{field}.output.{number}");
        if part.get("type").is_some_and(|kind| kind == "input_audio") {
            let reason = "results of functions have texts, pictures and files";
            return Err(unsupported_failure(format!("{field}.type"), reason));
        }
        match read_part(&field, false, part)? {
            InputPart::Content(part) => content.push(part),
            InputPart::Link(attachment) => links.push(attachment),
        }
    }
    let texts: Option<String> = content
        .iter()
        .map(|part| part.get("text")?.as_str())
        .collect();
    Ok(ResultContent {
        content: texts.map_or(Value::Array(content), Value::String),
        links,
    })
}
