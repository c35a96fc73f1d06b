//! The page of questions about hosts, and their answers with audit events.

use std::sync::{Arc, Mutex};

use dray_proto::v1::{self, ConsoleAction, ConsoleStage, EgressAnswer};
use dray_types::FaultCode;

use super::acts::AuditTrail;
use super::*;

const QUESTION_ID: &str = "egq_0707070707070707070707070102030405060708";

fn question(answer: EgressAnswer) -> v1::EgressQuestion {
    let mut question = v1::EgressQuestion {
        id: QUESTION_ID.to_owned(),
        session: "chat-<1>".to_owned(),
        host: "files.example.org".to_owned(),
        port: 443,
        rule: "analysts/others (policy.toml:9)".to_owned(),
        asked_at_ms: 1_800_000_000_000,
        expires_at_ms: 1_800_000_900_000,
        answered_by: "console login 0123".to_owned(),
        ..v1::EgressQuestion::default()
    };
    question.set_answer(answer);
    question
}

/// A service with one question, whose answers are kept.
async fn respond_to_questions(
    console: &mut ConsoleFixture,
) -> Arc<Mutex<Vec<v1::AnswerEgressQuestionRequest>>> {
    console
        .respond::<v1::ListEgressQuestionsRequest>(|request| {
            let answered = question(EgressAnswer::Deny);
            let waiting = question(EgressAnswer::Unspecified);
            let answered = request.include_answered.then_some(answered);
            Ok(v1::ListEgressQuestionsReply {
                questions: [waiting].into_iter().chain(answered).collect(),
                truncated: request.after.is_empty(),
                next: if request.after.is_empty() {
                    "71".to_owned()
                } else {
                    String::new()
                },
            })
        })
        .await;
    let answers = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&answers);
    console
        .respond::<v1::AnswerEgressQuestionRequest>(move |request| {
            let answer = request.answer();
            given.lock().unwrap().push(request);
            match answer {
                EgressAnswer::Unspecified => Err(Fault::new(
                    FaultCode::InvalidArgument,
                    "The answer is not valid.",
                )
                .detail("invalid_answer")),
                answer => Ok(v1::AnswerEgressQuestionReply {
                    question: Some(question(answer)),
                }),
            }
        })
        .await;
    answers
}

#[tokio::test]
async fn a_question_is_answered_by_a_login_that_may_act_and_recorded() {
    let mut console = ConsoleFixture::new().await;
    let answers = respond_to_questions(&mut console).await;
    let mut trail = AuditTrail::open(&console).await;
    let login = console.log_in(ConsoleRole::Act).await;
    let list = console.get("/questions", Some(&login)).await;
    assert!(list.body.contains("files.example.org:443"), "{list:?}");
    assert!(list.body.contains("chat-&lt;1&gt;"), "{list:?}");
    assert!(!list.body.contains("console login 0123"), "{list:?}");
    let next = "href=\"/questions?after=71&amp;back=\" rel=\"next\"";
    assert!(list.body.contains(next), "{list:?}");
    let last = console
        .get("/questions?all=1&after=71&back=", Some(&login))
        .await;
    let first = "href=\"/questions?all=1\" rel=\"prev\"";
    assert!(last.body.contains(first), "{last:?}");
    assert!(!last.body.contains("rel=\"next\""), "{last:?}");
    let all = console.get("/questions?all=1", Some(&login)).await;
    assert!(all.body.contains("by console login 0123"), "{all:?}");
    let form = format!("question={QUESTION_ID}&target=files.example.org%3A443&time=1h");
    let allow = format!("{form}&answer=allow");
    let allowed = console.post("/questions/answer", &login, &allow).await;
    assert!(allowed.body.contains(" may reach "), "{allowed:?}");
    let request = answers.lock().unwrap()[0].clone();
    assert_eq!(
        (request.id.as_str(), request.valid_ms),
        (QUESTION_ID, 3_600_000)
    );
    assert_eq!(request.answer(), EgressAnswer::Allow);
    let (begun_by, begun) = trail.next().await;
    let (done_by, done) = trail.next().await;
    assert_eq!(begun_by, done_by);
    assert_eq!(begun.action(), ConsoleAction::AnswerQuestion);
    assert_eq!(
        begun.target,
        format!("files.example.org:443 ({QUESTION_ID})")
    );
    assert_eq!(
        (begun.stage(), done.stage()),
        (ConsoleStage::Begun, ConsoleStage::Done)
    );
    assert_eq!(request.principal, format!("console login {}", begun.login));
    let deny = format!("{form}&answer=deny");
    let denied = console.post("/questions/answer", &login, &deny).await;
    assert!(denied.body.contains(" may not reach "), "{denied:?}");
    // A form that lost its button answers nothing.
    let none = console.post("/questions/answer", &login, &form).await;
    assert!(
        none.body.contains("The question was not answered."),
        "{none:?}"
    );
    // Programs see the failure in the status, as on every other page.
    assert_eq!(none.status, 400, "{none:?}");
    let last = answers.lock().unwrap().last().unwrap().answer();
    assert_eq!(last, EgressAnswer::Unspecified);
}

#[tokio::test]
async fn a_login_that_looks_and_a_form_of_another_page_answer_nothing() {
    let mut console = ConsoleFixture::new().await;
    let answers = respond_to_questions(&mut console).await;
    let looking = console.log_in(ConsoleRole::Look).await;
    let list = console.get("/questions", Some(&looking)).await;
    assert!(list.body.contains("files.example.org:443"), "{list:?}");
    assert!(!list.body.contains("/questions/answer"), "{list:?}");
    let form = format!("question={QUESTION_ID}&answer=allow&time=1h");
    let refused = console.post("/questions/answer", &looking, &form).await;
    assert_eq!(refused.status, 403);
    let acting = console.log_in(ConsoleRole::Act).await;
    let own_origin = format!("Origin: {}\r\n", console.base_url);
    let token = format!("csrf={}&{form}", acting.form_token);
    for (origin, body) in [
        (own_origin.as_str(), format!("csrf=x&{form}")),
        (
            own_origin.as_str(),
            format!("csrf={}&{form}", looking.form_token),
        ),
        ("Origin: https://evil.example\r\n", token.clone()),
        ("", token.clone()),
    ] {
        let path = "/questions/answer";
        let refused = console.post_raw(path, &acting, origin, &body).await;
        assert_eq!(refused.status, 403, "{origin} {body}");
    }
    assert!(answers.lock().unwrap().is_empty());
}
