//! Calls that move a file as tasks: their records, what continues them, and what ends them.

use std::time::Duration;

use dray_bus::{Topology, test_bus};
use dray_mcp::{KeyLocation, ServerOptions};
use dray_proto::contract::call_subject;
use dray_proto::v1;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::call_with;
use crate::fixture::HttpFixture;
use crate::issuer::{JWKS_URL, seconds_from_now};

/// Longest wait for an event.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than the wait after which a call becomes a task.
const BEYOND_TASK: Duration = Duration::from_secs(3);
/// Bucket of the records.
const TASK_BUCKET: &str = "dray_tickets";

/// A step of a request to the fake sandbox.
#[derive(Debug, PartialEq, Eq)]
enum PutEvent {
    /// The request arrived, with this operation id.
    Begun(String),
    /// The caller asked to stop the transfer.
    Stopped,
}

/// A server, and a fake sandbox that accepts one file and never confirms it.
struct TransferFixture {
    http: HttpFixture,
    token: String,
    events: mpsc::UnboundedReceiver<PutEvent>,
    _tasks: JoinSet<()>,
}

impl TransferFixture {
    async fn new() -> Self {
        let keys = KeyLocation::Url(JWKS_URL.to_owned());
        let http = HttpFixture::with(keys, ServerOptions::default()).await;
        test_bus::provision(&http.bus, &Topology::default()).await;
        let subject = call_subject::<v1::PutSandboxFileRequest>();
        let mut service = http.bus.respond_to(&subject, "fake").await.unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Some(request) = service.next().await {
                let operation = request.meta().unwrap().operation.to_string();
                let _ = sender.send(PutEvent::Begun(operation));
                // The call is polled, because the responder reads cancellations while it waits for the next request.
                tokio::select! {
                    () = request.cancelled().cancelled_owned() => {}
                    _ = service.next() => panic!("no second request must arrive"),
                }
                request.abandon();
                let _ = sender.send(PutEvent::Stopped);
            }
        });
        let token = http.issuer.token(&claims("read put", "s7"));
        Self {
            http,
            token,
            events,
            _tasks: tasks,
        }
    }

    async fn request(&self, token: &str, method: &str, params: Value) -> Value {
        let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        let address = self.http.address;
        let response = call_with(address, Some(token), method, params, capabilities).await;
        response.message()
    }

    async fn task(&self, method: &str, id: &str) -> Value {
        self.request(&self.token, method, json!({"taskId": id}))
            .await
    }

    /// A `put` that became a task, and its id.
    async fn begin_put(&mut self) -> String {
        let params = json!({"name": "put", "arguments": {"from": "a.txt"}});
        let created = self.request(&self.token, "tools/call", params).await;
        assert_eq!(created["result"]["resultType"], "task", "{created}");
        let id = created["result"]["taskId"].as_str().unwrap().to_owned();
        assert_eq!(self.event().await, PutEvent::Begun(id.clone()));
        id
    }

    async fn event(&mut self) -> PutEvent {
        let event = tokio::time::timeout(TEST_TIMEOUT, self.events.recv()).await;
        event.unwrap().unwrap()
    }

    /// Records a transfer as a server that died leaves it.
    async fn abandon(&self, id: &str, servers: u32, arguments: Value) {
        let record = json!({
            "session": "s7", "tool": "get", "arguments": arguments, "begun_at_ms": 1, "changed_at_ms": 1,
            "lease_until_ms": 1, "servers": servers, "step": "", "end": null,
        });
        let keys = self.http.bus.key_value(TASK_BUCKET);
        let key = format!("task.own.{id}");
        keys.create(&key, record.to_string().into()).await.unwrap();
    }

    /// The state of a task at its end.
    async fn ended(&self, id: &str) -> Value {
        let look = async || {
            let state = self.task("tasks/get", id).await;
            (state["result"]["status"] != "working").then_some(state)
        };
        dray_testkit::eventually("the end of the task", look).await
    }
}

