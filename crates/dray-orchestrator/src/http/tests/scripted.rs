//! A scripted agent, and a surface that listens.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_agent::event::{AnswerEnd, Event, TokenUsage};
use dray_agent::failure::RequestFailure;
use dray_agent::layer::LayerSet;
use dray_agent::manifest::{Manifest, ManifestReader, ManifestSettings};
use dray_bus::{Bus, test_bus};
use dray_store::embedded::EmbeddedS3;
use dray_store::{Store, StoreOptions};
use dray_tool::EventSink;
use dray_types::{ByteSize, Clock, Period, Secret, TenantId};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client_files::ClientFiles;
use crate::client_uploads::ClientUploads;
use crate::config::permissions::Permissions;
use crate::http::{
    Agent, BackgroundTasks, CheckedChatRequest, ClientState, CurrentSurface, HttpSurface,
    ManifestSource, SurfaceOptions, SurfaceParts, serve_until,
};
use crate::manifests::ManifestDirectory;
use crate::metrics::OrchestratorMetrics;
use crate::permissions::CallerIdentity;
use crate::progress::ProgressStore;
use crate::records::CallerRecords;
use crate::responses::ResponseStore;

/// One action of the scripted agent.
#[derive(Clone, Debug)]
pub(super) enum ScriptedStep {
    Send(Event),
    /// Continues when it is notified.
    Wait(Arc<Notify>),
    /// Never continues.
    Hang,
    Panic,
    Fail(RequestFailure),
    /// Sends this many chunks of text, each of this many bytes.
    Flood(usize, usize),
}

#[derive(Debug, Default)]
pub(super) struct ScriptedAgent {
    pub(super) script: Vec<ScriptedStep>,
    pub(super) ending: std::sync::Mutex<AnswerEnd>,
    pub(super) asked: Mutex<Vec<CheckedChatRequest>>,
    /// Number of answers that run.
    pub(super) working: Arc<AtomicUsize>,
    /// Number of events that were sent.
    pub(super) sent: AtomicUsize,
}

/// Counts down when an answer ends, however it ends.
struct AnswerCounter(Arc<AtomicUsize>);

impl Drop for AnswerCounter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ScriptedAgent {
    /// Sets the tokens that the agent reports at its end.
    pub(super) fn count(&self, tokens: TokenUsage) {
        self.ending.lock().unwrap().usage = Some(tokens);
    }
}

