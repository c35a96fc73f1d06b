//! The sweeper: work that no worker will finish.

use std::time::Duration;

use dray_proto::v1::{self, LedgerState, TerminalState};
use dray_types::{Clock, Deadline};

use super::at_work::{
    EVENT_SUBJECTS, binary_cloud_event, next_rejection, nothing_pending, structured_cloud_event,
    submit_work, wait_until_reported, work_settings,
};
use super::{
    BusFixture, ScriptedHandler, TestWorker, noop_meter, on_both, small_topology, tool_call,
    wait_soon,
};
use crate::backend::AckAction;
use crate::topology::WORK_STREAM;
use crate::{Bus, SweepReport, WorkSweeper};

on_both!(
    the_sweeper_dead_letters_work_that_no_worker_finishes,
    the_sweeper_publishes_outcomes_that_no_worker_published,
    the_sweeper_dead_letters_work_at_its_delivery_limit,
    the_sweeper_dead_letters_a_restart_that_no_worker_took,
    the_sweeper_ends_cloud_events_as_other_work,
    waiting_work_does_not_keep_the_sweeper_from_later_work,
    a_sweep_ends_while_work_is_published_without_a_pause,
);

async fn sweep_once(sweeper: &mut WorkSweeper) -> SweepReport {
    sweeper.sweep().await.unwrap()
}

async fn the_sweeper_dead_letters_work_that_no_worker_finishes(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    let now_ms = fixture.clock.now_ms();
    let long_ago = fixture
        .meta("old")
        .with_deadline(Deadline::from_unix_ms(now_ms - 61_000));
    let just_now = fixture
        .meta("late")
        .with_deadline(Deadline::from_unix_ms(now_ms - 1_000));
    for meta in [&long_ago, &just_now] {
        fixture
            .bus
            .publish_work(meta, &tool_call("works"))
            .await
            .unwrap();
    }
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let report = sweep_once(&mut sweeper).await;
    assert_eq!((report.dead_lettered, report.waiting), (1, 1));
    let rejected = next_rejection(&mut events).await;
    assert_eq!(
        (rejected.operation_id.as_str(), rejected.state()),
        ("old", TerminalState::DeadLettered)
    );
    assert_eq!(rejected.fault.unwrap().detail, "stranded");
    let record = wait_until_reported(&fixture, &long_ago).await;
    assert_eq!(record.terminal(), TerminalState::DeadLettered);
    assert_eq!(sweep_once(&mut sweeper).await.dead_lettered, 0);
    // A worker that gets the message later finds that it has ended.
    let script = ScriptedHandler::default();
    let worker = TestWorker::start(&fixture.bus, work_settings(), script.clone());
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("old"), 0);
}

async fn the_sweeper_publishes_outcomes_that_no_worker_published(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let now_ms = fixture.clock.now_ms();
    let meta = fixture
        .meta("op")
        .with_deadline(Deadline::from_unix_ms(now_ms - 61_000));
    fixture
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
    fixture.bus.ledger().write(&key, done, 0).await.unwrap();
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    assert_eq!(sweep_once(&mut sweeper).await.reported, 1);
    let event = wait_soon("the event", fixture.events(EVENT_SUBJECTS).await.next())
        .await
        .unwrap();
    assert_eq!(event.payload, &b"\x0a\x02op"[..]);
    assert_eq!(
        wait_until_reported(&fixture, &meta).await.terminal(),
        TerminalState::Done
    );
    let letters = fixture.bus.dead_letters().list(1, 10).await.unwrap();
    assert!(letters.is_empty(), "completed work has no dead letter");
}

async fn the_sweeper_dead_letters_work_at_its_delivery_limit(fixture: BusFixture) {
    let topology = small_topology(|topology| topology.consumers[0].max_deliver = 1);
    fixture.bus.apply_topology(&topology).await.unwrap();
    let meta = submit_work(&fixture, "op", "works").await;
    let mut puller = fixture
        .backend()
        .puller(WORK_STREAM, "file-resolver")
        .await
        .unwrap();
    let never = tokio_util::sync::CancellationToken::new();
    let pulled = puller
        .fetch(1, Duration::from_secs(5), &never)
        .await
        .unwrap();
    pulled[0]
        .acker
        .send(AckAction::Redeliver(Duration::ZERO))
        .await
        .unwrap();
    let gone = puller
        .fetch(1, Duration::from_secs(1), &never)
        .await
        .unwrap();
    assert!(gone.is_empty());
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    let report = sweep_once(&mut sweeper).await;
    assert_eq!(
        report.dead_lettered, 1,
        "long before its deadline: {report:?}"
    );
    assert_eq!(
        wait_until_reported(&fixture, &meta).await.terminal(),
        TerminalState::DeadLettered
    );
}