fn claims(scope: &str, session: &str) -> Value {
    json!({"scope": scope, "tenant": "own", "session": session, "exp": seconds_from_now(7_200)})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_takes_long_is_a_task_and_stops_when_it_is_cancelled() {
    let mut fixture = TransferFixture::new().await;
    let id = fixture.begin_put().await;
    let working = fixture.task("tasks/get", &id).await;
    assert_eq!(working["result"]["status"], "working", "{working}");
    assert_eq!(
        working["result"]["statusMessage"], "copying into the sandbox",
        "{working}"
    );
    // Another session does not find it, and a token that may not make the call cannot end it.
    let other_token = fixture.http.issuer.token(&claims("read put", "s8"));
    let reader = fixture.http.issuer.token(&claims("read", "s7"));
    for (token, method) in [
        (&other_token, "tasks/get"),
        (&other_token, "tasks/update"),
        (&other_token, "tasks/cancel"),
        (&reader, "tasks/cancel"),
    ] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let refused = fixture.request(token, method, params).await;
        assert!(refused.get("error").is_some(), "{method}: {refused}");
    }
    let acknowledged = fixture.task("tasks/cancel", &id).await;
    assert_eq!(
        acknowledged["result"]["resultType"], "complete",
        "{acknowledged}"
    );
    assert_eq!(fixture.event().await, PutEvent::Stopped);
    let state = fixture.task("tasks/get", &id).await;
    assert_eq!(state["result"]["status"], "cancelled", "{state}");
    // Arguments may have secrets in URLs, so they end with the transfer.
    let keys = fixture.http.bus.key_value(TASK_BUCKET);
    let (_, record) = keys.list("task.own", 10).await.unwrap().entries.remove(0);
    let record = String::from_utf8(record.value.to_vec()).unwrap();
    assert!(!record.contains("a.txt"), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_transfer_was_taken_over_stops_its_work() {
    let mut fixture = TransferFixture::new().await;
    let id = fixture.begin_put().await;
    let keys = fixture.http.bus.key_value(TASK_BUCKET);
    let key = format!("task.own.{id}");
    // Another server takes the entry over in this way when the lease has expired.
    let entry = keys.get(&key).await.unwrap().unwrap();
    keys.update(&key, entry.value, entry.revision)
        .await
        .unwrap();
    assert_eq!(fixture.event().await, PutEvent::Stopped);
    let state = fixture.task("tasks/get", &id).await;
    assert_eq!(state["result"]["status"], "working", "{state}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_of_a_dead_server_is_continued_by_the_one_that_is_asked() {
    let fixture = TransferFixture::new().await;
    let copy = |name: &str| json!({"from": "a.txt", "to": name});
    // The dead server had written the first file, and another program the second one.
    let data = fixture.http.directory.path().join("data");
    std::fs::write(data.join("written.txt"), "hello").unwrap();
    std::fs::write(data.join("taken.txt"), "other").unwrap();
    for (name, fails) in [
        ("new.txt", false),
        ("written.txt", false),
        ("taken.txt", true),
    ] {
        let id = format!("transfer-{}", name.replace('.', "-"));
        fixture.abandon(&id, 1, copy(name)).await;
        // A token that may not make the call sees the state and starts nothing.
        let reader = fixture.http.issuer.token(&claims("read", "s7"));
        let status = fixture.request(&reader, "tasks/get", json!({"taskId": id}));
        assert_eq!(status.await["result"]["status"], "working", "{name}");
        let ended = fixture.ended(&id).await;
        assert_eq!(ended["result"]["status"], "completed", "{name}: {ended}");
        let result = &ended["result"]["result"];
        assert_eq!(result["isError"], fails, "{name}: {ended}");
    }
    assert_eq!(std::fs::read(data.join("new.txt")).unwrap(), b"hello");
    assert_eq!(std::fs::read(data.join("taken.txt")).unwrap(), b"other");
    // A call that ended three servers is not given to a fourth one.
    fixture
        .abandon("transfer-deadly", 3, copy("deadly.txt"))
        .await;
    let ended = fixture.ended("transfer-deadly").await;
    let fault = &ended["result"]["result"]["_meta"]["drayage/fault"];
    assert_eq!(fault["detail"], "interrupted", "{ended}");
    assert!(!data.join("deadly.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_whose_task_cannot_be_recorded_stays_a_call() {
    let keys = KeyLocation::Url(JWKS_URL.to_owned());
    // A system without the bucket.
    let http = HttpFixture::with(keys, ServerOptions::default()).await;
    let subject = call_subject::<v1::PutSandboxFileRequest>();
    let mut service = http.bus.respond_to(&subject, "fake").await.unwrap();
    let token = http.issuer.token(&claims("read put", "s7"));
    let params = json!({"name": "put", "arguments": {"from": "a.txt"}});
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let call = call_with(
        http.address,
        Some(&token),
        "tools/call",
        params,
        capabilities,
    );
    tokio::pin!(call);
    let request = tokio::select! {
        request = service.next() => request.unwrap(),
        response = &mut call => panic!("{response:?}"),
    };
    let first_wait = tokio::time::timeout(BEYOND_TASK, &mut call).await;
    assert!(first_wait.is_err(), "{first_wait:?}");
    let placed = v1::PlacedFile {
        path: b"/work/a.txt".to_vec(),
        ..v1::PlacedFile::default()
    };
    request.answer(Ok(placed)).await;
    let message = call.await.message();
    assert_eq!(
        message["result"]["structuredContent"]["path"], "sandbox:/work/a.txt",
        "{message}"
    );
}
