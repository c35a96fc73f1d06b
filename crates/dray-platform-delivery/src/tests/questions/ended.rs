//! Questions about calls that end before their expiry, and not by a press.

use dray_types::Clock;

use super::*;
use crate::questions::QuestionService;

/// Answers a request about a decision in place of the orchestrator.
pub(super) async fn decide(known: &Mutex<Deciders>, clock: &Clock, incoming: IncomingRequest) {
    let reply = {
        let mut known = known.lock().unwrap();
        if let Some(unanswered) = &mut known.unanswered {
            unanswered.push(incoming);
            return;
        }
        clock.advance(known.decision_time);
        incoming.decode().map(|request| {
            known.outcome_requests.push(request);
            outcome_reply(&known.call_outcome)
        })
    };
    incoming.answer::<v1::DecideInChatReply>(reply).await;
}

/// One round of all chats, concurrently.
pub(super) async fn run_round(questions: &QuestionService) {
    let config = questions.config.get();
    let chats = config.question_chats.iter();
    let rounds = chats.map(|(name, chat)| questions.reconcile_entry(name, chat));
    futures_util::future::join_all(rounds).await;
}

fn outcome_reply(outcome: &str) -> v1::DecideInChatReply {
    v1::DecideInChatReply {
        outcome: outcome.to_owned(),
        ..v1::DecideInChatReply::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_caller_decides_shows_it_before_the_expiry_once_with_two_replicas() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.ask_about_call().await.unwrap();
    let second = other(&question_fixture.fixture);
    let rounds = async |count: usize| {
        for _ in 0..count {
            question_fixture
                .reconcile(&[&question_fixture.fixture.replica, &second])
                .await;
            question_fixture.advance(10_000);
        }
    };
    // A question that was shown a moment ago costs no request, and one that waits keeps its buttons.
    question_fixture.reconcile_one().await;
    assert!(
        question_fixture
            .deciders
            .lock()
            .unwrap()
            .outcome_requests
            .is_empty()
    );
    rounds(3).await;
    let waiting = question_fixture.question();
    assert_eq!((waiting.edits, waiting.buttons.len()), (0, 2));
    question_fixture.deciders.lock().unwrap().call_outcome = "Taken back.".to_owned();
    rounds(4).await;
    let ended = question_fixture.question();
    assert_eq!((ended.outcome.as_str(), ended.edits), ("Taken back.", 1));
    assert!(ended.buttons.is_empty());
    let count = question_fixture
        .deciders
        .lock()
        .unwrap()
        .outcome_requests
        .len();
    rounds(2).await;
    assert_eq!(
        question_fixture
            .deciders
            .lock()
            .unwrap()
            .outcome_requests
            .len(),
        count
    );
}

#[tokio::test(start_paused = true)]
async fn a_chat_that_waits_for_the_orchestrator_does_not_delay_the_other_chats() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.ask_about_call().await.unwrap();
    question_fixture.reconcile_one().await;
    question_fixture.advance(10_000);
    question_fixture.asks_about_host();
    question_fixture.deciders.lock().unwrap().unanswered = Some(Vec::new());
    let replying = async {
        eventually("a question about a host", async || {
            let questions = question_fixture.fixture.fake.seen_questions();
            questions
                .iter()
                .any(|question| question.chat == OPS_CHAT)
                .then_some(())
        })
        .await;
        let guard = question_fixture.deciders.lock().unwrap().unanswered.take();
        for incoming in guard.unwrap() {
            incoming.answer(Ok(outcome_reply("Taken back."))).await;
        }
    };
    futures_util::future::join(question_fixture.reconcile_one(), replying).await;
    // The reply came within its time, so the next one confirms it.
    question_fixture.deciders.lock().unwrap().call_outcome = "Taken back.".to_owned();
    question_fixture.advance(10_000);
    question_fixture.reconcile_one().await;
    let questions = question_fixture.fixture.fake.seen_questions();
    let call = questions
        .iter()
        .find(|question| question.text == "May it?")
        .unwrap();
    assert_eq!(call.outcome, "Taken back.", "{questions:?}");
}
