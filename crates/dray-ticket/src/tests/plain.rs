//! One request with the complete content, as `curl -T` sends it.

use dray_types::Sha256Digest;
use tokio::io::AsyncWriteExt as _;

use super::{TestEndpoint, connect, noise, read_response, with_version};
use crate::TicketRequest;
use crate::fields::digest_value;

#[tokio::test]
async fn an_upload_is_one_artifact_and_the_ticket_is_used() {
    let fixture = TestEndpoint::new().await;
    for length in [0, 5, 9 << 20] {
        let bytes = noise(length);
        let url = fixture
            .issue(TicketRequest::upload(10 << 20).name("a/../b.bin"))
            .await;
        let response = fixture.send(&format!("PUT {url}"), &bytes).await;
        assert_eq!(response.status, 201, "{response:?}");
        let stored = response.json();
        assert_eq!(stored["sha256"], Sha256Digest::of(&bytes).to_hex());
        assert_eq!(stored["size"], length);
        assert!(fixture.is_stored(&bytes).await);
        assert_eq!(fixture.count_files("segments"), 0);

        let repeated = fixture.send(&format!("PUT {url}"), &bytes).await;
        assert_eq!(
            (repeated.status, repeated.problem().as_str()),
            (410, "ticket-used")
        );
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_accepted_up_to_the_limit() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(5)).await;
    let head = format!("POST {url}\r\ntransfer-encoding: chunked");
    let long = super::send_raw(fixture.address, &head, b"6\r\nabcdef\r\n0\r\n\r\n").await;
    assert_eq!(
        (long.status, long.problem().as_str()),
        (413, "content-too-large")
    );
    assert!(!fixture.is_stored(b"abcdef").await);
    // No byte was accepted, so the ticket can still be used.
    let fits = super::send_raw(fixture.address, &head, b"5\r\nabcde\r\n0\r\n\r\n").await;
    assert_eq!(fits.status, 201);
    assert!(fixture.is_stored(b"abcde").await);
}

#[tokio::test]
async fn uploads_that_do_not_fit_the_ticket_are_refused_and_not_stored() {
    let fixture = TestEndpoint::new().await;
    let digest = Sha256Digest::of(b"abc");
    let upload = || TicketRequest::upload(100);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
    let wrong_digest_field = format!("\r\ncontent-digest: {}", digest_value(digest));
    let cases: [(TicketRequest, &str, &[u8], u16, &str); 8] = [
        (
            TicketRequest::upload(2),
            "",
            b"abc",
            413,
            "content-too-large",
        ),
        (upload().size(Some(4)), "", b"abc", 422, "wrong-size"),
        (
            upload().sha256(Some(digest)),
            "",
            b"abd",
            422,
            "wrong-digest",
        ),
        (upload(), &wrong_digest_field, b"abd", 422, "wrong-digest"),
        (
            upload().media_type(Some("image/*".to_owned())),
            "",
            b"abc",
            415,
            "wrong-type",
        ),
        (
            upload().media_type(Some("text/plain".to_owned())),
            "",
            png,
            415,
            "wrong-type",
        ),
        (
            upload().media_type(Some("text/plain".to_owned())),
            "\r\ncontent-type: image/png",
            b"abc",
            415,
            "wrong-type",
        ),
        (
            upload(),
            "\r\nrepr-digest: sha-256=abc",
            b"abc",
            400,
            "invalid-request",
        ),
    ];
    for (request, fields, body, status, problem) in cases {
        let url = fixture.issue(request).await;
        let response = fixture.send(&format!("PUT {url}{fields}"), body).await;
        assert_eq!(response.status, status, "{problem}: {response:?}");
        assert_eq!(response.problem(), problem);
        assert!(!fixture.is_stored(body).await, "{problem}");
        assert_eq!(fixture.count_files("segments"), 0, "{problem}");
    }
}

#[tokio::test]
async fn a_part_of_a_file_is_not_stored_as_the_whole() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    for method in ["PUT", "POST"] {
        for range in ["bytes 3-5/6", "bytes 3-8/9", "bytes 0-2/6", "bytes 0-2/*"] {
            let head = format!("{method} {url}\r\ncontent-range: {range}");
            let refused = fixture.send(&head, b"abc").await;
            assert_eq!(
                (refused.status, refused.problem().as_str()),
                (400, "partial-body"),
                "{range}"
            );
        }
    }
    let other_length_head = format!("PUT {url}\r\ncontent-range: bytes 0-5/6");
    let refused = fixture.send(&other_length_head, b"abc").await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (400, "inconsistent-upload-length")
    );
    assert!(!fixture.is_stored(b"abc").await);
    // The ticket can still be used, with a range that names the whole too.
    let head = format!("PUT {url}\r\ncontent-range: bytes 0-2/3");
    assert_eq!(fixture.send(&head, b"abc").await.status, 201);
}

