//! Tests of limits of connections, bytes and time, and of the end of the process.

use std::time::Duration;

use dray_bus::Bus;
use dray_service::telemetry::InstrumentCatalogue;
use dray_types::{Clock, Secret};
use tokio::time::Instant;

use super::*;
use crate::audit::Auditor;
use crate::config::Config;
use crate::metrics::{EgressMetrics, ProxyMetrics};
use crate::proxy::ForwardProxy;

#[tokio::test]
async fn b_2_bytes_are_limited_in_both_directions() {
    let set = [
        ("max_up_bytes", "10"),
        ("max_down_bytes", "20"),
        ("plain_ports", "443"),
    ];
    let mut proxy = ProxyFixture::start(&set).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    for (up, down, code) in [(10, 20, ""), (11, 0, "too_large"), (0, 21, "too_large")] {
        let (mut client, _) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
        let mut server = ends.recv().await.unwrap();
        assert_eq!(proxy.event().await.proxy_stage, "opened");
        let mut received = Vec::new();
        if up > 0 {
            client.write_all(&vec![b'u'; up]).await.unwrap();
            client.shutdown().await.unwrap();
            server.read_to_end(&mut received).await.unwrap();
            assert_eq!(received.len(), up.min(10));
        }
        // The proxy may have closed the connection already.
        let _ = server.write_all(&vec![b'd'; down]).await;
        drop(server);
        assert_eq!(read_all(&mut client).await.len(), down.min(20));
        drop(client);
        let event = proxy.event().await;
        assert_eq!(event.code, code);
        assert_eq!(event.up_bytes, up.min(10) as u64);
        assert_eq!(event.down_bytes, down.min(20) as u64);
    }
}

#[tokio::test]
async fn b_2_both_sides_close_when_a_target_that_stays_open_sends_one_byte_too_many() {
    let set = [
        ("max_down_bytes", "20"),
        ("plain_ports", "443"),
        ("idle_timeout", "1m"),
    ];
    let mut proxy = ProxyFixture::start(&set).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, _) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    let mut server = ends.recv().await.unwrap();
    assert_eq!(proxy.event().await.proxy_stage, "opened");
    server.write_all(&[b'd'; 21]).await.unwrap();
    // Neither end closes by itself here.
    assert_eq!(read_all(&mut client).await.len(), 20);
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    let event = proxy.event().await;
    assert_eq!((event.code.as_str(), event.down_bytes), ("too_large", 20));
}

#[tokio::test]
async fn section_15_a_session_has_its_share_of_the_connections() {
    let set = [
        ("max_per_session", "1"),
        ("open_timeout", "3s"),
        ("plain_ports", "443"),
    ];
    let mut proxy = ProxyFixture::start(&set).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let authority = format!("{TARGET_HOST}:443");
    let (client, head) = proxy.tunnel(&authority).await;
    assert_eq!(status_of(&head), 200);
    let server = ends.recv().await.unwrap();
    let (_, head) = proxy.tunnel(&authority).await;
    assert_eq!(
        status_of(&head),
        504,
        "it waits for its place until its time is over"
    );
    let other = format!(
        "Proxy-Authorization: Bearer {}\r\n",
        proxy.token_of("chat-2", None)
    );
    let (_other, head) = proxy.tunnel_with(&authority, &other).await;
    assert_eq!(
        status_of(&head),
        200,
        "another session has places of its own"
    );
    drop((client, server));
    while proxy.event().await.proxy_stage != "closed" {}
    let (_, head) = proxy.tunnel(&authority).await;
    assert_eq!(status_of(&head), 200);
}

#[tokio::test]
async fn open_connections_are_drained_and_then_cut_with_an_event() {
    let mut proxy = ProxyFixture::start(&[("drain_timeout", "10ms"), ("plain_ports", "443")]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, _) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    let _server = ends.recv().await.unwrap();
    assert_eq!(proxy.event().await.proxy_stage, "opened");
    let ProxyFixture {
        service, address, ..
    } = proxy;
    let TestService {
        running, mut audit, ..
    } = service;
    let (_, event) = tokio::join!(running.stop(), audit.next());
    let event: v1::EgressAudit = event.unwrap().decode().unwrap();
    assert_eq!(
        (event.proxy_stage.as_str(), event.code.as_str()),
        ("closed", "stopping")
    );
    assert_eq!(read_all(&mut client).await, "");
    let refused = std::net::TcpStream::connect(address);
    assert!(refused.is_err(), "the listener is closed");
}

/// A proxy without a service, over the network of a test, in paused time. Its bus has no streams.
pub(super) fn detached(
    fake_network: &FakeNetwork,
    change: impl FnOnce(&mut Config),
) -> ForwardProxy {
    let mut config = Config {
        enabled: true,
        ..Config::default()
    };
    config.proxy.listen = Some("127.0.0.1:0".parse().unwrap());
    config.proxy.token_key = Some(Secret::new(TOKEN_KEY));
    change(&mut config);
    let compiled = config.compile().unwrap();
    let meter = InstrumentCatalogue::new().meter();
    let clock = Clock::manual(1_800_000_000_000);
    let bus = Bus::in_process(clock.clone(), &meter);
    let auditor = Auditor::new(
        bus,
        clock.clone(),
        EgressMetrics::new(&meter),
        tokio_util::task::TaskTracker::new(),
        [0; 32],
        Vec::new(),
        Vec::new(),
    );
    let fixture = FetcherFixture {
        fake_network: fake_network.clone(),
        admin: compiled.admin,
        ..FetcherFixture::default()
    };
    ForwardProxy::new(
        compiled.proxy.unwrap(),
        Arc::new(fixture.fetcher()),
        auditor,
        ProxyMetrics::new(&meter),
        clock,
        config.audit_required,
    )
}

