//! Determines which agent of a conversation answers. A turn may be handed over to another agent, which then answers the
//! following turns as well, although their requests name the first one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Message, Role};

/// Key of the agents in the state of assistant messages.
pub const AGENTS_KEY: &str = "dray_agents";

/// Most agents of a path; a longer one was not written by this service.
pub const MAX_PATH_AGENTS: usize = 16;

/// The handoffs of a conversation. Clients store the path and send it back, so each step has to be checked before the
/// last agent may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentPath {
    /// The agent that the requests name; empty for one without a name.
    pub from: String,
    /// The agents to which the conversation was handed over, in order; the last one answers. Empty while `from`
    /// answers.
    pub path: Vec<String>,
}

impl AgentPath {
    /// The path of a conversation that was not handed over.
    pub fn new(from: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            path: Vec::new(),
        }
    }

    /// The path in the newest answer that has one.
    pub fn of_messages(messages: &[Message]) -> Option<Self> {
        let answers = messages
            .iter()
            .rev()
            .filter(|message| message.role == Role::Assistant);
        let found = answers.into_iter().find_map(|message| {
            let state = message.custom_content.as_ref()?.state.as_ref()?;
            state.get(AGENTS_KEY)
        })?;
        let path: Self = serde_json::from_value(found.clone()).ok()?;
        (path.path.len() <= MAX_PATH_AGENTS).then_some(path)
    }

    /// Name of the agent that answers.
    pub fn current(&self) -> &str {
        self.path.last().unwrap_or(&self.from)
    }

    /// The path after a handoff. A handoff back to an agent of the path removes the agents after it, so a path is never
    /// longer than the number of agents.
    #[must_use]
    pub fn step(&self, agent: &str) -> Self {
        let mut next = self.clone();
        if !agent.is_empty() && agent == next.from {
            next.path.clear();
            return next;
        }
        match next.path.iter().position(|name| name == agent) {
            Some(index) => next.path.truncate(index + 1),
            None => next.path.push(agent.to_owned()),
        }
        next
    }

    /// Puts the path into a state.
    pub fn note(&self, state: &mut Value) {
        if let (Some(state), Ok(path)) = (state.as_object_mut(), serde_json::to_value(self)) {
            state.insert(AGENTS_KEY.to_owned(), path);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::CustomContent;

    fn path(agents: &[&str]) -> AgentPath {
        AgentPath {
            path: agents.iter().map(ToString::to_string).collect(),
            ..AgentPath::new("desk")
        }
    }

    fn answer(state: Value) -> Message {
        let mut message = Message::new(Role::Assistant, "x");
        message.custom_content = Some(CustomContent {
            state: Some(state),
            ..CustomContent::default()
        });
        message
    }

    #[test]
    fn a_step_back_shortens_the_path() {
        let billing = path(&[]).step("billing");
        assert_eq!(billing, path(&["billing"]));
        let refunds = billing.step("refunds");
        assert_eq!(refunds.current(), "refunds");
        assert_eq!(refunds.step("billing"), billing);
        assert_eq!(refunds.step("desk"), path(&[]));
        assert_eq!(path(&[]).current(), "desk");
    }

    #[test]
    fn the_newest_answer_that_has_a_path_decides() {
        let mut state = json!({"dray_session": "c-1"});
        path(&["billing"]).note(&mut state);
        assert_eq!(state["dray_session"], "c-1");
        let mut talk = vec![
            answer(state),
            answer(json!({})),
            Message::new(Role::User, "y"),
        ];
        assert_eq!(AgentPath::of_messages(&talk), Some(path(&["billing"])));
        let mut back = json!({});
        path(&[]).note(&mut back);
        talk.push(answer(back));
        assert_eq!(AgentPath::of_messages(&talk), Some(path(&[])));
        assert_eq!(AgentPath::of_messages(&[]), None);
    }

    #[test]
    fn a_path_of_another_form_or_length_is_ignored() {
        for invalid in [
            json!("billing"),
            json!({"from": 1, "path": []}),
            json!({"path": ["x"]}),
        ] {
            let talk = [answer(json!({ AGENTS_KEY: invalid }))];
            assert_eq!(AgentPath::of_messages(&talk), None);
        }
        let long = json!({"from": "desk", "path": vec!["x"; MAX_PATH_AGENTS + 1]});
        assert_eq!(
            AgentPath::of_messages(&[answer(json!({ AGENTS_KEY: long }))]),
            None
        );
    }
}
