//! The gRPC endpoint with a client that is not ours: grpcio, with health and reflection.
//!
//! It runs in the Python environment of the tests: `cargo xtask test` makes it and names its interpreter in
//! `DRAY_TEST_PYTHON`; without that it is made here, in the same place.

#![expect(
    clippy::unwrap_used,
    clippy::unused_async,
    reason = "a test that fails is what these are for; handlers are async whether they wait or not"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use dray_proto::v1;
use dray_service::{
    Context, Host, Request, Router, Running, Service, Settings, StartError, config,
};
use dray_types::{Fault, FaultCode};
use prost::Message as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Section {}

impl config::Section for Section {}

/// Answers with the URL, or refuses.
#[derive(Debug)]
struct Mirror;

impl Mirror {
    async fn fetch(
        self: Arc<Self>,
        request: Request<v1::FetchRequest>,
    ) -> Result<v1::FetchReply, Fault> {
        if request.body.url == "refuse" {
            return Err(Fault::new(FaultCode::Denied, "Refused.").detail("because"));
        }
        Ok(v1::FetchReply {
            name: format!("{} for {}", request.body.url, request.meta.tenant),
            ..v1::FetchReply::default()
        })
    }
}

impl Service for Mirror {
    const NAME: &'static str = "mirror";
    type Config = Section;

    async fn start(_: Section, _: &Context) -> Result<Self, StartError> {
        Ok(Self)
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router.answer(Self::fetch)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

fn interpreter() -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test command names the interpreter here"
    )]
    let named = std::env::var_os("DRAY_TEST_PYTHON");
    if let Some(named) = named {
        return named.into();
    }
    let interpreter = root().join("target/python/bin/python");
    if !interpreter.exists() {
        succeed(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(root().join("target/python")),
        );
        let mut install = Command::new(&interpreter);
        install.args(["-m", "pip", "install", "--quiet", "--requirement"]);
        succeed(install.arg(root().join("tests/python/requirements.txt")));
    }
    interpreter
}

fn succeed(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    assert!(
        status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).unwrap()
}

/// What the client prints for one URL.
async fn ask(running: &Running, url: &'static str) -> serde_json::Value {
    let address = running.addresses().grpc.unwrap().to_string();
    let printed = tokio::task::spawn_blocking(move || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc_client.py");
        succeed(
            Command::new(interpreter())
                .arg(script)
                .args([&address, url]),
        )
    });
    serde_json::from_str(&printed.await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_in_another_language_finds_calls_and_understands_refusals() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::embedded(folder.path())
        .set("limits.free_disk_percent", "0")
        .set("http.check_interval", "20ms");
    let running = Host::new(settings).with::<Mirror>().start().await.unwrap();

    let answer = ask(&running, "http://example.org/").await;
    assert_eq!(answer["name"], "http://example.org/ for acme");
    let services: Vec<&str> = answer["services"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|name| name.as_str())
        .collect();
    assert!(services.contains(&"dray.v1.Egress"), "{services:?}");

    let refusal = ask(&running, "refuse").await;
    assert_eq!(
        (&refusal["code"], &refusal["message"]),
        (&"PERMISSION_DENIED".into(), &"Refused.".into())
    );
    let details = refusal["details"].as_str().unwrap();
    let bytes: Vec<u8> = (0..details.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&details[at..at + 2], 16).unwrap())
        .collect();
    let status = tonic_types::pb::Status::decode(bytes.as_slice()).unwrap();
    assert_eq!(
        status.details[0].type_url,
        "type.googleapis.com/dray.v1.Fault"
    );
    let fault = Fault::from(v1::Fault::decode(status.details[0].value.as_slice()).unwrap());
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Denied, "because")
    );
    running.stop().await;
}
