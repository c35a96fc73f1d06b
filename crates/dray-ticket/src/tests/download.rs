//! Downloads: each content is sent once, and completely or not at all.

use std::time::Duration;

use axum::body::Body;
use dray_types::Sha256Digest;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{START_MS, TestEndpoint, connect, noise, with_version};
use crate::TicketRequest;
use crate::fields::digest_value;

async fn wait_for_release(fixture: &TestEndpoint, url: &str) {
    let secret = url.rsplit('/').next().unwrap();
    super::wait_until(|| async {
        let ticket = fixture.service.find(secret).await.unwrap();
        ticket.record.lease.is_none()
    })
    .await;
}

/// Begins a response in this task, so that the test decides when bytes are read.
async fn begin_response(fixture: &TestEndpoint, url: &str, range: Option<&'static str>) -> Body {
    let mut headers = HeaderMap::new();
    if let Some(range) = range {
        headers.insert("range", HeaderValue::from_static(range));
    }
    let secret = url.rsplit('/').next().unwrap();
    let ticket = fixture.service.find(secret).await.unwrap();
    let response = fixture
        .service
        .download(ticket, &Method::GET, &headers)
        .await
        .unwrap();
    response.into_body()
}

#[tokio::test]
async fn content_is_sent_once_with_its_digest_and_name() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(3 << 20);
    let url = fixture.issue_download(&bytes, "r\u{e9}sum\u{e9}.txt").await;
    let digest = Sha256Digest::of(&bytes);
    let head = fixture.send_empty(&format!("HEAD {url}")).await;
    let length = bytes.len().to_string();
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some(length.as_str()))
    );

    let response = fixture.send_empty(&format!("GET {url}")).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.body, bytes);
    assert_eq!(
        response.field("etag"),
        Some(format!("\"{digest}\"").as_str())
    );
    let value = digest_value(digest);
    assert_eq!(response.field("content-digest"), Some(value.as_str()));
    assert_eq!(response.field("repr-digest"), Some(value.as_str()));
    assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
    assert!(
        response
            .field("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
    let disposition = response.field("content-disposition").unwrap();
    assert!(disposition.contains("filename*=UTF-8''r%C3%A9sum%C3%A9.txt"));

    wait_for_release(&fixture, &url).await;
    let repeated = fixture.send_empty(&format!("GET {url}")).await;
    assert_eq!(
        (repeated.status, repeated.problem().as_str()),
        (410, "ticket-used")
    );
}

#[tokio::test]
async fn the_name_of_a_ticket_replaces_the_name_of_its_content() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue_download(&noise(10), "stored.txt").await;
    let ticket = fixture.service.find(url.rsplit('/').next().unwrap()).await;
    let content = ticket.unwrap().record.content.unwrap();
    for (name, expected) in [
        ("report.txt", "attachment; filename=\"report.txt\""),
        ("../../etc/passwd", "attachment; filename=\"passwd\""),
    ] {
        let request = TicketRequest::download(content.clone()).name(name);
        let renamed = fixture.issue(request).await;
        let response = fixture.send_empty(&format!("GET {renamed}")).await;
        assert_eq!(response.status, 200);
        let disposition = response.field("content-disposition").unwrap();
        assert!(disposition.starts_with(expected), "{disposition}");
    }
}

#[tokio::test]
async fn a_broken_download_continues_with_a_range() {
    let fixture = TestEndpoint::new().await;
    // More bytes than the buffers of a connection hold.
    let bytes = noise(24 << 20);
    let url = fixture.issue_download(&bytes, "a.bin").await;
    let mut stream = connect(fixture.address).await;
    let head = with_version(&format!("GET {url}"));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut start = vec![0; 1 << 20];
    stream.read_exact(&mut start).await.unwrap();
    let concurrent_response = fixture.send_empty(&format!("GET {url}")).await;
    assert_eq!(
        (
            concurrent_response.status,
            concurrent_response.problem().as_str()
        ),
        (409, "ticket-in-use")
    );
    drop(stream);
    wait_for_release(&fixture, &url).await;

    let body = start.windows(4).position(|window| window == b"\r\n\r\n");
    let received_bytes = start.len() - body.unwrap() - 4;
    let etag = format!("\"{}\"", Sha256Digest::of(&bytes));
    let rest = fixture
        .send_empty(&format!(
            "GET {url}\r\nrange: bytes={received_bytes}-\r\nif-range: {etag}"
        ))
        .await;
    assert_eq!(rest.status, 206);
    assert_eq!(rest.body, bytes.slice(received_bytes..));
    let range = format!("bytes {received_bytes}-{}/{}", bytes.len() - 1, bytes.len());
    assert_eq!(rest.field("content-range"), Some(range.as_str()));
    wait_for_release(&fixture, &url).await;
    assert_eq!(
        fixture.send_empty(&format!("GET {url}")).await.problem(),
        "ticket-used"
    );
}

