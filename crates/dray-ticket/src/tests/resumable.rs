//! Uploads in several requests, as in draft-ietf-httpbis-resumable-upload.

use std::time::Duration;

use dray_types::Sha256Digest;
use tokio::io::AsyncWriteExt as _;

use super::{TestEndpoint, break_after, connect, noise, send, with_version};
use crate::fields::digest_value;
use crate::{TicketLimits, TicketRequest};

const APPEND_MEDIA_TYPE: &str = "content-type: application/partial-upload";

/// Waits until a broken request is recorded.
async fn wait_for_offset(fixture: &TestEndpoint, url: &str, offset: usize) {
    let secret = url.rsplit('/').next().unwrap();
    super::wait_until(|| async {
        let record = fixture.service.find(secret).await.unwrap().record;
        record.moved == offset as u64 && record.lease.is_none()
    })
    .await;
}

#[tokio::test]
async fn parts_become_one_artifact() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let created = fixture
        .send(
            &format!("POST {url}\r\nupload-complete: ?0\r\nupload-length: 6"),
            b"ab",
        )
        .await;
    assert_eq!(created.status, 201);
    assert_eq!(created.field("upload-offset"), Some("2"));
    assert_eq!(created.field("upload-complete"), Some("?0"));
    assert!(created.field("location").unwrap().ends_with(&url));
    let limit = created.field("upload-limit").unwrap();
    assert!(limit.contains("max-size=100") && limit.contains("max-append-size="));

    let head =
        format!("PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 2\r\nupload-complete: ?0");
    assert_eq!(fixture.send(&head, b"cd").await.status, 204);
    assert!(!fixture.is_stored(b"abcd").await);

    let offset = fixture.send_empty(&format!("HEAD {url}")).await;
    assert_eq!(offset.status, 204);
    assert_eq!(offset.field("upload-offset"), Some("4"));
    assert_eq!(offset.field("upload-length"), Some("6"));
    assert_eq!(offset.field("cache-control"), Some("no-store"));

    let head =
        format!("PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 4\r\nupload-complete: ?1");
    let completed = fixture.send(&head, b"ef").await;
    assert_eq!(completed.status, 201);
    assert_eq!(completed.field("upload-complete"), Some("?1"));
    assert_eq!(
        completed.json()["sha256"],
        Sha256Digest::of(b"abcdef").to_hex()
    );
    let after = fixture.send_empty(&format!("HEAD {url}")).await;
    assert_eq!(after.field("upload-complete"), Some("?1"));
    assert_eq!(fixture.count_files("segments"), 0);
}

#[tokio::test]
async fn a_wrong_offset_is_refused_with_the_expected_one() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    fixture
        .send(&format!("POST {url}\r\nupload-complete: ?0"), b"abc")
        .await;
    for offset in [0, 2, 4] {
        let head = format!(
            "PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: {offset}\r\nupload-complete: ?1"
        );
        let response = fixture.send(&head, b"xx").await;
        assert_eq!(response.status, 409);
        assert_eq!(response.problem(), "mismatching-upload-offset");
        assert_eq!(response.field("upload-offset"), Some("3"));
        assert_eq!(response.json()["expected-offset"], 3);
        assert_eq!(response.json()["provided-offset"], offset);
    }
}

#[tokio::test]
async fn a_broken_upload_continues_in_another_process() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(10 << 20);
    let url = fixture.issue(TicketRequest::upload(16 << 20)).await;
    let sent = 7 << 20;
    let head = format!("PUT {url}\r\ncontent-length: {}", bytes.len());
    break_after(&fixture, &head, &bytes[..sent]).await;
    wait_for_offset(&fixture, &url, sent).await;
    assert!(fixture.count_files("segments") > 0);

    let (replica, _stop) = fixture.replica(TicketLimits::default()).await;
    let offset = super::send_raw(replica, &format!("HEAD {url}"), b"").await;
    assert_eq!(
        offset.field("upload-offset"),
        Some(sent.to_string().as_str())
    );
    let head = format!(
        "PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: {sent}\r\nupload-complete: ?1"
    );
    let completed = send(replica, &head, &bytes[sent..]).await;
    assert_eq!(completed.status, 201, "{completed:?}");
    assert_eq!(
        completed.json()["sha256"],
        Sha256Digest::of(&bytes).to_hex()
    );
    assert!(fixture.is_stored(&bytes).await);
    assert_eq!(fixture.count_files("segments"), 0);
}

