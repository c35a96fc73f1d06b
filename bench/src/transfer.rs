//! (e) Files out of and into a container against `docker cp`, and (f) over SSH against `scp` with a shared master.
//!
//! Ours go through the service: policy, digest in the sandbox before and after, SHA-256 on the way, the S3 store.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use dray_bus::Meta;
use dray_proto::v1;
use dray_sandbox_transfer::SandboxTransfer;
use dray_service::{Host, Running, Settings};
use dray_store::Label;
use dray_testkit::docker::{Container, ContainerOptions, Engine};
use dray_testkit::sshd::{Options, Sshd};
use dray_types::{Deadline, OperationId, TenantId};
use tokio::process::Command;

use crate::harness::{Aim, Comparison, Measured, side_by_side};
use crate::say;

/// Time for one measured operation.
const PATIENCE: Duration = Duration::from_mins(5);
/// Sizes and rounds.
const SIZES: [(u64, usize); 3] = [(1 << 10, 9), (25 << 20, 7), (1 << 30, 3)];
/// Bytes written at once where content is made.
const PIECE: usize = 1 << 20;

/// Measures containers, then SSH.
pub(crate) async fn run() -> anyhow::Result<()> {
    let engine = Engine::start();
    let container = engine.container(ContainerOptions::default());
    let sshd = Sshd::start(&Options::default());
    let world = World::start(&engine, &sshd).await?;
    for (size, rounds) in SIZES {
        say(&world
            .docker_get(&engine, &container, size, rounds)
            .await?
            .to_string());
        say(&world
            .docker_put(&engine, &container, size, rounds)
            .await?
            .to_string());
    }
    let (size, rounds) = (25 << 20, 7);
    say(&world.ssh_get(&sshd, size, rounds).await?.to_string());
    say(&world.ssh_put(&sshd, size, rounds).await?.to_string());
    world.running.stop().await;
    Ok(())
}

struct World {
    running: Running,
    folder: tempfile::TempDir,
    next: AtomicUsize,
}

