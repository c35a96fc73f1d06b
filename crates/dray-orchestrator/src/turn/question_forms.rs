//! Questions of tools to the user during a call (MCP, elicitation) in the forms that clients get, and the answers that
//! they send back.
//!
//! - A client that declares the function `request_input` gets each question as a call of it, and answers with a result.
//! - Every other client gets a text, whose last line names the question. The next message of the user answers it.

use std::fmt::Write as _;

use dray_agent::failure::RequestFailure;
use dray_agent::message::{FunctionCall, Message, ToolCall};
use dray_tool::{AnswerMap, QuestionMap, UserAnswer, UserQuestion, accepted_values, choices};
use serde_json::{Map, Value, json};

use super::approval_forms::{CONTINUE_WORD, MARKER_START, message_text, visible_text};
use super::prepare::iso_minute;
use crate::http::INPUT_TOOL;

/// Code for an answer that does not have the required form, or that the question does not allow.
const ANSWER_CODE: &str = "invalid_answer";

/// A tool's question, for its client.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputRequest {
    /// Id of the question; the answer names it.
    pub(super) id: String,
    /// Where the tool comes from, for people.
    pub(super) source: String,
    /// Name of the tool.
    pub(super) tool: String,
    pub(super) questions: QuestionMap,
    /// See [`super::waiting::question_digest`].
    pub(super) digest: String,
    /// Unix milliseconds from which an answer is not accepted.
    pub(super) expires_ms: u64,
    /// The chat that shows the question too.
    pub(super) chat: Option<String>,
    /// The reason why the chat for such questions does not show it.
    pub(super) not_in_chat: Option<String>,
}

/// Questions as calls of the function that a client declared for them.
pub(super) fn input_calls(requests: &[InputRequest]) -> Vec<ToolCall> {
    let call = |request: &InputRequest| {
        let mut arguments = json!({
            "source": request.source,
            "tool": request.tool,
            "questions": request.questions,
            "digest": request.digest,
            "expires_at": request.expires_ms / 1000,
        });
        let in_chat = [
            ("chat", &request.chat),
            ("not_in_chat", &request.not_in_chat),
        ];
        for (name, value) in in_chat {
            if let (Some(value), Some(members)) = (value, arguments.as_object_mut()) {
                members.insert(name.to_owned(), json!(value));
            }
        }
        ToolCall {
            id: request.id.clone(),
            kind: "function".to_owned(),
            function: FunctionCall {
                name: INPUT_TOOL.to_owned(),
                arguments: arguments.to_string(),
                rest: Map::new(),
            },
            rest: Map::new(),
        }
    };
    requests.iter().map(call).collect()
}

/// Whether a question was sent back unchanged. Clients may leave out its text but not change it.
pub(super) fn is_same_question(echo: &ToolCall, questions: &QuestionMap, digest: &str) -> bool {
    let Ok(Value::Object(shown)) = serde_json::from_str(&echo.function.arguments) else {
        return true;
    };
    let is_same = |name: &str, own: &Value| shown.get(name).is_none_or(|given| given == own);
    is_same("digest", &json!(digest)) && is_same("questions", &json!(questions))
}

/// The action of a client that waits for the chat instead of giving an answer.
const CONTINUE_ACTION: &str = "continue";

/// Whether the result of a call of `request_input` leaves the answer to the chat.
pub(super) fn waits_for_chat(message: &Message) -> bool {
    let answers: Value = serde_json::from_str(&message_text(message)).unwrap_or_default();
    answers.get("action").and_then(Value::as_str) == Some(CONTINUE_ACTION)
}

/// The result that leaves the answer to the chat.
pub(super) fn wait_result() -> Value {
    json!({ "action": CONTINUE_ACTION })
}