#[tokio::test]
async fn the_conditions_of_a_request_determine_the_response() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(10);
    let etag = format!("\"{}\"", Sha256Digest::of(&bytes));
    let url = fixture.issue_download(&bytes, "a.bin").await;
    let get = |fields: &str| {
        let head = format!("GET {url}{fields}");
        let fixture = &fixture;
        async move { fixture.send_empty(&head).await }
    };
    assert_eq!(
        get(&format!("\r\nif-none-match: W/{etag}")).await.status,
        304
    );
    assert_eq!(get("\r\nif-match: \"other\"").await.status, 412);
    let outside = get("\r\nrange: bytes=10-").await;
    assert_eq!(
        (outside.status, outside.field("content-range")),
        (416, Some("bytes */10"))
    );
    // The response has the complete content, because a range beyond the sent bytes would not mark the ticket as used.
    let full_response = get("\r\nrange: bytes=1-").await;
    assert_eq!((full_response.status, full_response.body.len()), (200, 10));
}

#[tokio::test]
async fn a_download_that_never_reaches_the_last_byte_ends_after_four_times_its_size() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(10);
    let url = fixture.issue_download(&bytes, "a.bin").await;
    for _ in 0..5 {
        let part = fixture
            .send_empty(&format!("GET {url}\r\nrange: bytes=0-7"))
            .await;
        assert_eq!((part.status, part.body.len()), (206, 8));
        wait_for_release(&fixture, &url).await;
    }
    let ended = fixture.send_empty(&format!("GET {url}")).await;
    assert_eq!(ended.problem(), "ticket-used");
    // All bytes count against the quota.
    let records = &fixture.service.inner.records;
    let usage_key = crate::Principal::default().usage_key();
    super::wait_until(|| async {
        let (value, _) = records.get(&usage_key).await.unwrap().unwrap();
        let usage: serde_json::Value = serde_json::from_slice(&value).unwrap();
        usage["entries"][0]["bytes"] == 40
    })
    .await;
}

#[tokio::test]
async fn a_range_of_other_content_gets_the_complete_content() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(10);
    let url = fixture.issue_download(&bytes, "a.bin").await;
    let head = format!("GET {url}\r\nrange: bytes=0-3\r\nif-range: \"other\"");
    let response = fixture.send_empty(&head).await;
    assert_eq!((response.status, response.body), (200, bytes));
}

#[tokio::test]
async fn content_that_changed_is_not_sent_to_its_end() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(1 << 20);
    let url = fixture.issue_download(&bytes, "a.bin").await;
    let hex = Sha256Digest::of(&bytes).to_hex();
    let mut directories = vec![fixture.directory.path().to_owned()];
    let mut changed = false;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let mut content = std::fs::read(&path).unwrap();
            let found = content
                .windows(64)
                .position(|window| window == &bytes[..64]);
            if let Some(start) = found.filter(|_| path.to_string_lossy().contains(&hex[..2])) {
                content[start] ^= 1;
                std::fs::write(&path, content).unwrap();
                changed = true;
            }
        }
    }
    assert!(changed);
    let response = fixture.send_empty(&format!("GET {url}")).await;
    assert!(response.body.len() < bytes.len() || response.status != 200);
    wait_for_release(&fixture, &url).await;
    let secret = url.rsplit('/').next().unwrap();
    let record = fixture.service.find(secret).await.unwrap().record;
    assert_ne!(record.state, crate::record::TicketState::Complete);
}

#[tokio::test]
async fn a_download_ticket_accepts_no_bytes() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue_download(&noise(10), "a.bin").await;
    let response = fixture.send(&format!("PUT {url}"), b"abc").await;
    assert_eq!(
        (response.status, response.field("allow")),
        (405, Some("GET, HEAD"))
    );
}

