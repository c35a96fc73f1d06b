//! Tests of retries: which failures are retried, how long the wait is, and that the rest of a body belongs to the same
//! file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dray_testkit::http::{ReceivedRequest, ResponseScript, ResponseStep, ScriptedResponder};
use tokio::time::Instant;

use super::fake_network::*;
use crate::fetch::FetchJob;

const FILE_URL: &str = "http://files.example.org/";

/// A server that responds to the first requests with `scripts`, in order, and to all further ones with the last.
fn serve_scripts(fixture: &FetcherFixture, scripts: Vec<ResponseScript>) -> ScriptedResponder {
    let queries = AtomicUsize::new(0);
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, move |_| {
        let index = queries.fetch_add(1, Ordering::SeqCst);
        scripts[index.min(scripts.len() - 1)].clone()
    })
}

/// No bytes, then the end of the connection.
fn closed_response() -> ResponseScript {
    ResponseScript(vec![ResponseStep::Drop])
}

fn busy(status: u16, retry_after: &str) -> ResponseScript {
    ResponseScript::raw(format!(
        "HTTP/1.1 {status} Busy\r\nRetry-After: {retry_after}\r\nDate: Sun, 22 Nov 2026 10:00:00 GMT\r\n\
         Content-Length: 0\r\n\r\n"
    ))
}

/// A head with this length and these fields, and the first bytes of the body.
fn broken(length: usize, fields: &str, first_bytes: &[u8]) -> ResponseScript {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n");
    ResponseScript::raw([head.as_bytes(), first_bytes].concat())
}

fn rest(range: &str, fields: &str, body: &[u8]) -> ResponseScript {
    broken_rest(range, body.len(), fields, body)
}

fn broken_rest(range: &str, length: usize, fields: &str, body: &[u8]) -> ResponseScript {
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {range}\r\nContent-Length: {length}\r\n{fields}\r\n"
    );
    ResponseScript::raw([head.as_bytes(), body].concat())
}

#[tokio::test(start_paused = true)]
async fn retries_twice_when_no_connection_opens() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Refuses);
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(outcome.end(), ("connect_failed", "connect"));
    assert_eq!(fixture.fake_network.dialled().len(), 3);
    assert_eq!(
        fixture.fake_network.queried_names().len(),
        3,
        "every attempt asks DNS"
    );
    let hops: Vec<_> = outcome
        .record
        .hops
        .iter()
        .map(|hop| (hop.attempt, hop.index, hop.code.unwrap().as_str()))
        .collect();
    assert_eq!(
        hops,
        [
            (0, 0, "connect_failed"),
            (1, 0, "connect_failed"),
            (2, 0, "connect_failed")
        ]
    );
    assert_eq!(outcome.record.retries, 2);
}

