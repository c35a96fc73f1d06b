//! Calls of the agent's own tools that wait for the user: for an approval, or for answers to the tool's questions.

use dray_agent::canonical_json::canonical_json;
use dray_agent::message::{Message, ToolCall};
use dray_tool::pipeline::CompletedCall;
use dray_tool::{AnswerMap, ToolQuestion, UserAnswer};
use dray_types::Sha256Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::approval_policy::ApprovalPolicy;
use super::prepare::with_stable_names;
use crate::approvals::{ApprovalDecision, NewApproval};
use crate::http::ApprovalForm;

/// Most questions of one call; the next one is answered with `cancel`.
pub(super) const MAX_QUESTION_ROUNDS: u32 = 10;

/// A call that waits for the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WaitingCall {
    /// The call with the model's id.
    pub(super) call: ToolCall,
    /// The tool's question; without one the call waits for its approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<PausedQuestion>,
    /// The approval of a call about which a chat was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) in_chat: Option<NewApproval>,
    /// Id of the question by which an earlier request asked the client for approval.
    #[serde(skip)]
    pub(super) asked_as: Option<String>,
}

/// A tool's question during a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PausedQuestion {
    pub(super) asked: ToolQuestion,
    /// The result of a call that ends because the user cancels.
    pub(super) result: Message,
    /// Number of times that the call has asked, including this time.
    pub(super) round: u32,
    /// The reason why the chat for such questions does not show it, as a sentence for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_in_chat: Option<String>,
}

impl WaitingCall {
    /// A call that waits for its approval.
    pub(super) const fn approval(call: ToolCall) -> Self {
        Self {
            call,
            question: None,
            in_chat: None,
            asked_as: None,
        }
    }

    /// A call about which a chat decides.
    pub(super) const fn in_chat(call: ToolCall, approval: NewApproval) -> Self {
        Self {
            call,
            question: None,
            in_chat: Some(approval),
            asked_as: None,
        }
    }
}

/// The call that waits because its tool asks, for the `round`th time; otherwise the end of the call.
pub(super) fn waiting_or_ran(
    call: ToolCall,
    mut ran: CompletedCall,
    round: u32,
) -> Result<WaitingCall, Box<CompletedCall>> {
    let Some(asked) = ran.question.take() else {
        return Err(Box::new(ran));
    };
    let question = PausedQuestion {
        asked,
        result: with_stable_names(&ran.message),
        round,
        not_in_chat: None,
    };
    Ok(WaitingCall {
        call,
        question: Some(question),
        in_chat: None,
        asked_as: None,
    })
}

/// The part of the waiting calls that is asked now. The rest is asked after the client has answered.
#[derive(Debug, Default)]
pub(super) struct AskPlan {
    pub(super) now: Vec<WaitingCall>,
    pub(super) later: Vec<WaitingCall>,
}

impl AskPlan {
    /// A plan for clients of this policy. A text asks about one thing: all approvals of a round, or the questions of
    /// one tool. It is not sent together with calls and items, because the next request answers either those or the
    /// text.
    pub(super) fn new(
        waiting: Vec<WaitingCall>,
        policy: &ApprovalPolicy,
        has_client_calls: bool,
    ) -> Self {
        let form_of = |waiting: &WaitingCall| match waiting.question {
            Some(_) => policy.input_form(),
            None => policy.form(),
        };
        let (texts, now): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|waiting| form_of(waiting) == ApprovalForm::Text);
        if has_client_calls || !now.is_empty() {
            return Self { now, later: texts };
        }
        let (mut questions, approvals): (Vec<_>, Vec<_>) = texts
            .into_iter()
            .partition(|waiting| waiting.question.is_some());
        if !approvals.is_empty() {
            // A text is answered with `yes` unless all of its calls are in chats. The answer is read by the record of
            // the first call, so calls in chats come last.
            let (in_chats, mut approvals): (Vec<_>, Vec<_>) = approvals
                .into_iter()
                .partition(|waiting| waiting.in_chat.is_some());
            approvals.extend(in_chats);
            return Self {
                now: approvals,
                later: questions,
            };
        }
        let later = questions.split_off(questions.len().min(1));
        Self {
            now: questions,
            later,
        }
    }
}

/// The digest of a tool's question: SHA-256 of the canonical JSON of its name, its arguments and the questions.
pub(super) fn question_digest(
    tool: &str,
    arguments: &Map<String, Value>,
    tool_question: &ToolQuestion,
) -> Sha256Digest {
    let question =
        json!({"tool": tool, "arguments": arguments, "questions": tool_question.questions});
    Sha256Digest::of(canonical_json(&question).as_bytes())
}

/// All answers together, for the record of the question.
pub(super) fn decision_of(answers: &AnswerMap) -> ApprovalDecision {
    let mut answers = answers.values();
    if answers
        .clone()
        .any(|answer| matches!(answer, UserAnswer::Accepted(_)))
    {
        ApprovalDecision::Answered
    } else if answers.any(|answer| *answer == UserAnswer::Declined) {
        ApprovalDecision::Declined
    } else {
        ApprovalDecision::Cancelled
    }
}

#[cfg(test)]
mod tests {
    use dray_agent::message::{FunctionCall, Role};

    use super::*;
    use crate::turn::tool_sources::ToolSources;

    fn waiting(id: &str, asks: bool) -> WaitingCall {
        let call = ToolCall {
            id: id.to_owned(),
            kind: "function".to_owned(),
            function: FunctionCall {
                name: id.to_owned(),
                arguments: "{}".to_owned(),
                rest: Map::new(),
            },
            rest: Map::new(),
        };
        let question = PausedQuestion {
            asked: ToolQuestion {
                questions: [].into(),
                resume: Value::Null,
                is_over: false,
            },
            result: Message::new(Role::Tool, ""),
            round: 1,
            not_in_chat: None,
        };
        WaitingCall {
            call,
            question: asks.then_some(question),
            in_chat: None,
            asked_as: None,
        }
    }

    fn plan(form: ApprovalForm, takes_calls: bool, has_client_calls: bool) -> [Vec<String>; 2] {
        let policy = ApprovalPolicy::new(&[], None, ToolSources::default(), form);
        let policy = policy.with_input_calls(takes_calls);
        let all = vec![
            waiting("q1", true),
            waiting("a1", false),
            waiting("q2", true),
            waiting("a2", false),
        ];
        let plan = AskPlan::new(all, &policy, has_client_calls);
        [plan.now, plan.later].map(|calls| calls.into_iter().map(|call| call.call.id).collect())
    }

    #[test]
    fn a_text_asks_about_one_thing_and_is_sent_by_itself() {
        use ApprovalForm::{ClientTool, Items, Text};
        let all = ["q1", "a1", "q2", "a2"];
        let expected = |now: &[&str]| {
            let later = all.iter().filter(|id| !now.contains(id));
            [
                now.iter().map(ToString::to_string).collect::<Vec<_>>(),
                later.map(ToString::to_string).collect(),
            ]
        };
        assert_eq!(plan(Text, false, false), expected(&["a1", "a2"]));
        assert_eq!(plan(Text, false, true), expected(&[]));
        assert_eq!(plan(Text, true, false), expected(&["q1", "q2"]));
        assert_eq!(plan(Items, false, false), expected(&["a1", "a2"]));
        assert_eq!(plan(ClientTool, true, true), expected(&all));
        let policy = ApprovalPolicy::new(&[], None, ToolSources::default(), Text);
        let plan = AskPlan::new(
            vec![waiting("q1", true), waiting("q2", true)],
            &policy,
            false,
        );
        assert_eq!((plan.now.len(), plan.later.len()), (1, 1));
    }
}
