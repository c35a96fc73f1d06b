//! Tests of failures that a platform reports after it accepted a message.

use dray_platform::{ErrorKind, Route, StatusUpdate};

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, states};
use crate::deliver::WorkEnd;
use crate::record::{DeliveryRecord, FileState};

impl DeliveryFixture {
    /// Applies the report that a message failed.
    async fn report_failure(&self, message: &str, code: &str) {
        let account = self.replica.inbound.accounts.named("bot").unwrap();
        let update = StatusUpdate {
            message_id: message.to_owned(),
            status: "failed".to_owned(),
            code: code.to_owned(),
        };
        let statuses = &self.replica.inbound.statuses;
        statuses.status(&account, &update).await.unwrap();
    }

    /// Runs the work that continues a delivery, which must end it.
    async fn resumed(&self, id: &str) -> DeliveryRecord {
        match self.resume(id).await.unwrap() {
            WorkEnd::Finished(record) => record,
            WorkEnd::Waiting(record) => panic!("the delivery waits for {:?}", record.waiting),
        }
    }
}

#[tokio::test]
async fn media_that_is_refused_later_is_sent_as_a_document_and_then_as_a_link() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.fall_back_to(Route::Document);
    fixture
        .fake
        .script([FakeAction::Accept, FakeAction::Accept]);
    let png = b"\x89PNG\r\n\x1a\n0000IHDR";
    let work = fixture.files("d1", &[("a.png", png)]).await;
    assert!(fixture.delivered(&work).await.success);
    fixture.report_failure("m1", "131053").await;
    fixture.sweep().await;
    assert_eq!(fixture.published("delivery-telegram").await, ["r1-d1"]);
    let record = fixture.resumed("d1").await;
    assert_eq!(states(&record), [FileState::Delivered]);
    assert_eq!(record.files[0].route, Some(Route::Document));
    fixture.report_failure("m2", "131053").await;
    let record = fixture.resumed("d1").await;
    assert_eq!(states(&record), [FileState::DeliveredAsLink]);
    assert!(record.success);
    assert_eq!(fixture.fake.visible_messages().len(), 3);
}

#[tokio::test]
async fn r_21_a_file_that_fails_later_is_reported_in_the_chat() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::Accept]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    fixture.delivered(&work).await;
    fixture.report_failure("m1", "131000").await;
    let record = fixture.resumed("d1").await;
    assert_eq!(states(&record), [FileState::Failed]);
    assert!(record.finished && !record.success);
    let notice = fixture.fake.visible_messages().pop().unwrap();
    assert_eq!(notice.text, record.notice);
    assert!(notice.text.contains("a.txt"), "{}", notice.text);
}

#[tokio::test]
async fn the_caption_of_a_file_that_fails_is_sent_once_as_a_text() {
    for is_late in [true, false] {
        let fixture = DeliveryFixture::new().await;
        let refused = FakeAction::Refuse(ErrorKind::BadFormat);
        let action = if is_late { FakeAction::Accept } else { refused };
        fixture.fake.script([action]);
        let mut work = fixture.files("d1", &[("a.txt", b"a")]).await;
        work.message = "look".to_owned();
        let mut record = fixture.delivered(&work).await;
        let mut expected = vec!["text:|look".to_owned()];
        if is_late {
            fixture.report_failure("m1", "131000").await;
            record = fixture.resumed("d1").await;
            expected.insert(0, "document:a.txt|look".to_owned());
        }
        assert!(!record.success);
        expected.push(format!("text:|{}", record.notice));
        assert_eq!(fixture.fake.visible_texts(), expected);
    }
}

#[tokio::test]
async fn a_person_who_cannot_be_reached_gets_no_notice() {
    for code in ["131026", "5.1.1", "4.4.7"] {
        let fixture = DeliveryFixture::new().await;
        fixture.fake.script([FakeAction::Accept]);
        let work = fixture.files("d1", &[("a.txt", b"a")]).await;
        fixture.delivered(&work).await;
        fixture.report_failure("m1", code).await;
        let record = fixture.record("d1").await;
        assert_eq!(states(&record), [FileState::Rejected], "{code}");
        assert!(record.finished, "{code}");
        assert_eq!(fixture.fake.requests(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_file_of_a_mail_that_was_too_large_is_sent_as_a_link() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::Accept]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    fixture.delivered(&work).await;
    fixture.report_failure("m1", "5.3.4").await;
    let reported = fixture.record("d1").await;
    assert_eq!(
        reported.files[0].error_kind,
        Some(ErrorKind::TooLarge.into())
    );
    let record = fixture.resumed("d1").await;
    assert_eq!(states(&record), [FileState::DeliveredAsLink]);
}

#[tokio::test]
async fn a_bounce_has_the_kind_of_its_status_code_and_no_notice() {
    let full = "The recipient's mailbox is full.";
    for (code, kind, message) in [
        ("5.2.2", ErrorKind::Unknown, full),
        ("4.2.2", ErrorKind::Unknown, full),
        ("5.0.0", ErrorKind::Unknown, ErrorKind::Unknown.sentence()),
        (
            "5.1.8",
            ErrorKind::BadFormat,
            ErrorKind::BadFormat.sentence(),
        ),
        ("5.2.1", ErrorKind::NotFound, ErrorKind::NotFound.sentence()),
        (
            "4.7.1",
            ErrorKind::Forbidden,
            ErrorKind::Forbidden.sentence(),
        ),
    ] {
        let fixture = DeliveryFixture::new().await;
        fixture.fake.script([FakeAction::Accept]);
        let work = fixture.files("d1", &[("a.txt", b"a")]).await;
        fixture.delivered(&work).await;
        fixture.report_failure("m1", code).await;
        let record = fixture.record("d1").await;
        let file = &record.files[0];
        assert_eq!(file.error_kind, Some(kind.into()), "{code}");
        assert_eq!(file.error_message, message, "{code}");
        assert_eq!(file.platform_code, code);
        assert!(record.finished && !record.success, "{code}");
        assert_eq!(fixture.fake.requests(), 1, "{code}");
    }
}