async fn the_sweeper_dead_letters_a_restart_that_no_worker_took(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    let now_ms = fixture.clock.now_ms();
    let meta = fixture
        .meta("op")
        .with_deadline(Deadline::from_unix_ms(now_ms - 61_000));
    fixture
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    assert_eq!(sweep_once(&mut sweeper).await.dead_lettered, 1);
    let letters = fixture.bus.dead_letters();
    let sequence = letters.list(1, 10).await.unwrap()[0].sequence;
    let passed = Deadline::from_unix_ms(now_ms - 61_000);
    letters.redrive(sequence, Some(passed)).await.unwrap();
    assert_eq!(sweep_once(&mut sweeper).await.dead_lettered, 1);
    assert_eq!(wait_until_reported(&fixture, &meta).await.redrives, 1);
    assert_eq!(letters.list(1, 10).await.unwrap().len(), 2);
}

async fn the_sweeper_ends_cloud_events_as_other_work(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    let passed = Deadline::from_unix_ms(fixture.clock.now_ms() - 61_000);
    let late = ["binary", "structured"].map(|name| fixture.meta(name).with_deadline(passed));
    for message in [
        binary_cloud_event(&late[0]),
        structured_cloud_event(&late[1]),
    ] {
        let stored = fixture.backend().store(&message, Duration::from_secs(5));
        stored.await.unwrap();
    }
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    assert_eq!(sweep_once(&mut sweeper).await.dead_lettered, 2);
    for meta in &late {
        let rejected = next_rejection(&mut events).await;
        assert_eq!(rejected.operation_id, meta.operation.as_str());
        assert_eq!(rejected.tool_call_id, "call-1");
        let record = wait_until_reported(&fixture, meta).await;
        assert_eq!(record.terminal(), TerminalState::DeadLettered);
    }
    let letters = fixture.bus.dead_letters();
    for letter in letters.list(1, 10).await.unwrap() {
        letters.redrive(letter.sequence, None).await.unwrap();
    }
    let script = ScriptedHandler::default();
    let worker = TestWorker::start(&fixture.bus, work_settings(), script.clone());
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!((script.runs("binary"), script.runs("structured")), (1, 1));
    // A sweeper that starts later finds all of it ended.
    let report = sweep_once(&mut sweeper).await;
    assert_eq!((report.ended, report.dead_lettered), (2, 0));
    assert_eq!(letters.list(1, 10).await.unwrap().len(), 2);
}

async fn waiting_work_does_not_keep_the_sweeper_from_later_work(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    for number in 0..257 {
        submit_work(&fixture, &format!("waits-{number}"), "works").await;
    }
    let passed = Deadline::from_unix_ms(fixture.clock.now_ms() - 61_000);
    let meta = fixture.meta("late").with_deadline(passed);
    fixture
        .bus
        .publish_work(&meta, &tool_call("works"))
        .await
        .unwrap();
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    let report = sweep_once(&mut sweeper).await;
    assert_eq!((report.dead_lettered, report.waiting), (1, 257));
}

async fn a_sweep_ends_while_work_is_published_without_a_pause(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    submit_work(&fixture, "before", "works").await;
    let publishing = async {
        for number in 0_u64.. {
            submit_work(&fixture, &format!("op-{number}"), "works").await;
            // In process, nothing else would run in between.
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = publishing => {}
        report = wait_soon("the sweep", sweep_once(&mut sweeper)) => assert!(report.waiting > 0),
    }
}

#[tokio::test]
async fn the_sweeper_ends_work_of_a_distant_deadline_before_the_stream_drops_it() {
    let clock = Clock::manual(1_795_835_332_617);
    let fixture = BusFixture {
        bus: Bus::in_process(clock.clone(), &noop_meter()),
        clock,
        server: None,
    };
    fixture.provision(Duration::from_secs(30)).await;
    let distant = Deadline::from_unix_ms(u64::MAX);
    let meta = fixture.meta("op").with_deadline(distant);
    let message = binary_cloud_event(&meta);
    let stored = fixture.backend().store(&message, Duration::from_secs(5));
    stored.await.unwrap();
    fixture.clock.advance(Duration::from_secs(5 * 3600 + 61));
    let mut sweeper = WorkSweeper::new(fixture.bus.clone());
    assert_eq!(sweep_once(&mut sweeper).await.dead_lettered, 1);
    let record = wait_until_reported(&fixture, &meta).await;
    assert_eq!(record.terminal(), TerminalState::DeadLettered);
}