/// Reads the result of a call of `request_input`.
///
/// # Errors
///
/// 400 that says what is expected. No answer is recorded then, and the question still waits.
pub(super) fn read_input_answer(
    message: &Message,
    questions: &QuestionMap,
) -> Result<AnswerMap, RequestFailure> {
    let values: Value = serde_json::from_str(&message_text(message)).unwrap_or_default();
    let only = questions.len() == 1 && values.get("answers").is_none();
    let answers = questions.iter().map(|(key, question)| {
        let answer = if only {
            Some(&values)
        } else {
            values.get("answers").and_then(|all| all.get(key))
        };
        let answer = answer.ok_or_else(|| format!("`{key}` has no answer."))?;
        read_answer(question, answer)
            .map(|answer| (key.clone(), answer))
            .map_err(|reason| format!("`{key}`: {reason}"))
    });
    answers.collect::<Result<_, String>>().map_err(|reason| {
        RequestFailure::of_parameter(
            "messages",
            ANSWER_CODE,
            format!(
                "The result of '{INPUT_TOOL}' must be JSON such as {{\"action\": \"accept\", \"content\": {{…}}}}, with the \
                 action 'accept', 'decline' or 'cancel'; for several questions {{\"answers\": {{\"key\": …}}}}. Nothing was \
                 done. {reason}"
            ),
        )
    })
}

fn read_answer(question: &UserQuestion, answer: &Value) -> Result<UserAnswer, String> {
    match answer.get("action").and_then(Value::as_str) {
        Some("accept") => {
            let values = match answer.get("content") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(values)) => values.clone(),
                Some(_) => return Err("The content must be an object.".to_owned()),
            };
            // The values are completed here, so that the client learns about mistakes.
            Ok(UserAnswer::Accepted(question.completed(values)?))
        }
        Some("decline") => Ok(UserAnswer::Declined),
        Some("cancel") => Ok(UserAnswer::Cancelled),
        _ => Err("It has no action.".to_owned()),
    }
}

/// Answers as the result of a call of `request_input`.
pub(super) fn answer_result(answers: &AnswerMap) -> Value {
    json!({ "answers": answers })
}

/// A question as a text, which ends with its id.
pub(super) fn input_text(request: &InputRequest, id: &str) -> String {
    let mut text = String::new();
    let (source, tool) = (&request.source, &request.tool);
    let _ = writeln!(text, "The tool `{tool}` of `{source}` asks you:\n");
    for (key, question) in &request.questions {
        if request.questions.len() > 1 {
            let _ = writeln!(text, "`{}`:\n", visible_text(key));
        }
        for line in question.message().lines() {
            let _ = writeln!(text, "> {}", visible_text(line));
        }
        text.push('\n');
        match question {
            UserQuestion::Url { url, .. } => {
                let _ = writeln!(
                    text,
                    "Open this page if you agree: <{}>\n",
                    visible_text(url)
                );
            }
            UserQuestion::Form { .. } => push_fields(&mut text, question),
        }
    }
    if let Some(chat) = &request.chat {
        let _ = writeln!(
            text,
            "The people of the chat `{chat}` are asked too; the first answer holds. Send `{CONTINUE_WORD}` to wait for \
             theirs.\n"
        );
    }
    if let Some(reason) = &request.not_in_chat {
        let _ = writeln!(text, "Only you can answer. {reason}\n");
    }
    let _ = write!(
        text,
        "{} `decline` if you do not want to answer, `cancel` to end the call. Every other answer cancels as well.\n\n\
         {MARKER_START}{id}, until {}]",
        instruction(&request.questions),
        iso_minute(request.expires_ms)
    );
    text
}

/// The fields of a form, with what each takes.
fn push_fields(text: &mut String, question: &UserQuestion) {
    for (name, property) in question.properties() {
        let label = ["title", "description"].into_iter();
        let label: Vec<_> = label
            .filter_map(|key| property.get(key)?.as_str())
            .collect();
        let note = match (property.get("default"), question.requires(name)) {
            (Some(default), _) => format!(", {default} if you leave it out"),
            (None, true) => String::new(),
            (None, false) => ", optional".to_owned(),
        };
        let takes = accepted_values(property);
        let label = label.join(": ");
        let colon = if label.is_empty() { "" } else { ": " };
        let line = format!("{name}` ({takes}{note}){colon}{label}");
        let _ = writeln!(text, "- `{}", visible_text(&line));
    }
    text.push('\n');
}

