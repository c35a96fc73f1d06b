//! Long texts, large webhook requests, and attachments that a message does not name; what a message resumes.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use dray_platform::{ErrorKind, InboundMessage};
use dray_proto::v1;
use dray_types::ByteSize;

use super::fake::{FakeAction, UserAttachment};
use super::fixture::{DeliveryFixture, chat, tenant};
use super::inbound::{
    attachment, fixture, message, placed_uploads, post, published_work, receive, send_request,
};
use crate::deliver::WorkEnd;
use crate::record::WaitingReason;

async fn received_texts(fixture: &DeliveryFixture) -> Vec<String> {
    let received = published_work::<v1::ReceiveMessage>(fixture, "dray.work.inbound.>").await;
    received.into_iter().map(|(_, work)| work.text).collect()
}

#[tokio::test]
async fn a_text_that_is_too_long_is_placed_as_a_file() {
    let fixture = fixture(|_| {}).await;
    fixture.sandbox.bind(chat("42"));
    let bytes = UserAttachment::Bytes(b"a,b".to_vec());
    fixture.fake.attach("a.csv", [bytes]);
    let mut long = message("7", vec![attachment("a.csv", 3)]);
    long.text = format!("{}now delete only the last three", "é".repeat(50_000));
    receive(&fixture, long.clone()).await.unwrap();
    let text = received_texts(&fixture).await.remove(0);
    assert!(text.len() <= 32 * 1024, "{}", text.len());
    assert!(text.starts_with("éé") && text.ends_with("the whole message is in message.txt]"));
    let placed = placed_uploads(&fixture).await;
    let names: Vec<_> = placed.iter().map(|place| place.name.as_str()).collect();
    assert_eq!(names, ["message.txt", "a.csv"]);
    let claim = placed[0].claim.clone().unwrap().try_into().unwrap();
    let deadline = fixture.store.deadline_after(Duration::from_mins(1));
    let reader = fixture.store.read(&tenant(), &claim, deadline).await;
    let stored = reader.unwrap().read_all(ByteSize::mib(1)).await.unwrap();
    assert_eq!(stored, long.text.as_bytes());
}

#[tokio::test]
async fn a_large_batch_is_stored_in_its_order() {
    let fixture = fixture(|_| {}).await;
    fixture.fake.accept_webhooks_of(3 << 20);
    let messages = (0..140).map(|number| InboundMessage {
        text: format!("{number} {}", "x".repeat(20_000)),
        ..message(&number.to_string(), Vec::new())
    });
    let body = serde_json::to_vec(&messages.collect::<Vec<_>>()).unwrap();
    assert!(body.len() > 2 << 20, "{}", body.len());
    let signed = post("/platforms/bot/webhook?batch").header("x-signed", "1");
    let request = signed.body(Body::from(body)).unwrap();
    assert_eq!(send_request(&fixture, request).await.0, StatusCode::OK);
    let texts = received_texts(&fixture).await;
    let numbers = texts.iter().map(|text| text.split(' ').next().unwrap());
    assert!(numbers.eq((0..140).map(|number| number.to_string())));
}

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
