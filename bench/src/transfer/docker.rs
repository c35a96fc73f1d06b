//! (e) Files out of and into a container.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fixture::{TransferFixture, docker_client, path_text, run_command, to_comparison};
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

/// Creates a file for each round, and one for the round that is not measured.
pub(super) async fn fill_directory(
    fixture: &TransferFixture<'_>,
    directory: &str,
    size: u64,
    rounds: usize,
) {
    fixture.container.sh(&format!("mkdir -p {directory}"));
    // Inclusive, for the first round, which is not measured.
    for round in 0..=rounds {
        let file = format!("{directory}/{round}");
        fixture
            .container
            .sh(&format!("head -c {size} /dev/urandom > {file}"));
    }
    TransferFixture::settle().await;
}

/// Copies out of the container, compared with `docker cp`.
pub(super) async fn measure_get(
    fixture: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = format!("docker:{}", fixture.container.id());
    let directory = "/workspace/out";
    fill_directory(fixture, directory, size, rounds).await;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = path_text(&fixture.local("docker-cp"))?;
    let times = side_by_side(
        rounds,
        || {
            let mut command = docker_client(fixture.engine);
            let source = format!("{}:{directory}/{}", fixture.container.id(), theirs.next());
            command.args(["cp", &source, &target]);
            run_command(command)
        },
        || {
            let path = format!("{directory}/{}", ours.next());
            let sandbox = &sandbox;
            async move { fixture.get(sandbox, &path, size).await }
        },
    )
    .await?;
    fixture.container.sh(&format!("rm -rf {directory}"));
    let name = format!(
        "(e) get {size} B from a container, {}",
        fixture.proof.label()
    );
    print_line(&to_comparison(name, "docker cp", times).to_string());
    Ok(())
}

/// Copies into the container, compared with `docker cp`.
pub(super) async fn measure_put(
    fixture: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = format!("docker:{}", fixture.container.id());
    let source = fixture.create_file("docker-in", size)?;
    // The content is stored before the measurement, which is only of the transfer into the sandbox.
    let claim = fixture.store(&source).await?;
    let source = path_text(&source)?;
    fixture.container.sh("mkdir -p /workspace/in");
    let times = side_by_side(
        rounds,
        || {
            let mut command = docker_client(fixture.engine);
            let target = format!(
                "{}:/workspace/in/cp-{}",
                fixture.container.id(),
                fixture.next()
            );
            command.args(["cp", &source, &target]);
            run_command(command)
        },
        || fixture.put(&sandbox, "/workspace/in", claim.clone()),
    )
    .await?;
    fixture.container.sh("rm -rf /workspace/in");
    let name = format!(
        "(e) put {size} B into a container, {}",
        fixture.proof.label()
    );
    print_line(&to_comparison(name, "docker cp", times).to_string());
    Ok(())
}

/// Copies out of a memory file system, which the archive calls do not see, compared with `docker exec cat`.
pub(super) async fn measure_exec(
    fixture: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let sandbox = format!("docker:{}", fixture.container.id());
    let directory = "/memory/out";
    fill_directory(fixture, directory, size, rounds).await;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = fixture.local("docker-exec");
    let times = side_by_side(
        rounds,
        || {
            let path = format!("{directory}/{}", theirs.next());
            let target = std::fs::File::create(&target);
            async move {
                let mut command = docker_client(fixture.engine);
                command.args(["exec", fixture.container.id(), "cat", &path]);
                let status = command.stdout(target?).status().await?;
                anyhow::ensure!(status.success(), "docker exec failed");
                Ok(())
            }
        },
        || {
            let path = format!("{directory}/{}", ours.next());
            let sandbox = &sandbox;
            async move { fixture.get(sandbox, &path, size).await }
        },
    )
    .await?;
    fixture.container.sh(&format!("rm -rf {directory}"));
    let name = format!(
        "(e) get {size} B by a command, from memory of a container, {}",
        fixture.proof.label()
    );
    print_line(&to_comparison(name, "docker exec cat", times).to_string());
    Ok(())
}
