//! Tests of the events about turns: their content for each outcome, their parents, and what they must never contain.

use dray_agent::budget::{MoneyAmount, TokenPrice};
use dray_bus::headers::{OPERATION_HEADER, SESSION_HEADER, TRACEPARENT_HEADER};
use dray_bus::{EventFilter, ObservedEvent};
use dray_orchestrator::Config;
use dray_proto::v1::{self, TurnCause, TurnOutcome};
use dray_testkit::eventually;
use serde_json::{Value, json};

use crate::agents::team_fixture;
use crate::client_tools::{CountingEndpoint, kept, tool_result, user, weather};
use crate::fixture::{TurnFixture, manifest, rest};
use crate::handoffs::{billing, lead_and_billing};

const CLIENT_TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Text in the prompt, in the arguments and the result of a call, and in the answer.
const SECRET_TEXT: &str = "s3cr3t-words";

/// The events of one turn.
#[derive(Clone, Debug)]
struct TurnEvents {
    begun: v1::AgentTurn,
    ended: v1::TurnEnded,
    trace: String,
}

impl TurnEvents {
    fn agent(&self) -> &str {
        &self.begun.agent
    }

    /// Calls and failed calls of a tool.
    fn calls_of(&self, tool: &str) -> Option<(u32, u32)> {
        let found = self.ended.tools.iter().find(|entry| entry.tool == tool);
        found.map(|entry| (entry.calls, entry.failed_calls))
    }
}

/// All events about turns up to the end of the `count`th turn.
async fn observe_events(fixture: &TurnFixture, count: usize) -> Vec<ObservedEvent> {
    let filter = EventFilter::new("dray.event.turn.v1.*.*").from_start();
    let mut stream = fixture.bus().events(filter).await.unwrap();
    let mut events = Vec::new();
    while events.iter().filter(|event| is_end(event)).count() < count {
        events.push(stream.next().await.unwrap());
    }
    events
}

fn is_end(event: &ObservedEvent) -> bool {
    event.subject.contains(".ended.")
}

/// The turns that ended, in the order of their begins. Each has exactly one event of each kind, in one trace.
async fn turns(fixture: &TurnFixture, count: usize) -> Vec<TurnEvents> {
    let events = observe_events(fixture, count).await;
    assert_eq!(events.len(), 2 * count, "{events:?}");
    let begins = events.iter().filter(|event| !is_end(event));
    let turns = begins.map(|event| {
        let begun: v1::TurnBegun = event.decode().unwrap();
        let operation = event.headers.get(OPERATION_HEADER).unwrap();
        assert_eq!(operation, begun.operation_id);
        let is_own_end = |other: &&ObservedEvent| {
            is_end(other) && other.headers.get(OPERATION_HEADER) == Some(operation)
        };
        let end = events.iter().find(is_own_end).unwrap();
        assert!(end.sequence > event.sequence);
        let ended: v1::TurnEnded = end.decode().unwrap();
        assert_eq!(ended.operation_id, begun.operation_id);
        let turn = begun.turn.unwrap();
        assert_eq!(ended.turn.as_ref(), Some(&turn));
        assert_eq!(
            event.headers.get(SESSION_HEADER),
            Some(turn.session.as_str())
        );
        let trace = |event: &ObservedEvent| {
            event.headers.get(TRACEPARENT_HEADER).unwrap()[3..35].to_owned()
        };
        assert_eq!(trace(event), trace(end));
        TurnEvents {
            begun: turn,
            ended,
            trace: trace(event),
        }
    });
    turns.collect()
}

/// The only turn.
async fn only_turn(fixture: &TurnFixture) -> TurnEvents {
    turns(fixture, 1).await.remove(0)
}