#[tokio::test]
async fn the_lease_is_renewed_while_bytes_outside_the_range_are_read() {
    let fixture = TestEndpoint::new().await;
    // More bytes than the buffers of the connection to the store hold, so the first poll does not reach the end.
    let url = fixture.issue_download(&noise(24 << 20), "a.bin").await;
    let mut body = begin_response(&fixture, &url, Some("bytes=0-9")).await;
    {
        let mut frame = std::pin::pin!(body.frame());
        tokio::select! {
            biased;
            _ = frame.as_mut() => panic!("the content must not be read immediately"),
            () = std::future::ready(()) => {}
        }
        fixture.clock.advance(Duration::from_secs(20));
        let frame = frame.await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap().len(), 10);
    }
    let secret = url.rsplit('/').next().unwrap();
    let record = fixture.service.find(secret).await.unwrap().record;
    assert_eq!(record.lease.unwrap().until_ms, START_MS + 80_000);
    drop(body);
}

#[tokio::test]
async fn a_running_download_ends_when_its_ticket_is_revoked() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(24 << 20);
    // Before the lease is renewed, only the last bytes are affected by the revocation.
    for elapsed_seconds in [0, 20] {
        let url = fixture.issue_download(&bytes, "a.bin").await;
        let mut body = begin_response(&fixture, &url, None).await;
        let first = body.frame().await.unwrap().unwrap();
        let mut received_bytes = first.into_data().unwrap().len();
        let secret = url.rsplit('/').next().unwrap();
        fixture.service.revoke(secret).await.unwrap();
        fixture.clock.advance(Duration::from_secs(elapsed_seconds));
        let mut has_failed = false;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => received_bytes += frame.into_data().unwrap().len(),
                Err(_) => has_failed = true,
            }
        }
        assert!(
            has_failed && received_bytes < bytes.len(),
            "{received_bytes}"
        );
    }
}

#[tokio::test]
async fn a_running_download_counts_in_full_when_its_ticket_is_revoked() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(24 << 20);
    let url = fixture.issue_download(&bytes, "a.bin").await;
    let mut body = begin_response(&fixture, &url, None).await;
    body.frame().await.unwrap().unwrap();
    let secret = url.rsplit('/').next().unwrap();
    fixture.service.revoke(secret).await.unwrap();
    let usage_key = crate::Principal::default().usage_key();
    let records = &fixture.service.inner.records;
    let (value, _) = records.get(&usage_key).await.unwrap().unwrap();
    let usage: serde_json::Value = serde_json::from_slice(&value).unwrap();
    assert_eq!(usage["entries"][0]["bytes"], bytes.len());
}

#[tokio::test]
async fn a_download_does_not_complete_without_the_record_of_its_ticket() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue_download(&noise(24 << 20), "a.bin").await;
    let mut body = begin_response(&fixture, &url, None).await;
    body.frame().await.unwrap().unwrap();
    // The record is removed, as happens to that of a revoked ticket.
    let secret = url.rsplit('/').next().unwrap();
    let ticket = fixture.service.find(secret).await.unwrap();
    let records = &fixture.service.inner.records;
    records.delete(&ticket.key, ticket.revision).await.unwrap();
    let mut has_failed = false;
    while let Some(frame) = body.frame().await {
        has_failed |= frame.is_err();
    }
    assert!(has_failed);
}

#[tokio::test]
async fn a_download_continues_after_a_renewal_that_was_written_although_it_failed() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(24 << 20);
    let url = fixture.issue_download(&bytes, "a.bin").await;
    let mut body = begin_response(&fixture, &url, None).await;
    let first = body.frame().await.unwrap().unwrap();
    let mut received_bytes = first.into_data().unwrap().len();
    // The lease stays with the same request, and the revision is later, as after such a renewal.
    let secret = url.rsplit('/').next().unwrap();
    let mut ticket = fixture.service.find(secret).await.unwrap();
    fixture.service.save(&mut ticket).await.unwrap();
    while let Some(frame) = body.frame().await {
        received_bytes += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(received_bytes, bytes.len());
    drop(body);
    wait_for_release(&fixture, &url).await;
    assert_eq!(
        fixture.send_empty(&format!("GET {url}")).await.problem(),
        "ticket-used"
    );
}