#[tokio::test(start_paused = true)]
async fn retries_when_the_connection_ends_before_the_head() {
    let fixture = FetcherFixture::default();
    let server = serve_scripts(
        &fixture,
        vec![
            closed_response(),
            closed_response(),
            ResponseScript::ok("third"),
        ],
    );
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!((outcome.code(), outcome.body), ("ok", b"third".to_vec()));
    assert_eq!(server.received_requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn waits_for_the_time_of_retry_after() {
    for (status, retry_after, seconds) in [
        (503, "7", 7),
        (429, "0", 0),
        (503, "Sun, 22 Nov 2026 10:00:09 GMT", 9),
        (429, "Sun, 22 Nov 2026 09:00:00 GMT", 0),
    ] {
        let fixture = FetcherFixture::default();
        let server = serve_scripts(
            &fixture,
            vec![busy(status, retry_after), ResponseScript::ok("x")],
        );
        let started = Instant::now();
        let outcome = fixture.fetch(FILE_URL).await;
        assert_eq!(outcome.code(), "ok", "{retry_after}");
        assert_eq!(started.elapsed().as_secs(), seconds, "{retry_after}");
        assert_eq!(server.received_requests().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_beyond_the_deadline_nor_without_a_time() {
    for script in [
        busy(503, "61"),
        busy(429, "soon"),
        ResponseScript::status(503),
        ResponseScript::status(429),
    ] {
        let fixture = FetcherFixture::default();
        let server = serve_scripts(&fixture, vec![script, ResponseScript::ok("x")]);
        let started = Instant::now();
        let outcome = fixture.fetch(FILE_URL).await;
        assert_eq!(outcome.code(), "http_status");
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert_eq!(server.received_requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_fault_has_the_retry_after_of_the_server() {
    let fixture = FetcherFixture::default();
    serve_scripts(&fixture, vec![busy(503, "3600")]);
    let fault = fixture.fetch(FILE_URL).await.result.unwrap_err().fault;
    assert_eq!(
        fault.retry,
        dray_types::RetryAdvice::After(Duration::from_hours(1))
    );
}

#[tokio::test(start_paused = true)]
async fn requests_once_when_another_attempt_would_change_nothing() {
    for script in [
        ResponseScript::status(500),
        ResponseScript::status(502),
        ResponseScript::status(404),
        busy(500, "1"),
        ResponseScript::raw("nonsense\r\n\r\n"),
        ResponseScript::redirect(302, "http://127.0.0.1/"),
        ResponseScript::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        ResponseScript::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: W/\"a\"\r\n\r\nabc"),
    ] {
        let fixture = FetcherFixture::default();
        let server = serve_scripts(&fixture, vec![script]);
        assert_ne!(fixture.fetch(FILE_URL).await.code(), "ok");
        assert_eq!(server.received_requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_broke_off_is_resumed_where_it_ended() {
    let fixture = FetcherFixture::default();
    let tag = "ETag: \"v1\"\r\n";
    let server = serve_scripts(
        &fixture,
        vec![
            broken(10, tag, b"0123"),
            broken_rest("4-9/10", 6, tag, b"45"),
            rest("6-9/10", tag, b"6789"),
        ],
    );
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(
        (outcome.code(), outcome.body),
        ("ok", b"0123456789".to_vec())
    );
    let fetched = outcome.result.unwrap();
    assert_eq!(
        fetched.stored.sha256,
        dray_types::Sha256Digest::of(b"0123456789")
    );
    assert_eq!((fetched.wire_size, fetched.length_verified), (10, true));
    let ranges: Vec<_> = server
        .received_requests()
        .iter()
        .map(|received| {
            let field = |name| received.field(name).map(str::to_owned);
            (field("range"), field("if-range"))
        })
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        ranges,
        [
            (None, None),
            (text("bytes=4-"), text("\"v1\"")),
            (text("bytes=6-"), text("\"v1\""))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_date_proves_the_version_when_the_file_is_old_enough() {
    let dates =
        "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\nDate: Sun, 22 Nov 2026 10:00:00 GMT\r\n";
    let fixture = FetcherFixture::default();
    let server = serve_scripts(
        &fixture,
        vec![broken(6, dates, b"abc"), rest("3-5/6", "", b"def")],
    );
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!((outcome.code(), outcome.body), ("ok", b"abcdef".to_vec()));
    assert_eq!(
        server.received_requests()[1].field("if-range"),
        Some("Sat, 21 Nov 2026 10:00:00 GMT")
    );
}

#[tokio::test(start_paused = true)]
async fn an_encoded_body_is_resumed_too() {
    use std::io::Write as _;
    let content: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&content).unwrap();
    let encoded = encoder.finish().unwrap();
    let fields = "ETag: \"z\"\r\nContent-Encoding: gzip\r\n";
    let (length, half) = (encoded.len(), encoded.len() / 2);
    let fixture = FetcherFixture::default();
    serve_scripts(
        &fixture,
        vec![
            broken(length, fields, &encoded[..half]),
            rest(
                &format!("{half}-{}/{length}", length - 1),
                fields,
                &encoded[half..],
            ),
        ],
    );
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(outcome.code(), "ok");
    assert!(outcome.body == content);
}

#[tokio::test(start_paused = true)]
async fn r_5_a_response_that_is_not_the_rest_of_the_same_file_is_not_appended() {
    let tag = "ETag: \"v1\"\r\n";
    for (second, code) in [
        (broken(6, tag, b"abcdef"), "truncated"),
        (rest("3-5/6", "ETag: \"v2\"\r\n", b"def"), "truncated"),
        (rest("3-5/6", "", b"def"), "truncated"),
        (rest("2-5/6", tag, b"cdef"), "truncated"),
        (rest("3-6/7", tag, b"defg"), "truncated"),
        (rest("3-4/6", tag, b"de"), "truncated"),
        (rest("3-5/6", tag, b"de"), "truncated"),
        (rest("3-5/*", tag, b"def"), "truncated"),
        (
            rest(
                "3-5/6",
                "ETag: \"v1\"\r\nContent-Encoding: gzip\r\n",
                b"def",
            ),
            "truncated",
        ),
        (ResponseScript::status(416), "truncated"),
    ] {
        let fixture = FetcherFixture::default();
        let server = serve_scripts(&fixture, vec![broken(6, tag, b"abc"), second]);
        let outcome = fixture.fetch(FILE_URL).await;
        assert_eq!((outcome.code(), outcome.body), (code, b"abc".to_vec()));
        assert_eq!(server.received_requests().len(), 2, "and that is final");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_broke_off_after_its_last_byte_is_whole_when_a_416_says_so() {
    let truncated =
        "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    for (fields, code) in [
        ("Content-Range: bytes */3\r\n", "ok"),
        ("Content-Range: bytes */3\r\nETag: \"v1\"\r\n", "ok"),
        ("Content-Range: bytes */3\r\nETag: \"v2\"\r\n", "truncated"),
        ("Content-Range: bytes */4\r\n", "truncated"),
        ("Content-Range: bytes */2\r\n", "truncated"),
        ("Content-Range: bytes */*\r\n", "truncated"),
        (
            "Content-Range: bytes */3\r\nContent-Range: bytes */3\r\n",
            "truncated",
        ),
    ] {
        let fixture = FetcherFixture::default();
        let whole =
            format!("HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 4\r\n{fields}\r\nnone");
        let scripts = vec![ResponseScript::raw(truncated), ResponseScript::raw(whole)];
        let server = serve_scripts(&fixture, scripts);
        let outcome = fixture.fetch(FILE_URL).await;
        assert_eq!(outcome.code(), code, "{fields}");
        assert_eq!(outcome.body, b"abc");
        assert_eq!(server.received_requests().len(), 2);
        if let Ok(fetched) = outcome.result {
            assert_eq!((fetched.wire_size, fetched.length_verified), (3, true));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b_2_the_limit_counts_all_parts_together() {
    let tag = "ETag: \"v1\"\r\nTransfer-Encoding: chunked\r\n";
    let fixture = FetcherFixture::default();
    serve_scripts(
        &fixture,
        vec![
            ResponseScript::raw(format!("HTTP/1.1 200 OK\r\n{tag}\r\n3\r\nabc\r\n")),
            rest("3-10/11", "ETag: \"v1\"\r\n", b"defghijk"),
        ],
    );
    let request = FetchJob {
        size_limit: 10,
        ..request(FILE_URL)
    };
    let outcome = run(&fixture.fetcher(), &request).await;
    assert_eq!(
        (outcome.code(), outcome.body),
        ("too_large", b"abc".to_vec())
    );
}

#[tokio::test(start_paused = true)]
async fn q_3_the_validator_is_sent_only_to_the_server_that_it_came_from() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("cdn.example.net", &[OTHER_PUBLIC_ADDRESS]);
    let queries = AtomicUsize::new(0);
    let first = fixture.fake_network.serve_with(PUBLIC_ADDRESS, move |_| {
        match queries.fetch_add(1, Ordering::SeqCst) {
            0 => broken(6, "ETag: \"v1\"\r\n", b"abc"),
            _ => ResponseScript::redirect(302, "http://cdn.example.net/"),
        }
    });
    let second = fixture
        .fake_network
        .serve_with(OTHER_PUBLIC_ADDRESS, |_| ResponseScript::ok("abcdef"));
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(
        (outcome.code(), outcome.body),
        ("truncated", b"abc".to_vec())
    );
    let ranges = |received: Vec<ReceivedRequest>| {
        received
            .iter()
            .map(|received| {
                received.field("range").is_some() && received.field("if-range").is_some()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(ranges(first.received_requests()), [false, true]);
    assert_eq!(ranges(second.received_requests()), [false]);
}

/// Files of one release often have the same time, and entity tags made of it.
#[tokio::test(start_paused = true)]
async fn r_5_a_rest_from_another_path_of_the_same_server_is_not_appended() {
    let tag = "ETag: \"v1\"\r\n";
    let date =
        "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\nDate: Sun, 22 Nov 2026 10:00:00 GMT\r\n";
    for (fields, targets, code) in [
        (tag, ["/a.bin", "/b.bin"], "truncated"),
        (tag, ["/a.bin?signature=1", "/a.bin?signature=2"], "ok"),
        (date, ["/a.bin", "/b.bin"], "truncated"),
        (date, ["/file?id=1", "/file?id=2"], "truncated"),
        (date, ["/file?id=1", "/file?id=1"], "ok"),
    ] {
        let fixture = FetcherFixture::default();
        let redirects = AtomicUsize::new(0);
        let server = fixture
            .fake_network
            .serve_with(PUBLIC_ADDRESS, move |received| {
                let is_rest = received.field("range").is_some();
                match received.target() {
                    "/latest" => {
                        let count = redirects.fetch_add(1, Ordering::SeqCst);
                        ResponseScript::redirect(302, targets[count])
                    }
                    _ if is_rest => rest("3-5/6", fields, b"def"),
                    target if target == targets[0] => broken(6, fields, b"abc"),
                    _ => ResponseScript::ok("uvwxyz"),
                }
            });
        let outcome = fixture.fetch("http://files.example.org/latest").await;
        assert_eq!(outcome.code(), code, "{targets:?}");
        let received = server.received_requests();
        let last = received.last().unwrap();
        assert_eq!(
            last.field("if-range").is_some(),
            code == "ok",
            "{targets:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_holds_no_slot_between_two_attempts() {
    let mut fixture = FetcherFixture::default();
    fixture.sizes.per_host = 1;
    serve_scripts(
        &fixture,
        vec![
            busy(503, "30"),
            ResponseScript::ok("second"),
            ResponseScript::ok("third"),
        ],
    );
    let fetcher = fixture.fetcher();
    let (first, second) = (request(FILE_URL), request(FILE_URL));
    let started = Instant::now();
    let (slow, quick) = tokio::join!(run(&fetcher, &first), async {
        let outcome = run(&fetcher, &second).await;
        (outcome, started.elapsed())
    });
    assert_eq!((slow.code(), slow.body), ("ok", b"third".to_vec()));
    assert_eq!(quick.0.body, b"second");
    assert_eq!(quick.1, Duration::ZERO);
}
