//! Work from the publish to the terminal event, dead letters and the sweeper.

use std::time::Duration;

use dray_proto::contract::{message_id, schema, work_subject};
use dray_proto::v1::{self, LedgerState, TerminalState};
use dray_testkit::eventually;
use dray_types::{Deadline, OperationId};
use prost::Message as _;

use super::{Script, Worker, World, on_both, outgoing, small, soon, tool_call};
use crate::backend::Ack;
use crate::dead::LetterError;
use crate::topology::WORK;
use crate::{EventStream, Meta, SweepReport, Sweeper, WorkSettings, headers};

on_both!(
    work_is_done_once_told_once_and_acknowledged,
    the_same_operation_published_twice_is_done_once,
    a_permanent_failure_is_told_and_ends,
    a_passing_failure_is_tried_again,
    work_that_keeps_failing_is_dead_lettered_after_its_attempts,
    a_panic_is_tried_once_more,
    a_handler_that_panics_twice_is_poison,
    a_result_that_is_too_large_is_a_failure,
    work_after_its_deadline_expires_without_being_tried,
    work_that_meets_its_deadline_is_cancelled_and_expires,
    poison_is_dead_lettered_and_told,
    a_live_lease_of_another_worker_is_waited_for,
    a_recorded_effect_is_told_and_not_repeated,
    a_dead_letter_can_be_shown_and_started_again,
    a_letter_about_nothing_cannot_be_started_again,
    a_stop_lets_running_work_end,
    a_stop_gives_back_what_does_not_end,
    the_sweeper_ends_what_nobody_finishes,
    the_sweeper_tells_what_nobody_told,
    the_sweeper_knows_what_ran_out_of_deliveries,
    an_unprovisioned_worker_says_so,
);

const EVENTS: &str = "dray.event.toolcall.>";

fn settings() -> WorkSettings {
    WorkSettings {
        attempts: 2,
        grace: Duration::from_millis(300),
        ..WorkSettings::default()
    }
}

/// A provisioned world with a worker.
async fn at_work(world: &World) -> (Script, Worker) {
    world.provision(Duration::from_secs(30)).await;
    let script = Script::default();
    let worker = Worker::start(&world.bus, settings(), script.clone());
    (script, worker)
}

async fn submit(world: &World, operation: &str, tool: &str) -> Meta {
    let meta = world.meta(operation);
    let published = world
        .bus
        .publish_work(&meta, &tool_call(tool))
        .await
        .unwrap();
    assert!(!published.duplicate);
    meta
}

async fn record(world: &World, meta: &Meta) -> Option<v1::LedgerRecord> {
    world
        .bus
        .ledger()
        .find::<v1::ToolCallRequested>(&meta.tenant, &meta.operation)
        .await
        .unwrap()
}

async fn reported(world: &World, meta: &Meta) -> v1::LedgerRecord {
    eventually("the end to be reported", async || {
        record(world, meta)
            .await
            .filter(|record| record.state() == LedgerState::Reported)
    })
    .await
}

async fn nothing_pending(world: &World) {
    eventually("everything to be acknowledged", async || {
        let state = world
            .backend()
            .consumer(WORK, "file-resolver")
            .await
            .unwrap()?;
        (state.pending + state.ack_pending == 0).then_some(())
    })
    .await;
}

async fn rejection(events: &mut EventStream) -> v1::ToolCallRejected {
    let event = soon("the rejection", events.next()).await.unwrap();
    assert_eq!(event.subject, "dray.event.toolcall.v1.rejected.acme");
    event.decode().unwrap()
}

