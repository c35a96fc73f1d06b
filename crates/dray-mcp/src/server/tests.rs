//! The server over an in-process bus without services, with a client of the same library.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_bus::{Bus, test_bus};
use dray_proto::contract::call_subject;
use dray_proto::v1;
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_types::{Clock, SessionId, TenantId};
use rmcp::model::{CallToolRequest, CallToolResult, ClientRequest, JsonObject};
use rmcp::service::{NotificationContext, PeerRequestOptions, RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::local::LocalRoot;
use crate::options::{ServerOptions, ToolName};
use crate::subscriptions::MAX_RESOURCES;
use crate::{Permissions, ServiceClient};

mod baselines;
mod host_questions;
mod listings;
mod questions;
mod transfer;

/// Longest wait in these tests.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A server over a bus without services, and a client of it.
struct ServerFixture<C: ClientHandler = ()> {
    bus: Bus,
    client: RunningService<RoleClient, C>,
    _serving: RunningService<RoleServer, McpServer>,
    directory: tempfile::TempDir,
    _s3: EmbeddedS3,
}

/// A client that passes on which resources changed.
#[derive(Debug)]
struct ResourceListener {
    updates: mpsc::UnboundedSender<String>,
}

impl ClientHandler for ResourceListener {
    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let _ = self.updates.send(params.uri);
    }
}

impl ServerFixture {
    async fn new(options: ServerOptions) -> Self {
        Box::pin(Self::with_client(options, ())).await
    }
}

impl<C: ClientHandler> ServerFixture<C> {
    async fn with_client(options: ServerOptions, handler: C) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (services, s3) = services_without_peers(&directory.path().join("s3")).await;
        let bus = services.bus.clone();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let root = LocalRoot::open(&directory.path().join("data")).unwrap();
        let server = McpServer::new(services, Some(root), options);
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (serving, client) = tokio::join!(server.serve(near), handler.serve(far));
        Self {
            bus,
            client: client.unwrap(),
            _serving: serving.unwrap(),
            directory,
            _s3: s3,
        }
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> CallToolResult {
        let params = CallToolRequestParams::new(tool).with_arguments(object(&arguments));
        tokio::time::timeout(TEST_TIMEOUT, self.client.call_tool(params))
            .await
            .unwrap()
            .unwrap()
    }
}

/// A bus to which no service listens, and a store in this directory.
async fn services_without_peers(directory: &std::path::Path) -> (ServiceClient, EmbeddedS3) {
    let clock = Clock::system();
    let (s3, store_options) = EmbeddedS3::start(directory).await.unwrap();
    let services = ServiceClient {
        bus: test_bus::without_streams(&clock),
        store: Store::open(&store_options, clock.clone()).await.unwrap(),
        clock,
        tenant: TenantId::default(),
        session: SessionId::new("s1").unwrap(),
    };
    (services, s3)
}

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}

fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|text| text.text.as_str()).collect()
}

#[tokio::test]
async fn a_server_lists_its_tools_before_its_services_are_reached_and_calls_wait_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let root = LocalRoot::open(directory.path()).unwrap();
    std::fs::write(directory.path().join("a.txt"), "x").unwrap();
    let (server, starter) = McpServer::starting(Some(root), ServerOptions::default());
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (serving, client) = tokio::join!(server.serve(near), ().serve(far));
    let (_serving, client) = (serving.unwrap(), client.unwrap());
    let listed = tokio::time::timeout(TEST_TIMEOUT, client.list_all_tools()).await;
    assert!(!listed.unwrap().unwrap().is_empty());
    let params = CallToolRequestParams::new("list").with_arguments(object(&json!({})));
    let mut call = Box::pin(client.call_tool(params));
    // Requests on one connection are handled in order, so the call was handled when this response arrives.
    tokio::select! {
        biased;
        ended = &mut call => panic!("{ended:?} before the services are reached"),
        listed = client.list_all_tools() => assert!(!listed.unwrap().is_empty()),
    }
    let (services, _s3) = services_without_peers(&directory.path().join("s3")).await;
    starter.ready(services, crate::FileLimits::default());
    let result = tokio::time::timeout(TEST_TIMEOUT, call).await;
    let result = result.unwrap().unwrap();
    assert!(text(&result).contains("a.txt"), "{result:?}");
}

