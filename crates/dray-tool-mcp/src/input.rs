//! Calls that wait for input of the user (MCP 2026-07-28, `input_required`, and `elicitation/create` of 2025-11-25):
//! the data with which any process can continue the call with the answers.

use dray_tool::{
    AnswerMap, HandledFailure, QuestionMap, ToolFailure, ToolQuestion, UserAnswer, UserQuestion,
};
use rmcp::model::InputRequiredResult;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::questions::{MAX_QUESTIONS, question_of_request};

/// Most bytes of JSON of a call that waits for answers. It is kept in the conversation, together with state of the
/// server.
pub(crate) const MAX_PENDING_BYTES: usize = 256 << 10;

/// A call that waits for answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingCall {
    /// Address of the server, so that no other server gets the answers.
    pub(crate) server: String,
    /// The tool, by its name at the server.
    pub(crate) tool: String,
    pub(crate) questions: QuestionMap,
    pub(crate) resume: ResumePoint,
    /// Earlier answers of the user, for servers that ask again from the beginning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) earlier: Vec<(UserQuestion, UserAnswer)>,
}

/// How a call continues with the answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResumePoint {
    /// The call is sent again with the answers, and with the state that the server returned.
    Repeat {
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
    /// The task continues.
    Task { id: String },
    /// The call is sent again, and the server asks again (MCP 2025-11-25).
    Ask,
    /// The call is sent again when the user has done what the server requires. The server gets no answer (MCP
    /// 2025-11-25, `URLElicitationRequiredError`).
    Visit,
}

/// The requirements of a result: at most [`MAX_QUESTIONS`] questions for the user, or a capability that this client
/// does not offer.
pub(crate) fn required_questions(
    result: &InputRequiredResult,
) -> Result<QuestionMap, &'static str> {
    let requests = result.input_requests.iter().flatten();
    if requests.clone().count() > MAX_QUESTIONS {
        return Err("it asks more questions than a user is shown for one call");
    }
    let questions = requests.map(|(key, request)| {
        let question = question_of_request(request);
        question.map(|question| (key.clone(), question))
    });
    let questions: Option<QuestionMap> = questions.collect();
    questions.ok_or("it wants input of a form that this client does not declare")
}

impl PendingCall {
    pub(crate) fn encoded_bytes(&self) -> usize {
        json!(self).to_string().len()
    }

    /// The question for the pipeline. `is_over` is set when the call has ended without the answers.
    pub(crate) fn question(&self, is_over: bool) -> ToolQuestion {
        ToolQuestion {
            questions: self.questions.clone(),
            resume: json!(self),
            is_over,
        }
    }

    /// The call in a question that was answered.
    ///
    /// # Errors
    ///
    /// The tool now belongs to another server or has changed: the answers are not for it.
    pub(crate) fn read(resume: Value, server: &str, tool: &str) -> Result<Self, ToolFailure> {
        let pending: Option<Self> = serde_json::from_value(resume).ok();
        pending
            .filter(|pending| pending.server == server && pending.tool == tool)
            .ok_or_else(|| {
                let text = "The tool was replaced since it asked the user, so it did not get the answer. Call it again.";
                HandledFailure::new(text).into()
            })
    }

    /// All answers to questions that a server asks again.
    pub(crate) fn all_answers(&self, answers: &AnswerMap) -> Vec<(UserQuestion, UserAnswer)> {
        let newest = self
            .questions
            .iter()
            .filter_map(|(key, question)| Some((question.clone(), answers.get(key)?.clone())));
        self.earlier.iter().cloned().chain(newest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_for_the_server_and_the_tool_that_asked() {
        let question = UserQuestion::Url {
            message: "Agree.".to_owned(),
            url: "https://x.example/".to_owned(),
        };
        let pending = PendingCall {
            server: "https://a.example/mcp".to_owned(),
            tool: "pay".to_owned(),
            questions: QuestionMap::from([("a".to_owned(), question)]),
            resume: ResumePoint::Repeat {
                state: Some("sealed".to_owned()),
            },
            earlier: Vec::new(),
        };
        let resume = pending.question(false).resume;
        let read = |server: &str, tool: &str| PendingCall::read(resume.clone(), server, tool);
        assert_eq!(read("https://a.example/mcp", "pay").unwrap(), pending);
        for (server, tool) in [
            ("https://b.example/mcp", "pay"),
            ("https://a.example/mcp", "other"),
        ] {
            assert!(read(server, tool).is_err(), "{server} {tool}");
        }
    }
}