fn connect_request(authority: &str, expires_s: u64) -> String {
    let token = mint("chat-1", expires_s, None);
    format!(
        "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
    )
}

/// Runs a client that sends `request` and then waits; returns what it got and the time that its connection took.
async fn run_client(proxy: &ForwardProxy, request: &str) -> (String, Duration) {
    let started = Instant::now();
    let (mut client, io) = tokio::io::duplex(64 * 1024);
    client.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let reading = async {
        let _ = client.read_to_end(&mut received).await;
    };
    tokio::join!(proxy.serve_client(io, None), reading);
    let received = String::from_utf8_lossy(&received).into_owned();
    (received, started.elapsed())
}

/// Paused time: the wait itself, and what two audit events and the last bytes may take.
fn assert_about(time: Duration, seconds: u64) {
    assert!(
        (seconds..=seconds + 6).contains(&time.as_secs()),
        "{time:?}"
    );
}

const FAR_S: u64 = 2_000_000_000;

#[tokio::test(start_paused = true)]
async fn section_14_every_wait_for_a_client_has_an_end() {
    let fake_network = FetcherFixture::default().fake_network;
    fake_network.peer(PUBLIC_ADDRESS, 443, FakePeer::Mute);
    let proxy = detached(&fake_network, |config| {
        config.proxy.tunnel_timeout = dray_types::Period::secs(3600);
    });
    let target = format!("{TARGET_HOST}:443");
    let whole = connect_request(&target, FAR_S);
    // A slow head, in both protocols, and none at all.
    let (response, time) = run_client(&proxy, whole.trim_end()).await;
    assert_eq!(code_of(&response), "request_timeout");
    assert_about(time, 10);
    let (response, time) = run_client(&proxy, "\u{5}").await;
    assert_eq!(response, "");
    assert_about(time, 10);
    let (response, time) = run_client(&proxy, "").await;
    assert_eq!(response, "");
    assert_about(time, 10);
    // A tunnel without a ClientHello.
    let (response, time) = run_client(&proxy, &whole).await;
    assert!(response.starts_with("HTTP/1.1 200 "));
    assert_about(time, 10);
    assert_eq!(fake_network.dialled(), [format!("{PUBLIC_ADDRESS}:443")]);
}

#[tokio::test(start_paused = true)]
async fn section_14_a_tunnel_ends_when_it_is_idle_and_with_its_token() {
    let fake_network = FetcherFixture::default().fake_network;
    fake_network.peer(PUBLIC_ADDRESS, 443, FakePeer::Mute);
    let target = format!("{TARGET_HOST}:443");
    let plain = |config: &mut Config| config.proxy.plain_ports = Some("443".to_owned());
    let proxy = detached(&fake_network, plain);
    let (_, time) = run_client(&proxy, &connect_request(&target, FAR_S)).await;
    assert_about(time, 300);
    // The clock of the token is stopped; the tunnel lasts for the rest of the token's time.
    let (_, time) = run_client(&proxy, &connect_request(&target, 1_800_000_120)).await;
    assert_about(time, 120);
    let proxy = detached(&fake_network, |config| {
        plain(config);
        config.proxy.tunnel_timeout = dray_types::Period::secs(60);
    });
    let (_, time) = run_client(&proxy, &connect_request(&target, FAR_S)).await;
    assert_about(time, 60);
}

#[tokio::test(start_paused = true)]
async fn section_18_with_audit_required_no_byte_passes_without_a_published_event() {
    let fake_network = FetcherFixture::default().fake_network;
    let (ends, mut servers) = tokio::sync::mpsc::unbounded_channel();
    fake_network.peer(PUBLIC_ADDRESS, 443, FakePeer::Handed(ends));
    let proxy = detached(&fake_network, |config| {
        config.audit_required = true;
        config.proxy.plain_ports = Some("443".to_owned());
    });
    let request = format!(
        "{}first bytes",
        connect_request(&format!("{TARGET_HOST}:443"), FAR_S)
    );
    run_client(&proxy, &request).await;
    let mut received = Vec::new();
    servers
        .recv()
        .await
        .unwrap()
        .read_to_end(&mut received)
        .await
        .unwrap();
    assert_eq!(received, Vec::<u8>::new());
    let token = mint("chat-1", FAR_S, None);
    let get = format!(
        "GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
    );
    let (response, _) = run_client(&proxy, &get).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (503, "sink_failed")
    );
}

#[tokio::test]
async fn a_client_costs_little_memory_while_its_tunnel_is_idle() {
    let fake_network = FetcherFixture::default().fake_network;
    let proxy = detached(&fake_network, |_| {});
    let (_client, io) = tokio::io::duplex(64);
    let serving = proxy.serve_client(io, None);
    // The future of a client; what it boxes for a tunnel is measured with the relay. 40 KiB are allowed for all.
    assert!(size_of_val(&serving) < 4096, "{}", size_of_val(&serving));
}
