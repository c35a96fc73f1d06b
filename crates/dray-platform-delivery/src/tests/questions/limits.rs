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
