//! Cases of responses to calls: messaging-reliability 20 from the responder's side.

use dray_proto::{MAX_MESSAGE_BYTES, v1};
use dray_types::{AppId, Fault, FaultCode, SessionId, TraceContext};

use super::calls::{
    FETCH_SUBJECT, fetch_reply, fetch_request, fetch_responder, meta_within, serve_in_background,
};
use super::{BusFixture, on_both, outgoing_message, wait_soon};
use crate::{CallError, headers};

on_both!(
    an_envelope_arrives_as_it_was_sent,
    a_malformed_request_is_answered_with_a_fault,
    a_request_for_another_tenant_than_its_subject_is_refused,
    progress_comes_before_the_answer,
    a_dropped_call_cancels_its_request,
    a_cancellation_that_arrives_with_its_request_is_not_lost,
    a_call_dropped_after_the_drain_cancels_its_request,
    a_late_reply_is_not_given_to_the_next_call,
    a_drained_responder_answers_its_requests_and_accepts_no_new_ones,
    pending_replies_are_sent_before_the_bus_closes,
    a_request_dropped_without_an_answer_is_answered,
    a_reply_that_is_too_large_becomes_a_fault,
);

async fn an_envelope_arrives_as_it_was_sent(fixture: BusFixture) {
    let mut responder = fetch_responder(&fixture.bus).await;
    let sent = meta_within(&fixture, 5_000)
        .with_session(SessionId::new("s").unwrap())
        .with_app(AppId::new("a").unwrap())
        .with_trace(TraceContext::new(
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "k=v",
        ));
    let answering = async {
        let incoming = responder.next().await.unwrap();
        assert_eq!(incoming.subject(), FETCH_SUBJECT);
        assert_eq!(
            incoming.headers().get(headers::SCHEMA_HEADER),
            Some("dray.v1.FetchRequest/1")
        );
        let meta = incoming.meta().unwrap();
        incoming.answer(Ok(fetch_reply(""))).await;
        meta
    };
    let request = fetch_request("x");
    let (arrived, answer) = tokio::join!(answering, fixture.bus.call(&sent, &request));
    answer.unwrap();
    assert_eq!(arrived, sent);
}

async fn a_malformed_request_is_answered_with_a_fault(fixture: BusFixture) {
    let _serving =
        serve_in_background(fetch_responder(&fixture.bus).await, |incoming| async move {
            let result = match incoming.meta() {
                Ok(_) => incoming
                    .decode::<v1::FetchRequest>()
                    .map(|_| fetch_reply("")),
                Err(fault) => Err(fault),
            };
            incoming.answer(result).await;
        });
    let valid = meta_within(&fixture, 5_000).headers("x/1");
    let reserved = {
        let mut headers = valid.clone();
        headers.append("Nats-Rollup", "all");
        headers
    };
    for (headers, payload) in [
        (crate::MessageHeaders::new(), &b""[..]),
        (reserved, &b""[..]),
        (valid, &b"\xff\xff\xff"[..]),
    ] {
        let mut inbox = fixture.backend().inbox();
        let address = inbox.address().to_owned();
        let mut message = outgoing_message(FETCH_SUBJECT, "", payload.to_vec());
        message.headers = headers;
        fixture
            .backend()
            .publish(Some(&address), &message)
            .await
            .unwrap();
        let answer = wait_soon("the fault", inbox.next()).await.unwrap();
        assert_eq!(answer.headers.get(headers::OUTCOME_HEADER), Some("fault"));
        let fault: v1::Fault = prost::Message::decode(answer.payload).unwrap();
        assert_eq!(fault.code(), v1::FaultCode::InvalidArgument);
    }
}

async fn a_request_for_another_tenant_than_its_subject_is_refused(fixture: BusFixture) {
    let subject = "dray.egress.v1.fetch.*";
    let responder = fixture
        .bus
        .respond_to(subject, "egress-fetcher")
        .await
        .unwrap();
    let _serving = serve_in_background(responder, |incoming| async move {
        let result = incoming.meta().map(|_| fetch_reply("own tenant"));
        incoming.answer(result).await;
    });
    let meta = meta_within(&fixture, 5_000);
    let own = fixture
        .bus
        .call_for_tenant(&meta, &fetch_request("x"))
        .await;
    assert_eq!(own.unwrap(), fetch_reply("own tenant"));
    let forged = meta.headers("dray.v1.FetchRequest/1");
    let mut message = outgoing_message("dray.egress.v1.fetch.other", "", bytes::Bytes::new());
    for (name, value) in forged.iter() {
        message.headers.append(name, value);
    }
    let mut inbox = fixture.backend().inbox();
    let address = inbox.address().to_owned();
    fixture
        .backend()
        .publish(Some(&address), &message)
        .await
        .unwrap();
    let refused = wait_soon("the refusal", inbox.next()).await.unwrap();
    assert_eq!(refused.headers.get(headers::OUTCOME_HEADER), Some("fault"));
    let fault = <v1::Fault as prost::Message>::decode(refused.payload).unwrap();
    assert_eq!(fault.detail, "tenant_mismatch");
}

