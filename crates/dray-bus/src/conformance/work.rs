//! Work from the publish to its terminal event.

use std::time::Duration;

use dray_proto::v1::{self, LedgerState, TerminalState};
use dray_testkit::eventually;
use dray_types::{Deadline, OperationId};

use super::at_work::{
    EVENT_SUBJECTS, at_work, binary_cloud_event, foreign_message, ledger_record, next_rejection,
    nothing_pending, structured_cloud_event, submit_work, wait_until_reported, work_settings,
};
use super::{BusFixture, ScriptedHandler, TestWorker, on_both, tool_call, wait_soon};
use crate::backend::OutgoingMessage;
use crate::topology::{EVENT_STREAM, WORK_STREAM};
use crate::{Meta, WorkSettings, headers};

on_both!(
    work_is_done_once_reported_once_and_acknowledged,
    the_same_operation_published_twice_is_done_once,
    a_permanent_failure_is_reported_and_not_retried,
    a_temporary_failure_is_retried,
    work_is_parked_until_its_dependency_is_back_and_costs_one_attempt,
    work_whose_dependency_stays_unavailable_fails_at_its_deadline,
    work_is_retried_once_after_a_panic,
    a_result_that_is_too_large_is_a_failure,
    work_after_its_deadline_expires_without_an_attempt,
    work_that_reaches_its_deadline_is_cancelled_and_expires,
    a_worker_waits_for_the_live_lease_of_another_worker,
    a_handler_does_not_run_under_a_lease_that_ended_before_the_claim_was_known,
    a_recorded_effect_is_reported_and_not_repeated,
    a_stop_waits_for_running_work,
    a_stop_returns_work_that_does_not_end,
    a_worker_without_its_consumer_fails_with_the_name_of_the_consumer,
    a_worker_whose_identity_was_refused_pulls_nothing,
    work_published_as_a_cloud_event_is_done_once,
    work_published_as_a_structured_cloud_event_is_done_once,
);

async fn work_is_done_once_reported_once_and_acknowledged(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let meta = submit_work(&fixture, "op", "works").await;
    let event = wait_soon("the event", events.next()).await.unwrap();
    assert_eq!(event.subject, "dray.event.toolcall.v1.resolved.acme");
    assert_eq!(event.headers.get(headers::OPERATION_HEADER), Some("op"));
    assert_eq!(
        event.headers.get(headers::MESSAGE_ID),
        Some("acme/op:toolcall.resolved:0")
    );
    let resolved: v1::ToolCallResolved = event.decode().unwrap();
    assert_eq!(resolved.tool, "epoch 1 attempt 1");
    let record = wait_until_reported(&fixture, &meta).await;
    assert_eq!(
        (record.terminal(), record.attempts),
        (TerminalState::Done, 1)
    );
    assert_eq!(record.result.unwrap().payload, event.payload);
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
}

async fn the_same_operation_published_twice_is_done_once(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let meta = submit_work(&fixture, "op", "works").await;
    let repeated = fixture
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    assert!(repeated.duplicate);
    wait_until_reported(&fixture, &meta).await;
    // Another publisher writes the id in another form, so that the stream accepts the message as new.
    let foreign = foreign_message(&meta, &tool_call("works"), 0);
    fixture
        .backend()
        .store(&foreign, Duration::from_secs(5))
        .await
        .unwrap();
    nothing_pending(&fixture).await;
    wait_until_reported(&fixture, &meta).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
    let events = fixture
        .backend()
        .stream(EVENT_STREAM)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(events.messages, 1);
}

async fn a_permanent_failure_is_reported_and_not_retried(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let meta = submit_work(&fixture, "op", "fails").await;
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Failed);
    assert_eq!(rejected.fault.unwrap().code(), v1::FaultCode::Denied);
    assert_eq!(
        wait_until_reported(&fixture, &meta).await.terminal(),
        TerminalState::Failed
    );
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
}

async fn a_temporary_failure_is_retried(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let meta = submit_work(&fixture, "op", "fails-once").await;
    let record = wait_until_reported(&fixture, &meta).await;
    assert_eq!(
        (record.terminal(), record.attempts, record.epoch),
        (TerminalState::Done, 2, 2)
    );
    assert!(record.first_error_ms > 0);
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
}

async fn work_is_parked_until_its_dependency_is_back_and_costs_one_attempt(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let meta = submit_work(&fixture, "op", "no-responder-three-times").await;
    let record = wait_until_reported(&fixture, &meta).await;
    assert_eq!(
        (record.terminal(), record.attempts, record.epoch),
        (TerminalState::Done, 1, 4)
    );
    worker.stop().await;
    assert!(script.runs("op") > work_settings().attempts);
}

