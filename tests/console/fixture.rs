//! A system with a console over NATS, with a session, a delivery, a dead letter, an open question and an agent.

use std::path::Path;
use std::process::{Command, Output};

use bytes::Bytes;
use dray_bus::{Bus, Meta, test_bus};
use dray_proto::contract::{schema_name, work_subject};
use dray_proto::v1;
use dray_store::StoreOptions;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::agent::{agent_manifest, write_manifests};
use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_testkit::rehearsal::{RehearsalServer, Script};
use dray_testkit::s3::{FaultRule, FaultyS3, S3Fault};
use dray_types::{Clock, Deadline, SessionId, TenantId};
use serde_json::json;

use crate::support::{self, up::UpServer};

/// Time from its publication until the deadline of a call, of work or of an event.
const WORK_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(5);
/// Session whose sandbox and chat are directories of the test.
pub(crate) const SESSION_ID: &str = "walk";
/// Most events that are published concurrently.
const MAX_CONCURRENT_EVENTS: usize = 50;
/// Host about which the policy asks a person.
pub(crate) const ASKED_HOST: &str = "ask.example.org";
/// Id of the delivery that the pages show.
pub(crate) const DELIVERY_ID: &str = "walk-delivery";

/// A system over NATS with a session, a delivery and a dead letter.
pub(crate) struct ConsoleFixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) nats: NatsServer,
    bus: Bus,
    /// The model of the playground's agent.
    model: RehearsalServer,
    /// The connection to the store.
    store: FaultyS3,
    store_options: StoreOptions,
    _s3: EmbeddedS3,
}

