//! Calls with heartbeats and calls that are made once, on a paused clock.

use std::time::Duration;

use dray_proto::v1;
use dray_types::{Clock, Deadline, Fault, FaultCode};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use dray_proto::MAX_MESSAGE_BYTES;
use opentelemetry::trace::TracerProvider as _;
use tracing_subscriber::layer::SubscriberExt as _;

use super::{HEARTBEAT_TIMEOUT, MIN_RETRY_TIME};
use crate::conformance::{call_meta, noop_meter};
use crate::{Bus, CallError, IncomingRequest, Meta, Responder};

const FETCH_SUBJECT: &str = "dray.egress.v1.fetch";
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Deadlines have whole milliseconds, and Tokio's timers round up to the next one.
const CLOCK_STEP: Duration = Duration::from_millis(2);

struct CallTest {
    bus: Bus,
    meta: Meta,
    responder: Responder,
}

/// A bus with one responder, and time for a call of ten minutes.
async fn fixture() -> CallTest {
    let clock = Clock::system();
    let bus = Bus::in_process(clock.clone(), &noop_meter());
    let deadline = Deadline::after(clock.now_ms(), Duration::from_mins(10));
    CallTest {
        responder: bus
            .respond_to(FETCH_SUBJECT, "egress-fetcher")
            .await
            .unwrap(),
        meta: call_meta("op", deadline),
        bus,
    }
}

