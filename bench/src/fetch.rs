//! (b) Fetching into the store against `curl -o` from the same server.

use anyhow::Context as _;

use crate::fixture::BenchFixture;
use crate::harness::{BenchComparison, RatioTarget, SampleSet, side_by_side};
use crate::print_line;

/// Measures 1 KiB, 1 MiB and 100 MiB.
pub(crate) async fn run() -> anyhow::Result<()> {
    let fixture = BenchFixture::start().await?;
    for (size, rounds) in [(1 << 10, 41), (1 << 20, 21), (100 << 20, 7)] {
        print_line(&compare_sizes(&fixture, size, rounds).await?.to_string());
    }
    fixture.running.stop().await;
    Ok(())
}

async fn compare_sizes(
    fixture: &BenchFixture,
    size: u64,
    rounds: usize,
) -> anyhow::Result<BenchComparison> {
    let directory = tempfile::tempdir()?;
    let target = directory.path().join("curl");
    let url = format!("http://{}/{size}", fixture.server.address());
    let (baseline, ours) = side_by_side(
        rounds,
        || async {
            // The start of the program counts, because a user waits for it.
            let status = tokio::process::Command::new("curl")
                .args(["--silent", "--fail", "--output"])
                .arg(&target)
                .arg(&url)
                .status()
                .await
                .context("curl is needed: install the Debian package curl")?;
            anyhow::ensure!(status.success(), "curl failed");
            Ok(())
        },
        || async {
            // The content is new each time, because an object that exists already would not be written again.
            let url = format!(
                "{}?{}",
                BenchFixture::url(size),
                fixture.server.unused_query()
            );
            fixture.fetch(url, size).await
        },
    )
    .await?;
    Ok(BenchComparison {
        name: format!("(b) fetching {size} B"),
        baseline: SampleSet::new("curl -o (includes starting curl)", baseline),
        ours: SampleSet::new("dray fetch into the store: guard, SHA-256, S3", ours),
        target: RatioTarget::ThroughputAtLeast(0.8),
    })
}