async fn work_is_done_once_told_once_and_acknowledged(world: World) {
    let (script, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let meta = submit(&world, "op", "works").await;
    let event = soon("the event", events.next()).await.unwrap();
    assert_eq!(event.subject, "dray.event.toolcall.v1.resolved.acme");
    assert_eq!(event.headers.get(headers::OPERATION), Some("op"));
    assert_eq!(
        event.headers.get(headers::MESSAGE_ID),
        Some("acme/op:toolcall.resolved:0")
    );
    let resolved: v1::ToolCallResolved = event.decode().unwrap();
    assert_eq!(resolved.tool, "epoch 1 attempt 1");
    let record = reported(&world, &meta).await;
    assert_eq!(
        (record.terminal(), record.attempts),
        (TerminalState::Done, 1)
    );
    assert_eq!(record.result.unwrap().payload, event.payload);
    nothing_pending(&world).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
}

async fn the_same_operation_published_twice_is_done_once(world: World) {
    let (script, worker) = at_work(&world).await;
    let meta = submit(&world, "op", "works").await;
    let again = world
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    assert!(again.duplicate);
    reported(&world, &meta).await;
    // Another publisher writes the id its own way, so that the stream takes it as new.
    let foreign = foreign(&meta, &tool_call("works"), 0);
    world
        .backend()
        .store(foreign, Duration::from_secs(5))
        .await
        .unwrap();
    nothing_pending(&world).await;
    reported(&world, &meta).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
    let events = world
        .backend()
        .stream(crate::topology::EVENT)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(events.messages, 1);
}

/// The message as a publisher without this crate would send it.
fn foreign(meta: &Meta, work: &v1::ToolCallRequested, redrives: u32) -> crate::backend::Outgoing {
    let subject = work_subject::<v1::ToolCallRequested>(&meta.tenant);
    let id = message_id(&meta.operation, "toolcall.resolve", redrives);
    let mut message = outgoing(&subject, &id, work.encode_to_vec());
    for (name, value) in meta.headers(&schema::<v1::ToolCallRequested>()).iter() {
        message.headers.append(name, value);
    }
    message
}

async fn a_permanent_failure_is_told_and_ends(world: World) {
    let (script, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let meta = submit(&world, "op", "fails").await;
    let rejected = rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Failed);
    assert_eq!(rejected.fault.unwrap().code(), v1::FaultCode::Denied);
    assert_eq!(
        reported(&world, &meta).await.terminal(),
        TerminalState::Failed
    );
    nothing_pending(&world).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
}

async fn a_passing_failure_is_tried_again(world: World) {
    let (script, worker) = at_work(&world).await;
    let meta = submit(&world, "op", "fails-once").await;
    let record = reported(&world, &meta).await;
    assert_eq!(
        (record.terminal(), record.attempts, record.epoch),
        (TerminalState::Done, 2, 2)
    );
    assert!(record.first_error_ms > 0);
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
}

async fn work_that_keeps_failing_is_dead_lettered_after_its_attempts(world: World) {
    let (script, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let meta = submit(&world, "op", "always-passing").await;
    let rejected = rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::DeadLettered);
    assert_eq!(
        reported(&world, &meta).await.terminal(),
        TerminalState::DeadLettered
    );
    nothing_pending(&world).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
    let letters = world.bus.dead_letters().list(1, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!((letter.operation.as_str(), letter.attempts), ("op", 2));
    assert_eq!(letter.fault.code, dray_types::FaultCode::Unavailable);
    assert!(letter.complete && letter.first_error_ms <= letter.last_error_ms);
}

async fn a_panic_is_tried_once_more(world: World) {
    let (script, worker) = at_work(&world).await;
    let meta = submit(&world, "op", "panics-once").await;
    assert_eq!(
        reported(&world, &meta).await.terminal(),
        TerminalState::Done
    );
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
}

async fn a_handler_that_panics_twice_is_poison(world: World) {
    world.provision(Duration::from_secs(30)).await;
    let script = Script::default();
    let patient = WorkSettings {
        attempts: 5,
        ..settings()
    };
    let worker = Worker::start(&world.bus, patient, script.clone());
    let mut events = world.events(EVENTS).await;
    submit(&world, "op", "panics").await;
    let rejected = rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::DeadLettered);
    assert_eq!(rejected.fault.unwrap().detail, "panic");
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
}

async fn a_result_that_is_too_large_is_a_failure(world: World) {
    let (_, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    submit(&world, "op", "too-large").await;
    let rejected = rejection(&mut events).await;
    assert_eq!(rejected.fault.unwrap().detail, "result_too_large");
    worker.stop().await;
}

async fn work_after_its_deadline_expires_without_being_tried(world: World) {
    let (script, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let meta = world.meta("op").with_deadline(Deadline::from_unix_ms(1));
    world
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let rejected = rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Expired);
    assert_eq!(
        reported(&world, &meta).await.terminal(),
        TerminalState::Expired
    );
    nothing_pending(&world).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 0);
}

async fn work_that_meets_its_deadline_is_cancelled_and_expires(world: World) {
    let (script, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let deadline = Deadline::after(world.clock.now_ms(), Duration::from_millis(600));
    let meta = world.meta("op").with_deadline(deadline);
    world
        .bus
        .publish_work(&meta, &tool_call("waits"))
        .await
        .unwrap();
    let rejected = rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Expired);
    assert!(script.cancelled.is_cancelled());
    assert!(deadline.has_passed(world.clock.now_ms()));
    worker.stop().await;
}

async fn poison_is_dead_lettered_and_told(world: World) {
    let (script, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let good = |operation: &str| foreign(&world.meta(operation), &tool_call("works"), 0);
    let mut undecodable = good("one");
    undecodable.payload = bytes::Bytes::from_static(b"\xff\xff\xff");
    let mut unsupported = good("two");
    unsupported
        .headers
        .set(headers::SCHEMA, "dray.v2.ToolCallRequested/1");
    let mut forged = good("three");
    forged.headers.set(headers::TENANT, "other");
    let mut steering = good("four");
    steering.headers.append("Nats-Rollup-X", "all");
    steering.headers.append("nats-expected-nothing", "all");
    let mut bare = good("five");
    bare.headers = crate::Headers::new();
    let poison = [undecodable, unsupported, forged, steering, bare];
    let count = poison.len();
    for message in poison {
        world
            .backend()
            .store(message, Duration::from_secs(5))
            .await
            .unwrap();
        let event = soon("the end", events.next()).await.unwrap();
        assert_eq!(event.subject, "dray.event.toolcall.v1.dead-lettered.acme");
    }
    nothing_pending(&world).await;
    worker.stop().await;
    let letters = world.bus.dead_letters().list(1, 10).await.unwrap();
    let details: Vec<_> = letters
        .iter()
        .map(|letter| letter.fault.detail.as_str())
        .collect();
    assert_eq!(
        details,
        [
            "undecodable",
            "schema_unsupported",
            "tenant_mismatch",
            "invalid_envelope",
            "invalid_envelope"
        ]
    );
    assert_eq!(letters.len(), count);
    assert_eq!(script.runs("one") + script.runs("three"), 0);
}

async fn a_live_lease_of_another_worker_is_waited_for(world: World) {
    world.provision(Duration::from_secs(30)).await;
    let meta = world.meta("op");
    let key = crate::LedgerKey::of::<v1::ToolCallRequested>(&meta.tenant, &meta.operation);
    let lease_until_ms = world.clock.now_ms() + 1_500;
    let theirs = v1::LedgerRecord {
        state: LedgerState::Claimed.into(),
        epoch: 1,
        owner: "somebody else".to_owned(),
        lease_until_ms,
        attempts: 1,
        ..v1::LedgerRecord::default()
    };
    world.bus.ledger().write(&key, theirs, 0).await.unwrap();
    let script = Script::default();
    let worker = Worker::start(&world.bus, settings(), script.clone());
    world
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let record = reported(&world, &meta).await;
    assert!(world.clock.now_ms() >= lease_until_ms);
    assert_eq!((record.epoch, record.attempts), (2, 2));
    worker.stop().await;
    assert_eq!(script.runs("op"), 1);
}

async fn a_recorded_effect_is_told_and_not_repeated(world: World) {
    world.provision(Duration::from_secs(30)).await;
    let meta = world.meta("op");
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
    world.bus.ledger().write(&key, done, 0).await.unwrap();
    let script = Script::default();
    let worker = Worker::start(&world.bus, settings(), script.clone());
    let mut events = world.events(EVENTS).await;
    world
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let event = soon("the event", events.next()).await.unwrap();
    assert_eq!(event.payload, &b"\x0a\x02op"[..]);
    reported(&world, &meta).await;
    nothing_pending(&world).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 0);
}

async fn a_dead_letter_can_be_shown_and_started_again(world: World) {
    let (script, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let meta = submit(&world, "op", "always-passing").await;
    rejection(&mut events).await;
    let letters = world.bus.dead_letters();
    let sequence = letters.list(1, 10).await.unwrap()[0].sequence;
    let shown = letters.show(sequence).await.unwrap().letter;
    assert_eq!(shown.subject, "dray.work.toolcall.v1.resolve.acme");
    assert_eq!(shown.payload, tool_call("always-passing").encode_to_vec());
    assert!(
        shown
            .headers
            .iter()
            .any(|header| header.name == headers::OPERATION)
    );

    reported(&world, &meta).await;
    let first = letters.redrive(sequence, None).await.unwrap();
    assert!(!first.duplicate);
    let rejected = rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::DeadLettered);
    assert!(letters.redrive(sequence, None).await.unwrap().duplicate);
    nothing_pending(&world).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 4, "two attempts each time");
    let all = letters.list(1, 10).await.unwrap();
    assert_eq!(all.len(), 2, "the second letter is not taken for the first");
    let record = record(&world, &meta).await.unwrap();
    assert_eq!((record.redrives, record.attempts), (1, 2));
}

