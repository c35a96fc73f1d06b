//! Every service in one process, and fake servers around them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta, test_bus};
use dray_egress_fetcher::{EgressFetcher, NetworkAccess};
use dray_file_resolver::FileResolver;
use dray_http::{HttpClient, HttpTimeouts, RequestBuilder};
use dray_orchestrator::Orchestrator;
use dray_platform_delivery::PlatformDelivery;
use dray_platform_telegram::fake_server::FakeTelegram as Telegram;
use dray_proto::v1;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::config::{ConfigSources, Environment};
use dray_service::{Host, RunningHost, Settings, SweeperService};
use dray_store::embedded::EmbeddedS3;
use dray_testkit::agent::{agent_manifest, write_manifests};
use dray_testkit::dial::DialCore;
use dray_testkit::nats::NatsServer;
use dray_testkit::rehearsal::{RehearsalServer, Script};
use dray_testkit::s3::FaultyS3;
use dray_types::{Clock, Deadline, TenantId};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::chat_answer::AgentAnswer;
use super::process::ServiceProcess;
use super::public_hosts::FakeInternet;
use crate::support;

/// Key of the user towards DIAL Core.
pub(crate) const DIAL_KEY: &str = "user-key";
/// Every service that the fixture can start.
pub(crate) const ALL_SERVICES: [&str; 6] = [
    "file-resolver",
    "egress-fetcher",
    "sandbox-transfer",
    "platform-delivery",
    "orchestrator",
    "sweeper",
];

/// All servers and services of one test.
pub(crate) struct AgentFixture {
    pub(crate) dial: DialCore,
    pub(crate) telegram: Telegram,
    pub(crate) model: RehearsalServer,
    pub(crate) outside: FakeInternet,
    /// The server of the bus, when there is one.
    pub(crate) nats: Option<NatsServer>,
    /// The connection to the store, which a test can break.
    pub(crate) store: Option<(FaultyS3, dray_store::StoreOptions)>,
    /// The directory that is the sandbox.
    pub(crate) sandbox: PathBuf,
    client: HttpClient,
    pub(crate) running: RunningHost,
    is_dial: bool,
    _s3: Option<EmbeddedS3>,
    directory: TempDir,
}

/// Settings of a test that differ from the default.
pub(crate) struct AgentSetup {
    manifest: Value,
    /// Manifests of further agents, by name.
    others: Vec<(&'static str, Value)>,
    rules: Value,
    settings: Vec<(String, String)>,
    services: Vec<&'static str>,
    is_dial: bool,
    has_store: bool,
    nats: Option<NatsServer>,
}

impl AgentSetup {
    /// An agent of the local manifest `agent` with these tool sets, whose model follows these rules.
    #[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
    pub(crate) fn new(tool_sets: Value, rules: Value) -> Self {
        Self {
            manifest: agent_manifest(&tool_sets),
            others: Vec::new(),
            rules,
            settings: Vec::new(),
            services: ALL_SERVICES.to_vec(),
            is_dial: false,
            has_store: false,
            nats: None,
        }
    }

