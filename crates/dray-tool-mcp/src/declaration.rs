//! Limits for the tools of a server in the model's context: names, descriptions and schemas are bounded, and text for
//! the model has no invisible characters. Each bound that is reached becomes an issue for the builder.

use dray_tool::SetupIssue;
use dray_tool::stage::value::shorten_text;
use dray_types::terminal::printable_text;
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

/// Most tools of one server. Services of models permit fewer for a request.
pub(crate) const MAX_TOOLS: usize = 512;

/// Most characters of a tool's name (MCP 2025-11-25).
const MAX_NAME_CHARACTERS: usize = 128;

/// Most characters of a description; a longer one is cut.
pub(crate) const MAX_DESCRIPTION_CHARACTERS: usize = 8_000;

/// Most bytes of JSON of the schema of one tool's arguments. A longer schema cannot be cut, so its tool is left out.
pub(crate) const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// Most bytes of the descriptions and arguments of all tools of one server.
const MAX_DECLARATION_BYTES: usize = 512 << 10;

/// Most names in one issue.
const MAX_NAMES: usize = 3;

/// Members of a JSON schema whose text is for the reader.
const SCHEMA_TEXTS: [&str; 2] = ["description", "title"];

/// Members of a JSON schema that hold values and not schemas.
const SCHEMA_VALUES: [&str; 4] = ["const", "default", "enum", "examples"];

/// A tool as the model gets it.
#[derive(Clone, Debug)]
pub(crate) struct ModelDeclaration {
    /// The name at the server, for messages.
    pub(crate) shown_name: String,
    pub(crate) description: Option<String>,
    pub(crate) parameters: Value,
}

/// Why a tool is left out or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeclarationIssue {
    NoObject,
    LongName,
    LongDescription,
    LongSchema,
    TooMuch,
}

impl DeclarationIssue {
    const ALL: [Self; 5] = [
        Self::NoObject,
        Self::LongName,
        Self::LongDescription,
        Self::LongSchema,
        Self::TooMuch,
    ];

    /// The message about these tools.
    fn message(self, label: &str, tools: &str) -> String {
        let remark = match self {
            Self::NoObject => {
                return format!(
                    "MCP error for {label}: the arguments of {tools} are not an object"
                );
            }
            Self::LongName => {
                format!("left out, because a name has at most {MAX_NAME_CHARACTERS} characters")
            }
            Self::LongDescription => {
                format!(
                    "cut, because a description has at most {MAX_DESCRIPTION_CHARACTERS} characters"
                )
            }
            Self::LongSchema => {
                format!(
                    "left out, because the arguments of a tool have at most {MAX_SCHEMA_BYTES} bytes of schema"
                )
            }
            Self::TooMuch => format!(
                "left out, because a server has at most {MAX_TOOLS} tools with {MAX_DECLARATION_BYTES} bytes of \
                 descriptions and schemas"
            ),
        };
        format!("MCP error for {label}: {tools}: {remark}")
    }
}

/// The space that the tools of one server have left.
#[derive(Debug)]
pub(crate) struct DeclarationBudget {
    tools_left: usize,
    bytes_left: usize,
    /// The names of the first tools of each remark, and the number of all.
    remarks: Vec<(DeclarationIssue, Vec<String>, usize)>,
}

impl DeclarationBudget {
    pub(crate) fn new() -> Self {
        Self {
            tools_left: MAX_TOOLS,
            bytes_left: MAX_DECLARATION_BYTES,
            remarks: Vec::new(),
        }
    }

    /// The tool for the model; `None` if it is left out.
    pub(crate) fn declare(&mut self, tool: &Tool) -> Option<ModelDeclaration> {
        let shown_name = shorten_text(&printable_text(&tool.name), MAX_NAME_CHARACTERS);
        match self.bounded(tool, &shown_name) {
            Ok((description, parameters)) => Some(ModelDeclaration {
                shown_name,
                description,
                parameters,
            }),
            Err(remark) => {
                self.note(remark, shown_name);
                None
            }
        }
    }

    fn bounded(
        &mut self,
        tool: &Tool,
        shown_name: &str,
    ) -> Result<(Option<String>, Value), DeclarationIssue> {
        if tool.name.chars().nth(MAX_NAME_CHARACTERS).is_some() {
            return Err(DeclarationIssue::LongName);
        }
        let parameters = tool_parameters(&tool.input_schema).ok_or(DeclarationIssue::NoObject)?;
        let schema_bytes = parameters.to_string().len();
        if schema_bytes > MAX_SCHEMA_BYTES {
            return Err(DeclarationIssue::LongSchema);
        }
        let full = tool.description.as_deref().map(printable_text);
        let description = full
            .as_deref()
            .map(|text| shorten_text(text, MAX_DESCRIPTION_CHARACTERS));
        let description_bytes = description.as_ref().map_or(0, String::len);
        let bytes_left = self
            .bytes_left
            .checked_sub(schema_bytes + description_bytes);
        let (Some(bytes_left), Some(tools_left)) = (bytes_left, self.tools_left.checked_sub(1))
        else {
            return Err(DeclarationIssue::TooMuch);
        };
        if full.as_deref() != description.as_deref() {
            self.note(DeclarationIssue::LongDescription, shown_name.to_owned());
        }
        (self.bytes_left, self.tools_left) = (bytes_left, tools_left);
        Ok((description, parameters))
    }

