//! Tests of the HTTP layer with raw bytes: the requests that it sends, and the responses that it refuses.

use std::time::Duration;

use dray_testkit::http::{
    ReceivedRequest, ResponseScript, ResponseStep, ScriptedResponder, serve_request,
};
use tokio::task::JoinSet;

use super::*;
use crate::head::judge_head;

const USER_AGENT: HeaderValue = HeaderValue::from_static("dray/test");

/// Everything up to the end of the body: status and bytes, or the reason.
async fn exchange(script: ResponseScript) -> (Result<(u16, Vec<u8>), Code>, Vec<ReceivedRequest>) {
    let responder = ScriptedResponder::always(script);
    let (near, far) = tokio::io::duplex(256 * 1024);
    let mut server = JoinSet::new();
    let serving = responder.clone();
    server.spawn(async move { serve_request(far, &serving).await });
    let hop_request = HopRequest {
        host: "files.example.org:8080",
        path_and_query: "/a%20b?x=1",
        user_agent: &USER_AGENT,
        credential: None,
        resume: None,
        conditions: Vec::new(),
    };
    let fetched = tokio::time::timeout(
        Duration::from_secs(10),
        read_all(Box::new(near), hop_request),
    )
    .await;
    (
        fetched.unwrap_or(Err(Code::Timeout)),
        responder.received_requests(),
    )
}

async fn read_all(io: Box<dyn Io>, hop_request: HopRequest<'_>) -> Result<(u16, Vec<u8>), Code> {
    let (parts, mut wire) = send_request(io, hop_request)
        .await
        .map_err(|error| error.code())?;
    judge_head(&parts, u64::MAX)?;
    let mut body = Vec::new();
    while let Some(chunk) = wire.next().await.map_err(|error| error.code())? {
        assert!(chunk.len() <= MAX_HEAD_BYTES, "B-1");
        body.extend_from_slice(&chunk);
    }
    Ok((parts.status.as_u16(), body))
}

async fn check(answer: impl AsRef<[u8]>, expected: Result<(u16, &[u8]), Code>) {
    let answer = answer.as_ref();
    let (fetched, _) = exchange(ResponseScript::raw(answer)).await;
    let fetched = fetched
        .as_ref()
        .map(|(status, body)| (*status, body.as_slice()));
    let start = &answer[..answer.len().min(200)];
    assert_eq!(
        fetched,
        expected.as_ref().copied(),
        "{}",
        start.escape_ascii()
    );
}

#[tokio::test(start_paused = true)]
async fn q_1_the_request_is_exactly_six_lines_in_order() {
    let (fetched, requests) = exchange(ResponseScript::ok("body")).await;
    assert_eq!(fetched, Ok((200, b"body".to_vec())));
    let expected = "GET /a%20b?x=1 HTTP/1.1\r\n\
        Host: files.example.org:8080\r\n\
        User-Agent: dray/test\r\n\
        Accept: */*\r\n\
        Accept-Encoding: identity\r\n\
        Connection: close\r\n\r\n";
    assert_eq!(
        requests
            .iter()
            .map(|request| request.head.as_str())
            .collect::<Vec<_>>(),
        [expected]
    );
}

