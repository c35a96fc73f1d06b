//! Calls: messaging-reliability 20, and the fault list of 19.11.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dray_proto::{MESSAGE_LIMIT, v1};
use dray_types::{AppId, Deadline, Fault, FaultCode, SessionId, TraceContext};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{World, on_both, outgoing, soon};
use crate::backend::NO_RESPONDERS;
use crate::{Bus, CallError, Incoming, Meta, Responder, headers};

on_both!(
    a_call_is_answered_by_one_of_its_group,
    nobody_there_is_a_fault_before_the_deadline,
    nobody_there_is_told_at_once_by_the_bus,
    a_responder_that_dies_with_the_request_costs_one_try,
    silence_ends_with_the_deadline,
    a_passed_deadline_asks_nobody,
    faults_cross_as_they_are,
    an_overloaded_responder_is_asked_again_with_the_same_operation,
    a_fault_that_says_never_is_not_asked_again,
    requests_and_replies_keep_to_the_message_limit,
    a_reply_that_is_too_large_becomes_a_fault,
    a_request_dropped_without_an_answer_is_answered,
    an_envelope_arrives_as_it_was_sent,
    a_malformed_request_is_answered_with_a_fault,
    progress_comes_before_the_answer,
    a_caller_that_goes_away_cancels,
    a_late_reply_reaches_nobody,
    a_drained_responder_answers_what_it_has_and_takes_nothing_new,
    what_the_bus_owes_is_sent_before_it_closes,
);

const SUBJECT: &str = "dray.egress.v1.fetch";

fn request(url: &str) -> v1::FetchRequest {
    v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    }
}

fn reply(name: &str) -> v1::FetchReply {
    v1::FetchReply {
        name: name.to_owned(),
        ..v1::FetchReply::default()
    }
}

fn within(world: &World, millis: u64) -> Meta {
    let deadline = Deadline::after(world.clock.now_ms(), Duration::from_millis(millis));
    super::meta("op", deadline)
}

async fn responder(bus: &Bus) -> Responder {
    bus.respond_to(SUBJECT, "egress-fetcher").await.unwrap()
}

/// Serves in the background until the set is dropped.
fn serve<F: Future<Output = ()> + Send + 'static>(
    mut responder: Responder,
    answer: impl Fn(Incoming) -> F + Send + 'static,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(incoming) = responder.next().await {
            answer(incoming).await;
        }
    });
    tasks
}

async fn a_call_is_answered_by_one_of_its_group(world: World) {
    let other = world.another().await;
    let counts = [Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0))];
    let mut serving = Vec::new();
    for (bus, count) in [&world.bus, &other].into_iter().zip(&counts) {
        let count = Arc::clone(count);
        serving.push(serve(responder(bus).await, move |incoming| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                let asked: v1::FetchRequest = incoming.decode().unwrap();
                incoming.answer(Ok(reply(&asked.url))).await;
            }
        }));
    }
    for number in 0..60 {
        let answer = world
            .bus
            .call(&within(&world, 5_000), &request(&number.to_string()))
            .await
            .unwrap();
        assert_eq!(answer.name, number.to_string());
    }
    let [one, two] = counts.map(|count| count.load(Ordering::SeqCst));
    assert_eq!(one + two, 60, "each request reaches one member");
    assert!(one > 5 && two > 5, "{one} {two}");
}

async fn nobody_there_is_a_fault_before_the_deadline(world: World) {
    let begun = Instant::now();
    let error = world
        .bus
        .call(&within(&world, 700), &request(""))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NoResponder(_)), "{error}");
    assert!(begun.elapsed() <= Duration::from_millis(750));
    assert_eq!(Fault::from(error).code, FaultCode::Unavailable);
}

async fn nobody_there_is_told_at_once_by_the_bus(world: World) {
    let mut inbox = world.backend().inbox();
    let address = inbox.address().to_owned();
    world
        .backend()
        .publish(Some(&address), outgoing("dray.nobody.v1.x", "", ""))
        .await
        .unwrap();
    let notice = soon("the notice", inbox.next()).await.unwrap();
    assert_eq!(notice.status, Some(NO_RESPONDERS));
}

