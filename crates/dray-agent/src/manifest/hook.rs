//! Tools that the runtime itself calls (quickapps 43.4).

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::default_true;

/// An action at a fixed point of every turn.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Hook {
    /// A tool is called.
    Tool(ToolHook),
}

/// A call of a tool that no model requested.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct ToolHook {
    /// The point at which it is called.
    pub event: HookEvent,
    /// Name of the tool as models see it, prefixed by that of its tool set.
    pub tool: String,
    /// Arguments of the call; none if absent.
    pub arguments: Option<Map<String, Value>>,
    /// When its result is added to the conversation.
    #[serde(default)]
    pub mode: HookMode,
    /// Whether it is used; a disabled entry counts as absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
}

/// Points of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// Before the first call of the model.
    OnRequestStart,
    /// After the last answer of the model.
    OnCompletion,
}

impl HookEvent {
    /// The name in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnRequestStart => "on_request_start",
            Self::OnCompletion => "on_completion",
        }
    }
}

/// When the result of a hook is added to the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookMode {
    /// Unless it equals the newest result of the same tool with the same arguments.
    #[default]
    AppendIfChanged,
    /// Each time.
    Always,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::publish::{SCHEMA_ID, editor_schema};
    use crate::manifest::{InvalidManifest, ManifestReader, ManifestSettings, ReadManifest};

    fn settings(preview: bool) -> ManifestSettings {
        ManifestSettings {
            preview,
            default_deployment: Some("m".to_owned()),
        }
    }

    fn read(hooks: &Value) -> Result<ReadManifest<super::super::Manifest>, InvalidManifest> {
        let reader = ManifestReader::new(settings(true));
        reader
            .manifest(json!({"orchestrator": {}, "contexts": [], "tool_sets": [], "hooks": hooks}))
    }

    fn hooks(hooks: &Value) -> Vec<Hook> {
        let reading = read(hooks).unwrap();
        assert_eq!(reading.warnings, [""; 0]);
        reading.value.hooks.unwrap()
    }

    #[test]
    fn a_hook_needs_an_event_and_a_tool_and_the_rest_has_defaults() {
        let short = json!([{"type": "tool", "event": "on_request_start", "tool": "shop_stock"}]);
        let expected = ToolHook {
            event: HookEvent::OnRequestStart,
            tool: "shop_stock".to_owned(),
            arguments: None,
            mode: HookMode::AppendIfChanged,
            enabled: true,
        };
        assert_eq!(hooks(&short), [Hook::Tool(expected)]);
        let long = json!([{
            "type": "tool", "event": "on_completion", "tool": "t", "arguments": {"q": [1]}, "mode": "always",
            "enabled": false,
        }]);
        let expected = ToolHook {
            event: HookEvent::OnCompletion,
            tool: "t".to_owned(),
            arguments: json!({"q": [1]}).as_object().cloned(),
            mode: HookMode::Always,
            enabled: false,
        };
        assert_eq!(hooks(&long), [Hook::Tool(expected)]);
    }

    #[test]
    fn the_example_of_the_page_is_read() {
        let page = include_str!("../../../../docs/hooks.md");
        let (_, rest) = page.split_once("```json\n").unwrap();
        let example: Value = serde_json::from_str(rest.split_once("```").unwrap().0).unwrap();
        let reading = ManifestReader::new(settings(true))
            .manifest(example)
            .unwrap();
        assert_eq!(reading.warnings, [""; 0]);
        assert_eq!(reading.value.hooks.unwrap().len(), 1);
    }

    #[test]
    fn every_problem_is_named_at_its_place() {
        let wrong = json!([
            {"type": "script"},
            {"type": "tool", "event": "on_error", "tool": 7, "arguments": [], "mode": "once", "enabled": "no"},
            {"type": "tool"},
            {},
            null,
        ]);
        let problems = read(&wrong).unwrap_err().to_string();
        let problems: Vec<_> = problems.lines().collect();
        assert_eq!(
            problems,
            [
                "hooks.0.type: must be one of tool",
                "hooks.1.event: must be one of on_request_start, on_completion",
                "hooks.1.tool: must be a string, not a number",
                "hooks.1.arguments: must be an object or null, not a list",
                "hooks.1.mode: must be one of append_if_changed, always",
                "hooks.1.enabled: must be a boolean, not a string",
                "hooks.2.event: is required",
                "hooks.2.tool: is required",
                "hooks.3.type: must be one of tool",
                "hooks.4: must be an object, not null",
            ]
        );
    }

    #[test]
    fn the_names_of_events_are_those_of_manifests() {
        for event in [HookEvent::OnRequestStart, HookEvent::OnCompletion] {
            let read: HookEvent = serde_json::from_value(json!(event.as_str())).unwrap();
            assert_eq!(read, event);
        }
    }

    #[test]
    fn hooks_are_published_with_preview_alone_and_hidden_tools_always() {
        let schema = editor_schema(&settings(true), SCHEMA_ID);
        let hooks = &schema["properties"]["hooks"];
        assert_eq!(hooks["x-preview"], true);
        let text = schema.to_string();
        assert!(text.contains("append_if_changed") && text.contains("on_completion"));
        let text = editor_schema(&settings(false), SCHEMA_ID).to_string();
        assert!(!text.contains("append_if_changed"));
        assert!(text.contains("hidden_from_model"));
    }
}
