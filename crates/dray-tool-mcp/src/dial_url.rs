//! Arguments that take files of DIAL (quickapps 27.5): the tool set gets the permission to read them, for this request.

use std::sync::Arc;

use dray_agent::json_pointer::escape_segment;
use dray_tool::{FileStorage, HandledFailure, ToolFailure, UrlClass};
use dray_types::RedactedUrl;
use serde_json::{Map, Value};

use crate::server::KnownToolset;

/// Prefix of a reference to a file by its URL. The pipeline removes it from top-level arguments only.
const FILE_URL_PREFIX: &str = "file:url::";

/// Most references and alternatives of a schema that are followed for one value, one after the other.
const MAX_SCHEMA_HOPS: usize = 64;
/// Most parts of a schema that are examined for one call. The schema comes from the server: alternatives that refer to
/// the whole schema would otherwise multiply at each hop, and no timeout ends this search, because it never waits.
const MAX_SCHEMA_VISITS: usize = 10_000;

/// The arguments of a tool that its schema marks with `"dial_url": true`: a text or a list of texts.
pub(crate) fn dial_url_parameters(schema: &Map<String, Value>) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .filter(|(_, property)| property.get("dial_url") == Some(&Value::Bool(true)))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Checks the files, grants access to all of them with one call, and leaves their bare URLs in the arguments.
pub(crate) async fn grant_files(
    schema: &Value,
    arguments: &mut Map<String, Value>,
    known: Option<&KnownToolset>,
    caller: &dray_agent::caller::Caller,
    storage: &Arc<dyn FileStorage>,
) -> Result<(), ToolFailure> {
    let mut urls = Vec::new();
    // The arguments are moved out and back, because JSON pointers need a single `Value`.
    let mut all_arguments = Value::Object(std::mem::take(arguments));
    for (pointer, name) in file_positions(schema, &all_arguments)? {
        let Some(Value::String(text)) = all_arguments.pointer_mut(&pointer) else {
            continue;
        };
        let url = text.strip_prefix(FILE_URL_PREFIX).unwrap_or(text);
        check_file_url(&name, url, storage.as_ref())?;
        let Some(known) = known else {
            return Err(ToolFailure::parameter(
                "file_url",
                "Files cannot be shared because dial_toolset_id is not configured.",
            ));
        };
        let Some(bare) = known.dial.origin().file(url) else {
            return Err(unsupported_url_failure(&name, url));
        };
        // One grant for all files, each named once (quickapps 27.5).
        bare.as_str().clone_into(text);
        if !urls.contains(&bare) {
            urls.push(bare);
        }
    }
    if let Value::Object(all_arguments) = all_arguments {
        *arguments = all_arguments;
    }
    let Some(known) = known.filter(|_| !urls.is_empty()) else {
        return Ok(());
    };
    let granted = known.dial.grant(caller, &urls, &known.id).await;
    granted.map_err(|refused| {
        let failure = match refused.status {
            Some(status) => HandledFailure::new(format!(
                "The files cannot be shared with the tool: DIAL answered {status}."
            ))
            .status(status),
            None => HandledFailure::new(
                "The files cannot be shared with the tool: DIAL cannot be asked.",
            ),
        };
        failure.because(refused).into()
    })
}

/// The positions of texts that accept files, at any depth: JSON pointers in the order of the arguments, and the
/// parameter names that the model knows, such as `document.file`.
///
/// # Errors
///
/// The schema has too many parts to examine. A file in an argument that is not found would not be shared.
fn file_positions(schema: &Value, arguments: &Value) -> Result<Vec<(String, String)>, ToolFailure> {
    let mut search = UrlSearch {
        root: schema,
        found: Vec::new(),
        visits_left: MAX_SCHEMA_VISITS,
    };
    search.visit(schema, arguments, "", "", MAX_SCHEMA_HOPS);
    if search.visits_left == 0 {
        let message =
            "The schema of the tool is too complex to find the files among its arguments.";
        return Err(HandledFailure::new(message).into());
    }
    Ok(search.found)
}

