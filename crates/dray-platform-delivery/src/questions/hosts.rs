//! Questions about hosts: what a chat shows, and what a press does. The egress-fetcher keeps them, and their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_bus::Meta;
use dray_platform::{ButtonPress, ChatQuestion, PressReply, QuestionButton};
use dray_presentation::name::shown_text;
use dray_proto::v1::{self, EgressAnswer};
use dray_types::{Deadline, Fault, FaultCode, TenantId};

use super::buttons::HOST_DATA_PREFIX;
use super::{DECIDE_TIMEOUT, MAX_NAME_CHARS, QuestionChat, notice};
use super::{QuestionService, shown_minute};
use crate::accounts::PlatformAccount;

/// How long the egress-fetcher may take to list the questions of a tenant, all parts together.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Parts of a list that are read, of up to 200 sessions or 96 KiB each.
const MAX_LIST_PARTS: usize = 64;
/// Longest host in a question; names have at most 253 characters.
const MAX_HOST_CHARS: usize = 260;
/// Longest name of a session, an app, a rule or an approver in a question.
const MAX_SHOWN_CHARS: usize = 128;
/// Longest name of a person who answers, as the egress-fetcher accepts it.
const MAX_PRINCIPAL_BYTES: usize = 128;
/// Reason of the fault for a question that has an answer.
const ANSWERED_DETAIL: &str = "question_answered";

/// Notice after a press that comes too late.
const ENDED_NOTICE: &str =
    "This question has expired or does not exist any more; your answer changes nothing.";

/// The questions of a tenant.
#[derive(Clone, Debug)]
pub(super) struct HostQuestionList {
    pub(super) questions: Vec<v1::EgressQuestion>,
    /// Whether questions are missing.
    pub(super) is_truncated: bool,
}

impl HostQuestionList {
    /// Sorts the questions of one page of the list, the oldest first.
    fn of(questions: BTreeMap<String, v1::EgressQuestion>, is_truncated: bool) -> Self {
        let mut questions: Vec<_> = questions.into_values().collect();
        questions.sort_by_key(|question| question.asked_at_ms);
        Self {
            questions,
            is_truncated,
        }
    }

    pub(super) fn find(&self, id: &str) -> Option<&v1::EgressQuestion> {
        self.questions.iter().find(|question| question.id == id)
    }
}

impl QuestionService {
    /// All questions of a tenant, also answered ones.
    pub(super) async fn list_hosts(&self, tenant: &TenantId) -> Result<HostQuestionList, Fault> {
        let deadline = Deadline::after(self.clock.now_ms(), LIST_TIMEOUT);
        let meta = Meta::new(tenant.clone(), deadline);
        let mut after = String::new();
        // A session whose questions change in between moves to a later part of the list, and that part is newer.
        let mut questions = BTreeMap::new();
        for _ in 0..MAX_LIST_PARTS {
            let request = v1::ListEgressQuestionsRequest {
                include_answered: true,
                after,
            };
            let listed = self.bus.call(&meta, &request).await?;
            let part = listed.questions.into_iter();
            questions.extend(part.map(|question| (question.id.clone(), question)));
            after = listed.next;
            // A service of an earlier version names no next part.
            if after.is_empty() {
                return Ok(HostQuestionList::of(questions, listed.truncated));
            }
        }
        Ok(HostQuestionList::of(questions, true))
    }

    /// Records the answer of a person who may answer in this chat; `None` when it could not be recorded.
    pub(super) async fn answer_host(
        &self,
        account: &PlatformAccount,
        (name, chat): (&str, &QuestionChat),
        press: &ButtonPress,
        (id, is_allowed): (&str, bool),
    ) -> Option<PressReply> {
        let tenant = account.tenant.clone().unwrap_or_default();
        let mut request = v1::AnswerEgressQuestionRequest {
            id: id.to_owned(),
            valid_ms: chat.host_answer_time.as_millis(),
            principal: principal_of(name, &press.sender),
            // The first press decides, on whichever replica it arrives.
            only_waiting: true,
            ..v1::AnswerEgressQuestionRequest::default()
        };
        request.set_answer(if is_allowed {
            EgressAnswer::Allow
        } else {
            EgressAnswer::Deny
        });
        let deadline = Deadline::after(self.clock.now_ms(), DECIDE_TIMEOUT);
        let meta = Meta::new(tenant.clone(), deadline);
        let fault = match self.bus.call(&meta, &request).await {
            Ok(reply) => {
                let question = reply.question.unwrap_or_default();
                let by = person_of(press);
                return Some(PressReply {
                    notice: "Your answer is recorded.".to_owned(),
                    outcome: Some(answer_outcome(&question, &by)),
                });
            }
            Err(error) => Fault::from(error),
        };
        // The question expired or belongs to another tenant: both are the same for a chat.
        if fault.code == FaultCode::NotFound {
            return Some(notice(ENDED_NOTICE));
        }
        if fault.detail == ANSWERED_DETAIL {
            return Some(self.earlier_answer(&tenant, id).await);
        }
        tracing::warn!(question = id, code = %fault.code, "an answer about a host was not recorded");
        None
    }

