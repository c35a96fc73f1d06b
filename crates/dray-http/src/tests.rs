//! Against a server that does what it is told.

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
    let limits = HttpTimeouts {
        connect: Duration::from_secs(5),
        idle: Duration::from_millis(400),
        answer: Duration::from_millis(600),
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

fn body(pieces: usize, size: usize) -> (u64, ByteStream) {
    let piece = Bytes::from(vec![7; size]);
    let all = (pieces * size) as u64;
    (all, stream::iter(vec![piece; pieces]).map(Ok).boxed())
}

/// Reads whole requests of a known length and answers each with `answer`; then counts what came.
async fn counting(answer: &'static [u8], wanted: usize) -> (String, JoinSet<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut served = JoinSet::new();
    served.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        let mut chunk = vec![0; 65_536];
        loop {
            let head = all.windows(4).position(|window| window == b"\r\n\r\n");
            if head.is_some_and(|head| all.len() >= head + 4 + wanted) {
                break;
            }
            let count = stream.read(&mut chunk).await.unwrap();
            assert_ne!(count, 0, "the request ended early");
            all.extend_from_slice(&chunk[..count]);
        }
        stream.write_all(answer).await.unwrap();
        all
    });
    (url, served)
}

#[tokio::test]
async fn a_streamed_body_has_its_exact_length_and_tells_its_progress() {
    let (url, mut served) =
        counting(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 300_000).await;
    let (size, body) = body(30, 10_000);
    let seen = AtomicU64::new(0);
    let answer = client()
        .put(&url)
        .stream("text/plain", size, body)
        .send(&|more| {
            seen.fetch_add(more, Ordering::Relaxed);
        })
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let _: serde_json::Value = answer.json().await.unwrap();
    let head =
        String::from_utf8_lossy(&served.join_next().await.unwrap().unwrap()[..400]).to_lowercase();
    assert!(head.contains("content-length: 300000"), "{head}");
    assert!(!head.contains("chunked"), "{head}");
    assert_eq!(seen.load(Ordering::Relaxed), 300_000);
}

#[tokio::test]
async fn no_connection_means_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret-token", listener.local_addr().unwrap());
    drop(listener);
    let error = client().post(&url).json(&1).send(&quiet).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::Connect(_)));
    assert_eq!(error.sent, RequestProgress::Incomplete);
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("secret-token"), "{shown}");
}

#[tokio::test]
async fn a_lost_answer_is_told_from_a_lost_body() {
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
async fn a_stalled_peer_is_given_up() {
    let (_server, url) = server(ResponseScript(vec![ResponseStep::Hold])).await;
    let error = client().post(&url).json(&1).send(&quiet).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::Idle(_)), "{error:?}");
    assert_eq!(error.sent, RequestProgress::Complete);
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc";
    let (_server, url) = server(ResponseScript::raw(head).then(ResponseStep::Hold)).await;
    let answer = client().get(&url).send(&quiet).await.unwrap();
    let error = answer.bytes(100).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::Idle(_)), "{error:?}");
}

#[tokio::test]
async fn the_source_of_a_body_is_blamed_for_its_failure() {
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
async fn redirects_are_answers() {
    let (server, url) = server(ResponseScript::redirect(302, "http://127.0.0.1:1/")).await;
    let answer = client().get(&url).send(&quiet).await.unwrap();
    assert_eq!((answer.status(), server.seen().len()), (302, 1));
}

#[tokio::test]
async fn answers_are_bounded_and_their_waits_are_read() {
    let (_server, url) = server(ResponseScript::with_fields(
        &[("Retry-After", "1.5")],
        "x".repeat(50),
    ))
    .await;
    let answer = client().get(&url).send(&quiet).await.unwrap();
    assert_eq!(answer.retry_after(), Some(Duration::from_millis(1500)));
    let error = answer.bytes(49).await.unwrap_err();
    assert!(matches!(error.failure, FailureKind::TooLong(49)));
    let (_server, url) = server(ResponseScript::ok("not json")).await;
    let answer = client().get(&url).send(&quiet).await.unwrap();
    let error = answer.json::<serde_json::Value>().await.unwrap_err();
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
    let (url, mut served) = counting(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 21).await;
    client()
        .post(&url)
        .query(&[("a b", "c&d")])
        .form(&[("name", "a+b=c&d é")])
        .send(&quiet)
        .await
        .unwrap();
    let seen = String::from_utf8(served.join_next().await.unwrap().unwrap()).unwrap();
    assert!(seen.starts_with("POST /?a%20b=c%26d "), "{seen}");
    assert!(seen.ends_with("name=a%2Bb%3Dc%26d%20%C3%A9"), "{seen}");
}

mod doubles {
    use std::sync::Arc;

    use dray_types::Sha256Digest;

    use super::*;
    use crate::double::{
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
    async fn a_form_of_ours_arrives_as_it_was_sent() {
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
        let answer = client()
            .post(&url)
            .query(&[("q", "ü")])
            .multipart(form)
            .send(&quiet)
            .await
            .unwrap();
        let told: serde_json::Value = answer.json().await.unwrap();
        let digest = Sha256Digest::of(&vec![7; 1_000_000]).to_hex();
        assert_eq!(
            told,
            serde_json::json!({
                "text": "a\r\n--b", "name": "naïve \"x\".bin", "type": "a/b", "size": 1_000_000, "sha256": digest
            })
        );
        assert_eq!(*server.shared().lock(), ["POST /form ü"]);
        assert!(server.shared().received() > 1_000_000);
    }

    #[tokio::test]
    async fn it_breaks_as_it_is_told() {
        let server = start().await;
        let url = |path: &str| format!("{}{path}", server.shared().url());
        let answer = client().get(&url("/cut")).send(&quiet).await.unwrap();
        assert_eq!(answer.length(), Some(6));
        assert!(answer.bytes(10).await.is_err());
        assert!(client().get(&url("/close")).send(&quiet).await.is_err());
        let answer = client().get(&url("/else")).send(&quiet).await.unwrap();
        assert_eq!(answer.retry_after(), Some(Duration::from_secs(2)));
    }
}
