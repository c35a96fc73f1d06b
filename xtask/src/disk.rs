//! The disk space of a test run, checked before it: a build that fills the disk fails after many minutes, with failures
//! that name something else.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

const BYTES_PER_GIGABYTE: u64 = 1_000_000_000;
/// Size of `target` after a first run: 7 GB of the build, 3 GB of packages for Python and Node.js. The state of
/// incremental compilation takes another 7 GB.
const TARGET_BYTES: u64 = 10 * BYTES_PER_GIGABYTE;
/// Least space for what tests keep in the temporary directory at the same time: images, stores, large files.
const MIN_TEMPORARY_BYTES: u64 = BYTES_PER_GIGABYTE;
/// Free space below which no run succeeds, even where an earlier one has built everything.
const MIN_FREE_BYTES: u64 = BYTES_PER_GIGABYTE;

/// A directory that a run fills.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FilledDirectory {
    path: PathBuf,
    /// Identity of its file system.
    device: u64,
    free_bytes: u64,
    /// Least number of bytes that the run adds.
    needed_bytes: u64,
}

/// Prints the free space, and refuses to begin with less than a run needs in any case.
pub(crate) fn check_space(root: &Path) -> anyhow::Result<()> {
    // This program is `target/debug/xtask`, even where `CARGO_TARGET_DIR` names another directory.
    let program = std::env::current_exe().context("cannot find the program of this command")?;
    let target = program.ancestors().nth(2).unwrap_or(root).to_owned();
    let present = size_of(&target);
    let directories = [
        measure(target, TARGET_BYTES.saturating_sub(present))?,
        measure(std::env::temp_dir(), MIN_TEMPORARY_BYTES)?,
    ];
    for directory in &directories {
        eprintln!(
            "disk: {} free for {}, at least {} needed",
            gigabytes(directory.free_bytes),
            directory.path.display(),
            gigabytes(directory.needed_bytes),
        );
    }
    refuse_full(&directories)
}

fn refuse_full(directories: &[FilledDirectory]) -> anyhow::Result<()> {
    for directory in directories {
        // Directories of one file system share its free space.
        let same_device = directories
            .iter()
            .filter(|other| other.device == directory.device);
        let needed: u64 = same_device.map(|other| other.needed_bytes).sum();
        let needed = needed.max(MIN_FREE_BYTES);
        if directory.free_bytes < needed {
            bail!(
                "the disk of {} has {} free, and the tests need {}. Remove files there (`cargo clean` removes what \
                 earlier builds left), or set CARGO_TARGET_DIR and TMPDIR to directories of a larger disk.",
                directory.path.display(),
                gigabytes(directory.free_bytes),
                gigabytes(needed),
            );
        }
    }
    Ok(())
}

fn measure(path: PathBuf, needed_bytes: u64) -> anyhow::Result<FilledDirectory> {
    // Before the first build the directory does not exist.
    let existing = path.ancestors().find(|ancestor| ancestor.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    let failed = || format!("cannot read the free space of {}", existing.display());
    let space = rustix::fs::statvfs(existing).with_context(failed)?;
    Ok(FilledDirectory {
        device: fs::metadata(existing).with_context(failed)?.dev(),
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        needed_bytes,
        path,
    })
}

/// Bytes that the files of a directory occupy. What cannot be read counts as nothing.
fn size_of(directory: &Path) -> u64 {
    let mut seen = BTreeSet::new();
    let mut pending = vec![directory.to_owned()];
    let mut size = 0;
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                pending.push(entry.path());
            } else if metadata.nlink() == 1 || seen.insert(metadata.ino()) {
                // Programs are hard links to files of `deps`.
                size += metadata.blocks() * 512;
            }
        }
    }
    size
}

/// Gigabytes with one decimal place.
fn gigabytes(bytes: u64) -> String {
    let tenths = bytes / (BYTES_PER_GIGABYTE / 10);
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &str, device: u64, free: u64, needed: u64) -> FilledDirectory {
        FilledDirectory {
            path: path.into(),
            device,
            free_bytes: free * BYTES_PER_GIGABYTE,
            needed_bytes: needed * BYTES_PER_GIGABYTE,
        }
    }

    #[test]
    fn a_run_is_refused_only_where_the_disk_is_certainly_too_small() {
        let run = |target, temporary| {
            refuse_full(&[target, temporary]).map_err(|error| error.to_string())
        };
        let on_one_disk = |free| {
            run(
                directory("target", 1, free, 10),
                directory("/tmp", 1, free, 2),
            )
        };
        assert_eq!(on_one_disk(12), Ok(()));
        let refused = on_one_disk(11).unwrap_err();
        assert!(
            refused.contains("11.0 GB free, and the tests need 12.0 GB"),
            "{refused}"
        );
        assert!(refused.contains("CARGO_TARGET_DIR"), "{refused}");
        let on_two = |free| {
            run(
                directory("target", 1, 10, 10),
                directory("/tmp", 2, free, 2),
            )
        };
        assert_eq!(on_two(2), Ok(()));
        assert!(on_two(1).unwrap_err().contains("the disk of /tmp"));
        // An earlier run has built everything, but not even a temporary file fits.
        assert!(run(directory("target", 1, 0, 0), directory("/tmp", 2, 9, 2)).is_err());
    }

    #[test]
    fn the_size_of_a_directory_counts_a_file_with_two_names_once() {
        let directory = tempfile::tempdir().unwrap();
        let first = directory.path().join("a");
        fs::write(&first, vec![1; 100_000]).unwrap();
        let alone = size_of(directory.path());
        fs::create_dir(directory.path().join("d")).unwrap();
        fs::hard_link(&first, directory.path().join("d/b")).unwrap();
        assert_eq!(size_of(directory.path()), alone);
        assert_eq!(size_of(&directory.path().join("none")), 0);
        assert!(
            measure(directory.path().join("none/x"), 5)
                .unwrap()
                .free_bytes
                > 0
        );
    }
}
