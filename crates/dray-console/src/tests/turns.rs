//! Tests of turns of agents on the live page and on the pages of operations.

use dray_bus::Meta;
use dray_proto::v1::{self, TurnCause, TurnOutcome};
use dray_types::{SessionId, TraceContext};

use super::*;

/// A client that may publish the events of one request: all have its trace.
struct TurnPublisher<'a> {
    console: &'a ConsoleFixture,
    trace: TraceContext,
}

impl<'a> TurnPublisher<'a> {
    /// Events of a new request.
    fn new(console: &'a ConsoleFixture) -> Self {
        Self {
            console,
            trace: TraceContext::unrecorded(),
        }
    }

    fn meta(&self, operation: &str) -> Meta {
        let deadline = Deadline::after(self.console.clock.now_ms(), TEST_TIMEOUT);
        Meta::new(TenantId::default(), deadline)
            .with_operation(operation.parse().unwrap())
            .with_session(SessionId::new("s-1").unwrap())
            .with_trace(self.trace.clone())
    }

    async fn begin(&self, operation: &str, turn: &v1::AgentTurn) {
        let event = v1::TurnBegun {
            operation_id: operation.to_owned(),
            turn: Some(turn.clone()),
        };
        let meta = self.meta(operation);
        let published = self.console.bus.publish_event(&meta, &event);
        published.await.unwrap();
    }

    async fn end(&self, operation: &str, turn: &v1::AgentTurn, outcome: TurnOutcome) {
        let event = v1::TurnEnded {
            operation_id: operation.to_owned(),
            turn: Some(turn.clone()),
            outcome: outcome.into(),
            model_calls: 2,
            tool_calls: 1,
            tools: vec![v1::TurnTool {
                tool: "send_file".to_owned(),
                calls: 1,
                duration_ms: 40,
                ..v1::TurnTool::default()
            }],
            duration_ms: 1_500,
            ..v1::TurnEnded::default()
        };
        let meta = self.meta(operation);
        let published = self.console.bus.publish_event(&meta, &event);
        published.await.unwrap();
    }
}

fn turn(agent: &str) -> v1::AgentTurn {
    v1::AgentTurn {
        agent: agent.to_owned(),
        client: "local".to_owned(),
        session: "s-1".to_owned(),
        cause: TurnCause::Request.into(),
        ..v1::AgentTurn::default()
    }
}

fn called(agent: &str, parent: &str) -> v1::AgentTurn {
    v1::AgentTurn {
        cause: TurnCause::Call.into(),
        parent_operation_id: parent.to_owned(),
        parent_agent: "clerk".to_owned(),
        ..turn(agent)
    }
}

#[tokio::test]
async fn the_page_of_a_turn_joins_called_agents_fetches_and_deliveries() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let turns = TurnPublisher::new(&console);
    turns.begin("turn-1", &turn("clerk")).await;
    turns.begin("turn-2", &called("helper", "turn-1")).await;
    let fetch = v1::EgressAudit {
        url_scheme: "https".to_owned(),
        url_host: "files.example.org".to_owned(),
        verdict: "allow".to_owned(),
        ..v1::EgressAudit::default()
    };
    let meta = turns.meta("fetch-1");
    let published = console.bus.publish_audit(&meta, &fetch);
    published.await.unwrap();
    turns
        .end("turn-2", &called("helper", "turn-1"), TurnOutcome::Finished)
        .await;
    let delivered = v1::DeliveryDone {
        report: Some(v1::DeliveryReport {
            success: true,
            ..v1::DeliveryReport::default()
        }),
    };
    let meta = turns.meta("send-1");
    let published = console.bus.publish_event(&meta, &delivered);
    published.await.unwrap();
    turns
        .end("turn-1", &turn("clerk"), TurnOutcome::Finished)
        .await;
    let page = console
        .wait_for("/operations/turn-1", &login, "Turn of clerk finished")
        .await;
    assert_eq!(page.status, 200, "{page:?}");
    let mut rest = page.body.as_str();
    for part in [
        "Turns of agents",
        "send_file: 1 call, 40 ms",
        "Turn of clerk began",
        "Turn of helper (called by clerk) began",
        "Turn of helper (called by clerk) finished: 2 calls of models, 1 call of a tool",
        "Delivery ended",
        "Turn of clerk finished",
    ] {
        let found = rest.split_once(part);
        rest = found.unwrap_or_else(|| panic!("no {part:?} in {rest}")).1;
    }
    assert!(page.body.contains("Fetch of https://files.example.org"));
    assert!(!page.body.contains("no end seen"), "{page:?}");
    // The delivery and the called agent lead to the same timeline.
    for operation in ["send-1", "turn-2"] {
        let path = format!("/operations/{operation}");
        let page = console.get(&path, Some(&login)).await;
        assert!(page.body.contains("Turn of clerk finished"), "{page:?}");
        assert!(page.body.contains("href=\"/operations/turn-1\""));
    }
}