async fn progress_comes_before_the_answer(fixture: BusFixture) {
    let _serving =
        serve_in_background(fetch_responder(&fixture.bus).await, |incoming| async move {
            for step in ["one", "two"] {
                incoming.progress(&fetch_reply(step)).await;
            }
            incoming.answer(Ok(fetch_reply("done"))).await;
        });
    let mut steps = Vec::new();
    let answer = fixture
        .bus
        .call_with_progress(
            &meta_within(&fixture, 5_000),
            &fetch_request(""),
            &mut |payload| {
                let step: v1::FetchReply = prost::Message::decode(payload).unwrap();
                steps.push(step.name);
            },
        )
        .await
        .unwrap();
    assert_eq!(
        (answer.name.as_str(), steps.join(" ")),
        ("done", "one two".to_owned())
    );
}

async fn a_dropped_call_cancels_its_request(fixture: BusFixture) {
    let mut first = fetch_responder(&fixture.bus).await;
    let caller = fixture.another().await;
    let meta = meta_within(&fixture, 20_000);
    let other = meta.clone().with_operation(dray_types::OperationId::mint());
    let request = fetch_request("");
    let mut gives_up = Box::pin(caller.call(&meta, &request));
    let mut stays = Box::pin(caller.call(&other, &request));
    let mut requests = Vec::new();
    while requests.len() < 2 {
        tokio::select! {
            _ = &mut gives_up => panic!("the call must not end before a reply"),
            _ = &mut stays => panic!("the call must not end before a reply"),
            incoming = first.next() => requests.push(incoming.unwrap()),
        }
    }
    drop(gives_up);
    let cancelled = |operation: &str| {
        requests
            .iter()
            .find(|incoming| incoming.meta().unwrap().operation.as_str() == operation)
            .unwrap()
            .cancelled()
    };
    let (dropped, running) = (cancelled("op"), cancelled(other.operation.as_str()));
    wait_soon("the cancellation", async {
        tokio::select! {
            () = dropped.cancelled() => {}
            _ = first.next() => panic!("no further request must arrive"),
        }
    })
    .await;
    assert!(!running.is_cancelled());
}

async fn a_cancellation_that_arrives_with_its_request_is_not_lost(fixture: BusFixture) {
    let mut responder = fetch_responder(&fixture.bus).await;
    let request = fetch_request("");
    // Several rounds, because either of two waiting messages may be read first.
    for round in 0..10 {
        let mut meta = meta_within(&fixture, 20_000);
        meta.operation = dray_types::OperationId::mint();
        let mut gives_up = Box::pin(fixture.bus.call(&meta, &request));
        assert!(futures_util::poll!(&mut gives_up).is_pending());
        drop(gives_up);
        // Let the task send the cancellation. A round trip on the same connection then shows that the server has both
        // messages.
        tokio::task::yield_now().await;
        drop(fixture.bus.round_trip().await);
        let incoming = wait_soon("the request", responder.next()).await.unwrap();
        let gone = incoming.cancelled();
        wait_soon(&format!("cancellation {round}"), async {
            tokio::select! {
                () = gone.cancelled() => {}
                _ = responder.next() => panic!("no further request must arrive"),
            }
        })
        .await;
    }
}

