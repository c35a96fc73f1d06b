//! Tests of guardrails of agents that hand over: whose guardrails judge, and how a handoff is refused.

use serde_json::{Value, json};

use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};
use crate::guardrails::{Judge, block, guardrail};
use crate::handoffs::{HANDOFF_SCRIPT, billing, models};

/// `agent` with a guardrail, which hands over to `billing`.
async fn guarded_lead(endpoint: &CountingEndpoint, judge: &Judge, entry: Value) -> TurnFixture {
    let mut lead = manifest(json!([rest(&endpoint.url(), &["b"]), judge.set()]));
    lead["handoffs"] = json!([{"agent": "billing"}]);
    lead["guardrails"] = json!([entry]);
    start(&lead, &billing(endpoint)).await
}

async fn start(lead: &Value, billing: &Value) -> TurnFixture {
    TurnFixture::with(lead, HANDOFF_SCRIPT, |config| {
        let directory = config.manifests.clone().unwrap();
        std::fs::write(directory.join("billing.json"), billing.to_string()).unwrap();
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_handoff_does_not_happen_and_the_first_agent_continues() {
    let endpoint = CountingEndpoint::start().await;
    let judge = Judge::start([block("not today")]).await;
    let entry = guardrail("before_tool", json!({"tools": ["transfer_to_*"]}));
    let fixture = guarded_lead(&endpoint, &judge, entry).await;
    let answer = fixture.send_text("pay").await;
    let refusal = "This call was refused, and it was not made: not today";
    assert!(
        answer.text().ends_with(&format!("Told: {refusal}")),
        "{answer:?}"
    );
    assert_eq!(models(&fixture), ["lead", "lead"]);
    assert_eq!(endpoint.called(), [""; 0]);
    assert_eq!(answer.state().get("dray_agents"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withheld_result_of_a_handoff_does_not_take_the_handoff_back() {
    let endpoint = CountingEndpoint::start().await;
    let judge = Judge::start([block("no")]).await;
    let entry = guardrail("after_tool", json!({"tools": ["transfer_to_*"]}));
    let fixture = guarded_lead(&endpoint, &judge, entry).await;
    let answer = fixture.send_text("pay").await;
    assert!(
        answer.text().ends_with("Paid {\"own\":\"1\"}."),
        "{answer:?}"
    );
    assert_eq!(models(&fixture), ["lead", "bill", "bill"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn guardrails_judge_answers_of_their_own_agent_only() {
    let endpoint = CountingEndpoint::start().await;
    let judge = Judge::start([]).await;
    let entry = guardrail("after_model", json!({}));
    let fixture = guarded_lead(&endpoint, &judge, entry).await;
    let answer = fixture.send_text("pay").await;
    assert!(
        answer.text().ends_with("Paid {\"own\":\"1\"}."),
        "{answer:?}"
    );
    let asked = judge.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["text"], "One moment.");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_that_continues_is_judged_by_its_own_guardrails() {
    let endpoint = CountingEndpoint::start().await;
    let allow = json!({"verdict": "allow"});
    let judge = Judge::start([allow, block("no money")]).await;
    let mut lead = manifest(json!([]));
    lead["handoffs"] = json!([{"agent": "billing"}]);
    let mut guarded = billing(&endpoint);
    guarded["tool_sets"]
        .as_array_mut()
        .unwrap()
        .push(judge.set());
    guarded["guardrails"] = json!([guardrail("after_model", json!({}))]);
    let fixture = start(&lead, &guarded).await;
    let answer = fixture.send_text("pay").await;
    assert!(
        answer
            .text()
            .ends_with("This request was not answered: no money"),
        "{answer:?}"
    );
    assert!(!answer.text().contains("Paid"), "{answer:?}");
    assert_eq!(endpoint.called(), ["1"], "the first answer was allowed");
}
