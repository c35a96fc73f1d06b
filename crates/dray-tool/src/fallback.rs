//! Decides how a turn continues after a failed call (quickapps 20).

use dray_agent::manifest::call::{Fallback, Strategy, StrategyKind, Trigger, TriggerKind};

/// The text of the response when a strategy ends the request.
pub const STOPPED_MESSAGE: &str = "A tool encountered an error and the agent was stopped. Please try again or contact your \
                           administrator if the issue persists.";

/// The text of a stage that must not show the error.
pub const HIDDEN_ERROR_MESSAGE: &str = "An error occurred while executing the tool.";

/// The consequence of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FallbackDecision {
    /// The model gets this message and continues.
    ReportToModel(String),
    /// The request ends with [`STOPPED_MESSAGE`].
    Stop,
    /// No strategy applies, so the failure ends the request.
    Raise,
}

/// Tries the strategies in order; the first one that applies and gives an outcome is used. After a timeout only
/// strategies with a trigger apply.
pub fn decide_fallback(fallback: &Fallback, error: &str, timed_out: bool) -> FallbackDecision {
    fallback
        .strategies
        .iter()
        .filter(|strategy| strategy_applies(strategy, error, timed_out))
        .find_map(|strategy| strategy_outcome(strategy, error))
        .unwrap_or(FallbackDecision::Raise)
}

fn strategy_applies(strategy: &Strategy, error: &str, timed_out: bool) -> bool {
    match &strategy.trigger_on {
        Some(trigger) => is_triggered(trigger, error),
        // Strategies without a trigger do not apply to timeouts (quickapps 21).
        None => !timed_out,
    }
}

fn is_triggered(trigger: &Trigger, error: &str) -> bool {
    let fold = |text: &str| {
        if trigger.case_sensitive {
            text.to_owned()
        } else {
            text.to_lowercase()
        }
    };
    let (error, value) = (fold(error), fold(&trigger.value));
    match trigger.kind {
        TriggerKind::Contains => error.contains(&value),
        TriggerKind::Equals => error == value,
    }
}

fn strategy_outcome(strategy: &Strategy, error: &str) -> Option<FallbackDecision> {
    let instructions = strategy
        .instructions
        .as_deref()
        .filter(|text| !text.trim().is_empty());
    match strategy.kind {
        StrategyKind::Continue => {
            let mut message = if error.is_empty() {
                "The tool call failed with an error.".to_owned()
            } else {
                format!("The tool call failed with an error: {error}")
            };
            if let Some(instructions) = instructions {
                message.push_str("\n\n");
                message.push_str(instructions);
            }
            Some(FallbackDecision::ReportToModel(message))
        }
        // Without instructions there is no text for the model, so the next strategy is tried.
        StrategyKind::Retry => {
            instructions.map(|text| FallbackDecision::ReportToModel(text.to_owned()))
        }
        StrategyKind::Stop | StrategyKind::HardStop => Some(FallbackDecision::Stop),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "callers make it in place")]
    fn decision_for(
        strategies: serde_json::Value,
        error: &str,
        timed_out: bool,
    ) -> FallbackDecision {
        let fallback: Fallback =
            serde_json::from_value(json!({ "strategies": strategies })).unwrap();
        decide_fallback(&fallback, error, timed_out)
    }

    fn decision_to_tell(text: &str) -> FallbackDecision {
        FallbackDecision::ReportToModel(text.to_owned())
    }

    #[test]
    fn by_default_the_model_gets_the_error() {
        let fallback = Fallback::default();
        assert_eq!(
            decide_fallback(&fallback, "no stock", false),
            decision_to_tell("The tool call failed with an error: no stock")
        );
        assert_eq!(
            decide_fallback(&fallback, "", false),
            decision_to_tell("The tool call failed with an error.")
        );
    }

    #[test]
    fn instructions_follow_after_a_blank_line() {
        let strategies = json!([{"type": "continue", "instructions": "Ask the user."}]);
        assert_eq!(
            decision_for(strategies, "x", false),
            decision_to_tell("The tool call failed with an error: x\n\nAsk the user.")
        );
    }

    #[test]
    fn the_first_that_applies_wins() {
        let strategies = json!([
            {"type": "stop", "trigger_on": {"type": "contains", "value": "401"}},
            {"type": "retry", "instructions": "Again.", "trigger_on": {"type": "equals", "value": "Busy"}},
            {"type": "hard_stop", "trigger_on": {"type": "equals", "value": "Fatal", "case_sensitive": true}},
        ]);
        assert_eq!(
            decision_for(strategies.clone(), "status 401", false),
            FallbackDecision::Stop
        );
        assert_eq!(
            decision_for(strategies.clone(), "BUSY", false),
            decision_to_tell("Again.")
        );
        assert_eq!(
            decision_for(strategies.clone(), "very busy", false),
            FallbackDecision::Raise
        );
        assert_eq!(
            decision_for(strategies.clone(), "fatal", false),
            FallbackDecision::Raise
        );
        assert_eq!(
            decision_for(strategies, "Fatal", false),
            FallbackDecision::Stop
        );
        assert_eq!(decision_for(json!([]), "x", false), FallbackDecision::Raise);
    }

    #[test]
    fn a_strategy_without_a_message_is_skipped() {
        let strategies = json!([{"type": "retry", "instructions": " "}, {"type": "stop"}]);
        assert_eq!(decision_for(strategies, "x", false), FallbackDecision::Stop);
    }

    #[test]
    fn a_timeout_asks_only_strategies_with_a_trigger() {
        let text = "The tool call `t` timed out after 1 seconds.";
        assert_eq!(
            decision_for(json!([{"type": "stop"}]), text, true),
            FallbackDecision::Raise
        );
        let triggered =
            json!([{"type": "stop", "trigger_on": {"type": "contains", "value": "timed out"}}]);
        assert_eq!(decision_for(triggered, text, true), FallbackDecision::Stop);
    }

    #[test]
    fn the_sentence_of_the_end_is_the_contract() {
        assert_eq!(
            STOPPED_MESSAGE,
            "A tool encountered an error and the agent was stopped. Please try again or contact your administrator \
             if the issue persists."
        );
        assert_eq!(
            HIDDEN_ERROR_MESSAGE,
            "An error occurred while executing the tool."
        );
    }
}
