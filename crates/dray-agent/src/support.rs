//! Responses for editors of manifests: entries of the layers, with the templates that they name resolved (quickapps
//! 38).

use serde_json::{Map, Value, json};

use crate::layer::{EntryKind, LayerSet, apply_patch};

/// Replaces the secrets of an operator's template: editors show templates to all users.
const HIDDEN_SECRET: &str = "********";

/// Deepest chain of templates that is followed.
const MAX_TEMPLATE_DEPTH: usize = 8;

/// Names of prompts and their intended models, in order.
pub fn system_prompts<'a>(
    mapping: impl IntoIterator<Item = (&'a String, &'a Vec<String>)>,
) -> Value {
    let entries = mapping.into_iter();
    entries
        .map(|(prompt, models)| json!({ "prompt": prompt, "allowed_models": models }))
        .collect()
}

/// The response for an unknown name; status 404.
pub fn not_found(kind: EntryKind, name: &str) -> Value {
    let kind = match kind {
        EntryKind::Prompt => "Prompt",
        EntryKind::Tool => "Tool",
        EntryKind::ToolSet => "Toolset",
        EntryKind::Skill => "Skill",
    };
    json!({ "detail": format!("{kind} '{name}' not found.") })
}

/// The body of a tool or tool set. Templates of its tools are resolved; those that cannot be resolved are not changed.
/// Credentials are hidden.
pub fn template_body(layers: &LayerSet, kind: EntryKind, name: &str) -> Option<Value> {
    let mut body = layers.body(kind, name)?.clone();
    if let Some(tools) = body.get_mut("tools").and_then(Value::as_array_mut) {
        for tool in tools {
            resolve_tool_template(layers, tool);
        }
    }
    // This comes after the templates were resolved, because they may contain credentials.
    hide_credentials(&mut body);
    Some(body)
}

fn resolve_tool_template(layers: &LayerSet, tool: &mut Value) {
    // The depth is bounded, since a template may name itself.
    for _ in 0..MAX_TEMPLATE_DEPTH {
        let Some(read) = tool_template(layers, tool) else {
            return;
        };
        *tool = read;
    }
}

fn tool_template(layers: &LayerSet, tool: &Value) -> Option<Value> {
    if tool.get("type")? != "predefined-tool" {
        return None;
    }
    let body = layers.body(EntryKind::Tool, tool.get("template_name")?.as_str()?)?;
    match tool.get("override").and_then(Value::as_object) {
        Some(patch) => apply_patch(body, patch).ok(),
        None => Some(body.clone()),
    }
}

fn hide_credentials(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member.as_object_mut() {
                    Some(authorization) if key == "authorization" => hide_secrets(authorization),
                    _ => hide_credentials(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_credentials),
        _ => {}
    }
}

fn hide_secrets(authorization: &mut Map<String, Value>) {
    for key in ["password", "token", "client_secret", "key"] {
        if let Some(secret) = authorization.get_mut(key) {
            *secret = json!(HIDDEN_SECRET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> LayerSet {
        let mut layers = LayerSet::default();
        for (path, content) in [
            (
                "tool/base.json",
                r#"{"type": "restapi-tool", "a": 1, "b": 2}"#,
            ),
            (
                "tool/loop.json",
                r#"{"type": "predefined-tool", "template_name": "loop"}"#,
            ),
            (
                "toolset/set.json",
                r#"{"type": "rest-api", "authorization": {"type": "api_key", "key": "hunter2", "name": "k"}, "tools": [
                    {"type": "predefined-tool", "template_name": "base", "override": {"b": null, "c": 3}},
                    {"type": "predefined-tool", "template_name": "none"},
                    {"type": "predefined-tool", "template_name": "loop"},
                    {"type": "predefined-tool", "template_name": "base", "override": {"type": "x"}}
                ]}"#,
            ),
        ] {
            layers.add(path, content).unwrap();
        }
        layers
    }

    #[test]
    fn templates_in_a_tool_set_are_replaced_in_place() {
        let body = template_body(&layers(), EntryKind::ToolSet, "set").unwrap();
        assert_eq!(
            body["tools"][0],
            json!({"type": "restapi-tool", "a": 1, "c": 3})
        );
        for (tool, name) in [(1, "none"), (2, "loop"), (3, "base")] {
            assert_eq!(body["tools"][tool]["template_name"], name);
        }
    }

    #[test]
    fn credentials_of_templates_are_hidden() {
        let body = template_body(&layers(), EntryKind::ToolSet, "set").unwrap();
        assert_eq!(
            body["authorization"],
            json!({"type": "api_key", "key": "********", "name": "k"})
        );
        assert!(!body.to_string().contains("hunter2"));
    }

    #[test]
    fn unknown_names_are_reported_with_their_kind() {
        assert_eq!(template_body(&layers(), EntryKind::Tool, "none"), None);
        assert_eq!(
            not_found(EntryKind::ToolSet, "x"),
            json!({"detail": "Toolset 'x' not found."})
        );
        assert_eq!(
            not_found(EntryKind::Prompt, "x"),
            json!({"detail": "Prompt 'x' not found."})
        );
    }

    #[test]
    fn prompts_are_listed_with_their_models() {
        let mapping = [("gpt_prompt".to_owned(), vec!["gpt-4o".to_owned()])];
        let mapping = mapping.iter().map(|(prompt, models)| (prompt, models));
        assert_eq!(
            system_prompts(mapping),
            json!([{"prompt": "gpt_prompt", "allowed_models": ["gpt-4o"]}])
        );
    }
}