    /// The reply to a press after an answer. The message shows that answer already, or the reconciler shows it.
    async fn earlier_answer(&self, tenant: &TenantId, id: &str) -> PressReply {
        let listed = self.list_hosts(tenant).await.ok();
        let question = listed.as_ref().and_then(|listed| listed.find(id));
        let outcome = question.map(|question| answer_outcome(question, &answerer_of(question)));
        notice(&format!(
            "This was answered before; your answer changes nothing. {}",
            outcome.unwrap_or_default()
        ))
    }
}

/// The question as a chat shows it.
pub(super) fn shown_host_question(
    question: &v1::EgressQuestion,
    chat: &QuestionChat,
) -> ChatQuestion {
    let shown = |text: &str| shown_text(text, MAX_SHOWN_CHARS);
    let app = match question.app.as_str() {
        "" => String::new(),
        app => format!(" of app {}", shown(app)),
    };
    let text = format!(
        "Session {}{app} asks for access to this host, once answered for at most {}. The policy rule {} asks. Valid until {}.",
        shown(&question.session),
        chat.host_answer_time,
        shown(&question.rule),
        shown_minute(question.expires_at_ms),
    );
    let button = |label: &str, choice: &str| QuestionButton {
        label: label.to_owned(),
        data: format!("{HOST_DATA_PREFIX}{}:{choice}", question.id),
    };
    ChatQuestion {
        text,
        detail: host_and_port(question),
        buttons: vec![button("Allow", "y"), button("Refuse", "n")],
    }
}

fn host_and_port(question: &v1::EgressQuestion) -> String {
    let host = shown_text(&question.host, MAX_HOST_CHARS);
    // As in a URL (RFC 3986, section 3.2.2): a colon of an address does not begin the port.
    if host.contains(':') && !host.starts_with('[') {
        return format!("[{host}]:{}", question.port);
    }
    format!("{host}:{}", question.port)
}

/// The line that the chat shows for an answer.
pub(super) fn answer_outcome(question: &v1::EgressQuestion, by: &str) -> String {
    let (answered, until) = (
        shown_minute(question.answered_at_ms),
        shown_minute(question.expires_at_ms),
    );
    match question.answer() {
        EgressAnswer::Allow => format!("Allowed by {by}, {answered}, until {until}."),
        EgressAnswer::Deny => format!("Refused by {by}, {answered}, until {until}."),
        EgressAnswer::Unspecified => format!("Ended, {until}."),
    }
}

/// The line that the chat shows for a question that was not answered in time.
pub(super) fn expired_outcome(expires_ms: u64) -> String {
    format!(
        "Expired, {}: the host stays refused.",
        shown_minute(expires_ms)
    )
}

/// Who answered, as the egress-fetcher knows it.
pub(super) fn answerer_of(question: &v1::EgressQuestion) -> String {
    shown_text(&question.answered_by, MAX_SHOWN_CHARS)
}

/// How the names of people who answer in a chat begin, in audit events.
pub(super) fn principal_prefix(chat: &str) -> String {
    format!("chat {chat}:")
}

fn principal_of(chat: &str, sender: &str) -> String {
    let printable = |char: char| {
        if matches!(char, ' '..='~') { char } else { '?' }
    };
    let mut principal = principal_prefix(chat);
    principal.extend(sender.chars().map(printable));
    principal.truncate(MAX_PRINCIPAL_BYTES);
    principal
}

/// Name and id of a person: anyone can choose the name.
fn person_of(press: &ButtonPress) -> String {
    let name = shown_text(&press.sender_name, MAX_NAME_CHARS);
    format!("{name} ({})", press.sender).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> v1::EgressQuestion {
        v1::EgressQuestion {
            id: format!("egq_{}", "0".repeat(40)),
            session: "chat-1".to_owned(),
            host: "files.example.org".to_owned(),
            port: 443,
            rule: "web/ask\u{202e} (a.toml:3)\n".to_owned(),
            expires_at_ms: 1_795_132_800_000,
            ..v1::EgressQuestion::default()
        }
    }

    #[test]
    fn a_question_shows_session_host_port_rule_and_expiry_without_control_characters() {
        let chat = QuestionChat::default();
        let shown = shown_host_question(&question(), &chat);
        assert_eq!(shown.detail, "files.example.org:443");
        assert!(
            shown.text.starts_with("Session chat-1 asks"),
            "{}",
            shown.text
        );
        assert!(shown.text.contains("at most 1h"), "{}", shown.text);
        assert!(
            shown.text.contains("until 2026-11-20 00:00 UTC"),
            "{}",
            shown.text
        );
        assert!(!shown.text.contains(['\n', '\u{202e}']), "{}", shown.text);
        let mut address = question();
        address.host = "2001:db8::1".to_owned();
        assert_eq!(
            shown_host_question(&address, &chat).detail,
            "[2001:db8::1]:443"
        );
    }

    #[test]
    fn the_name_of_a_person_in_audit_events_is_one_that_they_accept() {
        assert_eq!(principal_of("ops", "77"), "chat ops:77");
        let long = principal_of("ops", &"é\n".repeat(200));
        assert_eq!(long.len(), MAX_PRINCIPAL_BYTES);
        assert!(long.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    }
}
