//! Calls with a stream of replies: order, gaps, slow and dead callers.

use std::time::Duration;

use bytes::Bytes;
use dray_proto::v1::{self, exec_sandbox_event::Event};
use dray_types::{Fault, FaultCode};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::calls::meta_within;
use super::{BusFixture, on_both, wait_soon};
use crate::backend::OutgoingMessage;
use crate::error::ReplyError;
use crate::headers::{self, MessageHeaders};
use crate::{Bus, CallError, Meta, ReplyStream, Responder};

on_both!(
    replies_of_a_stream_arrive_in_order,
    a_slow_reader_delays_the_responder_and_loses_nothing,
    a_dropped_receiver_cancels_the_request,
    a_fault_ends_a_stream_and_the_request_is_not_repeated,
    a_missing_reply_is_a_failure,
    a_reply_is_acknowledged_in_an_inbox_only,
);

const STREAM_SUBJECT: &str = "dray.sandbox.v1.exec-stream";
/// More than an inbox has room for.
const MANY_REPLIES: u32 = 2000;

fn event(number: u32) -> v1::ExecSandboxEvent {
    v1::ExecSandboxEvent {
        event: Some(Event::Stdout(number.to_be_bytes().to_vec())),
    }
}

fn encode_number(number: u32) -> Bytes {
    event(number).encode_to_vec().into()
}

async fn responder(bus: &Bus) -> Responder {
    bus.respond_to(STREAM_SUBJECT, "sandbox-transfer")
        .await
        .unwrap()
}

/// The replies of the next request.
async fn next_stream(responder: &mut Responder) -> ReplyStream {
    responder.next().await.unwrap().into_stream()
}

/// Calls in a task. The receiver has room for one reply.
fn call(
    bus: &Bus,
    meta: Meta,
) -> (
    JoinSet<Result<v1::ExecSandboxEvent, CallError>>,
    mpsc::Receiver<v1::ExecSandboxEvent>,
) {
    let (sender, events) = mpsc::channel(1);
    let bus = bus.clone();
    let mut calling = JoinSet::new();
    calling.spawn(async move {
        let request = v1::ExecSandboxStreamRequest::default();
        bus.call_streaming(&meta, &request, sender).await
    });
    (calling, events)
}

async fn outcome(
    mut calling: JoinSet<Result<v1::ExecSandboxEvent, CallError>>,
) -> Result<v1::ExecSandboxEvent, CallError> {
    calling.join_next().await.unwrap().unwrap()
}

async fn replies_of_a_stream_arrive_in_order(fixture: BusFixture) {
    let mut responder = responder(&fixture.another().await).await;
    let (calling, mut events) = call(&fixture.bus, meta_within(&fixture, 20_000));
    let serving = async {
        let mut replies = next_stream(&mut responder).await;
        replies.send_heartbeat().await.unwrap();
        for number in 0..MANY_REPLIES {
            replies.send(encode_number(number)).await.unwrap();
        }
        replies.finish(Ok(event(MANY_REPLIES))).await;
    };
    let reading = async {
        for number in 0..MANY_REPLIES {
            assert_eq!(events.recv().await, Some(event(number)));
        }
        assert_eq!(events.recv().await, None);
    };
    tokio::join!(serving, reading);
    assert_eq!(outcome(calling).await.unwrap(), event(MANY_REPLIES));
}

async fn a_slow_reader_delays_the_responder_and_loses_nothing(fixture: BusFixture) {
    let mut responder = responder(&fixture.another().await).await;
    let (calling, mut events) = call(&fixture.bus, meta_within(&fixture, 20_000));
    let (sent, mut progress) = mpsc::unbounded_channel();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut replies = next_stream(&mut responder).await;
        for number in 0..MANY_REPLIES {
            replies.send(encode_number(number)).await.unwrap();
            sent.send(number).unwrap();
        }
        replies.finish(Ok(event(MANY_REPLIES))).await;
    });
    // No reply is read, so the responder stops after a limited number of them, far below the capacity of an inbox.
    let mut count = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(300), progress.recv()).await
    {
        count += 1;
    }
    assert!(count < 64, "{count}");
    for number in 0..MANY_REPLIES {
        assert_eq!(events.recv().await, Some(event(number)));
    }
    assert_eq!(outcome(calling).await.unwrap(), event(MANY_REPLIES));
}

