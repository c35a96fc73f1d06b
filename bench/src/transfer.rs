//! Files between sandboxes, the store and people, compared with the programs that a user would use.
//!
//! (e) containers against `docker cp` and `docker exec cat`, (f) hosts against `scp` with a shared master, (g) a file
//! from a container to a person against `docker cp` and `curl -F`, (h) a hundred concurrent transfers, (i) memory, (r)
//! the first byte of a preview against `docker cp`. Our transfers go through the service: policy, proof, SHA-256 during
//! the copy, the S3 store. The files are created beforehand, and both sides move the same files. Every round has new
//! files, because the store would not write the same content twice.

mod crowd;
mod delivery;
mod docker;
mod fixture;
pub(crate) mod memory;
mod preview;
mod ssh;

use dray_testkit::docker::{ContainerOptions, DockerEngine};
use dray_testkit::sshd::{Sshd, SshdOptions};

pub(crate) use fixture::write_random_file;
use fixture::{IntegrityCheck, TransferFixture};

/// Sizes in bytes, and measured rounds.
const SIZES_AND_ROUNDS: [(u64, usize); 4] = [
    (1 << 10, 15),
    (25 << 20, 15),
    (100_000_000, 9),
    (1 << 30, 3),
];
/// Sizes in bytes over SSH, and measured rounds.
const SSH_SIZES: [(u64, usize); 2] = [(25 << 20, 15), (256 << 20, 5)];
/// Parts that can be measured separately.
pub(crate) const PART_NAMES: [&str; 7] = [
    "docker", "ssh", "exec", "delivery", "crowd", "memory", "preview",
];

/// Measures these parts, or everything when none is named.
pub(crate) async fn run(parts: &[String]) -> anyhow::Result<()> {
    let is_selected =
        |part: &str| parts.is_empty() || parts.iter().any(|selected| selected == part);
    let engine = DockerEngine::start();
    let sshd = Sshd::start(&SshdOptions::default());
    for proof in [IntegrityCheck::Digest, IntegrityCheck::State] {
        // A separate system for each kind of proof, because it is a setting of the service.
        let fixture = TransferFixture::start(&engine, &sshd, proof).await?;
        measure_parts(&fixture, &is_selected).await?;
        fixture.stop().await;
    }
    if is_selected("memory") {
        let container = engine.container(ContainerOptions::default());
        memory::run(&engine, &container).await?;
    }
    Ok(())
}

/// The parts that go through one system.
async fn measure_parts(
    fixture: &TransferFixture<'_>,
    is_selected: &dyn Fn(&str) -> bool,
) -> anyhow::Result<()> {
    for (size, rounds) in SIZES_AND_ROUNDS
        .into_iter()
        .filter(|_| is_selected("docker"))
    {
        docker::measure_get(fixture, size, rounds).await?;
        docker::measure_put(fixture, size, rounds).await?;
    }
    for (size, rounds) in SSH_SIZES.into_iter().filter(|_| is_selected("ssh")) {
        ssh::measure_get(fixture, size, rounds).await?;
        ssh::measure_put(fixture, size, rounds).await?;
    }
    if is_selected("exec") {
        docker::measure_exec(fixture, 25 << 20, 9).await?;
    }
    if is_selected("delivery") {
        delivery::run(fixture, 25 << 20, 9).await?;
    }
    // A preview uses no digests, so it is measured with one system.
    if is_selected("preview") && matches!(fixture.proof, IntegrityCheck::Digest) {
        preview::run(fixture).await?;
    }
    if is_selected("crowd") {
        crowd::run(fixture).await?;
    }
    Ok(())
}