#[tokio::test(start_paused = true)]
async fn r_2_only_http_1_0_and_1_1_are_understood() {
    check("HTTP/1.0 200 OK\r\n\r\nold", Ok((200, b"old"))).await;
    for answer in [
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/0.9 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\nmusic",
        "<html>no head at all</html>\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 -20 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
    ] {
        check(answer, Err(Code::MalformedResponse)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r_2_malformed_fields_are_refused() {
    for field in [
        "A: one\r\n two\r\n",
        "A : one\r\n",
        "A: one\rB: two\r\n",
        "A: o\0ne\r\n",
        "A: o\x01ne\r\n",
        "no colon\r\n",
        ": no name\r\n",
        "A\0: x\r\n",
    ] {
        check(
            format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 0\r\n\r\n"),
            Err(Code::MalformedResponse),
        )
        .await;
    }
    check(
        "HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n",
        Err(Code::MalformedResponse),
    )
    .await;
    check(
        "HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n",
        Err(Code::MalformedResponse),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn r_1_fields_and_bytes_of_the_head_are_bounded() {
    let fields = |count: usize| {
        let fields: Vec<_> = (0..count)
            .map(|index| format!("X-{index}: y\r\n"))
            .collect();
        let fields = fields.concat();
        format!("HTTP/1.1 204 None\r\n{fields}\r\n")
    };
    check(fields(128), Ok((204, b""))).await;
    check(fields(129), Err(Code::MalformedResponse)).await;
    let start = "HTTP/1.1 204 None\r\nX: ";
    let padded = |length: usize| format!("{start}{}\r\n\r\n", "y".repeat(length - start.len() - 4));
    check(padded(64 * 1024), Ok((204, b""))).await;
    check(padded(64 * 1024 + 1), Err(Code::MalformedResponse)).await;
    check(padded(500 * 1024), Err(Code::MalformedResponse)).await;
}

#[tokio::test(start_paused = true)]
async fn r_1_an_endless_head_ends_at_the_budget() {
    let script = ResponseScript(vec![
        ResponseStep::send("HTTP/1.1 200 OK\r\nX: "),
        ResponseStep::Repeat(Bytes::from_static(&[b'y'; 1024]), u64::MAX),
    ]);
    let (fetched, _) = exchange(script).await;
    assert_eq!(fetched, Err(Code::MalformedResponse));
}

#[tokio::test(start_paused = true)]
async fn r_1_informational_heads_are_skipped_up_to_their_limit() {
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        Ok((200, b"ok")),
    )
    .await;
    let flood = ResponseScript(vec![
        ResponseStep::Repeat(Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n"), 1000),
        ResponseStep::Hold,
    ]);
    assert_eq!(exchange(flood).await.0, Err(Code::MalformedResponse));
}

#[tokio::test(start_paused = true)]
async fn r_3_chunked_lookalikes_are_malformed() {
    for field in [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding:\x0bchunked",
    ] {
        check(
            format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
            Err(Code::MalformedResponse),
        )
        .await;
    }
    check(
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        Err(Code::MalformedResponse),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn r_4_lengths_that_are_not_one_number_are_malformed() {
    for field in [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: +3",
        "Content-Length: -3",
        "Content-Length: 0x3",
        "Content-Length: 3, 3",
        "Content-Length: 18446744073709551615",
        "Content-Length: 99999999999999999999",
        "Content-Length:",
    ] {
        check(
            format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\nabc"),
            Err(Code::MalformedResponse),
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn r_5_switching_protocols_is_malformed() {
    check(
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
        Err(Code::MalformedResponse),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn b_3_a_body_is_complete_at_the_end_of_its_framing() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        Ok((200, b"abc")),
    )
    .await;
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
        Ok((200, b"abc")),
    )
    .await;
    check("HTTP/1.1 200 OK\r\n\r\nabc", Ok((200, b"abc"))).await;
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n";
    check(
        format!("{chunked}0\r\nTrailer: ignored\r\n\r\n"),
        Ok((200, b"abcde")),
    )
    .await;
    check(chunked, Err(Code::Truncated)).await;
    check(format!("{chunked}0\r\n"), Err(Code::Truncated)).await;
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
        Err(Code::Truncated),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn b_3_broken_chunks_are_malformed() {
    for body in [
        "x\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "-3\r\nabc\r\n",
        "10000000000000000\r\n",
    ] {
        check(
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"),
            Err(Code::MalformedResponse),
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_before_a_head_is_closed() {
    check("", Err(Code::ConnectionClosed)).await;
    check("HTTP/1.1 200 OK\r\nContent-Le", Err(Code::ConnectionClosed)).await;
}

#[tokio::test(start_paused = true)]
async fn r_6_trailers_are_ignored() {
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Location\r\n\r\n2\r\nok\r\n0\r\nLocation: http://127.0.0.1/\r\n\r\n",
        Ok((200, b"ok")),
    )
    .await;
}
