//! Uploads that end in the chat of their session.

use dray_proto::v1;

use super::super::TestResponse;
use super::DestinationFixture;
use crate::{Principal, TicketDestination, TicketRequest};

#[tokio::test]
async fn an_upload_ends_in_the_chat_with_its_delivery() {
    let fixture = DestinationFixture::new().await;
    let sent = fixture
        .fake::<v1::SendFileRequested>(|_| {
            Ok(v1::DeliveryAccepted {
                delivery_id: "d-1".to_owned(),
                duplicate: false,
            })
        })
        .await;
    fixture
        .fake::<v1::DeliveryOutcomeRequest>(|request| {
            Ok(v1::DeliveryReport {
                delivery_id: request.delivery_id.clone(),
                finished: true,
                success: true,
                ..v1::DeliveryReport::default()
            })
        })
        .await;
    let destination = TicketDestination::Chat {
        message: "Here it is".to_owned(),
    };
    let request = TicketRequest::upload(100).destination(Some(destination));
    let url = fixture.fixture.issue(request).await;
    let response = fixture.put(&url, b"some text").await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.json()["receipt"]["delivery_id"], "d-1");
    assert_eq!(response.json()["receipt"]["finished"], true);
    let sent = sent.lock().unwrap();
    assert_eq!(sent[0].1.message, "Here it is");
    assert_eq!(sent[0].1.session, Principal::default().session.as_str());
    assert!(sent[0].1.target.is_none() && sent[0].1.sandbox.is_empty());
}

/// Uploads to a chat whose delivery ends with one file in this state. Returns the response.
async fn upload_that_ends_in(state: v1::FileState, error_message: &'static str) -> TestResponse {
    let fixture = DestinationFixture::new().await;
    fixture
        .fake::<v1::SendFileRequested>(|_| {
            Ok(v1::DeliveryAccepted {
                delivery_id: "d-1".to_owned(),
                duplicate: false,
            })
        })
        .await;
    fixture
        .fake::<v1::DeliveryOutcomeRequest>(move |request| {
            let mut file = v1::DeliveredFile {
                name: "a.txt".to_owned(),
                error_message: error_message.to_owned(),
                ..v1::DeliveredFile::default()
            };
            file.set_file_state(state);
            Ok(v1::DeliveryReport {
                delivery_id: request.delivery_id.clone(),
                finished: true,
                files: vec![file],
                ..v1::DeliveryReport::default()
            })
        })
        .await;
    let destination = TicketDestination::Chat {
        message: String::new(),
    };
    let request = TicketRequest::upload(100).destination(Some(destination));
    let url = fixture.fixture.issue(request).await;
    fixture.put(&url, b"some text").await
}

#[tokio::test]
async fn a_delivery_whose_outcome_is_unknown_is_not_reported_as_refused() {
    let lost = "The platform's answer was lost: the file may have been delivered.";
    let response = upload_that_ends_in(v1::FileState::Unknown, lost).await;
    assert_eq!(response.status, 201, "{response:?}");
    let file = &response.json()["receipt"]["files"][0];
    assert_eq!(
        (file["state"].as_str(), file["message"].as_str()),
        (Some("unknown"), Some(lost))
    );
    let response = upload_that_ends_in(v1::FileState::Rejected, "blocked").await;
    assert_eq!(response.problem(), "destination-failed", "{response:?}");
}