    pub(crate) fn set(mut self, key: &str, value: impl Into<String>) -> Self {
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// Adds these rules of the model.
    pub(crate) fn with_script(mut self, rules: Value) -> Self {
        self.rules = rules;
        self
    }

    /// Sets a member of the manifest's features.
    pub(crate) fn feature(mut self, name: &str, value: Value) -> Self {
        self.manifest["features"][name] = value;
        self
    }

    /// Sets a member of the manifest.
    pub(crate) fn part(mut self, name: &str, value: Value) -> Self {
        self.manifest[name] = value;
        self
    }

    /// Moves the tool sets to another agent, whose model has the agent's name, and allows a handoff to it.
    pub(crate) fn handing_over_to(mut self, name: &'static str) -> Self {
        let mut other = self.manifest.clone();
        other["orchestrator"]["deployment"]["deployment_id"] = json!(name);
        self.manifest["tool_sets"] = json!([]);
        self.manifest["handoffs"] = json!([{ "agent": name }]);
        self.others.push((name, other));
        self
    }

    /// Leaves out this service.
    pub(crate) fn without(mut self, service: &str) -> Self {
        self.services.retain(|name| *name != service);
        self
    }

    /// Adds DIAL; the model stays the scripted one.
    pub(crate) fn on_dial(mut self) -> Self {
        self.is_dial = true;
        self
    }

    /// Runs on a real nats-server, with its default limit of the message size.
    pub(crate) fn on_nats(mut self) -> Self {
        self.nats = Some(NatsServer::start());
        self
    }

    /// Runs on a real nats-server and a store that can fail, which services of other processes share.
    pub(crate) fn distributed(mut self) -> Self {
        self.has_store = true;
        self.on_nats()
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one line for each part of the fixture"
    )]
    pub(crate) async fn start(self) -> AgentFixture {
        let directory = tempfile::tempdir().unwrap();
        let dial = DialCore::start().await.unwrap();
        dial.add_key(DIAL_KEY, "acme");
        let telegram = Telegram::start().await.unwrap();
        let script = Script::from_json(&json!({ "rules": self.rules }).to_string()).unwrap();
        let model = RehearsalServer::start(script).await.unwrap();
        let mut agents = vec![("agent", &self.manifest)];
        agents.extend(self.others.iter().map(|(name, manifest)| (*name, manifest)));
        let manifests = write_manifests(directory.path(), &agents).unwrap();
        let sandbox = create_directory(directory.path(), "sandbox");
        let account = "platform-delivery.accounts.port.telegram";
        let mut sources = common(directory.path(), &dial)
            .set("sandbox-transfer.kinds", "local")
            .set("sandbox-transfer.local.roots", list(&sandbox))
            .set("file-resolver.reading.worker", text(&support::dray()))
            .set("orchestrator.listen", "127.0.0.1:0")
            .set("orchestrator.manifests", text(&manifests))
            .set("orchestrator.model_url", format!("{}/v1", model.url()))
            .set("platform-delivery.allow_targets", "true")
            .set(format!("{account}.base_url"), telegram.url())
            .set(format!("{account}.token"), telegram.token().expose());
        if self.is_dial {
            sources = sources.set("orchestrator.dial_url", dial.url());
        } else {
            let address = format!("local:{}", text(&sandbox));
            sources = sources.set("orchestrator.sandbox", address);
        }
        if let Some(nats) = &self.nats {
            drop(test_bus::connect_provisioned(&nats.url()).await);
            sources = sources
                .set("bus.mode", "nats")
                .set("bus.nats.servers", nats.url());
        }
        let mut store = None;
        if self.has_store {
            let (s3, options) = EmbeddedS3::start(&create_directory(directory.path(), "store"))
                .await
                .unwrap();
            let faulty = FaultyS3::start(s3.address()).await.unwrap();
            sources = sources
                .set("store.mode", "s3")
                .set("store.s3.endpoint", faulty.endpoint())
                .set("store.s3.bucket", &options.bucket)
                .set("store.s3.access_key", options.access_key.expose())
                .set("store.s3.secret_key", options.secret_key.expose());
            store = Some(((faulty, options), s3));
        }
        let (store, s3) = store.unzip();
        for (key, value) in self.settings {
            sources = sources.set(key, value);
        }
        let outside = FakeInternet::new();
        let running = host(sources, outside.clone())
            .only(self.services)
            .start()
            .await
            .unwrap();
        let ready = tokio::time::timeout(Duration::from_mins(1), running.ready());
        ready.await.expect("the services become ready");
        let limits = HttpTimeouts {
            idle: Duration::from_mins(2),
            ..HttpTimeouts::default()
        };
        AgentFixture {
            dial,
            telegram,
            model,
            outside,
            sandbox,
            client: HttpClient::new(limits, None).unwrap(),
            running,
            is_dial: self.is_dial,
            nats: self.nats,
            store,
            _s3: s3,
            directory,
        }
    }
}

impl AgentFixture {
    /// A directory of the test.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A POST request to the orchestrator.
    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(&format!("{}{path}", self.url()))
    }

    /// A POST request to the listener for events of platforms.
    pub(crate) fn post_event(&self, path: &str) -> RequestBuilder {
        let addresses = &self.running.context().listen_addresses;
        let address = addresses.find("platforms").unwrap();
        self.client.post(&format!("http://{address}{path}"))
    }

    /// The base address of the orchestrator.
    pub(crate) fn url(&self) -> String {
        let addresses = &self.running.context().listen_addresses;
        format!("http://{}", addresses.find("chat").unwrap())
    }