async fn a_responder_that_dies_with_the_request_costs_one_try(world: World) {
    let seen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&seen);
    let _serving = serve(responder(&world.bus).await, move |incoming| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                incoming.abandon();
            } else {
                incoming.answer(Ok(reply("second"))).await;
            }
        }
    });
    let answer = world
        .bus
        .call(&within(&world, 1_000), &request(""))
        .await
        .unwrap();
    assert_eq!(
        (answer.name.as_str(), seen.load(Ordering::SeqCst)),
        ("second", 2)
    );
}

async fn silence_ends_with_the_deadline(world: World) {
    let _serving = serve(responder(&world.bus).await, |incoming| async move {
        incoming.abandon();
    });
    let begun = Instant::now();
    let error = world
        .bus
        .call(&within(&world, 400), &request(""))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(390));
    assert_eq!(Fault::from(error).code, FaultCode::Timeout);
}

async fn a_passed_deadline_asks_nobody(world: World) {
    let mut responder = responder(&world.bus).await;
    let meta = super::meta("op", Deadline::from_unix_ms(1));
    let error = world.bus.call(&meta, &request("")).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout(_)), "{error}");
    responder.drain().await;
    assert!(soon("the end", responder.next()).await.is_none());
}

async fn faults_cross_as_they_are(world: World) {
    let fault = Fault::new(FaultCode::Denied, "No.")
        .detail("ssrf_blocked")
        .advice("Ask elsewhere.")
        .trace_id("4bf9");
    let sent = fault.clone();
    let _serving = serve(responder(&world.bus).await, move |incoming| {
        let fault = sent.clone();
        async move { incoming.answer::<v1::FetchReply>(Err(fault)).await }
    });
    let error = world
        .bus
        .call(&within(&world, 5_000), &request(""))
        .await
        .unwrap_err();
    assert_eq!(Fault::from(error), fault);
}

/// Answers with `fault` until the third request, which succeeds; tells the operations seen.
async fn call_past_faults(
    world: &World,
    fault: Fault,
) -> (Result<v1::FetchReply, CallError>, Vec<String>) {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let operations = Arc::clone(&seen);
    let _serving = serve(responder(&world.bus).await, move |incoming| {
        let operation = incoming.meta().unwrap().operation.to_string();
        let mut operations = operations.lock().unwrap();
        operations.push(operation);
        let result = if operations.len() < 3 {
            Err(fault.clone())
        } else {
            Ok(reply("third"))
        };
        async move { incoming.answer(result).await }
    });
    let result = world.bus.call(&within(world, 5_000), &request("")).await;
    let seen = seen.lock().unwrap().clone();
    (result, seen)
}

async fn an_overloaded_responder_is_asked_again_with_the_same_operation(world: World) {
    let busy = Fault::new(FaultCode::RateLimited, "busy").retry_after(Duration::from_millis(20));
    let (result, operations) = call_past_faults(&world, busy).await;
    assert_eq!(result.unwrap().name, "third");
    assert_eq!(operations, ["op", "op", "op"]);
}

async fn a_fault_that_says_never_is_not_asked_again(world: World) {
    let broken = Fault::new(FaultCode::Unavailable, "broken");
    let (result, operations) = call_past_faults(&world, broken).await;
    assert!(matches!(result, Err(CallError::Fault(_))));
    assert_eq!(operations.len(), 1);
}

async fn requests_and_replies_keep_to_the_message_limit(world: World) {
    let _serving = serve(responder(&world.bus).await, |incoming| async move {
        let asked: v1::FetchRequest = incoming.decode().unwrap();
        incoming.answer(Ok(reply(&asked.url))).await;
    });
    let meta = within(&world, 5_000);
    let frame = meta.headers("dray.v1.FetchRequest/1").wire_size();
    // Tag and length of the one field.
    let largest = MESSAGE_LIMIT - frame - 4;
    let inline = request(&"x".repeat(dray_proto::INLINE_LIMIT));
    assert!(world.bus.call(&meta, &inline).await.is_ok());
    assert!(
        world
            .bus
            .call(&meta, &request(&"x".repeat(largest)))
            .await
            .is_ok()
    );
    let error = world
        .bus
        .call(&meta, &request(&"x".repeat(largest + 1)))
        .await
        .unwrap_err();
    assert!(
        matches!(error, CallError::TooLarge { size, limit } if size == limit + 1),
        "{error}"
    );
}

