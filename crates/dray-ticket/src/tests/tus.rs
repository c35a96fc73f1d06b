//! Uploads with tus 1.0.

use super::TestEndpoint;
use crate::TicketRequest;

const TUS_HEADER: &str = "tus-resumable: 1.0.0";
const APPEND_MEDIA_TYPE: &str = "content-type: application/offset+octet-stream";

#[tokio::test]
async fn a_ticket_of_known_size_is_an_upload_without_creation() {
    let fixture = TestEndpoint::new().await;
    let url = fixture
        .issue(TicketRequest::upload(100).size(Some(4)))
        .await;
    let head = fixture
        .send_empty(&format!("HEAD {url}\r\n{TUS_HEADER}"))
        .await;
    assert_eq!(head.status, 200);
    assert_eq!(head.field("upload-length"), Some("4"));
    assert_eq!(head.field("upload-offset"), Some("0"));
    assert_eq!(head.field("tus-resumable"), Some("1.0.0"));

    let part = format!("PATCH {url}\r\n{TUS_HEADER}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset:");
    let first = fixture.send(&format!("{part} 0"), b"ab").await;
    assert_eq!(
        (first.status, first.field("upload-offset")),
        (204, Some("2"))
    );
    let repeated = fixture.send(&format!("{part} 0"), b"ab").await;
    assert_eq!(repeated.status, 409);
    let last = fixture.send(&format!("{part} 2"), b"cd").await;
    assert_eq!((last.status, last.field("upload-offset")), (204, Some("4")));
    assert!(fixture.is_stored(b"abcd").await);
    let after = fixture
        .send_empty(&format!("HEAD {url}\r\n{TUS_HEADER}"))
        .await;
    assert_eq!(
        (after.status, after.field("upload-offset")),
        (200, Some("4"))
    );
}

#[tokio::test]
async fn bytes_with_another_checksum_are_dropped_and_can_be_sent_again() {
    let fixture = TestEndpoint::new().await;
    let url = fixture
        .issue(TicketRequest::upload(100).size(Some(5)))
        .await;
    let options = fixture.send_empty(&format!("OPTIONS {url}")).await;
    assert!(
        options
            .field("tus-extension")
            .unwrap()
            .ends_with(",checksum")
    );
    assert_eq!(options.field("tus-checksum-algorithm"), Some("sha1,sha256"));
    let part = format!("PATCH {url}\r\n{TUS_HEADER}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset:");
    assert_eq!(fixture.send(&format!("{part} 0"), b"de").await.status, 204);
    let next = format!("{part} 2\r\nupload-checksum:");
    // The digests of `abc` in FIPS 180-4.
    let sha1 = format!("{next} sha1 qZk+NkcGgWq6PiVxeFDCbJzQ2J0=");
    let damaged = fixture.send(&sha1, b"abX").await;
    assert_eq!(
        (damaged.status, damaged.problem().as_str()),
        (460, "wrong-checksum")
    );
    let unknown = fixture
        .send(&format!("{next} md5 kAFQmDzST7DWlj99KOF/cg=="), b"abc")
        .await;
    assert_eq!(unknown.status, 400);
    let head = format!("HEAD {url}\r\n{TUS_HEADER}");
    let offset = fixture.send_empty(&head).await;
    assert_eq!(offset.field("upload-offset"), Some("2"));
    let sha256 = format!("{next} sha256 ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    let refused = fixture.send(&sha256, b"abX").await;
    assert_eq!(refused.status, 460);
    let stored = fixture.send(&sha1, b"abc").await;
    assert_eq!(
        (stored.status, stored.field("upload-offset")),
        (204, Some("5"))
    );
    assert!(fixture.is_stored(b"deabc").await);
}

#[tokio::test]
async fn creation_without_one_clear_length_is_refused() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    for fields in [
        "upload-length: 3\r\nupload-defer-length: 1",
        "upload-defer-length: 0",
        "x-other: 1",
    ] {
        let create = format!("POST {url}\r\n{TUS_HEADER}\r\n{fields}");
        let refused = fixture.send(&create, b"").await;
        assert_eq!(refused.status, 400, "{fields}: {refused:?}");
    }
}

