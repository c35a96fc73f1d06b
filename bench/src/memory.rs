//! (d) Peak memory while 1 GiB is fetched into the store. Runs in a separate process, so that its peak is measured
//! alone.

use anyhow::Context as _;
use dray_types::ByteSize;

use crate::fixture::BenchFixture;
use crate::harness::verdict_text;
use crate::print_line;

const FILE_BYTES: u64 = 1 << 30;
/// Most memory above the idle process that the target allows.
const MAX_MEMORY_BYTES: u64 = 48 << 20;

/// Measures in a child process and prints its output.
pub(crate) async fn run() -> anyhow::Result<()> {
    let status = tokio::process::Command::new(std::env::current_exe()?)
        .args(["--fetch-once", &FILE_BYTES.to_string()])
        .status()
        .await?;
    anyhow::ensure!(status.success(), "the measuring process failed");
    Ok(())
}

/// Fetches a small file, then one of `size` bytes, and reports how far the peak memory rose above idle.
pub(crate) async fn fetch_once(size: u64) -> anyhow::Result<()> {
    let fixture = BenchFixture::start().await?;
    // This fetch is not measured, because the first fetch creates buffers, pools and the connection to the store.
    fixture.fetch(BenchFixture::url(1 << 20), 1 << 20).await?;
    // The current resident size. `VmHWM` below is the highest one (`proc(5)`).
    let idle = process_status("VmRSS:")?;
    fixture.fetch(BenchFixture::url(size), size).await?;
    let peak = process_status("VmHWM:")?;
    let above_idle = peak.saturating_sub(idle);
    print_line(&format!(
        "(d) memory while {} is fetched into the embedded store",
        ByteSize::bytes(size)
    ));
    print_line(&format!(
        "  idle {} KiB, peak {} KiB, above idle {} KiB",
        idle >> 10,
        peak >> 10,
        above_idle >> 10
    ));
    let verdict = verdict_text(above_idle <= MAX_MEMORY_BYTES);
    print_line(&format!(
        "  server, fetcher and embedded S3 in one process, aim at most {} above idle: {verdict}",
        ByteSize::bytes(MAX_MEMORY_BYTES)
    ));
    fixture.running.stop().await;
    Ok(())
}

/// One line of this process's status, in bytes.
pub(crate) fn process_status(field: &str) -> anyhow::Result<u64> {
    status_of("/proc/self/status", field)
}

/// One line of the status of a process, in bytes; `path` as in `proc(5)`.
pub(crate) fn status_of(path: &str, field: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let line = text
        .lines()
        .find(|line| line.starts_with(field))
        .context("the kernel reports no memory sizes")?;
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .context("no number")?
        .parse()?;
    // The kernel writes "kB" and means KiB.
    Ok(kib << 10)
}
