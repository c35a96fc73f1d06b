//! The arguments of the tools, checked before anything happens.

use dray_presentation::name::shown_text;
use dray_types::Fault;
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure;
use crate::options::ToolName;

/// Most characters of the beginning, and of the end, of the description of a problem. It quotes the argument, which may
/// be megabytes long, and names at its end what was expected.
const MAX_QUOTED_CHARACTERS: usize = 200;

/// The arguments of the tool `read`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadArguments {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) range: String,
    #[serde(default)]
    pub(crate) find: String,
    #[serde(default)]
    pub(crate) focus: String,
    #[serde(default)]
    pub(crate) summarize: bool,
    #[serde(default)]
    pub(crate) member: String,
    #[serde(default)]
    pub(crate) max_tokens: Option<u64>,
}

/// The arguments of the tool `fetch`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FetchArguments {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) max_bytes: u64,
}

/// The arguments of the tool `list`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListArguments {
    #[serde(default = "current_directory")]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) offset: u32,
    #[serde(default)]
    pub(crate) limit: Option<u32>,
}

fn current_directory() -> String {
    ".".to_owned()
}

/// The arguments of the tool `get`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetArguments {
    pub(crate) from: String,
    #[serde(default)]
    pub(crate) to: Option<String>,
}

/// The arguments of the tool `put`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutArguments {
    pub(crate) from: String,
    #[serde(default)]
    pub(crate) directory: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) collision: Collision,
}

/// How `put` treats a name that is taken. It never replaces a file.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Collision {
    #[default]
    Rename,
    Fail,
}

impl Collision {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Rename => "rename",
            Self::Fail => "fail",
        }
    }
}

/// Arguments of `send_file`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendArguments {
    pub(crate) files: Vec<String>,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) as_document: bool,
    #[serde(default)]
    pub(crate) delivery_id: Option<String>,
    #[serde(default)]
    pub(crate) wait_seconds: Option<u64>,
}

/// The arguments of the tool `receipts`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiptsArguments {
    #[serde(default)]
    pub(crate) delivery_id: Option<String>,
    #[serde(default)]
    pub(crate) open_only: bool,
    #[serde(default)]
    pub(crate) limit: Option<u32>,
}

/// Arguments of `resolve_file_arguments`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveArguments {
    pub(crate) arguments: JsonObject,
    #[serde(default)]
    pub(crate) nested: bool,
}

/// Arguments of `policy_check`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyArguments {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) allow: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) resolve: bool,
}

/// Reads the arguments of a call. One that is null counts as absent: some clients send every argument of the schema.
///
/// # Errors
///
/// A missing, unknown or mistyped argument, with the words that name it.
pub(crate) fn parse<T: DeserializeOwned>(
    tool: ToolName,
    arguments: Option<JsonObject>,
) -> Result<T, Fault> {
    let mut arguments = arguments.unwrap_or_default();
    arguments.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        failure::invalid(
            format!(
                "The arguments of `{tool}` are not valid: {}.",
                invalid_reason(error)
            ),
            "Correct the argument; the input schema of the tool lists them.",
        )
        .detail("arguments_invalid")
    })
}

/// The reason why a value does not fit, with the path of the invalid part. A long text is shortened.
pub(crate) fn invalid_reason(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let reason = plain_reason(&error.into_inner().to_string());
    // The path of a missing or unknown member is that of the whole value.
    if path == "." || !reason.starts_with("invalid ") {
        return shorten(&reason);
    }
    let path = shown_text(&path, MAX_QUOTED_CHARACTERS);
    shorten(&format!("`{path}` has an {reason}"))
}

/// The reason of the parser, with the words of JSON for the types that it expected.
fn plain_reason(reason: &str) -> String {
    let Some((found, expected)) = reason.rsplit_once(", expected ") else {
        return reason.to_owned();
    };
    let expected = match expected {
        "u32" | "u64" => "an integer that is not negative",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// The beginning and the end of a long text.
fn shorten(text: &str) -> String {
    let count = text.chars().count();
    if count <= 2 * MAX_QUOTED_CHARACTERS {
        return shown_text(text, count);
    }
    let end: String = text.chars().skip(count - MAX_QUOTED_CHARACTERS).collect();
    let begin = shown_text(text, MAX_QUOTED_CHARACTERS);
    format!("{begin}{}", shown_text(end, MAX_QUOTED_CHARACTERS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invalid_argument_is_named() {
        let read = |value: Value| {
            let arguments = value.as_object().cloned();
            parse::<ReadArguments>(ToolName::Read, arguments).map(|read| read.path)
        };
        assert_eq!(read(json!({"path": "a"})), Ok("a".to_owned()));
        assert_eq!(
            read(json!({"path": "a", "range": null, "summarize": null})),
            Ok("a".to_owned())
        );
        for (arguments, word) in [
            (json!({}), "path"),
            (json!({"path": null}), "path"),
            (
                json!({"path": 1}),
                "`path` has an invalid type: integer `1`, expected a string.",
            ),
            (
                json!({"path": "a", "max_tokens": "many"}),
                "`max_tokens` has an invalid type: string \"many\", expected an integer that is not negative.",
            ),
            (
                json!({"path": "a", "max_tokens": -5}),
                "`max_tokens` has an invalid value: integer `-5`, expected an integer",
            ),
            (json!({"path": "a", "pth": "b"}), "pth"),
            (json!({"path": "a", "session": "other"}), "session"),
            (json!({"path": "a", "tenant": "other"}), "tenant"),
        ] {
            let fault = read(arguments).unwrap_err();
            assert!(fault.message.contains(word), "{fault:?}");
        }
    }

    #[test]
    fn an_invalid_entry_of_a_list_is_named() {
        let send = |files: Value| {
            let arguments = json!({"files": files}).as_object().cloned();
            parse::<SendArguments>(ToolName::SendFile, arguments).unwrap_err()
        };
        for (files, words) in [
            (
                json!(["a", 1]),
                "`files[1]` has an invalid type: integer `1`, expected a string.",
            ),
            (
                json!("a"),
                "`files` has an invalid type: string \"a\", expected a list.",
            ),
        ] {
            let fault = send(files);
            assert!(fault.message.ends_with(words), "{fault:?}");
        }
    }

    #[test]
    fn an_invalid_argument_of_any_length_is_quoted_in_part() {
        let long = "x".repeat(100_000);
        for (arguments, word) in [
            (json!({"path": "a", "summarize": long}), "boolean"),
            (json!({"path": "a", (long.as_str()): 1}), "max_tokens"),
        ] {
            let arguments = arguments.as_object().cloned();
            let fault = parse::<ReadArguments>(ToolName::Read, arguments).unwrap_err();
            assert!(fault.message.len() < 600, "{}", fault.message.len());
            assert!(fault.message.contains(word), "{fault:?}");
        }
    }
}