#[tokio::test]
async fn a_cancelled_call_stops_the_service_that_works_on_it() {
    let fixture = Box::pin(ServerFixture::new(ServerOptions::default())).await;
    let mut service = fixture
        .bus
        .respond_to("dray.egress.v1.fetch", "egress-fetcher")
        .await
        .unwrap();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let request = service.next().await.unwrap();
        begun.send(()).unwrap();
        // The call is polled, because the responder reads cancellations while it waits for the next request.
        tokio::select! {
            () = request.cancelled().cancelled_owned() => {}
            _ = service.next() => panic!("no second request must arrive"),
        }
        request.abandon();
    });
    let params = CallToolRequestParams::new("fetch")
        .with_arguments(object(&json!({"url": "https://a.example/"})));
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let options = PeerRequestOptions::no_options();
    let call = fixture.client.send_cancellable_request(request, options);
    let call = call.await.unwrap();
    tokio::time::timeout(TEST_TIMEOUT, begins)
        .await
        .unwrap()
        .unwrap();
    call.cancel(None).await.unwrap();
    tokio::time::timeout(TEST_TIMEOUT, tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_tool_that_is_off_is_neither_listed_nor_called() {
    let fixture = Box::pin(ServerFixture::new(ServerOptions::default())).await;
    let tools = fixture.client.list_all_tools().await.unwrap();
    assert!(
        tools
            .iter()
            .all(|tool| tool.name != "put" && tool.name != "send_file")
    );
    let params = CallToolRequestParams::new("put").with_arguments(object(&json!({"from": "a"})));
    let refused = fixture.client.call_tool(params).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("The tool `put` does not exist here."),
        "{refused}"
    );
}

#[tokio::test]
async fn a_failure_names_no_path_of_the_machine() {
    let permissions = Permissions {
        write: true,
        send: true,
    };
    let options = ServerOptions {
        permissions,
        ..ServerOptions::default()
    };
    let fixture = Box::pin(ServerFixture::new(options)).await;
    std::fs::write(fixture.directory.path().join("secret.txt"), "secret").unwrap();
    for (tool, arguments) in [
        ("read", json!({"path": "../secret.txt"})),
        ("read", json!({"path": "missing.txt"})),
        ("list", json!({"path": ".."})),
        ("get", json!({"from": "../secret.txt", "to": "copy.txt"})),
        ("put", json!({"from": "../secret.txt"})),
        ("send_file", json!({"files": ["../secret.txt"]})),
    ] {
        let result = fixture.call(tool, arguments).await;
        let result_text = serde_json::to_string(&result).unwrap();
        assert_eq!(result.is_error, Some(true), "{tool}: {result_text}");
        let host_path = fixture.directory.path().to_str().unwrap();
        assert!(!result_text.contains(host_path), "{tool}: {result_text}");
        assert!(!result_text.contains("secret\""), "{tool}: {result_text}");
    }
}

#[tokio::test]
async fn a_stored_file_is_copied_by_its_handle() {
    let permissions = Permissions {
        write: true,
        send: false,
    };
    let options = ServerOptions {
        permissions,
        ..ServerOptions::default()
    };
    let fixture = Box::pin(ServerFixture::new(options)).await;
    let data = fixture.directory.path().join("data");
    std::fs::write(data.join("a.txt"), "hello").unwrap();
    let stored = fixture.call("get", json!({"from": "a.txt"})).await;
    let value = stored.structured_content.unwrap();
    assert_eq!(
        (&value["size"], &value["name"]),
        (&json!(5), &json!("a.txt"))
    );
    let saved = fixture
        .call("get", json!({"from": value["handle"], "to": "b.txt"}))
        .await;
    assert_eq!(saved.is_error, Some(false), "{}", text(&saved));
    assert_eq!(std::fs::read(data.join("b.txt")).unwrap(), b"hello");
}

#[tokio::test]
async fn a_local_file_above_the_limit_is_refused_before_it_is_stored() {
    let fixture = Box::pin(ServerFixture::new(ServerOptions::default())).await;
    let before = stored_bytes(fixture.directory.path());
    let large = std::fs::File::create(fixture.directory.path().join("data/large.txt")).unwrap();
    // Sparse: it takes no space until it is copied.
    large.set_len((25 << 20) + 1).unwrap();
    let refused = fixture.call("read", json!({"path": "large.txt"})).await;
    assert_eq!(
        stored_bytes(fixture.directory.path()),
        before,
        "it was stored"
    );
    assert_eq!(refused.is_error, Some(true));
    let meta = serde_json::to_value(&refused.meta).unwrap();
    assert_eq!(meta["drayage/fault"]["code"], "too_large", "{meta}");
    assert!(text(&refused).contains("25MiB"), "{}", text(&refused));
}

/// Handles requests for the state of a delivery, which runs until `ended` is true.
async fn serve_outcomes(bus: &Bus, ended: Arc<AtomicBool>) -> JoinSet<()> {
    let subject = call_subject::<v1::DeliveryOutcomeRequest>();
    let mut service = bus.respond_to(&subject, "platform-delivery").await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(request) = service.next().await {
            let ask: v1::DeliveryOutcomeRequest = request.decode().unwrap();
            let report = v1::DeliveryReport {
                delivery_id: ask.delivery_id,
                session: "s1".to_owned(),
                finished: ended.load(Ordering::SeqCst),
                ..v1::DeliveryReport::default()
            };
            request.answer(Ok(report)).await;
        }
    });
    tasks
}

