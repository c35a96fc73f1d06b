//! Conversation starters as the configuration of the agent's deployment (quickapps 37).

use serde_json::{Value, json};

use crate::manifest::Manifest;
use crate::manifest::feature::{ConversationStarters, Starter};

/// The default text above starters.
const DEFAULT_INTRO: &str = "Select an action";

/// The schema that a client shows as buttons; empty when the manifest has no starters.
pub fn starters_configuration(manifest: &Manifest) -> Value {
    let old = manifest.starters.as_deref().unwrap_or_default();
    match &manifest.conversation_starters {
        Some(starters) => starters_schema(starters),
        None if old.is_empty() => json!({}),
        None => starters_schema(&ConversationStarters {
            intro_text: DEFAULT_INTRO.to_owned(),
            chat_message_input_disabled: false,
            auto_submit: true,
            starters: old.iter().map(|text| from_text(text)).collect(),
        }),
    }
}

fn from_text(text: &str) -> Starter {
    Starter {
        title: text.to_owned(),
        text: text.to_owned(),
    }
}

fn starters_schema(starters: &ConversationStarters) -> Value {
    // `const` counts from 1 (quickapps 37).
    let buttons = (1..).zip(&starters.starters);
    let buttons: Vec<_> = buttons
        .map(|(number, starter): (u32, _)| {
            json!({
                "const": number,
                "title": starter.title,
                "dial:widgetOptions": {
                    "populateText": starter.text,
                    "submit": starters.auto_submit,
                },
            })
        })
        .collect();
    json!({
        "type": "object",
        "properties": {
            "starter": {
                "type": "number",
                "description": starters.intro_text,
                "dial:widget": "buttons",
                "oneOf": buttons,
            },
        },
        "dial:chatMessageInputDisabled": starters.chat_message_input_disabled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{ManifestReader, ManifestSettings};

    fn check(more: &Value, expected: &Value) {
        let mut document = json!({
            "orchestrator": {"deployment": {"deployment_id": "m"}},
            "contexts": [],
            "tool_sets": [],
        });
        let members = document.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        let manifest = ManifestReader::new(ManifestSettings::default())
            .manifest(document)
            .unwrap();
        assert_eq!(starters_configuration(&manifest.value), *expected);
    }

    #[test]
    fn starters_are_buttons_counted_from_one() {
        check(
            &json!({"starters": ["old"], "conversation_starters": {
                "intro_text": "Choose",
                "chat_message_input_disabled": true,
                "auto_submit": false,
                "starters": [{"title": "A", "text": "do a"}, {"title": "B", "text": "do b"}],
            }}),
            &json!({
                "type": "object",
                "properties": {"starter": {
                    "type": "number",
                    "description": "Choose",
                    "dial:widget": "buttons",
                    "oneOf": [
                        {"const": 1, "title": "A",
                         "dial:widgetOptions": {"populateText": "do a", "submit": false}},
                        {"const": 2, "title": "B",
                         "dial:widgetOptions": {"populateText": "do b", "submit": false}},
                    ],
                }},
                "dial:chatMessageInputDisabled": true,
            }),
        );
    }

    #[test]
    fn old_starters_are_title_and_text_in_one() {
        check(
            &json!({"starters": ["Hello"]}),
            &json!({
                "type": "object",
                "properties": {"starter": {
                    "type": "number",
                    "description": "Select an action",
                    "dial:widget": "buttons",
                    "oneOf": [{"const": 1, "title": "Hello",
                               "dial:widgetOptions": {"populateText": "Hello", "submit": true}}],
                }},
                "dial:chatMessageInputDisabled": false,
            }),
        );
    }

    #[test]
    fn without_starters_there_is_nothing_to_configure() {
        check(&json!({}), &json!({}));
        check(&json!({"starters": []}), &json!({}));
    }
}
