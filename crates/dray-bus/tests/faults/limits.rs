//! Servers that are full, have small limits, or deny requests.

use dray_bus::{
    Bus, CallError, ConnectError, NatsOptions, ProbeError, PublishError, TransportError,
};
use dray_proto::{MAX_MESSAGE_BYTES, v1};
use dray_testkit::{eventually, nats};
use dray_types::{Clock, Secret};

use crate::fixture::{FaultFixture, meter};

fn work(bytes: usize) -> v1::ToolCallRequested {
    v1::ToolCallRequested {
        tool: "x".repeat(bytes),
        ..v1::ToolCallRequested::default()
    }
}

/// Publishes until the stream refuses a message. Returns how many it accepted, and the refusal.
async fn fill(fixture: &FaultFixture) -> (u32, PublishError) {
    let mut accepted = 0;
    loop {
        let meta = fixture.meta(&format!("op-{accepted}"));
        match fixture.bus.publish_work(&meta, &work(10_000)).await {
            Ok(_) => accepted += 1,
            Err(refused) => return (accepted, refused),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_refuses_work_as_busy_and_accepts_it_again_when_there_is_space() {
    let fixture = FaultFixture::start(nats::NatsServer::start()).await;
    let shrink =
        |bytes: u64| move |topology: &mut dray_bus::Topology| topology.streams[0].max_bytes = bytes;
    fixture.provision(shrink(64 * 1024)).await;
    let (accepted, refused) = fill(&fixture).await;
    assert!((4..7).contains(&accepted), "{accepted}");
    assert!(matches!(refused, PublishError::Busy(_)), "{refused}");
    let other = fixture.meta("later");
    let body = work(10_000);
    let (published, ()) = tokio::join!(
        fixture.bus.publish_work(&other, &body),
        fixture.provision(shrink(1024 * 1024))
    );
    assert!(!published.unwrap().duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_refuses_streams_instead_of_filling_the_disk() {
    let server = nats::NatsServerOptions::default()
        .config("jetstream { max_file_store: 1MB }")
        .start();
    let bus = crate::fixture::connect(&server, "provisioner").await;
    let topology = dray_bus::Topology::new(1, 256 * 1024 * 1024);
    let error = bus.apply_topology(&topology).await.unwrap_err();
    assert_eq!(error.object, "DRAY_WORK");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_limit_is_the_same_on_small_and_large_servers() {
    for limit in ["512KB", "8MB"] {
        let server = nats::NatsServerOptions::default()
            .config(&format!("max_payload: {limit}"))
            .start();
        let fixture = FaultFixture::start(server).await;
        fixture.bus.round_trip().await.unwrap();
        let meta = fixture.meta("op");
        let result = fixture
            .bus
            .publish_work(&meta, &work(MAX_MESSAGE_BYTES - 1024))
            .await;
        assert!(result.is_ok(), "{limit}");
        let error = fixture
            .bus
            .publish_work(&fixture.meta("other"), &work(MAX_MESSAGE_BYTES))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                PublishError::TooLarge {
                    limit: Some(MAX_MESSAGE_BYTES),
                    ..
                }
            ),
            "{error}"
        );
        let request = v1::FetchRequest {
            url: "x".repeat(MAX_MESSAGE_BYTES),
            ..v1::FetchRequest::default()
        };
        let error = fixture.bus.call(&meta, &request).await.unwrap_err();
        assert!(matches!(error, CallError::TooLarge { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_too_small_a_limit_keeps_the_service_unready() {
    let server = nats::NatsServerOptions::default()
        .config("max_payload: 131072")
        .start();
    let bus = crate::fixture::connect(&server, "file-resolver").await;
    let error = bus.round_trip().await.unwrap_err();
    assert!(
        matches!(error, ProbeError::PayloadLimit { limit: 131_072 }),
        "{error}"
    );
}

const USER_LIMITS: &str = r#"
accounts {
  A {
    jetstream: enabled
    users: [
      { user: provisioner, password: p, permissions: { publish: ">", subscribe: ">" } }
      { user: file-resolver, password: r, permissions: {
        publish: ["dray.work.toolcall.v1.resolve.*", "$JS.API.STREAM.INFO.KV_dray_ledger"]
        subscribe: ["_INBOX_file-resolver.>"]
      } }
    ]
  }
}
"#;

async fn try_connect(
    server: &nats::NatsServer,
    user: &str,
    password: &str,
) -> Result<Bus, ConnectError> {
    let options = NatsOptions {
        user: user.to_owned(),
        password: Secret::new(password),
        ..NatsOptions::at(server.url()).named(user)
    };
    Bus::connect(&options, Clock::system(), &meter()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_requests_fail_as_denied_without_a_timeout_and_make_the_service_unready() {
    let server = nats::NatsServerOptions::default()
        .config(USER_LIMITS)
        .start();
    let bus = try_connect(&server, "provisioner", "p").await.unwrap();
    let fixture = FaultFixture {
        server,
        bus,
        clock: Clock::system(),
    };
    fixture.provision(|_| {}).await;
    let bus = try_connect(&fixture.server, "file-resolver", "r")
        .await
        .unwrap();
    bus.round_trip().await.unwrap();
    bus.publish_work(&fixture.meta("op"), &work(1))
        .await
        .unwrap();

    let event = v1::ToolCallResolved::default();
    let error = bus
        .publish_event(&fixture.meta("op"), &event)
        .await
        .unwrap_err();
    // Without the refusal of the server, the end of the wait would be `Unconfirmed`, and that of the call `Timeout`.
    assert!(matches!(error, PublishError::Denied(_)), "{error}");
    let error = bus.round_trip().await.unwrap_err();
    assert!(
        matches!(&error, ProbeError::Denied { count: 1, first } if first == "dray.event.toolcall.v1.resolved.acme"),
        "{error}"
    );
    let error = bus
        .call(&fixture.meta("op"), &v1::FetchRequest::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, CallError::Transport(TransportError::Denied(_))),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_identity_or_option_is_an_error_at_the_start() {
    let server = nats::NatsServerOptions::default()
        .config(USER_LIMITS)
        .start();
    let error = try_connect(&server, "file-resolver", "wrong")
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Connect(_)), "{error}");
    for options in [
        NatsOptions::at("not a server"),
        NatsOptions::at(server.url()).named("Upper Case"),
        NatsOptions {
            servers: Vec::new(),
            ..NatsOptions::default()
        },
        NatsOptions {
            client_key_file: Some("key.pem".into()),
            ..NatsOptions::at(server.url())
        },
    ] {
        let error = Bus::connect(&options, Clock::system(), &meter())
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Option { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_waits_for_streams_that_are_provisioned_later() {
    let server = nats::NatsServer::start();
    let bus = crate::fixture::connect(&server, "file-resolver").await;
    assert!(bus.round_trip().await.is_err());
    let fault_fixture = FaultFixture::start(server).await;
    eventually("readiness", async || bus.round_trip().await.ok()).await;
    drop(fault_fixture);
}
