//! Files beside the model: a ticket brings a workbook into the store, and an agent of another maker reads it over MCP
//! by its handle.

use std::path::Path;
use std::time::Duration;

use dray_http::{HttpClient, HttpResponse, HttpTimeouts};
use dray_mcp::{AuthOptions, HttpEndpoint, HttpOptions, McpServer, ServerOptions, ServiceClient};
use dray_ticket::{
    Principal, TicketEndpoint, TicketLimits, TicketRecords, TicketRequest, TicketService,
};
use dray_types::{Clock, Fault, SessionId, Sha256Digest};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::demo::StepReporter;
use crate::demo::reading::PRICES_XLSX;
use crate::demo::scenario::{check_claim, untrue_claim_failure};
use crate::demo::system::{DemoSystem, late_event_failure};
use crate::outcome::CommandFailure;

/// Longest duration of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of one response.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Version of the protocol that the demo's client speaks.
const MCP_VERSION: &str = "2026-07-28";

/// Runs both chapters, and ends the endpoints that they use.
pub(crate) async fn run_chapters(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    let records = tempfile::tempdir().map_err(CommandFailure::local("cannot make a directory"))?;
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let report = async {
        let handle = upload_once(system, reporter, records.path(), &stop, &mut tasks).await?;
        read_over_mcp(system, reporter, &handle, &stop, &mut tasks).await
    };
    let report = report.await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    report
}

/// Uploads a file through a single-use URL. Returns its handle.
async fn upload_once(
    system: &DemoSystem,
    reporter: &StepReporter,
    records: &Path,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Result<String, CommandFailure> {
    reporter.chapter(
        "16. A ticket is a single-use URL for one file. Its bytes go to the store, not through a model.",
    );
    let records = TicketRecords::directory(records)
        .map_err(CommandFailure::local("cannot keep records of tickets"))?;
    let store = system.store().clone();
    let tickets = TicketService::new(records, store, Clock::system(), TicketLimits::default());
    let tickets = tickets.with_bus(system.bus().clone());
    let endpoint = TicketEndpoint::bind(([127, 0, 0, 1], 0).into(), None);
    let endpoint = endpoint
        .await
        .map_err(|_| late_event_failure("The endpoint of tickets did not start."))?;
    let base = endpoint.base_url().to_owned();
    tasks.spawn(endpoint.serve(tickets.clone(), None, stop.clone()));
    let request = TicketRequest::upload(1 << 20).name("prices.xlsx");
    let ticket = tickets.issue(&Principal::default(), request).await;
    let ticket = ticket.map_err(Fault::from)?;
    let url = ticket.url(&base);
    reporter.line(
        "ticket",
        &format!("curl -fT prices.xlsx {base}/t/… (256 random bits, ends in an hour)"),
    );

    let client = http_client()?;
    let stored = put(&client, &url).await?;
    check_claim(stored.status() == 201, "the upload is stored")?;
    let stored = json_of(stored).await?;
    let digest = Sha256Digest::of(PRICES_XLSX).to_hex();
    check_claim(
        stored.get("sha256").and_then(Value::as_str) == Some(digest.as_str()),
        "the stored bytes have the digest of the file",
    )?;
    let handle = stored.get("artifact").and_then(Value::as_str);
    let handle = handle
        .ok_or_else(|| untrue_claim_failure("the result names a handle"))?
        .to_owned();
    reporter.line(
        "stored",
        &format!("{} bytes as {handle}", PRICES_XLSX.len()),
    );
    let repeated = put(&client, &url).await?;
    let status = repeated.status();
    let problem = json_of(repeated).await?;
    let detail = problem.get("detail").and_then(Value::as_str);
    let detail = detail.unwrap_or_default();
    check_claim(
        status == 410 && detail == "the ticket was used",
        "a ticket works once",
    )?;
    reporter.line("again", &format!("status {status}: {detail}"));
    reporter.fact(
        "ticket",
        &json!({"sha256": digest, "size": PRICES_XLSX.len(), "again": detail}),
    );
    Ok(handle)
}

/// An agent of another maker reads the file by its handle.
async fn read_over_mcp(
    system: &DemoSystem,
    reporter: &StepReporter,
    handle: &str,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "17. Any agent with MCP reads the file by its handle: dray mcp install claude-code",
    );
    let services = ServiceClient {
        bus: system.bus().clone(),
        store: system.store().clone(),
        clock: Clock::system(),
        tenant: system.tenant().clone(),
        session: SessionId::new("mcp").map_err(|_| Fault::internal())?,
    };
    let http = HttpOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        auth: AuthOptions::default(),
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
    };
    let endpoint = HttpEndpoint::bind(http).await;
    let endpoint = endpoint.map_err(|_| late_event_failure("The MCP server did not start."))?;
    let url = endpoint.url();
    let server = McpServer::new(services, None, ServerOptions::default());
    let stop = stop.clone();
    tasks.spawn(async move {
        endpoint.serve(server, stop).await;
    });
    let listed = ask_mcp(&url, "tools/list", None, json!({})).await?;
    let names: Vec<_> = listed
        .pointer("/tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|tool| tool.get("name")?.as_str())
        .collect();
    check_claim(
        names.contains(&"read") && !names.contains(&"send_file"),
        "tools that send are off until the user turns them on",
    )?;
    reporter.line("tools", &names.join(", "));
    let call = json!({"name": "read", "arguments": {"path": handle}});
    let result = ask_mcp(&url, "tools/call", Some("read"), call.clone()).await?;
    let text = result.pointer("/content/0/text").and_then(Value::as_str);
    let text = text.unwrap_or_default();
    check_claim(
        text.contains("| Crane 4 | 2026-02-14 | 20.0% | 980.5 |"),
        "the agent gets the workbook as a table",
    )?;
    reporter.line("call", &call.to_string());
    let row = text.lines().find(|line| line.contains("Crane 4"));
    reporter.line("result", row.unwrap_or_default());
    reporter.fact("mcp", &json!({"tools": names, "row": row}));
    Ok(())
}

