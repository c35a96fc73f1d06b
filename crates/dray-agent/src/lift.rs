//! The model's own state, given back to it (quickapps 17).

use crate::message::{Message, Role};
use crate::state::ORCHESTRATOR_KEY;

/// Makes `state.orchestrator_state` of assistant messages their whole state. For the copies that go to the model.
pub fn lift_orchestrator_state(messages: &mut [Message]) {
    for message in messages {
        if message.role == Role::Assistant
            && let Some(custom) = &mut message.custom_content
            && let Some(own) = custom
                .state
                .as_mut()
                .and_then(|state| state.get_mut(ORCHESTRATOR_KEY))
        {
            // The other keys are this service's own and would mean nothing to the deployment.
            custom.state = Some(own.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_assistants_with_such_a_state_change() {
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
