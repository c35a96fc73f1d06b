//! Guardrails: tools that judge what the model and the tools of an agent get and give.

use schemars::JsonSchema;
use serde::Deserialize;

use super::default_true;
use crate::approval::matches_pattern;

/// A tool whose verdict decides whether a turn continues unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
// Unlike elsewhere in a manifest, unknown keys are refused: an entry with a misspelled key would judge something else,
// or nothing.
#[serde(deny_unknown_fields)]
// `tools` belongs to two of the events, for which JSON Schema checks here have no keyword.
#[schemars(extend("x-rule" = "guardrail"))]
pub struct Guardrail {
    /// The point at which it judges.
    pub event: GuardrailEvent,
    /// Name of the tool that judges, as models see it, prefixed by that of its tool set.
    pub tool: String,
    /// Patterns of the names of the tools that are judged, in which `*` stands for any text; all tools if absent. Only
    /// for `before_tool` and `after_tool`.
    pub tools: Option<Vec<String>>,
    /// What happens when the tool gives no verdict.
    #[serde(default)]
    pub on_failure: FailureVerdict,
    /// Text for the user or the model in place of what is blocked.
    pub message: Option<String>,
    /// Whether it is used; a disabled entry counts as absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
}

impl Guardrail {
    /// Whether it judges at this point, and this tool if the point is about one.
    pub fn judges(&self, event: GuardrailEvent, tool: Option<&str>) -> bool {
        let names_tool = match (&self.tools, tool) {
            (Some(patterns), Some(tool)) => patterns
                .iter()
                .any(|pattern| matches_pattern(pattern, tool)),
            (_, None) | (None, _) => true,
        };
        self.event == event && names_tool
    }
}

/// Points of a turn at which guardrails judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuardrailEvent {
    /// Before each call of the model.
    BeforeModel,
    /// After each answer of the model, before anyone sees it.
    AfterModel,
    /// Before each call of a tool that the model requests.
    BeforeTool,
    /// After each call of a tool, before the model sees its result.
    AfterTool,
}

impl GuardrailEvent {
    /// The name in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeModel => "before_model",
            Self::AfterModel => "after_model",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
        }
    }
}

/// The verdict in place of one that a guardrail does not give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureVerdict {
    /// As if it had blocked.
    #[default]
    Block,
    /// As if it had allowed.
    Allow,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::manifest::publish::{SCHEMA_ID, editor_schema};
    use crate::manifest::{InvalidManifest, ManifestReader, ManifestSettings};

    fn settings() -> ManifestSettings {
        ManifestSettings {
            preview: false,
            default_deployment: Some("m".to_owned()),
        }
    }

    fn read(guardrails: &Value) -> Result<Vec<Guardrail>, InvalidManifest> {
        let document = json!({
            "orchestrator": {}, "contexts": [], "tool_sets": [], "guardrails": guardrails,
        });
        let reading = ManifestReader::new(settings()).manifest(document)?;
        assert_eq!(reading.warnings, [""; 0]);
        Ok(reading.value.guardrails.unwrap())
    }

    #[test]
    fn a_guardrail_blocks_on_failure_and_judges_all_tools_by_default() {
        let read = read(&json!([
            {"event": "after_tool", "tool": "check_it"},
            {"event": "before_tool", "tool": "check_it", "tools": ["shop_*"], "on_failure": "allow",
                "message": "No.", "enabled": false},
        ]));
        let [short, long] = &read.unwrap()[..] else {
            panic!("there must be two guardrails");
        };
        assert_eq!(
            (short.on_failure, short.enabled),
            (FailureVerdict::Block, true)
        );
        assert!(short.judges(GuardrailEvent::AfterTool, Some("any")));
        assert!(!short.judges(GuardrailEvent::BeforeTool, Some("any")));
        assert_eq!(
            (long.on_failure, long.enabled),
            (FailureVerdict::Allow, false)
        );
        assert!(long.judges(GuardrailEvent::BeforeTool, Some("shop_order")));
        assert!(!long.judges(GuardrailEvent::BeforeTool, Some("bank_pay")));
        assert_eq!(long.message.as_deref(), Some("No."));
    }

    #[test]
    fn every_mistake_is_a_problem_since_a_check_that_is_ignored_checks_nothing() {
        let wrong = json!([
            {"event": "before_everything", "tool": 7, "on_failure": "ask"},
            {"event": "before_model", "tool": "t", "tools": ["shop_*"]},
            {"event": "before_tool", "tool": "t", "tools": []},
            {"event": "after_model", "tool": "t", "on_fail": "allow"},
            {},
            null,
        ]);
        let problems = read(&wrong).unwrap_err().to_string();
        assert_eq!(
            problems.lines().collect::<Vec<_>>(),
            [
                "guardrails.0.event: must be one of before_model, after_model, before_tool, after_tool",
                "guardrails.0.tool: must be a string, not a number",
                "guardrails.0.on_failure: must be one of block, allow",
                "guardrails.1.tools: is only for before_tool and after_tool",
                "guardrails.2.tools: must name tools, or be left out for all tools",
                "guardrails.3.on_fail: is not a known key",
                "guardrails.4.event: is required",
                "guardrails.4.tool: is required",
                "guardrails.5: must be an object, not null",
            ]
        );
    }

    #[test]
    fn the_example_of_the_page_is_read() {
        let page = include_str!("../../../../docs/guardrails.md");
        let (_, rest) = page.split_once("```json\n").unwrap();
        let example: Value = serde_json::from_str(rest.split_once("```").unwrap().0).unwrap();
        let reading = ManifestReader::new(settings()).manifest(example).unwrap();
        assert_eq!(reading.warnings, [""; 0]);
        assert_eq!(reading.value.guardrails.unwrap().len(), 2);
    }

    #[test]
    fn the_names_of_events_are_those_of_manifests() {
        for event in [
            GuardrailEvent::BeforeModel,
            GuardrailEvent::AfterModel,
            GuardrailEvent::BeforeTool,
            GuardrailEvent::AfterTool,
        ] {
            let read: GuardrailEvent = serde_json::from_value(json!(event.as_str())).unwrap();
            assert_eq!(read, event);
        }
    }

    #[test]
    fn guardrails_are_published_without_preview() {
        let schema = editor_schema(&settings(), SCHEMA_ID).to_string();
        assert!(schema.contains("before_model") && schema.contains("on_failure"));
    }
}