#[async_trait]
impl Agent for ScriptedAgent {
    async fn answer(
        &self,
        asked: CheckedChatRequest,
        sink: EventSink,
    ) -> Result<AnswerEnd, RequestFailure> {
        self.working.fetch_add(1, Ordering::SeqCst);
        let _guard = AnswerCounter(Arc::clone(&self.working));
        self.asked.lock().await.push(asked);
        for step in self.script.clone() {
            match step {
                ScriptedStep::Send(event) => {
                    sink.send(event)
                        .await
                        .map_err(|_| RequestFailure::unexpected())?;
                    self.sent.fetch_add(1, Ordering::SeqCst);
                }
                ScriptedStep::Wait(permitted) => permitted.notified().await,
                ScriptedStep::Hang => std::future::pending().await,
                ScriptedStep::Panic => panic!("as the script says"),
                ScriptedStep::Fail(failure) => return Err(failure),
                ScriptedStep::Flood(times, size) => {
                    for _ in 0..times {
                        let event = Event::Content("x".repeat(size));
                        sink.send(event)
                            .await
                            .map_err(|_| RequestFailure::unexpected())?;
                        self.sent.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        }
        Ok(self.ending.lock().unwrap().clone())
    }

    async fn verify(&self, caller: &Caller) -> Result<CallerIdentity, RequestFailure> {
        let key = caller.api_key.as_ref().unwrap().expose();
        if key == "unknown" {
            return Err(RequestFailure::new(401, "unknown key"));
        }
        Ok(CallerIdentity::Dial(format!("bucket-of-{key}")))
    }

    async fn manifest(
        &self,
        _: &Caller,
        _: &CallerIdentity,
        source: &ManifestSource,
    ) -> Result<Arc<Manifest>, RequestFailure> {
        let ManifestSource::Given(document) = source else {
            return Err(RequestFailure::new(500, "Error while fetching application"));
        };
        let reader = ManifestReader::new(ManifestSettings::default());
        match reader.manifest(document.clone()) {
            Ok(reading) => Ok(Arc::new(reading.value)),
            Err(invalid) => Err(RequestFailure::new(400, invalid.to_string())),
        }
    }

    async fn template(&self, caller: &Caller, deployment: &str) -> Result<Value, RequestFailure> {
        let key = caller.api_key.as_ref().unwrap().expose().to_owned();
        Ok(json!({"deployment": deployment, "key": key}))
    }
}

pub(super) const TEST_MANIFEST: &str = r#"{"orchestrator": {"deployment": {"deployment_id": "m"}}, "contexts": [], "tool_sets": [],
    "starters": ["Hello"]}"#;

/// A surface that listens.
pub(super) struct TestSurface {
    pub(super) agent: Arc<ScriptedAgent>,
    pub(super) surface: Arc<HttpSurface>,
    pub(super) address: SocketAddr,
    pub(super) stop: CancellationToken,
    pub(super) serving: JoinSet<()>,
    pub(super) shared: Arc<SharedState>,
    _directory: tempfile::TempDir,
}

pub(super) fn options() -> SurfaceOptions {
    SurfaceOptions {
        deployments: vec!["quick_apps2".to_owned()],
        clients: BTreeMap::new(),
        permissions: Permissions::default(),
        forward_headers: Vec::new(),
        hosts: vec!["chat.internal".to_owned()],
        tenant: TenantId::default(),
        loopback: true,
        dial: false,
        language_header: "accept-language".to_owned(),
        max_body: ByteSize::kib(64),
        body_timeout: Duration::from_mins(1),
        max_body_total: ByteSize::mib(64),
        max_chats: 8,
        chat_wait: Duration::from_mins(1),
        prompt_mapping: BTreeMap::from([("p".to_owned(), vec!["gpt-4o".to_owned()])]),
        schema: json!({"title": "Manifest"}),
        application_type: json!({"dial:applicationTypeDisplayName": "App"}),
        cors_origins: Vec::new(),
        heartbeat: Duration::from_mins(1),
        poll_interval: Duration::from_millis(250),
        max_upload: ByteSize::kib(64),
        drain: Duration::from_millis(1),
    }
}

/// State that surfaces keep for clients. Two surfaces that share it are replicas.
pub(super) struct SharedState {
    pub(super) clock: Clock,
    pub(super) bus: Bus,
    options: StoreOptions,
    s3: std::sync::Mutex<Option<EmbeddedS3>>,
}

impl SharedState {
    /// Starts the surface on an embedded store below `directory`.
    pub(super) async fn start(directory: &Path) -> Self {
        // The clock of the machine, because the store compares times with its own clock.
        let clock = Clock::manual(Clock::system().now_ms());
        let (s3, options) = EmbeddedS3::start(directory).await.unwrap();
        let bus = test_bus::in_process(&clock).await;
        Self {
            clock,
            bus,
            options,
            s3: std::sync::Mutex::new(Some(s3)),
        }
    }

    /// Stops the store: from now on it does not respond.
    pub(super) fn stop_store(&self) {
        self.s3.lock().unwrap().take();
    }

    pub(super) async fn client_state(&self) -> ClientState {
        // A shared store could have connections of a runtime that has ended.
        let store = Store::open(&self.options, Clock::system()).await.unwrap();
        let clock = self.clock.clone();
        let records = CallerRecords::new(&self.bus, store, TenantId::default(), clock);
        let lifetime = Period::secs(14 * 24 * 3600);
        let files = ClientFiles::new(records.clone(), lifetime);
        ClientState {
            sign_ins: None,
            uploads: ClientUploads::new(files.clone()),
            files,
            progress: ProgressStore::new(records.clone()),
            responses: ResponseStore::new(records, lifetime, Period::secs(30)),
        }
    }
}

impl TestSurface {
    pub(super) async fn start(script: Vec<ScriptedStep>) -> Self {
        Self::with(script, |_| {}).await
    }

    pub(super) async fn with(
        script: Vec<ScriptedStep>,
        change: impl FnOnce(&mut SurfaceOptions),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let shared = Arc::new(SharedState::start(&directory.path().join("store")).await);
        Self::replica(script, change, shared, directory).await
    }

    /// A surface over state that other surfaces share.
    pub(super) async fn replica(
        script: Vec<ScriptedStep>,
        change: impl FnOnce(&mut SurfaceOptions),
        shared: Arc<SharedState>,
        directory: tempfile::TempDir,
    ) -> Self {
        let mut options = options();
        change(&mut options);
        std::fs::write(directory.path().join("helper.json"), TEST_MANIFEST).unwrap();
        let reader = Arc::new(ManifestReader::new(ManifestSettings::default()));
        let manifests = ManifestDirectory::open(Some(directory.path().to_owned()), reader).unwrap();
        let mut layers = LayerSet::default();
        layers.add("prompt/p.md", "Be kind.").unwrap();
        layers.add("tool/t.json", r#"{"a": 1}"#).unwrap();
        layers
            .add(
                "toolset/s.json",
                r#"{"tools": [{"type": "predefined-tool", "template_name": "t"}]}"#,
            )
            .unwrap();
        let stop = CancellationToken::new();
        let agent = Arc::new(ScriptedAgent {
            script,
            ..ScriptedAgent::default()
        });
        let parts = SurfaceParts {
            agent: Arc::clone(&agent) as Arc<dyn Agent>,
            manifests: Arc::new(manifests),
            layers: Arc::new(layers),
            options,
        };
        let surface = HttpSurface::new(
            parts,
            shared.client_state().await,
            BackgroundTasks {
                tasks: TaskTracker::new(),
                stop: stop.clone(),
                metrics: OrchestratorMetrics::new(&test_bus::noop_meter()),
            },
            Clock::manual(1_700_000_000_500),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let current = CurrentSurface::new(surface);
        let (surface, router) = (current.get(), current.router());
        let mut serving = JoinSet::new();
        serving.spawn(serve_until(
            router,
            listener,
            stop.clone(),
            Duration::from_millis(1),
        ));
        Self {
            agent,
            surface,
            address,
            stop,
            serving,
            shared,
            _directory: directory,
        }
    }

    pub(super) fn request(&self, method: http::Method, path: &str) -> dray_http::RequestBuilder {
        let limits = dray_http::HttpTimeouts::default();
        let client = dray_http::HttpClient::new(limits, None).unwrap();
        client.request(method, &format!("http://{}{path}", self.address))
    }

    /// Status and body of a GET.
    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        let request = self.request(http::Method::GET, path).header("api-key", "k");
        read(request.send(&|_| ()).await.unwrap()).await
    }

    /// A chat by DIAL's API.
    pub(super) async fn chat(&self, body: &Value) -> dray_http::HttpResponse {
        const CHAT_PATH: &str = "/openai/deployments/quick_apps2/chat/completions";
        let request = self
            .request(http::Method::POST, CHAT_PATH)
            .header("api-key", "k");
        request.json(body).send(&|_| ()).await.unwrap()
    }

    /// Waits until `count` answers are being made.
    pub(super) async fn working(&self, count: usize) {
        let look = async || (self.agent.working.load(Ordering::SeqCst) == count).then_some(());
        dray_testkit::eventually("the agent's work begins or ends", look).await;
    }
}

pub(super) async fn read(answer: dray_http::HttpResponse) -> (u16, Value) {
    let status = answer.status();
    let text = answer.text().await.unwrap();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// The data of the sent events; the last one must be the end of the stream.
pub(super) async fn events(answer: dray_http::HttpResponse) -> Vec<Value> {
    let text = answer.text().await.unwrap();
    let mut events: Vec<_> = text.split("\n\n").collect();
    assert_eq!(events.pop(), Some(""), "{text}");
    assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
    let parse = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
    events.into_iter().map(parse).collect()
}

pub(super) fn ask(stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "stream": stream})
}

pub(super) fn text_step(text: &str) -> ScriptedStep {
    ScriptedStep::Send(Event::Content(text.to_owned()))
}

pub(super) fn keys(keys: &[&str]) -> BTreeMap<String, Secret> {
    keys.iter()
        .map(|key| (format!("owner-of-{key}"), Secret::new(*key)))
        .collect()
}