impl ConsoleFixture {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let nats = NatsServer::start();
        let bus = test_bus::connect_provisioned(&nats.url()).await;
        let model =
            RehearsalServer::start(playground_script(&directory.path().join("box/report.txt")))
                .await
                .unwrap();
        let s3 = EmbeddedS3::start(&directory.path().join("store")).await;
        let (s3, store_options) = s3.unwrap();
        Self {
            directory,
            nats,
            bus,
            model,
            store: FaultyS3::start(s3.address()).await.unwrap(),
            store_options,
            _s3: s3,
        }
    }

    /// Breaks off every connection to the store from now on.
    pub(crate) fn stop_store(&self) {
        self.store.add(FaultRule::all(S3Fault::Down));
    }

    /// Ends the outage of the store.
    pub(crate) fn start_store(&self) {
        self.store.clear_faults();
    }

    /// The path of a directory of the test, which this creates when it does not exist.
    fn directory(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.to_string_lossy().into_owned()
    }

    /// Starts `dray up` with the console, on this bus.
    pub(crate) fn serve(&self) -> UpServer {
        let roots = format!(
            "sandbox-transfer.local.roots=[\"{}\"]",
            self.directory("box")
        );
        let url = self.nats.url();
        let sandbox = format!("orchestrator.sandbox=local:{}", self.directory("box"));
        let agent = agent_manifest(&json!([]));
        let agents = write_manifests(self.directory.path(), &[("clerk", &agent)]).unwrap();
        let agents = agents.to_str().unwrap();
        let policy = self.directory.path().join("policy.toml");
        let rule = "[[role]]\nname = \"all\"\n[[role.rule]]\nname = \"asked\"\noutcome = \"ask\"\n";
        let text = format!("default = \"allow\"\n{rule}hosts = [\"{ASKED_HOST}\"]\n");
        std::fs::write(&policy, text).unwrap();
        let policy = format!("egress-fetcher.policy_path={}", policy.display());
        let model = format!("{}/v1", self.model.url());
        let store = self.store.endpoint();
        let StoreOptions {
            bucket,
            access_key,
            secret_key,
            ..
        } = &self.store_options;
        let bucket = format!("store.s3.bucket={bucket}");
        let access_key = format!("store.s3.access_key={}", access_key.expose());
        let secret_key = format!("store.s3.secret_key={}", secret_key.expose());
        let options = [
            ["--nats", url.as_str()],
            ["--s3", store.as_str()],
            ["--set", bucket.as_str()],
            ["--set", access_key.as_str()],
            ["--set", secret_key.as_str()],
            ["--console", "127.0.0.1:0"],
            ["--set", roots.as_str()],
            ["--set", sandbox.as_str()],
            ["--manifests", agents],
            ["--model-url", model.as_str()],
            ["--set", "platform-delivery.cli=true"],
            ["--set", "platform-delivery.allow_targets=true"],
            ["--set", "egress-fetcher.enabled=true"],
            ["--set", policy.as_str()],
        ];
        UpServer::start(self.directory.path(), options.as_flattened(), "console: ")
    }

    /// Runs a command against the running system.
    fn ask(&self, arguments: &[&str]) -> Output {
        Command::new(support::dray())
            .args(["--nats", &self.nats.url(), "--json"])
            .args(arguments)
            .env("HOME", self.directory.path())
            .output()
            .unwrap()
    }

    /// Sends a file of the sandbox to the session's chat.
    pub(crate) fn deliver(&self) {
        let (sandbox, chat) = (self.directory("box"), self.directory("out"));
        std::fs::write(Path::new(&sandbox).join("report.txt"), "made by the agent").unwrap();
        std::fs::create_dir(Path::new(&sandbox).join("many")).unwrap();
        for number in 0..600 {
            let name = format!("many/file-{number:03}.txt");
            std::fs::write(Path::new(&sandbox).join(name), "one of many").unwrap();
        }
        let sandbox = format!("local:{sandbox}");
        let chat = format!("cli:{chat}");
        let bound = self.ask(&[
            "session",
            "bind",
            SESSION_ID,
            "--sandbox",
            &sandbox,
            "--chat",
            &chat,
        ]);
        assert!(bound.status.success(), "{bound:?}");
        let id = ["--delivery-id", DELIVERY_ID];
        let sent = self.ask(&[&["send", "--session", SESSION_ID, "report.txt"][..], &id].concat());
        assert!(sent.status.success(), "{sent:?}");
    }

    /// Starts this many deliveries of the file, and waits until all of them have ended.
    pub(crate) async fn deliver_repeatedly(&self, count: usize) {
        let meta = || {
            let deadline = Deadline::after(Clock::system().now_ms(), WORK_TIMEOUT);
            Meta::new(TenantId::default(), deadline)
        };
        let mut deliveries = Vec::new();
        for _ in 0..count {
            let request = v1::SendFileRequested {
                session: SESSION_ID.to_owned(),
                paths: vec![b"report.txt".to_vec()],
                ..v1::SendFileRequested::default()
            };
            let accepted = self.bus.call_once(&meta(), &request).await.unwrap();
            deliveries.push(accepted.delivery_id);
        }
        for delivery_id in deliveries {
            let request = v1::DeliveryOutcomeRequest {
                delivery_id,
                wait_ms: 30_000,
            };
            let report = self.bus.call(&meta(), &request).await.unwrap();
            assert!(report.finished, "{report:?}");
        }
    }

    /// Fetches from [`ASKED_HOST`] in the name of the session, which is refused until a person decides.
    pub(crate) async fn request_asked_host(&self) {
        let deadline = Deadline::after(Clock::system().now_ms(), WORK_TIMEOUT);
        let session = SessionId::new(SESSION_ID).unwrap();
        let meta = Meta::new(TenantId::default(), deadline).with_session(session);
        let request = v1::FetchRequest {
            url: format!("https://{ASKED_HOST}/"),
            ..v1::FetchRequest::default()
        };
        let refused = self.bus.call(&meta, &request).await.unwrap_err();
        assert!(refused.to_string().contains("approv"), "{refused}");
    }

    /// Publishes work in a valid envelope that no service can decode, so that it becomes a dead letter.
    pub(crate) async fn publish_garbage(&self) -> String {
        let deadline = Deadline::after(Clock::system().now_ms(), WORK_TIMEOUT);
        let meta = Meta::new(TenantId::default(), deadline);
        let client = async_nats::connect(self.nats.url()).await.unwrap();
        let mut headers = async_nats::HeaderMap::new();
        for (name, value) in meta.headers(&schema_name::<v1::ToolCallRequested>()).iter() {
            headers.append(name, value);
        }
        let subject = work_subject(&v1::ToolCallRequested::default(), &meta.tenant);
        let garbage = Bytes::from_static(&[0xff; 16]);
        client
            .publish_with_headers(subject, headers, garbage)
            .await
            .unwrap();
        client.flush().await.unwrap();
        meta.operation.to_string()
    }

    /// Publishes this many events as fast as the bus takes them.
    pub(crate) async fn publish_events(&self, count: usize) {
        for batch in (0..count).collect::<Vec<_>>().chunks(MAX_CONCURRENT_EVENTS) {
            let publishing = batch.iter().map(|_| {
                let deadline = Deadline::after(Clock::system().now_ms(), WORK_TIMEOUT);
                let meta = Meta::new(TenantId::default(), deadline);
                let event = v1::ToolCallResolved {
                    tool: "flood".to_owned(),
                    ..v1::ToolCallResolved::default()
                };
                async move { self.bus.publish_event(&meta, &event).await.unwrap() }
            });
            futures_util::future::join_all(publishing).await;
        }
    }

    /// Waits for the dead letter of an operation and returns its sequence number.
    pub(crate) async fn letter_of(&self, operation: &str) -> u64 {
        eventually("the dead letter", async || {
            let letters = self.bus.dead_letters().list(1, 100).await.unwrap();
            let mut letters = letters.iter();
            let letter = letters.find(|letter| letter.operation == operation);
            letter.map(|letter| letter.sequence)
        })
        .await
    }
}

/// The responses of the playground's model: a tool call, a file, and a long text that a person has to cancel.
fn playground_script(report: &Path) -> Script {
    let final_text = format!("The report is ready.\nMEDIA:{}", report.display());
    let rules = json!({ "rules": [
        {
            "when": { "last_user_contains": "for ever" },
            "reply": { "say": "word ".repeat(400), "piece": 5, "delay_ms": 100 },
        },
        {
            "when": { "tool_result_of": "sandbox_list" },
            "reply": { "say": final_text, "piece": 4 },
        },
        { "reply": { "call": [{ "name": "sandbox_list", "arguments": {} }] } },
    ] });
    Script::from_json(&rules.to_string()).unwrap()
}