async fn a_reply_that_is_too_large_becomes_a_fault(world: World) {
    let _serving = serve(responder(&world.bus).await, |incoming| async move {
        incoming.answer(Ok(reply(&"x".repeat(MESSAGE_LIMIT)))).await;
    });
    let error = world
        .bus
        .call(&within(&world, 5_000), &request(""))
        .await
        .unwrap_err();
    let fault = Fault::from(error);
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::TooLarge, "reply_too_large")
    );
}

async fn a_request_dropped_without_an_answer_is_answered(world: World) {
    let _serving = serve(responder(&world.bus).await, |incoming| async move {
        drop(incoming);
    });
    let error = world
        .bus
        .call(&within(&world, 5_000), &request(""))
        .await
        .unwrap_err();
    assert_eq!(Fault::from(error), Fault::internal());
}

async fn an_envelope_arrives_as_it_was_sent(world: World) {
    let mut responder = responder(&world.bus).await;
    let sent = within(&world, 5_000)
        .with_session(SessionId::new("s").unwrap())
        .with_app(AppId::new("a").unwrap())
        .with_trace(TraceContext::new(
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "k=v",
        ));
    let answering = async {
        let incoming = responder.next().await.unwrap();
        assert_eq!(incoming.subject(), SUBJECT);
        assert_eq!(
            incoming.headers().get(headers::SCHEMA),
            Some("dray.v1.FetchRequest/1")
        );
        let meta = incoming.meta().unwrap();
        incoming.answer(Ok(reply(""))).await;
        meta
    };
    let asked = request("x");
    let (arrived, answer) = tokio::join!(answering, world.bus.call(&sent, &asked));
    answer.unwrap();
    assert_eq!(arrived, sent);
}

async fn a_malformed_request_is_answered_with_a_fault(world: World) {
    let _serving = serve(responder(&world.bus).await, |incoming| async move {
        let result = match incoming.meta() {
            Ok(_) => incoming.decode::<v1::FetchRequest>().map(|_| reply("")),
            Err(fault) => Err(fault),
        };
        incoming.answer(result).await;
    });
    let valid = within(&world, 5_000).headers("x/1");
    let reserved = {
        let mut headers = valid.clone();
        headers.append("Nats-Rollup", "all");
        headers
    };
    for (headers, payload) in [
        (crate::Headers::new(), &b""[..]),
        (reserved, &b""[..]),
        (valid, &b"\xff\xff\xff"[..]),
    ] {
        let mut inbox = world.backend().inbox();
        let address = inbox.address().to_owned();
        let mut message = outgoing(SUBJECT, "", payload.to_vec());
        message.headers = headers;
        world
            .backend()
            .publish(Some(&address), message)
            .await
            .unwrap();
        let answer = soon("the fault", inbox.next()).await.unwrap();
        assert_eq!(answer.headers.get(headers::OUTCOME), Some("fault"));
        let fault: v1::Fault = prost::Message::decode(answer.payload).unwrap();
        assert_eq!(fault.code(), v1::FaultCode::InvalidArgument);
    }
}

async fn progress_comes_before_the_answer(world: World) {
    let _serving = serve(responder(&world.bus).await, |incoming| async move {
        for step in ["one", "two"] {
            incoming.progress(&reply(step)).await;
        }
        incoming.answer(Ok(reply("done"))).await;
    });
    let mut steps = Vec::new();
    let answer = world
        .bus
        .call_with_progress(&within(&world, 5_000), &request(""), &mut |payload| {
            let step: v1::FetchReply = prost::Message::decode(payload).unwrap();
            steps.push(step.name);
        })
        .await
        .unwrap();
    assert_eq!(
        (answer.name.as_str(), steps.join(" ")),
        ("done", "one two".to_owned())
    );
}

