//! The page for people: its form, its results and its problems, in a browser without script.

use super::{TestEndpoint, TestResponse};
use crate::TicketRequest;

/// A form with one file, as browsers send it.
fn form(name: &str, media_type: &str, content: &[u8]) -> Vec<u8> {
    let mut body = format!(
        "--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: {media_type}\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(content);
    body.extend_from_slice(b"\r\n--limit--\r\n");
    body
}

async fn send_form(fixture: &TestEndpoint, url: &str, body: &[u8]) -> TestResponse {
    let head = format!(
        "POST {url}\r\naccept: text/html\r\ncontent-type: multipart/form-data; boundary=limit"
    );
    fixture.send(&head, body).await
}

fn text(response: &TestResponse) -> String {
    assert_eq!(
        response.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    String::from_utf8(response.body.to_vec()).unwrap()
}

#[tokio::test]
async fn the_page_has_a_form_and_loads_nothing() {
    let fixture = TestEndpoint::new().await;
    let request = TicketRequest::upload(4_000).media_type(Some("image/*".to_owned()));
    let url = fixture.issue(request).await;
    let page = fixture
        .send_empty(&format!("GET {url}\r\naccept: text/html,*/*"))
        .await;
    assert_eq!(page.status, 200);
    let policy = page.field("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    for part in [
        "form-action 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!(page.field("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.field("cache-control"), Some("no-store"));
    let page_text = text(&page);
    assert!(
        page_text.contains("enctype=\"multipart/form-data\""),
        "{page_text}"
    );
    assert!(
        page_text.contains("accept=\"image/*\"") && page_text.contains("4000 bytes"),
        "{page_text}"
    );
    // The page has no external addresses.
    assert!(
        !page_text.contains("http:")
            && !page_text.contains("https:")
            && !page_text.contains("src=")
    );
    // A program gets the state as JSON instead.
    let state = fixture.send_empty(&format!("GET {url}")).await.json();
    assert_eq!(
        (&state["state"], &state["max_bytes"]),
        (&"open".into(), &4_000.into())
    );
}

#[tokio::test]
async fn a_form_stores_the_file_under_its_name() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(4_000)).await;
    let content = b"some <text>\r\n--limi";
    let body = form("a<b>.txt", "text/plain", content);
    let response = send_form(&fixture, &url, &body).await;
    assert_eq!(response.status, 201, "{response:?}");
    let page_text = text(&response);
    assert!(page_text.contains("The file was received"), "{page_text}");
    assert!(!page_text.contains("<b>"), "{page_text}");
    assert!(fixture.is_stored(content).await);
    let repeated = send_form(&fixture, &url, &body).await;
    assert_eq!(repeated.status, 410);
    assert!(text(&repeated).contains("the ticket was used"));
}

#[tokio::test]
async fn a_refused_form_stores_nothing_and_states_the_reason() {
    let fixture = TestEndpoint::new().await;
    for (body, status, words) in [
        (
            form("a.txt", "text/plain", b"text"),
            415,
            "the ticket is for `image/*`",
        ),
        // The header states a wrong type.
        (
            form("a.png", "image/png", b"text"),
            415,
            "the ticket is for `image/*`",
        ),
        (
            form("a.png", "image/png", &[b'x'; 200]),
            413,
            "larger than 100 bytes",
        ),
        (
            form("", "application/octet-stream", b""),
            400,
            "no file was chosen",
        ),
        (b"--limit--\r\n".to_vec(), 400, "the form has no file"),
        (b"no form".to_vec(), 400, "the form is not valid"),
    ] {
        let request = TicketRequest::upload(100).media_type(Some("image/*".to_owned()));
        let url = fixture.issue(request).await;
        let response = send_form(&fixture, &url, &body).await;
        assert_eq!(response.status, status, "{response:?}");
        assert!(text(&response).contains(words), "{words}: {response:?}");
    }
    assert!(!fixture.is_stored(b"text").await);
    assert_eq!(fixture.count_files("segments"), 0);
}

#[tokio::test]
async fn a_form_that_ends_early_is_not_an_upload() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(4_000)).await;
    let body = form("a.txt", "text/plain", b"some text");
    let truncated = &body[..body.len() - 20];
    let response = send_form(&fixture, &url, truncated).await;
    assert_eq!(response.status, 400, "{response:?}");
    assert!(!fixture.is_stored(b"some text").await);
    // The ticket still works, from the beginning.
    assert_eq!(send_form(&fixture, &url, &body).await.status, 201);
    assert!(fixture.is_stored(b"some text").await);
}

#[tokio::test]
async fn a_form_with_two_files_is_refused_and_stores_neither() {
    let fixture = TestEndpoint::new().await;
    let url = fixture.issue(TicketRequest::upload(4_000)).await;
    let (first, second) = (
        form("a.txt", "text/plain", b"one"),
        form("b.txt", "text/plain", b"two"),
    );
    let end = first.len() - "--\r\n".len();
    let body = [&first[..end], b"\r\n", &second["--limit\r\n".len()..]].concat();
    let refused = send_form(&fixture, &url, &body).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(text(&refused).contains("more than one file"), "{refused:?}");
    for content in [b"one", b"two"] {
        assert!(!fixture.is_stored(content).await);
    }
    assert_eq!(fixture.count_files("segments"), 0);
    // The ticket still works.
    assert_eq!(send_form(&fixture, &url, &first).await.status, 201);
    assert!(fixture.is_stored(b"one").await);
}
