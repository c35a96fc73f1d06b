//! Calls that wait for input of the user (MCP 2026-07-28, `input_required`, and `elicitation/create` of 2025-11-25): as a
//! text for the agent, and as state that the conversation carries to the next turn.
//!
//! The answers of a user come with a later call of the same tool, in an argument of their own. They count only when the
//! user has written something since the question: an agent cannot answer in the place of its user within one turn.

use dray_agent::message::{Message, Role};
use dray_tool::{ToolFailure, ToolOutput};
use rmcp::model::InputRequiredResult;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::questions::{AnswerMap, QuestionMap, UserAnswer, UserQuestion};

/// Argument with the answers, by the keys of the questions.
pub(crate) const ANSWERS_ARGUMENT: &str = "user_answers";

/// What an answer is in place of values.
const DECLINED_ANSWER: &str = "declined";

/// Key of the state of a tool message.
const STATE_KEY: &str = "mcp_questions";

/// A call that waits for answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingCall {
    /// The tool, by its name at the server.
    pub(crate) tool: String,
    pub(crate) questions: QuestionMap,
    pub(crate) resume: ResumePoint,
}

/// How a call continues with the answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResumePoint {
    /// The call is sent again with the answers, and with the state that the server gave.
    Repeat {
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
    /// The task continues.
    Task { id: String },
    /// The call is sent again, and the server asks again (MCP 2025-11-25).
    Ask,
}

/// What a result wants: questions for the user, or what this client does not offer.
pub(crate) fn wanted_questions(result: &InputRequiredResult) -> Result<QuestionMap, &'static str> {
    let requests = result.input_requests.iter().flatten();
    let questions = requests.map(|(key, request)| {
        let question = UserQuestion::of_request(request);
        question.map(|question| (key.clone(), question))
    });
    let questions: Option<QuestionMap> = questions.collect();
    questions.ok_or("it wants input of a form that this client does not declare")
}

impl PendingCall {
    /// The result for the agent, which asks the user. Its state leads back here.
    pub(crate) fn output(&self) -> ToolOutput {
        let lines = self
            .questions
            .iter()
            .map(|(key, question)| question.line(key));
        let example: Map<String, Value> = self
            .questions
            .keys()
            .map(|key| (key.clone(), json!({})))
            .collect();
        let example = Value::Object(example);
        let text = format!(
            "The tool has not finished: it asks the user.\n{}\nAsk the user this and end your turn; never answer in the \
             place of the user. When the user has answered, call the tool again with the same arguments and the argument \
             `{ANSWERS_ARGUMENT}`: {example}, with the fields of each form filled in, or \"{DECLINED_ANSWER}\" for what the user \
             declines.",
            lines.collect::<Vec<_>>().join("\n")
        );
        ToolOutput {
            state: Some(json!({STATE_KEY: self})),
            ..ToolOutput::text(text, "text/plain")
        }
    }

    /// The newest call of a tool that waits for an answer, if the user has written since.
    fn find(history: &[Message], tool: &str) -> Option<Self> {
        // Answers count only after the user has written something since the question.
        let last_words = history
            .iter()
            .rposition(|message| message.role == Role::User)?;
        let earlier = history.get(..last_words)?.iter().rev();
        let mut states = earlier
            .filter(|message| message.role == Role::Tool)
            .filter_map(|message| {
                message
                    .custom_content
                    .as_ref()?
                    .state
                    .as_ref()?
                    .get(STATE_KEY)
            });
        // From the newest one: an earlier question of the same tool is settled.
        states.find_map(|state| {
            let pending: Self = serde_json::from_value(state.clone()).ok()?;
            (pending.tool == tool).then_some(pending)
        })
    }
}

