//! Questions of a tool to the user, and the answers to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Questions of one call, by the keys of the tool.
pub type QuestionMap = BTreeMap<String, UserQuestion>;

/// Answers, by the keys of the questions.
pub type AnswerMap = BTreeMap<String, UserAnswer>;

/// Question of an MCP server to the user during a call (elicitation).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum UserQuestion {
    /// A form to fill in.
    Form {
        /// Text of the tool for the user.
        message: String,
        /// JSON schema of the form: an object with properties that are texts, numbers, booleans or choices.
        schema: Value,
    },
    /// An action of the user at a web page. Show the whole address, and open it only when the user agrees.
    Url {
        /// Text of the tool for the user.
        message: String,
        /// Address of the page, `http` or `https`.
        url: String,
    },
}

/// The user's reaction to a question: accept, decline or cancel (MCP elicitation).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", content = "content", rename_all = "lowercase")]
pub enum UserAnswer {
    /// The values of the form; empty for a page. Values that are left out become the defaults of the form.
    #[serde(rename = "accept")]
    Accepted(Map<String, Value>),
    /// The user does not answer, and the tool may continue without an answer.
    #[serde(rename = "decline")]
    Declined,
    /// The user cancels the call.
    #[serde(rename = "cancel")]
    Cancelled,
}

/// The question of a call to the user before it continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolQuestion {
    /// The questions; at least one.
    pub questions: QuestionMap,
    /// How the call continues, only for [`Tool::resume`](crate::Tool::resume). It may contain data that only the
    /// tool may see.
    pub resume: Value,
    /// Whether the call has ended as if the user had cancelled, with the output as its result.
    pub is_over: bool,
}

/// The answers of the user to a call that asked.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsweredQuestion {
    /// The same value as [`ToolQuestion::resume`].
    pub resume: Value,
    /// An answer for each question.
    pub answers: AnswerMap,
}

impl ToolQuestion {
    /// The same answer to all questions.
    pub fn answered(&self, answer: &UserAnswer) -> AnsweredQuestion {
        let answers = self.questions.keys();
        AnsweredQuestion {
            resume: self.resume.clone(),
            answers: answers.map(|key| (key.clone(), answer.clone())).collect(),
        }
    }
}

impl UserQuestion {
    /// Text of the tool for the user.
    pub fn message(&self) -> &str {
        match self {
            Self::Form { message, .. } | Self::Url { message, .. } => message,
        }
    }

    /// The fields of the form with their schemas; none of a page.
    pub fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        let schema = match self {
            Self::Form { schema, .. } => schema,
            Self::Url { .. } => &Value::Null,
        };
        schema["properties"].as_object().into_iter().flatten()
    }

    /// Whether the form needs a value of this field.
    pub fn requires(&self, name: &str) -> bool {
        let Self::Form { schema, .. } = self else {
            return false;
        };
        let required = schema["required"].as_array().into_iter().flatten();
        required.into_iter().any(|required| required == name)
    }

    /// The values of an accepted form with its defaults (SEP-1034).
    ///
    /// # Errors
    ///
    /// A value that the form does not allow, or that is missing, as a sentence for the agent.
    pub fn completed(&self, mut values: Map<String, Value>) -> Result<Map<String, Value>, String> {
        for name in values.keys() {
            // The server validates with the same schema and would refuse the whole answer.
            if !self.properties().any(|(known, _)| known == name) {
                return Err(format!("The form has no field `{name}`."));
            }
        }
        for (name, property) in self.properties() {
            if let Some(value) = values.get(name) {
                if !is_allowed(property, value) {
                    let accepted = accepted_values(property);
                    return Err(format!("The field `{name}` takes: {accepted}."));
                }
            } else if let Some(default) = property.get("default") {
                values.insert(name.clone(), default.clone());
            } else if self.requires(name) {
                return Err(format!("The field `{name}` is missing."));
            }
        }
        Ok(values)
    }
}

