//! Questions about calls that end before their expiry, and not by a press.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_call_that_the_caller_decides_shows_it_before_the_expiry_once_with_two_replicas() {
    let asked = QuestionFixture::new().await;
    asked.ask_about_call().await.unwrap();
    let second = other(&asked.fixture);
    let rounds = async |count: usize| {
        for _ in 0..count {
            asked.reconcile(&[&asked.fixture.replica, &second]).await;
            asked.advance(10_000);
        }
    };
    // A question that was shown a moment ago costs no request, and one that waits keeps its buttons.
    asked.reconcile_one().await;
    assert!(asked.deciders.lock().unwrap().outcome_requests.is_empty());
    rounds(3).await;
    let waiting = asked.question();
    assert_eq!((waiting.edits, waiting.buttons.len()), (0, 2));
    asked.deciders.lock().unwrap().call_outcome = "Taken back.".to_owned();
    rounds(4).await;
    let ended = asked.question();
    assert_eq!((ended.outcome.as_str(), ended.edits), ("Taken back.", 1));
    assert!(ended.buttons.is_empty());
    let count = asked.deciders.lock().unwrap().outcome_requests.len();
    rounds(2).await;
    assert_eq!(asked.deciders.lock().unwrap().outcome_requests.len(), count);
}
