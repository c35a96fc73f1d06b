//! The settings of a tool call in a manifest (quickapps 6.5): files of its result, failures, display.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::default_true;

/// Files of results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AttachmentRules {
    /// Types of files that are kept; all if absent, see [`Self::supported`].
    pub supported_types: Option<Vec<String>>,
    /// Types of files that the user sees too, see [`Self::propagated`].
    pub propagate_types_to_choice: Option<Vec<String>>,
    /// Replacements of media types: the type of a file, and the type that is used instead.
    pub media_type_substitution: Option<BTreeMap<String, String>>,
}

impl AttachmentRules {
    /// Types that are kept: `*/*` by default.
    pub fn supported(&self) -> Vec<&str> {
        or_default(self.supported_types.as_ref(), &["*/*"])
    }

    /// Types of files that are also shown to the user: images and plots by default.
    pub fn propagated(&self) -> Vec<&str> {
        or_default(
            self.propagate_types_to_choice.as_ref(),
            &["image/*", "application/vnd.plotly.v1+json"],
        )
    }
}

fn or_default<'a>(given: Option<&'a Vec<String>>, default: &[&'a str]) -> Vec<&'a str> {
    // `null` equals an absent member (quickapps 6.5), but an empty list does not.
    given.map_or_else(
        || default.to_vec(),
        |given| given.iter().map(String::as_str).collect(),
    )
}

/// The behaviour when a call fails.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Fallback {
    /// The strategies are tried in order; the first match applies.
    #[serde(default = "continue_always")]
    pub strategies: Vec<Strategy>,
    /// Whether the stage shows the error.
    #[serde(default = "default_true")]
    pub display_error_in_stage: bool,
}

impl Default for Fallback {
    fn default() -> Self {
        Self {
            strategies: continue_always(),
            display_error_in_stage: true,
        }
    }
}

/// One way to deal with a failure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
// `retry` requires `instructions`, for which JSON Schema checks here have no keyword.
#[schemars(extend("x-rule" = "strategy"))]
pub struct Strategy {
    /// The action.
    #[serde(rename = "type")]
    pub kind: StrategyKind,
    /// Message for the model; `retry` needs it.
    pub instructions: Option<String>,
    /// The failures to which it applies; all if absent.
    pub trigger_on: Option<Trigger>,
}

/// The reaction to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrategyKind {
    /// The model gets the error and continues.
    Continue,
    /// The request ends.
    Stop,
    /// The model is asked to repeat the call with changes.
    Retry,
    /// The request ends without another call of the model.
    HardStop,
}

/// The failures that a strategy is for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Trigger {
    /// How the text of the failure is compared.
    #[serde(rename = "type")]
    pub kind: TriggerKind,
    /// The text that the failure is compared with.
    pub value: String,
    /// Whether upper and lower case differ.
    #[serde(default)]
    pub case_sensitive: bool,
}

/// How the text of a failure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerKind {
    /// The text of the failure contains the value.
    Contains,
    /// The text of the failure equals the value.
    Equals,
}

/// Display of a tool to the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ToolDisplay {
    /// How the stage of a call is shown.
    pub stage: Option<ToolStage>,
}

/// Display of the stage of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ToolStage {
    /// Title of the stage, which may contain arguments of the call.
    pub name: Option<String>,
    /// Kept by editors; not used.
    pub body: Option<String>,
    /// Whether the stage is shown.
    #[serde(default = "default_true")]
    pub show: bool,
    /// Whether it stays open after the call, until the end of the response.
    pub defer_close: Option<bool>,
}

/// Display of an argument to the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ParameterDisplay {
    /// How the argument is shown in the stage of its tool.
    pub stage: Option<ParameterStage>,
}

/// Display of an argument in the stage of its tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ParameterStage {
    /// Whether stages leave the parameter out.
    #[serde(default)]
    pub ignore: bool,
    /// Whether stages show the value without the name of the parameter.
    #[serde(default)]
    pub ignore_parameter_name: bool,
    /// Whether the value follows the name of the stage.
    #[serde(default)]
    pub show_value_in_stage_title: bool,
    /// Text that replaces the name of the parameter.
    pub name: Option<String>,
    /// Text before the value.
    pub prefix: Option<String>,
    /// Shown behind the value.
    pub suffix: Option<String>,
    /// Shown in place of the value.
    pub replaced_value_info: Option<String>,
    /// Format of the value.
    pub format: Option<String>,
}

fn continue_always() -> Vec<Strategy> {
    vec![Strategy {
        kind: StrategyKind::Continue,
        instructions: None,
        trigger_on: None,
    }]
}
