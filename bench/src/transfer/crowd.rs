//! (h) A hundred concurrent transfers: out of and into four containers and a host.

use std::time::{Duration, Instant};

use dray_testkit::docker::{Container, ContainerOptions};
use futures_util::future::join_all;

use super::fixture::{TransferFixture, path_text, write_random_file};
use crate::harness::verdict_text;
use crate::print_line;

/// Transfers that are started together, from one task.
const TRANSFER_COUNT: usize = 100;
/// Bytes of each file, large enough to overlap.
const FILE_BYTES: u64 = 4 << 20;
/// Containers beside the host.
const CONTAINER_COUNT: usize = 4;

/// Runs a fifth of the transfers out of the host, a fifth into the containers, and the rest out of the containers.
pub(super) async fn run(fixture: &TransferFixture<'_>) -> anyhow::Result<()> {
    let containers: Vec<Container> = (0..CONTAINER_COUNT)
        .map(|_| fixture.engine.container(ContainerOptions::default()))
        .collect();
    let host = fixture.sshd.home().join("crowd");
    std::fs::create_dir_all(&host)?;
    let host = path_text(&host)?;
    for number in 0..TRANSFER_COUNT {
        write_random_file(format!("{host}/{number}").as_ref(), FILE_BYTES)?;
    }
    for number in 0..TRANSFER_COUNT {
        if let Some(container) = containers.get(number % CONTAINER_COUNT) {
            container.sh(&format!(
                "head -c {FILE_BYTES} /dev/urandom > /workspace/{number}"
            ));
        }
    }
    // One content for all puts: the store is only read for them.
    let claim = fixture
        .store(&fixture.create_file("crowd", FILE_BYTES)?)
        .await?;
    let ssh = format!(
        "ssh:{}@127.0.0.1:{}{}",
        fixture.sshd.user(),
        fixture.sshd.port(),
        path_text(&fixture.sshd.home())?
    );
    TransferFixture::settle().await;
    let start = Instant::now();
    let transfers = (0..TRANSFER_COUNT).map(|number| {
        let docker = containers
            .get(number % CONTAINER_COUNT)
            .map(|container| format!("docker:{}", container.id()))
            .unwrap_or_default();
        let (ssh, host, claim) = (&ssh, &host, claim.clone());
        async move {
            match number % 5 {
                0 => {
                    fixture
                        .get(ssh, &format!("{host}/{number}"), FILE_BYTES)
                        .await
                }
                1 => fixture.put(&docker, "/workspace/in", claim).await,
                _ => {
                    let path = format!("/workspace/{number}");
                    fixture.get(&docker, &path, FILE_BYTES).await
                }
            }
        }
    });
    let outcomes = join_all(transfers).await;
    let elapsed = start.elapsed();
    std::fs::remove_dir_all(&host)?;
    print_report(fixture, outcomes, elapsed);
    Ok(())
}

fn print_report(
    fixture: &TransferFixture<'_>,
    outcomes: Vec<anyhow::Result<()>>,
    elapsed: Duration,
) {
    print_line(&format!(
        "(h) {TRANSFER_COUNT} transfers of {} MiB, started together, out of and into {CONTAINER_COUNT} containers and a host, {}",
        FILE_BYTES >> 20,
        fixture.proof.label()
    ));
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    for error in failed.iter().take(3) {
        print_line(&format!("  failed: {error:#}"));
    }
    let mib = (TRANSFER_COUNT as u64 * FILE_BYTES) >> 20;
    let verdict = verdict_text(failed.is_empty());
    print_line(&format!(
        "  {} failed, {mib} MiB in {:.1} s, aim 0 failed: {verdict}\n",
        failed.len(),
        elapsed.as_secs_f64()
    ));
}
