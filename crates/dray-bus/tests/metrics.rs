//! Tests the metrics of the bus.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot continue fails the test"
)]

use std::time::Duration;

use dray_bus::{
    Bus, CallError, Meta, NatsOptions, Topology, WorkCompleted, WorkDelivery, WorkFailure,
    WorkHandler, WorkSettings, WorkSweeper,
};
use dray_proto::v1;
use dray_testkit::{eventually, nats::NatsServer};
use dray_types::{Clock, Deadline, Fault, FaultCode, OperationId, TenantId};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use tokio_util::sync::CancellationToken;

/// A meter whose values are read in the Prometheus text format.
struct MeterReader {
    registry: prometheus::Registry,
    provider: SdkMeterProvider,
}

impl MeterReader {
    fn new() -> Self {
        let registry = prometheus::Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .without_units()
            .without_counter_suffixes()
            .build()
            .unwrap();
        let provider = SdkMeterProvider::builder().with_reader(exporter).build();
        Self { registry, provider }
    }

    fn meter(&self) -> opentelemetry::metrics::Meter {
        self.provider.meter("dray")
    }

    /// The value of a metric, summed over the series with this label; 0 without such a series.
    fn count(&self, name: &str, label: Option<(&str, &str)>) -> f64 {
        self.registry
            .gather()
            .iter()
            .filter(|family| family.name() == name)
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .filter(|metric| {
                label.is_none_or(|(name, value)| {
                    metric
                        .get_label()
                        .iter()
                        .any(|pair| pair.name() == name && pair.value() == value)
                })
            })
            .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
            .sum()
    }

    /// Whether a metric has been written, if only with 0.
    fn has_series(&self, name: &str) -> bool {
        let families = self.registry.gather();
        families
            .iter()
            .any(|family| family.name() == name && !family.get_metric().is_empty())
    }

    #[track_caller]
    fn check(&self, name: &str, label: Option<(&str, &str)>, expected: f64) {
        let found = self.count(name, label);
        assert!(
            (found - expected).abs() < f64::EPSILON,
            "{name} {label:?}: {found}"
        );
    }
}

fn meta(clock: &Clock, operation: &str, within: Duration) -> Meta {
    Meta::new(
        TenantId::new("acme").unwrap(),
        Deadline::after(clock.now_ms(), within),
    )
    .with_operation(OperationId::new(operation).unwrap())
}

struct RefusingHandler;

impl WorkHandler<v1::ToolCallRequested> for RefusingHandler {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let transient =
            Fault::new(FaultCode::Unavailable, "later").retry_after(Duration::from_millis(1));
        match delivery.work.tool.as_str() {
            "transient" => Err(transient.into()),
            _ => Err(Fault::new(FaultCode::Denied, "no").into()),
        }
    }
}

#[tokio::test]
async fn publications_calls_and_outcomes_are_counted() {
    let metrics = MeterReader::new();
    let clock = Clock::system();
    let bus = Bus::in_process(clock.clone(), &metrics.meter());
    let within = Duration::from_secs(30);
    let op = meta(&clock, "op", within);
    let work = v1::ToolCallRequested::default();

    let late = op.clone().with_deadline(Deadline::from_unix_ms(0));
    assert!(bus.publish_work(&late, &work).await.is_err());
    metrics.check("dray_publish_total", Some(("result", "error")), 1.0);
    bus.apply_topology(&Topology::default()).await.unwrap();
    assert_eq!(bus.verify_topology(&Topology::default()).await.unwrap(), []);
    metrics.check("dray_topology_mismatch", None, 0.0);
    for _ in 0..2 {
        bus.publish_work(&op, &work).await.unwrap();
    }
    metrics.check("dray_publish_total", Some(("result", "ok")), 1.0);
    metrics.check("dray_publish_total", Some(("result", "duplicate")), 1.0);

    let soon = meta(&clock, "op", Duration::from_secs(5));
    let call = bus.call(&soon, &v1::FetchRequest::default()).await;
    assert!(matches!(call, Err(CallError::NoResponder(_))));
    metrics.check("dray_call_total", Some(("result", "no_responder")), 1.0);

    let transient = v1::ToolCallRequested {
        tool: "transient".to_owned(),
        ..work
    };
    bus.publish_work(&meta(&clock, "other", within), &transient)
        .await
        .unwrap();
    let stop = CancellationToken::new();
    let settings = WorkSettings {
        attempts: 1,
        ..WorkSettings::default()
    };
    let working = bus.work("file-resolver", settings, RefusingHandler, stop.clone());
    let ending = async {
        eventually("both operations to end", async || {
            let ended = metrics.count("dray_process_total", Some(("outcome", "failed")))
                + metrics.count("dray_process_total", Some(("outcome", "dead")));
            (ended > 1.5).then_some(())
        })
        .await;
        stop.cancel();
    };
    let (result, ()) = tokio::join!(working, ending);
    result.unwrap();
    metrics.check("dray_process_total", Some(("outcome", "failed")), 1.0);
    metrics.check("dray_dead_total", Some(("code", "unavailable")), 1.0);
}

