//! Checks of this machine: versions, limits, the state directory, and the worker that reads documents.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dray_service::health::free_disk;
use dray_service::settings::{LimitsSection, StateSection};
use dray_types::{ByteSize, Clock};
use rustix::process::{Resource, getrlimit};

use super::finding::Finding;

/// Limit of open files below which a busy service may run out of them: each connection, transfer and worker uses one or
/// two.
const MIN_OPEN_FILES: u64 = 4096;
/// Memory below which the kernel may end the conversion of a large document, which needs several hundred MiB.
const MIN_MEMORY: ByteSize = ByteSize::mib(512);
/// Start of 2026 in Unix seconds. A clock that shows an earlier time is wrong.
const EARLIEST_SECONDS: u64 = 1_767_225_600;
/// A page that is converted as any other document is.
const SAMPLE_PAGE: &str = "<html><body><h1>Sample</h1><p>drayage sample text</p></body></html>";
/// Text that the result must contain.
const SAMPLE_TEXT: &str = "drayage sample text";
/// Permission bits of group and others.
const SHARED_BITS: u32 = 0o077;

/// The version of this program and of the kernel.
pub(super) fn check_versions() -> Finding {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding::good(
        "versions",
        format!(
            "dray {} on {} {} ({})",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            kernel.trim(),
            std::env::consts::ARCH,
        ),
    )
}

/// Checks that the clock is plausible. Where a bus is configured, its clock is compared too.
pub(super) fn check_clock() -> Finding {
    judge_clock(Clock::system().now_ms() / 1000)
}

fn judge_clock(seconds: u64) -> Finding {
    if seconds < EARLIEST_SECONDS {
        return Finding::problem(
            "clock",
            "The clock of this machine is before 2026, so certificates, links and deadlines are judged wrongly.",
            "Set the clock and synchronise it with NTP, for example `timedatectl set-ntp true`.",
        );
    }
    Finding::good("clock", "the date is plausible")
}

/// The limit of open files.
pub(super) fn check_open_files() -> Finding {
    judge_open_files(getrlimit(Resource::Nofile).current)
}

/// `None` means that nothing is limited.
fn judge_open_files(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < MIN_OPEN_FILES => Finding::warning(
            "open files",
            format!("This process may open {limit} files; a busy service needs {MIN_OPEN_FILES}."),
            "Raise the limit: `ulimit -n 65536`, or `LimitNOFILE=65536` in the systemd unit.",
        ),
        Some(limit) => Finding::good("open files", format!("up to {limit}")),
        None => Finding::good("open files", "no limit"),
    }
}

/// The memory that the control group and the machine leave.
pub(super) fn check_memory() -> Finding {
    let available = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| available_memory(&text));
    // Version 2 of control groups; inside a container this is the container's own limit.
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    judge_memory(available, limit)
}

/// `MemAvailable` of `/proc/meminfo`, in bytes (`proc_meminfo(5)`).
fn available_memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn judge_memory(available: Option<u64>, limit: Option<u64>) -> Finding {
    let Some(usable) = available.into_iter().chain(limit).min() else {
        return Finding::skipped("memory", "the system does not say how much is available");
    };
    // The size is in whole MiB: a size that is not a multiple of a unit is displayed in a smaller one.
    let shown = ByteSize::mib(usable >> 20);
    if usable < MIN_MEMORY.as_u64() {
        return Finding::warning(
            "memory",
            format!(
                "{shown} can be used; the conversion of one large document may need {MIN_MEMORY}."
            ),
            "Give the container or the machine more memory.",
        );
    }
    Finding::good("memory", format!("{shown} can be used"))
}

/// Checks that the state directory is accessible only to this user and has space.
pub(super) fn check_state(state: &StateSection, limits: &LimitsSection) -> Vec<Finding> {
    let directory = state.directory.as_path();
    let metadata = match directory.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return missing_state(directory, limits);
        }
        Err(error) => {
            return vec![Finding::problem(
                "state",
                format!("{} cannot be looked at: {error}", directory.display()),
                "Make it readable for this user, or name another directory with --state.",
            )];
        }
    };
    if !metadata.is_dir() {
        return vec![Finding::problem(
            "state",
            format!("{} is not a directory", directory.display()),
            "Name a directory with --state.",
        )];
    }
    vec![
        judge_owner(directory, &metadata),
        check_space(directory, limits),
    ]
}

