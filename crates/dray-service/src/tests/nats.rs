//! Tests of a host on a real NATS server: it waits for provisioning, survives outages and stops in order.

use std::sync::atomic::Ordering;

use dray_bus::{Bus, NatsOptions, Topology};
use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_testkit::tls::Authority;
use dray_types::Clock;

use super::pages::get;
use super::service::{HandlerProbe, call, host, meta, settings};
use crate::provision;

async fn operator(server: &NatsServer) -> Bus {
    let options = NatsOptions::at(server.url()).named("operator");
    Bus::connect(&options, Clock::system(), &crate::telemetry::no_meter())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_certificate_for_the_bus_is_shown() {
    let server = NatsServer::start();
    let topology = Topology::new(1, 1 << 30);
    provision::apply_topology(&operator(&server).await, &topology)
        .await
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let issued = Authority::new().unwrap().issue(&["service"], true).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let settings = settings(&directory)
        .set("bus.mode", "nats")
        .set("bus.nats.servers", server.url())
        .set(
            "bus.nats.client_certificate_file",
            file("tls.crt", &issued.certificate),
        )
        .set(
            "bus.nats.client_key_file",
            file("tls.key", &issued.private_key),
        );
    let running = host(settings, &HandlerProbe::default())
        .start()
        .await
        .unwrap();
    // 2001-01-01, as the authority of the tests has it.
    let expected = "dray_certificate_expiry_timestamp_seconds{use=\"bus\"} 978307200";
    eventually("the end of the certificate", async || {
        let page = running.metrics().unwrap();
        page.contains(expected).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_waits_for_its_topology_and_survives_an_outage_of_the_bus() {
    let mut server = NatsServer::start();
    let operator = operator(&server).await;
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(&directory)
        .set("bus.mode", "nats")
        .set("bus.nats.servers", server.url());

    let refused = settings.clone().set("bus.wait_for_topology", "0s");
    let error = host(refused, &HandlerProbe::default())
        .start()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("dray topology apply"), "{error}");

    let probe = HandlerProbe::default();
    let mut starting = tokio::task::JoinSet::new();
    starting.spawn(host(settings, &probe).start());
    provision::apply_topology(&operator, &Topology::new(1, 1 << 30))
        .await
        .unwrap();
    let running = starting.join_next().await.unwrap().unwrap().unwrap();
    running.ready().await;
    assert_eq!(call(&operator, &meta("acme"), "echo:x").await.unwrap(), "x");

    let http = running.addresses().http.unwrap();
    server.kill9();
    running.health().wait_unready().await;
    assert_eq!(
        get(http, "/live").await.unwrap().0,
        200,
        "an outage of the bus is no reason to restart"
    );
    assert!(get(http, "/ready").await.unwrap().1.contains("\"bus\""));
    server.restart();
    running.ready().await;
    eventually("an answer after the outage", async || {
        call(&operator, &meta("acme"), "echo:y")
            .await
            .ok()
            .filter(|answer| answer == "y")
    })
    .await;

    let stopped = running.stop().await;
    assert!(!stopped.cut_short);
    assert_eq!(probe.stopped.load(Ordering::SeqCst), 1);
}
