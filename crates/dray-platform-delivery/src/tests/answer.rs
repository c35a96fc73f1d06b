//! An agent's final text and the files that it names.

use dray_proto::v1;

use super::path::{QueueWorkers, over};
use super::world::{DeliveryFixture, chat, states};
use crate::report::state;

fn text(text: &str) -> v1::SendTextRequested {
    v1::SendTextRequested {
        session: "s".to_owned(),
        text: text.to_owned(),
        turn: "t".to_owned(),
    }
}

async fn world() -> DeliveryFixture {
    let world = DeliveryFixture::new().await;
    world.sandbox.bind(chat("42"));
    for name in ["a.pdf", "b c.pdf"] {
        let claim = world.claim(name, name.as_bytes()).await;
        world
            .sandbox
            .put(&format!("/w/{name}"), "file", Some(claim));
    }
    world
}

#[tokio::test]
async fn r_4_tags_become_files_and_what_is_missing_is_told() {
    let world = world().await;
    let said =
        text("Here: MEDIA:/w/a.pdf and MEDIA:/w/b c.pdf, not MEDIA:/w/none.pdf [[as_document]]");
    let reply = world
        .desk
        .send_text(&world.meta("d1"), &said)
        .await
        .unwrap();
    assert_eq!(reply.notices, ["none.pdf"]);
    assert!(
        !reply.text.contains("MEDIA") && !reply.text.contains("as_document"),
        "{}",
        reply.text
    );
    assert_eq!(reply.delivery_id, "d1");
    let _workers = QueueWorkers::start(&world);
    let report = over(&world, "d1").await;
    assert_eq!(
        states(&report),
        [state::STATE_DELIVERED, state::STATE_DELIVERED]
    );
    assert!(report.flags.unwrap().as_document);
}

#[tokio::test]
async fn a_text_without_tags_sends_nothing() {
    let world = world().await;
    let reply = world
        .desk
        .send_text(&world.meta("d1"), &text("Done."))
        .await
        .unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        ("Done.", "")
    );
    assert!(world.published("delivery").await.is_empty());
}

#[tokio::test]
async fn r_3_what_the_tool_sent_in_the_turn_is_not_sent_again() {
    let world = world().await;
    let tool = v1::SendFileRequested {
        session: "s".to_owned(),
        turn: "t".to_owned(),
        paths: vec![b"/w/a.pdf".to_vec()],
        ..v1::SendFileRequested::default()
    };
    let meta = world.meta("d1");
    world.desk.accept(&meta, &tool).await.unwrap();
    world.desk.note_turn(&meta, &tool).await;
    let said = text("MEDIA:/w/a.pdf");
    let reply = world
        .desk
        .send_text(&world.meta("d2"), &said)
        .await
        .unwrap();
    assert_eq!(reply.delivery_id, "", "it is on its way");
    let other_turn = v1::SendTextRequested {
        turn: "u".to_owned(),
        ..said.clone()
    };
    let reply = world
        .desk
        .send_text(&world.meta("d3"), &other_turn)
        .await
        .unwrap();
    assert_eq!(reply.delivery_id, "d3", "another turn is another wish");
    world.fake.script([super::fake::FakeAction::Refuse(
        dray_platform::ErrorKind::Forbidden,
    )]);
    let _workers = QueueWorkers::start(&world);
    over(&world, "d1").await;
    let reply = world
        .desk
        .send_text(&world.meta("d4"), &said)
        .await
        .unwrap();
    assert_eq!(reply.delivery_id, "d4", "what failed may be sent again");
}
