//! Tests which bodies are returned (sections 11 and 13), over the whole pipeline.

use std::io::Write as _;

use dray_testkit::http::{ResponseScript, ResponseStep};
use dray_types::Sha256Digest;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::fake_network::*;

async fn check(answer: impl AsRef<[u8]>, expected: &str) -> FetchResult {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::raw(answer.as_ref()));
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(
        outcome.code(),
        expected,
        "{}",
        answer.as_ref().escape_ascii()
    );
    outcome
}

/// A response that starts with `start` and then repeats `bytes` without end.
fn flood(start: &str, bytes: impl AsRef<[u8]>) -> ResponseScript {
    let bytes = bytes::Bytes::copy_from_slice(bytes.as_ref());
    ResponseScript::raw(start).then(ResponseStep::Repeat(bytes, u64::MAX))
}

#[tokio::test(start_paused = true)]
async fn i_7_chunk_framing_counts_against_the_byte_budget() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let fixture = FetcherFixture::default();
    for chunk in [
        format!("{}1\r\nx\r\n", "0".repeat(1000)),
        "1\r\nx\r\n".to_owned(),
    ] {
        fixture
            .fake_network
            .serve(PUBLIC_ADDRESS, flood(head, chunk));
        let request = crate::fetch::FetchJob {
            size_limit: 200_000,
            ..request("http://files.example.org/")
        };
        let outcome = run(&fixture.fetcher(), &request).await;
        assert_eq!(outcome.end(), ("too_large", "body"));
        assert!(
            outcome.record.counts.wire < 200_000,
            "less than the limit of the body"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn i_7_a_chunked_body_of_the_whole_limit_passes() {
    let fixture = FetcherFixture::default();
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let script = ResponseScript(vec![
        ResponseStep::send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ResponseStep::Repeat(chunk.into(), 10 * 1024),
        ResponseStep::send("0\r\n\r\n"),
    ]);
    fixture.fake_network.serve(PUBLIC_ADDRESS, script);
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!((outcome.code(), outcome.body.len()), ("ok", 10 << 20));
}

#[tokio::test(start_paused = true)]
async fn r_1_interim_responses_are_bounded() {
    let one = "HTTP/1.1 100 Continue\r\n\r\n";
    let large = format!("HTTP/1.1 103 Hints\r\nLink: {}\r\n\r\n", "x".repeat(33_000));
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    for (interim, expected) in [
        (one.repeat(16), "ok"),
        (one.repeat(17), "malformed_response"),
        (large.clone(), "ok"),
        (large.repeat(2), "malformed_response"),
    ] {
        check(format!("{interim}{last}"), expected).await;
    }
    for endless in [one, large.as_str()] {
        let fixture = FetcherFixture::default();
        fixture
            .fake_network
            .serve(PUBLIC_ADDRESS, flood("", endless));
        let outcome = fixture.fetch("http://files.example.org/").await;
        assert_eq!(outcome.end(), ("malformed_response", "head"));
    }
}

#[tokio::test(start_paused = true)]
async fn b_7_the_result_has_size_digest_types_and_final_url() {
    let content = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and so on";
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    let wire = encoder.finish().unwrap();
    let fixture = FetcherFixture::default();
    let body = wire.clone();
    fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, move |received| match received.target() {
            "/" => ResponseScript::redirect(302, "/picture?signature=x"),
            _ => ResponseScript::with_fields(
                &[
                    ("Content-Type", "image/PNG; foo=bar"),
                    ("Content-Encoding", "x-gzip"),
                    (
                        "Content-Disposition",
                        "attachment; filename=\"../picture.png\"",
                    ),
                    ("ETag", "\"abc\""),
                    ("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT"),
                ],
                &body,
            ),
        });
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.body, content);
    let fetched = outcome.result.unwrap();
    assert_eq!(fetched.stored.sha256, Sha256Digest::of(content));
    assert_eq!(fetched.stored.size, content.len() as u64);
    assert_eq!(fetched.wire_size, wire.len() as u64);
    assert_eq!(fetched.coding, "gzip");
    assert_eq!(fetched.sniffed, "image/png");
    assert_eq!(fetched.labels.media_type, "image/png");
    assert_eq!(fetched.labels.name, "picture.png");
    assert_eq!(fetched.labels.etag, "\"abc\"");
    assert_eq!(
        fetched.labels.last_modified,
        "Wed, 21 Oct 2015 07:28:00 GMT"
    );
    assert_eq!(
        fetched.final_url, "http://files.example.org/picture",
        "no query"
    );
    assert_eq!((fetched.redirect_count, fetched.status), (1, 200));
    assert!(fetched.length_verified);
}

/// `content` as the reference encoders of Node 20 and zstd 1.5.4 compress it.
const CODED_CONTENT: [(&str, &[u8]); 2] = [
    ("br", b"\x1b\x06\x00\xf8\x25\x00\xa2\x90\xa8\x00"),
    (
        "zstd",
        b"\x28\xb5\x2f\xfd\x04\x58\x39\x00\x00content\xfc\xa9\xc5\x31",
    ),
];

