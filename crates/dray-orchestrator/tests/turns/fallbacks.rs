//! Tests of models that take the place of one that fails.

use dray_agent::budget::{BudgetLimits, MoneyAmount, TokenPrice};
use serde_json::{Value, json};

use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};

/// An agent of `lead`, with two other models behind it.
fn agent(tool_sets: Value) -> Value {
    let mut agent = manifest(tool_sets);
    agent["orchestrator"]["deployment"]["deployment_id"] = json!("lead");
    agent["orchestrator"]["fallback_deployments"] = json!([
        {"deployment_id": "second", "parameters": {"temperature": 0.25}}, {"deployment_id": "third"},
    ]);
    agent
}

/// The models that were called, in order.
fn models(fixture: &TurnFixture) -> Vec<String> {
    let model_requests = fixture.asked().into_iter();
    model_requests
        .map(|body| body["model"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_model_answers_when_one_fails_and_the_turn_stays_with_it() {
    let endpoint = CountingEndpoint::start().await;
    let script = r#"{"rules": [
        {"when": {"model": "lead"}, "reply": {"fail": {"status": 503, "message": "down"}}},
        {"when": {"model": "second", "tool_result_of": "shop_a"}, "reply": {"say": "Done."}},
        {"when": {"model": "second"}, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}}]}"#;
    let agent = agent(json!([rest(&endpoint.url(), &["a"])]));
    let fixture = TurnFixture::plain(&agent, script).await;
    let result = fixture.send_text("order").await;
    assert_eq!((result.text().as_str(), result.done), ("Done.", true));
    // Two further attempts first; the second round does not begin with the model that failed.
    assert_eq!(
        models(&fixture),
        ["lead", "lead", "lead", "second", "second"]
    );
    let (first, next) = (&fixture.asked()[0], &fixture.asked()[3]);
    assert_eq!(
        (&first["temperature"], &next["temperature"]),
        (&json!(0.5), &json!(0.25))
    );
    assert_eq!(
        (&first["messages"], &first["tools"]),
        (&next["messages"], &next["tools"])
    );
    assert_eq!(endpoint.called().len(), 1);
    // The next turn tries the first model again.
    fixture.send_text("order").await;
    assert_eq!(models(&fixture)[5], "lead");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_with_the_status_of_success_goes_to_the_next_model() {
    for body in [json!({"error": "overloaded"}), json!({"choices": []})] {
        let script = json!({"rules": [
            {"when": {"model": "lead"}, "reply": {"fail": {"status": 200, "body": body}}},
            {"reply": {"say": "Here."}},
        ]});
        let fixture = TurnFixture::plain(&agent(json!([])), &script.to_string()).await;
        let result = fixture.send_text("hello").await;
        assert_eq!((result.text().as_str(), result.done), ("Here.", true));
        assert_eq!(models(&fixture), ["lead", "second"], "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_its_service_reports_as_broken_off_is_not_complete() {
    for reason in ["error", "insufficient_system_resource"] {
        let script = json!({"rules": [
            {"when": {"model": "lead", "last_user_contains": "nothing"}, "reply": {"finish_reason": reason}},
            {"when": {"model": "lead"}, "reply": {"say": "Half", "finish_reason": reason}},
            {"reply": {"say": "Here."}},
        ]});
        let fixture = TurnFixture::plain(&agent(json!([])), &script.to_string()).await;
        let result = fixture.send_text("nothing").await;
        assert_eq!((result.text().as_str(), result.done), ("Here.", true));
        let result = fixture.send_text("half").await;
        assert_eq!(
            (result.text().as_str(), result.reason().as_str()),
            ("Half", "")
        );
        assert!(!result.error().is_null(), "{result:?}");
        assert_eq!(models(&fixture), ["lead", "second", "lead"], "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_and_a_refused_request_do_not_go_to_another_model() {
    let script = r#"{"rules": [
        {"when": {"last_user_contains": "break"}, "reply": {"say": "Hello world.", "piece": 6, "cut_after": 2}},
        {"reply": {"fail": {"status": 400, "message": "no"}}}]}"#;
    let fixture = TurnFixture::plain(&agent(json!([])), script).await;
    let result = fixture.send_text("break").await;
    assert!(result.text().starts_with("Hello"), "{result:?}");
    assert!(!result.error().is_null(), "{result:?}");
    assert_eq!(models(&fixture), ["lead"]);
    let result = fixture.send_text("refuse").await;
    assert_eq!(result.status, 400, "{result:?}");
    assert_eq!(models(&fixture), ["lead", "lead"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_models_fail_the_client_gets_the_failure_of_the_last_one() {
    let script = r#"{"rules": [
        {"when": {"model": "third"}, "reply": {"fail": {"status": 400, "message": "the last one"}}},
        {"reply": {"fail": {"status": 404, "message": "gone"}}}]}"#;
    let fixture = TurnFixture::plain(&agent(json!([])), script).await;
    let result = fixture.send_text("hello").await;
    assert_eq!(result.status, 400, "{result:?}");
    assert_eq!(result.error()["message"], "the last one", "{result:?}");
    assert_eq!(models(&fixture), ["lead", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_in_money_needs_the_prices_of_all_models_and_charges_the_one_that_answered() {
    let script = r#"{"rules": [
        {"when": {"model": "lead"}, "reply": {"fail": {"status": 404, "message": "gone"}}},
        {"reply": {"say": "Hi.", "usage": {"prompt": 1000000, "completion": 0}}}]}"#;
    let limits = BudgetLimits {
        max_cost: Some(MoneyAmount::from_micros(3_000_000)),
        ..BudgetLimits::default()
    };
    let price = |amount: u64| TokenPrice {
        input: MoneyAmount::from_micros(amount * 1_000_000),
        ..TokenPrice::default()
    };
    let start = async |names: &[(&str, u64)]| {
        TurnFixture::with(&agent(json!([])), script, |config| {
            config.budgets.caller = limits;
            for (name, amount) in names {
                let prices = &mut config.budgets.prices;
                prices.insert((*name).to_owned(), price(*amount));
            }
        })
        .await
    };
    let fixture = start(&[("lead", 1), ("second", 2)]).await;
    assert_eq!(fixture.send_text("hello").await.status, 500);
    assert_eq!(models(&fixture), [""; 0]);
    let fixture = start(&[("lead", 0), ("second", 2), ("third", 0)]).await;
    assert_eq!(fixture.send_text("hello").await.text(), "Hi.");
    assert_eq!(fixture.send_text("hello").await.text(), "Hi.");
    // Four units of money are used up: none of them by the model that failed.
    assert_eq!(fixture.send_text("hello").await.status, 429);
}
