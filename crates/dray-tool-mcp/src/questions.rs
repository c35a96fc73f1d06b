//! Questions of a server to the user during a call (MCP, elicitation), and the answers to them.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Questions of one result, by the keys of the server.
pub(crate) type QuestionMap = BTreeMap<String, UserQuestion>;

/// Answers, by the keys of the questions.
pub(crate) type AnswerMap = BTreeMap<String, UserAnswer>;

/// A question to the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum UserQuestion {
    /// A form to fill in.
    Form {
        /// Text for the user, by the server.
        message: String,
        /// JSON schema of the form: an object whose properties are texts, numbers, booleans or choices.
        schema: Value,
    },
    /// Something that the user does at a page of the web. Show the whole address, and open it only when the user agrees.
    Url {
        /// Text for the user, by the server.
        message: String,
        /// Address of the page, `http` or `https`.
        url: String,
    },
}

/// The answer of a user.
#[derive(Clone, Debug, PartialEq)]
pub enum UserAnswer {
    /// The values of the form; empty for a page. Values that are left out become the defaults of the form.
    Accepted(Map<String, Value>),
    /// The user does not want to answer, and the tool may continue without.
    Declined,
    /// The user wants the call to end.
    Cancelled,
}

/// Asks users of servers' questions while a call waits.
///
/// Without one, questions go through the conversation: the call ends, the agent asks, and the next call carries the
/// answers.
#[async_trait]
pub trait QuestionPort: fmt::Debug + Send + Sync {
    /// Shows the question of a tool set to the user behind this caller and waits for the answer. The future is dropped
    /// when the call ends first, and nothing may be shown after that.
    async fn ask(&self, toolset: &str, question: &UserQuestion, caller: &Caller) -> UserAnswer;
}

impl UserQuestion {
    /// The question in a request of a server; `None` for requests that are for no user.
    pub(crate) fn of_request(request: &InputRequest) -> Option<Self> {
        match request {
            InputRequest::Elicitation(request) => Self::of_params(&request.params),
            _ => None,
        }
    }

    /// As [`Self::of_request`], of a request that stands alone (MCP 2025-11-25).
    pub(crate) fn of_params(params: &ElicitRequestParams) -> Option<Self> {
        match params {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => Some(Self::Form {
                message: message.clone(),
                schema: serde_json::to_value(requested_schema).ok()?,
            }),
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                let parsed = url::Url::parse(url).ok()?;
                // Other schemes run programs or scripts at the user's side.
                matches!(parsed.scheme(), "http" | "https").then(|| Self::Url {
                    message: message.clone(),
                    url: url.clone(),
                })
            }
            _ => None,
        }
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        let schema = match self {
            Self::Form { schema, .. } => schema,
            Self::Url { .. } => &Value::Null,
        };
        schema["properties"].as_object().into_iter().flatten()
    }

    fn requires(&self, name: &str) -> bool {
        let Self::Form { schema, .. } = self else {
            return false;
        };
        let required = schema["required"].as_array().into_iter().flatten();
        required.into_iter().any(|required| required == name)
    }

    /// One line for the agent: the text, and the fields of the form with what they take.
    pub(crate) fn line(&self, key: &str) -> String {
        match self {
            Self::Form { message, .. } => {
                let fields: Vec<_> = self
                    .properties()
                    .map(|(name, property)| {
                        let note = if self.requires(name) {
                            ""
                        } else {
                            ", optional"
                        };
                        format!("`{name}` ({}{note})", accepted_values(property))
                    })
                    .collect();
                format!("- `{key}`: {message} Fields: {}.", fields.join(", "))
            }
            Self::Url { message, url } => {
                format!(
                    "- `{key}`: {message} The user does this at {url} and says when it is done."
                )
            }
        }
    }

    /// The values of an accepted form with its defaults (SEP-1034).
    ///
    /// # Errors
    ///
    /// A value that the form does not allow, or that is missing, as a sentence for the agent.
    pub(crate) fn completed(
        &self,
        mut values: Map<String, Value>,
    ) -> Result<Map<String, Value>, String> {
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

/// The answer as the protocol has it. Values that the form does not allow count as a cancelled question.
pub(crate) fn elicit_result(question: &UserQuestion, answer: UserAnswer) -> ElicitResult {
    let action = match answer {
        UserAnswer::Accepted(values) => match question.completed(values) {
            // The content of an answer to a URL stays empty: what the user does there is not for the client.
            Ok(_) if matches!(question, UserQuestion::Url { .. }) => {
                return ElicitResult::new(ElicitationAction::Accept);
            }
            Ok(values) => {
                return ElicitResult::new(ElicitationAction::Accept)
                    .with_content(Value::Object(values));
            }
            Err(reason) => {
                tracing::warn!(
                    reason,
                    "an answer to a question of an MCP server is not valid"
                );
                // To decline would say that the user refused.
                ElicitationAction::Cancel
            }
        },
        UserAnswer::Declined => ElicitationAction::Decline,
        UserAnswer::Cancelled => ElicitationAction::Cancel,
    };
    ElicitResult::new(action)
}

/// Choices of a property: `enum`, or `oneOf` and `anyOf` with `const` (SEP-1330).
fn choices(property: &Value) -> Vec<&Value> {
    let plain = property["enum"].as_array().into_iter().flatten();
    let titled = ["oneOf", "anyOf"].into_iter();
    let titled = titled.flat_map(|key| property[key].as_array().into_iter().flatten());
    plain
        .chain(titled.filter_map(|one| one.get("const")))
        .collect()
}

fn is_allowed(property: &Value, value: &Value) -> bool {
    let within = |length: Option<f64>, least: &str, most: &str| {
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
        Some("integer") => value.is_i64() && within(value.as_f64(), "minimum", "maximum"),
        Some("number") => value.is_number() && within(value.as_f64(), "minimum", "maximum"),
        Some("array") => value.as_array().is_some_and(|items| {
            within(as_length(items.len()), "minItems", "maxItems")
                && items
                    .iter()
                    .all(|item| is_allowed(&property["items"], item))
        }),
        // Items of a list of choices may have no type.
        _ => value.as_str().is_some_and(|text| {
            (choices.is_empty() || choices.contains(&value))
                && within(as_length(text.chars().count()), "minLength", "maxLength")
        }),
    }
}

fn accepted_values(property: &Value) -> String {
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

/// The answers for the server, by key.
pub(crate) fn input_responses(
    questions: &QuestionMap,
    mut answers: AnswerMap,
) -> rmcp::model::InputResponses {
    let responses = questions.iter().map(|(key, question)| {
        // Each question needs an answer, or the server waits for the missing one.
        let answer = answers.remove(key).unwrap_or(UserAnswer::Cancelled);
        (key.clone(), json!(elicit_result(question, answer)))
    });
    responses.collect()
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn an_answer_that_the_form_does_not_allow_never_reaches_the_server() {
        let answer = UserAnswer::Accepted(Map::new());
        let result = elicit_result(&form(), answer);
        assert_eq!(
            (result.action, result.content),
            (ElicitationAction::Cancel, None)
        );
    }

    #[test]
    fn a_page_that_is_none_of_the_web_is_no_question() {
        let of = |url: &str| {
            let params = json!({"mode": "url", "message": "Agree.", "url": url});
            UserQuestion::of_params(&serde_json::from_value(params).unwrap())
        };
        assert!(of("https://x.example/terms").is_some());
        for url in ["javascript:alert(1)", "file:///etc/passwd", "terms"] {
            assert_eq!(of(url), None, "{url}");
        }
    }
}
