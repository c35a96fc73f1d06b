//! Clients that send false data, hang, or send late or twice, and a failing store: no unwanted content is stored.

use std::time::Duration;

use base64::Engine as _;
use dray_testkit::s3::{FaultRule, FaultyS3, S3Fault};
use dray_types::Sha256Digest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{TestEndpoint, connect, noise, read_response, wait_until, with_version};
use crate::fields::digest_value;
use crate::{TicketLimits, TicketRequest};

fn secret(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// Sends chunks of a body, with trailer fields.
async fn send_chunked(
    fixture: &TestEndpoint,
    head: &str,
    body: &[u8],
    trailers: &str,
) -> super::TestResponse {
    let mut stream = connect(fixture.address).await;
    let head = with_version(&format!("{head}\r\ntransfer-encoding: chunked"));
    stream.write_all(head.as_bytes()).await.unwrap();
    let size = format!("{:x}\r\n", body.len());
    stream.write_all(size.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let end = format!("\r\n0\r\n{trailers}\r\n");
    stream.write_all(end.as_bytes()).await.unwrap();
    read_response(&mut stream).await
}

#[tokio::test]
async fn two_whole_uploads_to_one_ticket_store_one_file() {
    let fixture = TestEndpoint::new().await;
    let (one, other) = (noise(300_000), noise(300_001));
    for _ in 0..5 {
        let url = fixture.issue(TicketRequest::upload(1 << 20)).await;
        let head = format!("PUT {url}");
        let (first, second) = tokio::join!(fixture.send(&head, &one), fixture.send(&head, &other));
        let stored: Vec<_> = [&first, &second]
            .into_iter()
            .filter(|response| response.status == 201)
            .collect();
        assert_eq!(stored.len(), 1, "{first:?} {second:?}");
        let refused = if first.status == 201 { &second } else { &first };
        assert!(
            ["ticket-in-use", "ticket-used"].contains(&refused.problem().as_str()),
            "{refused:?}"
        );
        let state = fixture.send_empty(&format!("GET {url}")).await.json();
        assert_eq!(state["content"]["sha256"], stored[0].json()["sha256"]);
        assert_eq!(fixture.count_files("segments"), 0);
    }
}

#[tokio::test]
async fn wrong_offsets_and_lengths_store_no_bytes() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let first = fixture
        .send(&format!("POST {url}\r\nupload-complete: ?0"), b"abc")
        .await;
    assert_eq!(first.status, 201);
    let part = "content-type: application/partial-upload\r\nupload-complete: ?1";
    for offset in ["0", "2", "4", "18446744073709551615"] {
        let head = format!("PATCH {url}\r\n{part}\r\nupload-offset: {offset}");
        let refused = fixture.send(&head, b"def").await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (409, "mismatching-upload-offset"),
            "{offset}"
        );
    }
    for offset in ["-1", "+3", "3, 3", "18446744073709551616"] {
        let head = format!("PATCH {url}\r\n{part}\r\nupload-offset: {offset}");
        assert_eq!(
            fixture.send(&head, b"def").await.problem(),
            "invalid-request"
        );
    }
    // A length below the received bytes would leave an upload that nothing completes.
    let tus_part = "tus-resumable: 1.0.0\r\ncontent-type: application/offset+octet-stream";
    let head = format!("PATCH {url}\r\n{tus_part}\r\nupload-offset: 3\r\nupload-length: 2");
    assert_eq!(
        fixture.send(&head, b"").await.problem(),
        "inconsistent-upload-length"
    );
    // More bytes were announced than arrived.
    let short = fixture.issue(TicketRequest::upload(100)).await;
    let head = format!("PUT {short}\r\ncontent-length: 9");
    super::break_after(&fixture, &head, b"abc").await;
    wait_until(|| async {
        let ticket = fixture.service.find(secret(&short)).await.unwrap();
        ticket.record.moved == 3 && ticket.record.lease.is_none()
    })
    .await;
    // Fewer bytes were announced than sent: the excess is not part of the body, and the connection is closed.
    let long = fixture.issue(TicketRequest::upload(100)).await;
    let mut stream = connect(fixture.address).await;
    let request = with_version(&format!("PUT {long}\r\ncontent-length: 3"));
    stream.write_all(request.as_bytes()).await.unwrap();
    let _ = stream.write_all(b"abcdef").await;
    assert_eq!(read_response(&mut stream).await.json()["size"], 3);
    for content in [b"abcdef".as_slice(), b"def"] {
        assert!(!fixture.is_stored(content).await);
    }
    // Two lengths are a smuggled request (RFC 9112 section 6.3).
    let both = fixture.issue(TicketRequest::upload(100)).await;
    let head = format!("PUT {both}\r\ncontent-length: 3\r\ncontent-length: 6");
    let refused = super::send_raw(fixture.address, &head, b"abcdef").await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        fixture.send(&format!("PUT {both}"), b"xyz").await.status,
        201
    );
}

