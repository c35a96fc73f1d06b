//! What guardrails get to see of a conversation, an answer and a call.

use dray_agent::event::Event;
use dray_agent::manifest::guardrail::GuardrailEvent;
use dray_agent::message::{Content, Message, Role, ToolCall};
use dray_tool::pipeline::parse_arguments;
use serde_json::{Map, Value, json};

use super::{ReplaceTarget, Subject};
use crate::turn::relay::ModelAnswer;

/// Most bytes of the messages of a prompt, and of a result.
const MAX_SHOWN_BYTES: usize = 1 << 20;

/// The text of a message, without images and other parts.
pub(super) fn text_of(message: &Message) -> String {
    match &message.content {
        None => String::new(),
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Parts(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// The text, cut to the `room` bytes that are left, with a remark on how much is left out.
fn cut_to_room(text: String, room: &mut usize) -> String {
    if text.len() <= *room {
        *room -= text.len();
        return text;
    }
    let shown = text
        .get(..text.floor_char_boundary(*room))
        .unwrap_or_default();
    *room = 0;
    let left_out = text.len() - shown.len();
    format!("{shown}\n[{left_out} bytes left out]")
}

/// Index of the first message of the turn: the one after the last answer before the newest message of the user.
pub(super) fn turn_start(messages: &[Message]) -> usize {
    let user = messages
        .iter()
        .rposition(|message| message.role == Role::User);
    let before = messages.get(..user.unwrap_or_default()).unwrap_or_default();
    let is_answer =
        |message: &Message| message.role == Role::Assistant && message.calls().is_empty();
    before
        .iter()
        .rposition(is_answer)
        .map_or(0, |answer| answer + 1)
}

fn facts_of(event: GuardrailEvent) -> Map<String, Value> {
    Map::from_iter([("event".to_owned(), Value::from(event.as_str()))])
}

/// Arguments as an object, or as the text that the model wrote if they are not one.
fn arguments_of(text: &str) -> Value {
    parse_arguments(text).map_or_else(|_| Value::from(text), Value::Object)
}

impl<'a> Subject<'a> {
    /// The messages that the model is about to get.
    pub(super) fn prompt(messages: &[Message], new_from: usize) -> Self {
        let mut room = MAX_SHOWN_BYTES;
        // Messages are taken from the newest on, so that the oldest are cut.
        let mut shown: Vec<_> = messages
            .iter()
            .rev()
            .map(|message| {
                let text = cut_to_room(text_of(message), &mut room);
                let role = message.role.as_str();
                if message.calls().is_empty() {
                    return json!({"role": role, "text": text});
                }
                let calls = message.calls().iter().map(|call| {
                    let arguments = cut_to_room(call.function.arguments.clone(), &mut room);
                    json!({"name": call.function.name, "arguments": arguments_of(&arguments)})
                });
                let calls: Vec<_> = calls.collect();
                json!({"role": role, "text": text, "tool_calls": calls})
            })
            .collect();
        shown.reverse();
        let mut facts = facts_of(GuardrailEvent::BeforeModel);
        facts.insert("messages".to_owned(), Value::Array(shown));
        facts.insert("new_from".to_owned(), Value::from(new_from));
        Self {
            event: GuardrailEvent::BeforeModel,
            tool: None,
            facts,
            replaces: ReplaceTarget::Nothing,
        }
    }

    /// An answer of the model.
    pub(super) fn answer(answer: &ModelAnswer) -> Self {
        let calls = answer.calls.iter().map(|call| {
            let function = &call.function;
            json!({"name": function.name, "arguments": arguments_of(&function.arguments)})
        });
        let mut facts = facts_of(GuardrailEvent::AfterModel);
        facts.insert("text".to_owned(), Value::from(answer.content.as_str()));
        facts.insert("tool_calls".to_owned(), calls.collect());
        // Users see these texts beside the answer, so they are judged with it.
        let (mut reasoning, mut refusal) = (String::new(), String::new());
        for event in &answer.held {
            match event {
                Event::Reasoning(text) => reasoning.push_str(text),
                Event::Refusal(text) => refusal.push_str(text),
                _ => {}
            }
        }
        for (name, text) in [("reasoning", reasoning), ("refusal", refusal)] {
            if !text.is_empty() {
                facts.insert(name.to_owned(), Value::from(text));
            }
        }
        Self {
            event: GuardrailEvent::AfterModel,
            tool: None,
            facts,
            // A text beside calls is not all of an answer.
            replaces: if answer.calls.is_empty() {
                ReplaceTarget::Text("text")
            } else {
                ReplaceTarget::Nothing
            },
        }
    }

    /// A call before it is made.
    pub(super) fn call(call: &'a ToolCall, arguments: Map<String, Value>) -> Self {
        let name = call.function.name.as_str();
        let mut facts = facts_of(GuardrailEvent::BeforeTool);
        facts.insert("tool".to_owned(), Value::from(name));
        facts.insert("arguments".to_owned(), Value::Object(arguments));
        Self {
            event: GuardrailEvent::BeforeTool,
            tool: Some(name),
            facts,
            replaces: ReplaceTarget::Arguments,
        }
    }

    /// The result of a call.
    pub(super) fn result(name: &'a str, arguments: &str, text: String) -> Self {
        let mut room = MAX_SHOWN_BYTES;
        let mut facts = facts_of(GuardrailEvent::AfterTool);
        facts.insert("tool".to_owned(), Value::from(name));
        let arguments = parse_arguments(arguments).unwrap_or_default();
        facts.insert("arguments".to_owned(), Value::Object(arguments));
        facts.insert(
            "result".to_owned(),
            Value::from(cut_to_room(text, &mut room)),
        );
        Self {
            event: GuardrailEvent::AfterTool,
            tool: Some(name),
            facts,
            replaces: ReplaceTarget::Text("result"),
        }
    }
}
