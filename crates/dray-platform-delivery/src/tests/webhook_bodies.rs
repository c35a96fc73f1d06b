//! Memory and time for the bodies of requests to the listener.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;

use super::inbound::{fixture, post, send_request};

#[tokio::test]
async fn a_webhook_is_refused_while_other_bodies_hold_the_memory() {
    let fixture = fixture(|_| {}).await;
    let memory = &fixture.replica.inbound.body_memory;
    let send = async || {
        let request = post("/platforms/bot/webhook").body(Body::from("{}"));
        send_request(&fixture, request.unwrap()).await.0
    };
    let others = memory.try_acquire(memory.max_bytes());
    assert_eq!(send().await, StatusCode::SERVICE_UNAVAILABLE);
    drop(others);
    assert_eq!(send().await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_webhook_that_sends_single_bytes_is_refused_and_its_memory_is_free_again() {
    let fixture = fixture(|_| {}).await;
    tokio::time::pause(); // paused clock
    let bytes = futures_util::stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_secs(10)).await; // paused clock
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
    });
    let request = post("/platforms/bot/webhook").body(Body::from_stream(bytes));
    let (status, _) = send_request(&fixture, request.unwrap()).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    let memory = &fixture.replica.inbound.body_memory;
    assert!(memory.try_acquire(memory.max_bytes()).is_some());
}