struct UrlSearch<'a> {
    root: &'a Value,
    found: Vec<(String, String)>,
    visits_left: usize,
}

impl<'a> UrlSearch<'a> {
    /// Examines one value with the part of the schema that describes it. It descends with the value, so a schema that
    /// refers to itself ends where the value does; `hops` limits what is followed without descending.
    fn visit(&mut self, schema: &'a Value, value: &Value, pointer: &str, name: &str, hops: usize) {
        self.visits_left = self.visits_left.saturating_sub(1);
        let Some(hops_left) = hops.checked_sub(1).filter(|_| self.visits_left > 0) else {
            return;
        };
        let reference = schema.get("$ref").and_then(Value::as_str);
        let root = self.root;
        let target = reference.and_then(|target| root.pointer(target.strip_prefix('#')?));
        if let Some(target) = target {
            self.visit(target, value, pointer, name, hops_left);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let choices = schema.get(key).and_then(Value::as_array);
            for choice in choices.into_iter().flatten() {
                self.visit(choice, value, pointer, name, hops_left);
            }
        }
        let takes_file = schema.get("dial_url") == Some(&Value::Bool(true));
        match value {
            Value::String(_) if takes_file => self.add(pointer.to_owned(), name),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let pointer = format!("{pointer}/{index}");
                    if takes_file && item.is_string() {
                        self.add(pointer, name);
                    } else if let Some(schema) = schema.get("items") {
                        self.visit(schema, item, &pointer, name, MAX_SCHEMA_HOPS);
                    }
                }
            }
            Value::Object(members) => {
                let properties = schema.get("properties").and_then(Value::as_object);
                for (key, schema) in properties.into_iter().flatten() {
                    let Some(member) = members.get(key) else {
                        continue;
                    };
                    let segment = escape_segment(key);
                    let name = match name {
                        "" => key.clone(),
                        _ => format!("{name}.{key}"),
                    };
                    self.visit(
                        schema,
                        member,
                        &format!("{pointer}/{segment}"),
                        &name,
                        MAX_SCHEMA_HOPS,
                    );
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, pointer: String, name: &str) {
        // Several alternatives of a schema can describe the same value.
        if !self.found.iter().any(|(known, _)| *known == pointer) {
            self.found.push((pointer, name.to_owned()));
        }
    }
}

fn unsupported_url_failure(name: &str, url: &str) -> ToolFailure {
    let shown = RedactedUrl::from_text(url);
    ToolFailure::parameter(
        name,
        format!(
            "Parameter `{name}` requires a DIAL file but received an unsupported URL: {}.",
            shown.as_str()
        ),
    )
}

fn check_file_url(name: &str, url: &str, storage: &dyn FileStorage) -> Result<(), ToolFailure> {
    let shown = RedactedUrl::from_text(url);
    let shown = shown.as_str();
    match storage.classify(url) {
        UrlClass::Dial => Ok(()),
        UrlClass::External => Err(ToolFailure::parameter(
            name,
            format!(
                "Parameter `{name}` requires a DIAL file but received an external URL: {shown}. Pass the content of \
                 the file to a parameter that takes content instead, with `file:base64::{shown}` or \
                 `file:text::{shown}`."
            ),
        )),
        UrlClass::Data | UrlClass::Unsupported => Err(unsupported_url_failure(name, url)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_found_through_references_and_alternatives() {
        let schema = json!({
            "properties": {"file": {"anyOf": [{"$ref": "#/$defs/file"}, {"type": "null"}]}},
            "$defs": {"file": {"type": "string", "dial_url": true}},
        });
        let found = file_positions(&schema, &json!({"file": "files/B/a"})).unwrap();
        assert_eq!(found, [("/file".to_owned(), "file".to_owned())]);
    }

    #[test]
    fn a_schema_that_multiplies_itself_is_refused() {
        let schema = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]});
        let refused = file_positions(&schema, &json!({"file": "files/B/a"})).unwrap_err();
        let ToolFailure::Failed(refused) = refused else {
            panic!("{refused:?}");
        };
        assert!(refused.to_string().contains("schema"), "{refused}");
    }
}
