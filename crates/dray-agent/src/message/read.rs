//! Reads messages member by member. A derived implementation would copy every member into a buffer before it reads the
//! message, because unknown members are kept (`flatten`), and texts a second time, because content has two forms
//! (`untagged`). Each request brings the complete conversation.

use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Map;

use super::{Content, Message, Role};

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MessageVisitor)
    }
}

struct MessageVisitor;

impl<'de> Visitor<'de> for MessageVisitor {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Message, A::Error> {
        let mut role: Option<Role> = None;
        let mut message = Message {
            // The role of the message replaces this one.
            role: Role::User,
            content: None,
            name: None,
            tool_call_id: None,
            tool_calls: None,
            custom_content: None,
            rest: Map::new(),
        };
        // Of equal names the last one counts, as in a JSON tree.
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "role" => role = Some(members.next_value()?),
                "content" => message.content = members.next_value()?,
                "name" => message.name = members.next_value()?,
                "tool_call_id" => message.tool_call_id = members.next_value()?,
                "tool_calls" => message.tool_calls = members.next_value()?,
                "custom_content" => message.custom_content = members.next_value()?,
                _ => {
                    let value = members.next_value()?;
                    message.rest.insert(name, value);
                }
            }
        }
        message.role = role.ok_or_else(|| A::Error::missing_field("role"))?;
        Ok(message)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Content, E> {
        Ok(Content::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Content, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = elements.next_element()? {
            parts.push(part);
        }
        Ok(Content::Parts(parts))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::{CustomContent, ToolCall};
    use super::*;

    /// The implementation that serde derives.
    #[derive(Deserialize)]
    struct DerivedMessage {
        role: Role,
        #[serde(default)]
        content: Option<DerivedContent>,
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        tool_call_id: Option<String>,
        #[serde(default)]
        tool_calls: Option<Vec<ToolCall>>,
        #[serde(default)]
        custom_content: Option<CustomContent>,
        #[serde(flatten)]
        rest: Map<String, Value>,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum DerivedContent {
        Text(String),
        Parts(Vec<Map<String, Value>>),
    }

    impl From<DerivedMessage> for Message {
        fn from(derived: DerivedMessage) -> Self {
            let content = derived.content.map(|content| match content {
                DerivedContent::Text(text) => Content::Text(text),
                DerivedContent::Parts(parts) => Content::Parts(parts),
            });
            Self {
                role: derived.role,
                content,
                name: derived.name,
                tool_call_id: derived.tool_call_id,
                tool_calls: derived.tool_calls,
                custom_content: derived.custom_content,
                rest: derived.rest,
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2_i64..3).prop_map(Value::from),
            "user|tool|robot|[a\u{1F600}\"]{0,3}".prop_map(Value::from),
            Just(json!({"id": "1", "function": {"name": "f", "arguments": "{"}, "index": 0})),
            Just(json!({"attachments": [{"title": "t", "mood": 1}], "state": null, "form": {}})),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(("type|text|x", inner), 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_a_derived_implementation_reads_it(
            role in prop_oneof![4 => Just(json!("assistant")), 1 => any_value()],
            members in prop::collection::vec(
                ("content|name|tool_call_id|tool_calls|custom_content|refusal|x", any_value()),
                0..6,
            ),
        ) {
            let mut message = Value::Object(members.into_iter().collect());
            message["role"] = role;
            let derived = serde_json::from_value::<DerivedMessage>(message.clone()).map(Message::from);
            let text = message.to_string();
            for read in [serde_json::from_value(message).ok(), serde_json::from_str(&text).ok()] {
                prop_assert_eq!(&read, &derived.as_ref().ok().cloned(), "{}", text);
            }
        }
    }
}
