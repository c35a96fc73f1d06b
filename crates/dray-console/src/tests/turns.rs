//! Tests of turns of agents on the live page and on the pages of operations.

use dray_bus::Meta;
use dray_proto::v1::{self, TurnCallOutcome, TurnCause, TurnOutcome};
use dray_types::{SessionId, TraceContext};

use super::*;

/// A client that may publish the events of one request: all have its trace.
struct TurnPublisher<'a> {
    console: &'a ConsoleFixture,
    trace: TraceContext,
}

/// A console, and a login that may look.
async fn watched_console() -> (ConsoleFixture, Login) {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    (console, login)
}

impl<'a> TurnPublisher<'a> {
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

    async fn begin_call(&self, call: &v1::TurnCall) {
        let event = v1::TurnCallBegun {
            call: Some(call.clone()),
        };
        let (meta, part) = (self.meta(&call.operation_id), call.number.to_string());
        let bus = &self.console.bus;
        let published = bus.publish_event_part(&meta, &part, &event).await;
        published.unwrap();
    }

    async fn end_call(&self, call: &v1::TurnCall, event: v1::TurnCallEnded) {
        let event = v1::TurnCallEnded {
            call: Some(call.clone()),
            duration_ms: 340,
            ..event
        };
        let (meta, part) = (self.meta(&call.operation_id), call.number.to_string());
        let bus = &self.console.bus;
        let published = bus.publish_event_part(&meta, &part, &event).await;
        published.unwrap();
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

fn called_turn(agent: &str, parent: &str) -> v1::AgentTurn {
    v1::AgentTurn {
        cause: TurnCause::Call.into(),
        parent_operation_id: parent.to_owned(),
        parent_agent: "clerk".to_owned(),
        ..turn(agent)
    }
}

#[tokio::test]
async fn the_page_of_a_turn_joins_called_agents_fetches_and_deliveries() {
    let (console, login) = watched_console().await;
    let turns = TurnPublisher::new(&console);
    turns.begin("turn-1", &turn("clerk")).await;
    turns
        .begin("turn-2", &called_turn("helper", "turn-1"))
        .await;
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
        .end(
            "turn-2",
            &called_turn("helper", "turn-1"),
            TurnOutcome::Finished,
        )
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
    let (console, login) = watched_console().await;
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
    let (console, login) = watched_console().await;
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

fn call(number: u32, tool: &str) -> v1::TurnCall {
    v1::TurnCall {
        operation_id: "turn-1".to_owned(),
        agent: "clerk".to_owned(),
        tool: tool.to_owned(),
        call_id: "call_1".to_owned(),
        number,
        round: 1,
        ..v1::TurnCall::default()
    }
}

fn call_end(outcome: TurnCallOutcome) -> v1::TurnCallEnded {
    v1::TurnCallEnded {
        outcome: outcome.into(),
        ..v1::TurnCallEnded::default()
    }
}

#[tokio::test]
async fn calls_of_tools_are_rows_and_stand_in_the_timeline_of_their_turn_with_their_durations() {
    let (console, login) = watched_console().await;
    let turns = TurnPublisher::new(&console);
    turns.begin("turn-1", &turn("clerk")).await;
    turns.begin_call(&call(1, "send_file")).await;
    let live = "/live?service=orchestrator&session=s-1";
    let page = console
        .wait_for(live, &login, "Call of send_file by clerk began")
        .await;
    // One mark for the turn and one for the call.
    assert_eq!(page.body.matches("no end seen").count(), 2, "{page:?}");
    assert!(page.body.contains("data-begun=\"turn-1/1\""), "{page:?}");
    // A second call has the same id. Its beginning has no event, because the call was short.
    let failed = v1::TurnCallEnded {
        error: v1::TurnCallError::ToolFailure.into(),
        http_status: 502,
        ..call_end(TurnCallOutcome::Failed)
    };
    turns.end_call(&call(2, "send_file"), failed).await;
    turns
        .end_call(&call(3, "look"), call_end(TurnCallOutcome::Cancelled))
        .await;
    let page = console
        .wait_for(live, &login, "Call of look by clerk was cancelled")
        .await;
    assert_eq!(page.body.matches("no end seen").count(), 2, "{page:?}");
    turns
        .end_call(&call(1, "send_file"), call_end(TurnCallOutcome::Finished))
        .await;
    turns
        .end("turn-1", &turn("clerk"), TurnOutcome::Finished)
        .await;
    let page = console
        .wait_for("/operations/turn-1", &login, "Turn of clerk finished")
        .await;
    let mut rest = page.body.split("<h2>Events</h2>").nth(1).unwrap();
    for part in [
        "Turn of clerk began",
        "Call of send_file by clerk began",
        "Call of send_file by clerk failed with tool_failure (status 502)",
        "340 ms",
        "Call of look by clerk was cancelled",
        "Call of send_file by clerk finished",
        "340 ms",
        "Turn of clerk finished",
    ] {
        let found = rest.split_once(part);
        rest = found.unwrap_or_else(|| panic!("no {part:?} in {rest}")).1;
    }
    assert!(!page.body.contains("no end seen"), "{page:?}");
    for (outcome, text) in [
        ("failed", "failed with tool_failure"),
        ("unknown", "was cancelled"),
    ] {
        let path = format!("/live?service=orchestrator&outcome={outcome}");
        let page = console.get(&path, Some(&login)).await;
        assert!(page.body.contains(text), "{outcome}: {page:?}");
    }
}

#[tokio::test]
async fn a_call_whose_end_was_lost_is_not_shown_as_ended_after_its_turn_ended() {
    let (console, login) = watched_console().await;
    let turns = TurnPublisher::new(&console);
    turns.begin("turn-1", &turn("clerk")).await;
    turns.begin_call(&call(1, "look")).await;
    turns
        .end("turn-1", &turn("clerk"), TurnOutcome::Finished)
        .await;
    let path = "/operations/turn-1";
    let page = console
        .wait_for(path, &login, "Turn of clerk finished")
        .await;
    let row = page.body.split("Call of look by clerk").nth(1).unwrap();
    let row = row.split("</tr>").next().unwrap();
    assert!(
        row.starts_with(" began") && row.contains("no end seen"),
        "{row}"
    );
    assert_eq!(page.body.matches("Call of look").count(), 1, "{page:?}");
}

#[tokio::test]
async fn names_of_tools_cannot_change_what_is_shown_beside_them() {
    let (console, login) = watched_console().await;
    let turns = TurnPublisher::new(&console);
    let hostile = format!("<script>\u{202e}\r\n\u{1b}[31m{}", "x".repeat(10_000));
    let hostile = v1::TurnCall {
        call_id: hostile.clone(),
        ..call(1, &hostile)
    };
    let failed = call_end(TurnCallOutcome::Failed);
    turns.end_call(&hostile, failed).await;
    let live = "/live?service=orchestrator&session=s-1";
    let page = console.wait_for(live, &login, "by clerk failed").await;
    let row = page.body.split("Call of ").nth(1).unwrap();
    let row = row.split("</tr>").next().unwrap();
    for hidden in ["<script>", "\u{202e}", "\u{1b}"] {
        assert!(!row.contains(hidden), "{row}");
    }
    assert!(row.len() < 2_000, "{row}");
}