async fn a_caller_that_goes_away_cancels(world: World) {
    let mut first = responder(&world.bus).await;
    let caller = world.another().await;
    let meta = within(&world, 20_000);
    let other = meta.clone().with_operation(dray_types::OperationId::mint());
    let asked = request("");
    let mut gives_up = Box::pin(caller.call(&meta, &asked));
    let mut stays = Box::pin(caller.call(&other, &asked));
    let mut held = Vec::new();
    while held.len() < 2 {
        tokio::select! {
            _ = &mut gives_up => panic!("nobody answered"),
            _ = &mut stays => panic!("nobody answered"),
            incoming = first.next() => held.push(incoming.unwrap()),
        }
    }
    drop(gives_up);
    let cancelled = |operation: &str| {
        held.iter()
            .find(|incoming| incoming.meta().unwrap().operation.as_str() == operation)
            .unwrap()
            .cancelled()
    };
    let (gone, kept) = (cancelled("op"), cancelled(other.operation.as_str()));
    soon("the cancellation", async {
        tokio::select! {
            () = gone.cancelled() => {}
            _ = first.next() => panic!("no further request was sent"),
        }
    })
    .await;
    assert!(!kept.is_cancelled());
}

async fn a_late_reply_reaches_nobody(world: World) {
    let mut responder = responder(&world.bus).await;
    let asked = request("late");
    let meta = within(&world, 200);
    let (first, incoming) = tokio::join!(world.bus.call(&meta, &asked), responder.next());
    assert!(matches!(first, Err(CallError::Timeout(_))));
    incoming.unwrap().answer(Ok(reply("late"))).await;
    let _serving = serve(responder, |incoming| async move {
        let asked: v1::FetchRequest = incoming.decode().unwrap();
        incoming.answer(Ok(reply(&asked.url))).await;
    });
    let answer = world
        .bus
        .call(&within(&world, 5_000), &request("now"))
        .await
        .unwrap();
    // The retried first request may still be answered; the second call gets its own answer.
    assert_eq!(answer.name, "now");
}

async fn a_drained_responder_answers_what_it_has_and_takes_nothing_new(world: World) {
    let mut responder = responder(&world.bus).await;
    let caller = world.another().await;
    let meta = within(&world, 10_000);
    let asked = request("");
    let mut calls: Vec<_> = (0..5)
        .map(|_| Box::pin(caller.call(&meta, &asked)))
        .collect();
    let mut held = Vec::new();
    while held.len() < 5 {
        tokio::select! {
            _ = futures_util::future::select_all(&mut calls) => panic!("nobody answered"),
            incoming = responder.next() => held.push(incoming.unwrap()),
        }
    }
    responder.drain().await;
    assert!(soon("the end", responder.next()).await.is_none());
    for incoming in held {
        incoming.answer(Ok(reply("in hand"))).await;
    }
    for call in calls {
        assert_eq!(soon("an answer", call).await.unwrap().name, "in hand");
    }
    let late = caller.call(&within(&world, 300), &asked).await;
    assert!(matches!(late, Err(CallError::NoResponder(_))), "{late:?}");
}

async fn what_the_bus_owes_is_sent_before_it_closes(world: World) {
    let serving = world.another().await;
    if world.server.is_none() {
        // One world has one bus in process: closing it closes the caller as well.
        return;
    }
    let mut responder = responder(&serving).await;
    let meta = within(&world, 10_000);
    let asked = request("");
    let closing = async {
        let incoming = responder.next().await.unwrap();
        drop(incoming);
        responder.drain().await;
        serving.drain().await;
    };
    let (answer, ()) = tokio::join!(world.bus.call(&meta, &asked), closing);
    assert_eq!(Fault::from(answer.unwrap_err()), Fault::internal());
}