#[tokio::test]
async fn fields_with_one_value_on_several_lines_are_refused() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let tus = "tus-resumable: 1.0.0";
    let part = "content-type: application/partial-upload\r\nupload-complete: ?1";
    let tus_part = "content-type: application/offset+octet-stream\r\nupload-offset: 0";
    for head in [
        format!("POST {url}\r\n{tus}\r\nupload-length: 3\r\nupload-length: 4"),
        format!("PATCH {url}\r\n{part}\r\nupload-offset: 0\r\nupload-offset: 3"),
        format!("PATCH {url}\r\n{part}\r\nupload-complete: ?0\r\nupload-offset: 0"),
        format!("PATCH {url}\r\n{tus}\r\n{tus_part}\r\nupload-length: 3\r\nupload-length: 9"),
        format!("PUT {url}\r\ncontent-range: bytes 0-2/3\r\ncontent-range: bytes 0-2/9"),
    ] {
        let refused = fixture.send(&head, b"abc").await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (400, "invalid-request"),
            "{head}"
        );
        assert!(!fixture.is_stored(b"abc").await, "{head}");
    }
    assert_eq!(
        fixture.send(&format!("PUT {url}"), b"xyz").await.status,
        201
    );
}

#[tokio::test]
async fn a_head_that_arrives_byte_by_byte_times_out() {
    let limits = TicketLimits {
        idle_timeout: Duration::from_secs(1),
        ..TicketLimits::default()
    };
    let fixture = TestEndpoint::with(limits, u64::MAX).await;
    let (mut reader, mut writer) = connect(fixture.address).await.into_split();
    // No pause between two bytes is as long as the limit, which holds for the whole head.
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let dripping = async {
        for byte in b"GET /t/x HTTP/1.1\r\nx: "
            .iter()
            .chain(std::iter::repeat(&b'y'))
        {
            if writer.write_all(&[*byte]).await.is_err() {
                break;
            }
            pace.tick().await;
        }
    };
    // The server closes by itself; without a limit this would wait forever.
    let mut rest = Vec::new();
    let closing = async {
        tokio::select! {
            // A reset ends the connection too.
            _ = reader.read_to_end(&mut rest) => {}
            () = dripping => {}
        }
    };
    let closed = tokio::time::timeout(Duration::from_secs(30), closing).await;
    assert!(closed.is_ok());
}

#[tokio::test]
async fn a_document_that_does_not_arrive_is_refused() {
    let limits = TicketLimits {
        idle_timeout: Duration::from_secs(1),
        ..TicketLimits::default()
    };
    let fixture = TestEndpoint::with(limits, u64::MAX).await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let key = crate::key_text(&[7; 32]);
    for line in [
        format!("POST {url}/parts"),
        format!("POST {url}/parts/complete"),
        format!("POST /tickets\r\nauthorization: Bearer {key}"),
    ] {
        let mut stream = connect(fixture.address).await;
        let head = with_version(&format!("{line}\r\ncontent-length: 9"));
        // Without a limit the response would never come.
        let request = [head.as_bytes(), b"{"].concat();
        stream.write_all(&request).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 400, "{line}");
    }
}