async fn a_dropped_receiver_cancels_the_request(fixture: BusFixture) {
    let mut responder = responder(&fixture.another().await).await;
    let (calling, mut events) = call(&fixture.bus, meta_within(&fixture, 20_000));
    let incoming = responder.next().await.unwrap();
    let cancelled = incoming.cancelled();
    let mut replies = incoming.into_stream();
    replies.send(encode_number(0)).await.unwrap();
    assert_eq!(events.recv().await, Some(event(0)));
    drop(events);
    replies.send(encode_number(1)).await.unwrap();
    let failed = outcome(calling).await.unwrap_err();
    assert!(matches!(failed, CallError::Reply(ReplyError::Unread)));
    let reading = async { while responder.next().await.is_some() {} };
    tokio::select! {
        () = cancelled.cancelled() => {}
        () = reading => panic!("the bus must not end"),
    }
}

async fn a_fault_ends_a_stream_and_the_request_is_not_repeated(fixture: BusFixture) {
    let mut responder = responder(&fixture.another().await).await;
    let (calling, mut events) = call(&fixture.bus, meta_within(&fixture, 20_000));
    let mut replies = next_stream(&mut responder).await;
    replies.send(encode_number(0)).await.unwrap();
    assert_eq!(events.recv().await, Some(event(0)));
    // A responder that is restarted says so; without a stream the request would go to another one.
    let fault = Fault::new(FaultCode::Unavailable, "The service is being restarted.")
        .detail("stopping")
        .retry_after(Duration::from_millis(1));
    replies
        .finish::<v1::ExecSandboxEvent>(Err(fault.clone()))
        .await;
    let failed = outcome(calling).await.unwrap_err();
    assert!(matches!(failed, CallError::Fault(found) if found == fault));
}

async fn a_missing_reply_is_a_failure(fixture: BusFixture) {
    let mut responder = responder(&fixture.another().await).await;
    let (calling, mut events) = call(&fixture.bus, meta_within(&fixture, 20_000));
    let incoming = responder.next().await.unwrap();
    let subject = incoming.reply.clone().unwrap();
    let mut wrong = MessageHeaders::new();
    wrong.set(headers::PROGRESS_HEADER, "1");
    wrong.set(headers::CHUNK_HEADER, "2");
    let second = OutgoingMessage {
        subject,
        headers: wrong,
        payload: encode_number(1),
    };
    fixture.backend().publish(None, &second).await.unwrap();
    let failed = outcome(calling).await.unwrap_err();
    assert!(matches!(failed, CallError::Reply(ReplyError::Missing)));
    assert_eq!(events.recv().await, None);
}

async fn a_reply_is_acknowledged_in_an_inbox_only(fixture: BusFixture) {
    const KEY: &str = "$KV.dray_sessions.a";
    let mut key = fixture.backend().subscribe(KEY, None).await.unwrap();
    let mut responder = responder(&fixture.another().await).await;
    let (calling, _events) = call(&fixture.bus, meta_within(&fixture, 20_000));
    let incoming = responder.next().await.unwrap();
    let mut headers = MessageHeaders::new();
    headers.set(headers::PROGRESS_HEADER, "1");
    headers.set(headers::CHUNK_HEADER, "1");
    let first = OutgoingMessage {
        subject: incoming.reply.clone().unwrap(),
        headers,
        payload: encode_number(0),
    };
    fixture.backend().publish(Some(KEY), &first).await.unwrap();
    let failed = outcome(calling).await.unwrap_err();
    assert!(matches!(
        failed,
        CallError::Reply(ReplyError::Acknowledgement)
    ));
    let last = super::outgoing_message(KEY, "", "last");
    fixture.backend().publish(None, &last).await.unwrap();
    assert_eq!(key.next().await.unwrap().payload, "last");
}

/// The server reports that the inbox of a process that died has no listener, so the end is noticed without a message.
#[tokio::test]
async fn a_caller_whose_connection_ended_is_gone() {
    let fixture = BusFixture::on_nats().await;
    let mut responder = responder(&fixture.bus).await;
    let caller = fixture.another().await;
    let (mut calling, mut events) = call(&caller, meta_within(&fixture, 60_000));
    let mut replies = next_stream(&mut responder).await;
    replies.send(encode_number(0)).await.unwrap();
    assert_eq!(events.recv().await, Some(event(0)));
    let backend = caller.inner.backend.clone();
    calling.abort_all();
    backend.close().await;
    wait_soon("the end of the caller", async {
        // The first heartbeat may still reach a connection that is being closed.
        while replies.send_heartbeat().await.is_ok() {
            let gone = tokio::time::timeout(Duration::from_millis(50), replies.caller_gone()).await;
            if gone.is_ok() {
                break;
            }
        }
    })
    .await;
}
