//! Questions of a server to the user during a call (MCP, elicitation), and the answers to them.

use std::fmt;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_tool::{AnswerMap, QuestionMap, UserAnswer, UserQuestion};
use dray_types::terminal::printable_text;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest};
use serde_json::{Value, json};

use crate::declaration::clean_schema;

/// Most questions of one call that are asked in the conversation.
pub(crate) const MAX_QUESTIONS: usize = 8;

/// Asks users of servers' questions while a call waits.
///
/// Without one the call returns the questions, and [`Tool::resume`](dray_tool::Tool::resume) continues it.
#[async_trait]
pub trait QuestionPort: fmt::Debug + Send + Sync {
    /// Shows the question of a tool set to the user behind this caller and waits for the answer. The future is dropped
    /// when the call ends first, and no question may be shown after that.
    async fn ask(&self, toolset: &str, question: &UserQuestion, caller: &Caller) -> UserAnswer;
}

/// The question in a request of a server; `None` for requests that need no user.
pub(crate) fn question_of_request(request: &InputRequest) -> Option<UserQuestion> {
    match request {
        InputRequest::Elicitation(request) => question_of_params(&request.params),
        _ => None,
    }
}

/// Like [`question_of_request`], for a request outside of a result (MCP 2025-11-25).
pub(crate) fn question_of_params(params: &ElicitRequestParams) -> Option<UserQuestion> {
    match params {
        ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } => {
            let mut schema = serde_json::to_value(requested_schema).ok()?;
            clean_schema(&mut schema);
            Some(UserQuestion::Form {
                message: printable_text(message).into_owned(),
                schema,
            })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            url_question(message, url)
        }
        _ => None,
    }
}

fn url_question(message: &str, url: &str) -> Option<UserQuestion> {
    let mut parsed = url::Url::parse(url).ok()?;
    // Other schemes run programs or scripts at the user's side.
    let is_web = matches!(parsed.scheme(), "http" | "https");
    // A user name can look like the host (RFC 3986 section 7.6), and pages need none.
    let has_user = !parsed.username().is_empty() || parsed.password().is_some();
    if has_user {
        parsed.set_username("").ok()?;
        parsed.set_password(None).ok()?;
    }
    // The user judges the address by what it looks like, so other characters are shown encoded.
    let is_plain = !has_user && url.bytes().all(|byte| byte.is_ascii_graphic());
    is_web.then(|| UserQuestion::Url {
        message: printable_text(message).into_owned(),
        url: if is_plain {
            url.to_owned()
        } else {
            parsed.into()
        },
    })
}

/// The pages that a server wants the user to visit before a call can succeed (MCP 2025-11-25,
/// `URLElicitationRequiredError`), from the data of its error.
pub(crate) fn required_pages(data: &Value) -> QuestionMap {
    let pages = data.get("elicitations").and_then(Value::as_array);
    let questions = pages.into_iter().flatten().filter_map(|page| {
        let text = |name: &str| page.get(name).and_then(Value::as_str);
        url_question(text("message")?, text("url")?)
    });
    let numbered = questions.take(MAX_QUESTIONS).enumerate();
    numbered
        .map(|(number, question)| (format!("question_{}", number + 1), question))
        .collect()
}

/// The answer as the protocol has it. Values that the form does not allow count as a cancelled question.
pub(crate) fn elicit_result(question: &UserQuestion, answer: UserAnswer) -> ElicitResult {
    let action = match answer {
        UserAnswer::Accepted(values) => match question.completed(values) {
            // The answer about a URL has no content: what the user does there must not reach the client.
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
                // `decline` would mean that the user refused.
                ElicitationAction::Cancel
            }
        },
        UserAnswer::Declined => ElicitationAction::Decline,
        UserAnswer::Cancelled => ElicitationAction::Cancel,
    };
    ElicitResult::new(action)
}

/// The answers for the server, by key.
pub(crate) fn input_responses(
    questions: &QuestionMap,
    mut answers: AnswerMap,
) -> rmcp::model::InputResponses {
    let responses = questions.iter().map(|(key, question)| {
        // Each question needs an answer; otherwise the server would wait for the missing one.
        let answer = answers.remove(key).unwrap_or(UserAnswer::Cancelled);
        (key.clone(), json!(elicit_result(question, answer)))
    });
    responses.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

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
    fn a_page_outside_the_web_is_not_a_question() {
        let of = |url: &str| {
            let params = json!({"mode": "url", "message": "Agree.", "url": url});
            question_of_params(&serde_json::from_value(params).unwrap())
        };
        assert!(of("https://x.example/terms").is_some());
        for url in ["javascript:alert(1)", "file:///etc/passwd", "terms"] {
            assert_eq!(of(url), None, "{url}");
        }
    }

    #[test]
    fn the_address_of_a_page_begins_with_its_host() {
        let page = |url: &str| url_question("Agree.", url);
        let shown = |url: &str| {
            Some(UserQuestion::Url {
                message: "Agree.".to_owned(),
                url: url.to_owned(),
            })
        };
        for url in [
            "https://bank.example@evil.example/a?b=c",
            "https://bank.example:443@evil.example/a?b=c",
            "https://:x@evil.example/a?b=c",
        ] {
            assert_eq!(page(url), shown("https://evil.example/a?b=c"), "{url}");
        }
        let with_port = "http://bank.example:8080/a@b";
        assert_eq!(page(with_port), shown(with_port));
    }

    #[test]
    fn a_question_has_no_characters_that_hide_or_turn_its_text() {
        let params = json!({"mode": "url", "message": "Agree\u{202e}.\u{1b}[8m",
            "url": "https://раураl.example/a\u{202e}b"});
        let question = question_of_params(&serde_json::from_value(params).unwrap());
        let expected = UserQuestion::Url {
            message: "Agree.".to_owned(),
            url: "https://xn--l-7sba6dbr.example/a%E2%80%AEb".to_owned(),
        };
        assert_eq!(question, Some(expected));
        let params = json!({"message": "Name\u{7}?", "requestedSchema": {"type": "object", "properties": {
            "name": {"type": "string", "description": "Your\u{200b} name"}}}});
        let question = question_of_params(&serde_json::from_value(params).unwrap());
        let Some(UserQuestion::Form { message, schema }) = question else {
            panic!("{question:?}");
        };
        let description = &schema["properties"]["name"]["description"];
        assert_eq!(
            (message.as_str(), description),
            ("Name?", &json!("Your name"))
        );
    }
}
