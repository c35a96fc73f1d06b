//! Attachments that a message does not name, and what a message resumes.

use axum::body::Body;
use axum::http::StatusCode;
use dray_platform::ErrorKind;

use super::fake::{FakeAction, UserAttachment};
use super::fixture::{DeliveryFixture, chat};
use super::inbound::{
    attachment, fixture, message, placed_uploads, post, receive, send_request,
};
use crate::deliver::WorkEnd;
use crate::record::WaitingReason;

#[tokio::test]
async fn a_file_without_a_name_has_the_one_that_the_platform_reports_later() {
    let fixture = fixture(|_| {}).await;
    fixture.sandbox.bind(chat("42"));
    let bytes = UserAttachment::Bytes(b"a,b".to_vec());
    fixture.fake.attach("F1", [bytes]);
    let mut unnamed = attachment("F1", 0);
    unnamed.name.clear();
    receive(&fixture, message("7", vec![unnamed]))
        .await
        .unwrap();
    let placed = placed_uploads(&fixture).await;
    assert_eq!(placed[0].name, "described.csv");
    let artifact = placed[0].claim.clone().unwrap().artifact.unwrap();
    assert_eq!(artifact.media_type, "text/csv");
}

#[tokio::test]
async fn r_11_a_message_at_the_webhook_resumes_a_delivery_that_waits_for_it() {
    let fixture = DeliveryFixture::new().await;
    let refusal = FakeAction::Refuse(ErrorKind::WindowClosed);
    fixture.fake.script([refusal]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    let end = fixture.deliver(&work).await.unwrap();
    assert!(matches!(end, WorkEnd::Waiting(_)));
    let body = serde_json::to_string(&message("7", Vec::new())).unwrap();
    let signed = post("/platforms/bot/webhook").header("x-signed", "1");
    let request = signed.body(Body::from(body)).unwrap();
    assert_eq!(send_request(&fixture, request).await.0, StatusCode::OK);
    let waiting = fixture.record("d1").await.waiting;
    assert_eq!(waiting, Some(WaitingReason::Queue));
}
