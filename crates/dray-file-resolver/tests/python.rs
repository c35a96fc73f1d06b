//! Publishers in other languages against a real server with the shipped accounts: the example that uses only the
//! contracts of this project, and the clients.

#![cfg(test)]

use std::path::Path;
use std::process::{Command, Output};

use dray_bus::{Bus, NatsOptions, Topology, test_bus};
use dray_file_resolver::FileResolver;
use dray_service::{Host, RunningHost, Settings};
use dray_testkit::dial::DialCore;
use dray_testkit::nats::{NatsServer, NatsServerOptions};
use dray_testkit::python::interpreter;
use dray_types::{Secret, TenantId};
use prost::Message as _;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The password of every identity of a test server.
const TEST_PASSWORD: &str = "test-password";

/// A server with the shipped accounts and permissions.
fn nats_with_shipped_accounts() -> NatsServer {
    let accounts = std::fs::read_to_string(root().join("deploy/nats/accounts.conf")).unwrap();
    let lines: Vec<_> = accounts
        .lines()
        .map(|line| match line.split_once("$DRAY_") {
            Some((before, variable)) if variable.ends_with("_PASSWORD") => {
                format!("{before}{TEST_PASSWORD:?}")
            }
            _ => line.to_owned(),
        })
        .collect();
    NatsServerOptions::default()
        .config(&lines.join("\n"))
        .start()
}

async fn connect(nats: &NatsServer, user: &str) -> Bus {
    let options = NatsOptions {
        user: user.to_owned(),
        password: Secret::new(TEST_PASSWORD),
        ..NatsOptions::at(nats.url()).named(user)
    };
    test_bus::connect(&options).await
}

struct PublisherFixture {
    nats: NatsServer,
    core: DialCore,
    bus: Bus,
    directory: tempfile::TempDir,
    running: Option<RunningHost>,
}

impl PublisherFixture {
    async fn start() -> Self {
        let nats = nats_with_shipped_accounts();
        let topology = Topology::new(1, 1 << 30).with_publishers(&[TenantId::new("acme").unwrap()]);
        let provisioner = connect(&nats, "provisioner").await;
        let mismatches = provisioner.apply_topology(&topology).await.unwrap();
        assert_eq!(mismatches, []);
        let core = DialCore::start().await.unwrap();
        core.add_key("key", "b");
        let bus = connect(&nats, "file-resolver").await;
        let mut fixture = Self {
            nats,
            core,
            bus,
            directory: tempfile::tempdir().unwrap(),
            running: None,
        };
        fixture.start_resolver().await;
        fixture
    }

    async fn start_resolver(&mut self) {
        let settings = Settings::embedded(self.directory.path())
            .set("limits.free_disk_percent", "0")
            .set("file-resolver.dial_url", self.core.url())
            .set("file-resolver.tenants.acme.api_key", "key")
            .bus(self.bus.clone());
        let started = Host::new(settings).with::<FileResolver>().start().await;
        self.running = Some(started.unwrap());
    }

    /// The input of a client's tests, as JSON: the address of the bus, and references to a small and a large file.
    fn scenario(&self) -> serde_json::Value {
        self.core.put("b/note.txt", "Grüße", "text/plain");
        self.core.put("b/large", vec![b'x'; 120_000], "image/x");
        serde_json::json!({
            "servers": self.nats.url(),
            "tenant": "acme",
            "password": TEST_PASSWORD,
            "note": "file:text::files/b/note.txt",
            "large": "file:base64::files/b/large",
        })
    }

    /// Runs the example for a tenant, as that identity; the runtime continues serving meanwhile.
    async fn run_as(&self, user: &str, tenant: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(interpreter("nats"));
        let address = self.nats.url().replace("nats://", "");
        command
            .arg(root().join("examples/python/resolve_tool_call.py"))
            .args([
                "--nats",
                &format!("nats://{user}:{TEST_PASSWORD}@{address}"),
            ])
            .args(["--tenant", tenant])
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.run_as("publisher-acme", "acme", arguments).await
    }

    async fn publish(&self, arguments: &str) -> Output {
        self.run(&["--arguments", arguments]).await
    }
}

