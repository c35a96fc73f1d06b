//! Tests of the client with a scripted server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dray_testkit::http::{FakeHttpServer, ResponseScript, ResponseStep, ScriptedResponder};
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

mod guard;

fn client() -> HttpClient {
    HttpClient::new(HttpTimeouts::default(), None).unwrap()
}

/// A client for requests that must end with a timeout.
fn client_with_short_timeouts() -> HttpClient {
    let limits = HttpTimeouts {
        // Long enough that what precedes a stall arrives in time on a busy machine.
        idle: Duration::from_secs(3),
        response: Duration::from_secs(3),
        ..HttpTimeouts::default()
    };
    HttpClient::new(limits, None).unwrap()
}

async fn server(script: ResponseScript) -> (FakeHttpServer, String) {
    let server = FakeHttpServer::start(ScriptedResponder::always(script))
        .await
        .unwrap();
    let url = format!("http://{}/bot-token-/x", server.address());
    (server, url)
}

fn quiet(_: u64) {}

fn body(chunk_count: usize, size: usize) -> (u64, ByteStream) {
    let chunk = Bytes::from(vec![7; size]);
    let all = (chunk_count * size) as u64;
    (all, stream::iter(vec![chunk; chunk_count]).map(Ok).boxed())
}

/// Number of bytes of a complete request, by its `Content-Length`; `None` before its head is complete.
fn request_length(received: &[u8]) -> Option<usize> {
    let head = received
        .windows(4)
        .position(|window| window == b"\r\n\r\n")?;
    let text = String::from_utf8_lossy(&received[..head]);
    let body = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    Some(head + 4 + body)
}

/// Reads one complete request, responds with `response`, and returns the received bytes.
async fn counting(response: &'static [u8]) -> (String, JoinSet<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut served = JoinSet::new();
    served.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        let mut chunk = vec![0; 65_536];
        loop {
            if request_length(&all).is_some_and(|length| all.len() >= length) {
                break;
            }
            let count = stream.read(&mut chunk).await.unwrap();
            assert_ne!(count, 0, "the request ended early");
            all.extend_from_slice(&chunk[..count]);
        }
        stream.write_all(response).await.unwrap();
        all
    });
    (url, served)
}

