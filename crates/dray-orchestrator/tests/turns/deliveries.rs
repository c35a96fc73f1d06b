//! Tests of what is one delivery and what is another, over the rounds, agents and requests of a turn. Fakes answer for
//! the sandbox and the chat of the session.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use dray_bus::Bus;
use dray_orchestrator::Config;
use dray_proto::contract::call_subject;
use dray_proto::{Call, v1};
use dray_types::Sha256Digest;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client_tools::{kept, tool_result, user, weather};
use crate::fixture::{ChatResult, TurnFixture, manifest};

/// The operations of the requested deliveries, each with its first path.
type Requested = Arc<Mutex<Vec<(String, String)>>>;

/// A sandbox with every file, and a chat that confirms every delivery.
struct FakeSession {
    requested: Requested,
    tasks: JoinSet<()>,
}

impl FakeSession {
    async fn start(bus: &Bus) -> Self {
        let mut fake = Self {
            requested: Requested::default(),
            tasks: JoinSet::new(),
        };
        fake.serve(bus, |_, request: v1::ShowSessionRequest| v1::Session {
            session: request.session,
            sandbox: Some(v1::SandboxHandle::default()),
            chat: Some(v1::ChatTarget::default()),
            working_directory: b"/w".to_vec(),
            ..v1::Session::default()
        })
        .await;
        fake.serve(bus, |_, _: v1::SettleUploadsRequest| {
            v1::SettleUploadsReply::default()
        })
        .await;
        fake.serve(bus, |_, request: v1::StatSandboxRequest| v1::SandboxEntry {
            path: request.path.clone(),
            real_path: request.path,
            kind_code: v1::SandboxEntryKind::File.into(),
            size: 3,
            ..v1::SandboxEntry::default()
        })
        .await;
        let requested = Arc::clone(&fake.requested);
        fake.serve(bus, move |operation, request: v1::SendFileRequested| {
            let path = String::from_utf8(request.paths[0].clone()).unwrap();
            let mut requested = requested.lock().unwrap_or_else(PoisonError::into_inner);
            requested.push((operation.clone(), path));
            v1::DeliveryAccepted {
                delivery_id: operation,
                duplicate: false,
            }
        })
        .await;
        let requested = Arc::clone(&fake.requested);
        fake.serve(bus, move |_, request: v1::DeliveryOutcomeRequest| {
            let requested = requested.lock().unwrap_or_else(PoisonError::into_inner);
            let mut deliveries = requested.iter();
            // The first request with an id is the delivery.
            let delivery = deliveries.find(|(operation, _)| *operation == request.delivery_id);
            report(&request.delivery_id, &delivery.unwrap().1)
        })
        .await;
        fake
    }

    async fn serve<C: Call>(
        &mut self,
        bus: &Bus,
        mut answer: impl FnMut(String, C) -> C::Reply + Send + 'static,
    ) {
        let mut responder = bus.respond_to(&call_subject::<C>(), "test").await.unwrap();
        self.tasks.spawn(async move {
            while let Some(incoming) = responder.next().await {
                let operation = incoming.meta().unwrap().operation.to_string();
                let reply = answer(operation, incoming.decode().unwrap());
                incoming.answer(Ok(reply)).await;
            }
        });
    }

