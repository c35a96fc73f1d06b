//! Presses whose process dies, or whose decision cannot be recorded.

use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt as _;

use super::*;
use crate::inbound::listener;

impl QuestionFixture {
    /// Keeps a press in the chat of the approvers; the process dies before it decides.
    async fn keep_press(&self, person: &str, data: &str) {
        let inbound = &self.fixture.replica.inbound;
        let account = inbound.accounts.named("bot").unwrap();
        let press = press_of(OPS_CHAT, person, data);
        inbound
            .questions
            .keep_press(&account, &press)
            .await
            .unwrap();
    }

    /// Shows a question about a host, and returns the data of its first button.
    async fn allow_button(&self) -> String {
        self.asks_about_host();
        self.reconcile_one().await;
        self.question().buttons[0].clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_press_of_a_person_who_may_not_answer_leaves_the_kept_press_of_an_approver() {
    let fixture = QuestionFixture::new().await;
    let allow = fixture.allow_button().await;
    fixture.keep_press(APPROVER_ID, &allow).await;
    let press_reply = fixture.press(OPS_CHAT, "8", &allow).await;
    assert!(
        press_reply.contains("not one of the people"),
        "{press_reply}"
    );
    fixture.advance(30_000);
    fixture.reconcile_one().await;
    let [answer] = &fixture.answers()[..] else {
        panic!("{:?}", fixture.answers());
    };
    assert_eq!(answer.principal, "chat ops:7");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_confirms_a_press_without_a_record_after_its_decision() {
    let question_fixture = QuestionFixture::new().await;
    let allow = question_fixture.allow_button().await;
    let inbound = &question_fixture.fixture.replica.inbound;
    let open = &inbound.questions.open;
    open.remove("ops", HOST_ID).await.unwrap();
    let fake = &question_fixture.fixture.fake;
    fake.add_press(press_of(OPS_CHAT, APPROVER_ID, &allow));
    let request = Request::post("/platforms/bot/webhook?press")
        .header("host", "localhost")
        .header("x-signed", "1");
    let router = listener::inbound_router(Arc::clone(inbound));
    let response = router.oneshot(request.body(Body::empty()).unwrap());
    assert_eq!(response.await.unwrap().status(), 200);
    // No background task has run since the response.
    assert_eq!(question_fixture.answers().len(), 1);
    assert_eq!(fake.notices(), ["Your answer is recorded."]);
}

#[tokio::test(start_paused = true)]
async fn a_press_whose_decision_was_not_recorded_is_repeated() {
    let fixture = QuestionFixture::new().await;
    let allow = fixture.allow_button().await;
    fixture.keep_press(APPROVER_ID, &allow).await;
    fixture.deciders.lock().unwrap().is_failing = true;
    let press_reply = fixture.press(OPS_CHAT, APPROVER_ID, &allow).await;
    assert!(
        press_reply.contains("could not be recorded"),
        "{press_reply}"
    );
    fixture.deciders.lock().unwrap().is_failing = false;
    fixture.advance(30_000);
    fixture.reconcile_one().await;
    assert_eq!(fixture.answers().len(), 1);
    assert!(fixture.question().outcome.starts_with("Allowed by Ada (7)"));
}
