//! Bodies: bounds, endings, codings and slow peers, in memory and with paused time.

use std::io::Write as _;
use std::time::Duration;

use dray_testkit::http::{ResponseScript, ResponseStep, ScriptedResponder, serve_request};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::JoinSet;

use super::*;
use crate::head::{HeadDecision, judge_head};
use crate::hop::{HopRequest, send_request};
use crate::label::ResponseLabels;
use crate::sink::{HashingSink, SinkError, StoredFile};

const BODY_LIMITS: BodyLimits = BodyLimits {
    limit: 1000,
    idle: Duration::from_secs(15),
    floor: 1024,
    grace: Duration::from_secs(20),
};

struct BodyResult {
    result: Result<&'static str, (Code, FetchPhase)>,
    stored: Vec<u8>,
    counts: BodyCounts,
    took: Duration,
}

async fn get_into<S: ByteSink>(
    script: ResponseScript,
    bounds: BodyLimits,
    sink: &mut S,
) -> BodyResult {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let mut server = JoinSet::new();
    server.spawn(async move { serve_request(far, &ScriptedResponder::always(script)).await });
    let agent = http::HeaderValue::from_static("test");
    let hop_request = HopRequest {
        host: "files.example.org",
        path_and_query: "/",
        user_agent: &agent,
        credential: None,
        resume: None,
        conditions: Vec::new(),
    };
    let budget = TimeBudget::starting_now(Duration::from_mins(5));
    let (parts, wire) = send_request(Box::new(near), hop_request).await.unwrap();
    let mut counts = BodyCounts::default();
    let started = Instant::now();
    let result = match judge_head(&parts, bounds.limit) {
        Ok(HeadDecision::Body(plan)) => {
            let mut transfer = BodyTransfer::new(&plan, &bounds);
            let received = transfer.receive(wire, &plan, &budget, sink, &mut counts);
            match received.await {
                Ok(()) => transfer.finish(&counts),
                Err(failure) => Err(failure),
            }
        }
        Ok(HeadDecision::Redirect(_)) => panic!("the head must not be a redirect"),
        Err(code) => Err(FetchError::new(code, FetchPhase::Head)),
    };
    BodyResult {
        result: result.map_err(|failure| (failure.code, failure.phase)),
        stored: Vec::new(),
        counts,
        took: started.elapsed(),
    }
}

async fn get(script: ResponseScript, bounds: BodyLimits) -> BodyResult {
    let mut sink = HashingSink::new(Vec::new());
    let mut outcome = get_into(script, bounds, &mut sink).await;
    outcome.stored = sink.into_inner();
    outcome
}

fn chunked_response(body: &[u8]) -> ResponseScript {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(100) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    ResponseScript::raw(bytes)
}

