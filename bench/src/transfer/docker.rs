//! (e) Files out of and into a container.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::world::{TransferFixture, docker_client, path_text, run_command, to_comparison};
use crate::harness::side_by_side;
use crate::print_line;

/// Numbers the rounds of one side.
#[derive(Default)]
pub(super) struct RoundCounter(AtomicUsize);

impl RoundCounter {
    pub(super) fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Makes a file for each round, and one for the round that does not count.
pub(super) async fn fill_directory(
    world: &TransferFixture<'_>,
    folder: &str,
    size: u64,
    rounds: usize,
) {
    world.container.sh(&format!("mkdir -p {folder}"));
    // One more than counts, for the round that warms up.
    for round in 0..=rounds {
        let file = format!("{folder}/{round}");
        world
            .container
            .sh(&format!("head -c {size} /dev/urandom > {file}"));
    }
    TransferFixture::settle().await;
}

/// Out, against `docker cp`.
pub(super) async fn measure_get(
    world: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = format!("docker:{}", world.container.id());
    let folder = "/workspace/out";
    fill_directory(world, folder, size, rounds).await;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = path_text(&world.local("docker-cp"))?;
    let times = side_by_side(
        rounds,
        || {
            let mut command = docker_client(world.engine);
            let source = format!("{}:{folder}/{}", world.container.id(), theirs.next());
            command.args(["cp", &source, &target]);
            run_command(command)
        },
        || {
            let path = format!("{folder}/{}", ours.next());
            let sandbox = &sandbox;
            async move { world.get(sandbox, &path, size).await }
        },
    )
    .await?;
    world.container.sh(&format!("rm -rf {folder}"));
    let name = format!("(e) get {size} B from a container, {}", world.proof.words());
    print_line(&to_comparison(name, "docker cp", times).to_string());
    Ok(())
}

/// In, against `docker cp`.
pub(super) async fn measure_put(
    world: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = format!("docker:{}", world.container.id());
    let source = world.make("docker-in", size)?;
    // Stored before the clock runs: what is measured is the way into the sandbox.
    let claim = world.store(&source).await?;
    let source = path_text(&source)?;
    world.container.sh("mkdir -p /workspace/in");
    let times = side_by_side(
        rounds,
        || {
            let mut command = docker_client(world.engine);
            let target = format!("{}:/workspace/in/cp-{}", world.container.id(), world.next());
            command.args(["cp", &source, &target]);
            run_command(command)
        },
        || world.put(&sandbox, "/workspace/in", claim.clone()),
    )
    .await?;
    world.container.sh("rm -rf /workspace/in");
    let name = format!("(e) put {size} B into a container, {}", world.proof.words());
    print_line(&to_comparison(name, "docker cp", times).to_string());
    Ok(())
}

/// Out of a memory file system, which the archive calls do not see, against `docker exec cat`.
pub(super) async fn measure_exec(
    world: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = format!("docker:{}", world.container.id());
    let folder = "/memory/out";
    fill_directory(world, folder, size, rounds).await;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = world.local("docker-exec");
    let times = side_by_side(
        rounds,
        || {
            let path = format!("{folder}/{}", theirs.next());
            let target = std::fs::File::create(&target);
            async move {
                let mut command = docker_client(world.engine);
                command.args(["exec", world.container.id(), "cat", &path]);
                let status = command.stdout(target?).status().await?;
                anyhow::ensure!(status.success(), "docker exec failed");
                Ok(())
            }
        },
        || {
            let path = format!("{folder}/{}", ours.next());
            let sandbox = &sandbox;
            async move { world.get(sandbox, &path, size).await }
        },
    )
    .await?;
    world.container.sh(&format!("rm -rf {folder}"));
    let name = format!(
        "(e) get {size} B by a command, from memory of a container, {}",
        world.proof.words()
    );
    print_line(&to_comparison(name, "docker exec cat", times).to_string());
    Ok(())
}
