//! The console of `dray up` in Chromium, over NATS, as a person uses it.

mod oidc;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use bytes::Bytes;
use dray_bus::{Bus, Meta, NatsOptions, Topology};
use dray_proto::contract::{schema_name, work_subject};
use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_testkit::rehearsal::{RehearsalServer, Script};
use dray_types::{Clock, Deadline, SessionId, Sha256Digest, TenantId};
use opentelemetry::metrics::MeterProvider as _;
use serde_json::{Value, json};

use crate::support::{self, node, up::UpServer};

/// Time after which work counts as too late.
const WORK_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(5);
/// Session whose sandbox and chat are directories of the test.
const SESSION_ID: &str = "walk";
/// Content of the file that the browser drops on a sandbox; it is large enough to go through the store.
const DROPPED_TEXT: &str = "dropped";
/// Events that the live page gets in two halves, as fast as they go.
const FLOOD_EVENTS: usize = 1_000;
/// Events that are published concurrently.
const EVENTS_AT_ONCE: usize = 50;
/// Host about which the policy asks a person.
const ASKED_HOST: &str = "ask.example.org";
/// Id of the delivery that the pages show.
const DELIVERY_ID: &str = "walk-delivery";

/// A system over NATS with a session, a delivery and a dead letter.
struct ConsoleFixture {
    folder: tempfile::TempDir,
    nats: NatsServer,
    bus: Bus,
    /// The model of the playground's agent.
    model: RehearsalServer,
}

