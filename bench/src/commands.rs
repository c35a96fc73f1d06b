//! The commands of `dray` as processes, compared with the programs that a user would run instead: time, processor time,
//! memory.
//!
//! (n) `dray sandbox get` and `put` compared with `docker cp`, (o) the same compared with `scp`, with a new and with a
//! shared connection, (p) the start of `dray read`, (r) builds of the program. Both sides run alternately and move the
//! same files. Processor time and memory of an engine, a server or a shared connection are not included; only the time
//! is.

mod build;
mod docker;
mod pair;
mod ssh;
mod start;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// Sizes in bytes and rounds.
const SIZES_AND_ROUNDS: [(u64, usize); 3] = [(1 << 10, 15), (25_000_000, 11), (250_000_000, 5)];
/// Most private memory of one command, in bytes, as `docs/decisions/transfer-memory.md` has it.
const MAX_PRIVATE_BYTES: u64 = 12 << 20;

/// How the integrity of a large file is verified.
#[derive(Clone, Copy, Debug)]
enum IntegrityCheck {
    /// A digest in the sandbox.
    Digest,
    /// Size, inode and times before and after; small files have digests anyway.
    State,
}

impl IntegrityCheck {
    const ALL_CHECKS: [Self; 2] = [Self::Digest, Self::State];

    const fn name(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::State => "metadata witness",
        }
    }

    const fn setting(self) -> &'static str {
        match self {
            Self::Digest => "sandbox-transfer.digest_always_up_to=1024GiB",
            Self::State => "sandbox-transfer.digest_always_up_to=0B",
        }
    }

    /// The target for the ratio of times for a file of this size.
    const fn target_ratio(self, size: u64) -> f64 {
        match self {
            // Without a digest the copy is the only work. Small files always have a digest.
            Self::State if size > 1 << 20 => 1.0,
            _ => 1.2,
        }
    }
}

/// Measures `sandbox`: containers and hosts.
pub(crate) fn measure_sandbox_commands(binary: Option<&Path>) -> anyhow::Result<()> {
    let dray = built_binary(binary)?;
    docker::run(&dray)?;
    ssh::run(&dray)
}

/// Measures how long `dray` takes to start, with the given binary or one that is built.
pub(crate) fn measure_start(binary: Option<&Path>) -> anyhow::Result<()> {
    start::run(&built_binary(binary)?)
}

/// Measures builds of `dray` and the size of the program.
pub(crate) fn measure_build() -> anyhow::Result<()> {
    build::run()
}

/// Measures `dray mcp`, with the given binary or one that is built.
pub(crate) fn measure_mcp(binary: Option<&Path>) -> anyhow::Result<()> {
    crate::mcp::run(&built_binary(binary)?)
}

/// The measured binary: the given one, or one that is built into the target directory of this program.
pub(crate) fn built_binary(binary: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(binary) = binary {
        return Ok(binary.to_path_buf());
    }
    let program = std::env::current_exe()?;
    let release = program.parent().context("no directory of this program")?;
    let target = release.parent().context("no target directory")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let status = Command::new("cargo")
        .current_dir(root.context("no workspace")?)
        .args(["build", "--release", "--package", "dray", "--target-dir"])
        .arg(target)
        .status()
        .context("cargo does not start")?;
    anyhow::ensure!(status.success(), "dray cannot be built");
    Ok(target.join("release/dray"))
}

/// A path as an argument.
fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path is not UTF-8")
}

/// Waits until new files are old enough that later changes to them can be detected.
fn wait_until_settled() {
    // Size and times prove that a file is unchanged only if it had not changed for a while before.
    std::thread::sleep(std::time::Duration::from_secs(3));
}

#[cfg(test)]
mod tests {
    use super::MAX_PRIVATE_BYTES;

    #[test]
    fn the_limit_for_private_memory_is_that_of_the_decision() {
        let decision = include_str!("../../docs/decisions/transfer-memory.md");
        let sentence = format!(
            "The target holds for anonymous memory: at most {} MiB for any size of file.",
            MAX_PRIVATE_BYTES >> 20
        );
        assert!(decision.contains(&sentence), "{sentence}");
    }
}