/// A directory that will be made at the first start, if its nearest existing parent allows it and has space.
fn missing_state(directory: &Path, limits: &LimitsSection) -> Vec<Finding> {
    let shown = directory.display();
    // A relative path may have no parent in its text.
    let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let existing = whole.ancestors().skip(1).find(|parent| parent.exists());
    let writable = existing.filter(|parent| {
        let needed = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(*parent, needed).is_ok()
    });
    let Some(parent) = writable else {
        return vec![Finding::problem(
            "state",
            format!("{shown} does not exist and cannot be made by this user"),
            "Make it for this user with mode 0700, or name another directory with --state.",
        )];
    };
    vec![
        Finding::good("state", format!("{shown} is made at the first start")),
        check_space(parent, limits),
    ]
}

fn judge_owner(directory: &Path, metadata: &std::fs::Metadata) -> Finding {
    let shown = directory.display();
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Finding::problem(
            "state",
            format!(
                "{shown} belongs to user {}, and this is user {own}",
                metadata.uid()
            ),
            format!("Run as its owner, or `chown {own} {shown}`."),
        );
    }
    if metadata.mode() & SHARED_BITS != 0 {
        return Finding::problem(
            "state",
            format!(
                "{shown} has mode {:04o}: other users of this machine can look into it",
                metadata.mode() & 0o7777
            ),
            format!("chmod 700 {shown}"),
        );
    }
    Finding::good("state", format!("{shown} is this user's alone"))
}

/// Checks free space by the rule for the readiness of services.
fn check_space(directory: &Path, limits: &LimitsSection) -> Finding {
    match free_disk(directory, limits.free_disk_percent, limits.free_disk_enough) {
        Ok(()) => Finding::good("disk", "enough space is free"),
        Err(reason) => Finding::problem(
            "disk",
            reason,
            "Free space on the volume, name another directory with --state, or lower `limits.free_disk_percent`.",
        ),
    }
}

/// Checks that this program can read a document, which it converts in a confined process.
pub(super) async fn check_reading(limit: Duration) -> Finding {
    match tokio::time::timeout(limit, read_sample()).await {
        Ok(Ok(())) => Finding::good("reading", "a document was converted in a confined process"),
        Ok(Err(SampleError::Temporary(error))) => Finding::problem(
            "reading",
            format!(
                "no file can be written in {}: {error}",
                std::env::temp_dir().display()
            ),
            "Free space there, correct its mode, or name another directory in TMPDIR.",
        ),
        Ok(Err(SampleError::Reading(reason))) => failed_reading(&reason),
        Err(_) => failed_reading(&format!("no end within {} s", limit.as_secs())),
    }
}

fn failed_reading(reason: &str) -> Finding {
    Finding::problem(
        "reading",
        format!("A document cannot be converted in a confined process: {reason}"),
        "Allow child processes and seccomp filters here, and give the container at least 512 MiB of memory.",
    )
}

/// Why the sample was not read.
#[derive(Debug)]
enum SampleError {
    /// The temporary directory cannot be used.
    Temporary(std::io::Error),
    /// The conversion failed, for this reason.
    Reading(String),
}

/// Writes the sample to `directory`.
fn write_sample(directory: &Path) -> Result<PathBuf, SampleError> {
    let file = directory.join("sample.html");
    std::fs::write(&file, SAMPLE_PAGE).map_err(SampleError::Temporary)?;
    Ok(file)
}

