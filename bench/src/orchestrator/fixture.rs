//! An orchestrator that listens, a scripted model, a tool, and a client of all three.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use dray_bus::{Bus, NatsOptions, Topology};
use dray_http::fake_server::{self, ConnectionClosed, FakeServer, ReceivedRequest, SharedState};
use dray_http::{HttpClient, HttpTimeouts};
use dray_orchestrator::{Config, Orchestrator};
use dray_service::{Service as _, ServiceContext};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::agent::{agent_manifest, write_manifests};
use dray_testkit::nats::NatsServer;
use dray_testkit::rehearsal::{RehearsalServer, Script};
use dray_types::Clock;
use futures_util::future::BoxFuture;
use opentelemetry::metrics::MeterProvider as _;
use serde_json::{Value, json};

use super::memory::CROWD_COUNT;

/// Name under which the model knows the tool: that of its set and its own.
const TOOL_NAME: &str = "shop_find";

/// Durations within one turn, from its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnTiming {
    /// Time until the first chunk of text.
    pub(super) first: Duration,
    /// Time until the last byte of the stream.
    pub(super) whole: Duration,
}

/// The orchestrator, the model and the tool, with the bus and the store.
pub(super) struct OrchestratorFixture {
    pub(super) model: RehearsalServer,
    pub(super) client: HttpClient,
    url: String,
    /// Counts the calls of the tool.
    tool: FakeServer<u64>,
    _orchestrator: Orchestrator,
    cx: ServiceContext,
    _s3: EmbeddedS3,
    _directory: tempfile::TempDir,
}

impl OrchestratorFixture {
    /// Starts all parts, with the bus on the server `nats`, or inside this process without one.
    pub(super) async fn start(nats: Option<&NatsServer>) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let tool = FakeServer::start(0, tool_response).await?;
        let manifest = agent_manifest(&find_tool_sets(&tool.shared().url()));
        let manifests = write_manifests(directory.path(), &[("agent", &manifest)])?;
        let model = RehearsalServer::start(model_script(0)?).await?;
        let mut config = Config {
            listen: "127.0.0.1:0".parse()?,
            model_url: Some(format!("{}/v1", model.url())),
            manifests: Some(manifests),
            // All chats of the largest crowd run, and none waits for another.
            max_chats: CROWD_COUNT,
            ..Config::default()
        };
        // No service for sessions runs here.
        config.files.sessions = false;
        let clock = Clock::system();
        let meter = opentelemetry::metrics::noop::NoopMeterProvider::new().meter("bench");
        let (s3, options) = EmbeddedS3::start(directory.path()).await?;
        let store = Store::open_in_process(&s3, &options, clock.clone()).await?;
        let bus = match nats {
            Some(nats) => Bus::connect(&NatsOptions::at(nats.url()), clock.clone(), &meter).await?,
            None => Bus::in_process(clock.clone(), &meter),
        };
        bus.apply_topology(&Topology::new(1, 64 << 20)).await?;
        let cx = ServiceContext::new(bus, store, clock);
        let orchestrator = Orchestrator::start(config, &cx)
            .await
            .context("the orchestrator did not start")?;
        let limits = HttpTimeouts {
            idle: Duration::from_mins(1),
            ..HttpTimeouts::default()
        };
        Ok(Self {
            model,
            client: HttpClient::new(limits, None)?,
            url: format!("http://{}", orchestrator.address()),
            tool,
            _orchestrator: orchestrator,
            cx,
            _s3: s3,
            _directory: directory,
        })
    }

    pub(super) fn stop(self) {
        self.cx.stop.cancel();
    }

    /// URL of the orchestrator's chat completions.
    pub(super) fn ours(&self) -> String {
        format!("{}/v1/chat/completions", self.url)
    }

    /// URL of the model's chat completions.
    pub(super) fn direct(&self) -> String {
        format!("{}/v1/chat/completions", self.model.url())
    }

    /// Address of the orchestrator, for clients that use plain sockets.
    pub(super) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Runs one streamed turn to its last byte. An answer without text or without an end is a failure.
    pub(super) async fn run_turn(&self, url: &str, body: &Value) -> anyhow::Result<TurnTiming> {
        let start = Instant::now();
        let mut answer = self.client.post(url).json(body).send(&|_| ()).await?;
        anyhow::ensure!(answer.status() == 200, "status {}", answer.status());
        let (mut first, mut text) = (None, Vec::new());
        while let Some(chunk) = answer.chunk().await? {
            text.extend_from_slice(&chunk);
            // All bytes so far are searched, because a chunk may end in the middle of the pattern. The text begins with
            // "w".
            if first.is_none() && contains_bytes(&text, b"\"content\":\"w") {
                first = Some(start.elapsed());
            }
        }
        let whole = start.elapsed();
        anyhow::ensure!(contains_bytes(&text, b"[DONE]"), "the answer has no end");
        anyhow::ensure!(
            !contains_bytes(&text, b"\"error\":{"),
            "the answer contains an error"
        );
        // A call of a tool has no text; its end is the first event that a client can use.
        if contains_bytes(&text, b"tool_calls") && first.is_none() {
            first = Some(whole);
        }
        let first = first.context("the answer has no text")?;
        Ok(TurnTiming { first, whole })
    }

    /// Number of calls that the tool has received.
    pub(super) fn call_count(&self) -> u64 {
        *self.tool.shared().lock()
    }

    /// One call of the tool, without the orchestrator.
    pub(super) async fn call(&self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let url = format!("{}/find?q=x", self.tool.shared().url());
        let answer = self.client.get(&url).send(&|_| ()).await?;
        anyhow::ensure!(answer.status() == 200, "status {}", answer.status());
        answer.bytes(1 << 20).await?;
        Ok(start.elapsed())
    }
}

/// A question of one message.
pub(super) fn question_body(model: &str, text: &str) -> Value {
    json!({"model": model, "stream": true, "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": text},
    ]})
}

/// Answers in ten chunks, after a call of the tool where it is asked to find something.
pub(super) fn model_script(delay_ms: u64) -> anyhow::Result<Script> {
    let text = "words of ten.".repeat(10);
    let reply = json!({"say": text, "piece": 13, "delay_ms": delay_ms});
    let script = json!({"rules": [
        {"when": {"tool_result_of": TOOL_NAME}, "reply": reply},
        {"when": {"last_user_contains": "find"},
         "reply": {"call": [{"name": TOOL_NAME, "arguments": {"q": "x"}}]}},
        {"reply": reply},
    ]});
    Ok(Script::from_json(&script.to_string())?)
}

fn contains_bytes(text: &[u8], pattern: &[u8]) -> bool {
    text.windows(pattern.len()).any(|part| part == pattern)
}

fn tool_response(
    shared: Arc<SharedState<u64>>,
    _: ReceivedRequest,
) -> BoxFuture<'static, Result<fake_server::Reply, ConnectionClosed>> {
    let body = Bytes::from_static(b"{\"found\":true}");
    Box::pin(async move {
        *shared.lock() += 1;
        Ok(fake_server::bytes_reply(200, "application/json", body))
    })
}

fn find_tool_sets(tool: &str) -> Value {
    let find = json!({
        "type": "restapi-tool",
        "open_ai_tool": {"function": {"name": "find", "parameters": {"properties": {
            "q": {"type": "string", "parameter_info": {"type": "query", "key": "q"}},
        }}}},
        "rest_api_method_info": {"method_url": format!("{tool}/find"), "method_type": "get"},
    });
    json!([{"type": "rest-api", "name": "shop", "tools": [find]}])
}
