//! Reads the usual chunks of a response, some words of text or a part of a call, without building a JSON tree.
//!
//! A response has thousands of them, and a tree allocates and hashes each name. A chunk of any other form is left to
//! [`ChunkDelta::read`], which accepts what the many services write.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::delta::{CallDelta, ChunkDelta};

impl ChunkDelta {
    /// Parses a chunk of the usual form, exactly as [`ChunkDelta::read`] does. `None` for any other chunk, even for one
    /// that is not JSON.
    pub(super) fn read_plain(chunk: &[u8]) -> Option<Self> {
        let JsonObject(chunk) = serde_json::from_slice::<JsonObject<PlainChunk>>(chunk).ok()?;
        // Without choices it may be the report of a failure, which the tree finds.
        let choice = chunk.choice?;
        let delta = choice.delta;
        let calls = delta.tool_calls.into_iter().zip(0_u32..);
        Some(Self {
            model: chunk.model.filter(|model| !model.is_empty()),
            content: delta.content,
            reasoning: delta.reasoning_content.or(delta.reasoning),
            refusal: delta.refusal,
            tool_calls: calls
                .map(|(JsonObject(call), position)| CallDelta {
                    index: call
                        .index
                        .map_or(position, |index| u32::try_from(index).unwrap_or(u32::MAX)),
                    id: call.id,
                    name: call.function.name,
                    arguments: call.function.arguments,
                    extra_content: call.extra_content.filter(Value::is_object),
                })
                .collect(),
            finish_reason: choice.finish_reason,
            ..Self::default()
        })
    }
}

/// An object that is read member by member. Of equal names the last one counts, as in a JSON tree.
trait ObjectMembers: Default {
    /// Reads the value of the member `name`.
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        members: &mut A,
    ) -> Result<(), A::Error>;
}

/// Accepts only a JSON object; a derived implementation would accept an array, too.
struct JsonObject<T>(T);

#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Default)]
struct PlainChunk {
    model: Option<String>,
    choice: Option<PlainChoice>,
}

#[derive(Default)]
struct PlainChoice {
    delta: PlainDelta,
    finish_reason: Option<String>,
}

#[derive(Default)]
struct PlainDelta {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Vec<JsonObject<PlainCall>>,
}

#[derive(Default)]
struct PlainCall {
    index: Option<u64>,
    id: Option<String>,
    function: PlainFunction,
    extra_content: Option<Value>,
}

#[derive(Default)]
struct PlainFunction {
    name: Option<String>,
    arguments: Option<String>,
}

impl ObjectMembers for PlainChunk {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name {
            "model" => self.model = members.next_value()?,
            "choices" => {
                // With more choices or none, the tree decides which one counts.
                let [JsonObject(choice)] = members.next_value::<[JsonObject<PlainChoice>; 1]>()?;
                self.choice = Some(choice);
            }
            // Anything but null fails here, so that the tree reads what is counted or reported.
            "error" | "usage" | "statistics" => return read_null(members),
            _ => return ignore_value(members),
        }
        Ok(())
    }
}

impl ObjectMembers for PlainChoice {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name {
            "index" => {
                // Some services leave the index out.
                if members.next_value::<Option<u64>>()?.unwrap_or(0) != 0 {
                    return Err(A::Error::custom("not the first choice"));
                }
            }
            "delta" => {
                let JsonObject(delta) = members.next_value()?;
                self.delta = delta;
            }
            "finish_reason" => self.finish_reason = members.next_value()?,
            "logprobs" | "message" => return read_null(members),
            _ => return ignore_value(members),
        }
        Ok(())
    }
}

impl ObjectMembers for PlainDelta {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name {
            "content" => self.content = members.next_value()?,
            "reasoning_content" => self.reasoning_content = members.next_value()?,
            "reasoning" => self.reasoning = members.next_value()?,
            "refusal" => self.refusal = members.next_value()?,
            "tool_calls" => {
                self.tool_calls = members.next_value::<Option<_>>()?.unwrap_or_default();
            }
            "custom_content" | "function_call" => return read_null(members),
            _ => return ignore_value(members),
        }
        Ok(())
    }
}

impl ObjectMembers for PlainCall {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name {
            "index" => self.index = members.next_value()?,
            "id" => self.id = members.next_value()?,
            "function" => {
                let JsonObject(function) = members.next_value()?;
                self.function = function;
            }
            "extra_content" => self.extra_content = members.next_value()?,
            _ => return ignore_value(members),
        }
        Ok(())
    }
}

impl ObjectMembers for PlainFunction {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        members: &mut A,
    ) -> Result<(), A::Error> {
        match name {
            "name" => self.name = members.next_value()?,
            "arguments" => self.arguments = members.next_value()?,
            _ => return ignore_value(members),
        }
        Ok(())
    }
}

