//! Uploads in parts that clients send to the store, bypassing the endpoint.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use dray_types::Sha256Digest;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{TestEndpoint, TestResponse, connect, noise, read_response};
use crate::record::TicketState;
use crate::{TicketProblem, TicketRequest};

/// Bytes of a part; the last one is shorter.
const PART_BYTES: usize = 16 << 20;

/// Sends a part to the store with exactly the headers of the document.
async fn send_part(part: &Value, bytes: &[u8]) -> TestResponse {
    let url = part["url"].as_str().unwrap();
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut head = format!(
        "PUT /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n",
        bytes.len()
    );
    for (name, value) in part["headers"].as_object().unwrap() {
        if name != "content-length" {
            write!(head, "{name}: {}\r\n", value.as_str().unwrap()).unwrap();
        }
    }
    head.push_str("\r\n");
    let mut stream = connect(host.parse().unwrap()).await;
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses early may close before all bytes are written.
    let _ = stream.write_all(bytes).await;
    read_response(&mut stream).await
}

/// Sends every part. Returns the list of parts for the request that completes the upload.
async fn send_parts(offer: &Value, bytes: &Bytes) -> Vec<Value> {
    let mut sent = Vec::new();
    let mut start = 0;
    for part in offer["parts"].as_array().unwrap() {
        let size = usize::try_from(part["size"].as_u64().unwrap()).unwrap();
        let response = send_part(part, &bytes[start..start + size]).await;
        assert_eq!(response.status, 200, "{response:?}");
        sent.push(json!({"number": part["number"], "etag": response.field("etag").unwrap()}));
        start += size;
    }
    assert_eq!(start, bytes.len());
    sent
}

async fn begin(fixture: &TestEndpoint, url: &str) -> Value {
    let offer = fixture.send(&format!("POST {url}/parts"), b"").await;
    assert_eq!(offer.status, 201, "{offer:?}");
    offer.json()
}

async fn complete(fixture: &TestEndpoint, url: &str, parts: &[Value]) -> TestResponse {
    let document = json!({"parts": parts}).to_string();
    let head = format!("POST {url}/parts/complete");
    fixture.send(&head, document.as_bytes()).await
}

#[tokio::test]
async fn parts_become_the_artifact_after_the_same_checks() {
    let fixture = TestEndpoint::with_public_store().await;
    let bytes = noise(PART_BYTES + 1_000);
    let sha256 = Sha256Digest::of(&bytes);
    let request = TicketRequest::upload(64 << 20)
        .size(Some(bytes.len() as u64))
        .sha256(Some(sha256))
        .name("a.bin");
    let ticket = fixture.issue_ticket(request).await;
    let url = ticket.url("");
    assert_eq!(ticket.parts_url(""), Some(format!("{url}/parts")));
    let offer = begin(&fixture, &url).await;
    assert_eq!(offer["parts"].as_array().unwrap().len(), 2);
    let sent = send_parts(&offer, &bytes).await;
    // No content is visible before the upload is complete, and its bytes cannot go through the endpoint too.
    assert!(!fixture.is_stored(&bytes).await);
    assert_eq!(
        fixture.send(&format!("PUT {url}"), &bytes).await.status,
        400
    );
    let completed = complete(&fixture, &url, &sent).await;
    assert_eq!(completed.status, 201, "{completed:?}");
    assert_eq!(completed.json()["sha256"], sha256.to_hex());
    assert_eq!(completed.json()["name"], "a.bin");
    assert!(fixture.is_stored(&bytes).await);
    assert_eq!(fixture.count_files("stage"), 0);
    // The response may have been lost.
    let repeated = complete(&fixture, &url, &sent).await;
    assert_eq!((repeated.status, repeated.json()), (201, completed.json()));
    let more = fixture.send(&format!("POST {url}/parts"), b"").await;
    assert_eq!(more.problem(), "ticket-used");
}

#[tokio::test]
async fn parts_of_another_content_are_refused_and_removed() {
    let bytes = noise(1_000);
    let upload = || TicketRequest::upload(2_000).size(Some(1_000));
    for (request, status, problem) in [
        (
            upload().sha256(Some(Sha256Digest::of(b"x"))),
            422,
            "wrong-digest",
        ),
        (
            upload().media_type(Some("image/*".to_owned())),
            415,
            "wrong-type",
        ),
    ] {
        let fixture = TestEndpoint::with_public_store().await;
        let url = fixture.issue(request).await;
        let offer = begin(&fixture, &url).await;
        let sent = send_parts(&offer, &bytes).await;
        let refused = complete(&fixture, &url, &sent).await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (status, problem)
        );
        assert!(!fixture.is_stored(&bytes).await);
        assert_eq!(fixture.count_files("stage"), 0, "{problem}");
        assert_eq!(fixture.count_files("uploads/"), 0, "{problem}");
        let repeated = complete(&fixture, &url, &sent).await;
        assert_eq!(repeated.problem(), "ticket-spent");
    }
}