async fn work_whose_dependency_stays_unavailable_fails_at_its_deadline(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(4));
    let meta = fixture.meta("op").with_deadline(deadline);
    fixture
        .bus
        .publish_work(&meta, &tool_call("no-responder"))
        .await
        .unwrap();
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Failed);
    assert_eq!(rejected.fault.unwrap().detail, "no_responder");
    worker.stop().await;
    assert!(script.runs("op") > work_settings().attempts);
    let letters = fixture.bus.dead_letters().list(1, 10).await.unwrap();
    assert!(letters.is_empty(), "{letters:?}");
}

async fn work_is_retried_once_after_a_panic(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let meta = submit_work(&fixture, "op", "panics-once").await;
    assert_eq!(
        wait_until_reported(&fixture, &meta).await.terminal(),
        TerminalState::Done
    );
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
}

async fn a_result_that_is_too_large_is_a_failure(fixture: BusFixture) {
    let (_, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    submit_work(&fixture, "op", "too-large").await;
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.fault.unwrap().detail, "result_too_large");
    worker.stop().await;
}

async fn work_after_its_deadline_expires_without_an_attempt(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let meta = fixture.meta("op").with_deadline(Deadline::from_unix_ms(1));
    fixture
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Expired);
    assert_eq!(
        wait_until_reported(&fixture, &meta).await.terminal(),
        TerminalState::Expired
    );
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 0);
}

async fn work_that_reaches_its_deadline_is_cancelled_and_expires(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    // Long enough that the work begins before it on a busy machine.
    let deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(5));
    let meta = fixture.meta("op").with_deadline(deadline);
    fixture
        .bus
        .publish_work(&meta, &tool_call("waits"))
        .await
        .unwrap();
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Expired);
    assert!(script.cancelled.is_cancelled());
    assert!(deadline.has_passed(fixture.clock.now_ms()));
    worker.stop().await;
}

async fn a_worker_waits_for_the_live_lease_of_another_worker(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let meta = fixture.meta("op");
    let key = crate::LedgerKey::of::<v1::ToolCallRequested>(&meta.tenant, &meta.operation);
    let lease_until_ms = fixture.clock.now_ms() + 1_500;
    let theirs = v1::LedgerRecord {
        state: LedgerState::Claimed.into(),
        epoch: 1,
        owner: "another worker".to_owned(),
        lease_until_ms,
        attempts: 1,
        ..v1::LedgerRecord::default()
    };
    fixture.bus.ledger().write(&key, theirs, 0).await.unwrap();
    let script = ScriptedHandler::default();
    let worker = TestWorker::start(&fixture.bus, work_settings(), script.clone());
    fixture
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let record = wait_until_reported(&fixture, &meta).await;
    assert!(fixture.clock.now_ms() >= lease_until_ms);
    assert_eq!((record.epoch, record.attempts), (2, 2));
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
}

async fn a_handler_does_not_run_under_a_lease_that_ended_before_the_claim_was_known(
    fixture: BusFixture,
) {
    fixture.provision(Duration::from_secs(30)).await;
    let meta = fixture.meta("op");
    let script = ScriptedHandler::default();
    // Every response to a claim comes after the end of such a lease.
    let settings = WorkSettings {
        lease: Duration::ZERO,
        ..work_settings()
    };
    let worker = TestWorker::start(&fixture.bus, settings, script.clone());
    let published = fixture.bus.publish_work(&meta, &tool_call("works")).await;
    published.unwrap();
    eventually("two claims", async || {
        let record = ledger_record(&fixture, &meta).await?;
        (record.epoch >= 2).then_some(())
    })
    .await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 0);
}

async fn a_recorded_effect_is_reported_and_not_repeated(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let meta = fixture.meta("op");
    let key = crate::LedgerKey::of::<v1::ToolCallRequested>(&meta.tenant, &meta.operation);
    let event = v1::RecordedEvent {
        subject: "dray.event.toolcall.v1.resolved.acme".to_owned(),
        schema: "dray.v1.ToolCallResolved/1".to_owned(),
        message_id: "acme/op:toolcall.resolved:0".to_owned(),
        payload: b"\x0a\x02op".to_vec(),
    };
    let done = v1::LedgerRecord {
        state: LedgerState::EffectDone.into(),
        terminal: TerminalState::Done.into(),
        epoch: 1,
        attempts: 1,
        result: Some(event),
        ..v1::LedgerRecord::default()
    };
    fixture.bus.ledger().write(&key, done, 0).await.unwrap();
    let script = ScriptedHandler::default();
    let worker = TestWorker::start(&fixture.bus, work_settings(), script.clone());
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    fixture
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let event = wait_soon("the event", events.next()).await.unwrap();
    assert_eq!(event.payload, &b"\x0a\x02op"[..]);
    wait_until_reported(&fixture, &meta).await;
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 0);
}