/// Takes the answers out of the arguments of a call, with the call that waits for them.
///
/// # Errors
///
/// No call waits, or an answer is missing or not valid: the agent can correct it.
pub(crate) fn take_answers(
    arguments: &mut Map<String, Value>,
    schema: &Value,
    history: &[Message],
    tool: &str,
) -> Result<Option<(PendingCall, AnswerMap)>, ToolFailure> {
    // A tool with an argument of this name keeps it.
    if schema["properties"].get(ANSWERS_ARGUMENT).is_some() {
        return Ok(None);
    }
    // Removed before the call: the server does not know this argument. Shifted, so that the others keep their order.
    let Some(given) = arguments.shift_remove(ANSWERS_ARGUMENT) else {
        return Ok(None);
    };
    let refused = |text: &str| ToolFailure::parameter(ANSWERS_ARGUMENT, text);
    let pending = PendingCall::find(history, tool).ok_or_else(|| {
        refused(
            "no question of this tool waits for an answer. The user has to see the question and answer it before: end \
             your turn with it.",
        )
    })?;
    let answers = pending.questions.iter().map(|(key, question)| {
        let answer = match given.get(key) {
            Some(Value::String(word)) if word == DECLINED_ANSWER => UserAnswer::Declined,
            Some(Value::Object(values)) => {
                let values = question.completed(values.clone());
                UserAnswer::Accepted(
                    values.map_err(|reason| refused(&format!("`{key}`: {reason}")))?,
                )
            }
            _ => return Err(refused(&format!("`{key}` has no answer."))),
        };
        Ok((key.clone(), answer))
    });
    let answers = answers.collect::<Result<_, _>>()?;
    Ok(Some((pending, answers)))
}

#[cfg(test)]
mod tests {
    use dray_agent::message::CustomContent;

    use super::*;

    fn pending() -> PendingCall {
        let question = UserQuestion::Form {
            message: "Which account?".to_owned(),
            schema: json!({"required": ["account"], "properties": {"account": {"type": "string"}}}),
        };
        PendingCall {
            tool: "pay".to_owned(),
            questions: QuestionMap::from([("a".to_owned(), question)]),
            resume: ResumePoint::Repeat {
                state: Some("sealed".to_owned()),
            },
        }
    }

    /// The conversation after the tool asked, with these messages behind it.
    fn history(after: &[Role]) -> Vec<Message> {
        let mut result = Message::new(Role::Tool, "");
        result.custom_content = Some(CustomContent {
            state: pending().output().state,
            ..CustomContent::default()
        });
        let after = after.iter().map(|role| Message::new(*role, "text"));
        std::iter::once(Message::new(Role::User, "Pay."))
            .chain([result])
            .chain(after)
            .collect()
    }

    fn taken(
        given: &Value,
        history: &[Message],
        tool: &str,
    ) -> Result<Option<(PendingCall, AnswerMap)>, ToolFailure> {
        let mut arguments = Map::from_iter([("user_answers".to_owned(), given.clone())]);
        take_answers(&mut arguments, &json!({}), history, tool)
    }

    #[test]
    fn answers_count_after_the_user_has_written() {
        let given = json!({"a": {"account": "x"}});
        let answered = history(&[Role::Assistant, Role::User]);
        let (found, answers) = taken(&given, &answered, "pay").unwrap().unwrap();
        let values = Map::from_iter([("account".to_owned(), json!("x"))]);
        assert_eq!(found, pending());
        assert_eq!(answers["a"], UserAnswer::Accepted(values));
        let declined = taken(&json!({"a": "declined"}), &answered, "pay");
        assert_eq!(declined.unwrap().unwrap().1["a"], UserAnswer::Declined);
        for (history, tool) in [
            (history(&[]), "pay"),
            (history(&[Role::Assistant]), "pay"),
            (answered, "other"),
        ] {
            assert!(taken(&given, &history, tool).is_err(), "{history:?}");
        }
    }

    #[test]
    fn answers_that_are_missing_or_not_valid_are_refused() {
        let answered = history(&[Role::Assistant, Role::User]);
        for given in [
            json!({}),
            json!({"a": "yes"}),
            json!({"a": {}}),
            json!({"a": {"account": 7}}),
            json!("declined"),
        ] {
            let refused = taken(&given, &answered, "pay").unwrap_err();
            assert!(matches!(refused, ToolFailure::Parameter { .. }), "{given}");
        }
    }

    #[test]
    fn a_tool_with_an_argument_of_this_name_keeps_it() {
        let mut arguments = Map::from_iter([("user_answers".to_owned(), json!([1]))]);
        let schema = json!({"properties": {"user_answers": {}}});
        let taken = take_answers(&mut arguments, &schema, &history(&[Role::User]), "pay");
        assert_eq!(taken.unwrap(), None);
        assert_eq!(arguments.len(), 1);
    }
}