fn until_close(body: &[u8]) -> ResponseScript {
    ResponseScript::raw([b"HTTP/1.1 200 OK\r\n\r\n", body].concat())
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn gzip_response(content: &[u8]) -> ResponseScript {
    ResponseScript::with_fields(&[("Content-Encoding", "gzip")], gzip(content))
}

#[tokio::test(start_paused = true)]
async fn b_2_exactly_the_limit_passes_and_one_more_does_not() {
    let exact = vec![b'x'; 1000];
    let over = vec![b'x'; 1001];
    for make in [
        |body: &[u8]| ResponseScript::ok(body),
        chunked_response,
        until_close,
        gzip_response,
    ] {
        let outcome = get(make(&exact), BODY_LIMITS).await;
        assert_eq!(outcome.result, Ok(""));
        assert_eq!((outcome.stored.len(), outcome.counts.stored), (1000, 1000));
        let outcome = get(make(&over), BODY_LIMITS).await;
        assert_eq!(outcome.result.unwrap_err().0, Code::TooLarge);
        assert!(
            outcome.stored.len() <= 1000,
            "I-7: no byte beyond the limit is stored"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_2_the_limit_counts_wire_bytes_too() {
    let mut members = Vec::new();
    while members.len() <= 1000 {
        members.extend(gzip(b""));
    }
    let script = ResponseScript::raw(
        [
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
            members.as_slice(),
        ]
        .concat(),
    );
    let outcome = get(script, BODY_LIMITS).await;
    assert_eq!(outcome.result, Err((Code::TooLarge, FetchPhase::Body)));
    assert_eq!(outcome.counts.stored, 0);
}

#[tokio::test(start_paused = true)]
async fn b_3_a_body_shorter_than_its_length_is_truncated() {
    let script = ResponseScript::raw("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nshort");
    let outcome = get(script, BODY_LIMITS).await;
    assert_eq!(outcome.result, Err((Code::Truncated, FetchPhase::Body)));
    assert_eq!(outcome.counts.wire, 5);
}

#[tokio::test(start_paused = true)]
async fn r_5_a_whole_206_needs_every_byte_it_names() {
    let script = |range: &str| {
        ResponseScript::raw(format!(
            "HTTP/1.1 206 Part\r\nContent-Range: {range}\r\n\r\n0123456789"
        ))
    };
    assert_eq!(
        get(script("bytes 0-9/10"), BODY_LIMITS).await.stored,
        b"0123456789"
    );
    for wrong in ["bytes 0-10/11", "bytes 0-8/9"] {
        let outcome = get(script(wrong), BODY_LIMITS).await;
        assert_eq!(
            outcome.result,
            Err((Code::UnexpectedPartial, FetchPhase::Body)),
            "{wrong}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_5_decoding_stops_at_the_limit_and_at_the_ratio() {
    let bounds = BodyLimits {
        limit: 1 << 20,
        ..BODY_LIMITS
    };
    let outcome = get(gzip_response(&vec![0; 2 << 20]), bounds).await;
    assert_eq!(outcome.result, Err((Code::TooLarge, FetchPhase::Body)));
    assert!(outcome.stored.len() <= 1 << 20);
    let bounds = BodyLimits {
        limit: 1 << 30,
        ..BODY_LIMITS
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![0; 16 << 20]).unwrap();
    let bomb =
        ResponseScript::with_fields(&[("Content-Encoding", "gzip")], encoder.finish().unwrap());
    let outcome = get(bomb, bounds).await;
    assert_eq!(outcome.result, Err((Code::DecodeError, FetchPhase::Body)));
    assert!(
        outcome.stored.len() < 4 << 20,
        "stopped long before the end"
    );
}

#[tokio::test(start_paused = true)]
async fn b_5_a_broken_coding_is_a_decode_error() {
    let whole = gzip(b"content");
    for length in [5, 12, whole.len() - 1] {
        let script = ResponseScript::with_fields(&[("Content-Encoding", "gzip")], &whole[..length]);
        let outcome = get(script, BODY_LIMITS).await;
        assert_eq!(
            outcome.result,
            Err((Code::DecodeError, FetchPhase::Body)),
            "{length}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_6_a_compressed_file_is_stored_as_it_is() {
    let file = gzip(b"archive");
    let outcome = get(
        ResponseScript::with_fields(&[("Content-Type", "application/gzip")], &file),
        BODY_LIMITS,
    )
    .await;
    assert_eq!(outcome.stored, file);
    assert_eq!(
        outcome.result,
        Ok("application/gzip"),
        "B-7: recognised by its bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn b_7_the_type_is_recognised_after_decoding_and_across_chunks() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    assert_eq!(
        get(gzip_response(png), BODY_LIMITS).await.result,
        Ok("image/png")
    );
    let dripped = png.iter().fold(
        ResponseScript::raw("HTTP/1.1 200 OK\r\n\r\n"),
        |script, byte| {
            script
                .then(ResponseStep::send([*byte]))
                .then(ResponseStep::Pause(Duration::from_millis(1)))
        },
    );
    assert_eq!(get(dripped, BODY_LIMITS).await.result, Ok("image/png"));
}

#[tokio::test(start_paused = true)]
async fn b_8_a_silent_peer_ends_at_the_idle_limit() {
    let script = ResponseScript::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        .then(ResponseStep::Hold);
    let outcome = get(script, BODY_LIMITS).await;
    assert_eq!(outcome.result, Err((Code::Timeout, FetchPhase::Body)));
    assert_eq!(outcome.took, Duration::from_secs(15));
}

fn drip(pause: u64) -> ResponseScript {
    (0..1000).fold(
        ResponseScript::raw("HTTP/1.1 200 OK\r\n\r\n"),
        |script, _| {
            script
                .then(ResponseStep::send("x"))
                .then(ResponseStep::Pause(Duration::from_secs(pause)))
        },
    )
}

#[tokio::test(start_paused = true)]
async fn b_8_a_dripping_peer_ends_when_the_grace_is_over() {
    let outcome = get(drip(1), BODY_LIMITS).await;
    assert_eq!(outcome.result, Err((Code::Timeout, FetchPhase::Body)));
    assert_eq!(outcome.took, Duration::from_secs(20));
    assert!(outcome.counts.wire >= 20);
}

#[tokio::test(start_paused = true)]
async fn b_8_a_floor_of_zero_leaves_only_the_other_limits() {
    let outcome = get(
        drip(1),
        BodyLimits {
            floor: 0,
            ..BODY_LIMITS
        },
    )
    .await;
    assert_eq!(
        outcome.result,
        Err((Code::Timeout, FetchPhase::Total)),
        "section 14: total"
    );
    assert_eq!(outcome.took, Duration::from_mins(5));
}

/// A sink that needs longer for every chunk than a peer may be silent.
struct SlowSink(HashingSink<Vec<u8>>);

impl ByteSink for SlowSink {
    async fn write(&mut self, chunk: Bytes) -> Result<(), SinkError> {
        // paused clock: a store that is slow
        tokio::time::sleep(Duration::from_secs(25)).await;
        self.0.write(chunk).await
    }
    async fn finish(&mut self, labels: &ResponseLabels) -> Result<StoredFile, SinkError> {
        self.0.finish(labels).await
    }
    async fn discard(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn b_8_the_time_of_a_slow_store_does_not_count_against_the_peer() {
    let script = ResponseScript::raw("HTTP/1.1 200 OK\r\n\r\na")
        .then(ResponseStep::Pause(Duration::from_secs(30)));
    let mut sink = SlowSink(HashingSink::new(Vec::new()));
    let outcome = get_into(script.then(ResponseStep::send("b")), BODY_LIMITS, &mut sink).await;
    assert_eq!(outcome.result, Ok(""));
    assert_eq!(sink.0.into_inner(), b"ab");
}

/// A sink whose store is down.
struct FailingSink;

impl ByteSink for FailingSink {
    async fn write(&mut self, _chunk: Bytes) -> Result<(), SinkError> {
        Err(SinkError::new("store is down"))
    }
    async fn finish(&mut self, _labels: &ResponseLabels) -> Result<StoredFile, SinkError> {
        Err(SinkError::new("store is down"))
    }
    async fn discard(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_ends_the_fetch() {
    let outcome = get_into(ResponseScript::ok("x"), BODY_LIMITS, &mut FailingSink).await;
    assert_eq!(outcome.result, Err((Code::SinkFailed, FetchPhase::Sink)));
}

#[tokio::test(start_paused = true)]
async fn b_9_an_empty_body_is_an_empty_file() {
    for script in [
        ResponseScript::ok(""),
        until_close(b""),
        chunked_response(b""),
        ResponseScript::raw("HTTP/1.1 204 None\r\n\r\n"),
        ResponseScript::raw("HTTP/1.1 205 Reset\r\nContent-Length: 5\r\n\r\nhello"),
        ResponseScript::raw(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
        ),
    ] {
        let outcome = get(script, BODY_LIMITS).await;
        assert_eq!((outcome.result, outcome.counts.stored), (Ok(""), 0));
    }
}
