//! Tests of deliveries that wait and continue, of windows that open, and of later status updates.

use std::time::Duration;

use dray_platform::{ErrorKind, StatusUpdate};
use dray_proto::v1;
use dray_types::{OperationId, Sha256Digest};

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, chat, states, tenant};
use crate::deliver::WorkEnd;
use crate::error::DeliveryError;
use crate::platform_cache::MessageOrigin;
use crate::record::{DeliveryStart, FileState, WaitingReason};
use crate::records::record_key;

/// Starts a delivery that this action makes wait.
async fn start_waiting(fixture: &DeliveryFixture, id: &str, action: FakeAction) -> DeliveryStart {
    fixture.fake.script([action]);
    let work = fixture.files(id, &[("a.txt", id.as_bytes())]).await;
    assert!(matches!(
        fixture.deliver(&work).await.unwrap(),
        WorkEnd::Waiting(_)
    ));
    work
}

#[tokio::test]
async fn a_parked_delivery_continues_when_it_is_due_and_not_before() {
    let mut fixture = DeliveryFixture::new().await;
    start_waiting(&fixture, "d1", FakeAction::Wait(Duration::from_mins(97))).await;
    let second = fixture.files("d2", &[("b.txt", b"b")]).await;
    assert!(matches!(
        fixture.deliver(&second).await.unwrap(),
        WorkEnd::Waiting(_)
    ));
    fixture.restart();
    fixture.sweep().await;
    assert!(fixture.published("delivery-telegram").await.is_empty());
    assert!(
        matches!(fixture.resume("d1").await.unwrap(), WorkEnd::Waiting(_)),
        "too soon"
    );
    fixture.clock.advance(Duration::from_mins(98));
    fixture.sweep().await;
    assert_eq!(
        fixture.published("delivery-telegram").await,
        ["r1-d1", "r1-d2"]
    );
    let WorkEnd::Finished(report) = fixture.resume("d1").await.unwrap() else {
        panic!("the delivery must have ended");
    };
    assert_eq!(states(&report), [FileState::Delivered]);
    assert!(matches!(
        fixture.resume("d2").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    assert_eq!(
        fixture.fake.visible_texts(),
        ["document:a.txt|", "document:b.txt|"],
        "in order"
    );
}

#[tokio::test]
async fn work_of_an_earlier_round_changes_nothing() {
    let fixture = DeliveryFixture::new().await;
    let work = start_waiting(&fixture, "d1", FakeAction::Wait(Duration::from_mins(97))).await;
    fixture.clock.advance(Duration::from_mins(98));
    assert!(matches!(
        fixture.deliver(&work).await.unwrap(),
        WorkEnd::Waiting(_)
    ));
    assert_eq!(fixture.fake.requests(), 1);
}

#[tokio::test]
async fn r_11_a_closed_window_keeps_the_file_until_the_user_writes() {
    let fixture = DeliveryFixture::new().await;
    start_waiting(&fixture, "d1", FakeAction::Refuse(ErrorKind::WindowClosed)).await;
    assert_eq!(
        fixture.record("d1").await.waiting,
        Some(WaitingReason::WindowClosed)
    );
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    fixture
        .replica
        .inbound
        .statuses
        .window_opened(&account, "other")
        .await;
    assert!(matches!(
        fixture.resume("d1").await.unwrap(),
        WorkEnd::Waiting(_)
    ));
    fixture
        .replica
        .inbound
        .statuses
        .window_opened(&account, "42")
        .await;
    fixture.sweep().await;
    assert_eq!(fixture.published("delivery-telegram").await, ["r1-d1"]);
    let WorkEnd::Finished(report) = fixture.resume("d1").await.unwrap() else {
        panic!("the delivery must have ended");
    };
    assert_eq!(states(&report), [FileState::Delivered]);
}

#[tokio::test]
async fn r_11_a_user_who_writes_before_the_delivery_is_parked_is_not_missed() {
    let fixture = DeliveryFixture::new().await;
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    let cache = &fixture.replica.inbound.platform_cache;
    let now_ms = fixture.clock.now_ms();
    cache
        .learn_message_time(&account.id(), "42", now_ms - 1)
        .await;
    let closed = FakeAction::Refuse(ErrorKind::WindowClosed);
    start_waiting(&fixture, "d1", closed.clone()).await;
    assert_eq!(
        fixture.record("d1").await.waiting,
        Some(WaitingReason::WindowClosed),
        "the message was before the request"
    );
    fixture.clock.advance(Duration::from_secs(1));
    let now_ms = fixture.clock.now_ms();
    cache.learn_message_time(&account.id(), "43", now_ms).await;
    fixture.fake.script([closed]);
    let mut work = fixture.files("d2", &[("b.txt", b"b")]).await;
    work.target = Some(chat("43"));
    let WorkEnd::Waiting(record) = fixture.deliver(&work).await.unwrap() else {
        panic!("the refusal did not park the delivery");
    };
    assert_eq!(record.waiting, Some(WaitingReason::Queue));
    let WorkEnd::Finished(record) = fixture.resume("d2").await.unwrap() else {
        panic!("the delivery must have ended");
    };
    assert_eq!(states(&record), [FileState::Delivered]);
}

#[tokio::test]
async fn a_delivery_that_does_not_end_in_time_is_ended_with_its_true_state() {
    let mut fixture = DeliveryFixture::new().await;
    start_waiting(&fixture, "d1", FakeAction::Refuse(ErrorKind::WindowClosed)).await;
    fixture.fake.script([FakeAction::CrashAfter]);
    let mut crashing = fixture
        .files("d2", &[("b.txt", b"b"), ("c.txt", b"c")])
        .await;
    crashing.target = Some(chat("43"));
    fixture.crash_in(&crashing).await;
    fixture.clock.advance(Duration::from_hours(80));
    fixture.sweep().await;
    let report = fixture.record("d1").await;
    assert_eq!(states(&report), [FileState::Rejected]);
    assert_eq!(
        report.files[0].error_kind,
        Some(ErrorKind::WindowClosed.into())
    );
    let report = fixture.record("d2").await;
    assert_eq!(states(&report), [FileState::Unknown, FileState::Failed]);
    assert!(report.finished && !report.success);
}

#[tokio::test]
async fn later_status_updates_correct_a_receipt_at_any_time() {
    let fixture = DeliveryFixture::new().await;
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    let failed = |message: &str, code: &str| StatusUpdate {
        message_id: message.to_owned(),
        status: "failed".to_owned(),
        code: code.to_owned(),
    };
    fixture
        .fake
        .script([FakeAction::Accept, FakeAction::Accept]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    assert!(fixture.delivered(&work).await.success);
    fixture
        .replica
        .inbound
        .statuses
        .status(&account, &failed("m1", "131026"))
        .await
        .unwrap();
    let report = fixture.record("d1").await;
    assert_eq!(states(&report), [FileState::Rejected]);
    assert!(!report.success && report.result_json.contains("forbidden"));
    // The status arrives before our own record is stored.
    fixture
        .replica
        .inbound
        .statuses
        .status(&account, &failed("m2", "131000"))
        .await
        .unwrap();
    let work = fixture.files("d2", &[("b.txt", b"b")]).await;
    assert_eq!(states(&fixture.delivered(&work).await), [FileState::Failed]);
    // A success, or a status of a message that is confirmed, changes nothing.
    let work = fixture.files("d3", &[("c.txt", b"c")]).await;
    fixture.delivered(&work).await;
    let id = fixture.fake.visible_messages().pop().unwrap().id;
    fixture
        .replica
        .inbound
        .statuses
        .status(&account, &failed(&id, "131026"))
        .await
        .unwrap();
    assert!(fixture.record("d3").await.success);
}

#[tokio::test]
async fn r_11_a_window_that_a_status_update_closes_opens_when_the_user_writes() {
    let fixture = DeliveryFixture::new().await;
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    fixture.fake.script([FakeAction::Accept]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    fixture.delivered(&work).await;
    let update = StatusUpdate {
        message_id: "m1".to_owned(),
        status: "failed".to_owned(),
        code: "131047".to_owned(),
    };
    fixture
        .replica
        .inbound
        .statuses
        .status(&account, &update)
        .await
        .unwrap();
    assert!(!fixture.record("d1").await.finished);
    fixture
        .replica
        .inbound
        .statuses
        .window_opened(&account, "42")
        .await;
    let WorkEnd::Finished(report) = fixture.resume("d1").await.unwrap() else {
        panic!("the delivery must have ended");
    };
    assert_eq!(states(&report), [FileState::Delivered]);
}

#[tokio::test]
async fn a_failure_that_is_reported_before_the_confirmation_is_stored_is_not_lost() {
    let fixture = DeliveryFixture::new().await;
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    // The worker has stored to which delivery the message belongs, but not yet that the platform accepted it.
    let origin = MessageOrigin {
        record: record_key(&tenant(), &OperationId::new("d1").unwrap()),
        tenant: tenant().to_string(),
        delivery: "d1".to_owned(),
    };
    let inbound = &fixture.replica.inbound;
    inbound
        .platform_cache
        .learn_origin(&account.id(), "m1", &origin)
        .await;
    let update = StatusUpdate {
        message_id: "m1".to_owned(),
        status: "failed".to_owned(),
        code: "131026".to_owned(),
    };
    inbound.statuses.status(&account, &update).await.unwrap();
    fixture.fake.script([FakeAction::Accept]);
    let record = fixture.delivered(&work).await;
    assert_eq!(states(&record), [FileState::Rejected]);
    assert!(!record.success);
}

#[tokio::test]
async fn r_11_a_window_that_closes_before_the_confirmation_is_stored_keeps_the_file() {
    let fixture = DeliveryFixture::new().await;
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    let statuses = &fixture.replica.inbound.statuses;
    let update = StatusUpdate {
        message_id: "m1".to_owned(),
        status: "failed".to_owned(),
        code: "131047".to_owned(),
    };
    statuses.status(&account, &update).await.unwrap();
    start_waiting(&fixture, "d1", FakeAction::Accept).await;
    let record = fixture.record("d1").await;
    assert_eq!(record.waiting, Some(WaitingReason::WindowClosed));
    assert_eq!(states(&record), [FileState::Queued]);
    statuses.window_opened(&account, "42").await;
    let WorkEnd::Finished(record) = fixture.resume("d1").await.unwrap() else {
        panic!("the delivery must have ended");
    };
    assert_eq!(states(&record), [FileState::Delivered]);
}

impl DeliveryFixture {
    async fn receipts(
        &self,
        request: &v1::ListReceiptsRequest,
    ) -> Result<v1::ListReceiptsReply, DeliveryError> {
        let receipts = &self.replica.receipts;
        receipts.receipts(&self.meta("q"), request).await
    }
}

#[tokio::test]
async fn receipts_are_the_tenants_own_newest_first() {
    let fixture = DeliveryFixture::new().await;
    for id in ["d1", "d2", "d3"] {
        fixture.clock.advance(Duration::from_secs(1));
        if id == "d2" {
            fixture
                .fake
                .script([FakeAction::Refuse(ErrorKind::Forbidden)]);
        }
        let work = fixture.files(id, &[("a.txt", id.as_bytes())]).await;
        fixture.delivered(&work).await;
    }
    let list = async |request: v1::ListReceiptsRequest| {
        let reply = fixture.receipts(&request).await.unwrap();
        let ids: Vec<_> = reply
            .reports
            .into_iter()
            .map(|report| report.delivery_id)
            .collect();
        (ids.join(" "), reply.truncated)
    };
    let all = v1::ListReceiptsRequest::default();
    assert_eq!(list(all.clone()).await, ("d3 d2 d1".to_owned(), false));
    let open = v1::ListReceiptsRequest {
        open_only: true,
        ..all.clone()
    };
    assert_eq!(list(open).await, ("d2".to_owned(), false));
    let two = v1::ListReceiptsRequest {
        limit: 2,
        ..all.clone()
    };
    assert_eq!(list(two).await, ("d3 d2".to_owned(), true));
    let session = v1::ListReceiptsRequest {
        session: "none".to_owned(),
        ..all.clone()
    };
    assert_eq!(list(session).await, (String::new(), false));
    // The digest is searched in all records, also beyond the limit.
    let with_content = |text: &[u8]| v1::ListReceiptsRequest {
        sha256: Sha256Digest::of(text).as_bytes().to_vec(),
        limit: 1,
        ..all.clone()
    };
    assert_eq!(list(with_content(b"d1")).await, ("d1".to_owned(), false));
    assert_eq!(list(with_content(b"d4")).await, (String::new(), false));
    let outcome = v1::DeliveryOutcomeRequest {
        delivery_id: "d1".to_owned(),
        wait_ms: 0,
    };
    let found = fixture
        .replica
        .receipts
        .outcome(&fixture.meta("q"), &outcome)
        .await
        .unwrap();
    assert!(found.finished);
}

#[tokio::test]
async fn a_list_continues_where_it_ended_even_after_newer_deliveries() {
    let fixture = DeliveryFixture::new().await;
    let deliver = async |id: &str| {
        fixture.clock.advance(Duration::from_secs(1));
        let work = fixture.files(id, &[("a.txt", id.as_bytes())]).await;
        fixture.delivered(&work).await;
    };
    for id in ["d1", "d2", "d3"] {
        deliver(id).await;
    }
    let two = v1::ListReceiptsRequest {
        limit: 2,
        ..v1::ListReceiptsRequest::default()
    };
    let first = fixture.receipts(&two).await.unwrap();
    deliver("d4").await;
    let rest = v1::ListReceiptsRequest {
        after: first.next,
        ..two.clone()
    };
    let rest = fixture.receipts(&rest).await.unwrap();
    assert_eq!(rest.reports.len(), 1);
    assert_eq!(rest.reports[0].delivery_id, "d1");
    assert_eq!((rest.truncated, rest.next.as_str()), (false, ""));
    let unknown = v1::ListReceiptsRequest {
        after: "page-2".to_owned(),
        ..two
    };
    let refused = fixture.receipts(&unknown).await;
    assert!(
        matches!(refused, Err(DeliveryError::Request(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn no_tenant_sees_the_deliveries_of_another_tenant() {
    let fixture = DeliveryFixture::new().await;
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    fixture.delivered(&work).await;
    let all = v1::ListReceiptsRequest::default();
    let other = dray_bus::Meta {
        tenant: dray_types::TenantId::new("other").unwrap(),
        ..fixture.meta("q")
    };
    assert!(
        fixture
            .replica
            .receipts
            .receipts(&other, &all)
            .await
            .unwrap()
            .reports
            .is_empty()
    );
    let outcome = v1::DeliveryOutcomeRequest {
        delivery_id: "d1".to_owned(),
        wait_ms: 0,
    };
    let foreign = fixture.replica.receipts.outcome(&other, &outcome).await;
    assert!(matches!(foreign, Err(DeliveryError::NotFound("delivery"))));
    let resend = v1::ResendRequest {
        delivery_id: "d1".to_owned(),
        all: true,
    };
    let foreign = fixture.replica.receipts.resend(&other, &resend).await;
    assert!(matches!(foreign, Err(DeliveryError::NotFound("delivery"))));
}

#[tokio::test]
async fn r_21_a_resend_sends_undelivered_files_as_a_new_delivery() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    fixture.fake.script([
        FakeAction::Show,
        FakeAction::LoseResponse,
        FakeAction::Refuse(ErrorKind::Forbidden),
    ]);
    let files: [(&str, &[u8]); 3] = [("a.txt", b"a"), ("b.txt", b"b"), ("c.txt", b"c")];
    let work = fixture.files("d1", &files).await;
    fixture.delivered(&work).await;
    let resend = |id: &str, all| v1::ResendRequest {
        delivery_id: id.to_owned(),
        all,
    };
    let accepted = fixture
        .replica
        .receipts
        .resend(&fixture.meta("d2"), &resend("d1", false))
        .await
        .unwrap();
    assert_eq!(accepted.delivery_id, "d2");
    let _workers = super::path::QueueWorkers::start(&fixture);
    let report = super::path::finished_record(&fixture, "d2").await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(
        report.files[0].name, "b.txt",
        "a refusal for good is not repeated"
    );
    let nothing_to_resend = fixture
        .replica
        .receipts
        .resend(&fixture.meta("d3"), &resend("d2", false))
        .await;
    assert!(matches!(
        nothing_to_resend,
        Err(DeliveryError::NothingToResend)
    ));
    fixture
        .replica
        .receipts
        .resend(&fixture.meta("d4"), &resend("d2", true))
        .await
        .unwrap();
    assert!(super::path::finished_record(&fixture, "d4").await.success);
    let unknown_delivery = fixture
        .replica
        .receipts
        .resend(&fixture.meta("d5"), &resend("none", true))
        .await;
    assert!(matches!(
        unknown_delivery,
        Err(DeliveryError::NotFound("delivery"))
    ));
}
