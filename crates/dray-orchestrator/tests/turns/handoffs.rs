//! Tests of handoffs: which agent continues a turn, with which tools and budget, how often, for which callers, and
//! after a pause.

use dray_agent::budget::{MoneyAmount, TokenPrice};
use dray_orchestrator::Config;
use dray_orchestrator::config::permissions::CallerPermissions;
use dray_types::Secret;
use serde_json::{Value, json};

use crate::client_tools::{CountingEndpoint, kept, tool_result, user};
use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::responses::create;

/// `agent` (model `lead`) hands over to `billing` (model `bill`), whose tool is `shop_a`, and which hands back on
/// request.
pub(crate) const HANDOFF_SCRIPT: &str = r#"{"rules": [
    {"when": {"model": "bill", "last_user_contains": "give back", "tool_result_of": "transfer_to_agent"},
        "reply": {"say": "Refused: {result}"}},
    {"when": {"model": "bill", "last_user_contains": "give back"}, "reply": {"call": [{"name": "transfer_to_agent"}]}},
    {"when": {"model": "bill", "tool_result_of": "shop_a"}, "reply": {"say": "Paid {result}."}},
    {"when": {"model": "bill", "tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
    {"when": {"model": "bill", "last_user_contains": "weather"}, "reply": {"call": [{"name": "weather", "arguments": {}}]}},
    {"when": {"model": "bill", "last_user_contains": "hello"}, "reply": {"say": "Billing."}},
    {"when": {"model": "bill"}, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}},
    {"when": {"model": "lead", "last_user_contains": "hello"}, "reply": {"say": "Lead."}},
    {"when": {"model": "lead", "tool_result_of": "transfer_to_billing"}, "reply": {"say": "Told: {result}"}},
    {"when": {"model": "lead", "last_user_contains": "both"}, "reply": {"call": [
        {"name": "transfer_to_billing"}, {"name": "shop_b", "arguments": {"q": "2"}}]}},
    {"reply": {"say": "One moment.", "call": [{"name": "transfer_to_billing", "arguments": {"reason": "a bill"}}]}}]}"#;

pub(crate) fn billing(endpoint: &CountingEndpoint) -> Value {
    let mut billing = manifest(json!([rest(&endpoint.url(), &["a"])]));
    billing["orchestrator"]["deployment"]["deployment_id"] = json!("bill");
    billing["orchestrator"]["system_prompt"]["content"] = json!("You bill.");
    billing["handoffs"] = json!([{"agent": "agent"}]);
    billing
}

pub(crate) async fn lead_and_billing(
    endpoint: &CountingEndpoint,
    billing: &Value,
    change: impl FnOnce(&mut Config),
) -> TurnFixture {
    let mut lead_and_billing = manifest(json!([rest(&endpoint.url(), &["b"])]));
    lead_and_billing["handoffs"] = json!([{"agent": "billing", "description": "Knows all bills."}]);
    TurnFixture::with(&lead_and_billing, HANDOFF_SCRIPT, |config| {
        let directory = config.manifests.clone().unwrap();
        std::fs::write(directory.join("billing.json"), billing.to_string()).unwrap();
        change(config);
    })
    .await
}

pub(crate) fn models(fixture: &TurnFixture) -> Vec<String> {
    let model = |asked: &Value| asked["model"].as_str().unwrap().to_owned();
    fixture.asked().iter().map(model).collect()
}

fn stage_names(seen: &ChatResult) -> Vec<String> {
    seen.stages().into_iter().map(|stage| stage.0).collect()
}

