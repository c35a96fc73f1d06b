//! Deliveries and messages while the object store is away: they wait, and no attempt is used up.

use std::sync::atomic::{AtomicUsize, Ordering};

use dray_proto::v1;
use dray_testkit::s3::{FaultRule, FaultyS3, S3Fault};
use dray_types::{Fault, FaultCode};
use tokio_util::sync::CancellationToken;

use super::fake::UserAttachment;
use super::fixture::{DeliveryFixture, chat, states};
use super::inbound::{attachment, message, placed_uploads, receive};
use super::path::request;
use crate::config::{WebFileOutcome, WebFileRule};
use crate::error::DeliveryError;
use crate::record::{DeliveryStart, FileState};

/// The store fails at every request after the first `count` reads.
fn fail_after_reads(proxy: &FaultyS3, count: usize) {
    let reads = AtomicUsize::new(0);
    proxy.add(FaultRule::new(S3Fault::Down, move |parts| {
        parts.method != "GET" || reads.fetch_add(1, Ordering::SeqCst) >= count
    }));
}

/// The detail of a failure that parks the work.
#[track_caller]
fn parked(fault: &Fault) -> &str {
    assert!(dray_bus::parks_work(fault), "{fault:?}");
    assert!(fault.is_retryable(), "{fault:?}");
    &fault.detail
}

async fn refused(fixture: &DeliveryFixture, start: &DeliveryStart) -> Fault {
    let failed: DeliveryError = fixture.deliver(start).await.unwrap_err();
    failed.into()
}

#[tokio::test]
async fn gathering_waits_for_a_service_that_is_away_even_at_the_last_attempt() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let claim = fixture.claim("b.txt", b"b").await;
    fixture.sandbox.put("/w/b.txt", "file", Some(claim));
    let work = request(&["/w/b.txt", "/w/a.txt"]);
    let (meta, cancel) = (fixture.meta("d1"), CancellationToken::new());
    for detail in ["store_unreachable", "store_full", "no_responder"] {
        let away = Fault::new(FaultCode::Unavailable, "Away.")
            .detail(detail)
            .retry_after(std::time::Duration::from_secs(1));
        fixture.sandbox.refuse("/w/a.txt", away);
        let gatherer = &fixture.replica.gatherer;
        let failed = gatherer.send(&meta, &work, 1, true, &cancel).await;
        assert_eq!(parked(failed.unwrap_err().fault()), detail);
    }
    let claim = fixture.claim("a.txt", b"a").await;
    fixture.sandbox.put("/w/a.txt", "file", Some(claim));
    let gatherer = &fixture.replica.gatherer;
    let sent = gatherer.send(&meta, &work, 1, true, &cancel).await;
    sent.unwrap();
    let queued = [FileState::Queued, FileState::Queued];
    assert_eq!(states(&fixture.record("d1").await), queued);
}

#[tokio::test]
async fn a_cached_file_of_the_caller_waits_for_the_store() {
    let (fixture, proxy) = DeliveryFixture::with_faulty_store(|_| {}).await;
    fixture.sandbox.bind(chat("42"));
    let claim = fixture.cached_claim("a.txt", b"a").await;
    let work = v1::SendFileRequested {
        claims: vec![claim.into()],
        ..request(&[])
    };
    let (meta, cancel) = (fixture.meta("d1"), CancellationToken::new());
    proxy.add(FaultRule::all(S3Fault::Down));
    let gatherer = &fixture.replica.gatherer;
    let failed = gatherer.send(&meta, &work, 1, true, &cancel).await;
    assert_eq!(parked(failed.unwrap_err().fault()), "store_unreachable");
    proxy.clear_faults();
    let sent = gatherer.send(&meta, &work, 1, true, &cancel).await;
    sent.unwrap();
}

#[tokio::test]
async fn a_delivery_waits_for_the_store_before_its_request() {
    let (fixture, proxy) = DeliveryFixture::with_faulty_store(|_| {}).await;
    let start = fixture.files("d1", &[("a.txt", b"a")]).await;
    proxy.add(FaultRule::all(S3Fault::Down));
    for _ in 0..6 {
        let fault = refused(&fixture, &start).await;
        assert_eq!(parked(&fault), "store_unreachable");
    }
    assert_eq!(states(&fixture.record("d1").await), [FileState::Queued]);
    assert_eq!(fixture.fake.requests(), 0);
    proxy.clear_faults();
    let delivered = fixture.delivered(&start).await;
    assert_eq!(states(&delivered), [FileState::Delivered]);
}

#[tokio::test]
async fn a_request_whose_file_breaks_off_with_the_store_is_repeated_when_the_store_is_back() {
    for prepares in [false, true] {
        let (fixture, proxy) = DeliveryFixture::with_faulty_store(|_| {}).await;
        if prepares {
            fixture.fake.prepares();
        }
        let start = fixture.files("d1", &[("a.txt", b"a")]).await;
        // The type is read, and then the file cannot be sent.
        fail_after_reads(&proxy, 1);
        for _ in 0..6 {
            let fault = refused(&fixture, &start).await;
            assert_eq!(parked(&fault), "store_unreachable");
        }
        assert_eq!(states(&fixture.record("d1").await), [FileState::Queued]);
        assert_eq!(fixture.fake.visible_texts(), [""; 0]);
        proxy.clear_faults();
        let delivered = fixture.delivered(&start).await;
        assert_eq!(states(&delivered), [FileState::Delivered]);
        assert_eq!(
            delivered.files[0].attempts, 1,
            "the attempt during the outage does not count"
        );
        assert_eq!(fixture.fake.visible_messages().len(), 1);
    }
}

#[tokio::test]
async fn a_rule_about_files_from_the_web_waits_for_the_store() {
    let (fixture, proxy) = DeliveryFixture::with_faulty_store(|config| {
        config.web_files = vec![WebFileRule {
            name: "all".to_owned(),
            outcome: WebFileOutcome::Report,
            ..WebFileRule::default()
        }];
    })
    .await;
    let start = fixture.files("d1", &[("a.txt", b"a")]).await;
    proxy.add(FaultRule::all(S3Fault::Down));
    let fault = refused(&fixture, &start).await;
    assert_eq!(parked(&fault), "origin_unknown");
    proxy.clear_faults();
    let delivered = fixture.delivered(&start).await;
    assert_eq!(states(&delivered), [FileState::Delivered]);
}

#[tokio::test]
async fn an_attachment_of_a_user_waits_for_the_store() {
    let (fixture, proxy) = DeliveryFixture::with_faulty_store(|_| {}).await;
    fixture.sandbox.bind(chat("42"));
    let bytes = || UserAttachment::Bytes(b"a,b\n".to_vec());
    fixture.fake.attach("a.csv", [bytes(), bytes()]);
    proxy.add(FaultRule::all(S3Fault::Down));
    let inbound = message("7", vec![attachment("a.csv", 4)]);
    let failed = receive(&fixture, inbound.clone()).await.unwrap_err();
    assert_eq!(parked(failed.fault()), "store_unreachable");
    assert!(placed_uploads(&fixture).await.is_empty());
    proxy.clear_faults();
    receive(&fixture, inbound).await.unwrap();
    let placed = placed_uploads(&fixture).await;
    assert_eq!(placed.len(), 1);
    assert!(placed[0].claim.is_some(), "{placed:?}");
}
