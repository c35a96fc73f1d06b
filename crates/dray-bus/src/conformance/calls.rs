//! Cases of calls: messaging-reliability 20, and the fault list of 19.11.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dray_proto::{MAX_MESSAGE_BYTES, v1};
use dray_testkit::eventually;
use dray_types::{Deadline, Fault, FaultCode};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{BusFixture, on_both, outgoing_message, wait_soon};
use crate::backend::NO_RESPONDERS;
use crate::{Bus, CallError, IncomingRequest, Meta, Responder};

on_both!(
    a_call_is_answered_by_one_of_its_group,
    a_request_that_no_caller_sent_as_this_call_is_refused_without_a_reply,
    a_cancellation_with_a_reply_subject_cancels_nothing,
    a_call_to_each_gets_the_reply_or_fault_of_every_replica,
    a_call_to_each_ends_without_replicas_and_without_replies,
    a_call_without_a_responder_fails_before_its_deadline,
    the_bus_reports_a_missing_responder_immediately,
    a_call_is_retried_when_its_responder_dies,
    a_call_without_a_response_ends_at_its_deadline,
    a_call_after_its_deadline_is_not_sent,
    faults_reach_the_caller_unchanged,
    a_call_to_an_overloaded_responder_is_retried_with_the_same_operation,
    a_call_is_not_retried_after_a_fault_without_retry_advice,
    a_request_above_the_message_limit_is_refused,
    the_circuit_of_a_silent_area_opens_and_is_probed,
);

pub(super) const FETCH_SUBJECT: &str = "dray.egress.v1.fetch";

pub(super) fn fetch_request(url: &str) -> v1::FetchRequest {
    v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    }
}

pub(super) fn fetch_reply(name: &str) -> v1::FetchReply {
    v1::FetchReply {
        name: name.to_owned(),
        ..v1::FetchReply::default()
    }
}

pub(super) fn meta_within(fixture: &BusFixture, millis: u64) -> Meta {
    let deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_millis(millis));
    super::call_meta("op", deadline)
}

pub(super) async fn fetch_responder(bus: &Bus) -> Responder {
    bus.respond_to(FETCH_SUBJECT, "egress-fetcher")
        .await
        .unwrap()
}

/// Serves in the background until the set is dropped.
pub(super) fn serve_in_background<F: Future<Output = ()> + Send + 'static>(
    mut responder: Responder,
    answer: impl Fn(IncomingRequest) -> F + Send + 'static,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(incoming) = responder.next().await {
            answer(incoming).await;
        }
    });
    tasks
}

async fn a_call_is_answered_by_one_of_its_group(fixture: BusFixture) {
    let other = fixture.another().await;
    let counts = [Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0))];
    let mut serving = Vec::new();
    for (bus, count) in [&fixture.bus, &other].into_iter().zip(&counts) {
        let count = Arc::clone(count);
        serving.push(serve_in_background(
            fetch_responder(bus).await,
            move |incoming| {
                count.fetch_add(1, Ordering::SeqCst);
                async move {
                    let request: v1::FetchRequest = incoming.decode().unwrap();
                    incoming.answer(Ok(fetch_reply(&request.url))).await;
                }
            },
        ));
    }
    for number in 0..60 {
        let answer = fixture
            .bus
            .call(
                &meta_within(&fixture, 5_000),
                &fetch_request(&number.to_string()),
            )
            .await
            .unwrap();
        assert_eq!(answer.name, number.to_string());
    }
    let [one, two] = counts.map(|count| count.load(Ordering::SeqCst));
    assert_eq!(one + two, 60, "each request reaches one member");
    assert!(one > 5 && two > 5, "{one} {two}");
}

/// A request with this reply subject and these headers in addition to its envelope.
async fn publish_request(
    fixture: &BusFixture,
    subject: &str,
    reply: Option<&str>,
    header: Option<&str>,
) {
    let mut message = outgoing_message(subject, "", "");
    message.headers = meta_within(fixture, 20_000).headers("dray.v1.FetchRequest/1");
    if let Some(name) = header {
        message.headers.append(name, "1");
    }
    fixture.backend().publish(reply, &message).await.unwrap();
}