#[tokio::test]
async fn a_part_of_a_parallel_upload_is_not_taken_for_the_file() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let part = format!("PATCH {url}\r\n{TUS_HEADER}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 0");
    for concat in [
        "upload-concat: partial\r\nupload-length: 3".to_owned(),
        format!("upload-concat: final;{url} {url}"),
    ] {
        let create = format!("POST {url}\r\n{TUS_HEADER}\r\n{concat}");
        let refused = fixture.send(&create, b"").await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (400, "invalid-request"),
            "{concat}"
        );
        let detail = refused.json()["detail"].to_string();
        assert!(detail.contains("Upload-Concat"), "{detail}");
        fixture.send(&part, b"abc").await;
        assert!(!fixture.is_stored(b"abc").await, "{concat}");
    }
    // The ticket still takes the whole file.
    let whole = fixture.send(&format!("PUT {url}"), b"abcdef").await;
    assert_eq!(whole.status, 201, "{whole:?}");
}

#[tokio::test]
async fn creation_announces_the_length_and_returns_the_same_url() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let unknown = fixture
        .send_empty(&format!("HEAD {url}\r\n{TUS_HEADER}"))
        .await;
    assert_eq!(unknown.field("upload-defer-length"), Some("1"));
    let created = fixture
        .send(
            &format!("POST {url}\r\n{TUS_HEADER}\r\nupload-length: 3"),
            b"",
        )
        .await;
    assert_eq!(created.status, 201, "{created:?}");
    assert!(created.field("location").unwrap().ends_with(&url));
    // An hour after the start of the clock of tests, 1,800,000,000 s.
    let expiry = Some("Fri, 15 Jan 2027 09:00:00 GMT");
    assert_eq!(created.field("upload-expires"), expiry);
    let part = format!("PATCH {url}\r\n{TUS_HEADER}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset:");
    let first = fixture.send(&format!("{part} 0"), b"ab").await;
    assert_eq!((first.status, first.field("upload-expires")), (204, expiry));
    let head = format!("HEAD {url}\r\n{TUS_HEADER}");
    let state = fixture.send_empty(&head).await;
    assert_eq!(state.field("upload-expires"), expiry);
    let last = fixture.send(&format!("{part} 2"), b"c").await;
    assert_eq!((last.status, last.field("upload-expires")), (204, None));
    assert!(fixture.is_stored(b"abc").await);
}

#[tokio::test]
async fn a_part_without_any_length_is_refused_unless_the_creation_defers_it() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let part = format!("PATCH {url}\r\n{TUS_HEADER}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset:");
    let refused = fixture.send(&format!("{part} 0"), b"ab").await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (400, "invalid-request")
    );
    let create = format!("POST {url}\r\n{TUS_HEADER}\r\nupload-defer-length: 1");
    assert_eq!(fixture.send(&create, b"").await.status, 201);
    assert_eq!(fixture.send(&format!("{part} 0"), b"ab").await.status, 204);
    let last = format!("{part} 2\r\nupload-length: 4");
    assert_eq!(fixture.send(&last, b"cd").await.status, 204);
    assert!(fixture.is_stored(b"abcd").await);
}

