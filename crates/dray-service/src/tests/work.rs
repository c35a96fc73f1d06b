//! Tests of work in a host: it is consumed while the host is ready, and finished at a stop.

use dray_bus::{Bus, EventFilter};
use dray_proto::v1;
use prost::Message as _;

use super::service::{TestHost, meta};

fn work(tool: &str) -> v1::ToolCallRequested {
    v1::ToolCallRequested {
        tool_call_id: "c1".to_owned(),
        tool: tool.to_owned(),
        ..v1::ToolCallRequested::default()
    }
}

/// The first resolved event, which may already exist.
async fn first_resolved(bus: &Bus) -> v1::ToolCallResolved {
    let mut events = bus
        .events(EventFilter::of::<v1::ToolCallResolved>().from_start())
        .await
        .unwrap();
    let next = tokio::time::timeout(std::time::Duration::from_secs(20), events.next());
    let event = next.await.expect("no event came").unwrap();
    v1::ToolCallResolved::decode(event.payload).unwrap()
}

#[tokio::test]
async fn work_is_consumed_and_answered_by_an_event() {
    let fixture = TestHost::new(&[]).await;
    let meta = meta("acme");
    fixture.bus().publish_work(&meta, &work("t")).await.unwrap();
    let event = first_resolved(&fixture.bus()).await;
    assert_eq!(event.operation_id, meta.operation.as_str());
    assert_eq!(
        (event.tool_call_id.as_str(), event.tool.as_str()),
        ("c1", "t")
    );
}

#[tokio::test]
async fn an_unready_process_pulls_nothing_until_it_is_ready_again() {
    let fixture = TestHost::new(&[]).await;
    fixture.running.ready().await;
    fixture.probe.healthy.send_replace(false);
    fixture.running.health().wait_unready().await;
    let before = fixture
        .probe
        .entered
        .load(std::sync::atomic::Ordering::SeqCst);
    // Pulling ends within the pull that notices the stop; messages that are published later stay in the stream.
    fixture
        .bus()
        .publish_work(&meta("acme"), &work("t"))
        .await
        .unwrap();
    assert_eq!(
        fixture.call("echo:x").await.unwrap(),
        "x",
        "calls are still answered"
    );
    assert_eq!(
        fixture
            .probe
            .entered
            .load(std::sync::atomic::Ordering::SeqCst),
        before + 1
    );
    fixture.probe.healthy.send_replace(true);
    assert_eq!(first_resolved(&fixture.bus()).await.tool, "t");
}

#[tokio::test]
async fn running_work_is_finished_at_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    let bus = Bus::in_process(dray_types::Clock::system(), &crate::telemetry::no_meter());
    crate::provision::apply_topology(&bus, &dray_bus::Topology::default())
        .await
        .unwrap();
    let probe = super::service::HandlerProbe::default();
    let settings = super::service::settings(&directory).bus(bus.clone());
    let running = super::service::host(settings, &probe)
        .start()
        .await
        .unwrap();
    bus.publish_work(&meta("acme"), &work("hold"))
        .await
        .unwrap();
    probe.wait_inside(1).await;
    let health = running.health().clone();
    let mut stopping = tokio::task::JoinSet::new();
    stopping.spawn(running.stop());
    health.wait_unready().await;
    probe.release.notify_waiters();
    let stopped = stopping.join_next().await.unwrap().unwrap();
    assert!(!stopped.cut_short);
    assert_eq!(first_resolved(&bus).await.tool, "hold");
}