    fn requested(&self) -> Vec<(String, String)> {
        let requested = self.requested.lock();
        requested.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn paths(&self) -> Vec<String> {
        self.requested().into_iter().map(|(_, path)| path).collect()
    }
}

fn report(id: &str, path: &str) -> v1::DeliveryReport {
    v1::DeliveryReport {
        delivery_id: id.to_owned(),
        finished: true,
        success: true,
        result_json: json!({"success": true, "files": [{"path": path, "state": "delivered"}]})
            .to_string(),
        files: vec![v1::DeliveredFile {
            path: path.as_bytes().to_vec(),
            size: 3,
            sha256: Sha256Digest::of(b"abc").as_bytes().to_vec(),
            state_code: v1::FileState::Delivered.into(),
            ..v1::DeliveredFile::default()
        }],
        ..v1::DeliveryReport::default()
    }
}

fn send_file(path: &str) -> Value {
    json!({"call": [{"name": "send_file", "arguments": {"path": path}}]})
}

/// An agent, a second one with the model `second`, and a session in which files are sent.
async fn fixture(lead: &Value, rules: Value) -> (TurnFixture, FakeSession) {
    fixture_with(lead, rules, |_| {}).await
}

async fn fixture_with(
    lead: &Value,
    rules: Value,
    change: impl FnOnce(&mut Config),
) -> (TurnFixture, FakeSession) {
    let mut second = manifest(json!([]));
    second["orchestrator"]["deployment"]["deployment_id"] = json!("second");
    let script = json!({"rules": rules}).to_string();
    let fixture = TurnFixture::with(lead, &script, |config| {
        config.files.sessions = true;
        let directory = config.manifests.clone().unwrap();
        std::fs::write(directory.join("second.json"), second.to_string()).unwrap();
        change(config);
    })
    .await;
    let session = FakeSession::start(fixture.bus()).await;
    (fixture, session)
}

async fn ask(fixture: &TurnFixture, messages: Value) -> ChatResult {
    let body =
        json!({"model": "agent", "messages": messages, "tools": [weather()], "stream": true});
    let url = format!("{}/v1/chat/completions", fixture.url);
    let request = fixture.client.post(&url).header("x-dray-session", "crane");
    fixture.send(request.json(&body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_sent_before_a_handoff_is_not_sent_again_by_a_tag_after_it() {
    let mut lead = manifest(json!([]));
    lead["handoffs"] = json!([{"agent": "second"}]);
    let rules = json!([
        {"when": {"model": "second"}, "reply": {"say": "Here it is.\nMEDIA:/w/report.pdf\nMEDIA:/w/notes.txt"}},
        {"when": {"tool_result_of": "send_file"}, "reply": {
            "say": "MEDIA:/w/notes.txt", "call": [{"name": "transfer_to_second"}]}},
        {"reply": send_file("/w/report.pdf")},
    ]);
    let (fixture, session) = fixture(&lead, rules).await;
    let answer = ask(&fixture, json!([user("The report?")])).await;
    assert!(answer.text().contains("Here it is."), "{answer:?}");
    assert_eq!(session.paths(), ["/w/report.pdf", "/w/notes.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_sent_before_the_client_s_call_is_not_sent_again_by_a_tag_after_it() {
    let rules = json!([
        {"when": {"tool_result_of": "weather"}, "reply": {"say": "Here it is.\nMEDIA:/w/report.pdf"}},
        {"when": {"tool_result_of": "send_file"}, "reply": {"call": [{"name": "weather", "arguments": {}}]}},
        {"reply": send_file("/w/report.pdf")},
    ]);
    let (fixture, session) = fixture(&manifest(json!([])), rules).await;
    let first = ask(&fixture, json!([user("The report?")])).await;
    let result = tool_result(&first.calls()[0], "sunny");
    let second = ask(&fixture, json!([user("The report?"), kept(&first), result])).await;
    assert!(second.text().contains("Here it is."), "{second:?}");
    assert_eq!(session.paths(), ["/w/report.pdf"]);
}

/// An agent that calls the second one.
fn calling_agent() -> Value {
    let agents = json!({"type": "agents", "name": "team", "agents": [{"agent": "second"}]});
    manifest(json!([agents]))
}

fn call_of_second() -> Value {
    json!({"call": [{"name": "team_second", "arguments": {"request": "send it"}}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_of_two_calls_of_an_agent_are_two_deliveries() {
    let rules = json!([
        {"when": {"model": "second", "tool_result_of": "send_file"}, "reply": {"say": "Sent."}},
        {"when": {"model": "second"}, "reply": send_file("/w/report.pdf")},
        {"times": 2, "reply": call_of_second()},
        {"reply": {"say": "Done."}},
    ]);
    let (fixture, session) = fixture(&calling_agent(), rules).await;
    let answer = ask(&fixture, json!([user("Twice.")])).await;
    assert!(answer.text().ends_with("Done."), "{answer:?}");
    let requested = session.requested();
    let operations: BTreeSet<_> = requested.iter().map(|(operation, _)| operation).collect();
    assert_eq!((requested.len(), operations.len()), (2, 2), "{requested:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_called_agent_sent_is_not_sent_again_by_a_tag_of_its_caller() {
    let rules = json!([
        {"when": {"model": "second", "tool_result_of": "send_file"}, "reply": {"say": "Sent."}},
        {"when": {"model": "second"}, "reply": send_file("/w/report.pdf")},
        {"when": {"tool_result_of": "team_second"}, "reply": {
            "say": "Here it is.\nMEDIA:/w/report.pdf\nMEDIA:/w/notes.txt"}},
        {"reply": call_of_second()},
    ]);
    let (fixture, session) = fixture(&calling_agent(), rules).await;
    let answer = ask(&fixture, json!([user("The report?")])).await;
    assert!(answer.text().contains("Here it is."), "{answer:?}");
    assert_eq!(session.paths(), ["/w/report.pdf", "/w/notes.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_called_agent_has_the_session_of_its_conversation_and_does_not_bind_it_again() {
    let rules = json!([
        {"when": {"model": "second", "tool_result_of": "send_file"}, "reply": {"say": "Sent."}},
        {"when": {"model": "second"}, "reply": send_file("/w/report.pdf")},
        {"when": {"tool_result_of": "team_second"}, "reply": {"say": "Done."}},
        {"reply": call_of_second()},
    ]);
    let (fixture, mut session) = fixture_with(&calling_agent(), rules, |config| {
        config.sandbox = Some("docker:agent-{session}".to_owned());
    })
    .await;
    let bound = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&bound);
    session
        .serve(fixture.bus(), move |_, request: v1::BindSessionRequest| {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.push(request.session.clone());
            v1::Session {
                session: request.session,
                sandbox: Some(v1::SandboxHandle::default()),
                working_directory: b"/w".to_vec(),
                ..v1::Session::default()
            }
        })
        .await;
    // The client names no session, so this conversation has a new one.
    let answer = fixture.send_text("The report?").await;
    assert!(answer.text().ends_with("Done."), "{answer:?}");
    assert_eq!(session.paths(), ["/w/report.pdf"]);
    let bound = bound.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(bound.len(), 1, "{bound:?}");
}
