//! The events about turns on a real bus: the work that they connect, a killed process, and an unavailable bus.

use std::collections::BTreeSet;

use dray_bus::headers::{SCHEMA_HEADER, TRACEPARENT_HEADER};
use dray_bus::{EventFilter, EventStream, ObservedEvent};
use dray_proto::v1::{self, TurnOutcome};
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::chat_answer::AgentAnswer;
use super::fixture::{AgentFixture, AgentSetup, user};
use super::public_hosts::HOST_NAME;

/// Text of the user, of a file and of an answer.
const SECRET_TEXT: &str = "s3cr3t-words";

/// Everything that the streams of events and of audit events have now.
async fn stored_events(fixture: &AgentFixture) -> Vec<ObservedEvent> {
    let mut stored = Vec::new();
    for subject in ["dray.event.>", "dray.audit.>"] {
        let filter = EventFilter::new(subject).from_start();
        let mut stream = fixture.bus().events(filter).await.unwrap();
        while let Some(Ok(event)) = stream.next().now_or_never() {
            stored.push(event);
        }
    }
    stored
}

fn trace_of(event: &ObservedEvent) -> &str {
    let parent = event.headers.get(TRACEPARENT_HEADER).unwrap_or_default();
    parent.get(3..35).unwrap_or_default()
}

fn message_of(event: &ObservedEvent) -> &str {
    let schema = event.headers.get(SCHEMA_HEADER).unwrap_or_default();
    schema.split('/').next().unwrap_or_default()
}

/// Checks that neither the payload nor a header of an event about a turn contains the secret text.
fn check_no_secret(events: &[ObservedEvent]) {
    for event in events {
        if message_of(event).contains("Turn") {
            let mut parts = event.payload.windows(SECRET_TEXT.len());
            assert!(!parts.any(|part| part == SECRET_TEXT.as_bytes()));
            assert!(!format!("{:?}", event.headers).contains(SECRET_TEXT));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fetches_transfers_and_deliveries_of_a_turn_have_its_trace_without_a_collector() {
    let rules = json!([
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": SECRET_TEXT}},
        {"when": {"tool_result_of": "sandbox_put"},
         "reply": {"call": [{"name": "send_file", "arguments": {"paths": ["note.md"]}}]}},
        {"when": {"tool_result_of": "fetch_url"},
         "reply": {"call": [{"name": "sandbox_put", "arguments": {"path": "note.md", "content": SECRET_TEXT}}]}},
        {"reply": {"call": [{"name": "fetch_url", "arguments": {"url": format!("http://{HOST_NAME}/prices.csv")}}]}},
    ]);
    let fixture = AgentSetup::new(json!([]), rules)
        .set("orchestrator.files.always_fetch", "true")
        .feature("external_url_fetch", json!({"enabled": true}))
        .start()
        .await;
    let chat = fixture.telegram.chat();
    fixture.bind("desk", chat).await;
    let question = json!([user(&format!("Send the prices, {SECRET_TEXT}."))]);
    let answer = fixture.ask_in(Some("desk"), question).await;
    assert!(answer.text().ends_with(SECRET_TEXT), "{answer:?}");
    assert_eq!(
        fixture.outside.request_count(),
        1,
        "{:?}",
        fixture.messages(1)
    );
    let wanted: BTreeSet<_> = [
        "dray.v1.TurnBegun",
        "dray.v1.EgressAudit",
        "dray.v1.DeliveryDone",
        "dray.v1.DeliveryAudit",
        "dray.v1.TurnEnded",
    ]
    .into();
    let events = eventually("the events of the turn", async || {
        let events = stored_events(&fixture).await;
        let turn = events
            .iter()
            .find(|event| message_of(event) == "dray.v1.TurnBegun")?;
        let trace = trace_of(turn).to_owned();
        let of_turn = events.iter().filter(|event| trace_of(event) == trace);
        let messages: BTreeSet<_> = of_turn.map(message_of).collect();
        messages.is_superset(&wanted).then(|| events.clone())
    })
    .await;
    let ended = events
        .iter()
        .find(|event| message_of(event) == "dray.v1.TurnEnded");
    let ended: v1::TurnEnded = ended.unwrap().decode().unwrap();
    let tools: Vec<_> = ended
        .tools
        .iter()
        .map(|entry| entry.tool.as_str())
        .collect();
    assert_eq!(tools, ["fetch_url", "sandbox_put", "send_file"]);
    assert_eq!(ended.turn.unwrap().session, "desk");
    check_no_secret(&events);
    fixture.stop().await;
}

async fn turn_stream(fixture: &AgentFixture) -> EventStream {
    let filter = EventFilter::new("dray.event.turn.v1.*.*").from_start();
    fixture.bus().events(filter).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_process_is_killed_has_no_end() {
    let rules = json!([
        {"when": {"last_user_contains": "slowly"}, "reply": {"say": "a b c", "piece": 1, "delay_ms": 600_000}},
        {"reply": {"say": "Hello."}},
    ]);
    let setup = AgentSetup::new(json!([]), rules).distributed();
    let fixture = setup.without("orchestrator").start().await;
    let mut events = turn_stream(&fixture).await;
    let killed = fixture.process("orchestrator", &[]).await;
    let body = |text: &str| json!({"model": "agent", "messages": [user(text)], "stream": true});
    let request = fixture
        .post_to(&killed, "/v1/chat/completions")
        .json(&body("slowly"));
    let first: v1::TurnBegun = tokio::select! {
        answer = AgentAnswer::of(request) => panic!("{answer:?}"),
        begun = events.next() => begun.unwrap().decode().unwrap(),
    };
    killed.kill9();
    let second = fixture.process("orchestrator", &[]).await;
    let request = fixture
        .post_to(&second, "/v1/chat/completions")
        .json(&body("hello"));
    assert_eq!(AgentAnswer::of(request).await.text(), "Hello.");
    let begun: v1::TurnBegun = events.next().await.unwrap().decode().unwrap();
    let ended: v1::TurnEnded = events.next().await.unwrap().decode().unwrap();
    assert_ne!(begun.operation_id, first.operation_id);
    assert_eq!(ended.operation_id, begun.operation_id);
    assert_eq!(ended.outcome(), TurnOutcome::Finished);
    assert!(events.next().now_or_never().is_none());
    drop(second);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_answered_while_the_bus_is_unavailable_and_its_lost_events_are_counted() {
    let rules = json!([{"reply": {"say": "Hello."}}]);
    let setup = AgentSetup::new(json!([]), rules).distributed();
    let mut fixture = setup.without("orchestrator").start().await;
    let settings = [("orchestrator.files.sessions", "false".to_owned())];
    let agent = fixture.process("orchestrator", &settings).await;
    fixture.nats.as_mut().unwrap().stop();
    let body = json!({"model": "agent", "messages": [user("hello")], "stream": true});
    let request = fixture.post_to(&agent, "/v1/chat/completions").json(&body);
    let answer = AgentAnswer::of(request).await;
    assert_eq!(
        (answer.text().as_str(), answer.error()),
        ("Hello.", Value::Null)
    );
    eventually("the counter of lost events", async || {
        let page = fixture.metrics_of(&agent).await;
        let mut lines = page.lines();
        let counter = "dray_chat_turn_events_lost_total{reason=\"publish_failed\"}";
        lines.any(|line| line.starts_with(counter)).then_some(())
    })
    .await;
    fixture.nats.as_mut().unwrap().restart();
    drop(agent);
    fixture.stop().await;
}
