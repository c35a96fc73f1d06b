//! Tests of the sandbox that the configuration gives to sessions without one.

use dray_bus::Bus;
use dray_proto::contract::call_subject;
use dray_proto::{Call, v1};
use dray_types::{Fault, FaultCode};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::{ChatResult, TurnFixture, manifest};

/// Refuses all calls of this kind until the tasks are dropped.
async fn refuse<C: Call>(bus: &Bus, tasks: &mut JoinSet<()>, fault: Fault) {
    let subject = call_subject::<C>();
    let mut responder = bus.respond_to(&subject, "test").await.unwrap();
    tasks.spawn(async move {
        while let Some(incoming) = responder.next().await {
            let reply: Result<C::Reply, Fault> = Err(fault.clone());
            incoming.answer(reply).await;
        }
    });
}

/// The response of an agent whose configured sandbox does not exist.
async fn chat_without_sandbox(address: &str) -> ChatResult {
    let script = r#"{"rules": [{"reply": {"say": "Hi."}}]}"#;
    let fixture = TurnFixture::with(&manifest(json!([])), script, |config| {
        config.files.sessions = true;
        config.sandbox = Some(address.to_owned());
    })
    .await;
    let mut tasks = JoinSet::new();
    let unknown = Fault::new(FaultCode::NotFound, "The session is unknown.");
    refuse::<v1::ShowSessionRequest>(fixture.bus(), &mut tasks, unknown).await;
    let gone = Fault::new(FaultCode::NotFound, "The sandbox does not exist.");
    refuse::<v1::BindSessionRequest>(fixture.bus(), &mut tasks, gone).await;
    fixture.send_text("go").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_cannot_be_bound_is_an_issue_of_the_turn() {
    let result = chat_without_sandbox("local:/srv/nothing").await;
    assert_eq!(result.text(), "Hi.");
    let stages = result.stages();
    assert_eq!(stages[0].0, "Initialization issues");
    let text = &stages[0].1;
    assert!(
        text.contains("**sandbox**: The sandbox does not exist."),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_missing_sandbox_of_one_session_is_no_issue() {
    let result = chat_without_sandbox("docker:agent-{session}").await;
    assert_eq!(result.text(), "Hi.");
    let stages = result.stages();
    assert!(stages.is_empty(), "{stages:?}");
}
