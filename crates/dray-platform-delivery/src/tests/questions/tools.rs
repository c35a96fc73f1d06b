//! Questions of tools during calls: options as buttons, and chats that do not take such questions.

use super::*;

fn asking(chat: &str, options: &[&str]) -> v1::AskInChatRequest {
    v1::AskInChatRequest {
        chat: chat.to_owned(),
        question_id: CALL_ID.to_owned(),
        text: "Which one?".to_owned(),
        detail: "Arguments: {}".to_owned(),
        expires_at_ms: NOW_MS + HOUR_MS,
        options: options.iter().map(ToString::to_string).collect(),
    }
}

impl QuestionFixture {
    pub(super) async fn ask_options(
        &self,
        chat: &str,
        options: &[&str],
    ) -> Result<v1::AskInChatReply, Fault> {
        let meta = self.fixture.meta("ask");
        let questions = &self.fixture.replica.inbound.questions;
        questions.ask(&meta, &asking(chat, options)).await
    }
}

#[tokio::test(start_paused = true)]
async fn options_are_buttons_and_a_press_reports_the_number_of_one() {
    let fixture = QuestionFixture::new().await;
    let options = ["first", "second", "Decline to answer"];
    fixture.ask_options("calls", &options).await.unwrap();
    let shown = fixture.question();
    assert_eq!(
        shown.buttons,
        ["dray:apr_1:1", "dray:apr_1:2", "dray:apr_1:3"]
    );
    fixture.deciders.lock().unwrap().call_outcome = "Answered.".to_owned();
    // A person who may not answer, and data that names no button of a question.
    fixture.press("43", "8", &shown.buttons[1]).await;
    for data in ["dray:apr_1:0", "dray:apr_1:x", "dray-host:apr_1:2"] {
        fixture.press("43", APPROVER_ID, data).await;
    }
    assert!(fixture.deciders.lock().unwrap().outcome_requests.is_empty());
    fixture.press("43", APPROVER_ID, &shown.buttons[1]).await;
    let requests = fixture.deciders.lock().unwrap().outcome_requests.clone();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!(
        (request.option, request.choice()),
        (2, v1::ApprovalChoice::Unspecified)
    );
    assert_eq!(
        (request.chat.as_str(), request.sender.as_str()),
        ("calls", APPROVER_ID)
    );
    assert_eq!(fixture.question().outcome, "Answered.");
}

#[tokio::test(start_paused = true)]
async fn a_chat_without_tool_questions_shows_no_options_and_ignores_presses() {
    let question_fixture = QuestionFixture::new().await;
    let fault = question_fixture
        .ask_options("ops", &["first"])
        .await
        .unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Denied, "no_tool_questions")
    );
    assert!(question_fixture.fixture.fake.seen_questions().is_empty());
    let press_reply = question_fixture
        .press(OPS_CHAT, APPROVER_ID, "dray:apr_1:1")
        .await;
    assert!(
        press_reply.contains("not answered in this chat"),
        "{press_reply}"
    );
    assert!(
        question_fixture
            .deciders
            .lock()
            .unwrap()
            .outcome_requests
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn options_that_no_platform_shows_are_refused() {
    let question_fixture = QuestionFixture::new().await;
    let long = "x".repeat(61);
    for options in [vec!["one"; 13], vec![""], vec![&long], vec!["a\nb"]] {
        let fault = question_fixture
            .ask_options("calls", &options)
            .await
            .unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidArgument, "{options:?}");
    }
    assert!(question_fixture.fixture.fake.seen_questions().is_empty());
}
