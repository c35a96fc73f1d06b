//! Questions of the egress-fetcher about hosts, put to the person at the client.
//!
//! A rule with the outcome `ask` refuses a host until a person has answered. Where the operator allows it and the
//! caller has the scope `approve`, the person at the client is asked during the call. Otherwise the call fails with the
//! id of the question, which another approver answers. The text comes from the record of the question, never from the
//! arguments.

use std::time::Duration;

use dray_proto::v1::{self, EgressAnswer};
use dray_types::{Fault, OperationId, Period, whole_millis};
use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::model::{ElicitationSchema, InputRequiredResult, JsonObject};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::client::{SHORT_TIMEOUT, ServiceClient};
use crate::input::{InputAnswer, InputError, InputGate, InputQuestion, InputRound};
use crate::options::ToolName;
use crate::tools::{ToolCall, ToolOutcome};

/// The reason of a fault whose host waits for an answer.
const WAITING_DETAIL: &str = "approval_required";
/// The reason of a fault whose question was answered before.
const ANSWERED_DETAIL: &str = "question_answered";
/// Prefix of the ids of questions.
const ID_PREFIX: &str = "egq_";
/// Number of hexadecimal digits that follow the prefix.
const ID_DIGITS: usize = 40;
/// Most questions of one call: one for its host, and one for each host to which redirects lead.
const MAX_QUESTIONS: usize = 6;
/// Longest name of the person who answers, as the egress-fetcher accepts it.
const MAX_PRINCIPAL_BYTES: usize = 128;
/// Longest text of a record in a question, in characters. Host names have at most 253.
const MAX_SHOWN_CHARACTERS: usize = 260;
/// Key of the question, and its field.
const ALLOW_KEY: &str = "allow_host";

/// The questions of one call to the person at the client.
pub(crate) struct HostQuestions<'a> {
    pub(crate) client: &'a ServiceClient,
    pub(crate) gate: &'a InputGate,
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) round: InputRound<'a>,
    /// The caller and call for which an answer is valid.
    pub(crate) binding: String,
    /// The person who answers, in the audit event.
    pub(crate) subject: &'a str,
    /// Longest time for which an answer is valid.
    pub(crate) valid_for: Duration,
}

/// The outcome of a question.
enum HostDecision {
    /// The question has an answer: that of the person, or an earlier one, which holds.
    Answered,
    /// The question still waits, for this person or another approver.
    Waiting,
    /// The client asks the person and repeats the request.
    Pending(InputRequiredResult),
    /// The client sent an answer to something else.
    Refused(ErrorData),
}

/// Whether a call of this tool may ask: it fetches before it has any effect, so it can be run again after the answer.
pub(crate) const fn may_ask(tool: ToolName) -> bool {
    matches!(tool, ToolName::Fetch | ToolName::Read | ToolName::Get)
}

/// Runs a call, and asks about each host that it waits for. With `None`, no question is asked.
pub(crate) async fn run_with_questions(
    call: &mut ToolCall<'_>,
    tool: ToolName,
    arguments: Option<JsonObject>,
    questions: Option<HostQuestions<'_>>,
) -> Result<ToolOutcome, Fault> {
    let Some(mut questions) = questions else {
        return call.run(tool, arguments).await;
    };
    for _ in 0..MAX_QUESTIONS {
        let fault = match call.run(tool, arguments.clone()).await {
            Err(fault) if fault.detail == WAITING_DETAIL => fault,
            ended => return ended,
        };
        match questions.ask(&fault).await {
            HostDecision::Answered => {}
            HostDecision::Waiting => return Err(fault),
            HostDecision::Pending(result) => return Ok(ToolOutcome::Pending(result)),
            HostDecision::Refused(error) => return Ok(ToolOutcome::Refused(error)),
        }
        // An answer counts for one question: the next host needs one of its own.
        questions.round = InputRound::default();
        call.operation = OperationId::mint();
    }
    call.run(tool, arguments).await
}