impl ConsoleFixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nats = NatsServer::start();
        let meter = opentelemetry::metrics::noop::NoopMeterProvider::new().meter("test");
        let options = NatsOptions::at(nats.url());
        let bus = Bus::connect(&options, Clock::system(), &meter)
            .await
            .unwrap();
        let mismatches = bus
            .apply_topology(&Topology::new(1, 256 << 20))
            .await
            .unwrap();
        assert!(mismatches.is_empty(), "{mismatches:?}");
        let model =
            RehearsalServer::start(playground_script(&folder.path().join("box/report.txt")))
                .await
                .unwrap();
        Self {
            folder,
            nats,
            bus,
            model,
        }
    }

    fn directory(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.to_string_lossy().into_owned()
    }

    fn serve(&self) -> UpServer {
        let roots = format!(
            "sandbox-transfer.local.roots=[\"{}\"]",
            self.directory("box")
        );
        let url = self.nats.url();
        let sandbox = format!("orchestrator.sandbox=local:{}", self.directory("box"));
        let agents = self.directory("agents");
        let agent = json!({
            "orchestrator": {
                "deployment": { "deployment_id": "lead" },
                "system_prompt": { "type": "custom", "content": "You help." },
            },
            "contexts": [],
            "tool_sets": [],
            "features": { "timestamp": null },
        });
        // The smallest manifest that talks to the model of the test.
        std::fs::write(Path::new(&agents).join("clerk.json"), agent.to_string()).unwrap();
        let policy = Path::new(&agents).with_file_name("policy.toml");
        let rule = "[[role]]\nname = \"all\"\n[[role.rule]]\nname = \"asked\"\noutcome = \"ask\"\n";
        let text = format!("default = \"allow\"\n{rule}hosts = [\"{ASKED_HOST}\"]\n");
        std::fs::write(&policy, text).unwrap();
        let policy = format!("egress-fetcher.policy_path={}", policy.display());
        let model = format!("{}/v1", self.model.url());
        let options = [
            ["--nats", url.as_str()],
            ["--console", "127.0.0.1:0"],
            ["--set", roots.as_str()],
            ["--set", sandbox.as_str()],
            ["--manifests", agents.as_str()],
            ["--model-url", model.as_str()],
            ["--set", "platform-delivery.cli=true"],
            ["--set", "platform-delivery.allow_targets=true"],
            ["--set", "egress-fetcher.enabled=true"],
            ["--set", policy.as_str()],
        ];
        UpServer::start(self.folder.path(), options.as_flattened(), "console: ")
    }

    /// Runs a command against the running system.
    fn ask(&self, arguments: &[&str]) -> Output {
        Command::new(support::dray())
            .args(["--nats", &self.nats.url(), "--json"])
            .args(arguments)
            .env("HOME", self.folder.path())
            .output()
            .unwrap()
    }

    /// Sends a file of the sandbox to the session's chat.
    fn deliver(&self) {
        let (sandbox, chat) = (self.directory("box"), self.directory("out"));
        std::fs::write(Path::new(&sandbox).join("report.txt"), "made by the agent").unwrap();
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

    /// Wants a file of the host about which a person is asked, in the name of the session.
    async fn want_asked_host(&self) {
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
    async fn publish_garbage(&self) -> String {
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
    async fn publish_events(&self, count: usize) {
        for batch in (0..count).collect::<Vec<_>>().chunks(EVENTS_AT_ONCE) {
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

    /// The sequence of the dead letter of an operation.
    async fn letter_of(&self, operation: &str) -> u64 {
        loop {
            let letters = self.bus.dead_letters().list(1, 100).await.unwrap();
            if let Some(letter) = letters.iter().find(|letter| letter.operation == operation) {
                return letter.sequence;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// The browser, which asks the test for actions that only the test can perform.
struct BrowserWalk(Child);

impl BrowserWalk {
    fn start(fixture: &ConsoleFixture, settings: &Value) -> Self {
        let file = fixture.folder.path().join("walk.json");
        std::fs::write(&file, settings.to_string()).unwrap();
        let process = Command::new("node")
            .arg(support::root().join("tests/console/walk.cjs"))
            .arg(&file)
            .current_dir(node::packages("node-console", &node::BROWSER_PACKAGES))
            .env("HOME", fixture.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(process)
    }

    /// Performs the actions that the browser requests until it is done, and returns its observations.
    async fn serve(mut self, fixture: &mut ConsoleFixture) -> Value {
        let mut answers = self.0.stdin.take().unwrap();
        let requests = BufReader::new(self.0.stderr.take().unwrap());
        let mut said = String::new();
        for line in requests.lines() {
            let line = line.unwrap();
            match line.as_str() {
                "publish" => drop(fixture.publish_garbage().await),
                "flood" => fixture.publish_events(FLOOD_EVENTS).await,
                "stop-bus" => fixture.nats.stop(),
                "start-bus" => fixture.nats.restart(),
                other => {
                    said.push_str(other);
                    said.push('\n');
                    continue;
                }
            }
            writeln!(answers, "done").unwrap();
        }
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// What the browser saw of a chat: a stage, a file in and out, the end, and a request without a key.
fn check_playground(seen: &Value) {
    let chat = &seen["chat"];
    assert!(
        chat["stages"]
            .as_array()
            .unwrap()
            .iter()
            .any(|stage| { stage.as_str().is_some_and(|stage| stage.contains("done")) }),
        "{chat}"
    );
    assert!(
        chat["answer"]
            .as_str()
            .unwrap()
            .contains("The report is ready."),
        "{chat}"
    );
    assert_eq!(chat["files"], 1, "{chat}");
    let curl = chat["curl"].as_str().unwrap();
    assert!(
        curl.contains("/v1/chat/completions") && curl.contains("file_id"),
        "{curl}"
    );
    assert_eq!(chat["cancelled"], "cancelled", "{chat}");
}

/// The live page under more events than it shows: every row came once, at least 10,000 a minute, and the tab keeps its size.
fn check_flood(seen: &Value) {
    let flood = &seen["flood"];
    assert_eq!(flood["lost"], 0, "{flood}");
    assert!(flood["rows"].as_u64().unwrap() <= 500, "{flood}");
    assert!(flood["perMinute"].as_f64().unwrap() >= 10_000.0, "{flood}");
    let bytes = |name: &str| flood[name].as_f64().unwrap();
    assert!(
        bytes("heapAfter") <= bytes("heapBetween") * 1.25 + 1e6,
        "the tab grows: {flood}"
    );
    assert!(
        bytes("nodesAfter") <= bytes("nodesBetween") * 1.1,
        "the page grows: {flood}"
    );
}

/// The answers of the playground's model: a tool call, a file, and one that a person has to end.
fn playground_script(report: &Path) -> Script {
    let done = format!("The report is ready.\nMEDIA:{}", report.display());
    let rules = json!({ "rules": [
        {
            "when": { "last_user_contains": "for ever" },
            "reply": { "say": "word ".repeat(400), "piece": 5, "delay_ms": 100 },
        },
        {
            "when": { "tool_result_of": "sandbox_list" },
            "reply": { "say": done, "piece": 4 },
        },
        { "reply": { "call": [{ "name": "sandbox_list", "arguments": {} }] } },
    ] });
    Script::from_json(&rules.to_string()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_walks_through_every_page_and_sees_an_outage_pass() {
    let mut fixture = ConsoleFixture::start().await;
    let server = fixture.serve();
    fixture.deliver();
    fixture.want_asked_host().await;
    let garbage = fixture.publish_garbage().await;
    let letter = fixture.letter_of(&garbage).await;
    #[expect(
        clippy::disallowed_methods,
        reason = "a person who wants new screenshots says here where they go"
    )]
    let screenshots = std::env::var("DRAY_CONSOLE_SCREENSHOTS").ok();
    let settings = json!({
        "login": server.url,
        "session": SESSION_ID,
        "delivery": DELIVERY_ID,
        "letter": letter,
        "digest": Sha256Digest::of(DROPPED_TEXT.as_bytes()).to_hex(),
        "screenshots": screenshots,
        "asked": format!("{ASKED_HOST}:443"),
        "flood": FLOOD_EVENTS,
    });
    let seen = BrowserWalk::start(&fixture, &settings)
        .serve(&mut fixture)
        .await;
    for list in ["findings", "violations", "failures", "invalid"] {
        assert_eq!(seen[list], json!([]), "{list}: {seen}");
    }
    for (page, width) in seen["widths"].as_object().unwrap() {
        assert!(width.as_u64().unwrap() <= 400, "{page} is {width} wide");
    }
    let text = |name: &str| seen[name].as_str().unwrap().to_owned();
    assert!(text("delivery").contains("report.txt") && text("delivery").contains("copied"));
    assert_eq!(text("verdict"), "refused");
    assert!(seen["steps"].as_u64().unwrap() > 5, "{seen}");
    assert!(text("placed").contains("dropped.txt"), "{seen}");
    let placed = std::fs::read_to_string(fixture.folder.path().join("box/dropped.txt")).unwrap();
    assert_eq!(
        (placed.as_str(), text("downloaded").as_str()),
        (DROPPED_TEXT, DROPPED_TEXT)
    );
    assert!(text("account").contains("accepted"), "{seen}");
    assert!(text("backend").contains("ready"), "{seen}");
    assert_eq!(text("content"), DROPPED_TEXT);
    assert!(text("holders").contains("No delivery on record"), "{seen}");
    assert!(text("plan").contains("would be started again"), "{seen}");
    assert_eq!(text("firstFocus"), "Skip to the content");
    check_playground(&seen);
    check_flood(&seen);
    assert!(text("answered").contains("may reach"), "{seen}");
    assert!(text("replay").contains("with another outcome"), "{seen}");
    assert!(text("outage").contains("The bus does not work"), "{seen}");
    drop(server);
}
