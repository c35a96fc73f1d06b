//! Tests of tickets that do not work: unknown, expired, revoked, over a limit, or without space in the store.

use std::time::Duration;

use dray_bus::topology::TICKET_STREAM;
use dray_bus::{Topology, test_bus};
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use super::{TestEndpoint, connect, noise, wait_until, with_version};
use crate::records::TICKET_BUCKET;
use crate::{
    Principal, TicketEndpoint, TicketLimits, TicketProblem, TicketRecords, TicketRequest,
    TicketService,
};

#[tokio::test]
async fn unknown_and_forged_tickets_get_the_same_response() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let changed = if url.ends_with('A') { 'B' } else { 'A' };
    let forged = format!("{}{changed}", &url[..url.len() - 1]);
    let unknown = format!("/t/{}", "x".repeat(43));
    let mut bodies = Vec::new();
    for url in [forged.as_str(), &unknown, "/t/short", "/t/..%2Fusage"] {
        for method in ["GET", "PUT", "PATCH", "DELETE", "POST"] {
            let response = fixture.send(&format!("{method} {url}"), b"").await;
            assert_eq!(response.status, 404, "{method} {url}");
            bodies.push(response.body);
        }
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert_eq!(
        fixture.send(&format!("PUT {url}"), b"abc").await.status,
        201
    );
}

#[tokio::test]
async fn an_expired_ticket_is_reported_and_its_segments_are_swept() {
    let fixture = TestEndpoint::new().await;
    let lifetime = Duration::from_mins(5);
    let url = fixture
        .issue(TicketRequest::upload(100).lifetime(lifetime))
        .await;
    fixture
        .send(&format!("POST {url}\r\nupload-complete: ?0"), b"abc")
        .await;
    fixture.service.sweep().await.unwrap();
    assert_eq!(fixture.count_files("segments"), 1);
    fixture.clock.advance(lifetime);
    for method in ["PUT", "DELETE"] {
        let response = fixture.send(&format!("{method} {url}"), b"abc").await;
        assert_eq!(
            (response.status, response.problem().as_str()),
            (410, "ticket-expired")
        );
    }
    fixture.service.sweep().await.unwrap();
    assert_eq!(fixture.count_files("segments"), 0);
    assert!(!fixture.is_stored(b"abc").await);
    // A day later the record is removed too.
    fixture.clock.advance(Duration::from_hours(24));
    fixture.service.sweep().await.unwrap();
    assert_eq!(fixture.send(&format!("PUT {url}"), b"").await.status, 404);
}

#[tokio::test]
async fn a_damaged_record_does_not_keep_others_from_being_swept() {
    let fixture = TestEndpoint::new().await;
    let mut urls = Vec::new();
    for _ in 0..4 {
        let url = fixture.issue(TicketRequest::upload(100)).await;
        fixture
            .send(&format!("POST {url}\r\nupload-complete: ?0"), b"abc")
            .await;
        urls.push(url);
    }
    let records = fixture.directory.path().join("tickets");
    // A power failure leaves files without a revision.
    for name in ["ticket.0", "ticket.z"] {
        std::fs::write(records.join(name), b"").unwrap();
    }
    fixture.clock.advance(Duration::from_hours(2));
    let records = &fixture.service.inner.records;
    let mut keys = records.keys("ticket", 10).await.unwrap();
    // The keys are sorted, so that the first one is that of a damaged record. A directory has any order.
    keys.sort_unstable();
    assert_eq!(keys.first().map(String::as_str), Some("ticket.0"));
    let failed = fixture.service.sweep_keys(keys).await;
    assert_eq!(failed.unwrap_err(), TicketProblem::Unavailable);
    assert_eq!(fixture.count_files("segments"), 0);
}

#[tokio::test]
async fn a_revoked_ticket_is_reported() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let secret = url.rsplit('/').next().unwrap();
    fixture.service.revoke(secret).await.unwrap();
    let response = fixture.send(&format!("PUT {url}"), b"abc").await;
    assert_eq!(
        (response.status, response.problem().as_str()),
        (410, "ticket-revoked")
    );
}

#[tokio::test]
async fn a_ticket_that_receives_bytes_meanwhile_is_revoked() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let secret = url.rsplit('/').next().unwrap();
    let loaded = fixture.service.find(secret).await.unwrap();
    fixture
        .send(&format!("POST {url}\r\nupload-complete: ?0"), b"abc")
        .await;
    fixture.service.revoke_loaded(loaded).await.unwrap();
    assert_eq!(fixture.count_files("segments"), 0);
    let response = fixture.send(&format!("PUT {url}"), b"abc").await;
    assert_eq!(response.problem(), "ticket-revoked");
}

#[tokio::test]
async fn an_upload_whose_ticket_is_revoked_meanwhile_ends_with_that_reason() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let secret = url.rsplit('/').next().unwrap();
    let mut sending = connect(fixture.address).await;
    let head = with_version(&format!("PUT {url}\r\ncontent-length: 4"));
    sending.write_all(head.as_bytes()).await.unwrap();
    sending.write_all(b"ab").await.unwrap();
    wait_until(|| async {
        let ticket = fixture.service.find(secret).await.unwrap();
        ticket.record.lease.is_some()
    })
    .await;
    fixture.service.revoke(secret).await.unwrap();
    sending.write_all(b"cd").await.unwrap();
    let response = super::read_response(&mut sending).await;
    assert_eq!(
        (response.status, response.problem().as_str()),
        (410, "ticket-revoked")
    );
    assert_eq!(fixture.count_files("segments"), 0);
}