#[tokio::test]
async fn completing_requires_every_part_with_its_tag() {
    let fixture = TestEndpoint::with_public_store().await;
    let bytes = noise(PART_BYTES + 10);
    let url = fixture.issue(TicketRequest::upload(64 << 20)).await;
    let missing = fixture.send(&format!("POST {url}/parts"), b"").await;
    assert_eq!(missing.problem(), "invalid-request");
    let size = json!({"size": bytes.len()}).to_string();
    let offer = fixture
        .send(&format!("POST {url}/parts"), size.as_bytes())
        .await;
    let offer = offer.json();
    // The size of a part is signed.
    let long = send_part(&offer["parts"][1], &noise(11)).await;
    assert_eq!(long.status, 403, "{long:?}");
    let sent = send_parts(&offer, &bytes).await;
    let other_part = json!({"number": 2, "etag": "\"other\""});
    for parts in [
        vec![],
        vec![sent[0].clone()],
        vec![sent[1].clone(), sent[0].clone()],
        vec![sent[0].clone(), sent[1].clone(), sent[1].clone()],
        vec![sent[0].clone(), other_part],
    ] {
        let refused = complete(&fixture, &url, &parts).await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (409, "wrong-parts"),
            "{parts:?}"
        );
        assert!(!fixture.is_stored(&bytes).await);
    }
    // Received parts are kept, and the URLs can be requested again.
    begin(&fixture, &url).await;
    assert_eq!(complete(&fixture, &url, &sent).await.status, 201);
    assert!(fixture.is_stored(&bytes).await);
}

#[tokio::test]
async fn an_invalid_or_ended_ticket_returns_no_urls() {
    let fixture = TestEndpoint::with_public_store().await;
    let url = fixture
        .issue(TicketRequest::upload(100).size(Some(10)))
        .await;
    for (document, problem) in [
        (json!({"size": 11}), "wrong-size"),
        (json!({"size": 101}), "content-too-large"),
        (json!({"other": 1}), "invalid-request"),
    ] {
        let refused = fixture
            .send(
                &format!("POST {url}/parts"),
                document.to_string().as_bytes(),
            )
            .await;
        assert_eq!(refused.problem(), problem);
    }
    let early = complete(&fixture, &url, &[]).await;
    assert_eq!(early.problem(), "invalid-request");
    let forged = format!("/t/{}", "x".repeat(43));
    let unknown = fixture.send(&format!("POST {forged}/parts"), b"").await;
    assert_eq!(unknown.problem(), "ticket-unknown");
    let offer = begin(&fixture, &url).await;
    assert_eq!(send_part(&offer["parts"][0], &noise(10)).await.status, 200);
    fixture.clock.advance(Duration::from_hours(1));
    let late_response = complete(&fixture, &url, &[]).await;
    assert_eq!(late_response.problem(), "ticket-expired");
    fixture.service.sweep().await.unwrap();
    assert_eq!(fixture.count_files("uploads/"), 0);

    let without_public_store = TestEndpoint::new().await;
    let ticket = without_public_store
        .issue_ticket(TicketRequest::upload(100).size(Some(10)))
        .await;
    assert_eq!(ticket.parts_url(""), None);
    let refused = without_public_store
        .send(&format!("POST {}/parts", ticket.url("")), b"")
        .await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (501, "no-direct-upload")
    );
}

#[tokio::test]
async fn a_revoked_ticket_removes_the_parts_that_were_sent() {
    let fixture = TestEndpoint::with_public_store().await;
    let url = fixture
        .issue(TicketRequest::upload(100).size(Some(10)))
        .await;
    let offer = begin(&fixture, &url).await;
    assert_eq!(send_part(&offer["parts"][0], &noise(10)).await.status, 200);
    assert_eq!(
        fixture.send_empty(&format!("DELETE {url}")).await.status,
        204
    );
    assert_eq!(fixture.count_files("uploads/"), 0);
    let after_revocation = send_part(&offer["parts"][0], &noise(10)).await;
    assert_eq!(after_revocation.status, 404, "{after_revocation:?}");
}

#[tokio::test]
async fn parts_stay_while_it_is_unknown_whether_their_record_was_written() {
    let fixture = TestEndpoint::with_public_store().await;
    let request = TicketRequest::upload(100).size(Some(10));
    let issued = fixture.issue_ticket(request).await;
    let url = issued.url("");
    let secret = url.rsplit('/').next().unwrap();
    let ticket = fixture.service.find(secret).await.unwrap();
    // A directory can be opened but not read. So the write fails, and the cause is not a request that came first.
    let record = fixture.directory.path().join("tickets").join(&issued.key);
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    let failed = fixture.service.begin_direct(ticket, None).await;
    assert_eq!(failed.unwrap_err(), TicketProblem::Unavailable);
    assert!(fixture.count_files("uploads/") > 0);
}

#[tokio::test]
async fn stored_content_has_no_urls_of_parts() {
    let fixture = TestEndpoint::with_public_store().await;
    let request = TicketRequest::upload(100).size(Some(10));
    let url = fixture.issue(request).await;
    begin(&fixture, &url).await;
    let secret = url.rsplit('/').next().unwrap();
    let mut ticket = fixture.service.find(secret).await.unwrap();
    ticket.record.state = TicketState::Stored;
    fixture.service.save(&mut ticket).await.unwrap();
    let refused = fixture.send(&format!("POST {url}/parts"), b"").await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (409, "content-stored")
    );
}