async fn a_request_that_no_caller_sent_as_this_call_is_refused_without_a_reply(
    fixture: BusFixture,
) {
    const OTHER_CALL: &str = "dray.sandbox.v1.exec";
    let mut responder = fetch_responder(&fixture.bus).await;
    let mut other = fixture.backend().subscribe(OTHER_CALL, None).await.unwrap();
    let mut inbox = fixture.backend().inbox();
    let address = inbox.address().to_owned();
    for (reply, header) in [
        (Some(OTHER_CALL), None),
        (Some("$KV.dray_sessions.a"), None),
        (None, None),
        (Some(address.as_str()), Some("Nats-Sequence")),
    ] {
        publish_request(&fixture, FETCH_SUBJECT, reply, header).await;
        let incoming = responder.next().await.unwrap();
        let fault = incoming.meta().unwrap_err();
        assert_eq!(fault.detail, "foreign_request", "{reply:?} {header:?}");
        incoming.send_heartbeat().await;
        incoming.answer(Ok(fetch_reply("done"))).await;
    }
    // A request from an inbox is handled; its reply is the first message there.
    publish_request(&fixture, FETCH_SUBJECT, Some(&address), None).await;
    let incoming = responder.next().await.unwrap();
    incoming.meta().unwrap();
    incoming.answer(Ok(fetch_reply("done"))).await;
    let reply = inbox.next().await.unwrap();
    assert_eq!(
        reply.headers.get(crate::headers::OUTCOME_HEADER),
        Some("ok")
    );
    publish_request(&fixture, OTHER_CALL, None, Some("Last")).await;
    let first = other.next().await.unwrap();
    assert_eq!(first.headers.get("Last"), Some("1"), "{first:?}");
}

async fn a_cancellation_with_a_reply_subject_cancels_nothing(fixture: BusFixture) {
    let mut responder = fetch_responder(&fixture.bus).await;
    let inbox = fixture.backend().inbox();
    publish_request(&fixture, FETCH_SUBJECT, Some(inbox.address()), None).await;
    let incoming = responder.next().await.unwrap();
    let cancelled = incoming.cancelled();
    let cancel = "dray.egress.v1.cancel";
    publish_request(&fixture, cancel, Some("$JS.ACK.a"), None).await;
    publish_request(&fixture, cancel, None, Some("Nats-Sequence")).await;
    publish_request(&fixture, FETCH_SUBJECT, Some(inbox.address()), None).await;
    let second = responder.next().await.unwrap();
    assert!(!cancelled.is_cancelled());
    publish_request(&fixture, cancel, None, None).await;
    let mut reading = std::pin::pin!(responder.next());
    tokio::select! {
        _ = &mut reading => panic!("there is no third request"),
        () = wait_soon("the cancellation", cancelled.cancelled()) => {}
    }
    drop(second);
}

/// What any client with a right to these JetStream requests can do: the server replies where the client wants.
#[tokio::test]
async fn messages_of_streams_are_not_handled_as_calls() {
    let fixture = BusFixture::on_nats().await;
    fixture.provision(Duration::from_secs(30)).await;
    let mut responder = fetch_responder(&fixture.bus).await;
    let work = super::tool_call("read");
    let meta = fixture.meta("op");
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let keys = fixture.bus.key_value("dray_ledger");
    keys.create("a.b", "one".into()).await.unwrap();
    for request in [
        "$JS.API.CONSUMER.MSG.NEXT.DRAY_WORK.file-resolver",
        "$JS.API.DIRECT.GET.KV_dray_ledger.$KV.dray_ledger.a.b",
        "$JS.API.STREAM.INFO.DRAY_WORK",
        "dray.work.toolcall.v1.resolve.acme",
    ] {
        let request = outgoing_message(request, "", "");
        let sent = fixture.backend().publish(Some(FETCH_SUBJECT), &request);
        sent.await.unwrap();
        let incoming = wait_soon("the reply of the server", responder.next()).await;
        let fault = incoming.unwrap().meta().unwrap_err();
        assert_eq!(fault.detail, "foreign_request", "{request:?}");
    }
}

async fn a_call_to_each_gets_the_reply_or_fault_of_every_replica(fixture: BusFixture) {
    let other = fixture.another().await;
    let mut serving = Vec::new();
    for (bus, name) in [
        (&fixture.bus, Ok("one")),
        (&other, Ok("two")),
        (&other, Err(FaultCode::Denied)),
    ] {
        let responder = bus.respond_to_each(FETCH_SUBJECT).await.unwrap();
        serving.push(serve_in_background(responder, move |incoming| async move {
            let reply = name.map(fetch_reply);
            incoming
                .answer(reply.map_err(|code| Fault::new(code, "No.")))
                .await;
        }));
    }
    let request = fetch_request("");
    let quiet_time = Duration::from_secs(1);
    let started = Instant::now();
    // The server may learn of the subscriptions of the other connection after the first request.
    let replies = eventually("every replica to respond", async || {
        let meta = meta_within(&fixture, 20_000);
        let replies = fixture.bus.call_each(&meta, &request, quiet_time).await;
        replies.ok().filter(|replies| replies.len() == 3)
    })
    .await;
    // The wait ends soon after the last reply, and not at the deadline.
    assert!(started.elapsed() < Duration::from_secs(15));
    let mut names: Vec<String> = replies
        .into_iter()
        .map(|reply| match reply {
            Ok(reply) => reply.name,
            Err(error) => Fault::from(error).code.to_string(),
        })
        .collect();
    names.sort();
    assert_eq!(names, ["denied", "one", "two"]);
    // A call of one responder gets one of the replies, and ignores the others.
    let answer = fixture
        .bus
        .call_once(&meta_within(&fixture, 20_000), &request)
        .await;
    assert!(
        answer.is_ok() || matches!(answer, Err(CallError::Fault(_))),
        "{answer:?}"
    );
}

