//! The system under measurement, and the files that both sides move.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use dray_bus::{Bus, CallError, Meta};
use dray_platform_delivery::PlatformDelivery;
use dray_platform_telegram::fake_server::FakeTelegram;
use dray_proto::contract::Call;
use dray_proto::v1;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::{Host, RunningHost, Settings};
use dray_store::{ArtifactLabel, Store};
use dray_testkit::docker::{Container, ContainerOptions, DockerEngine};
use dray_testkit::sshd::Sshd;
use dray_types::{Deadline, Fault, FaultCode, OperationId, RetryAdvice, TenantId};
use tokio::process::Command;

use crate::harness::{BenchComparison, RatioTarget, SampleSet};

/// Time for one measured operation.
const OPERATION_TIMEOUT: Duration = Duration::from_mins(5);
/// Bytes per write to the store.
const CHUNK_BYTES: usize = 1 << 20;
/// Account of the fake platform.
const FAKE_ACCOUNT: &str = "platform-delivery.accounts.bench.telegram";

/// How the integrity of large files is verified.
#[derive(Clone, Copy, Debug)]
pub(super) enum IntegrityCheck {
    /// Digests in the sandbox; the default.
    Digest,
    /// Size, inode and times, which an operator may choose for files above 2 MiB.
    State,
}

impl IntegrityCheck {
    /// Text for names of rows.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Digest => "proved by digests",
            Self::State => "proved by state",
        }
    }

    /// Value of `sandbox-transfer.digest_always_up_to`.
    fn digest_limit(self) -> &'static str {
        match self {
            Self::Digest => "1024GiB",
            Self::State => "2MiB",
        }
    }
}

/// The fixture of a measurement.
pub(super) struct TransferFixture<'a> {
    pub(super) engine: &'a DockerEngine,
    pub(super) sshd: &'a Sshd,
    /// The container of most measurements; the others create their own.
    pub(super) container: Container,
    pub(super) telegram: FakeTelegram,
    pub(super) proof: IntegrityCheck,
    running: RunningHost,
    directory: tempfile::TempDir,
    next: AtomicUsize,
}

impl<'a> TransferFixture<'a> {
    pub(super) async fn start(
        engine: &'a DockerEngine,
        sshd: &'a Sshd,
        proof: IntegrityCheck,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let telegram = FakeTelegram::start().await?;
        let control = directory.path().join("ssh");
        let settings = embedded_settings(directory.path(), engine)
            .set("sandbox-transfer.preview.listen", "127.0.0.1:0")
            .set("sandbox-transfer.kinds", "[\"docker\", \"ssh\"]")
            .set("sandbox-transfer.digest_always_up_to", proof.digest_limit())
            .set(
                "sandbox-transfer.ssh.identity_file",
                path_text(&sshd.key())?,
            )
            .set(
                "sandbox-transfer.ssh.control_directory",
                path_text(&control)?,
            )
            .set("sandbox-transfer.ssh.config_file", "/dev/null")
            .set("platform-delivery.allow_targets", "true")
            .set(format!("{FAKE_ACCOUNT}.base_url"), telegram.url())
            .set(format!("{FAKE_ACCOUNT}.token"), telegram.token().expose());
        let running = Host::new(settings)
            .with::<SandboxTransfer>()
            .with::<PlatformDelivery>()
            .start()
            .await
            .context("the services did not start")?;
        running.ready().await;
        Ok(Self {
            engine,
            sshd,
            container: engine.container(ContainerOptions {
                // A memory file system, which the archive calls do not see and commands have to read.
                tmpfs: vec![("/memory".into(), "mode=1777".into())],
                ..ContainerOptions::default()
            }),
            telegram,
            proof,
            running,
            directory,
            next: AtomicUsize::new(0),
        })
    }

    pub(super) async fn stop(self) {
        self.running.stop().await;
    }