#[tokio::test(start_paused = true)]
async fn b_4_br_and_zstd_are_decoded_and_named_in_the_result() {
    for (coding, wire) in CODED_CONTENT {
        let fixture = FetcherFixture::default();
        let fields = [("Content-Encoding", coding)];
        let script = ResponseScript::with_fields(&fields, wire);
        fixture.fake_network.serve(PUBLIC_ADDRESS, script);
        let outcome = fixture.fetch("http://files.example.org/").await;
        assert_eq!(outcome.body, b"content", "{coding}");
        let fetched = outcome.result.unwrap();
        assert_eq!(fetched.coding, coding);
        assert_eq!(fetched.wire_size, wire.len() as u64);
        assert_eq!(fetched.stored.sha256, Sha256Digest::of(b"content"));
    }
}

#[tokio::test(start_paused = true)]
async fn b_5_a_br_or_zstd_body_of_its_declared_length_must_be_a_complete_stream() {
    for (coding, wire) in CODED_CONTENT {
        let fields = [("Content-Encoding", coding)];
        let truncated = &wire[..wire.len() - 1];
        let padded = [wire, b"\0"].concat();
        for body in [truncated, padded.as_slice()] {
            let fixture = FetcherFixture::default();
            let script = ResponseScript::with_fields(&fields, body);
            fixture.fake_network.serve(PUBLIC_ADDRESS, script);
            let outcome = fixture.fetch("http://files.example.org/").await;
            assert_eq!(outcome.end(), ("decode_error", "body"), "{coding}");
        }
    }
}

/// A zstd frame of `blocks` blocks, each of which is one byte repeated 131,072 times.
fn zstandard_zeros(blocks: usize) -> Vec<u8> {
    // The first three bytes of each block are its header, least significant first: size, type 1, not the last.
    let block = [0x02, 0x00, 0x10, 0x00];
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
    frame.extend(block.repeat(blocks - 1));
    frame.extend([0x03, 0x00, 0x10, 0x00]);
    frame
}

#[tokio::test(start_paused = true)]
async fn b_5_the_size_limit_holds_for_the_decoded_bytes_of_a_zstd_body() {
    for (blocks, expected) in [(1, "ok"), (2, "too_large"), (4096, "decode_error")] {
        let fixture = FetcherFixture::default();
        let fields = [("Content-Encoding", "zstd")];
        let script = ResponseScript::with_fields(&fields, zstandard_zeros(blocks));
        fixture.fake_network.serve(PUBLIC_ADDRESS, script);
        let request = crate::fetch::FetchJob {
            // The last limit is above the bytes that are allowed at any ratio, so that the ratio ends the fetch.
            size_limit: if blocks == 4096 { 64 << 20 } else { 200_000 },
            ..request("http://files.example.org/")
        };
        let outcome = run(&fixture.fetcher(), &request).await;
        assert_eq!(outcome.code(), expected, "{blocks} blocks");
        assert!(outcome.record.counts.stored <= 2 << 20);
    }
}

#[tokio::test(start_paused = true)]
async fn b_3_a_close_delimited_cleartext_body_is_flagged() {
    let outcome = check("HTTP/1.1 200 OK\r\n\r\nall of it", "ok").await;
    assert!(!outcome.result.unwrap().length_verified);
    let outcome = check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "ok",
    )
    .await;
    assert!(outcome.result.unwrap().length_verified);
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nlies",
        "truncated",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn r_4_a_declared_size_above_the_limit_is_refused_before_the_body() {
    let outcome = check(
        "HTTP/1.1 200 OK\r\nContent-Length: 10485761\r\n\r\n",
        "too_large",
    )
    .await;
    assert_eq!(outcome.record.counts.wire, 0);
    assert_eq!(
        outcome.message(),
        "External URL http://files.example.org/ exceeds the configured file-size limit."
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
        "too_large",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn r_5_the_body_of_an_error_is_neither_read_nor_returned() {
    for (status, retry) in [
        (404, false),
        (401, false),
        (403, false),
        (408, true),
        (429, true),
        (500, true),
        (501, false),
        (503, true),
        (418, false),
        (700, false),
    ] {
        let outcome = check(
            format!("HTTP/1.1 {status} X\r\nContent-Length: 8\r\n\r\ninternal"),
            "http_status",
        )
        .await;
        assert_eq!(outcome.body, b"");
        let denied = outcome.result.unwrap_err();
        assert_eq!(denied.fault.is_retryable(), retry, "{status}");
        assert!(!denied.fault.message.contains("internal"), "I-8");
    }
}

#[tokio::test(start_paused = true)]
async fn section_17_every_failure_of_a_response_has_its_code() {
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "malformed_response",
    )
    .await;
    check(
        "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-1/9\r\n\r\nab",
        "unexpected_partial",
    )
    .await;
    check(
        "HTTP/1.1 200 OK\r\nContent-Encoding: compress\r\n\r\nab",
        "unsupported_encoding",
    )
    .await;
    for coding in ["gzip", "deflate", "br", "zstd"] {
        check(
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\nab"),
            "decode_error",
        )
        .await;
    }
    check("", "connection_closed").await;
    check("HTTP/1.1 204 None\r\n\r\n", "ok").await;
}

#[tokio::test(start_paused = true)]
async fn i_6_only_five_fields_are_sent() {
    let fixture = FetcherFixture::default();
    let server = fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |_| ResponseScript::ok("x"));
    fixture.fetch("http://files.example.org/").await;
    let names: Vec<_> = server.received_requests()[0]
        .head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.to_owned()))
        .collect();
    assert_eq!(
        names,
        [
            "Host",
            "User-Agent",
            "Accept",
            "Accept-Encoding",
            "Connection"
        ]
    );
}