/// One request of MCP without a session. Returns its result.
async fn ask_mcp(
    url: &str,
    method: &str,
    name: Option<&str>,
    mut params: Value,
) -> Result<Value, CommandFailure> {
    if let Some(params) = params.as_object_mut() {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MCP_VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "demo", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        params.insert("_meta".to_owned(), meta);
    }
    let request = http_client()?
        .post(url)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", MCP_VERSION)
        .header("mcp-method", method);
    let request = match name {
        Some(name) => request.header("mcp-name", name),
        None => request,
    };
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let sent = tokio::time::timeout(REQUEST_TIMEOUT, request.json(&body).send(&|_| ())).await;
    let failed = || late_event_failure("The MCP server did not respond.");
    let response = sent.map_err(|_| failed())?.map_err(|_| failed())?;
    let body = response
        .bytes(MAX_RESPONSE_BYTES)
        .await
        .map_err(|_| failed())?;
    let text = String::from_utf8_lossy(&body);
    // One document, or events whose last one has the result.
    let document = text.lines().rev().find_map(|line| {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        let document: Value = serde_json::from_str(line).ok()?;
        document.get("result").cloned()
    });
    let result = document;
    result.ok_or_else(|| untrue_claim_failure("the MCP server answers with a result"))
}

async fn put(client: &HttpClient, url: &str) -> Result<HttpResponse, CommandFailure> {
    let kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
    let request = client.put(url).bytes(kind, PRICES_XLSX.into());
    let sent = tokio::time::timeout(REQUEST_TIMEOUT, request.send(&|_| ())).await;
    let failed = || late_event_failure("The upload got no response.");
    sent.map_err(|_| failed())?.map_err(|_| failed())
}

fn http_client() -> Result<HttpClient, CommandFailure> {
    let client = HttpClient::new(HttpTimeouts::default(), None);
    client.map_err(|_| Fault::internal().into())
}

async fn json_of(response: HttpResponse) -> Result<Value, CommandFailure> {
    let value = response.json().await;
    value.map_err(|_| late_event_failure("The response could not be read."))
}