/// Reads a member that the usual chunks have without a value.
fn read_null<'de, A: MapAccess<'de>>(members: &mut A) -> Result<(), A::Error> {
    members.next_value::<()>()
}

fn ignore_value<'de, A: MapAccess<'de>>(members: &mut A) -> Result<(), A::Error> {
    members.next_value::<IgnoredAny>().map(|_| ())
}

impl<'de, T: ObjectMembers> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: ObjectMembers> Visitor<'de> for ObjectVisitor<T> {
    type Value = JsonObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = T::default();
        // A member that occurs twice keeps its last value, as in the tree.
        while let Some(MemberName(name)) = members.next_key()? {
            object.read_member(&name, &mut members)?;
        }
        Ok(JsonObject(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn tree(chunk: &Value) -> ChunkDelta {
        ChunkDelta::read(chunk)
    }

    fn plain(chunk: &Value) -> Option<ChunkDelta> {
        ChunkDelta::read_plain(chunk.to_string().as_bytes())
    }

    #[test]
    fn usual_chunks_need_no_tree() {
        for delta in [
            json!({"role": "assistant", "content": ""}),
            json!({"content": "a \u{e4}\n\"b\"", "refusal": null, "tool_calls": null, "custom_content": null}),
            json!({"content": null, "reasoning": "r"}),
            json!({"reasoning_content": "a", "reasoning": "b"}),
            json!({"tool_calls": [
                {"index": 3, "id": "i", "type": "function", "function": {"name": "f", "arguments": ""}},
                {"function": {"arguments": "{"}}, {"index": u64::MAX, "id": null},
                {"extra_content": {"google": {"thought_signature": "s"}}}, {"extra_content": null},
            ]}),
            json!({}),
        ] {
            let chunk = json!({
                "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": null,
                "choices": [{"index": 0, "delta": delta, "finish_reason": "stop", "logprobs": null}],
            });
            assert_eq!(plain(&chunk), Some(tree(&chunk)), "{chunk}");
        }
    }

    #[test]
    fn chunks_of_other_forms_are_left_to_the_tree() {
        let choice = json!({"index": 0, "delta": {"content": "x"}});
        for chunk in [
            json!({"choices": []}),
            json!({"choices": [choice, choice]}),
            json!({"choices": [{"index": 1, "delta": {"content": "x"}}]}),
            json!({"choices": [[0, {"content": "x"}]]}),
            json!({"choices": [{"delta": ["x"]}]}),
            json!({"choices": [{"delta": {"content": [{"type": "text", "text": "x"}]}}]}),
            json!({"choices": [{"delta": {"custom_content": {"state": 1}}}]}),
            json!({"choices": [{"delta": {"function_call": {"name": "f"}}}]}),
            json!({"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {}}}]}}]}),
            json!({"choices": [{"message": {"content": "x"}}]}),
            json!({"choices": [choice], "usage": {"prompt_tokens": 1}}),
            json!({"choices": [choice], "error": {"message": "e"}}),
            json!({"choices": [choice], "statistics": {}}),
            json!([null, [choice]]),
        ] {
            assert_eq!(plain(&chunk), None, "{chunk}");
        }
        // Half of a surrogate pair, whose other half is in the next chunk.
        let cut = br#"{"choices":[{"delta":{"content":"\ud83d"}}]}"#;
        assert_eq!(ChunkDelta::read_plain(cut), None);
        let twice = br#"{"choices":[{"delta":{"content":"a"},"delta":{"content":"b"}}]}"#;
        assert_eq!(
            ChunkDelta::read_plain(twice),
            Some(tree(&serde_json::from_slice(twice).unwrap()))
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let names = "model|choices|error|usage|index|delta|message|finish_reason|logprobs|content|reasoning|tool_calls|function_call|custom_content|id|function|name|arguments|x";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0_i64..3).prop_map(Value::from),
            (-1.0_f64..1.0).prop_map(Value::from),
            "[a\u{1F600}\\\\]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 48, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec((names, inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_chunk_that_is_read_without_a_tree_is_read_as_with_one(
            top in prop::collection::vec(("model|error|usage|statistics|x", any_value()), 0..2),
            choice in any_value(),
            delta in any_value(),
            call in any_value(),
        ) {
            let mut chunk = Value::Object(top.into_iter().collect());
            let mut choice = choice;
            if let (Some(choice), Value::Object(mut delta)) = (choice.as_object_mut(), delta) {
                delta.insert("tool_calls".to_owned(), json!([call]));
                choice.insert("delta".to_owned(), Value::Object(delta));
            }
            chunk["choices"] = json!([choice]);
            if let Some(read) = plain(&chunk) {
                prop_assert_eq!(read, tree(&chunk));
            }
        }
    }
}