#[tokio::test]
async fn a_streamed_body_has_its_exact_length_and_reports_progress() {
    let (url, mut served) = counting(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    let (size, body) = body(30, 10_000);
    let reported = AtomicU64::new(0);
    let response = client()
        .put(&url)
        .stream("text/plain", size, body)
        .send(&|more| {
            reported.fetch_add(more, Ordering::Relaxed);
        })
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let _: serde_json::Value = response.json().await.unwrap();
    let head =
        String::from_utf8_lossy(&served.join_next().await.unwrap().unwrap()[..400]).to_lowercase();
    assert!(head.contains("content-length: 300000"), "{head}");
    assert!(!head.contains("chunked"), "{head}");
    assert_eq!(reported.load(Ordering::Relaxed), 300_000);
}

/// Sends a form with a content type that the caller set too, before or after it. Returns the sent content types.
async fn content_types_of_form(
    build: impl FnOnce(RequestBuilder, MultipartForm) -> RequestBuilder,
) -> Vec<String> {
    let (url, mut served) = counting(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let form = MultipartForm::new().text("a", "b");
    build(client().post(&url), form).send(&quiet).await.unwrap();
    let request = served.join_next().await.unwrap().unwrap();
    String::from_utf8_lossy(&request)
        .split("\r\n\r\n")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("content-type: "))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_form_has_one_content_type_and_it_names_the_boundary() {
    let before = content_types_of_form(|request, form| {
        request.header("Content-Type", "text/plain").multipart(form)
    });
    let after = content_types_of_form(|request, form| {
        request.multipart(form).header("Content-Type", "text/plain")
    });
    for types in [before.await, after.await] {
        let [media_type] = types.as_slice() else {
            panic!("{types:?}");
        };
        assert!(
            media_type.starts_with("multipart/form-data; boundary=dray-"),
            "{media_type}"
        );
    }
}

#[tokio::test]
async fn a_content_type_of_the_caller_replaces_that_of_the_body() {
    for first in [true, false] {
        let (url, mut served) = counting(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let own = |request: RequestBuilder| request.header("content-type", "a/b");
        let request = client().post(&url);
        let request = if first {
            own(request).json(&1)
        } else {
            own(request.json(&1))
        };
        request.send(&quiet).await.unwrap();
        let request = served.join_next().await.unwrap().unwrap();
        let request = String::from_utf8_lossy(&request);
        assert!(request.contains("content-type: a/b\r\n"), "{request}");
        assert!(!request.contains("application/json"), "{request}");
    }
}

#[tokio::test]
async fn a_query_is_sent_even_when_the_url_has_a_fragment() {
    for (end, sent) in [("#top?x", "?q=1&r=2"), ("?p=0#top", "?p=0&q=1&r=2")] {
        let (url, mut served) = counting(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let request = client().get(&format!("{url}{end}"));
        let request = request.query(&[("q", "1")]).query(&[("r", "2")]);
        request.send(&quiet).await.unwrap();
        let request = served.join_next().await.unwrap().unwrap();
        let line = format!("GET /{sent} HTTP/1.1\r\n");
        assert!(request.starts_with(line.as_bytes()), "{end}");
    }
}

#[tokio::test]
async fn no_connection_means_not_sent() {
    let address = dray_testkit::port::unassigned_address();
    let url = format!("http://{address}/secret-token");
    let error = client().post(&url).json(&1).send(&quiet).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::Connect(_)));
    assert_eq!(error.sent, RequestProgress::Incomplete);
    let printed = format!("{error} {error:?}");
    assert!(!printed.contains("secret-token"), "{printed}");
}

#[tokio::test]
async fn a_lost_response_differs_from_a_lost_body() {
    let (_server, url) = server(ResponseScript(vec![ResponseStep::Drop])).await;
    let error = client().post(&url).json(&1).send(&quiet).await.unwrap_err();
    assert_eq!(error.sent, RequestProgress::Complete, "{error:?}");

    let pending: ByteStream = stream::iter([Ok(Bytes::from_static(b"abc"))])
        .chain(stream::pending())
        .boxed();
    let (_server, url) = server(ResponseScript(vec![ResponseStep::Drop])).await;
    let error = client()
        .post(&url)
        .stream("text/plain", 10, pending)
        .send(&quiet)
        .await
        .unwrap_err();
    assert_eq!(error.sent, RequestProgress::Incomplete, "{error:?}");
}

#[tokio::test]
async fn a_request_to_a_stalled_peer_fails() {
    let client = client_with_short_timeouts();
    let (_server, url) = server(ResponseScript(vec![ResponseStep::Hold])).await;
    let error = client.post(&url).json(&1).send(&quiet).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::Idle(_)), "{error:?}");
    assert_eq!(error.sent, RequestProgress::Complete);
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc";
    let (_server, url) = server(ResponseScript::raw(head).then(ResponseStep::Hold)).await;
    let response = client.get(&url).send(&quiet).await.unwrap();
    let error = response.bytes(100).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::Idle(_)), "{error:?}");
}

#[tokio::test]
async fn a_failure_of_the_source_of_a_body_is_reported_as_such() {
    let failing: ByteStream =
        stream::iter([Ok(Bytes::from_static(b"abc")), Err("disk".into())]).boxed();
    let (_server, url) = server(ResponseScript(vec![ResponseStep::Hold])).await;
    let error = client()
        .post(&url)
        .stream("text/plain", 10, failing)
        .send(&quiet)
        .await
        .unwrap_err();
    assert!(matches!(error.failure, FailureKind::Body(_)), "{error:?}");
    assert_eq!(error.sent, RequestProgress::Incomplete);
}

#[tokio::test]
async fn redirects_are_returned_and_not_followed() {
    let (server, url) = server(ResponseScript::redirect(302, "http://127.0.0.1:1/")).await;
    let response = client().get(&url).send(&quiet).await.unwrap();
    assert_eq!(
        (response.status(), server.received_requests().len()),
        (302, 1)
    );
}

#[tokio::test]
async fn responses_have_a_size_limit_and_their_retry_delay_is_read() {
    let (_server, url) = server(ResponseScript::with_fields(
        &[("Retry-After", "1.5")],
        "x".repeat(50),
    ))
    .await;
    let response = client().get(&url).send(&quiet).await.unwrap();
    assert_eq!(response.retry_after(), Some(Duration::from_millis(1500)));
    let error = response.bytes(49).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::TooLong(49)));
    let (_server, url) = server(ResponseScript::ok("not json")).await;
    let response = client().get(&url).send(&quiet).await.unwrap();
    let error = response.json::<serde_json::Value>().await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::Malformed(_)));
}