#[tokio::test]
async fn a_post_without_a_body_does_not_make_an_empty_file() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    for length in ["", "\r\ncontent-length: 0"] {
        let refused = fixture.send_empty(&format!("POST {url}{length}")).await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (400, "invalid-request")
        );
    }
    assert!(!fixture.is_stored(b"").await);
    assert_eq!(fixture.send(&format!("PUT {url}"), b"").await.status, 201);
}

#[tokio::test]
async fn a_put_without_a_length_does_not_make_an_empty_file() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    // Programs of HTTP/1.0 end a body by the end of the connection, which HTTP/1.1 does not read.
    let refused = fixture.send_empty(&format!("PUT {url}")).await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (411, "length-required")
    );
    assert!(!fixture.is_stored(b"").await);
    assert_eq!(fixture.send(&format!("PUT {url}"), b"").await.status, 201);
}

#[tokio::test]
async fn a_coded_body_is_not_stored_as_the_file() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let coded = [
        ("PUT", "content-encoding: gzip", 415, "coded-body"),
        ("POST", "content-encoding: br", 415, "coded-body"),
        (
            "PUT",
            "transfer-encoding: gzip, chunked",
            400,
            "invalid-request",
        ),
    ];
    for (method, field, status, problem) in coded {
        let head = format!("{method} {url}\r\n{field}");
        let refused = if field.starts_with("transfer") {
            let chunks = b"3\r\nabc\r\n0\r\n\r\n";
            super::send_raw(fixture.address, &head, chunks).await
        } else {
            fixture.send(&head, b"abc").await
        };
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (status, problem),
            "{field}"
        );
    }
    assert!(!fixture.is_stored(b"abc").await);
    let head = format!("PUT {url}\r\ncontent-encoding: identity");
    assert_eq!(fixture.send(&head, b"abc").await.status, 201);
}

#[tokio::test]
async fn announced_digests_that_agree_are_accepted() {
    let fixture = TestEndpoint::new().await;
    let digest = Sha256Digest::of(b"abc");
    let value = digest_value(digest);
    let url = fixture
        .issue(TicketRequest::upload(100).sha256(Some(digest)))
        .await;
    let head = format!("PUT {url}\r\ncontent-digest: {value}\r\nrepr-digest: {value}");
    assert_eq!(fixture.send(&head, b"abc").await.status, 201);
}

#[tokio::test]
async fn a_second_sender_is_refused_while_the_first_one_sends() {
    let fixture = TestEndpoint::new().await;
    let (replica, _stop) = fixture.replica(crate::TicketLimits::default()).await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let head = with_version(&format!("PUT {url}\r\ncontent-length: 3"));
    let mut first = connect(fixture.address).await;
    first.write_all(head.as_bytes()).await.unwrap();
    first.write_all(b"a").await.unwrap();
    // The first request has the ticket as soon as the state shows it.
    let secret = url.rsplit('/').next().unwrap();
    super::wait_until(|| async {
        let ticket = fixture.service.find(secret).await.unwrap();
        ticket.record.lease.is_some()
    })
    .await;
    for address in [fixture.address, replica] {
        let second = super::send(address, &format!("PUT {url}"), b"xyz").await;
        assert_eq!(
            (second.status, second.problem().as_str()),
            (409, "ticket-in-use")
        );
    }
    first.write_all(b"bc").await.unwrap();
    assert_eq!(read_response(&mut first).await.status, 201);
    assert!(fixture.is_stored(b"abc").await);
    assert!(!fixture.is_stored(b"xyz").await);
}

#[tokio::test]
async fn bytes_of_concurrent_senders_are_never_mixed() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let head = format!("PUT {url}");
    let (first, second) = tokio::join!(fixture.send(&head, b"aaa"), fixture.send(&head, b"bbb"));
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201);
    assert!([409, 410].contains(&statuses[1]), "{statuses:?}");
    assert_ne!(
        fixture.is_stored(b"aaa").await,
        fixture.is_stored(b"bbb").await
    );
}
