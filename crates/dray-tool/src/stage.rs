//! Stages of calls (quickapps 22): whether a call shows one, its name and its bodies.

use std::time::Duration;

use dray_agent::manifest::feature::StageLevel;
use serde_json::{Map, Value};

use crate::CallRules;

pub mod body;
mod markup;
mod table;
pub mod value;

#[cfg(test)]
mod tests;

/// Longest value in the name of a stage, in characters.
const MAX_TITLE_VALUE_CHARACTERS: usize = 100;

/// When the stage of a call becomes visible, if ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageVisibility {
    /// From the beginning of the call on.
    Always,
    /// Once the call has failed.
    OnError,
    /// Never, not even after a failure.
    Never,
}

/// Decides whether and when the stage of a call is shown at a level. Hiding a stage never changes what the model gets.
pub fn stage_visibility(level: StageLevel, rules: &CallRules) -> StageVisibility {
    let is_hidden = rules.debug_only
        || rules
            .display
            .stage
            .as_ref()
            .is_some_and(|stage| !stage.show);
    match level {
        StageLevel::Debug => StageVisibility::Always,
        StageLevel::Info if !is_hidden => StageVisibility::Always,
        StageLevel::Error if !is_hidden => StageVisibility::OnError,
        StageLevel::None | StageLevel::Error | StageLevel::Info => StageVisibility::Never,
    }
}

/// The name of a stage: the name in the manifest, otherwise the label of the tool; then the value of the first argument
/// that is displayed in names.
pub fn stage_title(rules: &CallRules, written: &Map<String, Value>) -> String {
    let name = rules
        .display
        .stage
        .as_ref()
        .and_then(|stage| stage.name.as_deref())
        .unwrap_or(&rules.label);
    // Only the first such argument counts, in the order of the model (quickapps 22.2).
    let named_argument = written.iter().find(|(argument, _)| {
        let display = rules.parameters.get(*argument);
        display
            .and_then(|display| display.stage.as_ref())
            .is_some_and(|stage| stage.show_value_in_stage_title)
    });
    match named_argument {
        Some((_, value)) => format!(
            "{name}{}",
            value::value_line(value, MAX_TITLE_VALUE_CHARACTERS)
        ),
        None => name.to_owned(),
    }
}

/// The duration that is added to the name of a stage when it closes.
pub fn duration_suffix(elapsed: Duration) -> String {
    format!(" [{:.2}s]", elapsed.as_secs_f64())
}