#[tokio::test]
async fn a_sender_that_continues_takes_over_from_one_that_hangs() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    fixture
        .send(&format!("POST {url}\r\nupload-complete: ?0"), b"ab")
        .await;
    let head =
        format!("PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 2\r\nupload-complete: ?1");
    let mut hanging = connect(fixture.address).await;
    let hanging_head = with_version(&format!("{head}\r\ncontent-length: 2"));
    hanging.write_all(hanging_head.as_bytes()).await.unwrap();
    hanging.write_all(b"X").await.unwrap();
    let secret = url.rsplit('/').next().unwrap();
    super::wait_until(|| async {
        let ticket = fixture.service.find(secret).await.unwrap();
        ticket.record.lease.is_some()
    })
    .await;

    assert_eq!(fixture.send(&head, b"cd").await.status, 201);
    hanging.write_all(b"X").await.unwrap();
    let late_response = super::read_response(&mut hanging).await;
    assert_eq!(
        (late_response.status, late_response.problem().as_str()),
        (409, "upload-superseded")
    );
    assert!(fixture.is_stored(b"abcd").await);
    assert_eq!(fixture.count_files("segments"), 0);
}

#[tokio::test]
async fn a_part_with_a_wrong_digest_is_discarded() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    fixture
        .send(&format!("POST {url}\r\nupload-complete: ?0"), b"ab")
        .await;
    let digest = digest_value(Sha256Digest::of(b"cd"));
    let head = format!(
        "PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 2\r\nupload-complete: ?1\r\ncontent-digest: {digest}"
    );
    let damaged = fixture.send(&head, b"cX").await;
    assert_eq!(
        (damaged.status, damaged.problem().as_str()),
        (422, "wrong-digest")
    );
    assert_eq!(fixture.send(&head, b"cd").await.status, 201);
    assert!(fixture.is_stored(b"abcd").await);
}

#[tokio::test]
async fn the_announcements_of_a_discarded_part_do_not_count() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    fixture
        .send(&format!("POST {url}\r\nupload-complete: ?0"), b"ab")
        .await;
    let head =
        format!("PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 2\r\nupload-complete: ?1");
    let other_digest = digest_value(Sha256Digest::of(b"other"));
    let discarded = fixture
        .send(
            &format!("{head}\r\ncontent-digest: {other_digest}\r\nrepr-digest: {other_digest}"),
            b"cd",
        )
        .await;
    assert_eq!(discarded.problem(), "wrong-digest");
    let stored = fixture.send(&head, b"cd").await;
    assert_eq!(stored.status, 201, "{stored:?}");
    assert!(fixture.is_stored(b"abcd").await);
}

#[tokio::test]
async fn content_of_another_length_than_announced_is_refused() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let create = format!("POST {url}\r\nupload-complete: ?0\r\nupload-length: 4");
    fixture.send(&create, b"ab").await;
    let head =
        format!("PATCH {url}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 2\r\nupload-complete: ?1");
    for body in [&b"c"[..], b"cde"] {
        let response = fixture.send(&head, body).await;
        assert_eq!(response.status, 400);
        assert_eq!(response.problem(), "inconsistent-upload-length");
    }
    let wrong_length_head = format!("{head}\r\nupload-length: 5");
    assert_eq!(
        fixture.send(&wrong_length_head, b"cde").await.problem(),
        "inconsistent-upload-length"
    );
    assert_eq!(fixture.send(&head, b"cd").await.status, 201);
}

#[tokio::test]
async fn a_silent_connection_counts_as_broken() {
    let limits = TicketLimits {
        idle_timeout: Duration::from_secs(1),
        ..TicketLimits::default()
    };
    let fixture = TestEndpoint::with(limits, u64::MAX).await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let mut stream = connect(fixture.address).await;
    let head = with_version(&format!("PUT {url}\r\ncontent-length: 9"));
    // Head and body are sent in one write, so that the server does not wait for the bytes.
    let request = [head.as_bytes(), b"abc"].concat();
    stream.write_all(&request).await.unwrap();
    wait_for_offset(&fixture, &url, 3).await;
    let response = super::read_response(&mut stream).await;
    assert_eq!(response.problem(), "upload-interrupted");
}

#[tokio::test]
async fn a_segment_stays_while_it_is_unknown_whether_its_record_was_written() {
    let fixture = TestEndpoint::new().await;
    let segment_bytes = dray_store::MAX_SEGMENT_BYTES;
    let ticket = fixture.issue_ticket(TicketRequest::upload(16 << 20)).await;
    let url = ticket.url("");
    let bytes = noise(2 * segment_bytes);
    let mut stream = connect(fixture.address).await;
    let head = with_version(&format!("PUT {url}\r\ncontent-length: {}", bytes.len()));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&bytes[..segment_bytes]).await.unwrap();
    let secret = url.rsplit('/').next().unwrap();
    super::wait_until(|| async {
        let record = fixture.service.find(secret).await.unwrap().record;
        record.moved == segment_bytes as u64
    })
    .await;
    // A directory can be opened but not read. So the write fails, and the cause is not a request that came first.
    let record = fixture.directory.path().join("tickets").join(&ticket.key);
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    stream.write_all(&bytes[segment_bytes..]).await.unwrap();
    let failed = super::read_response(&mut stream).await;
    assert_eq!(
        (failed.status, failed.problem().as_str()),
        (503, "storage-unavailable")
    );
    assert_eq!(fixture.count_files("segments"), 2);
}
