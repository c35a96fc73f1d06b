//! A listening orchestrator, and the servers that it calls.

use std::path::Path;
use std::time::Duration;

use dray_bus::{Bus, test_bus};
use dray_http::{HttpClient, HttpTimeouts, RequestBuilder};
use dray_orchestrator::{Config, Orchestrator};
use dray_service::{Service as _, ServiceContext};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::agent::{agent_manifest, write_manifests};
use dray_testkit::rehearsal::{RehearsalServer, Script};
use dray_types::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The answer to a chat, as a client saw it.
#[derive(Debug)]
pub(crate) struct ChatResult {
    pub(crate) status: u16,
    /// All chunks, the error event among them; without `[DONE]`.
    pub(crate) chunks: Vec<Value>,
    /// Whether `[DONE]` came last.
    pub(crate) done: bool,
}

impl ChatResult {
    /// All text of the answer.
    pub(crate) fn text(&self) -> String {
        self.deltas("/content")
            .iter()
            .filter_map(Value::as_str)
            .collect()
    }

    /// The values at a JSON pointer in all deltas.
    pub(crate) fn deltas(&self, pointer: &str) -> Vec<Value> {
        let found = self
            .chunks
            .iter()
            .filter_map(|chunk| chunk.pointer("/choices/0/delta")?.pointer(pointer));
        found.filter(|value| !value.is_null()).cloned().collect()
    }

    /// The stages, merged: name, text, status.
    pub(crate) fn stages(&self) -> Vec<(String, String, String)> {
        let mut stages: Vec<(String, String, String)> = Vec::new();
        for parts in self.deltas("/custom_content/stages") {
            for part in parts.as_array().unwrap() {
                let index = usize::try_from(part["index"].as_u64().unwrap()).unwrap();
                if stages.len() <= index {
                    stages.resize(index + 1, <(String, String, String)>::default());
                }
                let stage = &mut stages[index];
                stage.0.push_str(part["name"].as_str().unwrap_or_default());
                stage
                    .1
                    .push_str(part["content"].as_str().unwrap_or_default());
                stage
                    .2
                    .push_str(part["status"].as_str().unwrap_or_default());
            }
        }
        stages
    }

    /// The state; there is exactly one.
    pub(crate) fn state(&self) -> Value {
        let mut states = self.deltas("/custom_content/state");
        assert_eq!(states.len(), 1, "one state: {:?}", self.chunks);
        states.remove(0)
    }

    /// Attachments of the choice.
    pub(crate) fn attachments(&self) -> Vec<Value> {
        let lists = self.deltas("/custom_content/attachments");
        lists
            .iter()
            .flat_map(|list| list.as_array().cloned().unwrap())
            .collect()
    }

    /// The error event.
    pub(crate) fn error(&self) -> Value {
        let found = self.chunks.iter().find_map(|chunk| chunk.get("error"));
        found.cloned().unwrap_or_default()
    }

    /// The calls that the client must make, merged from their chunks.
    pub(crate) fn calls(&self) -> Vec<Value> {
        let mut calls: Vec<Value> = Vec::new();
        for parts in self.deltas("/tool_calls") {
            for part in parts.as_array().unwrap() {
                assert_eq!(part["index"], calls.len(), "in order, each whole");
                let mut call = part.clone();
                call.as_object_mut().unwrap().remove("index");
                calls.push(call);
            }
        }
        calls
    }

    /// The reason in the end chunk.
    pub(crate) fn reason(&self) -> String {
        let found = self
            .chunks
            .iter()
            .find_map(|chunk| chunk.pointer("/choices/0/finish_reason")?.as_str());
        found.unwrap_or_default().to_owned()
    }

    /// The message that a client would keep for the next turn.
    pub(crate) fn message(&self) -> Value {
        json!({"role": "assistant", "content": self.text(), "custom_content": {"state": self.state()}})
    }
}