/// Runs `dray read` on a page of HTML, as a user would.
async fn read_sample() -> Result<(), SampleError> {
    let shown = |error: std::io::Error| SampleError::Reading(error.to_string());
    let directory = tempfile::tempdir().map_err(SampleError::Temporary)?;
    let file = write_sample(directory.path())?;
    let output = tokio::process::Command::new(std::env::current_exe().map_err(shown)?)
        .arg("read")
        .arg(&file)
        // The check uses the default limits and not the configuration of this process.
        .env_clear()
        .env("HOME", directory.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(shown)?;
    if output.status.success() && String::from_utf8_lossy(&output.stdout).contains(SAMPLE_TEXT) {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let first = stderr.lines().next().unwrap_or("it printed no reason");
    let reason = first.trim_start_matches("error: ").to_owned();
    Err(SampleError::Reading(reason))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    fn state_of(directory: &Path) -> Vec<Finding> {
        let state = StateSection {
            directory: directory.to_path_buf(),
            ..StateSection::default()
        };
        let limits = LimitsSection {
            free_disk_percent: 0,
            ..LimitsSection::default()
        };
        check_state(&state, &limits)
    }

    #[test]
    fn a_clock_before_this_program_is_a_problem() {
        assert_eq!(judge_clock(0).level, FindingLevel::Problem);
        assert_eq!(judge_clock(EARLIEST_SECONDS).level, FindingLevel::Good);
    }

    #[test]
    fn few_open_files_are_a_warning_with_a_remedy() {
        let finding = judge_open_files(Some(1024));
        assert_eq!(finding.level, FindingLevel::Warning);
        assert!(finding.advice.contains("LimitNOFILE"), "{finding:?}");
        assert_eq!(judge_open_files(Some(65_536)).level, FindingLevel::Good);
        assert_eq!(judge_open_files(None).level, FindingLevel::Good);
    }

    #[test]
    fn the_smaller_of_free_memory_and_the_containers_limit_counts() {
        let meminfo = "MemTotal: 8000000 kB\nMemAvailable:    2097152 kB\n";
        assert_eq!(available_memory(meminfo), Some(2 << 30));
        assert_eq!(available_memory("MemAvailable: much kB"), None);
        assert_eq!(judge_memory(Some(2 << 30), None).level, FindingLevel::Good);
        let small = judge_memory(Some(2 << 30), Some(128 << 20));
        assert_eq!(small.level, FindingLevel::Warning);
        assert!(small.text.contains("128"), "{small:?}");
        assert_eq!(judge_memory(None, None).level, FindingLevel::Skipped);
    }

    #[test]
    fn a_state_directory_that_others_can_open_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let set_mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(directory.path(), permissions).unwrap();
        };
        set_mode(0o755);
        let findings = state_of(directory.path());
        assert_eq!(findings[0].level, FindingLevel::Problem, "{findings:?}");
        assert!(findings[0].advice.starts_with("chmod 700 "), "{findings:?}");
        set_mode(0o700);
        let findings = state_of(directory.path());
        assert!(
            findings
                .iter()
                .all(|finding| finding.level == FindingLevel::Good),
            "{findings:?}"
        );
    }

    #[test]
    fn a_missing_state_directory_on_a_full_disk_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateSection {
            directory: directory.path().join("not/yet"),
            ..StateSection::default()
        };
        let limits = LimitsSection {
            // More than any disk has.
            free_disk_percent: 100,
            free_disk_enough: ByteSize::bytes(u64::MAX),
            ..LimitsSection::default()
        };
        let findings = check_state(&state, &limits);
        let disk = findings.iter().find(|finding| finding.subject == "disk");
        let disk = disk.expect("a finding about the disk");
        assert_eq!(disk.level, FindingLevel::Problem, "{findings:?}");
        assert!(disk.advice.contains("Free space"), "{disk:?}");
    }

    #[test]
    fn a_missing_state_directory_is_made_later_and_a_file_in_its_place_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("not/yet");
        assert_eq!(state_of(&missing)[0].level, FindingLevel::Good);
        // One component: its parent is the working directory.
        let relative = state_of(Path::new("a-state-that-does-not-exist"));
        assert_eq!(relative[0].level, FindingLevel::Good, "{relative:?}");
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let findings = state_of(&file);
        assert_eq!(findings[0].level, FindingLevel::Problem, "{findings:?}");
    }
}
