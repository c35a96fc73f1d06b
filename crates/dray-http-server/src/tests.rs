//! Clients that stall, send wrong lengths, or stay connected at a stop, over real sockets. The clock is paused and
//! advances to the next timer when all tasks wait, so that no test waits for the timeout that it checks, except that
//! of the kernel.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{ConnectionLimits, DrainOutcome, body_failure_status, serve, with_text_paths};

/// Time limit of a test: longer than every timeout of the limits.
const TEST_TIMEOUT: Duration = Duration::from_hours(1);

/// Bytes of a response that does not fit into the buffers of two sockets.
const LARGE_RESPONSE_BYTES: usize = 64 << 20;

struct RunningServer {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<DrainOutcome>,
}

impl RunningServer {
    async fn start(limits: ConnectionLimits) -> Self {
        let router = Router::new()
            .route("/", get(async || "ok"))
            .route("/endless", get(std::future::pending::<StatusCode>))
            .route("/body", post(read_body))
            .route("/large", get(async || vec![0_u8; LARGE_RESPONSE_BYTES]))
            .route("/names/{name}", get(async |Path(name): Path<String>| name))
            .fallback(async || (StatusCode::NOT_FOUND, "the service's own text"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        #[expect(
            clippy::disallowed_methods,
            reason = "the server of this test, joined by it"
        )]
        let served = tokio::spawn(serve(
            listener,
            with_text_paths(router),
            limits,
            stop.clone(),
        ));
        Self {
            address,
            stop,
            served,
        }
    }

    async fn client(&self) -> TcpStream {
        #[expect(clippy::disallowed_methods, reason = "a client of this test")]
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn send(&self, text: &str) -> TcpStream {
        let mut client = self.client().await;
        client.write_all(text.as_bytes()).await.unwrap();
        client
    }
}

async fn read_body(request: Request) -> (StatusCode, String) {
    match axum::body::to_bytes(request.into_body(), 1 << 20).await {
        Ok(bytes) => (StatusCode::OK, bytes.len().to_string()),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            (body_failure_status(&error), cause.unwrap_or_default())
        }
    }
}

/// All bytes that the server sends until it closes the connection.
async fn read_all(mut client: TcpStream) -> String {
    let mut response = Vec::new();
    let read = client.read_to_end(&mut response);
    tokio::time::timeout(TEST_TIMEOUT, read)
        .await
        .expect("the server must close the connection")
        .unwrap();
    String::from_utf8(response).unwrap()
}

#[tokio::test(start_paused = true)]
async fn closes_a_connection_whose_request_head_stalls() {
    let server = RunningServer::start(ConnectionLimits::default()).await;
    for start in [
        "",
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: example\r\nX-Slow: ",
    ] {
        let response = read_all(server.send(start).await).await;
        assert!(!response.contains("200"), "{start:?}: {response}");
    }
}

// Clients keep connections in a pool: on one that is closed without notice, the next request fails.
#[tokio::test(start_paused = true)]
async fn announces_that_a_connection_closes_when_the_request_body_was_not_read() {
    let server = RunningServer::start(ConnectionLimits::default()).await;
    for (path, body, closes) in [
        ("/body", "four", false),
        ("/unknown", "four", true),
        ("/unknown", "", false),
    ] {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: example\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let response = read_all(server.send(&request).await).await;
        let announced = response
            .to_ascii_lowercase()
            .contains("\r\nconnection: close\r\n");
        assert_eq!(announced, closes, "{path}: {response}");
    }
}

