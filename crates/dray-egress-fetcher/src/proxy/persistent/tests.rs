//! Tests of one exchange between a client and a kept target, over streams in memory.

use std::pin::Pin;
use std::time::Duration;

use http::header::HOST;
use tokio::io::{DuplexStream, ReadBuf};
use tokio::time::timeout;

use super::*;

const NEXT_REQUEST: &str = "GET /b HTTP/1.1\r\nHost: files.example.org\r\n\r\n";

/// A client that sends its next request as soon as the bytes that it got end with `last`.
struct EagerClient {
    received: Vec<u8>,
    last: &'static str,
    next: &'static str,
}

impl AsyncRead for EagerClient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.next.is_empty() || !self.received.ends_with(self.last.as_bytes()) {
            return Poll::Pending;
        }
        buffer.put_slice(std::mem::take(&mut self.next).as_bytes());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for EagerClient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.received.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A target, and the server's end of its connection.
async fn new_target() -> (PersistentTarget, DuplexStream) {
    let (near, far) = tokio::io::duplex(4096);
    let counts = ByteCounts::default();
    let stream = TargetStream::new(Box::new(near), ByteLimits::WITHOUT_LIMITS, counts.clone());
    let wire = (stream.quota(), counts);
    let target = PersistentTarget::start(Box::new(stream), wire)
        .await
        .unwrap();
    (target, far)
}

fn new_request() -> PersistentRequest<'static> {
    let request = Request::get("/a").header(HOST, "files.example.org");
    PersistentRequest {
        head: request.body(()).unwrap().into_parts().0,
        body: Bytes::new(),
        rules: ResponseRules::default(),
    }
}

/// Reads a request and sends `response`.
async fn respond(mut server: DuplexStream, response: &str) -> DuplexStream {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(server.read_u8().await.unwrap());
    }
    server.write_all(response.as_bytes()).await.unwrap();
    server
}

/// The outcome of `response` for a client that sends another request behind `last`, and the client.
async fn outcome_of(
    response: &str,
    last: &'static str,
) -> (PersistentOutcome, ClientStream<EagerClient>) {
    let (mut target, server) = new_target().await;
    let mut client = ClientStream::new(EagerClient {
        received: Vec::new(),
        last,
        next: NEXT_REQUEST,
    });
    let mut status = None;
    let exchanging = target.exchange(&mut client, new_request(), &mut status);
    let (outcome, _server) = tokio::join!(exchanging, respond(server, response));
    assert_eq!(status, Some(200));
    (outcome, client)
}

const WITH_LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
const WITHOUT_BODY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const IN_CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";

#[tokio::test]
async fn the_next_request_may_come_from_the_last_byte_of_a_response_on() {
    for (response, last) in [
        (WITH_LENGTH, "\r\n\r\nab"),
        (WITHOUT_BODY, "\r\n\r\n"),
        (IN_CHUNKS, "\r\n0\r\n\r\n"),
    ] {
        let (outcome, mut client) = outcome_of(response, last).await;
        let expected = PersistentOutcome::Answered {
            keeps_client: true,
            keeps_target: true,
        };
        assert_eq!(outcome, expected, "{response}");
        // The exchange has read no byte of the next request, so the wait for it ends when it arrives.
        assert_eq!(client.ahead(), b"");
        client.read_ahead().await.unwrap();
        assert_eq!(client.ahead(), NEXT_REQUEST.as_bytes());
    }
}

#[tokio::test]
async fn a_request_before_the_last_byte_of_a_response_ends_the_tunnel() {
    for (response, last) in [
        (WITH_LENGTH, "\r\n\r\n"),
        (IN_CHUNKS, "chunked\r\n\r\n"),
        (IN_CHUNKS, "ab\r\n"),
    ] {
        let (outcome, _) = outcome_of(response, last).await;
        let expected = PersistentOutcome::Answered {
            keeps_client: false,
            keeps_target: true,
        };
        assert_eq!(outcome, expected, "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_the_target_is_silent_ends_the_exchange() {
    for (response, last) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
            "\r\n\r\nab",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "chunked\r\n\r\n",
        ),
    ] {
        let (mut target, server) = new_target().await;
        let (near, mut far) = tokio::io::duplex(4096);
        let mut client = ClientStream::new(near);
        let mut status = None;
        let leaving = async {
            let server = respond(server, response).await;
            let mut received = Vec::new();
            while !received.ends_with(last.as_bytes()) {
                received.push(far.read_u8().await.unwrap());
            }
            drop(far);
            server
        };
        let exchanging = target.exchange(&mut client, new_request(), &mut status);
        let both = async { tokio::join!(exchanging, leaving) };
        // The test clock is paused: the timeout passes immediately if the exchange waits without end.
        let (outcome, _server) = timeout(Duration::from_mins(1), both).await.unwrap();
        assert_eq!(outcome, PersistentOutcome::Broken, "{response}");
    }
}
