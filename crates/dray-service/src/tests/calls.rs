//! Calls over the bus: replies, faults, deadlines, limits, panics, repeated requests.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dray_types::{FaultCode, RetryAdvice};
use futures_util::future::join_all;

use super::service::{TestHost, call, meta, meta_for};

#[tokio::test]
async fn a_call_is_answered_with_the_configured_greeting() {
    let fixture = TestHost::new(&[("file-resolver.greeting", "hello ")]).await;
    assert_eq!(fixture.call("echo:world").await.unwrap(), "hello world");
    assert!(!fixture.running.stop().await.cut_short);
}

#[tokio::test]
async fn counters_of_failures_start_at_zero() {
    let fixture = TestHost::new(&[]).await;
    assert_eq!(fixture.counter("dray_panics_total{", ""), Some(0.0));
    for reason in ["overloaded", "expired", "stopping", "envelope"] {
        let label = format!("reason=\"{reason}\"");
        let refused = fixture.counter("dray_answer_refused_total{", &label);
        assert_eq!(refused, Some(0.0), "{reason}");
    }
}

#[tokio::test]
async fn a_fault_reaches_the_caller_unchanged_with_a_trace_id() {
    let fixture = TestHost::new(&[]).await;
    let fault = fixture.call("fault:").await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Denied, "because")
    );
    assert_eq!(
        (fault.message.as_str(), fault.advice.as_str()),
        ("No.", "Do not.")
    );
    assert_eq!(fault.trace_id.len(), 32);
}

#[tokio::test]
async fn a_panic_becomes_an_internal_fault_and_the_service_continues() {
    let fixture = TestHost::new(&[]).await;
    let fault = fixture.call("panic:").await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Internal);
    assert_eq!(fault.message, dray_types::fault::INTERNAL_MESSAGE);
    assert_eq!(fixture.call("echo:still here").await.unwrap(), "still here");
    assert_eq!(fixture.counter("dray_panics_total{", ""), Some(1.0));
}

#[tokio::test]
async fn a_handler_is_cancelled_at_its_deadline_and_the_caller_gets_a_fault() {
    let fixture = TestHost::new(&[]).await;
    let fault = call(
        &fixture.bus(),
        &meta_for("acme", Duration::from_millis(600)),
        "forever:",
    )
    .await
    .unwrap_err();
    assert_eq!(fault.code, FaultCode::Timeout);
    fixture.probe.wait_inside(0).await;
}

#[tokio::test]
async fn a_request_without_enough_time_is_answered_without_work() {
    let fixture = TestHost::new(&[]).await;
    let fault = call(
        &fixture.bus(),
        &meta_for("acme", Duration::from_millis(200)),
        "echo:x",
    )
    .await
    .unwrap_err();
    assert_eq!(fault.code, FaultCode::Timeout);
    assert_eq!(fixture.probe.entered.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_deadline_beyond_the_longest_call_is_shortened() {
    let fixture = TestHost::new(&[("limits.longest_call", "1s")]).await;
    let fault = call(
        &fixture.bus(),
        &meta_for("acme", Duration::from_mins(1)),
        "forever:",
    )
    .await
    .unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Timeout, "deadline")
    );
}

#[tokio::test]
async fn calls_over_the_limit_are_refused_immediately_and_admitted_ones_complete() {
    let fixture = TestHost::new(&[("limits.calls", "2"), ("limits.calls_per_tenant", "2")]).await;
    let bus = fixture.bus();
    let held = |count: usize| {
        let bus = bus.clone();
        async move {
            join_all((0..count).map(|_| {
                let bus = bus.clone();
                async move { call(&bus, &meta("acme"), "hold:").await }
            }))
            .await
        }
    };
    let mut handlers = tokio::task::JoinSet::new();
    handlers.spawn(held(4));
    fixture.probe.wait_inside(2).await;
    // Two calls run and two wait; a fifth is refused. The caller fails after its own attempts.
    let fault = call(&bus, &meta("acme"), "echo:x").await.unwrap_err();
    assert_eq!(fault.code, FaultCode::RateLimited);
    assert!(matches!(fault.retry, RetryAdvice::After(delay) if !delay.is_zero()));
    let release = async {
        loop {
            fixture.probe.release.notify_waiters();
            tokio::task::yield_now().await;
        }
    };
    let results = tokio::select! {
        results = handlers.join_next() => results.unwrap().unwrap(),
        () = release => unreachable!(),
    };
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let refused = fixture.counter("dray_answer_refused_total{", "reason=\"overloaded\"");
    assert!(refused > Some(0.0), "{refused:?}");
}

#[tokio::test]
async fn one_tenant_cannot_use_all_permits() {
    let fixture = TestHost::new(&[("limits.calls", "3"), ("limits.calls_per_tenant", "1")]).await;
    let bus = fixture.bus();
    let mut handlers = tokio::task::JoinSet::new();
    handlers.spawn(async move { call(&bus, &meta("greedy"), "hold:").await });
    fixture.probe.wait_inside(1).await;
    let other = call(&fixture.bus(), &meta("modest"), "echo:served").await;
    assert_eq!(other.unwrap(), "served");
}

