//! Reasoning that goes back to the model. Some services refuse a message with calls that does not have the reasoning
//! before them ("thinking is enabled but `reasoning_content` is missing": Moonshot and `DeepSeek`), and others refuse the
//! member. So it is added for a model after its service has refused a request for that reason.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_agent::message::Message;
use dray_dial::chat::{ChatError, ChatKind};
use serde_json::Value;

use super::relay::ModelAnswer;

/// The member of a message that has its reasoning.
const REASONING_MEMBER: &str = "reasoning_content";
/// The reasoning of calls for which none is known: those of this service, of clients and of earlier requests. Services
/// may take an empty text for a missing one.
const UNKNOWN_REASONING: &str = " ";
/// Most models that are remembered.
const MAX_MODELS: usize = 1_000;

/// The models whose services want the reasoning back. Clones share them, for all turns of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReasoningModels(Arc<Mutex<BTreeSet<String>>>);

impl ReasoningModels {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, model: &str) {
        let mut models = self.lock();
        if models.len() < MAX_MODELS {
            models.insert(model.to_owned());
        }
    }
}

/// The reasoning of one request of a client.
#[derive(Debug, Default)]
pub(super) struct ReturnedReasoning {
    models: ReasoningModels,
    /// The reasoning by the id of the first call after it.
    by_call: HashMap<String, String>,
}

impl ReturnedReasoning {
    /// No reasoning yet.
    pub(super) fn new(models: ReasoningModels) -> Self {
        Self {
            models,
            by_call: HashMap::new(),
        }
    }

    /// Records the reasoning of an answer with calls.
    pub(super) fn note(&mut self, answer: &ModelAnswer) {
        let call = answer.calls.first();
        if let Some(call) = call.filter(|_| !answer.reasoning.is_empty()) {
            self.by_call
                .insert(call.id.clone(), answer.reasoning.clone());
        }
    }

    /// Whether requests to this model have the reasoning.
    pub(super) fn is_for(&self, model: &str) -> bool {
        self.models.lock().contains(model)
    }

    /// Whether the service of the model refused a request because it lacks the reasoning. Later requests have it.
    pub(super) fn note_refusal(&self, model: &str, error: &ChatError) -> bool {
        let is_missing =
            error.kind == ChatKind::Status(400) && error.message.contains(REASONING_MEMBER);
        if is_missing {
            self.models.add(model);
        }
        is_missing
    }

    /// Adds the reasoning to messages with calls, if it is for this model.
    pub(super) fn add_to(&self, model: &str, messages: &mut [Message]) {
        if !self.is_for(model) {
            return;
        }
        for message in messages {
            let Some(call) = message.calls().first() else {
                continue;
            };
            let known = self.by_call.get(&call.id).map(String::as_str);
            let reasoning = Value::from(known.unwrap_or(UNKNOWN_REASONING));
            // A client may have sent the reasoning back itself.
            let member = message.rest.entry(REASONING_MEMBER).or_insert(Value::Null);
            if member.as_str().is_none_or(str::is_empty) {
                *member = reasoning;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reasoning_that_a_client_sent_back_stays() {
        let reasoning = ReturnedReasoning::default();
        reasoning.models.add("thinker");
        let with_call = |reasoning: Value| {
            let call = json!({"id": "1", "function": {"name": "f", "arguments": "{}"}});
            json!({"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": reasoning})
        };
        let messages = json!([
            {"role": "user", "content": "q"}, with_call(json!("I see.")), with_call(json!("")),
        ]);
        let shown = |model: &str| {
            let mut messages: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
            reasoning.add_to(model, &mut messages);
            let members = messages
                .iter()
                .map(|message| message.rest.get(REASONING_MEMBER).cloned());
            members.collect::<Vec<_>>()
        };
        let text = |text: &str| Some(json!(text));
        assert_eq!(shown("thinker"), [None, text("I see."), text(" ")]);
        assert_eq!(shown("other"), [None, text("I see."), text("")]);
    }
}
