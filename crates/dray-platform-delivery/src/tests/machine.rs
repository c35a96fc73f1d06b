//! Crashes, lost responses and refusals at every step: users never see a message twice, and no receipt is wrong.

use std::time::Duration;

use dray_delivery_rules::failure::REQUEST_LIFETIME;
use dray_platform::{DuplicateProtection, ErrorKind};
use dray_types::OperationId;

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, states, tenant};
use crate::deliver::WorkEnd;
use crate::error::DeliveryError;
use crate::record::{FileState, WaitingReason};
use crate::records::{RecordError, record_key};

const RESEND_WINDOW: DuplicateProtection = DuplicateProtection::Resend(Duration::from_mins(2));

#[tokio::test]
async fn r_13_a_lost_response_is_unknown_when_the_platform_has_no_lookup() {
    for action in [FakeAction::LoseResponse, FakeAction::LoseRequest] {
        let fixture = DeliveryFixture::new().await;
        fixture.fake.script([action]);
        let work = fixture
            .files("d", &[("a.txt", b"a"), ("b.txt", b"b")])
            .await;
        let report = fixture.delivered(&work).await;
        assert_eq!(states(&report), [FileState::Unknown, FileState::Delivered]);
        assert!(!report.success);
        assert_eq!(fixture.fake.requests(), 3, "two files and the notice");
        let notice = fixture.fake.visible_messages().pop().unwrap().text;
        assert_eq!(notice, "⚠️ May have been delivered: a.txt.");
    }
}

#[tokio::test]
async fn a_crash_after_the_request_was_sent_is_unknown_and_never_repeated() {
    for action in [FakeAction::CrashAfter, FakeAction::CrashBefore] {
        let shown = usize::from(action == FakeAction::CrashAfter);
        let mut fixture = DeliveryFixture::new().await;
        fixture.fake.script([action]);
        let work = fixture.files("d", &[("a.txt", b"a")]).await;
        fixture.crash_in(&work).await;
        let report = fixture.delivered(&work).await;
        assert_eq!(states(&report), [FileState::Unknown]);
        let file_messages = fixture
            .fake
            .visible_messages()
            .into_iter()
            .filter(|seen| !seen.files.is_empty());
        assert_eq!(file_messages.count(), shown);
        assert_eq!(
            fixture.delivered(&work).await,
            report,
            "a redelivery changes nothing"
        );
        assert_eq!(fixture.fake.requests(), 2, "the file and the notice");
    }
}

