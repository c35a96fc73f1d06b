//! Tests of the order of start and stop, of health, and of two systems in one process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dray_bus::Topology;
use dray_proto::v1;
use dray_testkit::eventually;
use dray_types::{Fault, FaultCode};

use super::pages::get;
use super::service::{EchoService, HandlerProbe, TestHost, call, host, meta, settings};
use crate::host::LifecycleStage;
use crate::provision::verify_regularly;
use crate::{ExitStatus, Host, HostError, Settings, SweeperService};

const START_STAGES: [LifecycleStage; 8] = [
    LifecycleStage::Loaded,
    LifecycleStage::Telemetry,
    LifecycleStage::Bound,
    LifecycleStage::Connected,
    LifecycleStage::Verified,
    LifecycleStage::Started,
    LifecycleStage::Subscribed,
    LifecycleStage::Serving,
];

const STOP_STAGES: [LifecycleStage; 8] = [
    LifecycleStage::NotReady,
    LifecycleStage::ListenersClosed,
    LifecycleStage::Drained,
    LifecycleStage::Finished,
    LifecycleStage::Stopped,
    LifecycleStage::BusClosed,
    LifecycleStage::TelemetryFlushed,
    LifecycleStage::Closed,
];

#[tokio::test]
async fn stages_are_reached_in_the_documented_order() {
    let fixture = TestHost::new(&[]).await;
    assert_eq!(fixture.running.stages(), START_STAGES);
    let probe = fixture.probe.clone();
    let stopped = fixture.running.stop().await;
    assert_eq!(
        stopped.stages,
        [&START_STAGES[..], &STOP_STAGES[..]].concat()
    );
    assert!(!stopped.cut_short);
    assert_eq!(probe.stopped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_topology_that_changes_while_the_services_run_is_recorded() {
    let fixture = TestHost::new(&[]).await;
    let recorded = || fixture.counter("dray_topology_mismatch", "");
    // The host itself compares it, not only its start.
    eventually("a comparison", async || {
        (recorded() == Some(0.0)).then_some(())
    })
    .await;
    let bus = fixture.bus();
    let mut changed = Topology::default();
    changed.consumers[0].ack_wait *= 2;
    bus.apply_topology(&changed).await.unwrap();
    let (all, interval) = (Topology::default(), Duration::from_millis(10));
    let seeing = async {
        eventually("a difference", async || {
            (recorded() == Some(1.0)).then_some(())
        })
        .await;
        bus.apply_topology(&Topology::default()).await.unwrap();
        eventually("no difference", async || {
            (recorded() == Some(0.0)).then_some(())
        })
        .await;
    };
    tokio::select! {
        () = verify_regularly(bus.clone(), all, interval) => {}
        () = seeing => {}
    }
}

#[tokio::test]
async fn a_stop_lets_running_handlers_finish_while_health_still_answers() {
    let fixture = TestHost::new(&[]).await;
    fixture.running.ready().await;
    let address = fixture.running.addresses().http.unwrap();
    let (bus, probe, health) = (
        fixture.bus(),
        fixture.probe.clone(),
        fixture.running.health().clone(),
    );
    let mut tasks = tokio::task::JoinSet::new();
    let caller = bus.clone();
    tasks.spawn(async move { call(&caller, &meta("acme"), "hold:").await });
    probe.wait_inside(1).await;
    let TestHost {
        running,
        directory: _directory,
        ..
    } = fixture;
    let mut stopping = tokio::task::JoinSet::new();
    stopping.spawn(running.stop());
    health.wait_unready().await;
    assert_eq!(get(address, "/live").await.unwrap().0, 200);
    let (status, body) = get(address, "/ready").await.unwrap();
    assert_eq!(status, 503);
    assert!(body.contains(r#""stopping":true"#), "{body}");
    assert_eq!(
        probe.stopped.load(Ordering::SeqCst),
        0,
        "the service stops after its handlers"
    );
    probe.release.notify_waiters();
    assert_eq!(
        tasks.join_next().await.unwrap().unwrap().unwrap(),
        "released"
    );
    let stopped = stopping.join_next().await.unwrap().unwrap();
    assert!(!stopped.cut_short);
    assert_eq!(probe.stopped.load(Ordering::SeqCst), 1);
    assert!(
        get(address, "/live").await.is_err(),
        "nothing listens after the stop"
    );
}

#[tokio::test]
async fn the_bus_still_responds_while_requests_of_listeners_run() {
    let fixture = TestHost::new(&[]).await;
    let (bus, listeners) = (fixture.bus(), fixture.running.context().listeners.clone());
    let mut requests = tokio::task::JoinSet::new();
    requests.spawn(listeners.tasks.track_future(async move {
        listeners.stop.cancelled().await;
        call(&bus, &meta("acme"), "echo:late").await
    }));
    let stopped = fixture.running.stop().await;
    assert!(!stopped.cut_short);
    let response = requests.join_next().await.unwrap().unwrap();
    assert_eq!(response.unwrap(), "late");
}

#[tokio::test]
async fn a_request_of_a_listener_that_does_not_end_is_cut_off() {
    let fixture = TestHost::new(&[("shutdown.grace", "80ms")]).await;
    let (request, ended) = tokio::sync::oneshot::channel::<()>();
    fixture.running.context().listeners.spawn(async move {
        let _request = request;
        std::future::pending::<()>().await;
    });
    assert!(fixture.running.stop().await.cut_short);
    assert!(ended.await.is_err(), "the request is dropped");
}

#[tokio::test]
async fn handlers_that_outlive_the_grace_are_answered_and_ended() {
    let fixture = TestHost::new(&[("shutdown.grace", "50ms")]).await;
    let (bus, probe) = (fixture.bus(), fixture.probe.clone());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        // One attempt, because a second one would find no server.
        let meta = super::service::meta_for("acme", Duration::from_secs(5));
        call(&bus, &meta, "forever:").await
    });
    probe.wait_inside(1).await;
    let stopped = fixture.running.stop().await;
    assert!(stopped.cut_short);
    let fault = tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    probe.wait_inside(0).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_during_a_stop_ends_the_wait_for_its_handler() {
    let fixture = TestHost::new(&[]).await;
    let (bus, probe) = (fixture.bus(), fixture.probe.clone());
    let mut callers = tokio::task::JoinSet::new();
    let caller = bus.clone();
    callers.spawn(async move { call(&caller, &meta("acme"), "forever:").await });
    probe.wait_inside(1).await;
    let TestHost {
        running,
        directory: _directory,
        ..
    } = fixture;
    let mut stopping = tokio::task::JoinSet::new();
    stopping.spawn(running.stop());
    // After the drain no requests are received, but the handler still runs.
    dray_testkit::eventually("the drain", async || {
        let meta = super::service::meta_for("acme", Duration::from_millis(300));
        let fault = call(&bus, &meta, "echo:x").await.err()?;
        (fault.detail == "no_responder").then_some(())
    })
    .await;
    assert_eq!(*probe.inside.borrow(), 1);
    callers.shutdown().await;
    let stopped = stopping.join_next().await.unwrap().unwrap();
    assert!(!stopped.cut_short, "the grace was not waited for");
}

#[tokio::test]
async fn dropping_a_running_host_ends_everything() {
    let fixture = TestHost::new(&[]).await;
    let (bus, probe) = (fixture.bus(), fixture.probe.clone());
    let addresses = fixture.running.addresses();
    let tasks = fixture.running.context().tasks.clone();
    let mut callers = tokio::task::JoinSet::new();
    callers.spawn(async move { call(&bus, &meta("acme"), "forever:").await });
    probe.wait_inside(1).await;
    drop(fixture);
    probe.wait_inside(0).await;
    tasks.close();
    tasks.wait().await;
    for address in [addresses.http.unwrap(), addresses.grpc.unwrap()] {
        dray_testkit::eventually("the listener to go", async || {
            get(address, "/live").await.err()
        })
        .await;
    }
}

#[tokio::test]
async fn a_failing_start_leaves_nothing_running() {
    let directory = tempfile::tempdir().unwrap();
    let port = dray_testkit::port::unassigned_address();
    let (good, bad) = (HandlerProbe::default(), HandlerProbe::default());
    let probe = good.clone();
    let host = Host::new(settings(&directory).set("http.listen", port.to_string()))
        .with_start::<EchoService, _, _>(move |config, cx| async move {
            EchoService::open(config, cx, probe)
        })
        .with_start::<SecondService, _, _>(move |_, cx| async move {
            let config = super::service::EchoConfig {
                fail: true,
                ..super::service::EchoConfig::default()
            };
            EchoService::open(config, cx, bad).map(|_| SecondService)
        });
    let error = host.start().await.unwrap_err();
    assert!(
        matches!(
            error,
            HostError::Service {
                service: "second",
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        crate::host::ErrorChain(&error).to_string(),
        "the service `second` could not start: configured to fail"
    );
    assert_eq!(good.started.load(Ordering::SeqCst), 1);
    assert_eq!(
        good.stopped.load(Ordering::SeqCst),
        1,
        "the one that had started was stopped"
    );
    assert!(get(port, "/live").await.is_err(), "nothing listens");
    let repeated = host_at(&directory, port)
        .start()
        .await
        .expect("directory and port are free again");
    repeated.stop().await;
}

fn host_at(directory: &tempfile::TempDir, port: std::net::SocketAddr) -> Host {
    host(
        settings(directory).set("http.listen", port.to_string()),
        &HandlerProbe::default(),
    )
}

/// A second service, which handles no calls.
#[derive(Debug)]
struct SecondService;

impl crate::Service for SecondService {
    const NAME: &'static str = "second";
    type Config = super::service::EchoConfig;

    async fn start(
        _: super::service::EchoConfig,
        _: &crate::ServiceContext,
    ) -> Result<Self, crate::StartError> {
        Ok(Self)
    }

    fn routes(router: crate::Router<Self>) -> crate::Router<Self> {
        router
    }
}

#[tokio::test]
async fn two_systems_in_one_process_are_independent() {
    let one = TestHost::new(&[("file-resolver.greeting", "one ")]).await;
    let two = TestHost::new(&[("file-resolver.greeting", "two ")]).await;
    assert_eq!(one.call("echo:x").await.unwrap(), "one x");
    assert_eq!(two.call("echo:x").await.unwrap(), "two x");
    assert_ne!(one.running.addresses(), two.running.addresses());
    let calls = |fixture: &TestHost| {
        let metrics = fixture.running.metrics().unwrap();
        metrics
            .lines()
            .find(|line| line.starts_with("dray_answer_total{"))
            .map(str::to_owned)
    };
    assert!(
        calls(&one).unwrap().ends_with(" 1"),
        "each counts its own calls"
    );
    one.running.stop().await;
    assert_eq!(
        two.call("echo:y").await.unwrap(),
        "two y",
        "one's end is not the other's"
    );
}

#[tokio::test]
async fn several_services_share_one_host_and_only_some_may_run() {
    let directory = tempfile::tempdir().unwrap();
    let build = || {
        host(settings(&directory), &HandlerProbe::default())
            .with::<SecondService>()
            .with::<SweeperService>()
    };
    let all = build().start().await.unwrap();
    all.ready().await;
    assert!(!all.stop().await.cut_short);
    let some = build().only(["second"]).start().await.unwrap();
    let meta = super::service::meta_for("acme", Duration::from_millis(600));
    let answer = call(&some.context().bus, &meta, "echo:x");
    assert!(answer.await.is_err(), "the echo does not run");
    some.stop().await;
    let error = build().only(["third"]).start().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the service `third` does not exist; known: file-resolver, second, sweeper"
    );
    let error = build().with::<SecondService>().start().await.unwrap_err();
    assert!(matches!(error, HostError::Twice(_)), "{error:?}");
}

/// Handles the same call as the echo service.
#[derive(Debug)]
struct RivalService;

impl crate::Service for RivalService {
    const NAME: &'static str = "rival";
    type Config = super::service::EchoConfig;

    async fn start(
        _: super::service::EchoConfig,
        _: &crate::ServiceContext,
    ) -> Result<Self, crate::StartError> {
        Ok(Self)
    }

    fn routes(router: crate::Router<Self>) -> crate::Router<Self> {
        router.answer(|_, _: crate::Request<v1::FetchRequest>| async {
            Ok::<_, Fault>(v1::FetchReply::default())
        })
    }
}

#[tokio::test]
async fn a_call_that_two_services_answer_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let probe = HandlerProbe::default();
    let error = host(settings(&directory), &probe)
        .with::<RivalService>()
        .start()
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the call `dray.egress.v1.fetch` is answered twice"
    );
    assert_eq!(probe.stopped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn invalid_configuration_is_reported_before_anything_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let host = host(
        Settings::embedded(&state).set("limits.calls", "0"),
        &HandlerProbe::default(),
    );
    let error = host.start().await.unwrap_err();
    assert_eq!(error.exit_status(), ExitStatus::Config);
    assert!(
        error.to_string().contains("`limits.calls` is `0`"),
        "{error}"
    );
    assert!(!state.exists());
}

#[tokio::test]
async fn an_occupied_address_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap();
    let error = host_at(&directory, address).start().await.unwrap_err();
    assert!(
        matches!(
            error,
            HostError::Bind {
                section: "http",
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains(&address.to_string()));
    assert_eq!(error.exit_status(), ExitStatus::Failure);
}

#[tokio::test]
async fn a_shared_bus_that_is_not_provisioned_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let bus = dray_bus::Bus::in_process(dray_types::Clock::system(), &crate::telemetry::no_meter());
    let settings = || {
        settings(&directory)
            .bus(bus.clone())
            .set("bus.wait_for_topology", "0s")
    };
    let error = host(settings(), &HandlerProbe::default())
        .start()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("dray topology apply"), "{error}");
    crate::provision::apply_topology(&bus, &dray_bus::Topology::default())
        .await
        .unwrap();
    let running = host(settings(), &HandlerProbe::default())
        .start()
        .await
        .unwrap();
    running.stop().await;
    bus.round_trip()
        .await
        .expect("whoever brings the bus closes it");
}

#[tokio::test]
async fn references_are_generated_from_the_hosts_sections() {
    let directory = tempfile::tempdir().unwrap();
    let host = host(settings(&directory), &HandlerProbe::default());
    let page = host.config_reference();
    for section in [
        "bus",
        "store",
        "telemetry",
        "http",
        "grpc",
        "limits",
        "state",
        "shutdown",
        "file-resolver",
    ] {
        assert!(page.contains(&format!("\n## `{section}`\n")), "{section}");
    }
    assert!(page.contains("`DRAY_STORE__S3__SECRET_KEY`"), "{page}");
    let metrics = host.metrics_reference();
    for name in ["dray_answer_total", "dray_publish_total"] {
        assert!(
            metrics.contains(&format!("| `{name}` | counter |")),
            "{name}"
        );
    }
}