/// Choices of a property: `enum`, or `oneOf` and `anyOf` with `const` (SEP-1330).
pub fn choices(property: &Value) -> Vec<&Value> {
    let plain = property["enum"].as_array().into_iter().flatten();
    let titled = ["oneOf", "anyOf"].into_iter();
    let titled = titled.flat_map(|key| property[key].as_array().into_iter().flatten());
    plain
        .chain(titled.filter_map(|option| option.get("const")))
        .collect()
}

fn is_allowed(property: &Value, value: &Value) -> bool {
    let is_within = |length: Option<f64>, least: &str, most: &str| {
        let is_above = property[least]
            .as_f64()
            .is_none_or(|least| length >= Some(least));
        is_above
            && property[most]
                .as_f64()
                .is_none_or(|most| length <= Some(most))
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "lengths of texts and lists are small"
    )]
    let as_length = |length: usize| Some(length as f64);
    let choices = choices(property);
    match property["type"].as_str() {
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() && is_within(value.as_f64(), "minimum", "maximum"),
        Some("number") => value.is_number() && is_within(value.as_f64(), "minimum", "maximum"),
        Some("array") => value.as_array().is_some_and(|items| {
            is_within(as_length(items.len()), "minItems", "maxItems")
                && items
                    .iter()
                    .all(|item| is_allowed(&property["items"], item))
        }),
        // Items of a list of choices may have no type.
        _ => value.as_str().is_some_and(|text| {
            (choices.is_empty() || choices.contains(&value))
                && is_within(as_length(text.chars().count()), "minLength", "maxLength")
        }),
    }
}

/// The values that a field takes, for people.
pub fn accepted_values(property: &Value) -> String {
    let list = |choices: Vec<&Value>| {
        let texts: Vec<_> = choices.iter().map(ToString::to_string).collect();
        texts.join(" or ")
    };
    let choices = choices(property);
    if !choices.is_empty() {
        return list(choices);
    }
    match property["type"].as_str() {
        Some("array") => format!("a list of {}", accepted_values(&property["items"])),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => "a whole number".to_owned(),
        Some("number") => "a number".to_owned(),
        _ => "a text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> UserQuestion {
        UserQuestion::Form {
            message: "Check.".to_owned(),
            schema: json!({"type": "object", "required": ["account"], "properties": {
                "account": {"type": "string", "minLength": 2},
                "age": {"type": "integer", "minimum": 1, "default": 30},
                "status": {"type": "string", "enum": ["on", "off"]},
                "tags": {"type": "array", "maxItems": 1, "items": {"anyOf": [{"const": "a"}, {"const": "b"}]}},
            }}),
        }
    }

    fn completed(values: &Value) -> Result<Value, String> {
        let values = values.as_object().unwrap().clone();
        form().completed(values).map(Value::Object)
    }

    #[test]
    fn values_that_are_left_out_become_defaults() {
        let expected = json!({"account": "ab", "age": 30});
        assert_eq!(completed(&json!({"account": "ab"})), Ok(expected));
    }

    #[test]
    fn values_that_the_form_does_not_allow_are_refused_with_what_it_takes() {
        for (values, reason) in [
            (json!({}), "The field `account` is missing."),
            (json!({"account": 7}), "The field `account` takes: a text."),
            (
                json!({"account": "a"}),
                "The field `account` takes: a text.",
            ),
            (
                json!({"account": "ab", "age": 0}),
                "The field `age` takes: a whole number.",
            ),
            (
                json!({"account": "ab", "age": 1.5}),
                "The field `age` takes: a whole number.",
            ),
            (
                json!({"account": "ab", "status": "x"}),
                "The field `status` takes: \"on\" or \"off\".",
            ),
            (
                json!({"account": "ab", "tags": ["a", "b"]}),
                "The field `tags` takes: a list of \"a\" or \"b\".",
            ),
            (
                json!({"account": "ab", "tags": ["c"]}),
                "The field `tags` takes: a list of \"a\" or \"b\".",
            ),
            (
                json!({"account": "ab", "other": 1}),
                "The form has no field `other`.",
            ),
        ] {
            assert_eq!(completed(&values), Err(reason.to_owned()), "{values}");
        }
    }
}