#[tokio::test]
async fn a_creation_replaces_the_name_of_an_earlier_sender_and_not_that_of_the_ticket() {
    let fixture = TestEndpoint::new().await;
    for (name, expected) in [("", "b.txt"), ("given.txt", "given.txt")] {
        let url = fixture.issue(TicketRequest::upload(100).name(name)).await;
        // `a.txt` and `b.txt` in base64.
        for encoded in ["YS50eHQ=", "Yi50eHQ="] {
            let create = format!(
                "POST {url}\r\n{TUS_HEADER}\r\nupload-length: 2\r\nupload-metadata: filename {encoded}"
            );
            assert_eq!(fixture.send(&create, b"").await.status, 201);
        }
        let part =
            format!("PATCH {url}\r\n{TUS_HEADER}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 0");
        assert_eq!(fixture.send(&part, b"ab").await.status, 204);
        let state = fixture
            .send_empty(&format!("GET {url}\r\naccept: application/json"))
            .await;
        assert_eq!(state.json()["content"]["name"], expected);
    }
}

#[tokio::test]
async fn a_creation_above_the_limit_is_refused() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(2)).await;
    let created = fixture
        .send(
            &format!("POST {url}\r\n{TUS_HEADER}\r\nupload-length: 3"),
            b"",
        )
        .await;
    assert_eq!(created.status, 413);
}

#[tokio::test]
async fn termination_ends_the_ticket_and_removes_the_received_bytes() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let create = format!("POST {url}\r\n{TUS_HEADER}\r\nupload-length: 4");
    fixture.send(&create, b"").await;
    let part = format!("PATCH {url}\r\n{TUS_HEADER}\r\n{APPEND_MEDIA_TYPE}\r\nupload-offset: 0");
    fixture.send(&part, b"ab").await;
    assert_eq!(fixture.count_files("segments"), 1);
    let ended = fixture
        .send_empty(&format!("DELETE {url}\r\n{TUS_HEADER}"))
        .await;
    assert_eq!(ended.status, 204);
    assert_eq!(fixture.count_files("segments"), 0);
    let after = fixture
        .send_empty(&format!("HEAD {url}\r\n{TUS_HEADER}"))
        .await;
    assert_eq!(after.status, 410);
}

#[tokio::test]
async fn options_name_version_extensions_and_limit() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    let options = fixture.send_empty(&format!("OPTIONS {url}")).await;
    assert_eq!(options.status, 204);
    assert_eq!(options.field("tus-version"), Some("1.0.0"));
    assert_eq!(options.field("tus-max-size"), Some("100"));
    assert!(
        options
            .field("tus-extension")
            .unwrap()
            .contains("termination")
    );
    assert!(
        options
            .field("upload-limit")
            .unwrap()
            .contains("max-size=100")
    );
}

#[tokio::test]
async fn another_version_of_tus_is_refused_with_the_one_that_is_spoken() {
    let fixture = TestEndpoint::new().await;
    let url = fixture
        .issue(TicketRequest::upload(100).size(Some(2)))
        .await;
    for method in ["HEAD", "POST", "PATCH", "DELETE"] {
        let head = format!("{method} {url}\r\ntus-resumable: 0.2\r\nupload-offset: 0");
        let refused = fixture.send(&head, b"").await;
        assert_eq!(
            (refused.status, refused.field("tus-version")),
            (412, Some("1.0.0")),
            "{method}"
        );
    }
    let options = fixture
        .send_empty(&format!("OPTIONS {url}\r\ntus-resumable: 0.2"))
        .await;
    assert_eq!(options.status, 204);
}

#[tokio::test]
async fn a_part_of_another_type_is_refused_with_the_type_of_parts() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(100)).await;
    for (fields, expected) in [
        (TUS_HEADER, "application/offset+octet-stream"),
        ("upload-complete: ?1", "application/partial-upload"),
    ] {
        for content_type in ["", "\r\ncontent-type: text/plain"] {
            let head = format!("PATCH {url}\r\n{fields}\r\nupload-offset: 0{content_type}");
            let refused = fixture.send(&head, b"abc").await;
            assert_eq!(
                (refused.status, refused.problem().as_str()),
                (415, "wrong-part-type")
            );
            assert_eq!(refused.field("accept-patch"), Some(expected));
            let detail = refused.json()["detail"].to_string();
            assert!(detail.contains(expected), "{detail}");
        }
    }
}