#[tokio::test]
#[expect(
    deprecated,
    reason = "clients of 2025-11-25 subscribe to resources in this way"
)]
async fn a_session_subscribes_to_a_bounded_number_of_resources_and_is_notified_of_changes() {
    let (updates, mut updated) = mpsc::unbounded_channel();
    let listener = ResourceListener { updates };
    let fixture = Box::pin(ServerFixture::with_client(
        ServerOptions::default(),
        listener,
    ))
    .await;
    let ended = Arc::new(AtomicBool::new(false));
    let _outcomes = serve_outcomes(&fixture.bus, ended.clone()).await;
    let uri = |id: usize| format!("dray://receipt/d{id}");
    for id in 0..MAX_RESOURCES {
        let params = SubscribeRequestParams::new(uri(id));
        fixture.client.subscribe(params).await.unwrap();
    }
    let beyond = SubscribeRequestParams::new(uri(MAX_RESOURCES));
    let refused = fixture.client.subscribe(beyond.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("too many"), "{refused}");
    let fixed = SubscribeRequestParams::new(format!("dray://artifact/{}", "0".repeat(64)));
    assert!(fixture.client.subscribe(fixed).await.is_err());
    for id in 1..MAX_RESOURCES {
        let params = UnsubscribeRequestParams::new(uri(id));
        fixture.client.unsubscribe(params).await.unwrap();
    }
    fixture.client.subscribe(beyond).await.unwrap();
    ended.store(true, Ordering::SeqCst);
    let mut changed = Vec::new();
    while changed.len() < 2 {
        let next = tokio::time::timeout(TEST_TIMEOUT, updated.recv()).await;
        changed.push(next.unwrap().unwrap());
    }
    changed.sort();
    assert_eq!(changed, [uri(0), uri(MAX_RESOURCES)]);
}

/// Bytes in all files of the embedded store.
fn stored_bytes(directory: &std::path::Path) -> u64 {
    let mut open = vec![directory.join("s3")];
    let mut sum = 0;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                sum += entry.metadata().unwrap().len();
            }
        }
    }
    sum
}

#[tokio::test]
async fn a_read_waits_while_the_service_is_busy() {
    let fixture = ServerFixture::new(ServerOptions::default()).await;
    std::fs::write(fixture.directory.path().join("data/a.txt"), "x").unwrap();
    let subject = call_subject::<v1::ReadAttachmentRequest>();
    let mut reads = fixture
        .bus
        .respond_to(&subject, "file-resolver")
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let busy = dray_types::Fault::new(dray_types::FaultCode::RateLimited, "Busy.");
        let first = reads.next().await.unwrap();
        let refused = first.answer::<v1::ReadAttachmentReply>(Err(busy.detail("overloaded")));
        refused.await;
        let second = reads.next().await.unwrap();
        let reply = v1::ReadAttachmentReply {
            outcome: "inline".to_owned(),
            output: Some(dray_proto::convert::ContentSource::Inline("framed text".into()).into()),
            ..v1::ReadAttachmentReply::default()
        };
        second.answer(Ok(reply)).await;
    });
    let result = fixture.call("read", json!({"path": "a.txt"})).await;
    assert_eq!(result.is_error, Some(false), "{result:?}");
    assert!(text(&result).contains("framed text"), "{result:?}");
}

#[tokio::test]
async fn a_read_is_not_repeated_before_the_time_that_a_busy_service_names() {
    let fixture = ServerFixture::new(ServerOptions::default()).await;
    let subject = call_subject::<v1::ReadAttachmentRequest>();
    let mut reads = fixture
        .bus
        .respond_to(&subject, "file-resolver")
        .await
        .unwrap();
    let repeated = async {
        let busy = dray_types::Fault::new(dray_types::FaultCode::RateLimited, "Busy.");
        let busy = busy
            .detail("overloaded")
            .retry_after(Duration::from_hours(1));
        let request = reads.next().await.unwrap();
        request.answer::<v1::ReadAttachmentReply>(Err(busy)).await;
        reads.next().await.is_some()
    };
    let call = fixture.call("read", json!({"path": "a.txt"}));
    let result = tokio::select! {
        result = call => result,
        is_repeated = repeated => panic!("a second request: {is_repeated}"),
    };
    assert_eq!(result.is_error, Some(true), "{result:?}");
}

#[tokio::test]
async fn a_listing_of_long_names_stays_within_the_limit_and_names_the_next_part() {
    let fixture = ServerFixture::new(ServerOptions::default()).await;
    let names: Vec<String> = (0..300)
        .map(|number| format!("{number:03}{}", "n".repeat(240)))
        .collect();
    for name in &names {
        std::fs::write(fixture.directory.path().join("data").join(name), "").unwrap();
    }
    let mut listed = Vec::new();
    let mut arguments = json!({"limit": 300});
    loop {
        let result = fixture.call("list", arguments).await;
        let tokens = serde_json::to_string(&result).unwrap().len() / 3;
        assert!(tokens <= 20_000, "{tokens}");
        let value = result.structured_content.unwrap();
        let entries = value["entries"].as_array().unwrap();
        listed.extend(
            entries
                .iter()
                .map(|entry| entry["name"].as_str().unwrap().to_owned()),
        );
        match value.get("next") {
            Some(next) => arguments = next["arguments"].clone(),
            None => break,
        }
    }
    assert_eq!(listed, names);
}