    fn note(&mut self, remark: DeclarationIssue, tool: String) {
        let known = self.remarks.iter_mut().find(|(known, ..)| *known == remark);
        match known {
            Some((_, names, count)) => {
                *count += 1;
                if names.len() < MAX_NAMES {
                    names.push(tool);
                }
            }
            None => self.remarks.push((remark, vec![tool], 1)),
        }
    }

    /// An issue for each bound that was reached; each is logged, too.
    pub(crate) fn issues(&self, label: &str) -> Vec<SetupIssue> {
        let in_order = DeclarationIssue::ALL.into_iter().filter_map(|remark| {
            let mut remarks = self.remarks.iter();
            remarks.find(|(known, ..)| *known == remark)
        });
        in_order
            .map(|(remark, names, count)| {
                let message = remark.message(label, &listed_tools(names, *count));
                tracing::warn!(
                    toolset = label,
                    message,
                    "tools of an MCP server are bounded"
                );
                SetupIssue::of_set(label, message)
            })
            .collect()
    }
}

/// The tools of a message: some names, and the number of the others.
fn listed_tools(names: &[String], count: usize) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    let quoted = quoted.join(", ");
    match count.saturating_sub(names.len()) {
        0 if count == 1 => format!("the tool {quoted}"),
        0 => format!("the tools {quoted}"),
        others => format!("the tools {quoted} and {others} more"),
    }
}

/// The schema of the server, with the type `object` if it names no type. `None` if the type is another one,
/// which MCP does not permit: model services refuse a whole request with such a tool.
fn tool_parameters(schema: &JsonObject) -> Option<Value> {
    let mut schema = schema.clone();
    let kind = schema
        .entry("type")
        .or_insert_with(|| Value::String("object".to_owned()));
    if kind != "object" {
        return None;
    }
    let mut schema = Value::Object(schema);
    clean_schema(&mut schema);
    Some(schema)
}

/// Removes invisible characters from the texts of a JSON schema. Values and the names of properties are not changed,
/// because the server compares them.
pub(crate) fn clean_schema(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(clean_schema),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if SCHEMA_TEXTS.contains(&name.as_str()) => {
                        *text = printable_text(text).into_owned();
                    }
                    // A property may have one of these names; it is an object.
                    Value::Object(_) if name == "properties" => clean_properties(member),
                    _ if SCHEMA_VALUES.contains(&name.as_str()) => {}
                    _ => clean_schema(member),
                }
            }
        }
        _ => {}
    }
}

fn clean_properties(properties: &mut Value) {
    let properties = properties.as_object_mut().into_iter().flatten();
    for (_, property) in properties {
        clean_schema(property);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_a_schema_are_cleaned_and_values_and_names_stay() {
        let hidden = "a\u{202e}b\u{1b}[31m";
        let mut schema = json!({
            "type": "object", "title": hidden, "description": hidden,
            "properties": {
                hidden: {"type": "string", "description": hidden, "enum": [hidden], "const": hidden},
                "title": {"type": "string", "title": hidden, "default": {"title": hidden}},
                "default": {"anyOf": [{"title": hidden}]},
            },
            "$defs": {"x": {"items": {"description": hidden}}},
        });
        clean_schema(&mut schema);
        let expected = json!({
            "type": "object", "title": "ab", "description": "ab",
            "properties": {
                hidden: {"type": "string", "description": "ab", "enum": [hidden], "const": hidden},
                "title": {"type": "string", "title": "ab", "default": {"title": hidden}},
                "default": {"anyOf": [{"title": "ab"}]},
            },
            "$defs": {"x": {"items": {"description": "ab"}}},
        });
        assert_eq!(schema, expected);
    }

    #[test]
    fn an_issue_names_three_tools_and_the_number_of_the_others() {
        let names = |count: usize| (0..count).map(|n| format!("t{n}")).collect::<Vec<_>>();
        assert_eq!(listed_tools(&names(1), 1), "the tool 't0'");
        assert_eq!(listed_tools(&names(2), 2), "the tools 't0', 't1'");
        assert_eq!(
            listed_tools(&names(3), 9),
            "the tools 't0', 't1', 't2' and 6 more"
        );
    }
}
