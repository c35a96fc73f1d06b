//! Tests of questions while a chat accepts no message, of rounds that take long, and of lists in several parts.

use super::*;

#[tokio::test(start_paused = true)]
async fn no_question_is_claimed_while_a_chat_accepts_no_message() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.asks_about_host();
    let questions = &question_fixture.fixture.replica.inbound.questions;
    let account = question_fixture
        .fixture
        .replica
        .inbound
        .accounts
        .named("bot")
        .unwrap();
    let hold = Duration::from_mins(5);
    questions.limiter.hold(&account.id(), OPS_CHAT, hold);
    for _ in 0..3 {
        question_fixture.reconcile_one().await;
    }
    let record = questions.open.read("ops").await.unwrap();
    assert_eq!(record.questions, []);
    question_fixture.advance(300_000);
    question_fixture.reconcile_one().await;
    assert_eq!(question_fixture.question().buttons.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_round_ends_before_its_claim_and_gives_back_what_it_did_not_begin() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.ask_about(CALL_ID).await.unwrap();
    question_fixture.ask_about("apr_2").await.unwrap();
    question_fixture.advance(HOUR_MS + 1_000);
    let requested_ids = || {
        let known = question_fixture.deciders.lock().unwrap();
        let ids = known.outcome_requests.iter();
        ids.map(|request| request.question_id.clone())
            .collect::<Vec<_>>()
    };
    question_fixture.deciders.lock().unwrap().decision_time = Duration::from_secs(20);
    question_fixture.reconcile_one().await;
    assert!(!requested_ids().is_empty());
    assert!(requested_ids().iter().all(|id| id == CALL_ID));
    let questions = &question_fixture.fixture.replica.inbound.questions;
    let record = questions.open.read("calls").await.unwrap();
    let second = record
        .questions
        .iter()
        .find(|question| question.id == "apr_2");
    let second = second.unwrap();
    assert_eq!((second.due_ms, second.attempts), (0, 0));
    question_fixture.reconcile_one().await;
    assert_eq!(requested_ids().last().unwrap(), "apr_2");
}

/// The list of the fake egress-fetcher: all questions, or in parts with one question each.
pub(super) fn list_hosts(
    known: &Deciders,
    request: &v1::ListEgressQuestionsRequest,
) -> v1::ListEgressQuestionsReply {
    if !known.lists_in_parts {
        return v1::ListEgressQuestionsReply {
            questions: known.hosts.clone(),
            ..v1::ListEgressQuestionsReply::default()
        };
    }
    let begin: usize = request.after.parse().unwrap_or(0);
    let end = known.hosts.len().min(begin + 1);
    let has_more = end < known.hosts.len();
    v1::ListEgressQuestionsReply {
        questions: known.hosts[begin..end].to_vec(),
        truncated: has_more,
        next: if has_more {
            end.to_string()
        } else {
            String::new()
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_later_part_is_shown_and_its_answer_elsewhere_ends_it() {
    let fixture = QuestionFixture::new().await;
    fixture.asks_about_host();
    {
        let mut known = fixture.deciders.lock().unwrap();
        let question = known.hosts.pop().unwrap();
        // The earlier questions have an answer, so that the chat shows the last one alone.
        for number in 0..3 {
            let mut answered = v1::EgressQuestion {
                id: format!("egq_{number:040}"),
                ..question.clone()
            };
            answered.set_answer(EgressAnswer::Deny);
            known.hosts.push(answered);
        }
        known.hosts.push(question);
        known.lists_in_parts = true;
    }
    fixture.reconcile_one().await;
    assert_eq!(fixture.question().detail, "files.example.org:443");
    fixture.answer_elsewhere();
    for _ in 0..3 {
        fixture.reconcile_one().await;
    }
    let outcome = fixture.question().outcome;
    assert!(
        outcome.starts_with("Refused by console login 1"),
        "{outcome}"
    );
}