#[tokio::test]
async fn a_ticket_that_expires_during_an_upload_stores_nothing() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let mut stream = connect(fixture.address).await;
    let head = with_version(&format!("PUT {url}\r\ncontent-length: 6"));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"abc").await.unwrap();
    wait_until(|| async {
        let ticket = fixture.service.find(secret(&url)).await.unwrap();
        ticket.record.lease.is_some()
    })
    .await;
    fixture.clock.advance(Duration::from_hours(1));
    stream.write_all(b"def").await.unwrap();
    let response = read_response(&mut stream).await;
    assert_eq!(
        (response.status, response.problem().as_str()),
        (410, "ticket-expired")
    );
    assert!(!fixture.is_stored(b"abcdef").await);
    fixture.service.sweep().await.unwrap();
    assert_eq!(fixture.count_files("segments"), 0);
}

#[tokio::test]
async fn a_digest_in_the_trailers_is_compared() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(70_000);
    let correct_digest = digest_value(Sha256Digest::of(&bytes));
    let wrong_digest = digest_value(Sha256Digest::of(b"x"));
    for field in ["content-digest", "repr-digest"] {
        let url = fixture.issue(TicketRequest::upload(1 << 20)).await;
        let head = format!("PUT {url}\r\ntrailer: {field}");
        let refused = send_chunked(
            &fixture,
            &head,
            &bytes,
            &format!("{field}: {wrong_digest}\r\n"),
        )
        .await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (422, "wrong-digest"),
            "{field}"
        );
        assert!(!fixture.is_stored(&bytes).await, "{field}");
        assert_eq!(fixture.count_files("segments"), 0, "{field}");
    }
    // `Trailer` should name the field, and some senders omit it (RFC 9110 section 6.6.2).
    for announcement in ["\r\ntrailer: content-digest", ""] {
        let url = fixture.issue(TicketRequest::upload(1 << 20)).await;
        let head = format!("PUT {url}{announcement}");
        let trailers = format!("content-digest: {correct_digest}\r\n");
        let stored = send_chunked(&fixture, &head, &bytes, &trailers).await;
        assert_eq!(stored.status, 201, "{stored:?}");
    }
}

#[tokio::test]
async fn a_store_that_requests_slower_writes_keeps_the_received_bytes() {
    let fixture = TestEndpoint::new().await;
    let options = fixture.store_options.clone();
    let upstream = options.endpoint.strip_prefix("http://").unwrap();
    let proxy = FaultyS3::start(upstream.parse().unwrap()).await.unwrap();
    let options = dray_store::StoreOptions {
        endpoint: proxy.endpoint(),
        ..options
    };
    let store = dray_store::Store::open(&options, dray_types::Clock::system())
        .await
        .unwrap();
    let (address, _stop) = fixture.replica_over(store).await;
    let bytes = noise(9 << 20);
    let url = fixture
        .issue(TicketRequest::upload(16 << 20).size(Some(9 << 20)))
        .await;
    for status in [503, 507] {
        proxy.add(FaultRule::new(S3Fault::Status(status), |request| {
            request.method == http::Method::PUT
        }));
        let refused = super::send(address, &format!("PUT {url}"), &bytes).await;
        let problem = if status == 507 {
            "storage-full"
        } else {
            "storage-unavailable"
        };
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (status, problem)
        );
        proxy.clear_faults();
        assert!(!fixture.is_stored(&bytes).await);
    }
    let part = "content-type: application/partial-upload\r\nupload-complete: ?1";
    let offset = super::send_raw(address, &format!("HEAD {url}"), b"").await;
    let offset: usize = offset.field("upload-offset").unwrap().parse().unwrap();
    let head = format!("PATCH {url}\r\n{part}\r\nupload-offset: {offset}");
    let stored = super::send(address, &head, &bytes[offset..]).await;
    assert_eq!(stored.status, 201, "{stored:?}");
    assert!(fixture.is_stored(&bytes).await);
}

#[tokio::test]
async fn the_result_can_be_requested_again_after_a_lost_response() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let stored = fixture.send(&format!("PUT {url}"), b"abcdef").await;
    let part = "content-type: application/partial-upload\r\nupload-complete: ?1";
    let repeated = fixture
        .send(&format!("PATCH {url}\r\n{part}\r\nupload-offset: 6"), b"")
        .await;
    assert_eq!((repeated.status, repeated.json()), (201, stored.json()));
    assert_eq!(repeated.field("upload-complete"), Some("?1"));
    // Bytes are no longer accepted at any offset.
    for (offset, body) in [("6", b"g".as_slice()), ("3", b"")] {
        let head = format!("PATCH {url}\r\n{part}\r\nupload-offset: {offset}");
        assert_eq!(fixture.send(&head, body).await.problem(), "ticket-used");
    }
}