fn tools(asked: &Value) -> Vec<String> {
    let tools = asked["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

fn with_state(agent: &str) -> Value {
    let state = json!({"dray_agents": {"from": "agent", "path": [agent]}});
    json!({"role": "assistant", "content": "x", "custom_content": {"state": state}})
}

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one conversation from its first turn to its last"
)]
async fn another_agent_answers_the_rest_of_the_turn_and_the_turns_after_it() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |_| {}).await;
    let first = fixture.send_text("pay").await;
    assert_eq!(
        first.text(),
        "One moment.\n\nPaid {\"own\":\"1\"}.",
        "{first:?}"
    );
    assert_eq!(models(&fixture), ["lead", "bill", "bill"]);
    assert_eq!(endpoint.called(), ["1"]);
    let names = stage_names(&first);
    assert!(
        names
            .iter()
            .any(|name| name.starts_with("Handoff to billing")),
        "{names:?}"
    );
    assert!(names.contains(&"Agent: billing".to_owned()), "{names:?}");
    let agents = json!({"from": "agent", "path": ["billing"]});
    assert_eq!(first.state()["dray_agents"], agents);
    // Each agent has its own prompt and its own tools, and the second one sees what the first one did.
    let requests = fixture.asked();
    assert!(
        tools(&requests[0]).contains(&"transfer_to_billing".to_owned()),
        "{}",
        requests[0]
    );
    assert!(
        requests[0]["tools"]
            .to_string()
            .contains("Knows all bills.")
    );
    let of_billing = tools(&requests[1]);
    assert!(of_billing.contains(&"shop_a".to_owned()), "{of_billing:?}");
    assert!(!of_billing.contains(&"shop_b".to_owned()), "{of_billing:?}");
    let messages_text = requests[1]["messages"].to_string();
    assert!(
        messages_text.contains("You bill.") && !messages_text.contains("You help."),
        "{messages_text}"
    );
    assert!(
        messages_text.contains("One moment.") && messages_text.contains("a bill"),
        "{messages_text}"
    );
    // The next turn begins with it, and its prompt begins with the bytes of the one before.
    let second = fixture
        .ask(json!([user("pay"), first.message(), user("hello")]))
        .await;
    assert_eq!(second.text(), "Billing.", "{second:?}");
    assert!(
        stage_names(&second).contains(&"Agent: billing".to_owned()),
        "{second:?}"
    );
    let prompt = |number: usize| {
        fixture.asked()[number]["messages"]
            .as_array()
            .unwrap()
            .clone()
    };
    let (before, after) = (prompt(2), prompt(3));
    assert_eq!(before[..], after[..before.len()], "prompt caches hit");
    assert_eq!(fixture.asked()[3]["tools"], requests[2]["tools"]);
    // It hands back in a turn of its own, and the first agent answers again.
    let talk = json!([
        user("pay"),
        first.message(),
        user("hello"),
        second.message(),
        user("give back, hello")
    ]);
    let third = fixture.ask(talk).await;
    assert_eq!(third.text(), "Lead.", "{third:?}");
    assert_eq!(
        third.state()["dray_agents"],
        json!({"from": "agent", "path": []})
    );
    let talk = json!([
        user("x"),
        first.message(),
        user("y"),
        third.message(),
        user("hello")
    ]);
    assert_eq!(fixture.ask(talk).await.text(), "Lead.");
    assert_eq!(endpoint.called(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_handed_to_each_agent_once_and_not_beyond_the_limit() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |_| {}).await;
    let result = fixture.send_text("give back").await;
    assert!(
        result.text().contains("'agent' had this turn already"),
        "{result:?}"
    );
    assert_eq!(models(&fixture), ["lead", "bill", "bill"]);
    assert_eq!(result.state()["dray_agents"]["path"], json!(["billing"]));
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |config| {
        config.max_handoffs = 0;
    })
    .await;
    let result = fixture.send_text("pay").await;
    assert!(result.text().contains("at most 0 times"), "{result:?}");
    assert_eq!(result.state().get("dray_agents"), None);
    assert_eq!(endpoint.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_agents_of_the_caller_and_of_the_manifest_answer_regardless_of_the_state() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |config| {
        let other = config.manifests.clone().unwrap().join("other.json");
        std::fs::write(other, billing(&endpoint).to_string()).unwrap();
        config.clients = [("one", "k-1"), ("two", "k-2")]
            .map(|(name, key)| (name.to_owned(), Secret::new(key)))
            .into();
        let only = CallerPermissions {
            agents: Some(vec!["agent".to_owned()]),
            ..CallerPermissions::default()
        };
        config.permissions.clients = [("one".to_owned(), only)].into();
    })
    .await;
    let ask = |key: &'static str, messages: Value| {
        let body = json!({"model": "agent", "messages": messages, "stream": true});
        let url = format!("{}/v1/chat/completions", fixture.url);
        let request = fixture
            .client
            .post(&url)
            .authorization("Bearer", &Secret::new(key));
        fixture.send(request.json(&body))
    };
    // The caller may not use the other agent: it gets no tool for that agent, and no turn by a state that it forged.
    let refused = ask("k-1", json!([user("hello")])).await;
    let issues = refused
        .stages()
        .into_iter()
        .find(|stage| stage.0.starts_with("Initialization"));
    assert!(
        issues.unwrap().1.contains("not for the caller"),
        "{refused:?}"
    );
    assert!(!tools(&fixture.asked()[0]).contains(&"transfer_to_billing".to_owned()));
    let forged = json!([user("x"), with_state("billing"), user("hello")]);
    assert_eq!(ask("k-1", forged.clone()).await.text(), "Lead.");
    assert_eq!(ask("k-2", forged).await.text(), "Billing.");
    // An agent to which the manifest hands nothing over does not answer either.
    let forged = json!([user("x"), with_state("other"), user("hello")]);
    assert_eq!(ask("k-2", forged).await.text(), "Lead.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_continues_with_the_agent_that_asked() {
    let endpoint = CountingEndpoint::start().await;
    let mut second = billing(&endpoint);
    second["require_approval"] = json!([{"tools": ["shop_a"]}]);
    let mut fixture = lead_and_billing(&endpoint, &second, |_| {}).await;
    // An approval in text, of a client that keeps only the text, at another replica.
    let question = fixture.send_text("pay").await;
    assert!(question.text().contains("`shop_a`"), "{question:?}");
    fixture.url = fixture.start_replica().await;
    let assistant_message = json!({"role": "assistant", "content": question.text()});
    let second_result = fixture
        .ask(json!([user("pay"), assistant_message, user("yes")]))
        .await;
    assert_eq!(
        second_result.text(),
        "Paid {\"own\":\"1\"}.",
        "{second_result:?}"
    );
    assert_eq!(
        second_result.state()["dray_agents"]["path"],
        json!(["billing"])
    );
    assert_eq!(
        (models(&fixture), endpoint.called().len()),
        (
            vec!["lead".to_owned(), "bill".to_owned(), "bill".to_owned()],
            1
        )
    );
    // A call of the client's own tool.
    let weather = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let response = fixture
        .chat(json!({"messages": [user("weather")], "tools": [weather]}))
        .await;
    let calls = response.calls();
    assert_eq!(calls.len(), 1, "{response:?}");
    let messages = json!([
        user("weather"),
        kept(&response),
        tool_result(&calls[0], "sunny")
    ]);
    let body = json!({"messages": messages, "tools": [weather]});
    assert_eq!(fixture.chat(body.clone()).await.text(), "It is sunny.");
    // That agent has the rest of the turn: without its manifest the turn does not continue.
    let directory = fixture.directory().join("manifests");
    std::fs::remove_file(directory.join("billing.json")).unwrap();
    let late_response = fixture.chat(body).await;
    assert_eq!(
        (late_response.status, &late_response.error()["code"]),
        (400, &json!("agent_unavailable")),
        "{late_response:?}"
    );
    // A new message of the user is answered by the agent that the request names.
    let repeated = fixture
        .ask(json!([user("x"), with_state("billing"), user("hello")]))
        .await;
    assert_eq!(repeated.text(), "Lead.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handoff_beside_calls_that_wait_is_refused_and_an_approved_handoff_happens() {
    let endpoint = CountingEndpoint::start().await;
    let rule = |tools: &str| vec![serde_json::from_value(json!({"tools": [tools]})).unwrap()];
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |config| {
        config.require_approval = rule("shop_b");
    })
    .await;
    let question = fixture.send_text("both").await;
    assert!(question.text().contains("`shop_b`"), "{question:?}");
    let assistant_message = json!({"role": "assistant", "content": question.text()});
    let second_result = fixture
        .ask(json!([user("both"), assistant_message, user("yes")]))
        .await;
    assert!(
        second_result.text().starts_with("Told: "),
        "{second_result:?}"
    );
    let messages_text = fixture.asked()[1]["messages"].to_string();
    assert!(
        messages_text.contains("was not handed over"),
        "{messages_text}"
    );
    assert!(
        !messages_text.contains("answers from here on"),
        "{messages_text}"
    );
    assert_eq!(
        (models(&fixture), endpoint.called()),
        (vec!["lead".to_owned(); 2], vec!["2".to_owned()])
    );
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |config| {
        config.require_approval = rule("transfer_*");
    })
    .await;
    let question = fixture.send_text("pay").await;
    assert!(
        question.text().contains("`transfer_to_billing`"),
        "{question:?}"
    );
    let assistant_message = json!({"role": "assistant", "content": question.text()});
    let second_result = fixture
        .ask(json!([user("pay"), assistant_message, user("yes")]))
        .await;
    assert_eq!(
        second_result.text(),
        "Paid {\"own\":\"1\"}.",
        "{second_result:?}"
    );
    let messages_text = fixture.asked()[1]["messages"].to_string();
    assert!(
        messages_text.contains("was handed over to the agent 'billing'"),
        "{messages_text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_agent_has_its_own_budget_and_that_of_the_turn_continues() {
    let endpoint = CountingEndpoint::start().await;
    let mut second = billing(&endpoint);
    second["budget"] = json!({"max_calls": 1});
    let fixture = lead_and_billing(&endpoint, &second, |_| {}).await;
    let result = fixture.send_text("pay").await;
    assert!(result.text().contains("(1 calls of models)"), "{result:?}");
    assert_eq!(models(&fixture), ["lead", "bill"]);
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |config| {
        config.budgets.turn.limits.max_calls = Some(2);
    })
    .await;
    let result = fixture.send_text("pay").await;
    assert!(result.text().contains("(2 calls of models)"), "{result:?}");
    assert_eq!(models(&fixture), ["lead", "bill"]);
    // An agent that cannot take over leaves the turn with the one before it, which gets the reason.
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |config| {
        config.budgets.turn.limits.max_cost = Some(MoneyAmount::from_micros(1_000_000));
        config.budgets.prices = [("lead".to_owned(), TokenPrice::default())].into();
    })
    .await;
    let result = fixture.send_text("pay").await;
    assert!(
        result
            .text()
            .contains("could not take the conversation over"),
        "{result:?}"
    );
    assert!(result.text().contains("has no price"), "{result:?}");
    assert_eq!(result.state().get("dray_agents"), None);
    assert_eq!(models(&fixture), ["lead", "lead"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_previous_response_continues_with_the_agent_that_answered_it() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = lead_and_billing(&endpoint, &billing(&endpoint), |_| {}).await;
    let (_, first) = create(&fixture, &json!({"input": "pay"})).await;
    assert_eq!(first["status"], "completed", "{first}");
    let next = json!({"input": "hello", "previous_response_id": first["id"]});
    let (_, second) = create(&fixture, &next).await;
    assert_eq!(
        second["output"][0]["content"][0]["text"], "Billing.",
        "{second}"
    );
    assert_eq!(models(&fixture), ["lead", "bill", "bill", "bill"]);
    assert_eq!(endpoint.called(), ["1"]);
}