#[tokio::test(start_paused = true)]
async fn closes_a_connection_that_stays_idle_after_a_response() {
    let server = RunningServer::start(ConnectionLimits::default()).await;
    let client = server.send("GET / HTTP/1.1\r\nHost: example\r\n\r\n").await;
    let response = read_all(client).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

// The time of the kernel cannot be paused.
#[tokio::test]
async fn closes_a_connection_whose_peer_does_not_read_its_response() {
    let server = RunningServer::start(ConnectionLimits {
        write_idle_timeout: Duration::from_millis(300),
        ..ConnectionLimits::default()
    })
    .await;
    let request = "GET /large HTTP/1.1\r\nHost: example\r\n\r\n";
    let mut peer = server.send(request).await;
    // The response has begun.
    peer.read_u8().await.unwrap();
    // Without a time limit, the drain waits for every connection.
    server.stop.cancel();
    let ended = tokio::time::timeout(TEST_TIMEOUT, server.served).await;
    let outcome = ended.expect("the server must close the connection");
    assert_eq!(outcome.unwrap(), DrainOutcome::Complete);
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_not_text_gets_the_response_of_the_service() {
    let server = RunningServer::start(ConnectionLimits::default()).await;
    for (path, status, text) in [
        ("/names/%C3%A9?a=%FF", "200", "é"),
        ("/names/%FF", "404", "the service's own text"),
        ("/names/a%2F%C3?x=y", "404", "the service's own text"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n");
        let response = read_all(server.send(&request).await).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{response}"
        );
        assert!(response.ends_with(text), "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn fails_a_request_whose_body_stalls() {
    let server = RunningServer::start(ConnectionLimits::default()).await;
    let head = "POST /body HTTP/1.1\r\nHost: example\r\nContent-Length: 9\r\n\r\n";
    let complete = format!("{head}nine char");
    let response = read_all(server.send(&complete).await).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let response = read_all(server.send(&format!("{head}four")).await).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert!(response.contains("stalled for 60 s"), "{response}");
}

#[tokio::test(start_paused = true)]
async fn the_status_distinguishes_a_long_body_from_a_broken_one() {
    let server = RunningServer::start(ConnectionLimits::default()).await;
    let head = "POST /body HTTP/1.1\r\nHost: example\r\n";
    let long = format!(
        "{head}Content-Length: 1048577\r\nConnection: close\r\n\r\n{}",
        "x".repeat((1 << 20) + 1)
    );
    let response = read_all(server.send(&long).await).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    let wrong = format!("{head}Transfer-Encoding: chunked\r\n\r\nno number\r\n");
    let response = read_all(server.send(&wrong).await).await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_makes_progress_may_take_longer_than_the_idle_timeout() {
    let limits = ConnectionLimits {
        body_idle_timeout: Some(Duration::from_secs(10)),
        ..ConnectionLimits::default()
    };
    let server = RunningServer::start(limits).await;
    let head = "POST /body HTTP/1.1\r\nHost: example\r\nContent-Length: 6\r\n\r\n";
    let mut client = server.send(head).await;
    for _ in 0..6 {
        tokio::time::advance(Duration::from_secs(8)).await;
        client.write_all(b"x").await.unwrap();
        // Waits until the server has read the byte, because it creates a new timer for each wait.
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }
    let response = read_all(client).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test]
async fn refuses_a_head_that_is_too_long() {
    let server = RunningServer::start(ConnectionLimits::default()).await;
    let long = "x".repeat(128 * 1024);
    let request = format!("GET / HTTP/1.1\r\nHost: example\r\nX-Long: {long}");
    let mut client = server.client().await;
    // The server may close before it has read everything.
    let _ = client.write_all(request.as_bytes()).await;
    let mut start = [0; 12];
    client.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 431");
}

#[tokio::test(start_paused = true)]
async fn connections_over_the_limit_wait_until_one_ends() {
    let limits = ConnectionLimits {
        max_connections: 1,
        ..ConnectionLimits::default()
    };
    let server = RunningServer::start(limits).await;
    let stalled = server.send("GET /").await;
    let waiting = server
        .send("GET / HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n")
        .await;
    // The stalled connection is closed at the head timeout, and the other one is served.
    let response = read_all(waiting).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    drop(stalled);
}

#[tokio::test(start_paused = true)]
async fn a_stop_closes_idle_connections_and_ends_requests_after_the_drain() {
    let limits = ConnectionLimits {
        drain_timeout: Some(Duration::from_secs(5)),
        ..ConnectionLimits::default()
    };
    let server = RunningServer::start(limits).await;
    server.stop.cancel();
    assert_eq!(server.served.await.unwrap(), DrainOutcome::Complete);

    let server = RunningServer::start(limits).await;
    let mut client = server
        .send(
            "GET / HTTP/1.1\r\nHost: example\r\n\r\nGET /endless HTTP/1.1\r\nHost: example\r\n\r\n",
        )
        .await;
    // The first response shows that the connection is accepted before the stop.
    let mut start = [0; 12];
    client.read_exact(&mut start).await.unwrap();
    server.stop.cancel();
    assert_eq!(server.served.await.unwrap(), DrainOutcome::CutOff);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cut_off_is_dropped_before_the_server_returns() {
    // Each running request has a receiver.
    let requests = Arc::new(watch::Sender::new(()));
    let counted = Arc::clone(&requests);
    let endless = get(move || {
        let request = counted.subscribe();
        async move {
            std::future::pending::<()>().await;
            drop(request);
        }
    });
    let limits = ConnectionLimits {
        drain_timeout: Some(Duration::from_secs(5)),
        ..ConnectionLimits::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let router = Router::new().route("/", endless);
    let serving = serve(listener, router, limits, stop.clone());
    let stopping = async {
        #[expect(clippy::disallowed_methods, reason = "a client of this test")]
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n";
        client.write_all(request).await.unwrap();
        while requests.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        client
    };
    let (outcome, _client) = tokio::join!(serving, stopping);
    assert_eq!(outcome, DrainOutcome::CutOff);
    assert_eq!(requests.receiver_count(), 0);
}