#[tokio::test]
async fn a_turn_without_an_end_is_shown_as_that_until_its_end_comes() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let turns = TurnPublisher::new(&console);
    turns.begin("turn-1", &turn("clerk")).await;
    let live = "/live?service=orchestrator&session=s-1";
    let page = console.wait_for(live, &login, "Turn of clerk began").await;
    assert!(page.body.contains("no end seen"), "{page:?}");
    assert!(page.body.contains("data-begun=\"turn-1\""), "{page:?}");
    let page = console.get("/operations/turn-1", Some(&login)).await;
    assert!(
        page.body.contains("The index has no end of this turn"),
        "{page:?}"
    );
    for invented in ["finished", "failed", "cancelled"] {
        let record = page.body.split("Turns of agents").nth(1).unwrap();
        assert!(!record.contains(invented), "{invented}: {page:?}");
    }
    turns
        .end("turn-1", &turn("clerk"), TurnOutcome::Cancelled)
        .await;
    let page = console.wait_for(live, &login, "was cancelled").await;
    assert!(!page.body.contains("no end seen"), "{page:?}");
    assert!(page.body.contains("data-ended=\"turn-1\""), "{page:?}");
}

#[tokio::test]
async fn turns_are_filtered_by_outcome_and_counted_in_the_charts() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let turns = TurnPublisher::new(&console);
    for (operation, outcome) in [
        ("turn-1", TurnOutcome::Finished),
        ("turn-2", TurnOutcome::WaitsForPerson),
        ("turn-3", TurnOutcome::Failed),
        ("turn-4", TurnOutcome::BudgetReached),
        ("turn-5", TurnOutcome::Cancelled),
    ] {
        turns.begin(operation, &turn("clerk")).await;
        turns.end(operation, &turn("clerk"), outcome).await;
    }
    console
        .wait_for("/live?service=orchestrator", &login, "was cancelled")
        .await;
    for (outcome, texts) in [
        ("done", &["clerk finished", "waits for a person"][..]),
        ("failed", &["failed with internal"]),
        ("refused", &["reached a budget"]),
        ("unknown", &["was cancelled"]),
        ("working", &["Turn of clerk began"]),
    ] {
        let path = format!("/live?service=orchestrator&outcome={outcome}");
        let page = console.get(&path, Some(&login)).await;
        for text in texts {
            assert!(page.body.contains(text), "{outcome}: {page:?}");
        }
        let is_ended = page.body.contains("calls of models");
        assert_eq!(is_ended, outcome != "working", "{outcome}: {page:?}");
    }
    let charts = console.get("/live/charts", Some(&login)).await;
    let failures = "Failures and refusals: 2 in the last hour";
    assert!(charts.body.contains(failures), "{charts:?}");
    assert!(
        charts.body.contains("95 % took at most 2.0 s"),
        "{charts:?}"
    );
}
