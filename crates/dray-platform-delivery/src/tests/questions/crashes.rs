//! Processes that die between the message of a question and the platform's confirmation.

use super::*;

impl QuestionFixture {
    /// Asks about a call; the process dies after its message is visible.
    async fn die_while_asking(&self) {
        self.fixture.fake.hang_after_question();
        let asked = tokio::time::timeout(Duration::from_secs(1), self.ask_about_call());
        asked.await.unwrap_err();
        assert_eq!(self.fixture.fake.seen_questions().len(), 1);
    }

    /// Passes the deadline of every caller.
    fn pass_deadline(&self) {
        self.advance(600_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_shown_again_after_its_process_died_and_a_press_on_either_message_counts() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.die_while_asking().await;
    let second = other(&question_fixture.fixture);
    // The process may still get its confirmation.
    question_fixture.reconcile(&[&second]).await;
    assert_eq!(question_fixture.fixture.fake.seen_questions().len(), 1);
    question_fixture.pass_deadline();
    for _ in 0..2 {
        question_fixture
            .reconcile(&[&question_fixture.fixture.replica, &second])
            .await;
    }
    let questions = question_fixture.fixture.fake.seen_questions();
    let [first, repeated] = questions.as_slice() else {
        panic!("{questions:?}");
    };
    assert_eq!(
        (&first.buttons, &first.text),
        (&repeated.buttons, &repeated.text)
    );
    question_fixture.deciders.lock().unwrap().call_outcome = "Approved.".to_owned();
    // The press is under the first message, whose id no process knows.
    let press_reply = question_fixture
        .press("43", APPROVER_ID, &first.buttons[0])
        .await;
    assert_eq!(press_reply, "");
    let questions = question_fixture.fixture.fake.seen_questions();
    assert_eq!(
        (questions[0].outcome.as_str(), questions[0].edits),
        ("Approved.", 1)
    );
    question_fixture.pass_deadline();
    question_fixture
        .reconcile(&[&question_fixture.fixture.replica, &second])
        .await;
    assert_eq!(question_fixture.fixture.fake.seen_questions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_no_longer_waits_is_not_shown_again() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.die_while_asking().await;
    question_fixture.deciders.lock().unwrap().call_outcome = "Taken back.".to_owned();
    question_fixture.pass_deadline();
    for _ in 0..2 {
        question_fixture.reconcile_one().await;
    }
    assert_eq!(question_fixture.fixture.fake.seen_questions().len(), 1);
    let open = &question_fixture.fixture.replica.inbound.questions.open;
    assert_eq!(open.read("calls").await.unwrap().questions, []);
    // A press on the message that may be visible ends it.
    let buttons = question_fixture.question().buttons;
    question_fixture.press("43", APPROVER_ID, &buttons[0]).await;
    assert_eq!(question_fixture.question().outcome, "Taken back.");
}

#[tokio::test(start_paused = true)]
async fn options_are_shown_again_as_they_were() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.fixture.fake.hang_after_question();
    let asking = question_fixture.ask_options("calls", &["first", "second"]);
    let asking = tokio::time::timeout(Duration::from_secs(1), asking);
    asking.await.unwrap_err();
    question_fixture.pass_deadline();
    question_fixture.reconcile_one().await;
    let questions = question_fixture.fixture.fake.seen_questions();
    assert_eq!(questions.len(), 2);
    assert_eq!(questions[0].buttons, questions[1].buttons);
}