impl World {
    async fn start(engine: &Engine, sshd: &Sshd) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let endpoint = format!("unix://{}", engine.socket().display());
        let control = folder.path().join("ssh");
        let settings = Settings::embedded(folder.path())
            .set("limits.free_disk_percent", "0")
            .set("sandbox-transfer.kinds", "[\"docker\", \"ssh\"]")
            .set("sandbox-transfer.docker.endpoint", endpoint)
            .set("sandbox-transfer.ssh.identity_file", text(&sshd.key())?)
            .set("sandbox-transfer.ssh.control_directory", text(&control)?)
            .set("sandbox-transfer.ssh.config_file", "/dev/null")
            .set(
                "sandbox-transfer.policy.roots",
                "[\"/workspace\", \".\", \"~\"]",
            );
        let running = Host::new(settings)
            .with::<SandboxTransfer>()
            .start()
            .await
            .context("the service did not start")?;
        running.ready().await;
        Ok(Self {
            running,
            folder,
            next: AtomicUsize::new(0),
        })
    }

    fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn meta(&self) -> Meta {
        let now = self.running.context().clock.now_ms();
        Meta::new(TenantId::default(), Deadline::after(now, PATIENCE))
    }

    async fn get(&self, sandbox: &str, path: &str, size: u64) -> anyhow::Result<()> {
        let request = v1::GetSandboxFileRequest {
            sandbox: Some(address(sandbox)),
            path: path.as_bytes().to_vec(),
            max_bytes: 0,
        };
        let bus = &self.running.context().bus;
        let file = bus.call(&self.meta(), &request).await?;
        let receipt = file.receipt.unwrap_or_default();
        anyhow::ensure!(receipt.bytes == size, "{receipt:?}");
        Ok(())
    }

    async fn put(&self, sandbox: &str, directory: &str, claim: v1::Claim) -> anyhow::Result<()> {
        let request = v1::PutSandboxFileRequest {
            sandbox: Some(address(sandbox)),
            claim: Some(claim),
            directory: directory.as_bytes().to_vec(),
            name: format!("put-{}", self.next()).into_bytes(),
            ..v1::PutSandboxFileRequest::default()
        };
        let bus = &self.running.context().bus;
        let placed = bus.call(&self.meta(), &request).await?;
        anyhow::ensure!(!placed.existed, "the file was there already");
        Ok(())
    }

    /// Stores fresh content, and keeps the same in a file for the other side.
    async fn fresh(&self, size: u64) -> anyhow::Result<(v1::Claim, std::path::PathBuf)> {
        let context = self.running.context();
        let path = self.folder.path().join("fresh");
        make(&path, size, self.next())?;
        let tenant = TenantId::default();
        let mut writer = context.store.writer(&tenant, &OperationId::mint(), 1);
        let mut left = tokio::fs::File::open(&path).await?;
        loop {
            let mut piece = bytes::BytesMut::with_capacity(PIECE);
            if tokio::io::AsyncReadExt::read_buf(&mut left, &mut piece).await? == 0 {
                break;
            }
            writer.write(piece.freeze()).await?;
        }
        let claim = writer
            .finish(Label::new("application/octet-stream", "fresh"))
            .await?;
        Ok((claim.into(), path))
    }

    async fn docker_get(
        &self,
        engine: &Engine,
        container: &Container,
        size: u64,
        rounds: usize,
    ) -> anyhow::Result<Comparison> {
        let sandbox = format!("docker:{}", container.id());
        let path = "/workspace/source";
        // The same file for both; our store would not write the same content twice, so it is touched between rounds.
        container.sh(&format!("head -c {size} /dev/urandom > {path}"));
        let target = self.folder.path().join("docker-cp");
        let (baseline, ours) = side_by_side(
            rounds,
            || {
                docker_cp(
                    engine,
                    format!("{}:{path}", container.id()),
                    text_of(&target),
                )
            },
            || async {
                let mark = self.next();
                container.sh(&format!(
                    "printf %08d {mark} | dd of={path} bs=8 count=1 conv=notrunc 2>/dev/null"
                ));
                self.get(&sandbox, path, size).await
            },
        )
        .await?;
        Ok(comparison(
            format!("(e) get {size} B from a container"),
            "docker cp",
            baseline,
            ours,
        ))
    }

    async fn docker_put(
        &self,
        engine: &Engine,
        container: &Container,
        size: u64,
        rounds: usize,
    ) -> anyhow::Result<Comparison> {
        let sandbox = format!("docker:{}", container.id());
        let (claim, source) = self.fresh(size).await?;
        container.sh("mkdir -p /workspace/in");
        let (baseline, ours) = side_by_side(
            rounds,
            || {
                let target = format!("{}:/workspace/in/cp-{}", container.id(), self.next());
                docker_cp(engine, text_of(&source), target)
            },
            || self.put(&sandbox, "/workspace/in", claim.clone()),
        )
        .await?;
        container.sh("rm -rf /workspace/in /workspace/source");
        Ok(comparison(
            format!("(e) put {size} B into a container"),
            "docker cp",
            baseline,
            ours,
        ))
    }

    async fn ssh_get(&self, sshd: &Sshd, size: u64, rounds: usize) -> anyhow::Result<Comparison> {
        let sandbox = format!(
            "ssh:{}@127.0.0.1:{}{}",
            sshd.user(),
            sshd.port(),
            text(&sshd.home())?
        );
        let path = sshd.home().join("source");
        make(&path, size, self.next())?;
        let target = self.folder.path().join("scp");
        let (baseline, ours) = side_by_side(
            rounds,
            || {
                self.scp(
                    sshd,
                    format!("127.0.0.1:{}", text_of(&path)),
                    text_of(&target),
                )
            },
            || async {
                make_mark(&path, self.next())?;
                self.get(&sandbox, &text_of(&path), size).await
            },
        )
        .await?;
        Ok(comparison(
            format!("(f) get {size} B over SSH"),
            "scp, shared master",
            baseline,
            ours,
        ))
    }

    async fn ssh_put(&self, sshd: &Sshd, size: u64, rounds: usize) -> anyhow::Result<Comparison> {
        let sandbox = format!(
            "ssh:{}@127.0.0.1:{}{}",
            sshd.user(),
            sshd.port(),
            text(&sshd.home())?
        );
        let (claim, source) = self.fresh(size).await?;
        let directory = text(&sshd.home())?;
        let (baseline, ours) = side_by_side(
            rounds,
            || {
                let target = format!("127.0.0.1:{directory}/cp-{}", self.next());
                self.scp(sshd, text_of(&source), target)
            },
            || self.put(&sandbox, &directory, claim.clone()),
        )
        .await?;
        Ok(comparison(
            format!("(f) put {size} B over SSH"),
            "scp, shared master",
            baseline,
            ours,
        ))
    }

    async fn scp(&self, sshd: &Sshd, from: String, to: String) -> anyhow::Result<()> {
        let control = self.folder.path().join("scp-master");
        let status = Command::new("scp")
            .args(["-q", "-F", "/dev/null", "-P", &sshd.port().to_string()])
            .args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
            .args(["-o", "ControlMaster=auto", "-o", "ControlPersist=60"])
            .args(["-o", &format!("ControlPath={}", control.display())])
            .args(["-o", &format!("User={}", sshd.user())])
            .arg("-i")
            .arg(sshd.key())
            .args([from, to])
            .status()
            .await
            .context("scp is needed: install the Debian package openssh-client")?;
        anyhow::ensure!(status.success(), "scp failed");
        Ok(())
    }
}

fn comparison(
    name: String,
    other: &str,
    baseline: Vec<Duration>,
    ours: Vec<Duration>,
) -> Comparison {
    Comparison {
        name,
        baseline: Measured::new(format!("{other} (includes starting it)"), baseline),
        ours: Measured::new("dray: policy, digests, S3 store", ours),
        aim: Aim::ThroughputAtLeast(1.0),
    }
}

async fn docker_cp(engine: &Engine, from: String, to: String) -> anyhow::Result<()> {
    let status = Command::new("docker")
        .arg("--host")
        .arg(format!("unix://{}", engine.socket().display()))
        .args(["cp", &from, &to])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .await
        .context("docker is needed: install the Debian package docker.io")?;
    anyhow::ensure!(status.success(), "docker cp failed");
    Ok(())
}

fn address(sandbox: &str) -> v1::SandboxRef {
    v1::SandboxRef {
        sandbox: Some(v1::sandbox_ref::Sandbox::Address(sandbox.to_owned())),
    }
}

/// Writes content that no other file has.
fn make(path: &Path, size: u64, mark: usize) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut file = std::io::BufWriter::with_capacity(PIECE, std::fs::File::create(path)?);
    let mut random = std::io::Read::take(std::fs::File::open("/dev/urandom")?, size);
    std::io::copy(&mut random, &mut file)?;
    file.flush()?;
    drop(file);
    make_mark(path, mark)
}

/// Makes the content another one.
fn make_mark(path: &Path, mark: usize) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(format!("{mark:08}").as_bytes())?;
    Ok(())
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .context("a path is not UTF-8")
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
