//! Messages in spans, in the form of OpenTelemetry's conventions for generative AI (`gen-ai-input-messages.json` and
//! `gen-ai-output-messages.json`). The limit cuts texts and leaves out old messages, so the value is always JSON.

use dray_agent::event::FinishReason;
use dray_agent::message::{Content, Message, Role, ToolCall};
use serde_json::{Value, json};

use crate::turn::approval_forms::message_text;
use crate::turn::relay::ModelAnswer;

/// The messages of a prompt: the newest ones, whose contents have at most `max_chars` characters together.
pub(super) fn input_messages(messages: &[Message], max_chars: usize) -> String {
    let mut budget = ContentBudget(max_chars);
    let mut shown = Vec::new();
    for message in messages.iter().rev() {
        if budget.0 == 0 {
            break;
        }
        // A message without a text counts too, because the number of messages has no limit.
        budget.0 -= 1;
        shown.push(budget.message(message));
    }
    shown.reverse();
    Value::from(shown).to_string()
}

/// An answer of the model, whose contents have at most `max_chars` characters together.
pub(super) fn output_messages(answer: &ModelAnswer, max_chars: usize) -> String {
    let mut budget = ContentBudget(max_chars);
    let mut parts = Vec::new();
    if !answer.content.is_empty() {
        parts.push(budget.text(&answer.content));
    }
    parts.extend(answer.calls.iter().map(|call| budget.call(call)));
    let reason = match answer.reason.unwrap_or_default() {
        // The conventions have the singular.
        FinishReason::ToolCalls => "tool_call",
        reason => reason.as_str(),
    };
    json!([{"role": "assistant", "parts": parts, "finish_reason": reason}]).to_string()
}

/// The characters that contents may still have.
struct ContentBudget(usize);

impl ContentBudget {
    fn message(&mut self, message: &Message) -> Value {
        let mut parts = match &message.content {
            None => Vec::new(),
            Some(_) if message.role == Role::Tool => {
                let response = self.cut(&message_text(message));
                let id = &message.tool_call_id;
                vec![json!({"type": "tool_call_response", "id": id, "response": response})]
            }
            Some(Content::Text(text)) => vec![self.text(text)],
            Some(Content::Parts(parts)) => parts
                .iter()
                .map(|part| match part.get("text").and_then(Value::as_str) {
                    Some(text) => self.text(text),
                    // Pictures and the like are named only.
                    None => json!({"type": part.get("type")}),
                })
                .collect(),
        };
        parts.extend(message.calls().iter().map(|call| self.call(call)));
        json!({"role": message.role.as_str(), "parts": parts})
    }

    fn text(&mut self, text: &str) -> Value {
        json!({"type": "text", "content": self.cut(text)})
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        let function = &call.function;
        let cut = self.cut(&function.arguments);
        let whole = (cut.len() == function.arguments.len()).then(|| serde_json::from_str(&cut));
        let arguments: Option<Value> = whole.and_then(Result::ok);
        let arguments = arguments.unwrap_or_else(|| Value::from(cut));
        json!({"type": "tool_call", "id": call.id, "name": function.name, "arguments": arguments})
    }

    /// The beginning of a text that the budget still has room for.
    fn cut(&mut self, text: &str) -> String {
        let cut: String = text.chars().take(self.0).collect();
        self.0 -= cut.chars().count();
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation() -> Vec<Message> {
        let picture =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        let call = json!({"id": "c", "type": "function", "function": {"name": "order", "arguments": "{\"n\":1}"}});
        let messages = json!([
            {"role": "system", "content": "You help."},
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]},
            {"role": "assistant", "content": "I order.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "ordered"},
        ]);
        serde_json::from_value(messages).unwrap()
    }

    fn shown(max_chars: usize) -> Value {
        serde_json::from_str(&input_messages(&conversation(), max_chars)).unwrap()
    }

    #[test]
    fn messages_have_the_form_of_the_conventions() {
        assert_eq!(
            shown(1000),
            json!([
                {"role": "system", "parts": [{"type": "text", "content": "You help."}]},
                {"role": "user", "parts": [{"type": "text", "content": "What is it?"}, {"type": "image_url"}]},
                {"role": "assistant", "parts": [
                    {"type": "text", "content": "I order."},
                    {"type": "tool_call", "id": "c", "name": "order", "arguments": {"n": 1}},
                ]},
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "ordered"}]},
            ])
        );
        let answer = ModelAnswer {
            content: "Done.".to_owned(),
            calls: conversation()[2].calls().to_vec(),
            reason: Some(FinishReason::ToolCalls),
            ..ModelAnswer::default()
        };
        let output: Value = serde_json::from_str(&output_messages(&answer, 7)).unwrap();
        assert_eq!(
            output,
            json!([{"role": "assistant", "finish_reason": "tool_call", "parts": [
                {"type": "text", "content": "Done."},
                {"type": "tool_call", "id": "c", "name": "order", "arguments": "{\""},
            ]}])
        );
    }

    #[test]
    fn a_limit_keeps_the_newest_messages_and_the_value_stays_json() {
        assert_eq!(
            shown(12),
            json!([
                {"role": "assistant", "parts": [
                    {"type": "text", "content": "I o"},
                    {"type": "tool_call", "id": "c", "name": "order", "arguments": ""},
                ]},
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "ordered"}]},
            ])
        );
        assert_eq!(shown(0), json!([]));
    }
}
