//! What the services of some models want beyond `OpenAI`'s API. They refuse a request with a call
//!
//! - without the reasoning before it in `reasoning_content` of its message (Moonshot, `DeepSeek`, where the model thinks);
//! - without the signature of that in its `extra_content` (Gemini 3,
//!   <https://ai.google.dev/gemini-api/docs/thought-signatures>);
//! - whose id does not have nine letters and digits (Mistral).
//!
//! Other services refuse these members, so a request has them after the service of its model has refused one for that
//! reason, and answered one with them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_agent::message::{Message, ToolCall};
use dray_dial::chat::{ChatError, ChatKind};
use serde_json::{Value, json};

use super::relay::ModelAnswer;
use crate::records::digest_prefix;

/// The member of a message that has its reasoning.
const REASONING_MEMBER: &str = "reasoning_content";
/// The member of a call that has the signature of its reasoning.
pub(super) const EXTRA_MEMBER: &str = "extra_content";
/// The name of the signature in it, and in the message of a refusal.
const SIGNATURE_MEMBER: &str = "thought_signature";
/// A part of the message with which Mistral's API refuses an id.
const ID_REFUSAL: &str = "must be a-z, A-Z, 0-9, with a length of 9";
/// Characters of the ids that it accepts.
const SHORT_ID_CHARACTERS: usize = 9;
/// The reasoning of calls for which none is known: those of this service, of clients and of earlier requests. Services
/// may take an empty text for a missing one.
const UNKNOWN_REASONING: &str = " ";
/// The signature of such calls, as Gemini's documentation names it.
const UNKNOWN_SIGNATURE: &str = "skip_thought_signature_validator";
/// Most models that are remembered.
const MAX_MODELS: usize = 1_000;

/// What the service of a model wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProviderQuirks {
    wants_reasoning: bool,
    wants_signatures: bool,
    wants_short_ids: bool,
}

/// The models whose services want something. Clones share them, for all turns of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownQuirks(Arc<Mutex<BTreeMap<String, ProviderQuirks>>>);

impl KnownQuirks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ProviderQuirks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_quirks(&self, model: &str, quirks: ProviderQuirks) {
        let mut models = self.lock();
        if models.len() < MAX_MODELS || models.contains_key(model) {
            models.insert(model.to_owned(), quirks);
        }
    }
}

/// Adapts the prompts of one request of a client to the services of its models.
#[derive(Debug, Default)]
pub(super) struct PromptAdapter {
    known: KnownQuirks,
    /// What the service seems to want after a refusal, during the attempts of one call of the model.
    tried: Option<ProviderQuirks>,
    /// Reasoning by the id of the first call after it.
    reasoning: HashMap<String, String>,
    /// The signatures of calls by their ids.
    signatures: HashMap<String, Value>,
}

impl PromptAdapter {
    /// An adapter without any reasoning.
    pub(super) fn new(known: KnownQuirks) -> Self {
        Self {
            known,
            ..Self::default()
        }
    }

    /// Records the reasoning of an answer with calls, and takes the signatures out of them.
    pub(super) fn take_reasoning(&mut self, answer: &mut ModelAnswer) {
        let first = answer.calls.first();
        if let Some(call) = first.filter(|_| !answer.reasoning.is_empty()) {
            self.reasoning
                .insert(call.id.clone(), answer.reasoning.clone());
        }
        for call in &mut answer.calls {
            let signature = call.rest.shift_remove(EXTRA_MEMBER);
            self.signatures
                .extend(signature.map(|signature| (call.id.clone(), signature)));
        }
    }

    /// What requests to the model are adapted to.
    pub(super) fn quirks_of(&self, model: &str) -> ProviderQuirks {
        let known = || self.known.lock().get(model).copied().unwrap_or_default();
        self.tried.unwrap_or_else(known)
    }

    /// Whether the service of the model refused a request because it seems to want something. The next attempt has it.
    /// `sent` is what the request had.
    pub(super) fn note_refusal(&mut self, sent: ProviderQuirks, error: &ChatError) -> bool {
        let has = |part: &str| error.message.contains(part);
        let wanted = ProviderQuirks {
            wants_reasoning: sent.wants_reasoning || has(REASONING_MEMBER),
            wants_signatures: sent.wants_signatures || has(SIGNATURE_MEMBER),
            wants_short_ids: sent.wants_short_ids || has(ID_REFUSAL),
        };
        let is_missing = error.kind == ChatKind::Status(400) && wanted != sent;
        if is_missing {
            self.tried = Some(wanted);
        }
        is_missing
    }

    /// Ends the attempts of a call of the model. Later requests of all turns are adapted only if the model answered an
    /// adapted one: the refusal may have been about a member that a client had sent.
    pub(super) fn end_attempts(&mut self, model: &str, has_answered: bool) {
        let tried = self.tried.take();
        if let Some(quirks) = tried.filter(|_| has_answered) {
            self.known.set_quirks(model, quirks);
        }
    }

    /// Adapts the messages to the service of this model.
    pub(super) fn adapt_messages(&self, model: &str, messages: &mut [Message]) {
        let quirks = self.quirks_of(model);
        for message in messages {
            if quirks.wants_reasoning {
                self.add_reasoning(message);
            }
            if quirks.wants_signatures && !message.calls().is_empty() {
                self.add_signatures(message.tool_calls.as_deref_mut().unwrap_or_default());
            }
            // The ids are the keys above, so they come last.
            if quirks.wants_short_ids {
                shorten_ids(message);
            }
        }
    }

