//! Events of calls with hostile names and ids, of many calls, and of calls that are dropped.

use dray_agent::failure::RequestFailure;
use dray_bus::{Bus, EventFilter, EventStream, test_bus};
use dray_service::settings::TelemetrySection;
use dray_service::telemetry::Telemetry;
use dray_tool::ClientGone;
use dray_types::{Clock, TenantId, TraceContext};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::metrics::OrchestratorMetrics;
use crate::turn_events::TurnEvents;

/// A turn on a bus, with the tasks that publish its events.
struct CallFixture {
    bus: Bus,
    report: TurnReport,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl CallFixture {
    async fn start() -> Self {
        let bus = test_bus::in_process(&Clock::system()).await;
        let telemetry = Telemetry::start(&TelemetrySection::default(), "test", "test").unwrap();
        let metrics = OrchestratorMetrics::new(&telemetry.meter());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (tenant, clock) = (TenantId::default(), Clock::system());
        let events = TurnEvents::start(&bus, (&tenant, &clock), &metrics, &tasks, &stop);
        let names = ("clerk", "local", "req_1");
        let report = TurnReport::new(names, TraceContext::unrecorded(), None, || events.queue());
        Self {
            bus,
            report,
            tasks,
            stop,
        }
    }

    async fn ends(&self) -> EventStream {
        let filter = EventFilter::of::<v1::TurnCallEnded>().from_start();
        self.bus.events(filter).await.unwrap()
    }

    /// Waits until the events that were sent are published.
    async fn flush(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn next_end(ends: &mut EventStream) -> v1::TurnCallEnded {
    ends.next().await.unwrap().decode().unwrap()
}

fn gone() -> Result<CompletedCall, RequestEnd> {
    Err(RequestEnd::Gone(ClientGone))
}

#[tokio::test]
async fn calls_with_the_same_id_have_events_of_their_own() {
    let fixture = CallFixture::start().await;
    let calls = [(); 2].map(|()| fixture.report.begin_call("send_file", "call_1"));
    for call in calls {
        call.end(&gone());
    }
    let mut ends = fixture.ends().await;
    for number in 1..=2 {
        let call = next_end(&mut ends).await.call.unwrap();
        assert_eq!((call.number, call.call_id.as_str()), (number, "call_1"));
        assert_eq!(
            (call.tool.as_str(), call.agent.as_str()),
            ("send_file", "clerk")
        );
        assert_eq!(call.operation_id, fixture.report.operation.to_string());
    }
}

#[tokio::test]
async fn events_are_small_whatever_the_model_and_the_server_chose_as_names() {
    let fixture = CallFixture::start().await;
    let id = format!("a\u{202e}b\r\n \u{1b}[31m{}", "x".repeat(100_000));
    fixture
        .report
        .begin_call(&"é".repeat(100_000), &id)
        .end(&gone());
    let mut ends = fixture.ends().await;
    let event = ends.next().await.unwrap();
    assert!(event.payload.len() < 500, "{}", event.payload.len());
    let ended: v1::TurnCallEnded = event.decode().unwrap();
    let call = ended.call.unwrap();
    assert_eq!(call.tool.chars().count(), 128);
    assert_eq!(call.call_id, format!("ab[31m{}", "x".repeat(58)));
}

#[tokio::test]
async fn calls_beyond_the_limit_are_counted_and_have_no_events() {
    let fixture = CallFixture::start().await;
    for _ in 0..MAX_REPORTED_CALLS + 2 {
        fixture.report.begin_call("look", "").end(&gone());
    }
    let failure = RequestFailure::new(500, "broken");
    fixture.report.end(Err(&failure));
    let mut turns = {
        let filter = EventFilter::of::<v1::TurnEnded>().from_start();
        fixture.bus.events(filter).await.unwrap()
    };
    let turn: v1::TurnEnded = turns.next().await.unwrap().decode().unwrap();
    assert_eq!(turn.tool_calls, MAX_REPORTED_CALLS + 2);
    fixture.flush().await;
    let mut ends = fixture.ends().await;
    for number in 1..=MAX_REPORTED_CALLS {
        assert_eq!(next_end(&mut ends).await.call.unwrap().number, number);
    }
    assert!(futures_util::FutureExt::now_or_never(ends.next()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_for_long_has_an_event_before_its_end_and_a_dropped_one_was_cancelled() {
    let fixture = CallFixture::start().await;
    let call = fixture.report.begin_call("look", "call_1");
    let running = call.watch(std::future::pending::<()>());
    let is_over = tokio::time::timeout(BEGIN_EVENT_DELAY * 4, running).await;
    assert!(is_over.is_err());
    drop(call);
    fixture
        .report
        .begin_call("look", "call_2")
        .watch(std::future::ready(()))
        .await;
    fixture.flush().await;
    let filter = EventFilter::of::<v1::TurnCallBegun>().from_start();
    let mut begins = fixture.bus.events(filter).await.unwrap();
    let begun: v1::TurnCallBegun = begins.next().await.unwrap().decode().unwrap();
    let mut ends = fixture.ends().await;
    let ended = next_end(&mut ends).await;
    assert_eq!(ended.call, begun.call);
    assert_eq!(ended.outcome(), TurnCallOutcome::Cancelled);
    assert_eq!(ended.duration_ms, whole_millis(BEGIN_EVENT_DELAY * 4));
    // The second call ended before it had run long enough.
    assert_eq!(next_end(&mut ends).await.call.unwrap().call_id, "call_2");
    assert!(futures_util::FutureExt::now_or_never(begins.next()).is_none());
}

#[test]
fn a_failure_has_its_kind_and_the_status_of_the_service() {
    for (failure, kind, status) in [
        (CallFailure::Arguments, TurnCallError::InvalidArguments, 0),
        (CallFailure::TimedOut, TurnCallError::Timeout, 0),
        (CallFailure::Tool(None), TurnCallError::ToolFailure, 0),
        (
            CallFailure::Tool(Some(502)),
            TurnCallError::ToolFailure,
            502,
        ),
    ] {
        assert_eq!(call_error(failure), (kind, status));
    }
    let failure = CallFailure::TimedOut;
    let stopped = Err(RequestEnd::Stopped {
        text: "stopped".to_owned(),
        failure,
    });
    assert_eq!(call_end(&stopped), (TurnCallOutcome::Failed, Some(failure)));
    assert_eq!(call_end(&gone()), (TurnCallOutcome::Cancelled, None));
}