async fn a_letter_about_nothing_cannot_be_started_again(world: World) {
    let (_, worker) = at_work(&world).await;
    let mut events = world.events(EVENTS).await;
    let bare = outgoing("dray.work.toolcall.v1.resolve.acme", "", "x");
    world
        .backend()
        .store(bare, Duration::from_secs(5))
        .await
        .unwrap();
    soon("the end", events.next()).await.unwrap();
    let letters = world.bus.dead_letters();
    let sequence = letters.list(1, 10).await.unwrap()[0].sequence;
    let error = letters.redrive(sequence, None).await.unwrap_err();
    assert!(matches!(error, LetterError::NotWork(_)), "{error}");
    let error = letters.show(sequence + 9).await.unwrap_err();
    assert!(matches!(error, LetterError::NotFound(_)), "{error}");
    worker.stop().await;
}

async fn a_stop_lets_running_work_end(world: World) {
    world.provision(Duration::from_secs(30)).await;
    let script = Script::default();
    let worker = Worker::start(&world.bus, settings(), script.clone());
    let deadline = Deadline::after(world.clock.now_ms(), Duration::from_millis(800));
    let meta = world.meta("op").with_deadline(deadline);
    world
        .bus
        .publish_work(&meta, &tool_call("waits"))
        .await
        .unwrap();
    script.begun.cancelled().await;
    soon("the stop", worker.stop()).await;
    let record = record(&world, &meta).await.unwrap();
    assert_eq!(
        record.state(),
        LedgerState::Reported,
        "it went on to its end"
    );
}

