//! Returns the state that a model stored in earlier messages to that model (quickapps 17).

use crate::message::{Message, Role};
use crate::state::ORCHESTRATOR_KEY;

/// Replaces the state of assistant messages with the value of `state.orchestrator_state`, if there is one. Use it for
/// the copies of messages that are sent to the model.
pub fn lift_orchestrator_state(messages: &mut [Message]) {
    for message in messages {
        if message.role == Role::Assistant
            && let Some(custom) = &mut message.custom_content
            && let Some(own) = custom
                .state
                .as_mut()
                .and_then(|state| state.get_mut(ORCHESTRATOR_KEY))
        {
            // The other keys are private to this service and have no meaning for the model's deployment.
            custom.state = Some(own.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_assistant_messages_with_an_orchestrator_state_change() {
        let lifted = |role: &str, state: &serde_json::Value| {
            let wire = json!({"role": role, "custom_content": {"state": state}});
            let mut messages = [serde_json::from_value::<Message>(wire).unwrap()];
            lift_orchestrator_state(&mut messages);
            messages[0].custom_content.clone().unwrap().state.unwrap()
        };
        let state = json!({"orchestrator_state": {"a": 1}, "other": 2});
        assert_eq!(lifted("assistant", &state), json!({"a": 1}));
        assert_eq!(lifted("tool", &state), state);
        assert_eq!(lifted("assistant", &json!({"b": 1})), json!({"b": 1}));
    }
}
