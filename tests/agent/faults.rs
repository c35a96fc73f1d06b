//! Tests of services that are missing, or end during a call: the model is advised to try again, and the chat continues.

use dray_testkit::dial::InjectedFault;
use dray_testkit::eventually;
use dray_testkit::s3::{FaultRule, S3Fault};
use serde_json::{Value, json};

use super::fixture::{AgentFixture, AgentSetup, DIAL_KEY, user};
use super::process::ServiceProcess;
use super::references::{agent, last_model_messages};
use super::rest_endpoint::FakeEndpoint;

const NOTE_REFERENCE: &str = "file:text::files/acme/note.txt";

/// Rules of a model that calls the tool and repeats its result.
#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
fn calling_rules(tool: &str, arguments: Value) -> Value {
    json!([
        {"when": {"tool_result_of": tool}, "reply": {"say": "It said {result}"}},
        {"reply": {"call": [{"name": tool, "arguments": arguments}]}},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_sandbox_service_a_turn_continues_without_its_tools() {
    let rules = json!([{"reply": {"say": "Hello."}}]);
    let setup = AgentSetup::new(json!([]), rules).without("sandbox-transfer");
    let fixture = setup.start().await;
    let note =
        json!({"type": "text/plain", "title": "n.txt", "url": "data:text/plain;base64,aGVsbG8="});
    let question =
        json!({"role": "user", "content": "Hi.", "custom_content": {"attachments": [note]}});
    let answer = fixture.ask(json!([question])).await;
    assert_eq!(
        (answer.text().trim(), answer.error()),
        ("Hello.", Value::Null)
    );
    let tools = fixture.model.received_requests()[0].body["tools"].to_string();
    assert!(tools.contains("read_files"), "{tools}");
    assert!(!tools.contains("sandbox_list"), "{tools}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_reports_that_the_file_resolver_is_missing() {
    let shop = FakeEndpoint::start().await;
    let fixture = agent(&shop, json!({ "doc": NOTE_REFERENCE }))
        .without("file-resolver")
        .start()
        .await;
    let answer = fixture.chat("Order.").await;
    let result = fixture.result();
    let sentence = "The service that reads files is not reachable at the moment; try again later.";
    assert!(result.contains(sentence), "{result}");
    assert!(answer.text().contains("try again later"), "{answer:?}");
    assert_eq!((shop.bodies(), answer.error()), (Vec::new(), Value::Null));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_delivery_service_no_file_is_reported_as_delivered() {
    let rules = calling_rules("send_file", json!({"paths": ["report.txt"]}));
    let fixture = AgentSetup::new(json!([]), rules)
        .without("platform-delivery")
        .start()
        .await;
    std::fs::write(fixture.sandbox.join("report.txt"), "words").unwrap();
    let chat = fixture.telegram.chat();
    fixture.bind("crane", chat).await;
    let answer = fixture
        .ask_in(Some("crane"), json!([user("Send it.")]))
        .await;
    let result = fixture.result();
    assert!(
        result.contains("not reachable at the moment; try again later."),
        "{result}"
    );
    assert!(!result.contains("delivered"), "{result}");
    assert_eq!(
        (answer.attachments(), answer.error()),
        (Vec::new(), Value::Null)
    );
    fixture.stop().await;
}

/// Starts the file-resolver of a fixture in a separate process.
async fn start_resolver(fixture: &AgentFixture) -> ServiceProcess {
    let settings = [
        ("file-resolver.dial_url", fixture.dial.url()),
        ("file-resolver.dial_read_timeout", "5s".to_owned()),
    ];
    let (store, options) = fixture.store.as_ref().unwrap();
    let nats = fixture.nats.as_ref().unwrap();
    ServiceProcess::start("file-resolver", nats, (store, options), &settings, None).await
}

async fn wait_until_dial_is_asked(fixture: &AgentFixture) {
    eventually("a request to DIAL Core", async || {
        let requests = fixture.dial.requests();
        requests
            .iter()
            .any(|request| request.contains("note.txt"))
            .then_some(())
    })
    .await;
}

/// A fixture without a file-resolver, whose DIAL Core does not respond to requests for the note.
async fn fixture_with_silent_dial(shop: &FakeEndpoint) -> AgentFixture {
    let setup = agent(shop, json!({ "doc": NOTE_REFERENCE }))
        .distributed()
        .without("file-resolver");
    let fixture = setup.start().await;
    fixture.dial.put("acme/note.txt", "hello", "text/plain");
    fixture
        .dial
        .inject_file_fault("acme/note.txt", InjectedFault::Silent);
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_killed_during_a_call_is_reported_and_its_successor_answers() {
    let shop = FakeEndpoint::start().await;
    let fixture = fixture_with_silent_dial(&shop).await;
    let process = start_resolver(&fixture).await;
    let kill = async {
        wait_until_dial_is_asked(&fixture).await;
        process.kill9();
    };
    let (answer, ()) = tokio::join!(fixture.chat("Order."), kill);
    assert!(
        fixture.result().contains("try again later"),
        "{}",
        fixture.result()
    );
    assert_eq!((shop.bodies(), answer.error()), (Vec::new(), Value::Null));

    fixture.dial.clear_file_fault("acme/note.txt");
    let _next = start_resolver(&fixture).await;
    fixture.chat("Order.").await;
    assert_eq!(
        shop.bodies(),
        [json!({"doc": "hello"})],
        "{}",
        last_model_messages(&fixture)
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_nats_in_a_turn_is_reported_and_the_next_turn_is_complete() {
    let shop = FakeEndpoint::start().await;
    let mut fixture = fixture_with_silent_dial(&shop).await;
    let _process = start_resolver(&fixture).await;
    let mut nats = fixture.nats.take().unwrap();
    let restart = async {
        wait_until_dial_is_asked(&fixture).await;
        fixture.dial.clear_file_fault("acme/note.txt");
        nats.restart();
    };
    let (answer, ()) = tokio::join!(fixture.chat("Order."), restart);
    assert_eq!(answer.error(), Value::Null);
    let bodies = shop.bodies();
    // The call either fails with advice or succeeds, depending on how far it came before the restart.
    if bodies.is_empty() {
        let result = fixture.result().to_lowercase();
        assert!(result.contains("try again"), "{result}");
    } else {
        assert_eq!(bodies, [json!({"doc": "hello"})]);
    }
    eventually("a whole turn", async || {
        let before = shop.bodies().len();
        fixture.chat("Order.").await;
        (shop.bodies().len() == before + 1).then_some(())
    })
    .await;
    assert_eq!(shop.bodies().pop(), Some(json!({"doc": "hello"})));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_sent_only_after_the_store_is_back() {
    let rules = calling_rules("send_file", json!({"paths": ["report.txt"]}));
    let fixture = AgentSetup::new(json!([]), rules)
        .distributed()
        .start()
        .await;
    std::fs::write(fixture.sandbox.join("report.txt"), "words").unwrap();
    let store = &fixture.store.as_ref().unwrap().0;
    store.add(FaultRule::all(S3Fault::Down));
    let answer = fixture.chat("Send it.").await;
    let result = fixture.result();
    assert!(result.contains("\"success\":false"), "{result}");
    for secret in ["127.0.0.1", "http", DIAL_KEY] {
        assert!(!result.contains(secret), "{result}");
    }
    assert_eq!(
        (answer.attachments(), answer.error()),
        (Vec::new(), Value::Null)
    );
    store.clear_faults();
    let sent = eventually("a file", async || {
        fixture.chat("Send it again.").await.attachments().pop()
    })
    .await;
    assert_eq!(fixture.fetch(sent["url"].as_str().unwrap()).await, b"words");
    fixture.stop().await;
}