    fn add_reasoning(&self, message: &mut Message) {
        let Some(call) = message.calls().first() else {
            return;
        };
        let known = self.reasoning.get(&call.id).map(String::as_str);
        let known = Value::from(known.unwrap_or(UNKNOWN_REASONING));
        // A client may have sent the reasoning back itself.
        let member = message.rest.entry(REASONING_MEMBER).or_insert(Value::Null);
        if member.as_str().is_none_or(str::is_empty) {
            *member = known;
        }
    }

    /// Adds the signatures of one round. Its first call needs one.
    fn add_signatures(&self, calls: &mut [ToolCall]) {
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

/// Replaces ids that are not short by their digests. The id of a call and that of its result stay equal.
fn shorten_ids(message: &mut Message) {
    let calls = message.tool_calls.iter_mut().flatten();
    let ids = calls.map(|call| &mut call.id);
    for id in ids.chain(message.tool_call_id.as_mut()) {
        let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_plain || id.len() != SHORT_ID_CHARACTERS {
            *id = digest_prefix(id, SHORT_ID_CHARACTERS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}})
    }

    /// An adapter that knows what the service of `model` wants.
    fn adapter(quirks: ProviderQuirks) -> PromptAdapter {
        let adapter = PromptAdapter::default();
        adapter.known.set_quirks("model", quirks);
        adapter
    }

    fn shown(adapter: &PromptAdapter, model: &str, messages: &Value) -> Value {
        let mut messages: Vec<Message> = serde_json::from_value(messages.clone()).unwrap();
        adapter.adapt_messages(model, &mut messages);
        serde_json::to_value(messages).unwrap()
    }

    #[test]
    fn other_turns_adapt_their_requests_after_an_adapted_one_was_answered() {
        let error = ChatError {
            kind: ChatKind::Status(400),
            code: None,
            message: "reasoning_content is missing".to_owned(),
            display_message: None,
            retry_after: None,
            source: None,
        };
        let known = KnownQuirks::default();
        let other = PromptAdapter::new(known.clone());
        let mut adapter = PromptAdapter::new(known);
        let unadapted = ProviderQuirks::default();
        for has_answered in [false, true] {
            assert!(adapter.note_refusal(unadapted, &error));
            let tried = adapter.quirks_of("model");
            assert!(tried.wants_reasoning);
            assert!(!adapter.note_refusal(tried, &error));
            assert_eq!(other.quirks_of("model"), unadapted);
            adapter.end_attempts("model", has_answered);
            assert_eq!(other.quirks_of("model") == tried, has_answered);
        }
    }

    #[test]
    fn a_reasoning_that_a_client_sent_back_stays() {
        let adapter = adapter(ProviderQuirks {
            wants_reasoning: true,
            ..ProviderQuirks::default()
        });
        let with_call = |reasoning: &str| json!({"role": "assistant", "content": "", "tool_calls": [call("1")], "reasoning_content": reasoning});
        let messages =
            json!([{"role": "user", "content": "q"}, with_call("I see."), with_call("")]);
        let with_reasoning = shown(&adapter, "model", &messages);
        assert_eq!(with_reasoning[0], messages[0]);
        assert_eq!(with_reasoning[1], messages[1]);
        assert_eq!(with_reasoning[2], with_call(" "));
        assert_eq!(shown(&adapter, "other", &messages), messages);
    }

    #[test]
    fn calls_get_their_signatures_and_the_first_of_a_round_needs_one() {
        let mut adapter = adapter(ProviderQuirks {
            wants_signatures: true,
            ..ProviderQuirks::default()
        });
        let signature = json!({"google": {"thought_signature": "s"}});
        let mut signed = call("1");
        signed["extra_content"] = signature.clone();
        let mut answer = ModelAnswer {
            calls: serde_json::from_value(json!([signed, call("2")])).unwrap(),
            ..ModelAnswer::default()
        };
        adapter.take_reasoning(&mut answer);
        assert_eq!(
            serde_json::to_value(&answer.calls).unwrap(),
            json!([call("1"), call("2")])
        );
        let round = |calls: Value| json!({"role": "assistant", "content": "", "tool_calls": calls});
        let messages = json!([
            round(json!([call("1"), call("2")])),
            round(json!([call("3")]))
        ]);
        let with_signatures = shown(&adapter, "model", &messages);
        let at = |pointer: &str| with_signatures.pointer(pointer).cloned();
        assert_eq!(at("/0/tool_calls/0/extra_content"), Some(signature));
        assert_eq!(at("/0/tool_calls/1/extra_content"), None);
        assert_eq!(
            at("/1/tool_calls/0/extra_content/google/thought_signature"),
            Some(json!(UNKNOWN_SIGNATURE))
        );
    }

    #[test]
    fn short_ids_of_a_call_and_of_its_result_are_equal() {
        let adapter = adapter(ProviderQuirks {
            wants_short_ids: true,
            ..ProviderQuirks::default()
        });
        let messages = json!([
            {"role": "assistant", "content": "", "tool_calls": [call("s_a_b"), call("D681PevKs")]},
            {"role": "tool", "tool_call_id": "s_a_b", "content": "1"},
            {"role": "tool", "tool_call_id": "D681PevKs", "content": "2"},
        ]);
        let shown = shown(&adapter, "model", &messages);
        let id = shown[0]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(
            id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{id}"
        );
        assert_eq!(shown[1]["tool_call_id"], id);
        assert_eq!(shown[0]["tool_calls"][1]["id"], "D681PevKs");
        assert_eq!(shown[2]["tool_call_id"], "D681PevKs");
    }
}