/// Sends heartbeats during this time.
async fn send_heartbeats(incoming: &IncomingRequest, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        incoming.send_heartbeat().await;
        // paused clock
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

async fn answer(incoming: IncomingRequest, name: &str) {
    let reply = v1::FetchReply {
        name: name.to_owned(),
        ..v1::FetchReply::default()
    };
    incoming.answer(Ok(reply)).await;
}

#[tokio::test(start_paused = true)]
async fn a_watched_responder_that_stops_responding_is_replaced_within_a_minute() {
    for alive_seconds in [0, 10, 400] {
        let mut fixture = fixture().await;
        let request = v1::FetchRequest::default();
        let responding = async {
            let first = fixture.responder.next().await.unwrap();
            assert!(first.is_watched());
            send_heartbeats(&first, Duration::from_secs(alive_seconds)).await;
            first.abandon();
            let stopped_at = Instant::now();
            let second = fixture.responder.next().await.unwrap();
            assert!(
                stopped_at.elapsed() <= HEARTBEAT_TIMEOUT,
                "{:?}",
                stopped_at.elapsed()
            );
            answer(second, "second").await;
        };
        let call = fixture.bus.call_watched(&fixture.meta, &request);
        let (result, ()) = tokio::join!(call, responding);
        assert_eq!(
            result.unwrap().name,
            "second",
            "alive for {alive_seconds} seconds"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_call_waits_for_a_responder_that_sends_heartbeats() {
    let mut fixture = fixture().await;
    let request = v1::FetchRequest::default();
    let responding = async {
        let only = fixture.responder.next().await.unwrap();
        send_heartbeats(&only, Duration::from_mins(9)).await;
        answer(only, "slow").await;
        assert!(fixture.responder.next().now_or_never().is_none());
    };
    let call = fixture.bus.call_watched(&fixture.meta, &request);
    let (result, ()) = tokio::join!(call, responding);
    assert_eq!(result.unwrap().name, "slow");
}

#[tokio::test(start_paused = true)]
async fn a_watched_call_fails_after_three_responders_that_stopped_responding() {
    let mut fixture = fixture().await;
    let request = v1::FetchRequest::default();
    let mut requests = 0;
    let call = fixture.bus.call_watched(&fixture.meta, &request);
    tokio::pin!(call);
    let start = Instant::now();
    let error = loop {
        tokio::select! {
            result = &mut call => break result.unwrap_err(),
            incoming = fixture.responder.next() => {
                requests += 1;
                incoming.unwrap().abandon();
            }
        }
    };
    assert!(matches!(error, CallError::Timeout(_)), "{error}");
    assert_eq!((requests, start.elapsed()), (3, HEARTBEAT_TIMEOUT * 3));
}

#[tokio::test(start_paused = true)]
async fn a_call_made_once_returns_a_transient_fault_without_a_retry() {
    let mut fixture = fixture().await;
    let request = v1::FetchRequest::default();
    for code in [FaultCode::RateLimited, FaultCode::Unavailable] {
        let busy = Fault::new(code, "Busy.").retry_after(Duration::from_secs(1));
        let responding = async {
            let only = fixture.responder.next().await.unwrap();
            only.answer::<v1::FetchReply>(Err(busy.clone())).await;
            assert!(fixture.responder.next().now_or_never().is_none());
        };
        let (result, ()) = tokio::join!(fixture.bus.call_once(&fixture.meta, &request), responding);
        assert_eq!(Fault::from(result.unwrap_err()), busy);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_lasts_is_returned_immediately_and_a_rate_limit_is_waited_for() {
    let mut fixture = fixture().await;
    let request = v1::FetchRequest::default();
    let fault = |code| Fault::new(code, "Later.").retry_after(Duration::from_secs(30));
    let lasting = fault(FaultCode::Unavailable);
    let responding = async {
        let only = fixture.responder.next().await.unwrap();
        only.answer::<v1::FetchReply>(Err(lasting.clone())).await;
    };
    let start = Instant::now();
    let (result, ()) = tokio::join!(fixture.bus.call(&fixture.meta, &request), responding);
    assert_eq!(Fault::from(result.unwrap_err()), lasting);
    assert_eq!(start.elapsed(), Duration::ZERO);

    let meta = call_meta("limited", fixture.meta.deadline);
    let responding = async {
        let first = fixture.responder.next().await.unwrap();
        first
            .answer::<v1::FetchReply>(Err(fault(FaultCode::RateLimited)))
            .await;
        answer(fixture.responder.next().await.unwrap(), "second").await;
    };
    let (result, ()) = tokio::join!(fixture.bus.call(&meta, &request), responding);
    assert_eq!(result.unwrap().name, "second");
    assert!(start.elapsed() >= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_call_made_once_is_sent_to_another_responder_if_one_stops_or_fails() {
    let mut fixture = fixture().await;
    let request = v1::FetchRequest::default();
    let stopping = Fault::new(FaultCode::Unavailable, "Restarting.")
        .detail("stopping")
        .retry_after(Duration::from_millis(250));
    let responding = async {
        let first = fixture.responder.next().await.unwrap();
        first.answer::<v1::FetchReply>(Err(stopping)).await;
        fixture.responder.next().await.unwrap().abandon();
        answer(fixture.responder.next().await.unwrap(), "third").await;
    };
    let (result, ()) = tokio::join!(fixture.bus.call_once(&fixture.meta, &request), responding);
    assert_eq!(result.unwrap().name, "third");
}

#[tokio::test(start_paused = true)]
async fn a_call_made_once_waits_for_a_responder_to_appear() {
    let CallTest {
        bus,
        meta,
        responder,
    } = fixture().await;
    drop(responder);
    let request = v1::FetchRequest::default();
    let responding = async {
        // paused clock: there is no responder at first
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut responder = bus
            .respond_to(FETCH_SUBJECT, "egress-fetcher")
            .await
            .unwrap();
        answer(responder.next().await.unwrap(), "late").await;
    };
    let (result, ()) = tokio::join!(bus.call_once(&meta, &request), responding);
    assert_eq!(result.unwrap().name, "late");
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_so_late_that_a_busy_machine_ends_it_at_the_deadline() {
    // The delays between attempts are random.
    for total in (150..650).map(Duration::from_millis) {
        let bus = Bus::in_process(Clock::system(), &noop_meter());
        let deadline = Deadline::after(bus.now_ms(), total);
        let started_at = Instant::now();
        let request = v1::FetchRequest::default();
        let result = bus.call(&call_meta("op", deadline), &request).await;
        assert!(
            matches!(result, Err(CallError::NoResponder(_))),
            "{result:?}"
        );
        let remaining = total.saturating_sub(started_at.elapsed());
        assert!(
            remaining + CLOCK_STEP >= MIN_RETRY_TIME,
            "{total:?} {remaining:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_is_late_does_not_end_a_call_before_its_deadline() {
    let mut fixture = fixture().await;
    let request = v1::FetchRequest::default();
    let responding = async {
        let first = fixture.responder.next().await.unwrap();
        // The first attempt has 4 of 10 minutes. On a busy machine its timer is late, here by 2 minutes.
        tokio::time::advance(Duration::from_mins(6)).await;
        // paused clock
        tokio::time::sleep(Duration::from_mins(1)).await;
        answer(first, "late").await;
    };
    let (result, ()) = tokio::join!(fixture.bus.call(&fixture.meta, &request), responding);
    assert_eq!(result.unwrap().name, "late");
}

#[tokio::test(start_paused = true)]
async fn calls_are_watched_only_on_request() {
    let mut fixture = fixture().await;
    let request = v1::FetchRequest::default();
    let responding = async {
        let only = fixture.responder.next().await.unwrap();
        assert!(!only.is_watched());
        // paused clock
        tokio::time::sleep(HEARTBEAT_TIMEOUT * 4).await;
        answer(only, "quiet").await;
        assert!(fixture.responder.next().now_or_never().is_none());
    };
    let call = fixture.bus.call(&fixture.meta, &request);
    let (result, ()) = tokio::join!(call, responding);
    assert_eq!(result.unwrap().name, "quiet");
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_the_trace_count_towards_the_size_of_a_request() {
    let fixture = fixture().await;
    let request = |bytes: usize| v1::FetchRequest {
        url: "x".repeat(bytes),
        ..v1::FetchRequest::default()
    };
    let size_of = async |bytes: usize| {
        let result = fixture.bus.call(&fixture.meta, &request(bytes)).await;
        match result {
            Err(CallError::TooLarge { size, .. }) => size,
            other => panic!("{other:?}"),
        }
    };
    let overhead = size_of(MAX_MESSAGE_BYTES).await - MAX_MESSAGE_BYTES;
    let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _recorded = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    assert!(size_of(MAX_MESSAGE_BYTES - overhead).await > MAX_MESSAGE_BYTES);
}