/// The instruction for an answer in text.
fn instruction(questions: &QuestionMap) -> String {
    let Some(question) = questions.values().next().filter(|_| questions.len() == 1) else {
        return "Answer with JSON: an object with the values of each form by its name above, `{}` for a page that you have \
                visited. Or answer"
            .to_owned();
    };
    let fields: Vec<_> = question.properties().collect();
    match (question, fields.as_slice()) {
        (UserQuestion::Url { .. }, _) => "Answer `done` when you have done it, or".to_owned(),
        (UserQuestion::Form { .. }, []) => "Answer `yes` to agree, or".to_owned(),
        (UserQuestion::Form { .. }, [_]) => "Answer with the value, or with".to_owned(),
        (UserQuestion::Form { .. }, _) => {
            "Answer with a line `name: value` for each field, or with".to_owned()
        }
    }
}

/// Reads the answers in a message of the user; `None` when it is not an answer to these questions.
pub(super) fn read_text_answer(questions: &QuestionMap, text: &str) -> Option<AnswerMap> {
    let text = text.trim();
    let all = |answer: UserAnswer| {
        let keys = questions.keys();
        Some(keys.map(|key| (key.clone(), answer.clone())).collect())
    };
    match text.to_lowercase().as_str() {
        "decline" => return all(UserAnswer::Declined),
        "cancel" => return all(UserAnswer::Cancelled),
        _ => {}
    }
    let object = serde_json::from_str::<Map<String, Value>>(text).ok();
    if questions.len() != 1 {
        let object = object?;
        let answers = questions.iter().map(|(key, question)| {
            let values = object.get(key)?.as_object()?.clone();
            let values = question.completed(values).ok()?;
            Some((key.clone(), UserAnswer::Accepted(values)))
        });
        return answers.collect();
    }
    let (key, question) = questions.iter().next()?;
    let answer = match object {
        Some(values) => UserAnswer::Accepted(question.completed(values).ok()?),
        None => single_answer(question, text)?,
    };
    Some(AnswerMap::from([(key.clone(), answer)]))
}

/// The answer to one question, as a person writes it.
fn single_answer(question: &UserQuestion, text: &str) -> Option<UserAnswer> {
    let lower = text.to_lowercase();
    let fields: Vec<_> = question.properties().collect();
    let values = match (question, fields.as_slice()) {
        (UserQuestion::Url { .. }, _) | (_, []) => {
            return match lower.as_str() {
                "yes" | "done" => Some(UserAnswer::Accepted(Map::new())),
                "no" => Some(UserAnswer::Declined),
                _ => None,
            };
        }
        (_, [(name, property)]) => {
            Map::from_iter([((*name).clone(), parse_field(property, text)?)])
        }
        (_, fields) => {
            let mut values = Map::new();
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                let (name, value) = line.split_once(':')?;
                let name = name.trim().trim_matches('`');
                let (name, property) = fields.iter().find(|(known, _)| *known == name)?;
                values.insert((*name).clone(), parse_field(property, value.trim())?);
            }
            values
        }
    };
    question.completed(values).ok().map(UserAnswer::Accepted)
}

/// A value of a field in a text.
fn parse_field(property: &Value, text: &str) -> Option<Value> {
    match property.get("type").and_then(Value::as_str) {
        Some("boolean") => match text.to_lowercase().as_str() {
            "yes" | "true" => Some(json!(true)),
            "no" | "false" => Some(json!(false)),
            _ => None,
        },
        Some("integer") => text.parse::<i64>().ok().map(|number| json!(number)),
        Some("number") => text.parse::<f64>().ok().map(|number| json!(number)),
        Some("array") => {
            let item = property.get("items").unwrap_or(&Value::Null);
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|element| !element.is_empty());
            items.map(|element| parse_field(item, element)).collect()
        }
        _ => {
            // People need not write a choice exactly as the server does.
            let chosen = choices(property).into_iter().find(|choice| {
                choice
                    .as_str()
                    .is_some_and(|choice| choice.eq_ignore_ascii_case(text))
            });
            Some(chosen.cloned().unwrap_or_else(|| json!(text)))
        }
    }
}

#[cfg(test)]
mod tests;
