//! Refusals are the same in every protocol: a problem document, nothing stored, and no partial content visible.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use axum::body::Body;
use dray_types::Sha256Digest;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method};

use super::{TestEndpoint, TestResponse, break_after, noise};
use crate::protocol::UploadRequest;
use crate::{Principal, TicketLimits, TicketRequest};

/// The protocols in which a client sends a whole file.
const UPLOAD_PROTOCOLS: [&str; 4] = ["plain", "tus", "resumable", "form"];

/// Sends content in one request that completes the upload.
async fn send_as(
    fixture: &TestEndpoint,
    protocol: &str,
    url: &str,
    content: &[u8],
) -> TestResponse {
    match protocol {
        "plain" => fixture.send(&format!("PUT {url}"), content).await,
        "tus" => {
            let length = content.len();
            let create = format!("POST {url}\r\ntus-resumable: 1.0.0\r\nupload-length: {length}");
            let created = fixture.send_empty(&create).await;
            if created.status >= 300 {
                return created;
            }
            let part = "content-type: application/offset+octet-stream";
            let head = format!("PATCH {url}\r\ntus-resumable: 1.0.0\r\nupload-offset: 0\r\n{part}");
            fixture.send(&head, content).await
        }
        "resumable" => {
            let head = format!("POST {url}\r\nupload-complete: ?1");
            fixture.send(&head, content).await
        }
        _ => {
            let mut body =
                b"--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"
                    .to_vec();
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n--limit--\r\n");
            let kind = "content-type: multipart/form-data; boundary=limit";
            fixture.send(&format!("POST {url}\r\n{kind}"), &body).await
        }
    }
}

#[tokio::test]
async fn every_protocol_refuses_the_same_content_with_the_same_problem() {
    let upload = || TicketRequest::upload(100);
    let other_digest = Sha256Digest::of(b"another file");
    for protocol in UPLOAD_PROTOCOLS {
        for (request, status, problem) in [
            (TicketRequest::upload(8), 413, "content-too-large"),
            (upload().size(Some(20)), 422, "wrong-size"),
            (upload().sha256(Some(other_digest)), 422, "wrong-digest"),
            (
                upload().media_type(Some("image/*".to_owned())),
                415,
                "wrong-type",
            ),
        ] {
            let fixture = TestEndpoint::new().await;
            let url = fixture.issue(request).await;
            let refused = send_as(&fixture, protocol, &url, b"some text").await;
            let reported = (refused.status, refused.problem());
            assert_eq!(reported, (status, problem.to_owned()), "{protocol}");
            assert!(
                !fixture.is_stored(b"some text").await,
                "{protocol}: {problem}"
            );
            assert_eq!(fixture.count_files("segments"), 0, "{protocol}: {problem}");
            // The received bytes are not visible to the holder of the URL either.
            let state = fixture.send_empty(&format!("GET {url}")).await;
            if state.status == 200 {
                assert!(state.json()["content"].is_null(), "{protocol}: {state:?}");
                assert_eq!(state.json()["received_bytes"], 0, "{protocol}: {state:?}");
            } else {
                assert_eq!(state.problem(), "ticket-spent", "{protocol}");
            }
        }
    }
}

#[tokio::test]
async fn every_protocol_refuses_tickets_that_do_not_work() {
    for protocol in UPLOAD_PROTOCOLS {
        let fixture = TestEndpoint::new().await;
        let used = fixture.issue(TicketRequest::upload(100)).await;
        assert!(send_as(&fixture, protocol, &used, b"first").await.status < 300);
        let repeated = send_as(&fixture, protocol, &used, b"some text").await;
        assert_eq!(repeated.problem(), "ticket-used", "{protocol}");
        let forged = format!("/t/{}", "x".repeat(43));
        let unknown = send_as(&fixture, protocol, &forged, b"some text").await;
        assert_eq!(unknown.problem(), "ticket-unknown", "{protocol}");
        let expired = fixture.issue(TicketRequest::upload(100)).await;
        fixture.clock.advance(std::time::Duration::from_hours(1));
        let late_response = send_as(&fixture, protocol, &expired, b"some text").await;
        assert_eq!(late_response.problem(), "ticket-expired", "{protocol}");
        assert!(!fixture.is_stored(b"some text").await, "{protocol}");
        assert_eq!(fixture.count_files("segments"), 0, "{protocol}");
    }
}

#[tokio::test]
async fn a_ticket_above_the_quota_or_the_number_of_open_tickets_is_not_made() {
    let limits = TicketLimits {
        quota_bytes: 100,
        max_open_tickets: 2,
        ..TicketLimits::default()
    };
    let fixture = TestEndpoint::with(limits, u64::MAX).await;
    let key = crate::key_text(&[7; 32]);
    let order = async |bytes: u64| {
        let principal = Principal::default();
        let document = serde_json::json!({
            "direction": "upload",
            "tenant": principal.tenant.as_str(),
            "session": principal.session.as_str(),
            "max_bytes": bytes,
        });
        let head = format!("POST /tickets\r\nauthorization: Bearer {key}");
        fixture.send(&head, document.to_string().as_bytes()).await
    };
    assert_eq!(order(80).await.status, 201);
    let over = order(30).await;
    assert_eq!(
        (over.status, over.problem().as_str()),
        (429, "quota-exceeded")
    );
    assert_eq!(order(20).await.status, 201);
    let many = order(0).await;
    assert_eq!(
        (many.status, many.problem().as_str()),
        (429, "too-many-open-tickets")
    );
}

#[tokio::test]
async fn the_offset_after_a_broken_connection_counts_every_byte_that_arrived() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(3 << 20);
    for _ in 0..5 {
        let url = fixture.issue(TicketRequest::upload(4 << 20)).await;
        let head = format!("PUT {url}\r\ncontent-length: {}", 4 << 20);
        break_after(&fixture, &head, &bytes).await;
        // The request has begun. If the next one did not wait for its end, the offset would usually be 0.
        let secret = url.rsplit('/').next().unwrap();
        super::wait_until(|| async {
            let ticket = fixture.service.find(secret).await.unwrap();
            ticket.record.lease.is_some() || ticket.record.moved > 0
        })
        .await;
        let offset = fixture.send_empty(&format!("HEAD {url}")).await;
        let expected = bytes.len().to_string();
        assert_eq!(offset.field("upload-offset"), Some(expected.as_str()));
    }
}

#[tokio::test]
async fn a_recorded_lease_always_has_an_upload_to_wait_for() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let secret = url.rsplit('/').next().unwrap();
    let ticket = fixture.service.find(secret).await.unwrap();
    let key = ticket.key.clone();
    let headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("4"))]);
    let request = UploadRequest::read(&Method::PUT, &headers).unwrap();
    let mut receiving = pin!(fixture.service.receive(ticket, request, Body::from("text")));
    // The request is polled until its first write begins. The write completes although the request is not polled.
    assert!(poll_once(receiving.as_mut()).await.is_pending());
    super::wait_until(|| async {
        let ticket = fixture.service.find(secret).await.unwrap();
        ticket.record.lease.is_some()
    })
    .await;
    let mut settling = pin!(fixture.service.inner.active.settle(&key));
    assert!(poll_once(settling.as_mut()).await.is_pending());
    assert!(receiving.await.unwrap().complete);
    settling.await;
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
