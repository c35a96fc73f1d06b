//! Callers that wait until their event is in the file.

use dray_bus::{Bus, Meta, Topology};
use dray_types::{Clock, Deadline, TenantId};
use futures_util::FutureExt as _;
use opentelemetry::metrics::Meter;

use super::super::super::{Auditor, PUBLISH_TIMEOUT, ProxyProtocol};
use super::*;
use crate::metrics::ProxyMetrics;

/// An auditor that writes to `file`, and the metadata of a request.
async fn auditor(meter: &Meter, metrics: EgressMetrics, file: AuditQueue) -> (Auditor, Meta) {
    let clock = Clock::manual(1_800_000_000_000);
    let bus = Bus::in_process(clock.clone(), meter);
    bus.apply_topology(&Topology::default()).await.unwrap();
    let auditor = Auditor::new(
        bus,
        clock,
        metrics,
        tokio_util::task::TaskTracker::new(),
        [0; 32],
        Vec::new(),
        vec![file],
    );
    let deadline = Deadline::after(1_800_000_000_000, Duration::from_mins(1));
    (auditor, Meta::new(TenantId::default(), deadline))
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_stalls_delays_one_connection_and_not_the_next() {
    let fixture = FileFixture::new();
    // No worker takes tasks from the queue.
    let (tasks, received) = sync_channel(8);
    let metrics = EgressMetrics::new(&fixture.catalogue.meter());
    let file = AuditQueue::with_writer::<RotatedFile>(TEST_TERMS, tasks, metrics);
    // The short wait of a fetch near its deadline shows no stalled disk.
    assert!(!file.flushed(Duration::from_millis(5)).await);
    assert!(!file.flushed(Duration::from_secs(2)).await);
    assert!(file.flushed(Duration::from_secs(2)).now_or_never() == Some(false));
    // The worker comes to the flush, so the next connection waits again.
    while let Ok(task) = received.try_recv() {
        drop(task);
    }
    assert!(
        file.flushed(Duration::from_secs(2))
            .now_or_never()
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_stalls_delays_one_fetch_and_not_the_next() {
    let fixture = FileFixture::new();
    let meter = fixture.catalogue.meter();
    // No worker takes tasks from the queue.
    let (tasks, _received) = sync_channel(8);
    let metrics = EgressMetrics::new(&meter);
    let file = AuditQueue::with_writer::<RotatedFile>(TEST_TERMS, tasks, metrics.clone());
    let (auditor, meta) = auditor(&meter, metrics, file).await;
    for expected in [PUBLISH_TIMEOUT, Duration::ZERO] {
        let begin = tokio::time::Instant::now();
        let fetch = auditor.begin(meta.clone());
        assert!(!fetch.finish(PUBLISH_TIMEOUT, false).await);
        assert_eq!(begin.elapsed().as_secs(), expected.as_secs());
    }
}

#[tokio::test]
async fn an_open_connection_waits_until_its_line_is_in_the_file() {
    let fixture = FileFixture::new();
    let meter = fixture.catalogue.meter();
    // The test is the thread that writes.
    let (queue, received) = sync_channel(8);
    let metrics = EgressMetrics::new(&meter);
    let file = AuditQueue::with_writer::<RotatedFile>(TEST_TERMS, queue, metrics.clone());
    let (auditor, meta) = auditor(&meter, metrics, file).await;
    let metrics = ProxyMetrics::new(&meter);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut connection = auditor.begin_connection(meta, ProxyProtocol::Connect, metrics);
        connection.opened().await
    });
    let taking = tokio::task::spawn_blocking(move || (received.recv(), received.recv(), received));
    let (line, flush, received) = taking.await.unwrap();
    let Ok(QueueTask::Write(line)) = line else {
        panic!("the first task must write a line");
    };
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["proxy_stage"], "opened");
    let Ok(QueueTask::Flush(written)) = flush else {
        panic!("the connection must wait for its line");
    };
    assert!(tasks.try_join_next().is_none());
    written.send(()).unwrap();
    tasks.join_next().await.unwrap().unwrap();
    drop(received);
}