#[tokio::test]
async fn ranges_and_conditions_of_a_download_never_mix_contents() {
    let fixture = TestEndpoint::new().await;
    let bytes = noise(1_000);
    let etag = format!("\"{}\"", Sha256Digest::of(&bytes));
    for fields in [
        // Several ranges may be ignored (RFC 9110 section 14.2).
        "range: bytes=0-1,5-6".to_owned(),
        "range: bytes=0-1, -5".to_owned(),
        "range: items=0-1".to_owned(),
        // A weak tag and a date do not prove that the client has a part of this content.
        format!("range: bytes=0-1\r\nif-range: W/{etag}"),
        "range: bytes=0-1\r\nif-range: Wed, 21 Oct 2015 07:28:00 GMT".to_owned(),
        "if-none-match: \"other\"".to_owned(),
    ] {
        let url = fixture.issue_download(&bytes, "a.bin").await;
        let full_response = fixture.send_empty(&format!("GET {url}\r\n{fields}")).await;
        assert_eq!(
            (full_response.status, full_response.body == bytes),
            (200, true),
            "{fields}"
        );
    }
    let url = fixture.issue_download(&bytes, "a.bin").await;
    for (fields, status) in [
        (format!("if-none-match: \"x\", {etag}"), 304),
        ("if-none-match: *".to_owned(), 304),
        ("if-match: \"x\"".to_owned(), 412),
        ("range: bytes=1000-".to_owned(), 416),
    ] {
        for method in ["GET", "HEAD"] {
            let response = fixture
                .send_empty(&format!("{method} {url}\r\n{fields}"))
                .await;
            assert_eq!(response.status, status, "{method} {fields}");
        }
    }
    let head = fixture
        .send_empty(&format!(
            "HEAD {url}\r\nrange: bytes=0-1\r\nif-range: {etag}"
        ))
        .await;
    assert_eq!(
        (head.status, head.field("content-length")),
        (206, Some("2"))
    );
    // None of them used the ticket.
    assert_eq!(fixture.send_empty(&format!("GET {url}")).await.body, bytes);
}

#[tokio::test]
async fn names_of_senders_cannot_leave_a_header_or_a_directory() {
    let fixture = TestEndpoint::new().await;
    for (name, expected_part) in [
        ("../../etc/passwd", "passwd"),
        ("a\r\nSet-Cookie: b=1", "a"),
        ("\u{202e}fdp.exe", "exe"),
        (
            "r\u{e9}sum\u{e9} \u{1f4c4}.pdf",
            "r%C3%A9sum%C3%A9%20%F0%9F%93%84.pdf",
        ),
    ] {
        let url = fixture.issue(TicketRequest::upload(100)).await;
        let metadata = base64::engine::general_purpose::STANDARD.encode(name);
        let create = format!(
            "POST {url}\r\ntus-resumable: 1.0.0\r\nupload-length: 3\r\nupload-metadata: filename {metadata}"
        );
        assert_eq!(fixture.send_empty(&create).await.status, 201, "{name:?}");
        let part = "content-type: application/offset+octet-stream";
        let head = format!("PATCH {url}\r\ntus-resumable: 1.0.0\r\nupload-offset: 0\r\n{part}");
        assert_eq!(fixture.send(&head, b"abc").await.status, 204, "{name:?}");
        let state = fixture.send_empty(&format!("GET {url}")).await.json();
        let stored = state["content"]["name"].as_str().unwrap();
        assert!(
            !stored.contains(['/', '\r', '\n', '\u{202e}']),
            "{stored:?}"
        );
        let download = fixture.issue_download(&noise(3), stored).await;
        let response = fixture.send_empty(&format!("GET {download}")).await;
        assert_eq!(response.field("set-cookie"), None, "{name:?}");
        let disposition = response.field("content-disposition").unwrap();
        assert!(disposition.starts_with("attachment; "), "{disposition}");
        assert!(
            disposition.contains(expected_part),
            "{name:?}: {disposition}"
        );
    }
}
