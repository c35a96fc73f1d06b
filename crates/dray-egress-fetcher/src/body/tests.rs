//! Bodies: bounds, endings, codings and slow peers, in memory and with paused time.

use std::io::Write as _;
use std::time::Duration;

use dray_testkit::http::{Responder, Script, Step, converse};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::JoinSet;

use super::*;
use crate::head::{Judged, judge};
use crate::hop::{Ask, send};
use crate::label::Labels;
use crate::sink::{Hashing, SinkError, Stored};

const BOUNDS: Bounds = Bounds {
    limit: 1000,
    idle: Duration::from_secs(15),
    floor: 1024,
    grace: Duration::from_secs(20),
};

struct Got {
    result: Result<&'static str, (Code, Phase)>,
    stored: Vec<u8>,
    counts: Counts,
    took: Duration,
}

async fn get_into<S: Sink>(script: Script, bounds: Bounds, sink: &mut S) -> Got {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let mut server = JoinSet::new();
    server.spawn(async move { converse(far, &Responder::always(script)).await });
    let agent = http::HeaderValue::from_static("test");
    let ask = Ask {
        host: "files.example.org",
        path_and_query: "/",
        user_agent: &agent,
        resume: None,
    };
    let budget = Budget::starting_now(Duration::from_mins(5));
    let (parts, wire) = send(Box::new(near), ask).await.unwrap();
    let mut counts = Counts::default();
    let started = Instant::now();
    let result = match judge(&parts, bounds.limit) {
        Ok(Judged::Body(plan)) => receive(wire, &plan, &bounds, &budget, sink, &mut counts).await,
        Ok(Judged::Redirect(_)) => panic!("not a redirect"),
        Err(code) => Err(Failure::new(code, Phase::Head)),
    };
    Got {
        result: result.map_err(|failure| (failure.code, failure.phase)),
        stored: Vec::new(),
        counts,
        took: started.elapsed(),
    }
}

async fn get(script: Script, bounds: Bounds) -> Got {
    let mut sink = Hashing::new(Vec::new());
    let mut got = get_into(script, bounds, &mut sink).await;
    got.stored = sink.into_inner();
    got
}

