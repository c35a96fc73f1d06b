//! An agent's final text and the files in its tags.

use std::fmt::Write as _;

use dray_platform::DuplicateProtection;
use dray_proto::v1;
use dray_types::{ByteSize, Claim, Fault, FaultCode};

use super::fixture::{DeliveryFixture, chat, states};
use super::path::{QueueWorkers, finished_record};
use crate::config::Config;
use crate::record::FileState;

pub(super) fn text(text: &str) -> v1::SendTextRequested {
    v1::SendTextRequested {
        session: "s".to_owned(),
        text: text.to_owned(),
        turn: "t".to_owned(),
        ..v1::SendTextRequested::default()
    }
}

/// Returns a request for this stored text.
async fn stored_text(fixture: &DeliveryFixture, text: &[u8]) -> v1::SendTextRequested {
    v1::SendTextRequested {
        session: "s".to_owned(),
        text_claim: Some(fixture.claim("answer.txt", text).await.into()),
        ..v1::SendTextRequested::default()
    }
}

/// A text that is too long for a bus message, with one tag at its end.
fn long_text() -> String {
    format!("{}MEDIA:/w/a.pdf", "строка\n".repeat(20_000))
}

pub(super) async fn fixture() -> DeliveryFixture {
    fixture_with(|_| {}).await
}

/// A fixture with two files in the sandbox and this change of the configuration.
pub(super) async fn fixture_with(change: impl FnOnce(&mut Config)) -> DeliveryFixture {
    let fixture = DeliveryFixture::with(DuplicateProtection::Unknown, change).await;
    fixture.sandbox.bind(chat("42"));
    for name in ["a.pdf", "b c.pdf"] {
        let claim = fixture.claim(name, name.as_bytes()).await;
        fixture
            .sandbox
            .put(&format!("/w/{name}"), "file", Some(claim));
    }
    fixture
}

#[tokio::test]
async fn r_4_tags_become_files_and_missing_files_are_reported() {
    let fixture = fixture().await;
    let request =
        text("Here: MEDIA:/w/a.pdf and MEDIA:/w/b c.pdf, not MEDIA:/w/none.pdf [[as_document]]");
    let reply = fixture
        .replica
        .texts
        .send_text(&fixture.meta("d1"), &request)
        .await
        .unwrap();
    assert_eq!(reply.notices, ["none.pdf"]);
    assert!(
        !reply.text.contains("MEDIA") && !reply.text.contains("as_document"),
        "{}",
        reply.text
    );
    assert_eq!(reply.delivery_id, "d1");
    let _workers = QueueWorkers::start(&fixture);
    let report = finished_record(&fixture, "d1").await;
    assert_eq!(
        states(&report),
        [FileState::Delivered, FileState::Delivered]
    );
    assert!(report.flags.unwrap().as_document);
}

#[tokio::test]
async fn a_text_without_tags_sends_nothing() {
    let fixture = fixture().await;
    let reply = fixture
        .replica
        .texts
        .send_text(&fixture.meta("d1"), &text("Done."))
        .await
        .unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        ("Done.", "")
    );
    assert!(fixture.published("delivery").await.is_empty());
}

#[tokio::test]
async fn r_3_a_file_that_the_tool_sent_in_the_turn_is_not_sent_again() {
    let fixture = fixture().await;
    let tool = v1::SendFileRequested {
        session: "s".to_owned(),
        turn: "t".to_owned(),
        paths: vec![b"/w/a.pdf".to_vec()],
        ..v1::SendFileRequested::default()
    };
    let meta = fixture.meta("d1");
    fixture.replica.intake.accept(&meta, &tool).await.unwrap();
    fixture.replica.texts.note_turn(&meta, &tool).await;
    let request = text("MEDIA:/w/a.pdf");
    let reply = fixture
        .replica
        .texts
        .send_text(&fixture.meta("d2"), &request)
        .await
        .unwrap();
    assert_eq!(reply.delivery_id, "", "the file is being delivered");
    let other_turn = v1::SendTextRequested {
        turn: "u".to_owned(),
        ..request.clone()
    };
    let reply = fixture
        .replica
        .texts
        .send_text(&fixture.meta("d3"), &other_turn)
        .await
        .unwrap();
    assert_eq!(reply.delivery_id, "d3", "another turn is another request");
    fixture.fake.script([super::fake::FakeAction::Refuse(
        dray_platform::ErrorKind::Forbidden,
    )]);
    let _workers = QueueWorkers::start(&fixture);
    finished_record(&fixture, "d1").await;
    let reply = fixture
        .replica
        .texts
        .send_text(&fixture.meta("d4"), &request)
        .await
        .unwrap();
    assert_eq!(reply.delivery_id, "d4", "a failed file may be sent again");
}