#[tokio::test]
async fn a_handler_that_admits_by_itself_holds_no_permit() {
    let fixture = TestHost::new(&[("limits.calls", "1"), ("limits.calls_per_tenant", "1")]).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (bus, meta) = (fixture.bus(), meta("greedy"));
        let request = dray_proto::v1::ListSandboxRequest::default();
        callers.spawn(async move { bus.call(&meta, &request).await });
    }
    fixture.probe.wait_inside(4).await;
    let other = call(&fixture.bus(), &meta("modest"), "echo:served").await;
    assert_eq!(other.unwrap(), "served");
    fixture.probe.release.notify_waiters();
    while let Some(answer) = callers.join_next().await {
        assert!(answer.unwrap().is_ok());
    }
}

#[tokio::test]
async fn calls_that_wait_for_another_service_leave_their_permits_to_other_tenants() {
    let fixture = TestHost::new(&[("limits.calls", "1"), ("limits.calls_per_tenant", "1")]).await;
    let mut callers = tokio::task::JoinSet::new();
    for tenant in ["one", "two", "three"] {
        let bus = fixture.bus();
        callers.spawn(async move { call(&bus, &meta(tenant), "wait:").await });
        fixture.probe.wait_inside(callers.len()).await;
    }
    let other = call(&fixture.bus(), &meta("modest"), "echo:served").await;
    assert_eq!(other.unwrap(), "served");
    fixture.probe.release.notify_waiters();
    while let Some(response) = callers.join_next().await {
        assert_eq!(response.unwrap().unwrap(), "waited");
    }
    let repeated = call(&fixture.bus(), &meta("modest"), "echo:served").await;
    assert_eq!(repeated.unwrap(), "served");
}

#[tokio::test]
async fn a_reply_that_is_too_large_becomes_a_fault() {
    let fixture = TestHost::new(&[]).await;
    assert_eq!(fixture.call("large:100000").await.unwrap().len(), 100_000);
    let fault = fixture.call("large:200000").await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::TooLarge, "reply_too_large")
    );
}

#[tokio::test]
async fn the_same_operation_called_twice_concurrently_runs_once() {
    let fixture = TestHost::new(&[]).await;
    let (bus, meta) = (fixture.bus(), meta("acme"));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (bus, meta) = (bus.clone(), meta.clone());
        callers.spawn(async move { call(&bus, &meta, "hold:").await });
    }
    fixture.probe.wait_inside(1).await;
    // Another operation uses the same queue, so the second attempt has been read when the reply to this operation
    // arrives.
    assert_eq!(fixture.call("echo:x").await.unwrap(), "x");
    fixture.probe.release.notify_waiters();
    while let Some(answer) = callers.join_next().await {
        assert_eq!(answer.unwrap().unwrap(), "released");
    }
    assert_eq!(
        fixture.probe.entered.load(Ordering::SeqCst),
        2,
        "one for both, one for the echo"
    );
}

#[tokio::test]
async fn a_handler_ends_when_its_caller_gives_up() {
    let fixture = TestHost::new(&[]).await;
    let bus = fixture.bus();
    let mut callers = tokio::task::JoinSet::new();
    callers.spawn(async move { call(&bus, &meta("acme"), "forever:").await });
    fixture.probe.wait_inside(1).await;
    callers.shutdown().await;
    fixture.probe.wait_inside(0).await;
}

#[tokio::test]
async fn a_request_that_does_not_decode_is_refused_with_a_message() {
    let fixture = TestHost::new(&[]).await;
    // A message of another type on the subject: field 1 is a varint where a text belongs.
    let fault = raw(&fixture, &[0x08, 0x01]).await;
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::InvalidArgument, "undecodable")
    );
}

/// Sends bytes as a fetch request and returns the received fault.
async fn raw(fixture: &TestHost, payload: &'static [u8]) -> dray_types::Fault {
    use prost::bytes::{Buf, BufMut};
    use prost::encoding::{DecodeContext, WireType};

    #[derive(Clone, Debug, Default)]
    struct WrongRequest(&'static [u8]);
    impl prost::Message for WrongRequest {
        fn encode_raw(&self, buffer: &mut impl BufMut) {
            buffer.put_slice(self.0);
        }
        fn merge_field(
            &mut self,
            tag: u32,
            wire_type: WireType,
            buffer: &mut impl Buf,
            context: DecodeContext,
        ) -> Result<(), prost::DecodeError> {
            prost::encoding::skip_field(wire_type, tag, buffer, context)
        }
        fn encoded_len(&self) -> usize {
            self.0.len()
        }
        fn clear(&mut self) {}
    }
    impl prost::Name for WrongRequest {
        const NAME: &'static str = "Wrong";
        const PACKAGE: &'static str = "dray.v1";
    }
    impl dray_proto::Call for WrongRequest {
        type Reply = dray_proto::v1::FetchReply;
        const AREA: &'static str = <dray_proto::v1::FetchRequest as dray_proto::Call>::AREA;
        const VERB: &'static str = <dray_proto::v1::FetchRequest as dray_proto::Call>::VERB;
        const GRPC_PATH: &'static str =
            <dray_proto::v1::FetchRequest as dray_proto::Call>::GRPC_PATH;
    }
    fixture
        .bus()
        .call(&meta("acme"), &WrongRequest(payload))
        .await
        .unwrap_err()
        .into()
}
