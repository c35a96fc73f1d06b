//! Attachments that a message does not name.

use super::fake::UserAttachment;
use super::fixture::chat;
use super::inbound::{attachment, fixture, message, placed_uploads, receive};

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