async fn a_call_dropped_after_the_drain_cancels_its_request(fixture: BusFixture) {
    let mut responder = fetch_responder(&fixture.bus).await;
    let caller = fixture.another().await;
    let request = fetch_request("");
    let meta = meta_within(&fixture, 20_000);
    let mut gives_up = Box::pin(caller.call(&meta, &request));
    let incoming = tokio::select! {
        _ = &mut gives_up => panic!("the call must not end before a reply"),
        incoming = responder.next() => incoming.unwrap(),
    };
    responder.drain().await;
    assert!(wait_soon("the drain", responder.next()).await.is_none());
    let gone = incoming.cancelled();
    let mut finishing = Box::pin(responder.finish());
    assert!(
        futures_util::poll!(&mut finishing).is_pending(),
        "a request is in hand"
    );
    drop(gives_up);
    wait_soon("the cancellation", async {
        tokio::select! {
            () = gone.cancelled() => {}
            () = &mut finishing => panic!("the request must still be in progress"),
        }
    })
    .await;
    drop(incoming);
    wait_soon("the end", finishing).await;
}

async fn a_late_reply_is_not_given_to_the_next_call(fixture: BusFixture) {
    let mut responder = fetch_responder(&fixture.bus).await;
    let request = fetch_request("late");
    let meta = meta_within(&fixture, 2_000);
    let (first, incoming) = tokio::join!(fixture.bus.call(&meta, &request), responder.next());
    assert!(matches!(first, Err(CallError::Timeout(_))));
    incoming.unwrap().answer(Ok(fetch_reply("late"))).await;
    let _serving = serve_in_background(responder, |incoming| async move {
        let request: v1::FetchRequest = incoming.decode().unwrap();
        incoming.answer(Ok(fetch_reply(&request.url))).await;
    });
    let answer = fixture
        .bus
        .call(&meta_within(&fixture, 5_000), &fetch_request("now"))
        .await
        .unwrap();
    // The retried first request may still be answered; the second call gets its own answer.
    assert_eq!(answer.name, "now");
}

async fn a_drained_responder_answers_its_requests_and_accepts_no_new_ones(fixture: BusFixture) {
    let mut responder = fetch_responder(&fixture.bus).await;
    let caller = fixture.another().await;
    let meta = meta_within(&fixture, 10_000);
    let request = fetch_request("");
    let mut calls: Vec<_> = (0..5)
        .map(|_| Box::pin(caller.call(&meta, &request)))
        .collect();
    let mut requests = Vec::new();
    while requests.len() < 5 {
        tokio::select! {
            _ = futures_util::future::select_all(&mut calls) => panic!("the call must not end before a reply"),
            incoming = responder.next() => requests.push(incoming.unwrap()),
        }
    }
    responder.drain().await;
    assert!(wait_soon("the end", responder.next()).await.is_none());
    for incoming in requests {
        incoming.answer(Ok(fetch_reply("in hand"))).await;
    }
    for call in calls {
        assert_eq!(wait_soon("an answer", call).await.unwrap().name, "in hand");
    }
    let late_reply = caller.call(&meta_within(&fixture, 300), &request).await;
    assert!(
        matches!(late_reply, Err(CallError::NoResponder(_))),
        "{late_reply:?}"
    );
}

async fn pending_replies_are_sent_before_the_bus_closes(fixture: BusFixture) {
    let serving = fixture.another().await;
    if fixture.server.is_none() {
        // One fixture has one bus in process: closing it closes the caller as well.
        return;
    }
    let mut responder = fetch_responder(&serving).await;
    let meta = meta_within(&fixture, 10_000);
    let request = fetch_request("");
    let closing = async {
        let incoming = responder.next().await.unwrap();
        drop(incoming);
        responder.drain().await;
        serving.drain().await;
    };
    let (answer, ()) = tokio::join!(fixture.bus.call(&meta, &request), closing);
    assert_eq!(Fault::from(answer.unwrap_err()), Fault::internal());
}

async fn a_request_dropped_without_an_answer_is_answered(fixture: BusFixture) {
    let _serving =
        serve_in_background(fetch_responder(&fixture.bus).await, |incoming| async move {
            drop(incoming);
        });
    let error = fixture
        .bus
        .call(&meta_within(&fixture, 5_000), &fetch_request(""))
        .await
        .unwrap_err();
    assert_eq!(Fault::from(error), Fault::internal());
}

async fn a_reply_that_is_too_large_becomes_a_fault(fixture: BusFixture) {
    let _serving =
        serve_in_background(fetch_responder(&fixture.bus).await, |incoming| async move {
            incoming
                .answer(Ok(fetch_reply(&"x".repeat(MAX_MESSAGE_BYTES))))
                .await;
        });
    let error = fixture
        .bus
        .call(&meta_within(&fixture, 5_000), &fetch_request(""))
        .await
        .unwrap_err();
    let fault = Fault::from(error);
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::TooLarge, "reply_too_large")
    );
}