/// Compares exit code, standard output and standard error with the expected ones.
fn check(output: &Output, code: i32, out: &str, error: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), out);
    assert_eq!(errors.trim_end(), error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_example_resolves_tool_calls_over_nats() {
    let fixture = PublisherFixture::start().await;
    fixture.core.put("b/note.txt", "Grüße", "text/plain");
    fixture.core.put("b/large", vec![b'x'; 120_000], "image/x");
    check(
        &fixture
            .publish(r#"{"note": "file:text::files/b/note.txt", "n": 1e400}"#)
            .await,
        0,
        r#"{"note": "Grüße", "n": 1e400}"#,
        "/note: text of files/b/note.txt, 7 bytes",
    );
    check(
        &fixture
            .publish(r#"{"note": "file:text::files/b/none.txt"}"#)
            .await,
        1,
        "",
        "Parameter note is invalid, try to call the tool again with fixed exception: \
         File files/b/none.txt could not be loaded: it does not exist.\nCheck the path of the file.",
    );
    let output = fixture
        .publish(r#"{"f": "file:base64::files/b/large"}"#)
        .await;
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &shown["claim"]["size"]),
        (Some(0), &160_009.into())
    );
}

#[test]
fn the_python_example_repeats_publications_and_ignores_what_no_service_published() {
    let example = root().join("examples/python");
    succeed(
        Command::new(interpreter("nats"))
            .args(["-W", "error"])
            .arg(root().join("tests/python/publisher_example.py"))
            .env("PYTHONPATH", example)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_publishes_and_learns_outcomes_over_nats() {
    let fixture = PublisherFixture::start().await;
    let scenario = fixture.scenario();
    let mut command = Command::new(interpreter("nats, grpc"));
    command
        .args(["-m", "unittest", "tests/publisher.py"])
        .current_dir(root().join("clients/python"))
        .env("PYTHONPATH", root().join("clients/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DRAYAGE_SCENARIO", scenario.to_string());
    tokio::task::spawn_blocking(move || succeed(&mut command))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_typescript_client_publishes_and_learns_outcomes_over_nats() {
    let fixture = PublisherFixture::start().await;
    let scenario = fixture.scenario();
    tokio::task::spawn_blocking(move || {
        let mut command = Command::new("node");
        command
            .args(["--test", "test/publisher.test.js"])
            .current_dir(dray_testkit::node::client_project())
            .env("DRAYAGE_SCENARIO", scenario.to_string());
        dray_testkit::node::run(&mut command)
    })
    .await
    .unwrap();
}

const NOTE_ARGUMENTS: &str = r#"{"note": "file:text::files/b/note.txt"}"#;
const OPERATION_ID: &str = "0197f0c0-8e3a-7c55-9d3b-5f1c2ab34cde";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_was_away_learns_the_outcome_and_only_of_its_tenant() {
    let mut fixture = PublisherFixture::start().await;
    fixture.core.put("b/note.txt", "hello", "text/plain");
    // No resolver runs, so the publisher stops waiting before the event arrives.
    fixture.running.take().unwrap().stop().await;
    let deadline = ["--operation", OPERATION_ID, "--timeout", "1"];
    let given_up = fixture
        .run(&[&deadline[..], &["--arguments", NOTE_ARGUMENTS]].concat())
        .await;
    assert_eq!(given_up.status.code(), Some(2), "{given_up:?}");
    assert!(String::from_utf8_lossy(&given_up.stderr).contains(OPERATION_ID));
    fixture.bus = connect(&fixture.nats, "file-resolver").await;
    fixture.start_resolver().await;

    let response = fixture.run(&["--operation", OPERATION_ID]).await;
    assert_eq!(response.status.code(), Some(1), "{response:?}");
    let message = String::from_utf8_lossy(&response.stderr).into_owned();
    assert!(message.contains("did not finish in time"), "{message}");
    let repeated = fixture
        .run(&["--operation", OPERATION_ID, "--arguments", NOTE_ARGUMENTS])
        .await;
    assert_eq!(
        repeated.stderr, response.stderr,
        "the same work, the same end"
    );

    let missed = fixture.run(&["--missed"]).await;
    let line: serde_json::Value = serde_json::from_slice(&missed.stdout).unwrap();
    assert_eq!(
        (&line["operation"], &line["resolved"]),
        (&OPERATION_ID.into(), &false.into())
    );
    let nothing_more = fixture.run(&["--missed"]).await;
    assert_eq!(
        (nothing_more.status.code(), nothing_more.stdout.len()),
        (Some(0), 0),
        "{nothing_more:?}"
    );

    // Another tenant's outcome is refused by the server, before the request reaches any service.
    let foreign = ["--operation", OPERATION_ID, "--timeout", "1"];
    let foreign = fixture.run_as("publisher-acme", "other", &foreign).await;
    assert_ne!(foreign.status.code(), Some(1), "{foreign:?}");
    assert!(foreign.stdout.is_empty(), "{foreign:?}");
}

/// Every field of every message: `dray.v1.Fault.code 1 14`.
const LIST_FIELDS: &str = "
import importlib, pathlib, dray.v1
# All that stand there: a list by hand would miss the next one.
names = [path.stem for path in pathlib.Path(list(dray.v1.__path__)[0]).glob('*_pb2.py')]
for module in (importlib.import_module(f'dray.v1.{name}') for name in names):
    for message in module.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            print(field.full_name, field.number, field.type)
";

#[test]
fn the_generated_python_modules_are_those_of_the_contracts() {
    let contracts =
        prost_types::FileDescriptorSet::decode(dray_proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut expected = Vec::new();
    for file in contracts
        .file
        .iter()
        .filter(|file| file.package() == "dray.v1")
    {
        for message in &file.message_type {
            for field in &message.field {
                let (name, number, kind) = (field.name(), field.number(), field.r#type() as i32);
                expected.push(format!("dray.v1.{}.{name} {number} {kind}", message.name()));
            }
        }
    }
    let listed = succeed(
        Command::new(interpreter("nats"))
            .args(["-c", LIST_FIELDS])
            .env("PYTHONPATH", root().join("examples/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    );
    let mut listed: Vec<_> = listed.lines().collect();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(
        listed, expected,
        "generate the modules again: examples/python/README.md"
    );
}
