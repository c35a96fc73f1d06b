//! Events that wait for the bus, that the bus does not take, and those of a service that stops.

use dray_bus::{EventFilter, test_bus};
use dray_service::settings::TelemetrySection;
use dray_service::telemetry::Telemetry;

use super::*;

/// The tasks of a service that publishes, its metrics, and the means to stop it.
struct EventFixture {
    events: TurnEvents,
    tasks: TaskTracker,
    stop: CancellationToken,
    telemetry: Telemetry,
}

impl EventFixture {
    fn start(bus: &Bus) -> Self {
        let telemetry = Telemetry::start(&TelemetrySection::default(), "test", "test").unwrap();
        let metrics = OrchestratorMetrics::new(&telemetry.meter());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (tenant, clock) = (TenantId::default(), Clock::system());
        let events = TurnEvents::start(bus, (&tenant, &clock), &metrics, &tasks, &stop);
        Self {
            events,
            tasks,
            stop,
            telemetry,
        }
    }

    /// Waits for the end of the tasks, and returns the number of lost events by reason.
    async fn finish(self) -> impl Fn(&str) -> u64 {
        drop(self.events);
        self.tasks.close();
        self.tasks.wait().await;
        let page = self.telemetry.prometheus().unwrap();
        move |reason| {
            let label = format!("reason=\"{reason}\"");
            let mut lines = page.lines().filter(|line| line.contains(&label));
            let line = lines.find(|line| line.starts_with("dray_chat_turn_events_lost_total"));
            line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
        }
    }
}

fn send_begin(queue: &TurnEventQueue, number: usize) {
    let operation = OperationId::new(format!("turn-{number}")).unwrap();
    let event = v1::TurnBegun {
        operation_id: operation.to_string(),
        turn: None,
    };
    let event = TurnEvent::Begin(Box::new(event));
    queue.send(&operation, "s", &TraceContext::default(), event);
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_takes_no_events_costs_a_turn_no_time_and_the_events_are_counted() {
    let bus = test_bus::without_streams(&Clock::system());
    let fixture = EventFixture::start(&bus);
    let queue = fixture.events.queue();
    let begun_at = tokio::time::Instant::now();
    for number in 0..MAX_QUEUED_EVENTS + 10 {
        send_begin(&queue, number);
    }
    assert_eq!(begun_at.elapsed(), Duration::ZERO);
    drop(queue);
    let lost = fixture.finish().await;
    assert_eq!(lost("queue_full"), 10);
    assert_eq!(lost("publish_failed"), MAX_QUEUED_EVENTS as u64);
}

#[tokio::test(start_paused = true)]
async fn calls_of_tools_leave_places_to_begins_and_ends_of_turns() {
    let bus = test_bus::without_streams(&Clock::system());
    let fixture = EventFixture::start(&bus);
    let queue = fixture.events.queue();
    let operation = OperationId::new("turn-1").unwrap();
    for _ in 0..MAX_QUEUED_EVENTS {
        let event = TurnEvent::CallEnd(Box::default());
        queue.send(&operation, "s", &TraceContext::default(), event);
    }
    for number in 0..RESERVED_PLACES {
        send_begin(&queue, number);
    }
    drop(queue);
    let lost = fixture.finish().await;
    assert_eq!(lost("queue_full"), RESERVED_PLACES as u64);
    assert_eq!(lost("publish_failed"), MAX_QUEUED_EVENTS as u64);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_service_does_not_wait_for_a_bus_that_is_away() {
    let bus = test_bus::without_streams(&Clock::system());
    let fixture = EventFixture::start(&bus);
    let queue = fixture.events.queue();
    for number in 0..3 {
        send_begin(&queue, number);
    }
    fixture.stop.cancel();
    let stopped_at = tokio::time::Instant::now();
    // A turn that still runs keeps its queue.
    let lost = fixture.finish().await;
    assert_eq!(stopped_at.elapsed(), FLUSH_TIMEOUT);
    assert_eq!(lost("stopped"), 3);
    send_begin(&queue, 4);
}

#[tokio::test]
async fn events_that_wait_when_the_service_stops_are_published_in_order() {
    let bus = test_bus::in_process(&Clock::system()).await;
    let fixture = EventFixture::start(&bus);
    let queue = fixture.events.queue();
    for number in 0..3 {
        send_begin(&queue, number);
    }
    fixture.stop.cancel();
    let lost = fixture.finish().await;
    assert_eq!((lost("stopped"), lost("publish_failed")), (0, 0));
    let filter = EventFilter::of::<v1::TurnBegun>().from_start();
    let mut events = bus.events(filter).await.unwrap();
    for number in 0..3 {
        let event = events.next().await.unwrap();
        let begun: v1::TurnBegun = event.decode().unwrap();
        assert_eq!(begun.operation_id, format!("turn-{number}"));
        assert_eq!(
            event.headers.get(dray_bus::headers::SESSION_HEADER),
            Some("s")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_others_before_they_are_published() {
    let bus = test_bus::in_process(&Clock::system()).await;
    let fixture = EventFixture::start(&bus);
    let queue = fixture.events.queue();
    for number in 0..3 {
        send_begin(&queue, number);
    }
    let waiting = |queue: &TurnEventQueue| MAX_QUEUED_EVENTS - queue.sender.capacity();
    // The clock stands still while tasks run, so the first event, which is taken, waits for the others.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting(&queue), 2);
    tokio::time::sleep(BATCH_DELAY).await; // paused clock
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting(&queue), 0);
    drop(queue);
    let lost = fixture.finish().await;
    assert_eq!(lost("publish_failed"), 0);
}