async fn a_stop_gives_back_what_does_not_end(world: World) {
    world.provision(Duration::from_secs(30)).await;
    let script = Script::default();
    let hasty = WorkSettings {
        drain: Duration::from_millis(200),
        ..settings()
    };
    let worker = Worker::start(&world.bus, hasty, script.clone());
    let meta = submit(&world, "op", "waits").await;
    script.begun.cancelled().await;
    soon("the stop", worker.stop()).await;
    let record = record(&world, &meta).await.unwrap();
    assert_eq!(record.state(), LedgerState::Claimed);
    assert_eq!(
        (record.lease_until_ms, record.attempts),
        (0, 0),
        "no attempt was counted"
    );
    let mut puller = world.backend().puller(WORK, "file-resolver").await.unwrap();
    let never = tokio_util::sync::CancellationToken::new();
    let again = puller
        .fetch(1, Duration::from_secs(10), &never)
        .await
        .unwrap();
    assert_eq!(again[0].delivered, 2);
}

async fn sweep(sweeper: &mut Sweeper) -> SweepReport {
    sweeper.sweep().await.unwrap()
}

async fn the_sweeper_ends_what_nobody_finishes(world: World) {
    world.provision(Duration::from_secs(30)).await;
    let mut sweeper = Sweeper::new(world.bus.clone());
    let now_ms = world.clock.now_ms();
    let long_ago = world
        .meta("old")
        .with_deadline(Deadline::from_unix_ms(now_ms - 61_000));
    let just_now = world
        .meta("late")
        .with_deadline(Deadline::from_unix_ms(now_ms - 1_000));
    for meta in [&long_ago, &just_now] {
        world
            .bus
            .publish_work(meta, &tool_call("works"))
            .await
            .unwrap();
    }
    let mut events = world.events(EVENTS).await;
    let report = sweep(&mut sweeper).await;
    assert_eq!((report.buried, report.waiting), (1, 1));
    let rejected = rejection(&mut events).await;
    assert_eq!(
        (rejected.operation_id.as_str(), rejected.state()),
        ("old", TerminalState::DeadLettered)
    );
    assert_eq!(rejected.fault.unwrap().detail, "stranded");
    let record = reported(&world, &long_ago).await;
    assert_eq!(record.terminal(), TerminalState::DeadLettered);
    assert_eq!(sweep(&mut sweeper).await.buried, 0);
    // A worker that gets the message later finds that it has ended.
    let script = Script::default();
    let worker = Worker::start(&world.bus, settings(), script.clone());
    nothing_pending(&world).await;
    worker.stop().await;
    assert_eq!(script.runs("old"), 0);
}