async fn a_stop_waits_for_running_work(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let script = ScriptedHandler::default();
    let worker = TestWorker::start(&fixture.bus, work_settings(), script.clone());
    let deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(5));
    let meta = fixture.meta("op").with_deadline(deadline);
    fixture
        .bus
        .publish_work(&meta, &tool_call("waits"))
        .await
        .unwrap();
    script.started.cancelled().await;
    wait_soon("the stop", worker.stop()).await;
    let record = ledger_record(&fixture, &meta).await.unwrap();
    assert_eq!(
        record.state(),
        LedgerState::Reported,
        "the running work continued to its end"
    );
}

async fn a_stop_returns_work_that_does_not_end(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let script = ScriptedHandler::default();
    let hasty = WorkSettings {
        drain: Duration::from_millis(200),
        ..work_settings()
    };
    let worker = TestWorker::start(&fixture.bus, hasty, script.clone());
    let meta = submit_work(&fixture, "op", "waits").await;
    script.started.cancelled().await;
    wait_soon("the stop", worker.stop()).await;
    let record = ledger_record(&fixture, &meta).await.unwrap();
    assert_eq!(record.state(), LedgerState::Claimed);
    assert_eq!(
        (record.lease_until_ms, record.attempts),
        (0, 0),
        "no attempt was counted"
    );
    let mut puller = fixture
        .backend()
        .puller(WORK_STREAM, "file-resolver")
        .await
        .unwrap();
    let never = tokio_util::sync::CancellationToken::new();
    let repeated = puller
        .fetch(1, Duration::from_secs(10), &never)
        .await
        .unwrap();
    assert_eq!(repeated[0].delivered, 2);
}

async fn a_worker_without_its_consumer_fails_with_the_name_of_the_consumer(fixture: BusFixture) {
    let error = fixture
        .bus
        .work(
            "file-resolver",
            work_settings(),
            ScriptedHandler::default(),
            tokio_util::sync::CancellationToken::new(),
        )
        .await
        .unwrap_err();
    assert!(error.to_string().contains("file-resolver"));
    let work = fixture
        .bus
        .ledger()
        .find::<v1::ToolCallRequested>(&fixture.meta("op").tenant, &OperationId::mint())
        .await;
    assert!(work.is_err());
}

async fn a_worker_whose_identity_was_refused_pulls_nothing(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let refused = fixture.another().await;
    refused
        .inner
        .health
        .record_refusal("dray.event.x".to_owned());
    let script = ScriptedHandler::default();
    let worker = TestWorker::start(&refused, work_settings(), script.clone());
    submit_work(&fixture, "op", "works").await;
    wait_soon("the stop", worker.stop()).await;
    assert_eq!(script.runs("op"), 0);
    let state = fixture
        .backend()
        .consumer(WORK_STREAM, "file-resolver")
        .await;
    assert_eq!(state.unwrap().unwrap().pending, 1);
}

async fn work_published_as_a_cloud_event_is_done_once(fixture: BusFixture) {
    let meta = fixture.meta("op");
    check_done_once(&fixture, &meta, &binary_cloud_event(&meta)).await;
}

async fn work_published_as_a_structured_cloud_event_is_done_once(fixture: BusFixture) {
    let meta = fixture.meta("op");
    check_done_once(&fixture, &meta, &structured_cloud_event(&meta)).await;
}

/// Stores this message twice, and checks that a worker does its work once and reports it.
async fn check_done_once(fixture: &BusFixture, meta: &Meta, message: &OutgoingMessage) {
    let (script, worker) = at_work(fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    // The stream takes both, because a CloudEvent has no id of the stream: only the ledger finds the repetition.
    for _ in 0..2 {
        let stored = fixture.backend().store(message, Duration::from_secs(5));
        stored.await.unwrap();
    }
    let event = wait_soon("the event", events.next()).await.unwrap();
    assert_eq!(event.headers.get(headers::OPERATION_HEADER), Some("op"));
    wait_until_reported(fixture, meta).await;
    nothing_pending(fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
}
