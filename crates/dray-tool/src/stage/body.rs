//! Bodies of stages (quickapps 22.3): requests, responses and errors.

use std::fmt::Write as _;

use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use crate::stage::{markup, table, value};
use crate::{CallRules, HandledFailure, StageStyle};

/// Longest body of a stage, in characters. The model gets the complete text.
const MAX_BODY_CHARACTERS: usize = 50_000;

/// The arguments of a call. Empty when the style shows no arguments.
pub fn request_body(
    rules: &CallRules,
    written: &Map<String, Value>,
    resolved: Option<&Map<String, Value>>,
) -> String {
    match rules.style {
        StageStyle::Deployment => argument_lines(rules, written, resolved),
        StageStyle::Api => arguments_json(rules, written, resolved),
        StageStyle::Own => String::new(),
    }
}

/// The heading before a response that is streamed.
pub const fn response_heading(style: StageStyle) -> &'static str {
    match style {
        StageStyle::Deployment => "> #### Response:\n",
        StageStyle::Api => "> ##### Response:\n",
        StageStyle::Own => "",
    }
}

/// The result of a call, without its heading.
pub fn response_body(style: StageStyle, content: &str, content_type: &str) -> String {
    match style {
        StageStyle::Deployment => value::shorten_text(content, MAX_BODY_CHARACTERS),
        StageStyle::Api => by_type(content, content_type),
        StageStyle::Own => String::new(),
    }
}

/// The error of a call, in a sentence.
pub fn error_text(style: StageStyle, text: &str) -> String {
    let text = value::shorten_text(text, MAX_BODY_CHARACTERS);
    match style {
        StageStyle::Deployment => format!("> #### Error:\n{text}\n"),
        StageStyle::Api => format!("> ##### Error:\n{text}\n"),
        StageStyle::Own => format!("{text}\n"),
    }
}

/// The error of a call in the tool's own format if it has one, otherwise as a sentence.
pub fn failure_text(style: StageStyle, failed: &HandledFailure) -> String {
    match &failed.shown {
        Some(markdown) => value::shorten_text(markdown, MAX_BODY_CHARACTERS),
        None => error_text(style, &failed.text),
    }
}

/// Text in a code fence that is longer than the longest run of backticks in it, with at least three.
pub fn fence_text(text: &str, language: &str) -> String {
    let longest = text
        .split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}\n")
}

/// JSON, indented by four spaces.
pub fn pretty_json(value: &Value) -> String {
    let mut text = Vec::new();
    let mut writer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    "));
    match value.serialize(&mut writer) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => value.to_string(),
    }
}

/// A response in the form that its type suggests: JSON, XML and HTML indented, CSV as a table, all other types in a
/// code fence.
pub fn by_type(content: &str, content_type: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let subtype = media_subtype(content_type);
    match subtype.as_str() {
        "csv" => {
            if let Some(table) = table::csv_to_markdown(content) {
                return table;
            }
        }
        "json" => {
            if let Ok(value) = serde_json::from_str::<Value>(content) {
                return fence_text(
                    // The text is cut before the fence is put around it, which must stay closed.
                    &value::shorten_text(&pretty_json(&value), MAX_BODY_CHARACTERS),
                    "json",
                );
            }
        }
        "xml" | "html" => {
            if let Some(text) = markup::pretty_markup(content, subtype == "html") {
                return fence_text(&value::shorten_text(&text, MAX_BODY_CHARACTERS), &subtype);
            }
        }
        // Content that does not match its type is shown unchanged, like content of all other types.
        _ => {}
    }
    fence_text(&value::shorten_text(content, MAX_BODY_CHARACTERS), &subtype)
}

/// The subtype in lower case, if it can be the language of a fence. `application/problem+json` is `json`.
fn media_subtype(content_type: &str) -> String {
    let essence = dray_media_type::essence(content_type);
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    let subtype = subtype.rsplit_once('+').map_or(subtype, |(_, last)| last);
    // The subtype follows a fence, which a backtick or a line feed would end.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if subtype.bytes().all(fits) {
        subtype.to_owned()
    } else {
        String::new()
    }
}

/// Each argument on a separate line.
fn argument_lines(
    rules: &CallRules,
    written: &Map<String, Value>,
    resolved: Option<&Map<String, Value>>,
) -> String {
    // ` \r`, which clients of the backend expect (quickapps 22.3).
    let mut body = "> #### Request:\n\r".to_owned();
    for (name, value) in written {
        let display = rules.parameters.get(name);
        let stage = display
            .and_then(|display| display.stage.clone())
            .unwrap_or_default();
        if stage.ignore {
            continue;
        }
        if !stage.ignore_parameter_name {
            let label = stage.name.as_deref().unwrap_or(name);
            let _ = write!(body, "***{label}:*** ");
        }
        let text = stage.replaced_value_info.unwrap_or_else(|| {
            value::plain_text(&value::shown_value(
                value,
                resolved.and_then(|resolved| resolved.get(name)),
            ))
        });
        let (prefix, suffix) = (
            stage.prefix.unwrap_or_default(),
            stage.suffix.unwrap_or_default(),
        );
        let text = format!("{prefix}{text}{suffix}");
        match stage.format {
            Some(format) => {
                body.push('\n');
                body.push_str(&fence_text(&text, &format));
            }
            None => body.push_str(&text),
        }
        body.push_str("\n\r");
    }
    body
}

/// All arguments as JSON; empty when there are no arguments.
fn arguments_json(
    rules: &CallRules,
    written: &Map<String, Value>,
    resolved: Option<&Map<String, Value>>,
) -> String {
    let mut arguments = Map::new();
    for (name, value) in written {
        let display = rules.parameters.get(name);
        let stage = display.and_then(|display| display.stage.as_ref());
        if stage.is_some_and(|stage| stage.ignore) {
            continue;
        }
        let value_shown = match stage.and_then(|stage| stage.replaced_value_info.clone()) {
            Some(info) => Value::String(info),
            None => value::shown_value(value, resolved.and_then(|resolved| resolved.get(name))),
        };
        arguments.insert(name.clone(), value_shown);
    }
    // A call without arguments has no such part (quickapps 22.3).
    if arguments.is_empty() {
        return String::new();
    }
    let text = value::shorten_text(&pretty_json(&Value::Object(arguments)), MAX_BODY_CHARACTERS);
    format!("> ##### Request:\n{}\n", fence_text(&text, "json"))
}
