//! Tests of the gRPC endpoint with an independent client: grpcio, with health and reflection.

#![expect(
    clippy::unwrap_used,
    clippy::unused_async,
    reason = "a test that fails is what these are for; handlers are async whether they wait or not"
)]

use std::path::Path;
use std::sync::Arc;

use dray_proto::v1;
use dray_service::{
    Host, Request, Router, RunningHost, Service, ServiceContext, Settings, StartError, config,
};
use dray_testkit::python;
use dray_types::{Fault, FaultCode};
use prost::Message as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct MirrorConfig {}

impl config::Section for MirrorConfig {}

/// Responds with the URL, or refuses.
#[derive(Debug)]
struct MirrorService;

impl MirrorService {
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

impl Service for MirrorService {
    const NAME: &'static str = "mirror";
    type Config = MirrorConfig;

    async fn start(_: MirrorConfig, _: &ServiceContext) -> Result<Self, StartError> {
        Ok(Self)
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router.answer(Self::fetch)
    }
}

/// The output of the client for one URL.
async fn ask(running: &RunningHost, url: &str) -> serde_json::Value {
    let address = running.addresses().grpc.unwrap().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc_client.py");
    let mut client = Command::new(python::interpreter("grpc"));
    python::run_json(client.arg(script).args([&address, url])).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_in_another_language_makes_calls_and_reads_faults() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings::embedded(directory.path())
        .set("limits.free_disk_percent", "0")
        .set("http.check_interval", "20ms");
    let running = Host::new(settings)
        .with::<MirrorService>()
        .start()
        .await
        .unwrap();

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