async fn a_call_to_each_ends_without_replicas_and_without_replies(fixture: BusFixture) {
    let request = fetch_request("");
    let quiet_time = Duration::from_millis(100);
    let error = fixture
        .bus
        .call_each(&meta_within(&fixture, 20_000), &request, quiet_time)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NoResponder(_)), "{error}");
    let responder = fixture.bus.respond_to_each(FETCH_SUBJECT).await.unwrap();
    let _serving = serve_in_background(responder, |incoming| async move { incoming.abandon() });
    let error = fixture
        .bus
        .call_each(&meta_within(&fixture, 300), &request, quiet_time)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)), "{error}");
}

async fn a_call_without_a_responder_fails_before_its_deadline(fixture: BusFixture) {
    let error = fixture
        .bus
        .call(&meta_within(&fixture, 5_000), &fetch_request(""))
        .await
        .unwrap_err();
    // At the deadline it would be `CallError::Timeout`.
    assert!(matches!(error, CallError::NoResponder(_)), "{error}");
    assert_eq!(Fault::from(error).code, FaultCode::Unavailable);
}

async fn the_bus_reports_a_missing_responder_immediately(fixture: BusFixture) {
    let mut inbox = fixture.backend().inbox();
    let address = inbox.address().to_owned();
    fixture
        .backend()
        .publish(
            Some(&address),
            &outgoing_message("dray.nobody.v1.x", "", ""),
        )
        .await
        .unwrap();
    let notice = wait_soon("the notice", inbox.next()).await.unwrap();
    assert_eq!(notice.status, Some(NO_RESPONDERS));
}

async fn a_call_is_retried_when_its_responder_dies(fixture: BusFixture) {
    let attempts = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&attempts);
    let _serving = serve_in_background(fetch_responder(&fixture.bus).await, move |incoming| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                incoming.abandon();
            } else {
                incoming.answer(Ok(fetch_reply("second"))).await;
            }
        }
    });
    // The first attempt gets two fifths of the time, and there is a second one if half of it is left (C-6). A tenth of
    // it may pass before the first one begins.
    let answer = fixture
        .bus
        .call(&meta_within(&fixture, 10_000), &fetch_request(""))
        .await
        .unwrap();
    assert_eq!(
        (answer.name.as_str(), attempts.load(Ordering::SeqCst)),
        ("second", 2)
    );
}

async fn a_call_without_a_response_ends_at_its_deadline(fixture: BusFixture) {
    let _serving =
        serve_in_background(fetch_responder(&fixture.bus).await, |incoming| async move {
            incoming.abandon();
        });
    let started = Instant::now();
    let error = fixture
        .bus
        .call(&meta_within(&fixture, 400), &fetch_request(""))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(390));
    assert_eq!(Fault::from(error).code, FaultCode::Timeout);
}

async fn a_call_after_its_deadline_is_not_sent(fixture: BusFixture) {
    let mut responder = fetch_responder(&fixture.bus).await;
    let meta = super::call_meta("op", Deadline::from_unix_ms(1));
    let error = fixture
        .bus
        .call(&meta, &fetch_request(""))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)), "{error}");
    responder.drain().await;
    assert!(wait_soon("the end", responder.next()).await.is_none());
}

async fn faults_reach_the_caller_unchanged(fixture: BusFixture) {
    let fault = Fault::new(FaultCode::Denied, "No.")
        .detail("ssrf_blocked")
        .advice("Ask elsewhere.")
        .trace_id("4bf9");
    let sent = fault.clone();
    let _serving = serve_in_background(fetch_responder(&fixture.bus).await, move |incoming| {
        let fault = sent.clone();
        async move { incoming.answer::<v1::FetchReply>(Err(fault)).await }
    });
    let error = fixture
        .bus
        .call(&meta_within(&fixture, 5_000), &fetch_request(""))
        .await
        .unwrap_err();
    assert_eq!(Fault::from(error), fault);
}

