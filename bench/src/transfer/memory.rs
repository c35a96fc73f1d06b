//! (i) Peak memory of one transfer of 1 GiB. The process that moves it has the service and the client of the store, and
//! nothing else: the engine of the containers and the store are other processes.

use std::path::PathBuf;

use anyhow::Context as _;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::{Host, RunningHost, Settings};
use dray_store::embedded::EmbeddedS3;
use dray_testkit::docker::{Container, DockerEngine};
use dray_types::ByteSize;
use serde::{Deserialize, Serialize};

use super::fixture::{self, TransferFixture};
use crate::harness::verdict_text;
use crate::memory::process_status;
use crate::print_line;

const FILE_BYTES: u64 = 1 << 30;
/// Size of a transfer before the measurement, which creates lazy state.
const WARM_UP_BYTES: u64 = 4 << 20;
/// Most memory of one transfer (sandbox-transfer R-12).
const MAX_MEMORY_BYTES: u64 = 8 << 20;

/// The transfer that the separate process makes.
#[derive(Serialize, Deserialize)]
struct TransferOrder {
    put: bool,
    directory: PathBuf,
    docker: PathBuf,
    container: String,
    endpoint: String,
    access_key: String,
    secret_key: String,
}

/// Measures a get and a put, each in a separate process.
pub(super) async fn run(engine: &DockerEngine, container: &Container) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (s3, options) = EmbeddedS3::start(&directory.path().join("store")).await?;
    for (name, size) in [("large", FILE_BYTES), ("small", WARM_UP_BYTES)] {
        container.sh(&format!("head -c {size} /dev/urandom > /workspace/{name}"));
    }
    TransferFixture::settle().await;
    for put in [false, true] {
        let order = TransferOrder {
            put,
            directory: directory.path().join(if put { "put" } else { "get" }),
            docker: engine.socket(),
            container: container.id().to_owned(),
            endpoint: options.endpoint.clone(),
            access_key: options.access_key.expose().to_owned(),
            secret_key: options.secret_key.expose().to_owned(),
        };
        // Each direction has a process of its own, because memory that an allocator keeps after one would hide the
        // other's.
        let status = tokio::process::Command::new(std::env::current_exe()?)
            .args(["--transfer-once", &serde_json::to_string(&order)?])
            .status()
            .await?;
        anyhow::ensure!(status.success(), "the measuring process failed");
    }
    drop(s3);
    Ok(())
}

/// Moves a small file, then a large one, and reports how far the peak memory rose.
pub(crate) async fn transfer_once(order: &str) -> anyhow::Result<()> {
    let order: TransferOrder = serde_json::from_str(order)?;
    std::fs::create_dir_all(&order.directory)?;
    let running = start_services(&order).await?;
    let sandbox = format!("docker:{}", order.container);
    let store = &running.context().store;
    let (warm, large) = if order.put {
        let path = order.directory.join("content");
        fixture::write_random_file(&path, WARM_UP_BYTES)?;
        let warm = fixture::store_file(store, &path).await?;
        fixture::write_random_file(&path, FILE_BYTES)?;
        (Some(warm), Some(fixture::store_file(store, &path).await?))
    } else {
        (None, None)
    };
    transfer_step(&running, &sandbox, "small", WARM_UP_BYTES, warm).await?;
    // Writing 5 resets the high-water mark to the current use (`proc(5)`).
    std::fs::write("/proc/self/clear_refs", "5").context("the peak cannot be reset")?;
    let before = process_status("VmRSS:")?;
    transfer_step(&running, &sandbox, "large", FILE_BYTES, large).await?;
    let above = process_status("VmHWM:")?.saturating_sub(before);
    let verdict = verdict_text(above <= MAX_MEMORY_BYTES);
    let direction = if order.put { "put into" } else { "get from" };
    print_line(&format!(
        "(i) memory of one {direction} a container of {}: {} KiB above {} KiB, aim at most {}: {verdict}",
        ByteSize::bytes(FILE_BYTES),
        above >> 10,
        before >> 10,
        ByteSize::bytes(MAX_MEMORY_BYTES)
    ));
    running.stop().await;
    Ok(())
}

async fn start_services(order: &TransferOrder) -> anyhow::Result<RunningHost> {
    let docker = format!("unix://{}", order.docker.display());
    let settings = Settings::embedded(&order.directory)
        .set("limits.free_disk_percent", "0")
        .set("store.mode", "s3")
        .set("store.s3.endpoint", &order.endpoint)
        .set("store.s3.access_key", &order.access_key)
        .set("store.s3.secret_key", &order.secret_key)
        .set("sandbox-transfer.kinds", "[\"docker\"]")
        .set("sandbox-transfer.docker.endpoint", docker)
        .set("sandbox-transfer.policy.roots", "[\"/workspace\"]");
    let running = Host::new(settings)
        .with::<SandboxTransfer>()
        .start()
        .await
        .context("the service did not start")?;
    running.ready().await;
    Ok(running)
}

async fn transfer_step(
    running: &RunningHost,
    sandbox: &str,
    name: &str,
    size: u64,
    claim: Option<dray_proto::v1::Claim>,
) -> anyhow::Result<()> {
    if let Some(claim) = claim {
        let name = format!("{name}-in");
        fixture::put_file(running, sandbox, "/workspace", name, claim).await
    } else {
        let path = format!("/workspace/{name}");
        fixture::get_file(running, sandbox, &path, size).await
    }
}