#[tokio::test]
async fn the_sweeper_measures_the_oldest_dead_letter_that_waits_for_an_operator() {
    let metrics = MeterReader::new();
    let clock = Clock::manual(1_700_000_000_000);
    let bus = Bus::in_process(clock.clone(), &metrics.meter());
    bus.apply_topology(&Topology::default()).await.unwrap();
    let mut sweeper = WorkSweeper::new(bus.clone());
    assert!(metrics.has_series("dray_stranded_total"));
    let passed = meta(&clock, "op", Duration::ZERO);
    bus.publish_work(&passed, &v1::ToolCallRequested::default())
        .await
        .unwrap();
    clock.advance(Duration::from_secs(61));
    sweeper.sweep().await.unwrap();
    metrics.check("dray_dead_oldest_seconds", None, 0.0);
    metrics.check("dray_stranded_total", None, 1.0);
    clock.advance(Duration::from_secs(100));
    bus.dead_letters().list(1, 10).await.unwrap();
    metrics.check("dray_dead_oldest_seconds", None, 0.0);
    sweeper.sweep().await.unwrap();
    metrics.check("dray_dead_oldest_seconds", None, 100.0);
}

#[tokio::test]
async fn a_failed_sweep_is_counted_and_does_not_move_the_time_of_the_last_complete_one() {
    let (failures, last_success) = (
        "dray_sweep_failures_total",
        "dray_sweep_last_success_timestamp_seconds",
    );
    let metrics = MeterReader::new();
    let clock = Clock::manual(1_700_000_000_000);
    // Without streams, every sweep fails.
    let without_streams = Bus::in_process(clock.clone(), &metrics.meter());
    let mut failing = WorkSweeper::new(without_streams);
    assert!(metrics.has_series(failures));
    metrics.check(failures, None, 0.0);
    failing.sweep().await.unwrap_err();
    metrics.check(failures, None, 1.0);
    assert!(!metrics.has_series(last_success));

    let bus = Bus::in_process(clock.clone(), &metrics.meter());
    bus.apply_topology(&Topology::default()).await.unwrap();
    WorkSweeper::new(bus).sweep().await.unwrap();
    metrics.check(failures, None, 1.0);
    metrics.check(last_success, None, 1_700_000_000.0);
    clock.advance(Duration::from_secs(30));
    failing.sweep().await.unwrap_err();
    metrics.check(failures, None, 2.0);
    metrics.check(last_success, None, 1_700_000_000.0);
}

#[tokio::test]
async fn a_sweep_that_cannot_measure_the_dead_letters_is_not_complete() {
    let metrics = MeterReader::new();
    let bus = Bus::in_process(Clock::system(), &metrics.meter());
    let mut topology = Topology::default();
    topology.streams.retain(|stream| stream.name != "DRAY_DEAD");
    bus.apply_topology(&topology).await.unwrap();
    WorkSweeper::new(bus).sweep().await.unwrap();
    metrics.check("dray_sweep_failures_total", None, 1.0);
    assert!(!metrics.has_series("dray_sweep_last_success_timestamp_seconds"));
}

struct AcceptingHandler;

impl WorkHandler<v1::ToolCallRequested> for AcceptingHandler {
    async fn handle(
        &self,
        _: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        Ok(WorkCompleted::event(&v1::ToolCallResolved::default()))
    }
}

/// A bus with one dead letter, and the sweeper that wrote it.
async fn with_dead_letter(metrics: &MeterReader, clock: &Clock) -> (Bus, WorkSweeper) {
    let bus = Bus::in_process(clock.clone(), &metrics.meter());
    bus.apply_topology(&Topology::default()).await.unwrap();
    let mut sweeper = WorkSweeper::new(bus.clone());
    let passed = meta(clock, "op", Duration::ZERO);
    bus.publish_work(&passed, &v1::ToolCallRequested::default())
        .await
        .unwrap();
    clock.advance(Duration::from_secs(61));
    sweeper.sweep().await.unwrap();
    (bus, sweeper)
}