async fn the_sweeper_tells_what_nobody_told(world: World) {
    world.provision(Duration::from_secs(30)).await;
    let now_ms = world.clock.now_ms();
    let meta = world
        .meta("op")
        .with_deadline(Deadline::from_unix_ms(now_ms - 61_000));
    world
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let key = crate::LedgerKey::of::<v1::ToolCallRequested>(&meta.tenant, &meta.operation);
    let done = v1::LedgerRecord {
        state: LedgerState::EffectDone.into(),
        terminal: TerminalState::Done.into(),
        epoch: 1,
        result: Some(v1::RecordedEvent {
            subject: "dray.event.toolcall.v1.resolved.acme".to_owned(),
            schema: "dray.v1.ToolCallResolved/1".to_owned(),
            message_id: "acme/op:toolcall.resolved:0".to_owned(),
            payload: b"\x0a\x02op".to_vec(),
        }),
        ..v1::LedgerRecord::default()
    };
    world.bus.ledger().write(&key, done, 0).await.unwrap();
    let mut sweeper = Sweeper::new(world.bus.clone());
    assert_eq!(sweep(&mut sweeper).await.told, 1);
    let event = soon("the event", world.events(EVENTS).await.next())
        .await
        .unwrap();
    assert_eq!(event.payload, &b"\x0a\x02op"[..]);
    assert_eq!(
        reported(&world, &meta).await.terminal(),
        TerminalState::Done
    );
    let letters = world.bus.dead_letters().list(1, 10).await.unwrap();
    assert!(letters.is_empty(), "what was done is not given up");
}

async fn the_sweeper_knows_what_ran_out_of_deliveries(world: World) {
    let topology = small(|topology| topology.consumers[0].max_deliver = 1);
    world.bus.apply_topology(&topology).await.unwrap();
    let meta = submit(&world, "op", "works").await;
    let mut puller = world.backend().puller(WORK, "file-resolver").await.unwrap();
    let never = tokio_util::sync::CancellationToken::new();
    let pulled = puller
        .fetch(1, Duration::from_secs(5), &never)
        .await
        .unwrap();
    pulled[0]
        .acker
        .send(Ack::Again(Duration::ZERO))
        .await
        .unwrap();
    let gone = puller
        .fetch(1, Duration::from_secs(1), &never)
        .await
        .unwrap();
    assert!(gone.is_empty());
    let mut sweeper = Sweeper::new(world.bus.clone());
    let report = sweep(&mut sweeper).await;
    assert_eq!(report.buried, 1, "long before its deadline: {report:?}");
    assert_eq!(
        reported(&world, &meta).await.terminal(),
        TerminalState::DeadLettered
    );
}

async fn an_unprovisioned_worker_says_so(world: World) {
    let error = world
        .bus
        .work(
            "file-resolver",
            settings(),
            Script::default(),
            tokio_util::sync::CancellationToken::new(),
        )
        .await
        .unwrap_err();
    assert!(error.to_string().contains("file-resolver"));
    let work = world
        .bus
        .ledger()
        .find::<v1::ToolCallRequested>(&world.meta("op").tenant, &OperationId::mint())
        .await;
    assert!(work.is_err());
}