    /// A number that no earlier call returned, for names of files.
    pub(super) fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A path on this host.
    pub(super) fn local(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn bus(&self) -> &Bus {
        &self.running.context().bus
    }

    pub(super) fn meta(&self) -> Meta {
        call_meta(&self.running)
    }

    pub(super) async fn get(&self, sandbox: &str, path: &str, size: u64) -> anyhow::Result<()> {
        get_file(&self.running, sandbox, path, size).await
    }

    /// Puts a stored file, under a new name.
    pub(super) async fn put(
        &self,
        sandbox: &str,
        directory: &str,
        claim: v1::Claim,
    ) -> anyhow::Result<()> {
        let name = format!("put-{}", self.next());
        put_file(&self.running, sandbox, directory, name, claim).await
    }

    /// Creates a local file with unique content.
    pub(super) fn create_file(&self, name: &str, size: u64) -> anyhow::Result<PathBuf> {
        let path = self.local(name);
        write_random_file(&path, size)?;
        Ok(path)
    }

    /// Stores the content of a local file.
    pub(super) async fn store(&self, path: &Path) -> anyhow::Result<v1::Claim> {
        store_file(&self.running.context().store, path).await
    }

    /// Waits until new files are old enough that later changes to them can be detected.
    pub(super) async fn settle() {
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// Settings of an embedded system that reaches containers.
pub(super) fn embedded_settings(directory: &Path, engine: &DockerEngine) -> Settings {
    let endpoint = format!("unix://{}", engine.socket().display());
    Settings::embedded(directory)
        .set("limits.free_disk_percent", "0")
        .set("sandbox-transfer.docker.endpoint", endpoint)
        .set(
            "sandbox-transfer.policy.roots",
            "[\"/workspace\", \"/memory\", \".\", \"~\"]",
        )
}

pub(super) fn call_meta(running: &RunningHost) -> Meta {
    let now = running.context().clock.now_ms();
    Meta::new(TenantId::default(), Deadline::after(now, OPERATION_TIMEOUT))
}

pub(super) async fn get_file(
    running: &RunningHost,
    sandbox: &str,
    path: &str,
    size: u64,
) -> anyhow::Result<()> {
    let request = v1::GetSandboxFileRequest {
        sandbox: Some(sandbox_ref(sandbox)),
        path: path.as_bytes().to_vec(),
        ..v1::GetSandboxFileRequest::default()
    };
    let file = call_with_retry(running, &request).await?;
    let receipt = file.receipt.unwrap_or_default();
    // A transfer that is too short would look fast.
    anyhow::ensure!(receipt.bytes == size, "{receipt:?}");
    Ok(())
}

pub(super) async fn put_file(
    running: &RunningHost,
    sandbox: &str,
    directory: &str,
    name: String,
    claim: v1::Claim,
) -> anyhow::Result<()> {
    let request = v1::PutSandboxFileRequest {
        sandbox: Some(sandbox_ref(sandbox)),
        claim: Some(claim),
        directory: directory.as_bytes().to_vec(),
        name: name.into_bytes(),
        ..v1::PutSandboxFileRequest::default()
    };
    let placed = call_with_retry(running, &request).await?;
    anyhow::ensure!(!placed.existed, "the file existed already");
    Ok(())
}

/// Sends a request, and repeats it after the delay in the response of a busy service.
async fn call_with_retry<C: Call>(running: &RunningHost, request: &C) -> anyhow::Result<C::Reply> {
    let meta = call_meta(running);
    loop {
        match running.context().bus.call(&meta, request).await {
            Err(CallError::Fault(Fault {
                code: FaultCode::RateLimited,
                retry: RetryAdvice::After(pause),
                ..
            // The delay is measured, because a caller of a busy service waits as well.
            })) => tokio::time::sleep(pause).await,
            other => return Ok(other?),
        }
    }
}

/// Stores the content of a local file.
pub(super) async fn store_file(store: &Store, path: &Path) -> anyhow::Result<v1::Claim> {
    let mut writer = store.writer(&TenantId::default(), &OperationId::mint(), 1);
    let mut file = tokio::fs::File::open(path).await?;
    loop {
        let mut chunk = bytes::BytesMut::with_capacity(CHUNK_BYTES);
        if tokio::io::AsyncReadExt::read_buf(&mut file, &mut chunk).await? == 0 {
            break;
        }
        writer.write(chunk.freeze()).await?;
    }
    let label = ArtifactLabel::new("application/octet-stream", "fresh");
    Ok(writer.finish(label).await?.into())
}

pub(super) fn sandbox_ref(sandbox: &str) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(v1::sandbox_ref::Sandbox::Address(sandbox.to_owned())),
    }
}

/// Writes random content, which no compression or deduplication makes smaller.
pub(crate) fn write_random_file(path: &Path, size: u64) -> anyhow::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut random = std::io::Read::take(std::fs::File::open("/dev/urandom")?, size);
    std::io::copy(&mut random, &mut file)?;
    Ok(())
}

pub(super) fn to_comparison(
    name: String,
    other_program: &str,
    (baseline, ours): (Vec<Duration>, Vec<Duration>),
) -> BenchComparison {
    BenchComparison {
        name,
        baseline: SampleSet::new(format!("{other_program} (includes starting it)"), baseline),
        ours: SampleSet::new("dray: policy, proof, SHA-256, S3 store", ours),
        target: RatioTarget::ThroughputAtLeast(1.0),
    }
}

/// Runs a program of the other side.
pub(super) async fn run_command(mut command: Command) -> anyhow::Result<()> {
    // The output of the program is not a part of the report.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let program = command.as_std().get_program().to_owned();
    let program = program.display();
    let status = command
        .status()
        .await
        .with_context(|| format!("{program} is needed"))?;
    anyhow::ensure!(status.success(), "{program} failed");
    Ok(())
}

/// The Docker client on the engine of the measurement.
pub(super) fn docker_client(engine: &DockerEngine) -> Command {
    let mut command = Command::new("docker");
    command
        .arg("--host")
        .arg(format!("unix://{}", engine.socket().display()));
    command
}

pub(super) fn path_text(path: &Path) -> anyhow::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .context("a path is not UTF-8")
}