/// An agent with the tools `shop_a` and `shop_b`, of which the second needs approval.
async fn shop(
    endpoint: &CountingEndpoint,
    script: &str,
    change: impl FnOnce(&mut Config),
) -> TurnFixture {
    let mut agent = manifest(json!([rest(&endpoint.url(), &["a", "b"])]));
    agent["require_approval"] = json!([{"tools": ["shop_b"]}]);
    TurnFixture::with(&agent, script, change).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_turn_reports_its_models_tools_tokens_and_cost_and_no_content() {
    let endpoint = CountingEndpoint::start().await;
    let script = json!({"rules": [
        {"when": {"tool_result_of": "shop_a"}, "reply": {"say": format!("{SECRET_TEXT}: {{result}}"),
            "usage": {"prompt": 300, "completion": 7}}},
        {"reply": {"call": [{"name": "shop_a", "arguments": {"q": SECRET_TEXT}}], "usage": {"prompt": 100, "completion": 3}}},
    ]});
    let fixture = shop(&endpoint, &script.to_string(), |config| {
        let price = TokenPrice {
            input: MoneyAmount::from_micros(2_500_000),
            ..TokenPrice::default()
        };
        config.budgets.prices = [("lead".to_owned(), price)].into();
    })
    .await;
    let body = json!({"model": "agent", "messages": [user(&format!("Order {SECRET_TEXT}."))], "stream": true});
    let url = format!("{}/v1/chat/completions", fixture.url);
    let request = fixture.client.post(&url).header("x-dray-session", "desk-7");
    let request = request.header("traceparent", CLIENT_TRACE).json(&body);
    let answer = fixture.send(request).await;
    assert!(answer.text().contains(SECRET_TEXT), "{answer:?}");
    assert_eq!(endpoint.called(), [SECRET_TEXT]);
    let turn = only_turn(&fixture).await;
    assert_eq!(turn.trace, CLIENT_TRACE[3..35]);
    let begun = &turn.begun;
    assert_eq!(
        (begun.agent.as_str(), begun.client.as_str(), begun.cause()),
        ("agent", "local", TurnCause::Request)
    );
    assert_eq!(
        (begun.session.as_str(), begun.parent_operation_id.as_str()),
        ("desk-7", "")
    );
    assert!(begun.request_id.starts_with("req_") && begun.begun_at_ms > 0);
    let ended = &turn.ended;
    assert_eq!(ended.outcome(), TurnOutcome::Finished);
    assert_eq!(ended.finish_reason, "stop");
    assert_eq!((ended.model_calls, ended.tool_calls), (2, 1));
    assert_eq!(turn.calls_of("shop_a"), Some((1, 0)));
    let tokens = ended.tokens.unwrap();
    assert_eq!((tokens.input, tokens.output), (400, 10));
    assert_eq!(ended.cost_micros, Some(1_000));
    assert_eq!((ended.fault_code, ended.http_status), (0, 0));
    let model = &ended.models[0];
    assert_eq!((model.model.as_str(), model.calls), ("lead", 2));
    for event in observe_events(&fixture, 1).await {
        let text = format!("{:?} {:?}", event.subject, event.headers);
        assert!(!text.contains(SECRET_TEXT), "{text}");
        let mut parts = event.payload.windows(SECRET_TEXT.len());
        assert!(!parts.any(|part| part == SECRET_TEXT.as_bytes()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_says_for_whom_and_the_next_request_continues_it() {
    let endpoint = CountingEndpoint::start().await;
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
        {"when": {"last_user_contains": "order"}, "reply": {"call": [{"name": "shop_b", "arguments": {"q": "1"}}]}},
        {"reply": {"call": [{"name": "weather", "arguments": {"city": "Paris"}}]}}]}"#;
    let fixture = shop(&endpoint, script, |_| {}).await;
    let first = fixture
        .chat(json!({"messages": [user("go")], "tools": [weather()]}))
        .await;
    let result = tool_result(&first.calls()[0], "sunny");
    let messages = json!([user("go"), kept(&first), result]);
    let second = fixture
        .chat(json!({"messages": messages, "tools": [weather()]}))
        .await;
    assert_eq!(second.text(), "It is sunny.");
    fixture.send_text("order").await;
    let turns = turns(&fixture, 3).await;
    let outcomes: Vec<_> = turns.iter().map(|turn| turn.ended.outcome()).collect();
    assert_eq!(
        outcomes,
        [
            TurnOutcome::WaitsForClient,
            TurnOutcome::Finished,
            TurnOutcome::WaitsForPerson
        ]
    );
    let continues: Vec<_> = turns.iter().map(|turn| turn.begun.continues).collect();
    assert_eq!(continues, [false, true, false]);
    // Neither the client's tool nor the call that was not approved is a call of this service.
    assert!(turns.iter().all(|turn| turn.ended.tool_calls == 0));
    assert_eq!(endpoint.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_turn_has_the_code_of_its_cause() {
    let script = r#"{"rules": [{"reply": {"fail": {"status": 429, "message": "s3cr3t-words"}}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let answer = fixture.send_text("hello").await;
    assert_eq!(answer.status, 429, "{answer:?}");
    let ended = only_turn(&fixture).await.ended;
    assert_eq!(ended.outcome(), TurnOutcome::Failed);
    assert_eq!(
        (ended.fault_code(), ended.http_status),
        (v1::FaultCode::RateLimited, 429)
    );
    let model = &ended.models[0];
    assert_eq!(
        (model.model.as_str(), model.calls, model.failed_calls),
        ("lead", 1, 1)
    );
    assert_eq!(
        (ended.cost_micros, ended.finish_reason.as_str()),
        (None, "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_cancels_its_turn() {
    let script = r#"{"rules": [{"reply": {"say": "a b c", "piece": 1, "delay_ms": 600000}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    tokio::select! {
        seen = fixture.send_text("slowly") => panic!("{seen:?}"),
        () = eventually("the call", async || (!fixture.asked().is_empty()).then_some(())) => {}
    }
    let ended = only_turn(&fixture).await.ended;
    assert_eq!(ended.outcome(), TurnOutcome::Cancelled);
    assert_eq!((ended.fault_code, ended.http_status), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_budget_is_an_outcome_of_its_own_during_a_turn_and_before_it() {
    let endpoint = CountingEndpoint::start().await;
    let script = r#"{"rules": [
        {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}], "usage": {"prompt": 60, "completion": 10}}}]}"#;
    let fixture = shop(&endpoint, script, |config| {
        config.budgets.conversation.max_tokens = Some(100);
    })
    .await;
    let during = fixture.send_text("work").await;
    assert_eq!(during.reason(), "length", "{during:?}");
    let before = fixture.send_text("work").await;
    assert_eq!(before.status, 429, "{before:?}");
    let turns = turns(&fixture, 2).await;
    for turn in &turns {
        assert_eq!(turn.ended.outcome(), TurnOutcome::BudgetReached);
    }
    assert_eq!(turns[0].calls_of("shop_a"), Some((2, 0)));
    assert_eq!(
        (turns[0].ended.model_calls, turns[1].ended.model_calls),
        (2, 0)
    );
    let codes: Vec<_> = turns.iter().map(|turn| turn.ended.fault_code()).collect();
    assert_eq!(
        codes,
        [v1::FaultCode::Unspecified, v1::FaultCode::RateLimited]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_called_agent_has_a_turn_of_its_own_below_that_of_its_caller() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = team_fixture(&endpoint).await;
    fixture.send_text("go").await;
    let turns = turns(&fixture, 2).await;
    let (lead, helper) = (&turns[0], &turns[1]);
    assert_eq!((lead.agent(), helper.agent()), ("agent", "helper"));
    assert_eq!(helper.begun.cause(), TurnCause::Call);
    assert_eq!(
        (
            &helper.begun.parent_operation_id,
            &helper.begun.parent_agent
        ),
        (&lead.ended.operation_id, &"agent".to_owned())
    );
    assert_eq!(
        (&helper.begun.session, &helper.begun.request_id),
        (&lead.begun.session, &lead.begun.request_id)
    );
    assert_eq!(helper.trace, lead.trace);
    // Each counts what it does itself.
    assert_eq!(lead.calls_of("team_helper"), Some((1, 0)));
    assert_eq!((lead.ended.tool_calls, lead.ended.model_calls), (1, 2));
    assert_eq!(helper.calls_of("shop_a"), Some((1, 0)));
    assert_eq!(helper.ended.tokens.unwrap().input, 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_takes_over_has_a_turn_below_the_one_that_handed_over() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |_| {}).await;
    let first = fixture.send_text("pay").await;
    let messages = json!([user("pay"), first.message(), user("hello")]);
    fixture.ask(messages).await;
    let turns = turns(&fixture, 4).await;
    for turns in turns.chunks(2) {
        let (lead, billing) = (&turns[0], &turns[1]);
        assert_eq!((lead.agent(), billing.agent()), ("agent", "billing"));
        assert_eq!(billing.begun.cause(), TurnCause::Handoff);
        assert_eq!(billing.begun.parent_operation_id, lead.ended.operation_id);
        assert_eq!(billing.trace, lead.trace);
        for turn in turns {
            assert_eq!(turn.ended.outcome(), TurnOutcome::Finished);
        }
    }
    // In the second request the other agent answers from the start.
    let model_calls: Vec<_> = turns.iter().map(|turn| turn.ended.model_calls).collect();
    assert_eq!(model_calls, [1, 2, 0, 1]);
    assert_eq!(turns[1].calls_of("shop_a"), Some((1, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_answered_while_the_bus_takes_no_events() {
    let script = r#"{"rules": [{"reply": {"say": "Hi."}}]}"#;
    let fixture = TurnFixture::without_streams(&manifest(json!([])), script).await;
    for _ in 0..20 {
        let answer = fixture.send_text("hello").await;
        assert_eq!((answer.text().as_str(), answer.done), ("Hi.", true));
    }
    // The tasks cannot have tried to publish all events of these turns by now, so no turn waited for them.
    let value: Value = json!(fixture.asked().len());
    assert_eq!(value, 20);
}
