//! `dray policy questions` and `dray policy answer`: questions about hosts that the rules ask, and their answers.

use std::time::Duration;

use dray_proto::{NamedCode as _, v1};
use dray_types::{Clock, Period};
use serde_json::{Value, json};

use crate::cli::{GlobalOptions, PolicyAnswer, PolicyAnswerArgs, PolicyQuestionsArgs};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Longest wait for egress-fetcher.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Lists the questions.
pub(crate) async fn list(
    global: &GlobalOptions,
    arguments: &PolicyQuestionsArgs,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_bus(global).await?;
    let listed = all_questions(&system, arguments.all).await;
    system.close().await;
    let questions = listed?;
    let now_ms = Clock::system().now_ms();
    for question in &questions {
        print_line(&if global.json {
            question_json(question).to_string()
        } else {
            question_text(question, now_ms)
        });
    }
    if questions.is_empty() && !global.json {
        print_note("no question waits");
    }
    Ok(())
}

/// All questions of the tenant, in as many parts as the messages need.
async fn all_questions(
    system: &SystemConnection,
    include_answered: bool,
) -> Result<Vec<v1::EgressQuestion>, CommandFailure> {
    let mut request = v1::ListEgressQuestionsRequest {
        include_answered,
        ..v1::ListEgressQuestionsRequest::default()
    };
    let mut questions = Vec::new();
    loop {
        let reply = system.call(&system.meta(CALL_TIMEOUT), &request).await?;
        questions.extend(reply.questions);
        if reply.next.is_empty() {
            // A service of an earlier version has one part, and only reports that there is more.
            if reply.truncated {
                print_note("there are more questions than are listed");
            }
            return Ok(questions);
        }
        request.after = reply.next;
    }
}

/// Answers a question.
pub(crate) async fn answer(
    global: &GlobalOptions,
    arguments: &PolicyAnswerArgs,
) -> Result<(), CommandFailure> {
    let mut request = v1::AnswerEgressQuestionRequest {
        id: arguments.id.clone(),
        valid_ms: arguments.valid_for.map_or(0, Period::as_millis),
        principal: arguments.principal.clone(),
        ..v1::AnswerEgressQuestionRequest::default()
    };
    request.set_answer(match arguments.answer {
        PolicyAnswer::Allow => v1::EgressAnswer::Allow,
        PolicyAnswer::Deny => v1::EgressAnswer::Deny,
    });
    let system = SystemConnection::open_bus(global).await?;
    let reply = system.call(&system.meta(CALL_TIMEOUT), &request).await;
    system.close().await;
    let question = reply?.question.unwrap_or_default();
    let now_ms = Clock::system().now_ms();
    print_line(&if global.json {
        question_json(&question).to_string()
    } else {
        question_text(&question, now_ms)
    });
    Ok(())
}

fn question_json(question: &v1::EgressQuestion) -> Value {
    json!({
        "id": question.id,
        "session": question.session,
        "app": question.app,
        "host": question.host,
        "port": question.port,
        "rule": question.rule,
        "asked_ms": question.asked_at_ms,
        "expires_ms": question.expires_at_ms,
        "answer": question.answer().name(),
        "answered_by": question.answered_by,
        "answered_ms": question.answered_at_ms,
    })
}

fn question_text(question: &v1::EgressQuestion, now_ms: u64) -> String {
    let v1::EgressQuestion {
        id,
        session,
        host,
        port,
        rule,
        ..
    } = question;
    let minutes = question
        .expires_at_ms
        .saturating_sub(now_ms)
        .div_ceil(60_000);
    let state = match question.answer() {
        v1::EgressAnswer::Unspecified => format!("waits for at most {minutes} minutes"),
        answer => format!(
            "{} by {}, for {minutes} minutes",
            answer.name(),
            question.answered_by
        ),
    };
    format!("{id}  {host}:{port}  session {session}  {state}  ({rule})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_one_line_with_its_state() {
        let mut question = v1::EgressQuestion {
            id: "egq_1".to_owned(),
            session: "chat-1".to_owned(),
            host: "pypi.org".to_owned(),
            port: 443,
            rule: "analysts/others (policy.toml:9)".to_owned(),
            expires_at_ms: 600_000,
            ..v1::EgressQuestion::default()
        };
        assert_eq!(
            question_text(&question, 0),
            "egq_1  pypi.org:443  session chat-1  waits for at most 10 minutes  (analysts/others (policy.toml:9))"
        );
        question.set_answer(v1::EgressAnswer::Deny);
        question.answered_by = "ops".to_owned();
        assert!(question_text(&question, 0).contains("deny by ops, for 10 minutes"));
        assert_eq!(question_json(&question)["answer"], "deny");
    }
}
