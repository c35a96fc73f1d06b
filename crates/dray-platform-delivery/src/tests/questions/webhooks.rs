//! Presses that a webhook reports: each is confirmed before its decision.

use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt as _;

use super::*;
use crate::inbound::listener;

#[tokio::test(start_paused = true)]
async fn a_webhook_confirms_a_press_before_its_end_and_shows_the_end_later() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.asks_about_host();
    question_fixture.reconcile_one().await;
    let allow = question_fixture.question().buttons[0].clone();
    let fake = &question_fixture.fixture.fake;
    fake.add_press(press_of(OPS_CHAT, APPROVER_ID, &allow));
    fake.hold_replies();
    let request = Request::post("/platforms/bot/webhook?press")
        .header("host", "localhost")
        .header("x-signed", "1");
    let router = listener::inbound_router(Arc::clone(&question_fixture.fixture.replica.inbound));
    let response = router.oneshot(request.body(Body::empty()).unwrap());
    let response = tokio::time::timeout(Duration::from_secs(3), response).await;
    let response = response.expect("Slack waits for 3 s").unwrap();
    assert_eq!(response.status(), 200);
    assert!(fake.notices().is_empty());
    fake.release_replies();
    eventually("the end of the press", async || {
        (question_fixture.question().edits == 1).then_some(())
    })
    .await;
    assert_eq!(question_fixture.answers().len(), 1);
    assert!(
        question_fixture
            .question()
            .outcome
            .starts_with("Allowed by Ada (7)")
    );
}

#[tokio::test(start_paused = true)]
async fn a_press_whose_process_dies_after_the_confirmation_is_decided_once_by_another_replica() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.asks_about_host();
    question_fixture.reconcile_one().await;
    let (allow, refuse) = {
        let buttons = question_fixture.question().buttons;
        (buttons[0].clone(), buttons[1].clone())
    };
    let inbound = &question_fixture.fixture.replica.inbound;
    let account = inbound.accounts.named("bot").unwrap();
    for (person, data) in [
        ("8", &refuse),
        (APPROVER_ID, &allow),
        (APPROVER_ID, &refuse),
    ] {
        // The process dies here, before it decides.
        let press = press_of(OPS_CHAT, person, data);
        inbound
            .questions
            .keep_press(&account, &press)
            .await
            .unwrap();
    }
    let second = other(&question_fixture.fixture);
    question_fixture.reconcile(&[&second]).await;
    assert!(question_fixture.answers().is_empty());
    question_fixture.advance(30_000);
    for _ in 0..2 {
        question_fixture
            .reconcile(&[&question_fixture.fixture.replica, &second])
            .await;
    }
    let [answer] = &question_fixture.answers()[..] else {
        panic!("{:?}", question_fixture.answers());
    };
    // The first press of a person who may answer.
    assert_eq!(answer.answer(), EgressAnswer::Allow);
    let ended = question_fixture.question();
    assert!(ended.outcome.starts_with("Allowed by Ada (7)"), "{ended:?}");
    assert_eq!(ended.edits, 1);
}
