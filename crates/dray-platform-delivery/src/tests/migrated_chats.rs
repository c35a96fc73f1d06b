//! Tests of chats that the platform moves to another id.

use std::sync::Arc;

use dray_platform::{ChatMove, InboundSink as _};

use super::fake::{FakeAction, UserAttachment};
use super::fixture::{DeliveryFixture, chat, states};
use super::inbound::{attachment, message, placed_uploads, receive};
use crate::inbound::DurableInboundSink;
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

/// Receives a message with a file from this chat, and returns the session in which it is placed.
async fn placed_session(fixture: &DeliveryFixture, id: &str, chat: &str) -> Option<String> {
    let bytes = UserAttachment::Bytes(b"a".to_vec());
    fixture.fake.attach("a.txt", [bytes]);
    let mut message = message(id, vec![attachment("a.txt", 1)]);
    chat.clone_into(&mut message.target.chat);
    receive(fixture, message).await.ok()?;
    let placed = placed_uploads(fixture).await.pop()?;
    assert_eq!(placed.chat.unwrap().chat, chat);
    Some(placed.session)
}

#[tokio::test]
async fn files_from_the_new_id_of_a_chat_come_to_the_session_of_the_old_one() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    assert_eq!(placed_session(&fixture, "1", "-100").await, None);
    fixture.fake.script([FakeAction::MoveTo("-100")]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    fixture.delivered(&work).await;
    let session = placed_session(&fixture, "2", "-100").await;
    assert_eq!(session.as_deref(), Some("s"));
}

#[tokio::test]
async fn a_reported_move_is_followed_in_both_directions() {
    let fixture = DeliveryFixture::new().await;
    let sink = DurableInboundSink {
        service: Arc::clone(&fixture.replica.inbound),
        account: fixture.replica.inbound.accounts.named("bot").unwrap(),
    };
    for (from, to) in [("42", "-100"), ("-100", "-200")] {
        let (from, to) = (from.to_owned(), to.to_owned());
        sink.chat_moved(ChatMove { from, to }).await;
    }
    for (number, bound) in ["42", "-100", "-200"].into_iter().enumerate() {
        fixture.sandbox.bind(chat(bound));
        for writing in ["42", "-100", "-200"] {
            let id = format!("{number}-{writing}");
            let session = placed_session(&fixture, &id, writing).await;
            assert_eq!(session.as_deref(), Some("s"), "{bound} {writing}");
        }
    }
    assert_eq!(placed_session(&fixture, "9", "43").await, None);
}