/// Answers with `fault` until the third request, which succeeds; returns the operation ids of the requests.
async fn call_past_faults(
    fixture: &BusFixture,
    fault: Fault,
) -> (Result<v1::FetchReply, CallError>, Vec<String>) {
    let received = Arc::new(std::sync::Mutex::new(Vec::new()));
    let operations = Arc::clone(&received);
    let _serving = serve_in_background(fetch_responder(&fixture.bus).await, move |incoming| {
        let operation = incoming.meta().unwrap().operation.to_string();
        let mut operations = operations.lock().unwrap();
        operations.push(operation);
        let result = if operations.len() < 3 {
            Err(fault.clone())
        } else {
            Ok(fetch_reply("third"))
        };
        async move { incoming.answer(result).await }
    });
    let result = fixture
        .bus
        .call(&meta_within(fixture, 5_000), &fetch_request(""))
        .await;
    let operations = received.lock().unwrap().clone();
    (result, operations)
}

async fn a_call_to_an_overloaded_responder_is_retried_with_the_same_operation(fixture: BusFixture) {
    let busy = Fault::new(FaultCode::RateLimited, "busy").retry_after(Duration::from_millis(20));
    let (result, operations) = call_past_faults(&fixture, busy).await;
    assert_eq!(result.unwrap().name, "third");
    assert_eq!(operations, ["op", "op", "op"]);
}

async fn a_call_is_not_retried_after_a_fault_without_retry_advice(fixture: BusFixture) {
    let broken = Fault::new(FaultCode::Unavailable, "broken");
    let (result, operations) = call_past_faults(&fixture, broken).await;
    assert!(matches!(result, Err(CallError::Fault(_))));
    assert_eq!(operations.len(), 1);
}

async fn a_request_above_the_message_limit_is_refused(fixture: BusFixture) {
    let _serving =
        serve_in_background(fetch_responder(&fixture.bus).await, |incoming| async move {
            let request: v1::FetchRequest = incoming.decode().unwrap();
            incoming.answer(Ok(fetch_reply(&request.url))).await;
        });
    let meta = meta_within(&fixture, 5_000);
    let frame = meta.headers("dray.v1.FetchRequest/1").wire_size();
    // The four bytes are the tag and the length of the only field.
    let largest = MAX_MESSAGE_BYTES - frame - 4;
    let inline = fetch_request(&"x".repeat(dray_proto::MAX_INLINE_BYTES));
    assert!(fixture.bus.call(&meta, &inline).await.is_ok());
    assert!(
        fixture
            .bus
            .call(&meta, &fetch_request(&"x".repeat(largest)))
            .await
            .is_ok()
    );
    let error = fixture
        .bus
        .call(&meta, &fetch_request(&"x".repeat(largest + 1)))
        .await
        .unwrap_err();
    assert!(
        matches!(error, CallError::TooLarge { size, limit } if size == limit + 1),
        "{error}"
    );
}

async fn the_circuit_of_a_silent_area_opens_and_is_probed(fixture: BusFixture) {
    let _serving =
        serve_in_background(fetch_responder(&fixture.bus).await, |incoming| async move {
            let request: v1::FetchRequest = incoming.decode().unwrap();
            match request.url.as_str() {
                "silence" => incoming.abandon(),
                _ => incoming.answer(Ok(fetch_reply("awake"))).await,
            }
        });
    let silence = fetch_request("silence");
    for _ in 0..20 {
        let error = fixture
            .bus
            .call(&meta_within(&fixture, 20), &silence)
            .await
            .unwrap_err();
        assert!(matches!(error, CallError::Timeout(_)), "{error}");
    }
    let resting = fixture
        .bus
        .call(&meta_within(&fixture, 5_000), &fetch_request(""))
        .await;
    assert!(
        matches!(resting, Err(CallError::CircuitOpen(_))),
        "{resting:?}"
    );
    let fixture = &fixture;
    eventually("the rest to end", async || {
        // A probe that is dropped half-way must leave room for the next one.
        let meta = meta_within(fixture, 5_000);
        let dropped = fixture.bus.call(&meta, &silence);
        let dropped = tokio::time::timeout(Duration::from_millis(5), dropped).await;
        dropped.is_err().then_some(())
    })
    .await;
    let answer = fixture
        .bus
        .call(&meta_within(fixture, 5_000), &fetch_request(""))
        .await;
    assert_eq!(answer.unwrap().name, "awake");
}
