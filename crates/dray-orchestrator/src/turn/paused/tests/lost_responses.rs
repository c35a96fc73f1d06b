//! Tests of background responses that asked a question in a chat, and whose processes have ended since.

use crate::responses::{NewResponse, ResponseDocument, ResponseStore, StoredRequest};

use super::*;

const RESPONSE_ID: &str = "resp_1";
const RESPONSE_LEASE: Period = Period::secs(10);

/// A response in the background whose process is killed while it runs, with the checkpoint of its round.
async fn killed_response(fixture: &RecordFixture) -> (ResponseStore, QuestionCheckpoint) {
    let lifetime = Period::secs(3_600);
    let responses = ResponseStore::new(fixture.records.clone(), lifetime, RESPONSE_LEASE);
    let new = NewResponse {
        principal: "client:a",
        id: RESPONSE_ID,
        in_background: true,
        connected: None,
        has_events: false,
        conversation: None,
        history: crate::responses::History::default(),
    };
    let document = ResponseDocument {
        request: Some(StoredRequest::default()),
        ..ResponseDocument::default()
    };
    responses.begin(new, &document).await.unwrap();
    let checkpoint = QuestionCheckpoint {
        token: "token".to_owned(),
        response: RESPONSE_ID.to_owned(),
    };
    (responses, checkpoint)
}

/// Advances the clock to the end of a lease that is not renewed.
fn end_lease(fixture: &RecordFixture) {
    fixture.clock.advance(RESPONSE_LEASE.as_duration());
}

async fn outcome(fixture: &RecordFixture, id: &str) -> String {
    let reply = chat_reply(fixture, id, ApprovalChoice::Unspecified).await;
    reply.outcome
}

#[tokio::test]
async fn a_decision_for_a_response_is_shown_when_it_is_used_and_lapses_with_its_last_process() {
    let fixture = RecordFixture::start().await;
    let (responses, checkpoint) = killed_response(&fixture).await;
    let approved = ask_chat_from(&fixture, Some(&checkpoint)).await;
    let used = ask_chat_from(&fixture, Some(&checkpoint)).await;
    let open = ask_chat_from(&fixture, Some(&checkpoint)).await;
    for id in [&approved, &used] {
        let reply = chat_reply(&fixture, id, ApprovalChoice::Approved).await;
        assert!(reply.recorded && reply.outcome.is_empty(), "{reply:?}");
    }
    for _ in 0..2 {
        end_lease(&fixture);
        assert_eq!(outcome(&fixture, &approved).await, "");
        assert_eq!(outcome(&fixture, &open).await, "");
        let takeover = responses.take_over("client:a", RESPONSE_ID).await;
        assert!(takeover.unwrap().is_some());
    }
    let store = &fixture.approvals;
    let mut record = store.get("client:a", &used).await.unwrap().unwrap();
    let using = store.use_decision("client:a", &used, &mut record);
    using.await.unwrap();
    assert!(!outcome(&fixture, &used).await.contains("not made"));
    end_lease(&fixture);
    let lapsed = outcome(&fixture, &approved).await;
    assert!(
        lapsed.starts_with("Approved by Ada (7)") && lapsed.contains("the call is not made"),
        "{lapsed}"
    );
    let late_reply = chat_reply(&fixture, &open, ApprovalChoice::Approved).await;
    assert!(!late_reply.recorded, "{late_reply:?}");
    assert!(
        late_reply.outcome.starts_with("Taken back, 20"),
        "{late_reply:?}"
    );
    assert!(!outcome(&fixture, &used).await.contains("not made"));
}

#[tokio::test]
async fn a_question_of_a_response_that_its_client_cancels_is_taken_back_without_its_process() {
    let fixture = RecordFixture::start().await;
    let (responses, checkpoint) = killed_response(&fixture).await;
    let id = ask_chat_from(&fixture, Some(&checkpoint)).await;
    responses.cancel("client:a", RESPONSE_ID).await.unwrap();
    let late_reply = chat_reply(&fixture, &id, ApprovalChoice::Approved).await;
    assert!(!late_reply.recorded, "{late_reply:?}");
    assert!(
        late_reply.outcome.contains("the call is not made"),
        "{late_reply:?}"
    );
}

#[tokio::test]
async fn a_decision_for_a_response_that_waits_for_its_client_lapses_after_the_time_of_the_question()
{
    let fixture = RecordFixture::start().await;
    let (_responses, checkpoint) = killed_response(&fixture).await;
    let id = ask_chat_from(&fixture, Some(&checkpoint)).await;
    chat_reply(&fixture, &id, ApprovalChoice::Approved).await;
    fixture.clock.advance(Duration::from_secs(89));
    assert_eq!(outcome(&fixture, &id).await, "");
    fixture.clock.advance(Duration::from_secs(2));
    assert!(
        outcome(&fixture, &id)
            .await
            .contains("the call is not made")
    );
}