fn chunked(body: &[u8]) -> Script {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in body.chunks(100) {
        bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    Script::raw(bytes)
}

fn until_close(body: &[u8]) -> Script {
    Script::raw([b"HTTP/1.1 200 OK\r\n\r\n", body].concat())
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn gzipped(content: &[u8]) -> Script {
    Script::with_fields(&[("Content-Encoding", "gzip")], gzip(content))
}

#[tokio::test(start_paused = true)]
async fn b_2_exactly_the_limit_passes_and_one_more_does_not() {
    let exact = vec![b'x'; 1000];
    let over = vec![b'x'; 1001];
    for make in [
        |body: &[u8]| Script::ok(body),
        chunked,
        until_close,
        gzipped,
    ] {
        let got = get(make(&exact), BOUNDS).await;
        assert_eq!(got.result, Ok(""));
        assert_eq!((got.stored.len(), got.counts.stored), (1000, 1000));
        let got = get(make(&over), BOUNDS).await;
        assert_eq!(got.result.unwrap_err().0, Code::TooLarge);
        assert!(
            got.stored.len() <= 1000,
            "I-7: nothing beyond the limit is stored"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_2_the_limit_counts_wire_bytes_too() {
    let mut members = Vec::new();
    while members.len() <= 1000 {
        members.extend(gzip(b""));
    }
    let script = Script::raw(
        [
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
            members.as_slice(),
        ]
        .concat(),
    );
    let got = get(script, BOUNDS).await;
    assert_eq!(got.result, Err((Code::TooLarge, Phase::Body)));
    assert_eq!(got.counts.stored, 0);
}

#[tokio::test(start_paused = true)]
async fn b_3_a_lying_length_is_truncated() {
    let script = Script::raw("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nshort");
    let got = get(script, BOUNDS).await;
    assert_eq!(got.result, Err((Code::Truncated, Phase::Body)));
    assert_eq!(got.counts.wire, 5);
}

#[tokio::test(start_paused = true)]
async fn r_5_a_whole_206_needs_every_byte_it_names() {
    let script = |range: &str| {
        Script::raw(format!(
            "HTTP/1.1 206 Part\r\nContent-Range: {range}\r\n\r\n0123456789"
        ))
    };
    assert_eq!(
        get(script("bytes 0-9/10"), BOUNDS).await.stored,
        b"0123456789"
    );
    for wrong in ["bytes 0-10/11", "bytes 0-8/9"] {
        let got = get(script(wrong), BOUNDS).await;
        assert_eq!(
            got.result,
            Err((Code::UnexpectedPartial, Phase::Body)),
            "{wrong}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_5_decoding_stops_at_the_limit_and_at_the_ratio() {
    let bounds = Bounds {
        limit: 1 << 20,
        ..BOUNDS
    };
    let got = get(gzipped(&vec![0; 2 << 20]), bounds).await;
    assert_eq!(got.result, Err((Code::TooLarge, Phase::Body)));
    assert!(got.stored.len() <= 1 << 20);
    let bounds = Bounds {
        limit: 1 << 30,
        ..BOUNDS
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![0; 16 << 20]).unwrap();
    let bomb = Script::with_fields(&[("Content-Encoding", "gzip")], encoder.finish().unwrap());
    let got = get(bomb, bounds).await;
    assert_eq!(got.result, Err((Code::DecodeError, Phase::Body)));
    assert!(got.stored.len() < 4 << 20, "stopped long before the end");
}

#[tokio::test(start_paused = true)]
async fn b_5_a_broken_coding_is_a_decode_error() {
    let whole = gzip(b"content");
    for length in [5, 12, whole.len() - 1] {
        let script = Script::with_fields(&[("Content-Encoding", "gzip")], &whole[..length]);
        let got = get(script, BOUNDS).await;
        assert_eq!(
            got.result,
            Err((Code::DecodeError, Phase::Body)),
            "{length}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_6_a_compressed_file_is_stored_as_it_is() {
    let file = gzip(b"archive");
    let got = get(
        Script::with_fields(&[("Content-Type", "application/gzip")], &file),
        BOUNDS,
    )
    .await;
    assert_eq!(got.stored, file);
    assert_eq!(
        got.result,
        Ok("application/gzip"),
        "B-7: recognised by its bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn b_7_the_type_is_recognised_after_decoding_and_across_pieces() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    assert_eq!(get(gzipped(png), BOUNDS).await.result, Ok("image/png"));
    let dripped = png
        .iter()
        .fold(Script::raw("HTTP/1.1 200 OK\r\n\r\n"), |script, byte| {
            script
                .then(Step::send([*byte]))
                .then(Step::Pause(Duration::from_millis(1)))
        });
    assert_eq!(get(dripped, BOUNDS).await.result, Ok("image/png"));
}

#[tokio::test(start_paused = true)]
async fn b_8_a_silent_peer_ends_at_the_idle_limit() {
    let script = Script::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").then(Step::Hold);
    let got = get(script, BOUNDS).await;
    assert_eq!(got.result, Err((Code::Timeout, Phase::Body)));
    assert_eq!(got.took, Duration::from_secs(15));
}

fn drip(pause: u64) -> Script {
    (0..1000).fold(Script::raw("HTTP/1.1 200 OK\r\n\r\n"), |script, _| {
        script
            .then(Step::send("x"))
            .then(Step::Pause(Duration::from_secs(pause)))
    })
}

#[tokio::test(start_paused = true)]
async fn b_8_a_dripping_peer_ends_when_the_grace_is_over() {
    let got = get(drip(1), BOUNDS).await;
    assert_eq!(got.result, Err((Code::Timeout, Phase::Body)));
    assert_eq!(got.took, Duration::from_secs(20));
    assert!(got.counts.wire >= 20);
}

#[tokio::test(start_paused = true)]
async fn b_8_a_floor_of_zero_leaves_only_the_other_limits() {
    let got = get(drip(1), Bounds { floor: 0, ..BOUNDS }).await;
    assert_eq!(
        got.result,
        Err((Code::Timeout, Phase::Total)),
        "section 14: total"
    );
    assert_eq!(got.took, Duration::from_mins(5));
}

/// A sink that needs longer for every piece than a peer may be silent.
struct Slow(Hashing<Vec<u8>>);

impl Sink for Slow {
    async fn write(&mut self, piece: Bytes) -> Result<(), SinkError> {
        // paused clock: a store that is slow
        tokio::time::sleep(Duration::from_secs(25)).await;
        self.0.write(piece).await
    }
    async fn finish(&mut self, labels: &Labels) -> Result<Stored, SinkError> {
        self.0.finish(labels).await
    }
    async fn discard(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn b_8_a_slow_store_is_not_blamed_on_the_peer() {
    let script = Script::raw("HTTP/1.1 200 OK\r\n\r\na").then(Step::Pause(Duration::from_secs(30)));
    let mut sink = Slow(Hashing::new(Vec::new()));
    let got = get_into(script.then(Step::send("b")), BOUNDS, &mut sink).await;
    assert_eq!(got.result, Ok(""));
    assert_eq!(sink.0.into_inner(), b"ab");
}

/// A sink whose store is down.
struct Broken;

impl Sink for Broken {
    async fn write(&mut self, _piece: Bytes) -> Result<(), SinkError> {
        Err(SinkError::new("store is down"))
    }
    async fn finish(&mut self, _labels: &Labels) -> Result<Stored, SinkError> {
        Err(SinkError::new("store is down"))
    }
    async fn discard(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_ends_the_fetch() {
    let got = get_into(Script::ok("x"), BOUNDS, &mut Broken).await;
    assert_eq!(got.result, Err((Code::SinkFailed, Phase::Sink)));
}

#[tokio::test(start_paused = true)]
async fn b_9_an_empty_body_is_an_empty_file() {
    for script in [
        Script::ok(""),
        until_close(b""),
        chunked(b""),
        Script::raw("HTTP/1.1 204 None\r\n\r\n"),
        Script::raw("HTTP/1.1 205 Reset\r\nContent-Length: 5\r\n\r\nhello"),
        Script::raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let got = get(script, BOUNDS).await;
        assert_eq!((got.result, got.counts.stored), (Ok(""), 0));
    }
}