#[tokio::test]
async fn concurrent_requests_of_a_turn_on_two_replicas_are_all_remembered() {
    let fixture = fixture().await;
    let other = DeliveryFixture::start_on(
        fixture.bus.clone(),
        fixture.clock.clone(),
        DuplicateProtection::Unknown,
        |_| {},
    )
    .await;
    let mut tags = String::new();
    let mut requests = Vec::new();
    for number in 0..8 {
        let path = format!("/w/{number}.txt");
        fixture.sandbox.put(&path, "file", None);
        other.sandbox.put(&path, "file", None);
        writeln!(tags, "MEDIA:{path}").unwrap();
        let work = v1::SendFileRequested {
            session: "s".to_owned(),
            turn: "t".to_owned(),
            paths: vec![path.into_bytes()],
            ..v1::SendFileRequested::default()
        };
        requests.push((fixture.meta(&format!("d{number}")), work));
    }
    let replicas = [&fixture.replica, &other.replica].into_iter().cycle();
    let notes = requests.iter().zip(replicas);
    let notes = notes.map(|((meta, work), replica)| replica.texts.note_turn(meta, work));
    let noted = futures_util::future::join_all(notes).await;
    assert_eq!(noted, [true; 8]);
    let reply = fixture
        .replica
        .texts
        .send_text(&fixture.meta("media"), &text(&tags))
        .await
        .unwrap();
    assert_eq!(reply.delivery_id, "", "every file is being delivered");
}

#[tokio::test]
async fn a_request_that_was_not_accepted_is_forgotten() {
    let fixture = fixture().await;
    let tool = v1::SendFileRequested {
        session: "s".to_owned(),
        turn: "t".to_owned(),
        paths: vec![b"/w/a.pdf".to_vec()],
        ..v1::SendFileRequested::default()
    };
    let (meta, texts) = (fixture.meta("d1"), &fixture.replica.texts);
    assert!(texts.note_turn(&meta, &tool).await);
    assert!(!texts.note_turn(&meta, &tool).await, "noted before");
    texts.forget_request(&meta, &tool).await;
    let (meta, request) = (fixture.meta("d2"), text("MEDIA:/w/a.pdf"));
    let reply = texts.send_text(&meta, &request).await.unwrap();
    assert_eq!(reply.delivery_id, "d2");
}

#[tokio::test]
async fn a_long_text_is_read_from_and_returned_in_the_store() {
    let fixture = fixture().await;
    let long = long_text();
    let request = stored_text(&fixture, long.as_bytes()).await;
    let meta = fixture.meta("d1");
    let reply = fixture
        .replica
        .texts
        .send_text(&meta, &request)
        .await
        .unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.delivery_id.as_str()),
        ("", "d1")
    );
    let claim = Claim::try_from(reply.text_claim.unwrap()).unwrap();
    let reader = fixture
        .store
        .read(&meta.tenant, &claim, meta.deadline)
        .await;
    let bytes = reader.unwrap().read_all(ByteSize::mib(1)).await;
    let shown = String::from_utf8(bytes.unwrap().into()).unwrap();
    assert_eq!(
        shown.trim_end(),
        long.replace("MEDIA:/w/a.pdf", "").trim_end()
    );
}

#[tokio::test]
async fn a_short_stored_text_is_returned_in_the_message() {
    let fixture = fixture().await;
    let request = stored_text(&fixture, b"Done.").await;
    let reply = fixture
        .replica
        .texts
        .send_text(&fixture.meta("d1"), &request)
        .await;
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), reply.text_claim), ("Done.", None));
}

#[tokio::test]
async fn a_text_that_breaks_the_contract_is_refused() {
    let fixture = fixture().await;
    let mut both = stored_text(&fixture, b"Done.").await;
    both.text = "Done.".to_owned();
    let mut too_large = stored_text(&fixture, b"Done.").await;
    let artifact = too_large.text_claim.as_mut().unwrap().artifact.as_mut();
    artifact.unwrap().size = (8 << 20) + 1;
    let requests = [
        (text(&long_text()), "text"),
        (both, "text"),
        (too_large, "text_claim"),
        (stored_text(&fixture, b"\xff").await, "text_claim"),
    ];
    for (request, field) in requests {
        let failure = fixture
            .replica
            .texts
            .send_text(&fixture.meta("d1"), &request)
            .await;
        let fault = Fault::from(failure.unwrap_err());
        assert_eq!(fault.code, FaultCode::InvalidArgument, "{fault:?}");
        assert!(format!("{fault:?}").contains(field), "{fault:?}");
    }
    assert!(fixture.published("delivery").await.is_empty());
}

#[tokio::test]
async fn a_stored_text_of_another_tenant_is_refused() {
    let fixture = fixture().await;
    let mut request = stored_text(&fixture, b"Done.").await;
    let artifact = request.text_claim.as_mut().unwrap().artifact.as_mut();
    artifact.unwrap().tenant = "other".to_owned();
    let failure = fixture
        .replica
        .texts
        .send_text(&fixture.meta("d1"), &request)
        .await;
    assert_eq!(Fault::from(failure.unwrap_err()).code, FaultCode::Denied);
}
