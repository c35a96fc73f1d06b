//! Deliveries as tasks, and the questions before them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_bus::Bus;
use dray_mcp::{KeyLocation, OfferedChat, ServerOptions};
use dray_proto::contract::call_subject;
use dray_proto::{Call, v1};
use dray_types::{Fault, FaultCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{RawResponse, call_with};
use crate::fixture::HttpFixture;
use crate::issuer::{JWKS_URL, seconds_from_now};

/// Longest wait for an event.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Default)]
struct DeliveryState {
    reports: BTreeMap<String, v1::DeliveryReport>,
    requests: Vec<v1::SendFileRequested>,
    chats: BTreeMap<String, v1::ChatTarget>,
}

/// A platform-delivery and the sessions of sandbox-transfer: it completes deliveries when a test requests it.
#[derive(Clone, Default)]
pub(crate) struct FakeDelivery {
    state: Arc<Mutex<DeliveryState>>,
}

impl FakeDelivery {
    async fn serve(bus: &Bus, tasks: &mut JoinSet<()>) -> Self {
        let fake = Self::default();
        let handle = fake.clone();
        answer(bus, tasks, move |id, request: v1::SendFileRequested| {
            handle.accept(id, request)
        })
        .await;
        let handle = fake.clone();
        answer(bus, tasks, move |_, ask: v1::DeliveryOutcomeRequest| {
            handle.report(&ask.delivery_id)
        })
        .await;
        let handle = fake.clone();
        answer(bus, tasks, move |_, ask: v1::CancelDeliveryRequest| {
            handle.end(&ask.delivery_id, |report| {
                assert_eq!(report.session, ask.session);
                report.cancelled = true;
            });
            handle.report(&ask.delivery_id)
        })
        .await;
        let handle = fake.clone();
        answer(bus, tasks, move |_, ask: v1::ListReceiptsRequest| {
            Ok(handle.list(&ask.session))
        })
        .await;
        let handle = fake.clone();
        answer(bus, tasks, move |_, ask: v1::ShowSessionRequest| {
            Ok(v1::Session {
                chat: handle
                    .state
                    .lock()
                    .unwrap()
                    .chats
                    .get(&ask.session)
                    .cloned(),
                session: ask.session,
                ..v1::Session::default()
            })
        })
        .await;
        let handle = fake.clone();
        answer(bus, tasks, move |_, bind: v1::BindSessionRequest| {
            let chat = bind.chat.unwrap();
            handle
                .state
                .lock()
                .unwrap()
                .chats
                .insert(bind.session, chat);
            Ok(v1::Session::default())
        })
        .await;
        fake
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is an answer")]
    fn accept(
        &self,
        id: String,
        request: v1::SendFileRequested,
    ) -> Result<v1::DeliveryAccepted, Fault> {
        let mut state = self.state.lock().unwrap();
        let duplicate = state.reports.contains_key(&id);
        if !duplicate {
            let report = v1::DeliveryReport {
                delivery_id: id.clone(),
                session: request.session.clone(),
                begun_at_ms: 1_795_132_800_000,
                files: vec![v1::DeliveredFile::default()],
                ..v1::DeliveryReport::default()
            };
            state.reports.insert(id.clone(), report);
            state.requests.push(request);
        }
        Ok(v1::DeliveryAccepted {
            delivery_id: id,
            duplicate,
        })
    }

    fn report(&self, id: &str) -> Result<v1::DeliveryReport, Fault> {
        let state = self.state.lock().unwrap();
        let found = state.reports.get(id).cloned();
        found.ok_or_else(|| Fault::new(FaultCode::NotFound, "The delivery does not exist."))
    }

    pub(crate) fn end(&self, id: &str, change: impl FnOnce(&mut v1::DeliveryReport)) {
        let mut state = self.state.lock().unwrap();
        let report = state.reports.get_mut(id).unwrap();
        report.finished = true;
        report.ended_at_ms = report.begun_at_ms + 1;
        change(report);
    }

    fn list(&self, session: &str) -> v1::ListReceiptsReply {
        let state = self.state.lock().unwrap();
        let reports = state.reports.values();
        let reports = reports.filter(|report| report.session == session);
        v1::ListReceiptsReply {
            reports: reports.cloned().collect(),
            ..v1::ListReceiptsReply::default()
        }
    }

    fn requests(&self) -> usize {
        self.state.lock().unwrap().requests.len()
    }
}

/// Handles one kind of call. The function gets the operation of the call.
pub(crate) async fn answer<C: Call>(
    bus: &Bus,
    tasks: &mut JoinSet<()>,
    respond: impl Fn(String, C) -> Result<C::Reply, Fault> + Send + 'static,
) {
    let mut service = bus.respond_to(&call_subject::<C>(), "fake").await.unwrap();
    tasks.spawn(async move {
        while let Some(request) = service.next().await {
            let operation = request.meta().unwrap().operation.to_string();
            let reply = respond(operation, request.decode().unwrap());
            request.answer(reply).await;
        }
    });
}

/// A server with a fake delivery service, and a token that may send.
pub(crate) struct SendingFixture {
    pub(crate) http: HttpFixture,
    pub(crate) delivery: FakeDelivery,
    pub(crate) token: String,
    pub(crate) _tasks: JoinSet<()>,
}

impl SendingFixture {
    pub(crate) async fn new(options: ServerOptions) -> Self {
        let http = HttpFixture::with(KeyLocation::Url(JWKS_URL.to_owned()), options).await;
        let mut tasks = JoinSet::new();
        let delivery = FakeDelivery::serve(&http.bus, &mut tasks).await;
        let token = http.issuer.token(&send_claims());
        Self {
            http,
            delivery,
            token,
            _tasks: tasks,
        }
    }

    async fn call(&self, method: &str, params: Value, capabilities: Value) -> RawResponse {
        call_with(
            self.http.address,
            Some(&self.token),
            method,
            params,
            capabilities,
        )
        .await
    }

    pub(crate) async fn send(&self, further: Value, capabilities: Value) -> Value {
        let mut params =
            json!({"name": "send_file", "arguments": {"files": ["a.txt"], "wait_seconds": 0}});
        for (name, value) in further.as_object().unwrap() {
            params[name] = value.clone();
        }
        self.call("tools/call", params, capabilities)
            .await
            .message()
    }

    async fn task(&self, method: &str, id: &str) -> Value {
        self.call(method, json!({"taskId": id}), task_capability())
            .await
            .message()
    }
}

pub(crate) fn send_claims() -> Value {
    json!({"scope": "read send", "tenant": "own", "session": "s7", "exp": seconds_from_now(7_200)})
}

fn task_capability() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn asking_capability() -> Value {
    json!({"elicitation": {"form": {}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_delivery_and_one_of_another_session_have_the_same_refusal() {
    let fixture = Box::pin(SendingFixture::new(ServerOptions::default())).await;
    let sent = fixture.send(json!({}), json!({})).await;
    let id = sent["result"]["structuredContent"]["delivery_id"].as_str();
    let mut claims = send_claims();
    claims["session"] = json!("s8");
    let stranger = fixture.http.issuer.token(&claims);
    let mut refusals = Vec::new();
    for id in [id.unwrap(), "unknown"] {
        let arguments = json!({"delivery_id": id});
        let response = fixture.http.tool(&stranger, "receipts", arguments).await;
        refusals.push(response.message()["result"].clone());
    }
    assert_eq!(refusals[0], refusals[1]);
    let text = refusals[1]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("`receipts` without `delivery_id` lists"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_the_session_complete_the_uri_of_a_receipt() {
    let fixture = Box::pin(SendingFixture::new(ServerOptions::default())).await;
    let sent = fixture.send(json!({}), json!({})).await;
    let id = sent["result"]["structuredContent"]["delivery_id"]
        .as_str()
        .unwrap();
    let complete = async |token: &str, typed: &str| {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": "dray://receipt/{id}"},
            "argument": {"name": "id", "value": typed},
        });
        let address = fixture.http.address;
        let completed = call_with(
            address,
            Some(token),
            "completion/complete",
            params,
            json!({}),
        )
        .await;
        completed.message()["result"]["completion"]["values"].take()
    };
    assert_eq!(complete(&fixture.token, &id[..4]).await, json!([id]));
    assert_eq!(complete(&fixture.token, "none").await, json!([]));
    let mut claims = send_claims();
    claims["session"] = json!("s8");
    let other_token = fixture.http.issuer.token(&claims);
    assert_eq!(complete(&other_token, "").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_takes_long_is_a_task_with_the_state_of_its_record() {
    let fixture = Box::pin(SendingFixture::new(ServerOptions::default())).await;
    let created = fixture.send(json!({}), task_capability()).await;
    let task = &created["result"];
    assert_eq!(task["resultType"], "task", "{created}");
    let id = task["taskId"].as_str().unwrap();
    assert!(
        fixture.delivery.report(id).is_ok(),
        "the id of the task is that of the delivery"
    );
    let working = fixture.task("tasks/get", id).await;
    assert_eq!(working["result"]["status"], "working", "{working}");
    fixture.delivery.end(id, |report| report.success = true);
    let completed = fixture.task("tasks/get", id).await;
    assert_eq!(completed["result"]["status"], "completed", "{completed}");
    assert_eq!(
        completed["result"]["result"]["structuredContent"]["success"], true,
        "{completed}"
    );
    // A client without the extension gets a result that names the next call.
    let plain = fixture.send(json!({}), json!({})).await;
    assert_eq!(
        plain["result"]["structuredContent"]["next"]["tool"], "receipts",
        "{plain}"
    );
    let refused = fixture
        .call("tasks/get", json!({"taskId": id}), json!({}))
        .await
        .message();
    assert_eq!(refused["error"]["code"], -32_021, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_ends_its_delivery_and_those_of_other_sessions_are_not_found() {
    let fixture = Box::pin(SendingFixture::new(ServerOptions::default())).await;
    let created = fixture.send(json!({}), task_capability()).await;
    let id = created["result"]["taskId"].as_str().unwrap().to_owned();
    let mut claims = send_claims();
    claims["session"] = json!("s8");
    let other_token = fixture.http.issuer.token(&claims);
    for method in ["tasks/get", "tasks/update"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let address = fixture.http.address;
        let refused = call_with(
            address,
            Some(&other_token),
            method,
            params,
            task_capability(),
        )
        .await;
        assert_eq!(
            refused.message()["error"]["code"],
            -32_602,
            "{method}: {refused:?}"
        );
    }
    let missing = fixture.task("tasks/get", "none").await;
    assert_eq!(missing["error"]["code"], -32_602, "{missing}");
    let acknowledged = fixture.task("tasks/cancel", &id).await;
    assert_eq!(
        acknowledged["result"]["resultType"], "complete",
        "{acknowledged}"
    );
    assert!(fixture.delivery.report(&id).unwrap().cancelled);
    let state = fixture.task("tasks/get", &id).await;
    assert_eq!(state["result"]["status"], "cancelled", "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_before_a_person_confirmed_exactly_this_call() {
    let options = ServerOptions {
        confirm_send: true,
        ..ServerOptions::default()
    };
    let fixture = Box::pin(SendingFixture::new(options)).await;
    let cannot_ask = fixture.send(json!({}), json!({})).await;
    assert_eq!(cannot_ask["error"]["code"], -32_021, "{cannot_ask}");
    let prompt = fixture.send(json!({}), asking_capability()).await;
    assert_eq!(prompt["result"]["resultType"], "input_required", "{prompt}");
    let question = &prompt["result"]["inputRequests"]["confirm"]["params"];
    assert!(
        question["message"].as_str().unwrap().contains("a.txt"),
        "{question}"
    );
    let state = prompt["result"]["requestState"].clone();
    let answer =
        |confirm: bool| json!({"confirm": {"action": "accept", "content": {"confirm": confirm}}});
    // An answer without a question, one for other arguments, a modified one, and a refusal.
    let other_arguments = json!({"files": ["a.txt", "a.txt"], "wait_seconds": 0});
    let changed = format!("{}x", state.as_str().unwrap());
    for (further, refusal) in [
        (json!({"inputResponses": answer(true)}), "input_required"),
        (
            json!({"inputResponses": answer(true), "requestState": state, "arguments": other_arguments}),
            "-32602",
        ),
        (
            json!({"inputResponses": answer(true), "requestState": changed}),
            "-32602",
        ),
        (
            json!({"inputResponses": answer(false), "requestState": state}),
            "declined",
        ),
        (
            json!({"inputResponses": {"confirm": {"action": "cancel"}}, "requestState": state}),
            "declined",
        ),
    ] {
        let refused = fixture.send(further.clone(), asking_capability()).await;
        assert!(
            refused.to_string().contains(refusal),
            "{further}: {refused}"
        );
    }
    assert_eq!(fixture.delivery.requests(), 0);
    let confirmed = json!({"inputResponses": answer(true), "requestState": state});
    let sent = fixture.send(confirmed.clone(), asking_capability()).await;
    assert_eq!(sent["result"]["isError"], false, "{sent}");
    // The same answer is the same delivery.
    let repeated = fixture.send(confirmed, asking_capability()).await;
    let id = |message: &Value| message["result"]["structuredContent"]["delivery_id"].clone();
    assert_eq!(id(&sent), id(&repeated));
    assert_eq!(fixture.delivery.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_chooses_among_the_offered_chats_and_no_others() {
    let chat = |chat: &str| OfferedChat {
        name: format!("telegram:{chat}"),
        target: v1::ChatTarget {
            platform: "telegram".to_owned(),
            chat: chat.to_owned(),
            ..v1::ChatTarget::default()
        },
    };
    let options = ServerOptions {
        offered_chats: vec![chat("1"), chat("2")],
        ..ServerOptions::default()
    };
    let fixture = Box::pin(SendingFixture::new(options)).await;
    let prompt = fixture.send(json!({}), asking_capability()).await;
    let form = &prompt["result"]["inputRequests"]["chat"]["params"]["requestedSchema"];
    assert_eq!(
        form["properties"]["chat"]["enum"],
        json!(["telegram:1", "telegram:2"]),
        "{prompt}"
    );
    let state = &prompt["result"]["requestState"];
    let answer = |chat: &str| {
        json!({"inputResponses": {"chat": {"action": "accept", "content": {"chat": chat}}},
               "requestState": state})
    };
    let refused = fixture
        .send(answer("telegram:3"), asking_capability())
        .await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert_eq!(fixture.delivery.requests(), 0);
    let sent = fixture
        .send(answer("telegram:2"), asking_capability())
        .await;
    assert_eq!(sent["result"]["isError"], false, "{sent}");
    let bound = fixture
        .delivery
        .state
        .lock()
        .unwrap()
        .chats
        .get("s7")
        .cloned();
    assert_eq!(bound.unwrap().chat, "2");
    // The session is bound now, so no question is asked.
    let next = fixture.send(json!({}), json!({})).await;
    assert_eq!(next["result"]["isError"], false, "{next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn skills_are_listed_and_read_with_their_digests() {
    let fixture = Box::pin(SendingFixture::new(ServerOptions::default())).await;
    let listed = fixture
        .call("skills/list", json!({}), json!({}))
        .await
        .message();
    let skills = listed["result"]["skills"].as_array().unwrap();
    assert_eq!(skills.len(), 4, "{listed}");
    for skill in skills {
        let uri = skill["uri"].as_str().unwrap();
        let read = fixture
            .call("resources/read", json!({"uri": uri}), json!({}))
            .await
            .message();
        let text = read["result"]["contents"][0]["text"].as_str().unwrap();
        let digest = dray_types::Sha256Digest::of(text.as_bytes());
        assert_eq!(
            skill["resources"][0]["digest"],
            format!("sha256:{digest}"),
            "{uri}"
        );
        let skill_reply = fixture
            .call("skills/get", json!({"uri": uri}), json!({}))
            .await
            .message();
        assert_eq!(skill_reply["result"]["skill"]["uri"], *uri, "{skill_reply}");
    }
}