#[tokio::test]
async fn r_8_a_platform_with_idempotency_keys_shows_one_message_after_any_loss() {
    for ambiguity in [
        RESEND_WINDOW,
        DuplicateProtection::ResendAlways,
        DuplicateProtection::Reconcile,
    ] {
        for action in [
            FakeAction::LoseResponse,
            FakeAction::LoseRequest,
            FakeAction::CrashAfter,
            FakeAction::CrashBefore,
        ] {
            let crashes = matches!(action, FakeAction::CrashAfter | FakeAction::CrashBefore);
            let mut fixture = DeliveryFixture::with(ambiguity, |_| {}).await;
            fixture.fake.script([action.clone()]);
            let work = fixture.files("d", &[("a.txt", b"a")]).await;
            if crashes {
                fixture.crash_in(&work).await;
                if ambiguity == DuplicateProtection::Reconcile {
                    fixture.clock.advance(REQUEST_LIFETIME);
                }
            }
            let report = fixture.delivered(&work).await;
            assert_eq!(
                states(&report),
                [FileState::Delivered],
                "{ambiguity:?} {action:?}"
            );
            assert_eq!(
                fixture.fake.visible_texts(),
                ["document:a.txt|"],
                "{ambiguity:?} {action:?}"
            );
            // After a lookup that found no message, the request is a first one again.
            let repeats = ambiguity != DuplicateProtection::Reconcile;
            assert_eq!(
                fixture.fake.repeated_requests(),
                usize::from(repeats),
                "{ambiguity:?} {action:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_request_of_a_crashed_worker_that_may_still_arrive_is_not_sent_again() {
    let mut fixture = DeliveryFixture::with(DuplicateProtection::Reconcile, |_| {}).await;
    fixture.fake.script([FakeAction::CrashBefore]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    fixture.crash_in(&work).await;
    let waiting = fixture.resume("d").await.unwrap();
    assert!(matches!(waiting, WorkEnd::Waiting(_)), "{waiting:?}");
    let requests = fixture.fake.requests();
    fixture.clock.advance(REQUEST_LIFETIME);
    let ended = fixture.resume("d").await.unwrap();
    assert!(
        matches!(&ended, WorkEnd::Finished(report) if states(report) == [FileState::Delivered]),
        "{ended:?}"
    );
    assert_eq!(fixture.fake.requests(), requests + 1);
    assert_eq!(fixture.fake.visible_texts(), ["document:a.txt|"]);
}

#[tokio::test]
async fn after_the_window_of_a_key_no_replica_sends_again() {
    let mut fixture = DeliveryFixture::with(RESEND_WINDOW, |_| {}).await;
    fixture.fake.script([FakeAction::CrashAfter]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    fixture.crash_in(&work).await;
    fixture.clock.advance(Duration::from_secs(121));
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
    assert_eq!(
        fixture
            .fake
            .visible_messages()
            .iter()
            .filter(|seen| !seen.files.is_empty())
            .count(),
        1
    );
}

#[tokio::test]
async fn a_request_that_is_lost_twice_is_not_sent_a_third_time() {
    let fixture = DeliveryFixture::with(DuplicateProtection::Reconcile, |_| {}).await;
    fixture
        .fake
        .script([FakeAction::LoseRequest, FakeAction::LoseRequest]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
    assert_eq!(fixture.fake.requests(), 3, "twice, and the notice");
}

#[tokio::test]
async fn a_request_whose_response_confirms_nothing_is_not_sent_again() {
    let fixture = DeliveryFixture::with(DuplicateProtection::Reconcile, |_| {}).await;
    fixture.fake.script([FakeAction::Unconfirmed]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
    assert_eq!(fixture.fake.requests(), 2, "once, and the notice");
}

#[tokio::test]
async fn a_refused_repetition_does_not_exclude_a_visible_message() {
    let fixture = DeliveryFixture::with(DuplicateProtection::ResendAlways, |_| {}).await;
    fixture.fake.script([
        FakeAction::LoseResponse,
        FakeAction::Refuse(ErrorKind::Forbidden),
    ]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Unknown]);
}

#[tokio::test]
async fn invisible_uploads_are_sent_once() {
    let mut fixture = DeliveryFixture::with(DuplicateProtection::Reconcile, |_| {}).await;
    fixture.fake.prepares();
    fixture.fake.script([FakeAction::CrashBefore]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    fixture.crash_in(&work).await;
    fixture.clock.advance(REQUEST_LIFETIME);
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(fixture.fake.uploads(), 1);
}

#[tokio::test]
async fn every_kind_of_refusal_has_its_state() {
    use ErrorKind as Kind;
    for (kind, expected) in [
        (Kind::BadFormat, FileState::Rejected),
        (Kind::Forbidden, FileState::Rejected),
        (Kind::NotFound, FileState::Rejected),
        (Kind::Empty, FileState::Rejected),
        (Kind::Auth, FileState::Failed),
        (Kind::NoThread, FileState::Rejected),
        (Kind::TooLong, FileState::Rejected),
        (Kind::Unknown, FileState::Failed),
    ] {
        let fixture = DeliveryFixture::new().await;
        fixture.fake.script([FakeAction::Refuse(kind)]);
        let work = fixture.files("d", &[("a.txt", b"a")]).await;
        let report = fixture.delivered(&work).await;
        assert_eq!(states(&report), [expected], "{kind}");
        let file = &report.files[0];
        assert_eq!(
            (file.error_kind, file.platform_code.as_str()),
            (Some(kind.into()), "7")
        );
        assert_eq!(file.error_message, kind.sentence());
        assert!(
            fixture
                .fake
                .visible_messages()
                .iter()
                .all(|seen| seen.files.is_empty())
        );
    }
}

#[tokio::test]
async fn transient_errors_have_at_most_five_attempts() {
    let fixture = DeliveryFixture::new().await;
    fixture
        .fake
        .script(vec![FakeAction::Refuse(ErrorKind::Transient); 2]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(report.files[0].attempts, 3);
    let failed_attempts = fixture.failed_attempts().await;
    assert_eq!(
        failed_attempts,
        [1, 2].map(|attempt| format!("{attempt} a.txt transient"))
    );
    fixture
        .fake
        .script(vec![FakeAction::Refuse(ErrorKind::Transient); 5]);
    let work = fixture.files("d2", &[("b.txt", b"b")]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Failed]);
    assert_eq!(
        fixture.fake.requests(),
        3 + 5 + 1,
        "five attempts and the notice"
    );
}

#[tokio::test]
async fn a_failed_attempt_that_the_record_does_not_have_is_not_reported() {
    let fixture = DeliveryFixture::new().await;
    let refusal = FakeAction::RefuseWhenPermitted(ErrorKind::Transient);
    fixture.fake.script([refusal]);
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    let takeover = async {
        fixture.fake.refusal_arrived().await;
        // Another worker writes the record, so the worker of the request cannot store its outcome.
        let key = record_key(&tenant(), &OperationId::new("d").unwrap());
        let records = &fixture.replica.receipts.log.records;
        let stored = records.read(&key).await.unwrap().unwrap();
        records
            .write(&key, stored.record, stored.revision)
            .await
            .unwrap();
        fixture.fake.permit_refusal();
    };
    let (ended, ()) = tokio::join!(fixture.deliver(&work), takeover);
    assert!(
        matches!(ended, Err(DeliveryError::Record(RecordError::Moved))),
        "{ended:?}"
    );
    assert_eq!(fixture.failed_attempts().await, [""; 0]);
}

#[tokio::test]
async fn a_short_wait_is_made_inline_and_is_not_an_attempt() {
    let fixture = DeliveryFixture::new().await;
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    fixture
        .fake
        .script(vec![FakeAction::Wait(Duration::from_millis(50)); 7]);
    let started_at = tokio::time::Instant::now();
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(report.files[0].attempts, 1);
    assert!(
        started_at.elapsed() >= Duration::from_millis(350),
        "the delivery ended too soon"
    );
}

#[tokio::test]
async fn r_19_a_long_wait_parks_the_delivery_and_no_other_chat_waits() {
    let fixture = DeliveryFixture::new().await;
    let delay = Duration::from_mins(97);
    fixture.fake.script([FakeAction::Wait(delay)]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    let WorkEnd::Waiting(waiting) = fixture.deliver(&work).await.unwrap() else {
        panic!("the delivery must wait");
    };
    assert_eq!(waiting.waiting, Some(WaitingReason::RateLimited));
    let later = fixture.files("d2", &[("b.txt", b"b")]).await;
    let WorkEnd::Waiting(_) = fixture.deliver(&later).await.unwrap() else {
        panic!("the later delivery must wait");
    };
    let mut other_chat = fixture.files("d3", &[("c.txt", b"c")]).await;
    other_chat.target = Some(super::fixture::chat("43"));
    assert!(fixture.delivered(&other_chat).await.success);
    assert_eq!(fixture.fake.visible_texts(), ["document:c.txt|"]);
    // Redelivered work of the first round does nothing, because a later round continues.
    assert!(matches!(
        fixture.deliver(&work).await.unwrap(),
        WorkEnd::Waiting(_)
    ));
    assert_eq!(fixture.fake.requests(), 2);
}

#[tokio::test]
async fn r_10_parts_that_were_not_confirmed_are_not_delivered() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::ShowSome(1)]);
    let png = b"\x89PNG\r\n\x1a\n0000IHDR";
    let work = fixture.files("d", &[("a.png", png), ("b.png", png)]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered, FileState::Failed]);
    assert!(report.files[0].lossy);
    assert_eq!(fixture.fake.visible_texts()[0], "photo:a.png|");
}

#[tokio::test]
async fn a_refusal_of_the_chat_ends_the_other_files_immediately() {
    let fixture = DeliveryFixture::new().await;
    fixture
        .fake
        .script([FakeAction::Refuse(ErrorKind::NotFound)]);
    let work = fixture
        .files("d", &[("a.txt", b"a"), ("b.txt", b"b")])
        .await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Rejected, FileState::Rejected]);
    assert_eq!(fixture.fake.requests(), 1, "and no notice to the same chat");
}

#[tokio::test]
async fn a_missing_thread_is_recorded_and_the_step_is_sent_without_it() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([
        FakeAction::Refuse(ErrorKind::NoThread),
        FakeAction::Refuse(ErrorKind::NoThread),
    ]);
    let mut work = fixture.files("d", &[("a.txt", b"a")]).await;
    let target = work.target.as_mut().unwrap();
    target.thread = "9".to_owned();
    target.reply_to = "7".to_owned();
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    let target = report.target.unwrap();
    assert_eq!((target.thread.as_str(), target.reply_to.as_str()), ("", ""));
}
