//! Tests of the signals that stop a process.
//!
//! One test, because a signal reaches every waiter of the process.

use std::net::SocketAddr;

use dray_bus::Bus;
use dray_types::Clock;
use rustix::process::{Signal, getpid, kill_process};

use super::pages::get;
use super::service::{HandlerProbe, call, host, meta, settings};
use crate::{ExitStatus, serve_until_signal};

/// Waits until a page has this status and contains this text.
async fn wait_for_page(address: SocketAddr, path: &str, status: u16, text: &str) {
    dray_testkit::eventually(path, async || {
        let (code, body) = get(address, path).await.ok()?;
        (code == status && body.contains(text)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_first_signal_stops_in_order_and_the_second_immediately() {
    let directory = tempfile::tempdir().unwrap();
    let bus = Bus::in_process(Clock::system(), &crate::telemetry::no_meter());
    crate::provision::apply_topology(&bus, &dray_bus::Topology::default())
        .await
        .unwrap();
    let address = dray_testkit::port::unassigned_address();
    let settings = || {
        settings(&directory)
            .bus(bus.clone())
            .set("http.listen", address.to_string())
    };
    let mut tasks = tokio::task::JoinSet::new();
    let mut calls = tokio::task::JoinSet::new();
    let caller = |verb: &'static str| {
        let bus = bus.clone();
        async move { call(&bus, &meta("acme"), verb).await }
    };

    let probe = HandlerProbe::default();
    tasks.spawn(serve_until_signal(host(settings(), &probe)));
    wait_for_page(address, "/started", 200, "").await;
    calls.spawn(caller("hold:"));
    probe.wait_inside(1).await;
    kill_process(getpid(), Signal::TERM).unwrap();
    wait_for_page(address, "/ready", 503, r#""stopping":true"#).await;
    probe.release.notify_waiters();
    assert_eq!(
        calls.join_next().await.unwrap().unwrap().unwrap(),
        "released"
    );
    assert_eq!(
        tasks.join_next().await.unwrap().unwrap().unwrap(),
        ExitStatus::Success
    );

    let probe = HandlerProbe::default();
    tasks.spawn(serve_until_signal(host(settings(), &probe)));
    wait_for_page(address, "/started", 200, "").await;
    calls.spawn(caller("forever:"));
    probe.wait_inside(1).await;
    kill_process(getpid(), Signal::INT).unwrap();
    wait_for_page(address, "/ready", 503, r#""stopping":true"#).await;
    kill_process(getpid(), Signal::TERM).unwrap();
    assert_eq!(
        tasks.join_next().await.unwrap().unwrap().unwrap(),
        ExitStatus::Failure
    );
    probe.wait_inside(0).await;
}