#[tokio::test]
async fn limits_of_a_principal_apply_to_concurrent_requests() {
    let limits = TicketLimits {
        max_open_tickets: 3,
        ..TicketLimits::default()
    };
    let fixture = TestEndpoint::with(limits, u64::MAX).await;
    let principal = Principal::default();
    let issue = || fixture.service.issue(&principal, TicketRequest::upload(1));
    let made = tokio::join!(issue(), issue(), issue(), issue(), issue());
    let made = [&made.0, &made.1, &made.2, &made.3, &made.4];
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 3);
    let refused = made.iter().filter_map(|made| made.as_ref().err());
    assert!(
        refused
            .into_iter()
            .all(|problem| matches!(problem, TicketProblem::TooManyOpen { .. }))
    );
}

#[tokio::test]
async fn bytes_above_the_quota_are_refused_until_reservations_end() {
    let limits = TicketLimits {
        quota_bytes: 100,
        ..TicketLimits::default()
    };
    let fixture = TestEndpoint::with(limits, u64::MAX).await;
    let url = fixture.issue(TicketRequest::upload(80)).await;
    let principal = Principal::default();
    let issue = || fixture.service.issue(&principal, TicketRequest::upload(80));
    assert!(matches!(
        issue().await,
        Err(TicketProblem::QuotaExceeded { free: 20, .. })
    ));
    // The upload used ten bytes of the eighty.
    fixture.send(&format!("PUT {url}"), &noise(10)).await;
    issue().await.unwrap();
}

#[tokio::test]
async fn a_ticket_that_could_not_be_recorded_takes_nothing_of_the_limits() {
    let fixture = TestEndpoint::new().await;
    let bus = test_bus::in_process(&fixture.clock).await;
    let mut topology = Topology::default();
    for stream in &mut topology.streams {
        if stream.name == TICKET_STREAM {
            // Enough for the usage of a session, and not for a ticket beside it.
            stream.max_bytes = 600;
        }
    }
    test_bus::provision(&bus, &topology).await;
    let limits = TicketLimits {
        quota_bytes: 100,
        max_open_tickets: 1,
        ..TicketLimits::default()
    };
    let records = TicketRecords::key_value(bus.key_value(TICKET_BUCKET));
    let service = TicketService::new(
        records.clone(),
        fixture.store.clone(),
        fixture.clock.clone(),
        limits,
    );
    let principal = Principal::default();
    let issue = || service.issue(&principal, TicketRequest::upload(100));
    for _ in 0..2 {
        assert_eq!(issue().await.unwrap_err(), TicketProblem::Unavailable);
    }
    let usage = records.get(&principal.usage_key()).await.unwrap();
    assert!(usage.is_some(), "the tickets were counted first");
    test_bus::provision(&bus, &Topology::default()).await;
    issue().await.unwrap();
}

#[tokio::test]
async fn a_full_store_keeps_the_received_bytes_and_is_reported() {
    let fixture = TestEndpoint::with(TicketLimits::default(), 6 << 20).await;
    let bytes = noise(12 << 20);
    let url = fixture.issue(TicketRequest::upload(16 << 20)).await;
    let response = fixture.send(&format!("PUT {url}"), &bytes).await;
    assert_eq!(
        (response.status, response.problem().as_str()),
        (507, "storage-full")
    );
    let offset = fixture.send_empty(&format!("HEAD {url}")).await;
    assert_eq!(
        offset.field("upload-offset"),
        Some((4 << 20).to_string().as_str())
    );
    assert!(!fixture.is_stored(&bytes).await);
}

#[tokio::test]
async fn tickets_over_http_need_the_key() {
    let fixture = TestEndpoint::new().await;
    let order = br#"{"direction":"upload","tenant":"default","session":"s","max_bytes":5}"#;
    let refused = fixture.send("POST /tickets", order).await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (401, "key-needed")
    );
    let key = crate::key_text(&[7; 32]);
    let head = format!("POST /tickets\r\nauthorization: Bearer {key}");
    let made = fixture.send(&head, order).await;
    assert_eq!(made.status, 201);
    let lower_case = format!("POST /tickets\r\nauthorization: bearer {key}");
    assert_eq!(fixture.send(&lower_case, order).await.status, 201);
    let url = made.json()["url"].as_str().unwrap().to_owned();
    let path = url.split_once("/t/").unwrap().1;
    assert_eq!(
        fixture
            .send(&format!("PUT /t/{path}"), b"abcde")
            .await
            .status,
        201
    );
    let unknown = br#"{"direction":"download","tenant":"default","session":"s","sha256":"00"}"#;
    assert_eq!(fixture.send(&head, unknown).await.status, 400);
    assert_eq!(fixture.send(&head, b"{}").await.status, 400);
}

#[tokio::test]
async fn a_stop_waits_ten_seconds_for_a_transfer_that_stalls() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let secret = url.rsplit('/').next().unwrap();
    let is_receiving = || async {
        let ticket = fixture.service.find(secret).await.unwrap();
        ticket.record.lease.is_some()
    };
    let endpoint = TicketEndpoint::bind(([127, 0, 0, 1], 0).into(), None)
        .await
        .unwrap();
    let address = endpoint.base_url().strip_prefix("http://").unwrap();
    let address = address.parse().unwrap();
    let stop = CancellationToken::new();
    let serving = endpoint.serve(fixture.service.clone(), None, stop.clone());
    let mut serving = std::pin::pin!(serving);
    // The system accepts the connection before the endpoint runs.
    let mut stream = connect(address).await;
    let head = with_version(&format!("PUT {url}\r\ncontent-length: 10"));
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::select! {
        () = serving.as_mut() => panic!("the endpoint must not end"),
        () = wait_until(is_receiving) => {}
    }
    tokio::time::pause();
    stop.cancel();
    let stopped = tokio::time::timeout(Duration::from_secs(11), serving).await;
    assert!(stopped.is_ok());
    assert!(!is_receiving().await);
}