/// An orchestrator, its model, and everything else that a test of turns runs.
pub(crate) struct TurnFixture {
    pub(crate) model: RehearsalServer,
    pub(crate) url: String,
    pub(crate) client: HttpClient,
    orchestrator: Orchestrator,
    config: Config,
    cx: ServiceContext,
    s3: Option<EmbeddedS3>,
    directory: TempDir,
}

impl TurnFixture {
    /// Starts a fixture with the manifest `agent` and this script, without DIAL.
    pub(crate) async fn plain(manifest: &Value, script: &str) -> Self {
        Self::with(manifest, script, |_| {}).await
    }

    pub(crate) async fn with(
        manifest: &Value,
        script: &str,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let (directory, model, mut config) = prepare(manifest, script).await;
        change(&mut config);
        let bus = test_bus::in_process(&Clock::system()).await;
        Self::start(directory, model, config, bus).await
    }

    /// Starts the fixture on a bus without streams, which takes no events.
    pub(crate) async fn without_streams(manifest: &Value, script: &str) -> Self {
        let (directory, model, config) = prepare(manifest, script).await;
        let bus = test_bus::without_streams(&Clock::system());
        Self::start(directory, model, config, bus).await
    }

    async fn start(directory: TempDir, model: RehearsalServer, config: Config, bus: Bus) -> Self {
        let (cx, s3) = context(directory.path(), bus).await;
        let orchestrator = Orchestrator::start(config.clone(), &cx).await.unwrap();
        let limits = HttpTimeouts {
            idle: Duration::from_mins(1),
            ..HttpTimeouts::default()
        };
        Self {
            url: format!("http://{}", orchestrator.address()),
            client: HttpClient::new(limits, None).unwrap(),
            model,
            orchestrator,
            config,
            cx,
            s3: Some(s3),
            directory,
        }
    }

    /// The URL of a second orchestrator with the same configuration over the same bus and store.
    pub(crate) async fn start_replica(&self) -> String {
        self.start_replica_with(|_| ()).await
    }

    /// The URL of a further orchestrator with a changed configuration over the same bus and store.
    pub(crate) async fn start_replica_with(&self, change: impl FnOnce(&mut Config)) -> String {
        let mut config = self.config.clone();
        change(&mut config);
        let replica = Orchestrator::start(config, &self.cx);
        format!("http://{}", replica.await.unwrap().address())
    }

    /// Ends the service and everything that it holds in memory, and starts it again on the same files.
    pub(crate) async fn restart(&mut self) {
        self.cx.stop.cancel();
        self.stop_store().await;
        let bus = test_bus::in_process(&Clock::system()).await;
        let (cx, s3) = context(self.directory.path(), bus).await;
        self.orchestrator = Orchestrator::start(self.config.clone(), &cx).await.unwrap();
        self.url = format!("http://{}", self.orchestrator.address());
        (self.cx, self.s3) = (cx, Some(s3));
    }

    /// Ends the store: from here on everything that needs it fails.
    pub(crate) async fn stop_store(&mut self) {
        if let Some(s3) = self.s3.take() {
            s3.stop().await;
        }
    }

    /// The bus of the orchestrator.
    pub(crate) const fn bus(&self) -> &Bus {
        &self.cx.bus
    }

    /// A directory of the test.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Asks `agent` at the plain endpoint, with a stream.
    pub(crate) async fn ask(&self, messages: Value) -> ChatResult {
        let body = json!({"model": "agent", "messages": messages, "stream": true});
        let request = self
            .client
            .post(&format!("{}/v1/chat/completions", self.url));
        self.send(request.json(&body)).await
    }

    /// Sends a message of the user with this text.
    pub(crate) async fn send_text(&self, text: &str) -> ChatResult {
        self.ask(json!([{"role": "user", "content": text}])).await
    }

    /// Sends a body to the plain endpoint, for `agent` and with a stream unless the body has other values.
    pub(crate) async fn chat(&self, body: Value) -> ChatResult {
        self.send(self.plain_request(&body)).await
    }

