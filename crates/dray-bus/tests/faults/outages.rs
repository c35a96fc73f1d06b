//! Calls, publishes and probes while the server is unavailable.

use std::time::Duration;

use dray_bus::{Bus, CallError, EventFilter, Meta, ProbeError, TransportError};
use dray_proto::v1;
use dray_testkit::{eventually, nats::NatsServer};
use dray_types::{Clock, Deadline, Fault, FaultCode, TenantId};
use futures_util::TryStreamExt as _;
use tokio::task::JoinSet;

use crate::fixture::{FaultFixture, connect};

fn meta_with_timeout(millis: u64) -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_millis(millis));
    Meta::new(TenantId::new("acme").unwrap(), deadline)
}

pub(crate) async fn echo(bus: &Bus) -> JoinSet<()> {
    let mut responder = bus
        .respond_to("dray.egress.v1.fetch", "egress-fetcher")
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(incoming) = responder.next().await {
            incoming.answer(Ok(v1::FetchReply::default())).await;
        }
    });
    tasks
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_into_an_outage_end_by_their_deadline_and_work_again_after_it() {
    let mut server = NatsServer::start();
    let responder_bus = connect(&server, "egress-fetcher").await;
    let caller = connect(&server, "file-resolver").await;
    let _echo = echo(&responder_bus).await;
    let request = v1::FetchRequest::default();
    caller
        .call(&meta_with_timeout(5_000), &request)
        .await
        .unwrap();
    server.kill9();
    let error = caller
        .call(&meta_with_timeout(800), &request)
        .await
        .unwrap_err();
    let code = Fault::from(error).code;
    assert!(
        matches!(code, FaultCode::Timeout | FaultCode::Unavailable),
        "{code}"
    );
    server.restart();
    eventually("calls to work again", async || {
        caller.call(&meta_with_timeout(2_000), &request).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_survives_an_outage_shorter_than_its_deadline() {
    let mut server = NatsServer::start();
    let responder_bus = connect(&server, "egress-fetcher").await;
    let caller = connect(&server, "file-resolver").await;
    let _echo = echo(&responder_bus).await;
    let meta = meta_with_timeout(20_000);
    let request = v1::FetchRequest::default();
    server.kill9();
    let mut call = std::pin::pin!(caller.call(&meta, &request));
    assert!(futures_util::poll!(&mut call).is_pending());
    server.restart();
    call.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_fails_while_the_server_is_paused() {
    let fixture = FaultFixture::start(NatsServer::start()).await;
    fixture.bus.round_trip().await.unwrap();
    fixture.server.pause();
    assert!(fixture.bus.round_trip().await.is_err());
    fixture.server.resume();
    eventually("the probe to succeed", async || {
        fixture.bus.round_trip().await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_id_is_deduplicated_after_a_restart_of_the_server() {
    let mut fixture = FaultFixture::start(NatsServer::start()).await;
    let meta = fixture.meta("op");
    let work = v1::ToolCallRequested::default();
    let first = fixture.bus.publish_work(&meta, &work).await.unwrap();
    fixture.server.kill9();
    fixture.server.restart();
    let other_body = v1::ToolCallRequested {
        tool: "another".to_owned(),
        ..work
    };
    let second = fixture.bus.publish_work(&meta, &other_body).await.unwrap();
    assert!(second.duplicate && second.sequence == first.sequence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_events_continues_after_an_outage() {
    let mut fixture = FaultFixture::start(NatsServer::start()).await;
    let filter = EventFilter::new("dray.event.>").from_start();
    let mut events = fixture.bus.events(filter).await.unwrap();
    let publisher = connect(&fixture.server, "file-resolver").await;
    for operation in ["one", "two"] {
        let event = v1::ToolCallResolved::default();
        publisher
            .publish_event(&fixture.meta(operation), &event)
            .await
            .unwrap();
        let read = tokio::time::timeout(Duration::from_mins(1), events.next())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(read.headers.get("Dray-Operation"), Some(operation));
        fixture.server.kill9();
        fixture.server.restart();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_new_events_has_no_consumer_and_misses_none_after_its_start() {
    let fixture = FaultFixture::start(NatsServer::start()).await;
    let event = v1::ToolCallResolved::default();
    let before = fixture
        .bus
        .publish_event(&fixture.meta("before"), &event)
        .await;
    before.unwrap();
    let filter = EventFilter::new("dray.event.>");
    let mut events = fixture.bus.events(filter).await.unwrap();
    check_consumers_are_durable(&fixture.server, "DRAY_EVENT").await;
    let during = fixture
        .bus
        .publish_event(&fixture.meta("during"), &event)
        .await;
    during.unwrap();
    let read = tokio::time::timeout(Duration::from_mins(1), events.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(read.headers.get("Dray-Operation"), Some("during"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_continues_with_the_first_event_of_a_stream_that_was_created_again() {
    let fixture = FaultFixture::start(NatsServer::start()).await;
    let event = v1::ToolCallResolved::default();
    let publish = async |operation: &str| {
        let published = fixture
            .bus
            .publish_event(&fixture.meta(operation), &event)
            .await;
        published.unwrap();
    };
    let filter = EventFilter::new("dray.event.>").from_start();
    let mut events = fixture.bus.events(filter).await.unwrap();
    let mut next = async || {
        let read = tokio::time::timeout(Duration::from_mins(1), events.next());
        let read = read.await.unwrap().unwrap();
        let operation = read.headers.get("Dray-Operation").map(str::to_owned);
        (read.sequence, operation.unwrap())
    };
    for (sequence, operation) in [(1, "one"), (2, "two"), (3, "three")] {
        publish(operation).await;
        assert_eq!(next().await, (sequence, operation.to_owned()));
    }
    // A server that lost its storage numbers messages from 1 again, below the numbers that were read.
    let client = async_nats::connect(fixture.server.url()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    context.delete_stream("DRAY_EVENT").await.unwrap();
    fixture.provision(|_| {}).await;
    for (sequence, operation) in [(1, "four"), (2, "five")] {
        publish(operation).await;
        assert_eq!(next().await, (sequence, operation.to_owned()));
    }
}

/// Checks that every consumer of a stream is durable: an identity that creates others could change the durable ones.
async fn check_consumers_are_durable(server: &NatsServer, stream: &str) {
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream(stream).await.unwrap();
    let consumers: Vec<_> = stream.consumers().try_collect().await.unwrap();
    let is_durable =
        |consumer: &async_nats::jetstream::consumer::Info| consumer.config.durable_name.is_some();
    assert!(consumers.iter().all(is_durable), "{consumers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_bus_sends_no_request() {
    let fixture = FaultFixture::start(NatsServer::start()).await;
    let other = connect(&fixture.server, "file-resolver").await;
    other.drain().await;
    let error = other
        .call(&meta_with_timeout(600), &v1::FetchRequest::default())
        .await
        .unwrap_err();
    // `Timeout` would mean that the request was sent.
    assert!(matches!(error, CallError::NoResponder(_)), "{error}");
    let error = other.round_trip().await.unwrap_err();
    assert!(
        !matches!(error, ProbeError::Transport(TransportError::TimedOut)),
        "{error}"
    );
}
