//! Reasoning that goes back to the model. Some services refuse a call without the reasoning before it:
//!
//! - Moonshot and `DeepSeek` a message without `reasoning_content`, where the model thinks;
//! - Gemini 3 a call without the signature in its `extra_content`
//!   (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
//!
//! Others refuse these members. So they are added for a model after its service has refused a request for that reason.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_agent::message::{Message, ToolCall};
use dray_dial::chat::{ChatError, ChatKind};
use serde_json::{Value, json};

use super::relay::ModelAnswer;

/// The member of a message that has its reasoning.
const REASONING_MEMBER: &str = "reasoning_content";
/// The member of a call that has the signature of its reasoning.
pub(super) const EXTRA_MEMBER: &str = "extra_content";
/// The name of the signature in it, and in the message of a refusal.
const SIGNATURE_MEMBER: &str = "thought_signature";
/// The reasoning of calls for which none is known: those of this service, of clients and of earlier requests. Services
/// may take an empty text for a missing one.
const UNKNOWN_REASONING: &str = " ";
/// The signature of such calls, as Gemini's documentation names it.
const UNKNOWN_SIGNATURE: &str = "skip_thought_signature_validator";
/// Most models that are remembered.
const MAX_MODELS: usize = 1_000;

/// The members that the service of a model wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WantedMembers {
    reasoning: bool,
    signatures: bool,
}

/// The models whose services want reasoning back. Clones share them, for all turns of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReasoningModels(Arc<Mutex<BTreeMap<String, WantedMembers>>>);

impl ReasoningModels {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, WantedMembers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, model: &str, wanted: WantedMembers) {
        let mut models = self.lock();
        if models.len() < MAX_MODELS || models.contains_key(model) {
            models.insert(model.to_owned(), wanted);
        }
    }
}

/// The reasoning of one request of a client.
#[derive(Debug, Default)]
pub(super) struct ReturnedReasoning {
    models: ReasoningModels,
    /// Reasoning by the id of the first call after it.
    texts: HashMap<String, String>,
    /// The signatures of calls by their ids.
    signatures: HashMap<String, Value>,
}

impl ReturnedReasoning {
    /// No reasoning yet.
    pub(super) fn new(models: ReasoningModels) -> Self {
        Self {
            models,
            ..Self::default()
        }
    }

    /// Records the reasoning of an answer with calls, and takes the signatures out of them.
    pub(super) fn take(&mut self, answer: &mut ModelAnswer) {
        let first = answer.calls.first();
        if let Some(call) = first.filter(|_| !answer.reasoning.is_empty()) {
            self.texts.insert(call.id.clone(), answer.reasoning.clone());
        }
        for call in &mut answer.calls {
            let signature = call.rest.shift_remove(EXTRA_MEMBER);
            self.signatures
                .extend(signature.map(|signature| (call.id.clone(), signature)));
        }
    }

    /// The members that requests to this model have.
    pub(super) fn wanted_by(&self, model: &str) -> WantedMembers {
        self.models.lock().get(model).copied().unwrap_or_default()
    }

    /// Whether the service of the model refused a request because it lacks a member. Later requests have it. `sent` are
    /// the members that the request had.
    pub(super) fn note_refusal(&self, model: &str, sent: WantedMembers, error: &ChatError) -> bool {
        let wanted = WantedMembers {
            reasoning: sent.reasoning || error.message.contains(REASONING_MEMBER),
            signatures: sent.signatures || error.message.contains(SIGNATURE_MEMBER),
        };
        let is_missing = error.kind == ChatKind::Status(400) && wanted != sent;
        if is_missing {
            self.models.set(model, wanted);
        }
        is_missing
    }

    /// Adds the members that this model wants to messages with calls.
    pub(super) fn add_to(&self, model: &str, messages: &mut [Message]) {
        let wanted = self.wanted_by(model);
        if wanted == WantedMembers::default() {
            return;
        }
        for message in messages {
            let Some(call) = message.calls().first() else {
                continue;
            };
            if wanted.reasoning {
                let known = self.texts.get(&call.id).map(String::as_str);
                let known = Value::from(known.unwrap_or(UNKNOWN_REASONING));
                // A client may have sent the reasoning back itself.
                let member = message.rest.entry(REASONING_MEMBER).or_insert(Value::Null);
                if member.as_str().is_none_or(str::is_empty) {
                    *member = known;
                }
            }
            if wanted.signatures {
                self.sign(message.tool_calls.as_deref_mut().unwrap_or_default());
            }
        }
    }

    /// Adds the signatures of one round. Its first call needs one.
    fn sign(&self, calls: &mut [ToolCall]) {
        for (position, call) in calls.iter_mut().enumerate() {
            let unknown = || json!({"google": {(SIGNATURE_MEMBER): UNKNOWN_SIGNATURE}});
            let known = self.signatures.get(&call.id).cloned();
            let signature = known.or_else(|| (position == 0).then(unknown));
            if let Some(signature) = signature.filter(|_| !call.rest.contains_key(EXTRA_MEMBER)) {
                call.rest.insert(EXTRA_MEMBER.to_owned(), signature);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}})
    }

    fn wanted(reasoning: bool, signatures: bool) -> WantedMembers {
        WantedMembers {
            reasoning,
            signatures,
        }
    }

    fn shown(reasoning: &ReturnedReasoning, model: &str, messages: &Value) -> Value {
        let mut messages: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
        reasoning.add_to(model, &mut messages);
        serde_json::to_value(messages).unwrap()
    }

    #[test]
    fn a_reasoning_that_a_client_sent_back_stays() {
        let reasoning = ReturnedReasoning::default();
        reasoning.models.set("thinker", wanted(true, false));
        let with_call = |reasoning: &str| json!({"role": "assistant", "content": "", "tool_calls": [call("1")], "reasoning_content": reasoning});
        let messages =
            json!([{"role": "user", "content": "q"}, with_call("I see."), with_call("")]);
        let with_reasoning = shown(&reasoning, "thinker", &messages);
        assert_eq!(with_reasoning[0], messages[0]);
        assert_eq!(with_reasoning[1], messages[1]);
        assert_eq!(with_reasoning[2], with_call(" "));
        assert_eq!(shown(&reasoning, "other", &messages), messages);
    }

    #[test]
    fn calls_get_their_signatures_and_the_first_of_a_round_needs_one() {
        let mut reasoning = ReturnedReasoning::default();
        reasoning.models.set("gemini", wanted(false, true));
        let signature = json!({"google": {"thought_signature": "s"}});
        let mut signed = call("1");
        signed["extra_content"] = signature.clone();
        let mut answer = ModelAnswer {
            calls: serde_json::from_value(json!([signed, call("2")])).unwrap(),
            ..ModelAnswer::default()
        };
        reasoning.take(&mut answer);
        assert_eq!(
            serde_json::to_value(&answer.calls).unwrap(),
            json!([call("1"), call("2")])
        );
        let round = |calls: Value| json!({"role": "assistant", "content": "", "tool_calls": calls});
        let messages = json!([
            round(json!([call("1"), call("2")])),
            round(json!([call("3")]))
        ]);
        let with_signatures = shown(&reasoning, "gemini", &messages);
        let at = |pointer: &str| with_signatures.pointer(pointer).cloned();
        assert_eq!(at("/0/tool_calls/0/extra_content"), Some(signature));
        assert_eq!(at("/0/tool_calls/1/extra_content"), None);
        assert_eq!(
            at("/1/tool_calls/0/extra_content/google/thought_signature"),
            Some(json!(UNKNOWN_SIGNATURE))
        );
    }
}