    /// A GET request to the orchestrator.
    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(&format!("{}{path}", self.url()))
    }

    /// The bus of the services.
    pub(crate) fn bus(&self) -> &Bus {
        &self.running.context().bus
    }

    /// A service of this fixture in a separate process, with these settings beside the usual ones.
    pub(crate) async fn process(
        &self,
        service: &str,
        settings: &[(&'static str, String)],
    ) -> ServiceProcess {
        self.process_of(service, settings, None).await
    }

    /// Like [`Self::process`], with the settings of a file, which the service reads again when it changes.
    pub(crate) async fn process_of(
        &self,
        service: &str,
        settings: &[(&'static str, String)],
        config: Option<&Path>,
    ) -> ServiceProcess {
        let (store, options) = self.store.as_ref().unwrap();
        let mut all = match service {
            "orchestrator" => vec![
                ("orchestrator.listen", "127.0.0.1:0".to_owned()),
                (
                    "orchestrator.manifests",
                    text(&self.directory().join("manifests")).to_owned(),
                ),
                ("orchestrator.model_url", format!("{}/v1", self.model.url())),
            ],
            "file-resolver" => vec![("file-resolver.dial_url", self.dial.url())],
            _ => Vec::new(),
        };
        all.extend_from_slice(settings);
        let nats = self.nats.as_ref().unwrap();
        ServiceProcess::start(service, nats, (store, options), &all, config).await
    }

    /// A POST request to a process of the orchestrator.
    pub(crate) fn post_to(&self, process: &ServiceProcess, path: &str) -> RequestBuilder {
        self.client.post(&process.url(path))
    }

    /// A GET request to a process of the orchestrator.
    pub(crate) fn get_from(&self, process: &ServiceProcess, path: &str) -> RequestBuilder {
        self.client.get(&process.url(path))
    }

    /// The metrics of a process.
    pub(crate) async fn metrics_of(&self, process: &ServiceProcess) -> String {
        process.metrics(&self.client).await
    }

    /// Sends a conversation to the agent and reads its answer.
    pub(crate) async fn ask(&self, messages: Value) -> AgentAnswer {
        self.ask_in(None, messages).await
    }

    /// Sends a conversation in this session, or in a new one, and reads the answer.
    pub(crate) async fn ask_in(&self, session: Option<&str>, messages: Value) -> AgentAnswer {
        let body = json!({"model": "agent", "messages": messages, "stream": true});
        let mut request = if self.is_dial {
            let path = "/openai/deployments/agent/chat/completions";
            self.post(path).header("api-key", DIAL_KEY)
        } else {
            self.post("/v1/chat/completions")
        };
        if let Some(session) = session {
            request = request.header("x-dray-session", session);
        }
        let answer = AgentAnswer::of(request.json(&body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    /// Sends a conversation of one user message.
    pub(crate) async fn chat(&self, text: &str) -> AgentAnswer {
        self.ask(json!([user(text)])).await
    }

    /// Fetches a link of an attachment.
    pub(crate) async fn fetch(&self, url: &str) -> Vec<u8> {
        let answer = self.client.get(url).send(&|_| ()).await.unwrap();
        assert_eq!(answer.status(), 200, "{url}");
        answer.bytes(64 << 20).await.unwrap().to_vec()
    }

    /// The messages of the request to the model with this number; the first is 0.
    pub(crate) fn messages(&self, number: usize) -> Vec<Value> {
        let requests = self.model.received_requests();
        requests[number].body["messages"]
            .as_array()
            .unwrap()
            .clone()
    }

    /// The newest result of a tool that the model got.
    pub(crate) fn result(&self) -> String {
        let messages = self.messages(self.model.received_requests().len() - 1);
        let tool_message = messages.iter().rfind(|message| message["role"] == "tool");
        tool_message.unwrap()["content"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Binds a session to the sandbox and a chat of Telegram.
    pub(crate) async fn bind(&self, session: &str, chat: i64) {
        let request = v1::BindSessionRequest {
            session: session.to_owned(),
            sandbox: format!("local:{}", text(&self.sandbox)),
            chat: Some(v1::ChatTarget {
                platform: "telegram".to_owned(),
                chat: chat.to_string(),
                ..v1::ChatTarget::default()
            }),
            ..v1::BindSessionRequest::default()
        };
        let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_secs(30));
        let meta = Meta::new(TenantId::default(), deadline);
        let bus = &self.running.context().bus;
        bus.call(&meta, &request).await.unwrap();
    }

    /// Stops the services in order.
    pub(crate) async fn stop(self) {
        self.running.stop().await;
    }
}

/// A message of the user.
pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The settings that all tests share.
fn common(directory: &Path, dial: &DialCore) -> ConfigSources {
    ConfigSources::new(Environment::default())
        .set("state.directory", text(directory))
        .set("http.listen", "127.0.0.1:0")
        .set("grpc.listen", "127.0.0.1:0")
        .set("limits.free_disk_percent", "0")
        .set("egress-fetcher.enabled", "true")
        .set("file-resolver.dial_url", dial.url())
        .set("file-resolver.tenants.default.api_key", DIAL_KEY)
}

fn host(sources: ConfigSources, outside: FakeInternet) -> Host {
    Host::new(Settings::new(sources))
        .with::<FileResolver>()
        .with_start::<EgressFetcher, _, _>(|config, cx| async move {
            let network = NetworkAccess {
                resolver: Arc::new(outside.clone()),
                dialer: Arc::new(outside),
            };
            EgressFetcher::start_with(config, cx, network).await
        })
        .with::<SandboxTransfer>()
        .with::<PlatformDelivery>()
        .with::<Orchestrator>()
        .with::<SweeperService>()
}

/// Creates a directory and returns its canonical path, as services report it.
fn create_directory(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir(&path).unwrap();
    path.canonicalize().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str()
        .expect("directories of tests have UTF-8 names")
}

/// A configured list of one path.
fn list(path: &Path) -> String {
    json!([text(path)]).to_string()
}