#[tokio::test]
async fn malformed_requests_are_not_sent() {
    for request in [
        client().get("not a url"),
        client().get("http://127.0.0.1:1/").header("bad name", "x"),
        client().get("http://127.0.0.1:1/").header("x", "a\r\nb: c"),
    ] {
        let error = request.send(&quiet).await.unwrap_err();
        assert!(
            matches!(error.failure, FailureKind::Request(_)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn queries_and_forms_are_escaped() {
    let (url, mut served) = counting(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    client()
        .post(&url)
        .query(&[("a b", "c&d")])
        .form(&[("name", "a+b=c&d é")])
        .send(&quiet)
        .await
        .unwrap();
    let received = String::from_utf8(served.join_next().await.unwrap().unwrap()).unwrap();
    assert!(received.starts_with("POST /?a%20b=c%26d "), "{received}");
    assert!(
        received.ends_with("name=a%2Bb%3Dc%26d%20%C3%A9"),
        "{received}"
    );
}

mod fake_server {
    use std::sync::Arc;

    use dray_types::Sha256Digest;

    use super::*;
    use crate::fake_server::{
        ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, cut_reply, json_reply,
        with_header,
    };

    async fn answer(
        shared: Arc<SharedState<Vec<String>>>,
        request: ReceivedRequest,
    ) -> Result<Reply, ConnectionClosed> {
        shared.lock().push(format!(
            "{} {} {}",
            request.method,
            request.path,
            request.parameter("q").unwrap_or_default()
        ));
        match request.path.as_str() {
            "/form" => {
                let form = request.form().await?;
                let file = form.files.first().ok_or(ConnectionClosed)?;
                Ok(json_reply(
                    200,
                    &serde_json::json!({
                        "text": form.field("text"),
                        "name": file.name,
                        "type": file.media_type,
                        "size": file.content.size,
                        "sha256": file.content.sha256.to_hex(),
                    }),
                ))
            }
            "/cut" => Ok(cut_reply("text/plain", &Bytes::from_static(b"abcdef"), 3)),
            "/close" => Err(ConnectionClosed),
            _ => Ok(with_header(
                json_reply(404, &serde_json::json!({})),
                "retry-after",
                "2",
            )),
        }
    }

    async fn start() -> FakeServer<Vec<String>> {
        FakeServer::start(Vec::new(), |shared, request| {
            Box::pin(answer(shared, request)) as _
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn a_form_arrives_as_it_was_sent() {
        let server = start().await;
        let (size, stream) = body(100, 10_000);
        let form = MultipartForm::new().text("text", "a\r\n--b").file(
            "file",
            "naïve \"x\".bin",
            "a/b",
            size,
            stream,
        );
        let url = format!("{}/form", server.shared().url());
        let response = client()
            .post(&url)
            .query(&[("q", "ü")])
            .multipart(form)
            .send(&quiet)
            .await
            .unwrap();
        let summary: serde_json::Value = response.json().await.unwrap();
        let digest = Sha256Digest::of(&vec![7; 1_000_000]).to_hex();
        assert_eq!(
            summary,
            serde_json::json!({
                "text": "a\r\n--b", "name": "naïve \"x\".bin", "type": "a/b", "size": 1_000_000, "sha256": digest
            })
        );
        assert_eq!(*server.shared().lock(), ["POST /form ü"]);
        assert!(server.shared().received() > 1_000_000);
    }

    #[tokio::test]
    async fn the_fake_server_breaks_responses_as_scripted() {
        let server = start().await;
        let url = |path: &str| format!("{}{path}", server.shared().url());
        let response = client().get(&url("/cut")).send(&quiet).await.unwrap();
        assert_eq!(response.length(), Some(6));
        assert!(response.bytes(10).await.is_err());
        assert!(client().get(&url("/close")).send(&quiet).await.is_err());
        let response = client().get(&url("/else")).send(&quiet).await.unwrap();
        assert_eq!(response.retry_after(), Some(Duration::from_secs(2)));
    }
}
