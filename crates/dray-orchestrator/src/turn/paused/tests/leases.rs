//! Questions in chats whose request is gone, and those whose request runs.

use dray_testkit::eventually;
use futures_util::future::join;

use super::*;

#[tokio::test]
async fn a_question_whose_request_is_gone_ends_and_a_press_says_so() {
    let fixture = RecordFixture::start().await;
    let store = &fixture.approvals;
    let id = ask_chat(&fixture).await;
    let waiting = chat_reply(&fixture, &id, ApprovalChoice::Unspecified).await;
    assert!(waiting.outcome.is_empty(), "{waiting:?}");
    fixture.clock.advance(Duration::from_secs(41));
    let ended = chat_reply(&fixture, &id, ApprovalChoice::Unspecified).await;
    assert!(
        ended.outcome.starts_with("Ended, 20") && ended.outcome.contains("the call is not made"),
        "{ended:?}"
    );
    let press = chat_reply(&fixture, &id, ApprovalChoice::Approved).await;
    assert!(!press.recorded, "{press:?}");
    assert_eq!(press.outcome, ended.outcome);
    assert!(press.notice.contains("before your answer"), "{press:?}");
    // A process that was only suspended does not make the call either.
    let state = store.chat_state("client:a", &id).await.unwrap();
    assert!(matches!(state, ChatState::Expired(_)), "{state:?}");
}

#[tokio::test]
async fn a_request_that_waits_longer_than_its_lease_gets_the_decision() {
    let fixture = RecordFixture::start().await;
    let store = &fixture.approvals;
    let id = ask_chat(&fixture).await;
    let waiting = store.wait_for_chat("client:a", &id, std::future::pending());
    let deciding = async {
        for _ in 0..5 {
            let before = store.get("client:a", &id).await.unwrap().unwrap();
            fixture.clock.advance(Duration::from_secs(10));
            eventually("a renewal of the lease", async || {
                let record = store.get("client:a", &id).await.unwrap().unwrap();
                (record.revision > before.revision).then_some(())
            })
            .await;
        }
        chat_reply(&fixture, &id, ApprovalChoice::Approved).await
    };
    let (state, reply) = Box::pin(join(waiting, deciding)).await;
    assert!(reply.recorded, "{reply:?}");
    assert!(matches!(state, Ok(ChatState::Decided(_))), "{state:?}");
}
