//! Tests of chats that the platform moves to another id.

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, states};
use crate::record::FileState;

#[tokio::test]
async fn the_new_id_of_a_moved_chat_is_used_after_a_restart_too() {
    let mut fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::MoveTo("-100")]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(report.target.unwrap().chat, "-100");
    assert_eq!(fixture.fake.requests(), 2);
    fixture.restart();
    let work = fixture.files("d2", &[("b.txt", b"b")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(report.target.unwrap().chat, "-100");
    let chats: Vec<_> = fixture
        .fake
        .visible_messages()
        .into_iter()
        .map(|seen| seen.chat)
        .collect();
    assert_eq!(chats, ["-100", "-100"]);
    assert_eq!(fixture.fake.requests(), 3, "no request goes to the old id");
}

#[tokio::test]
async fn a_chat_that_moves_with_every_request_is_rejected() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script(vec![FakeAction::MoveTo("1"); 99]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Rejected]);
    assert_eq!(fixture.fake.requests(), 5);
}
