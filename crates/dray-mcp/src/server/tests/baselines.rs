//! Subscriptions of a client of 2026-07-28 on the standard streams.

use std::sync::atomic::AtomicUsize;

use rmcp::model::{ProtocolVersion, ServerNotification, SubscriptionFilter};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;
use crate::baselines::StdioServer;
use crate::checked_lines::CheckedTransport;

/// Handles requests for the state of a delivery, which ends with the first request. Counts the requests.
async fn serve_ending_outcome(bus: &Bus, looks: Arc<AtomicUsize>) -> JoinSet<()> {
    let subject = call_subject::<v1::DeliveryOutcomeRequest>();
    let mut service = bus.respond_to(&subject, "platform-delivery").await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(request) = service.next().await {
            let ask: v1::DeliveryOutcomeRequest = request.decode().unwrap();
            let report = v1::DeliveryReport {
                delivery_id: ask.delivery_id,
                session: "s1".to_owned(),
                finished: looks.fetch_add(1, Ordering::SeqCst) > 0,
                ..v1::DeliveryReport::default()
            };
            request.answer(Ok(report)).await;
        }
    });
    tasks
}

#[tokio::test]
async fn a_subscription_over_stdio_is_acknowledged_after_the_first_read_and_reports_the_change() {
    let directory = tempfile::tempdir().unwrap();
    let (services, _s3) = services_without_peers(&directory.path().join("s3")).await;
    let looks = Arc::new(AtomicUsize::new(0));
    let mut tasks = serve_ending_outcome(&services.bus, looks.clone()).await;
    let server = StdioServer(McpServer::new(services, None, ServerOptions::default()));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let discover = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::LATEST],
    };
    // With this version, `serve` returns only after the first request, so the test does not wait for it here.
    tasks.spawn(async move {
        let serving = server.serve(near).await.unwrap();
        let _ = serving.waiting().await;
    });
    let client = ().serve_with_lifecycle(far, discover).await.unwrap();
    // Other requests pass through the wrapper.
    assert!(!client.list_tools(None).await.unwrap().tools.is_empty());
    let filter = SubscriptionFilter::builder()
        .resource_subscription("dray://receipt/d1")
        .build();
    let mut changes = client.listen(filter).await.unwrap();
    assert_eq!(
        looks.load(Ordering::SeqCst),
        1,
        "before the acknowledgement"
    );
    let change = tokio::time::timeout(TEST_TIMEOUT, changes.next()).await;
    let Some(ServerNotification::ResourceUpdatedNotification(updated)) = change.unwrap().unwrap()
    else {
        panic!("the subscription ended without a change");
    };
    assert_eq!(updated.params.uri, "dray://receipt/d1");
}

#[tokio::test]
async fn a_method_that_the_version_does_not_have_is_named_in_a_sentence_over_stdio() {
    let directory = tempfile::tempdir().unwrap();
    let (services, _s3) = services_without_peers(&directory.path().join("s3")).await;
    let server = StdioServer(McpServer::new(services, None, ServerOptions::default()));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(near);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let transport = CheckedTransport::new(reader, writer);
        let serving = server.serve(transport).await.unwrap();
        let _ = serving.waiting().await;
    });
    let (reader, mut writer) = tokio::io::split(far);
    let mut lines = BufReader::new(reader).lines();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for (method, params) in [
        ("resources/subscribe", json!({"uri": "dray://receipt/d1"})),
        ("resources/unsubscribe", json!({"uri": "dray://receipt/d1"})),
        // The library answers a `ping` that comes before any other request.
        ("ping", json!({})),
    ] {
        let mut params = params;
        params["_meta"] = meta.clone();
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let line = format!("{message}\n");
        writer.write_all(line.as_bytes()).await.unwrap();
        let response = lines.next_line().await.unwrap().unwrap();
        let response: Value = serde_json::from_str(&response).unwrap();
        assert_eq!(response["error"]["code"], -32601, "{response}");
        let words = format!("The method `{method}` is not offered here.");
        assert_eq!(response["error"]["message"], words, "{response}");
    }
}