    /// Sends a chat without a stream. Returns status and body.
    pub(crate) async fn whole(&self, mut body: Value) -> (u16, Value) {
        body["stream"] = json!(false);
        let answer = self.plain_request(&body).send(&|_| ()).await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    fn plain_request(&self, body: &Value) -> RequestBuilder {
        let mut whole = json!({"model": "agent", "stream": true});
        let members = whole.as_object_mut().unwrap();
        members.extend(body.as_object().unwrap().clone());
        let url = format!("{}/v1/chat/completions", self.url);
        self.client.post(&url).json(&whole)
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> ChatResult {
        let mut answer = request.send(&|_| ()).await.unwrap();
        let status = answer.status();
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await.unwrap() {
            text.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(text).unwrap();
        if status != 200 {
            let error = serde_json::from_str(&text).unwrap_or(Value::Null);
            return ChatResult {
                status,
                chunks: vec![error],
                done: false,
            };
        }
        let events: Vec<_> = text
            .split("\n\n")
            // A comment keeps a slow stream open.
            .filter(|event| !event.is_empty() && !event.starts_with(':'))
            .collect();
        let data = |event: &&str| event.strip_prefix("data: ").unwrap().to_owned();
        let mut events: Vec<_> = events.iter().map(data).collect();
        let done = events.last().is_some_and(|last| last == "[DONE]");
        if done {
            events.pop();
        }
        ChatResult {
            status,
            chunks: events
                .iter()
                .map(|event| serde_json::from_str(event).unwrap())
                .collect(),
            done,
        }
    }

    /// The bodies of the requests to the model, in order.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.model
            .received_requests()
            .into_iter()
            .map(|request| request.body)
            .collect()
    }
}

impl Drop for TurnFixture {
    fn drop(&mut self) {
        self.cx.stop.cancel();
    }
}

/// A directory with the manifest, the model, and the configuration of an orchestrator with both.
async fn prepare(manifest: &Value, script: &str) -> (TempDir, RehearsalServer, Config) {
    let directory = tempfile::tempdir().unwrap();
    let manifests = write_manifests(directory.path(), &[("agent", manifest)]).unwrap();
    let model = RehearsalServer::start(Script::from_json(script).unwrap())
        .await
        .unwrap();
    let mut config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        model_url: Some(format!("{}/v1", model.url())),
        manifests: Some(manifests),
        ..Config::default()
    };
    config.files.sessions = false;
    (directory, model, config)
}

async fn context(directory: &Path, bus: Bus) -> (ServiceContext, EmbeddedS3) {
    let clock = Clock::system();
    let (s3, options) = EmbeddedS3::start(directory).await.unwrap();
    let store = Store::open(&options, clock.clone()).await.unwrap();
    (ServiceContext::new(bus, store, clock), s3)
}

/// A manifest with these tool sets and no timestamps.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers pass a value that they have just made"
)]
pub(crate) fn manifest(tool_sets: Value) -> Value {
    let mut manifest = agent_manifest(&tool_sets);
    manifest["orchestrator"]["deployment"]["parameters"] = json!({"temperature": 0.5});
    manifest
}

/// A set of REST endpoints, one for each path, all GET with an argument `q`.
pub(crate) fn rest(base: &str, paths: &[&str]) -> Value {
    let tools: Vec<_> = paths
        .iter()
        .map(|path| {
            json!({
                "type": "restapi-tool",
                "open_ai_tool": {"function": {"name": path, "parameters": {
                    "properties": {"q": {"type": "string", "parameter_info": {"type": "query", "key": "q"}}},
                }}},
                "rest_api_method_info": {"method_url": format!("{base}/{path}"), "method_type": "get"},
            })
        })
        .collect();
    json!({"type": "rest-api", "name": "shop", "tools": tools})
}
