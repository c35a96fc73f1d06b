//! The Python example against a real server: a client with nothing of ours but the contracts.

#![cfg(test)]

use std::path::Path;
use std::process::{Command, Output};

use dray_bus::{Bus, NatsOptions, Topology};
use dray_file_resolver::FileResolver;
use dray_service::{Host, Running, Settings};
use dray_testkit::dial::DialCore;
use dray_testkit::nats::NatsServer;
use dray_testkit::python::interpreter;
use dray_types::Clock;
use opentelemetry::metrics::MeterProvider as _;
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

struct World {
    nats: NatsServer,
    core: DialCore,
    _folder: tempfile::TempDir,
    _running: Running,
}

impl World {
    async fn start() -> Self {
        let nats = NatsServer::start();
        let options = NatsOptions {
            servers: vec![nats.url()],
            ..NatsOptions::default()
        };
        let meter = opentelemetry::metrics::noop::NoopMeterProvider::new().meter("test");
        let bus = Bus::connect(&options, Clock::system(), &meter)
            .await
            .unwrap();
        bus.apply_topology(&Topology::new(1, 1 << 30))
            .await
            .unwrap();
        let core = DialCore::start().await.unwrap();
        core.add_key("key", "b");
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::embedded(folder.path())
            .set("limits.free_disk_percent", "0")
            .set("file-resolver.dial_url", core.url())
            .set("file-resolver.tenants.acme.api_key", "key")
            .bus(bus);
        let running = Host::new(settings)
            .with::<FileResolver>()
            .start()
            .await
            .unwrap();
        Self {
            nats,
            core,
            _folder: folder,
            _running: running,
        }
    }

    /// Runs the example; the runtime goes on serving meanwhile.
    async fn publish(&self, arguments: &str) -> Output {
        let mut command = Command::new(interpreter("nats"));
        command
            .arg(root().join("examples/python/resolve_tool_call.py"))
            .args([
                "--nats",
                &self.nats.url(),
                "--tenant",
                "acme",
                "--arguments",
                arguments,
            ])
            .env("PYTHONDONTWRITEBYTECODE", "1");
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }
}

/// Exit code, standard output and the last line of standard error.
fn check(output: &Output, code: i32, out: &str, error: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), out);
    assert_eq!(errors.trim_end(), error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_example_resolves_tool_calls_over_nats() {
    let world = World::start().await;
    world.core.put("b/note.txt", "Grüße", "text/plain");
    world.core.put("b/large", vec![b'x'; 120_000], "image/x");
    check(
        &world
            .publish(r#"{"note": "file:text::files/b/note.txt", "n": 1e400}"#)
            .await,
        0,
        r#"{"note": "Grüße", "n": 1e400}"#,
        "/note: text of files/b/note.txt, 7 bytes",
    );
    check(
        &world
            .publish(r#"{"note": "file:text::files/b/none.txt"}"#)
            .await,
        1,
        "",
        "Parameter note is invalid, try to call the tool again with fixed exception: \
         File files/b/none.txt could not be loaded: it does not exist.\nCheck the path of the file.",
    );
    let output = world
        .publish(r#"{"f": "file:base64::files/b/large"}"#)
        .await;
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &shown["claim"]["size"]),
        (Some(0), &160_009.into())
    );
}

/// Every field of every message: `dray.v1.Fault.code 1 14`.
const LIST_FIELDS: &str = "
from dray.v1 import artifact_pb2, common_pb2, delivery_pb2, egress_pb2
from dray.v1 import file_pb2, reading_pb2, sandbox_pb2, session_pb2, toolcall_pb2
for module in (artifact_pb2, common_pb2, delivery_pb2, egress_pb2,
               file_pb2, reading_pb2, sandbox_pb2, session_pb2, toolcall_pb2):
    for message in module.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            print(field.full_name, field.number, field.type)
";

#[test]
fn the_generated_python_modules_are_those_of_the_contracts() {
    let contracts = prost_types::FileDescriptorSet::decode(dray_proto::DESCRIPTORS).unwrap();
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
