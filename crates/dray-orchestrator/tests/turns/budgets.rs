//! Tests of budgets of turns, conversations and clients: what counts, and the messages when one is used up.

use std::sync::Arc;

use dray_agent::budget::{BudgetLimits, MoneyAmount, TokenPrice};
use dray_http::fake_server::{ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState};
use dray_orchestrator::Config;
use dray_testkit::eventually;
use dray_types::Secret;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::client_tools::{CountingEndpoint, user};
use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::responses::create;

/// The model calls a tool in every round, for 70 tokens each; it answers when no call is left.
const BUSY_SCRIPT: &str = r#"{"rules": [
    {"when": {"last_user_contains": "hello"}, "reply": {"say": "Hi.", "usage": {"prompt": 30, "completion": 10}}},
    {"when": {"last_user_contains": "slowly"}, "reply": {"say": "a b c", "piece": 1, "delay_ms": 600000}},
    {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}], "usage": {"prompt": 60, "completion": 10}}}]}"#;

fn tokens(most: u64) -> BudgetLimits {
    BudgetLimits {
        max_tokens: Some(most),
        ..BudgetLimits::default()
    }
}

async fn busy(url: &str, budget: Value, change: impl FnOnce(&mut Config)) -> TurnFixture {
    let mut agent = manifest(json!([rest(url, &["a"])]));
    agent["budget"] = budget;
    TurnFixture::with(&agent, BUSY_SCRIPT, change).await
}

async fn ask_as(fixture: &TurnFixture, key: &'static str, text: &str) -> ChatResult {
    let body = json!({"model": "agent", "messages": [user(text)], "stream": true});
    let url = format!("{}/v1/chat/completions", fixture.url);
    let request = fixture
        .client
        .post(&url)
        .authorization("Bearer", &Secret::new(key));
    fixture.send(request.json(&body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_uses_up_its_budget_reports_it_and_ends_with_length() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = busy(&endpoint.url(), json!({"max_tokens": 100}), |_| {}).await;
    let result = fixture.send_text("work").await;
    assert_eq!(
        (result.reason().as_str(), result.done),
        ("length", true),
        "{result:?}"
    );
    assert!(
        result
            .text()
            .contains("the budget of this turn is used up (100 tokens)"),
        "{result:?}"
    );
    assert_eq!((fixture.asked().len(), endpoint.called().len()), (2, 2));
    let (status, response) = create(&fixture, &json!({"input": "work"})).await;
    assert_eq!((status, &response["status"]), (200, &json!("incomplete")));
    assert_eq!(
        response["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    // A manifest lowers the operator's limit and does not raise it.
    let fixture = busy(&endpoint.url(), json!({"max_tokens": 1000}), |config| {
        config.budgets.turn.limits.max_calls = Some(1);
    })
    .await;
    assert!(
        fixture
            .send_text("work")
            .await
            .text()
            .contains("(1 calls of models)")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_counts_by_the_prices_and_a_model_without_one_is_refused() {
    let endpoint = CountingEndpoint::start().await;
    let priced = |model: &'static str| {
        move |config: &mut Config| {
            config.budgets.turn.limits.max_cost = Some(MoneyAmount::from_micros(1_000_000));
            let price = TokenPrice {
                output: MoneyAmount::from_micros(50_000_000_000),
                ..TokenPrice::default()
            };
            config.budgets.prices = [(model.to_owned(), price)].into();
        }
    };
    // 10 tokens of an answer cost 0.5.
    let fixture = busy(&endpoint.url(), Value::Null, priced("lead")).await;
    let result = fixture.send_text("work").await;
    assert!(result.text().contains("(a cost of 1)"), "{result:?}");
    assert_eq!(fixture.asked().len(), 2);
    let fixture = busy(&endpoint.url(), Value::Null, priced("other")).await;
    let result = fixture.send_text("hello").await;
    assert_eq!((result.status, fixture.asked().len()), (500, 0));
    assert!(
        result.error()["message"]
            .as_str()
            .unwrap()
            .contains("has no price")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_a_client_is_its_own_and_counts_answers_that_it_left() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = busy(&endpoint.url(), Value::Null, |config| {
        config.clients = [("one", "k-1"), ("two", "k-2"), ("three", "k-3")]
            .map(|(name, key)| (name.to_owned(), Secret::new(key)))
            .into();
        config.budgets.caller = tokens(60);
        config.budgets.clients = [("three".to_owned(), tokens(1))].into();
    })
    .await;
    for _ in 0..2 {
        assert_eq!(ask_as(&fixture, "k-1", "hello").await.text(), "Hi.");
    }
    let refused = ask_as(&fixture, "k-1", "hello").await;
    assert_eq!(
        (refused.status, &refused.error()["code"]),
        (429, &json!("budget_exhausted"))
    );
    let message = refused.error()["message"].to_string();
    assert!(
        message.contains("this client for today (UTC) is used up (60 tokens)"),
        "{message}"
    );
    assert_eq!(ask_as(&fixture, "k-2", "hello").await.text(), "Hi.");
    // The third client disconnects while the model answers; the prompt is charged anyway.
    let before = fixture.asked().len();
    let leaves = ask_as(&fixture, "k-3", "slowly");
    tokio::select! {
        seen = leaves => panic!("{seen:?}"),
        () = eventually("the call", async || (fixture.asked().len() > before).then_some(())) => {}
    }
    assert_eq!(ask_as(&fixture, "k-3", "hello").await.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_a_client_counts_all_of_many_concurrent_turns() {
    const TURNS: u64 = 100;
    let endpoint = CountingEndpoint::start().await;
    let fixture = busy(&endpoint.url(), Value::Null, |config| {
        config.clients = [("one".to_owned(), Secret::new("k-1"))].into();
        config.budgets.caller.max_calls = Some(TURNS);
    })
    .await;
    let turns = (0..TURNS).map(|_| ask_as(&fixture, "k-1", "hello"));
    for result in futures_util::future::join_all(turns).await {
        assert_eq!(result.text(), "Hi.", "{result:?}");
    }
    assert_eq!(ask_as(&fixture, "k-1", "hello").await.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_of_a_conversation_counts_all_its_turns() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = busy(&endpoint.url(), Value::Null, |config| {
        config.budgets.conversation = tokens(40);
    })
    .await;
    let first = fixture.send_text("hello").await;
    assert_eq!(first.text(), "Hi.");
    let more = json!([user("hello"), first.message(), user("hello again")]);
    let second = fixture.ask(more).await;
    assert_eq!(
        (second.status, &second.error()["code"]),
        (429, &json!("budget_exhausted"))
    );
    // Another conversation has a budget of its own.
    assert_eq!(fixture.send_text("hello there").await.text(), "Hi.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_in_time_while_a_tool_hangs() {
    let hangs = FakeServer::start((), |_: Arc<SharedState<()>>, _: ReceivedRequest| {
        async move { std::future::pending::<Result<Reply, ConnectionClosed>>().await }.boxed()
    });
    let hangs = hangs.await.unwrap();
    let fixture = busy(&hangs.shared().url(), json!({"max_seconds": 1}), |_| {}).await;
    let result = fixture.send_text("work").await;
    assert_eq!(result.reason(), "length", "{result:?}");
    assert!(
        result
            .text()
            .contains("the budget of this turn is used up (1 seconds)"),
        "{result:?}"
    );
}
