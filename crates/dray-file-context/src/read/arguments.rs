//! Arguments of a reading call. JSON is read leniently, then checked strictly (12.3).

use serde_json::Value;

/// Name of the tool that models are offered.
pub const READ_TOOL: &str = "read_files";

/// The tool's name in stored calls of generation G0. Accepted, never advertised.
pub const LEGACY_TOOL: &str = "file_read";

/// The kind of name by which a call identifies its files; also the key of each file in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadHandle {
    /// An id, as the reminder shows it.
    Id,
    /// A number, as in G0.
    Index,
    /// A URL, as in G6.
    Url,
}

/// A call whose arguments were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadArguments {
    /// The kind of handle that names a file.
    pub handle: ReadHandle,
    /// The names, in order, duplicates included.
    pub names: Vec<String>,
    /// Offset of the first returned character of each file.
    pub offset: usize,
    /// Most characters of each file; absent means as many as the budget allows.
    pub limit: Option<usize>,
    /// A part of each document in its own terms (`pages 3-5`); for the reader.
    pub range: Option<String>,
}

/// The sentence that is the tool's result when a call cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidArguments(String);

/// The result of calling a tool that does not exist.
fn unknown_tool(name: &str) -> String {
    format!("Can't find the tool {name}")
}

impl ReadArguments {
    /// Reads the text that a model wrote.
    pub fn parse(tool: &str, text: &str) -> Result<Self, InvalidArguments> {
        let value = parse_lenient_json(text)
            .ok_or_else(|| InvalidArguments("Params is not object".to_owned()))?;
        Self::read(tool, &value)
    }

    /// Reads JSON. A string is parsed as JSON that was encoded twice.
    pub fn read(tool: &str, value: &Value) -> Result<Self, InvalidArguments> {
        if !matches!(tool, READ_TOOL | LEGACY_TOOL) {
            return Err(InvalidArguments(unknown_tool(tool)));
        }
        if let Value::String(text) = value {
            // Only an object is read again, so that the recursion ends here.
            return match parse_lenient_json(text).filter(Value::is_object) {
                Some(value) => Self::read(tool, &value),
                None => Err(InvalidArguments("Params is not object".to_owned())),
            };
        }
        let Value::Object(fields) = value else {
            return Err(InvalidArguments("Params is not object".to_owned()));
        };
        let (handle, field) = match tool {
            LEGACY_TOOL => (ReadHandle::Index, "file_indexes"),
            // A call in a conversation that was stored under G6.
            _ if !fields.contains_key("ids") && fields.contains_key("urls") => {
                (ReadHandle::Url, "urls")
            }
            _ => (ReadHandle::Id, "ids"),
        };
        let names = string_list(fields.get(field))
            .ok_or_else(|| InvalidArguments(format!("{field}: expected an array of strings")))?;
        let count = |name: &str| count_argument(fields.get(name), name);
        let limit = count("limit")?;
        if limit == Some(0) {
            return Err(InvalidArguments(
                "limit: expected a number of at least 1".to_owned(),
            ));
        }
        let range = match fields.get("range") {
            None | Some(Value::Null) => None,
            Some(Value::String(range)) => {
                Some(range.trim().to_owned()).filter(|range| !range.is_empty())
            }
            Some(_) => return Err(InvalidArguments("range: expected a string".to_owned())),
        };
        Ok(Self {
            handle,
            names,
            offset: count("offset")?.unwrap_or(0),
            limit,
            range,
        })
    }
}

fn string_list(value: Option<&Value>) -> Option<Vec<String>> {
    let names = value?.as_array()?.iter();
    names.map(|name| name.as_str().map(str::to_owned)).collect()
}

fn count_argument(value: Option<&Value>, name: &str) -> Result<Option<usize>, InvalidArguments> {
    let refused = || InvalidArguments(format!("{name}: expected a whole number of at least 0"));
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let number = value.as_u64().ok_or_else(refused)?;
            usize::try_from(number).map(Some).map_err(|_| refused())
        }
    }
}

/// JSON as models write it: inside a fence, inside prose, with commas before closing brackets.
pub(crate) fn parse_lenient_json(text: &str) -> Option<Value> {
    let text = text.trim().trim_start_matches('\u{feff}');
    if text.is_empty() {
        return None;
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    // The text from the first bracket to the last one counts: models wrap JSON in prose or a fence.
    let from = text.find(['{', '['])?;
    let to = text.rfind(['}', ']'])?;
    let inner = text.get(from..=to)?;
    serde_json::from_str(inner)
        .ok()
        .or_else(|| serde_json::from_str(&without_trailing_commas(inner)).ok())
}

/// Removes trailing commas.
fn without_trailing_commas(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for (index, character) in text.char_indices() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
        } else if character == '"' {
            in_string = true;
        } else if character == ',' {
            let after = text.get(index + 1..).unwrap_or_default().trim_start();
            if after.starts_with(['}', ']']) {
                continue;
            }
        }
        cleaned.push(character);
    }
    cleaned
}