impl HostQuestions<'_> {
    /// Asks the person the question of a fault, and records the answer.
    async fn ask(&self, fault: &Fault) -> HostDecision {
        let Some(question) = self.find(fault).await else {
            return HostDecision::Waiting;
        };
        let Ok(schema) = form(&question, self.valid_for) else {
            return HostDecision::Waiting;
        };
        let input_question = InputQuestion {
            key: ALLOW_KEY,
            message: question_text(&question, self.valid_for),
            schema,
            // An answer about one host must not count for another that the same call meets later.
            binding: Some(json!([self.binding, question.id]).to_string()),
        };
        let is_allowed = match self
            .gate
            .ask(self.context, self.round, input_question)
            .await
        {
            Ok(InputAnswer::Accepted(content)) => match content.get(ALLOW_KEY) {
                Some(Value::Bool(is_allowed)) => *is_allowed,
                // A form without a clear answer counts as no answer.
                _ => return HostDecision::Waiting,
            },
            // Closing the question is not an answer: another approver may still give one.
            Ok(InputAnswer::Refused) => return HostDecision::Waiting,
            Ok(InputAnswer::Pending(result)) => return HostDecision::Pending(result),
            Err(error @ InputError::InvalidState(_)) => return HostDecision::Refused(error.into()),
            Err(error) => {
                tracing::info!(%error, "the person at the client was not asked about a host");
                return HostDecision::Waiting;
            }
        };
        self.answer(&question, is_allowed).await
    }

    /// The question of a fault, if it is one of this session that waits.
    async fn find(&self, fault: &Fault) -> Option<v1::EgressQuestion> {
        let id = question_id(&fault.message)?;
        // The list has the questions of the whole tenant, but a person must not be asked about another session.
        let is_of_session = |question: &v1::EgressQuestion| {
            question.id == id && question.session == self.client.session.as_str()
        };
        let mut request = v1::ListEgressQuestionsRequest::default();
        loop {
            let listed = self.client.call(SHORT_TIMEOUT, &request).await;
            let listed = listed.inspect_err(|fault| {
                tracing::warn!(code = %fault.code, "questions about hosts cannot be read with these rights");
            });
            let v1::ListEgressQuestionsReply {
                questions, next, ..
            } = listed.ok()?;
            let found = questions.into_iter().find(is_of_session);
            if found.is_some() || next.is_empty() {
                return found;
            }
            request.after = next;
        }
    }

    async fn answer(&self, question: &v1::EgressQuestion, is_allowed: bool) -> HostDecision {
        let mut request = v1::AnswerEgressQuestionRequest {
            id: question.id.clone(),
            valid_ms: whole_millis(self.valid_for),
            principal: principal_of(self.subject),
            // An operator may have answered while the person at the client was asked.
            only_waiting: true,
            ..v1::AnswerEgressQuestionRequest::default()
        };
        request.set_answer(if is_allowed {
            EgressAnswer::Allow
        } else {
            EgressAnswer::Deny
        });
        match self.client.call(SHORT_TIMEOUT, &request).await {
            Ok(_) => HostDecision::Answered,
            Err(fault) if fault.detail == ANSWERED_DETAIL => HostDecision::Answered,
            Err(fault) => {
                tracing::warn!(code = %fault.code, detail = %fault.detail, "an answer about a host was not recorded");
                HostDecision::Waiting
            }
        }
    }
}

/// The id in the sentence of a fault.
fn question_id(message: &str) -> Option<&str> {
    let start = message.find(ID_PREFIX)?;
    let id = message.get(start..start + ID_PREFIX.len() + ID_DIGITS)?;
    let digits = id.strip_prefix(ID_PREFIX)?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then_some(id)
}

fn question_text(question: &v1::EgressQuestion, valid_for: Duration) -> String {
    let shown = |text: &str| dray_presentation::name::shown_text(text, MAX_SHOWN_CHARACTERS);
    format!(
        "May the session {} reach {} on port {}? A policy rule asks: {}. The answer holds for {}, for this host, port and \
         session alone.",
        shown(&question.session),
        shown(&question.host),
        question.port,
        shown(&question.rule),
        Period::secs(valid_for.as_secs()),
    )
}

fn form(question: &v1::EgressQuestion, valid_for: Duration) -> Result<ElicitationSchema, Fault> {
    let title = format!(
        "Allow {} for {}",
        dray_presentation::name::shown_text(&question.host, MAX_SHOWN_CHARACTERS),
        Period::secs(valid_for.as_secs())
    );
    let schema = json!({
        "type": "object",
        "properties": {ALLOW_KEY: {"type": "boolean", "title": title}},
        "required": [ALLOW_KEY],
    });
    serde_json::from_value(schema).map_err(|_| Fault::internal())
}

/// The name under which the answer of a caller is recorded. Subjects of tokens may have characters that audit events do
/// not accept.
fn principal_of(subject: &str) -> String {
    let printable = |char: char| {
        if matches!(char, ' '..='~') { char } else { '?' }
    };
    let mut principal = String::from("mcp ");
    principal.extend(subject.chars().map(printable));
    principal.truncate(MAX_PRINCIPAL_BYTES);
    principal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_the_sentence_of_a_fault_and_nowhere_else() {
        let id = format!("egq_{}", "0f".repeat(20));
        let message = format!("The host needs approval. Question {id} waits for an answer.");
        assert_eq!(question_id(&message), Some(id.as_str()));
        for other in [
            "",
            "egq_",
            "egq_0f waits",
            &format!("egq_{}", "x".repeat(40)),
            &format!("egq_{}ä", "0".repeat(39)),
        ] {
            assert_eq!(question_id(other), None, "{other}");
        }
    }

    #[test]
    fn a_question_shows_host_port_rule_and_time_without_control_characters() {
        let question = v1::EgressQuestion {
            session: "chat-1".to_owned(),
            host: "files.example.org".to_owned(),
            port: 443,
            rule: "web/ask\u{202e} (a.toml:3)\n".to_owned(),
            ..v1::EgressQuestion::default()
        };
        let text = question_text(&question, Duration::from_mins(15));
        assert!(text.starts_with("May the session chat-1 reach files.example.org on port 443?"));
        assert!(text.contains("for 15m"), "{text}");
        assert!(!text.contains(['\n', '\u{202e}']), "{text}");
        assert!(form(&question, Duration::from_mins(15)).is_ok());
    }

    #[test]
    fn principals_have_only_characters_that_audit_events_accept() {
        assert_eq!(principal_of("token:ada"), "mcp token:ada");
        let long = principal_of(&"é\n".repeat(200));
        assert_eq!(long.len(), MAX_PRINCIPAL_BYTES);
        assert!(long.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    }
}
