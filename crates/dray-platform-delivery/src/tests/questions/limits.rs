//! Chats that take no message now, and rounds that take long.

use super::*;

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_while_a_chat_takes_no_message() {
    let asked = QuestionFixture::new().await;
    asked.asks_about_host();
    let questions = &asked.fixture.replica.inbound.questions;
    let account = asked.fixture.replica.inbound.accounts.named("bot").unwrap();
    let hold = Duration::from_mins(5);
    questions.limiter.hold(&account.id(), OPS_CHAT, hold);
    for _ in 0..3 {
        asked.reconcile_one().await;
    }
    let record = questions.open.read("ops").await.unwrap();
    assert_eq!(record.questions, []);
    asked.advance(300_000);
    asked.reconcile_one().await;
    assert_eq!(asked.question().buttons.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_round_ends_before_its_claim_and_gives_back_what_it_did_not_begin() {
    let asked = QuestionFixture::new().await;
    asked.ask_about(CALL_ID).await.unwrap();
    asked.ask_about("apr_2").await.unwrap();
    asked.advance(HOUR_MS + 1_000);
    let requested_ids = || {
        let known = asked.deciders.lock().unwrap();
        let ids = known.outcome_requests.iter();
        ids.map(|request| request.question_id.clone())
            .collect::<Vec<_>>()
    };
    asked.deciders.lock().unwrap().decision_time = Duration::from_secs(20);
    asked.reconcile_one().await;
    assert!(!requested_ids().is_empty());
    assert!(requested_ids().iter().all(|id| id == CALL_ID));
    let questions = &asked.fixture.replica.inbound.questions;
    let record = questions.open.read("calls").await.unwrap();
    let second = record.questions.iter().find(|one| one.id == "apr_2");
    let second = second.unwrap();
    assert_eq!((second.due_ms, second.attempts), (0, 0));
    asked.reconcile_one().await;
    assert_eq!(requested_ids().last().unwrap(), "apr_2");
}