#[tokio::test]
async fn a_letter_whose_work_was_done_does_not_wait_after_the_ledger_has_forgotten_it() {
    let metrics = MeterReader::new();
    let clock = Clock::manual(1_700_000_000_000);
    let (bus, _) = with_dead_letter(&metrics, &clock).await;
    let letter = bus.dead_letters().list(1, 1).await.unwrap().remove(0);
    bus.dead_letters()
        .redrive(letter.sequence, None)
        .await
        .unwrap();
    let stop = CancellationToken::new();
    let settings = WorkSettings::default();
    let working = bus.work("file-resolver", settings, AcceptingHandler, stop.clone());
    let ending = async {
        eventually("the restarted work to end", async || {
            let done = metrics.count("dray_process_total", Some(("outcome", "done")));
            (done > 0.5).then_some(())
        })
        .await;
        stop.cancel();
    };
    let (result, ()) = tokio::join!(working, ending);
    result.unwrap();
    clock.advance(Duration::from_hours(73));
    let state = bus.dead_letters().list(1, 1).await.unwrap().remove(0).state;
    assert_eq!(state.as_str(), "unknown", "the ledger has forgotten it");
    let mut restarted = WorkSweeper::new(bus);
    restarted.sweep().await.unwrap();
    metrics.check("dray_dead_oldest_seconds", None, 0.0);
}

#[tokio::test]
async fn a_letter_that_was_seen_open_waits_after_the_ledger_has_forgotten_its_work() {
    let metrics = MeterReader::new();
    let clock = Clock::manual(1_700_000_000_000);
    let (_bus, mut sweeper) = with_dead_letter(&metrics, &clock).await;
    let days = Duration::from_hours(73);
    clock.advance(days);
    sweeper.sweep().await.unwrap();
    metrics.check("dray_dead_oldest_seconds", None, days.as_secs_f64());
}

#[tokio::test]
async fn writes_of_keys_are_counted_and_a_full_bucket_is_seen_before() {
    const LEDGER_LABEL: (&str, &str) = ("bucket", "dray_ledger");
    let metrics = MeterReader::new();
    let bus = Bus::in_process(Clock::system(), &metrics.meter());
    // 12 % of it are 120 kB.
    let topology = Topology::new(1, 1_000_000);
    assert_eq!(bus.apply_topology(&topology).await.unwrap(), []);
    let used = || metrics.count("dray_stream_used_ratio", Some(("stream", "KV_dray_ledger")));
    bus.verify_topology(&topology).await.unwrap();
    assert!(used() < 0.01, "{}", used());
    let keys = bus.key_value(LEDGER_LABEL.1);
    keys.create("a", vec![0; 108_000].into()).await.unwrap();
    metrics.check("dray_key_write_total", Some(LEDGER_LABEL), 1.0);
    bus.verify_topology(&topology).await.unwrap();
    assert!((0.85..1.0).contains(&used()), "{}", used());
    keys.create("a", vec![0; 8].into()).await.unwrap_err();
    metrics.check("dray_key_write_total", Some(("result", "stale")), 1.0);
    keys.create("b", vec![0; 20_000].into()).await.unwrap_err();
    metrics.check("dray_key_write_total", Some(("result", "full")), 1.0);
}

#[tokio::test]
async fn a_comparison_of_a_part_of_the_topology_is_not_recorded() {
    let metrics = MeterReader::new();
    let bus = Bus::in_process(Clock::system(), &metrics.meter());
    let mut needed = Topology::default();
    assert!(bus.verify_topology(&needed).await.unwrap().len() > 1);
    needed.streams.truncate(1);
    needed.consumers.clear();
    assert_eq!(bus.compare_topology(&needed).await.unwrap().len(), 1);
    // The number of the whole stays.
    assert!(metrics.count("dray_topology_mismatch", None) > 1.5);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_are_counted() {
    let metrics = MeterReader::new();
    let mut server = NatsServer::start();
    let options = NatsOptions::at(server.url());
    let bus = Bus::connect(&options, Clock::system(), &metrics.meter())
        .await
        .unwrap();
    for name in [
        "dray_bus_disconnects_total",
        "dray_permission_violation_total",
        "dray_slow_consumer_total",
        "dray_ledger_regression_total",
    ] {
        assert!(metrics.has_series(name), "{name}");
        metrics.check(name, None, 0.0);
    }
    server.restart();
    eventually("the loss to be counted", async || {
        (metrics.count("dray_bus_disconnects_total", None) > 0.5).then_some(())
    })
    .await;
    drop(bus);
}
