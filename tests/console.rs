//! The console of `dray up` in Chromium, over NATS, as a person uses it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use bytes::Bytes;
use dray_bus::{Bus, Meta, NatsOptions, Topology};
use dray_proto::contract::{schema_name, work_subject};
use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, Deadline, Sha256Digest, TenantId};
use opentelemetry::metrics::MeterProvider as _;
use serde_json::{Value, json};

use crate::support::{self, node, up::UpServer};

/// Packages of npm that control and check the pages.
const BROWSER_PACKAGES: [&str; 2] = ["playwright-core@1.64.1", "axe-core@4.14.1"];
/// Time after which work counts as too late.
const WORK_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(5);
/// Session whose sandbox and chat are directories of the test.
const SESSION_ID: &str = "walk";
/// Content of the file that the browser drops on a sandbox; it is large enough to go through the store.
const DROPPED_TEXT: &str = "dropped";
/// Id of the delivery that the pages show.
const DELIVERY_ID: &str = "walk-delivery";

/// A system over NATS with a session, a delivery and a dead letter.
struct ConsoleFixture {
    folder: tempfile::TempDir,
    nats: NatsServer,
    bus: Bus,
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
        Self { folder, nats, bus }
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
        let options = [
            ["--nats", url.as_str()],
            ["--console", "127.0.0.1:0"],
            ["--set", roots.as_str()],
            ["--set", "platform-delivery.cli=true"],
            ["--set", "platform-delivery.allow_targets=true"],
            ["--set", "egress-fetcher.enabled=true"],
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
            .current_dir(node::packages("node-console", &BROWSER_PACKAGES))
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

#[tokio::test(flavor = "multi_thread")]
async fn a_person_walks_through_every_page_and_sees_an_outage_pass() {
    let mut fixture = ConsoleFixture::start().await;
    let server = fixture.serve();
    fixture.deliver();
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
    });
    let seen = BrowserWalk::start(&fixture, &settings)
        .serve(&mut fixture)
        .await;
    for list in ["findings", "violations", "failures"] {
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
    assert!(text("outage").contains("The bus does not work"), "{seen}");
    drop(server);
}
