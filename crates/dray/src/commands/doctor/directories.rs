//! Checks of the directories beside the state directory: roots of local sandboxes, roots of documents, and the spool
//! directory of transfers.

use std::path::{Path, PathBuf};

use dray_service::health::free_disk;
use dray_service::settings::LimitsSection;
use dray_types::ByteSize;
use rustix::fs::Access;

use super::finding::Finding;

/// Free space below which even transfers of ordinary documents fail.
const MIN_SPOOL_SPACE: ByteSize = ByteSize::mib(64);

/// Directories of one setting, and what its service does in them.
#[derive(Clone, Copy, Debug)]
struct ConfiguredDirectories<'a> {
    /// The subject of the findings.
    subject: &'static str,
    /// The full key of the setting.
    key: &'static str,
    /// The directories in the order of the setting.
    paths: &'a [PathBuf],
    /// The access that the service needs.
    access: Access,
    /// The required access in words.
    access_text: &'static str,
}

/// Checks that each configured directory exists, and that this user has the access that its service needs.
pub(super) fn check_directories(
    resolver: &dray_file_resolver::Config,
    transfer: &dray_sandbox_transfer::Config,
    limits: &LimitsSection,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if transfer.kinds.iter().any(|kind| kind == "local") {
        findings.extend(check(ConfiguredDirectories {
            subject: "local sandboxes",
            key: "sandbox-transfer.local.roots",
            paths: &transfer.local.roots,
            access: Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
            access_text: "read and written",
        }));
    }
    if resolver.reading.enabled {
        findings.extend(check(ConfiguredDirectories {
            subject: "documents",
            key: "file-resolver.reading.roots",
            paths: &resolver.reading.roots,
            access: Access::READ_OK | Access::EXEC_OK,
            access_text: "read",
        }));
    }
    findings.extend(check(ConfiguredDirectories {
        subject: "spool directory",
        key: "sandbox-transfer.spool_directory",
        paths: std::slice::from_ref(&transfer.spool_directory),
        access: Access::WRITE_OK | Access::EXEC_OK,
        access_text: "written",
    }));
    findings.extend(judge_spool_space(
        &transfer.spool_directory,
        limits,
        MIN_SPOOL_SPACE,
    ));
    findings
}

/// Checks that the orchestrator can read its directory of manifests, without which it does not start.
pub(super) fn check_manifests(path: &Path) -> Finding {
    let shown = path.display();
    match path.read_dir() {
        Ok(_) => Finding::good("manifests", format!("{shown} can be read")),
        Err(error) => Finding::problem(
            "manifests",
            format!("{shown} in `orchestrator.manifests` cannot be read: {error}"),
            "Make the directory, or correct `orchestrator.manifests`.",
        ),
    }
}

/// Checks the free space of the spool directory: less than `needed` is a problem, and a directory that is nearly full
/// by the rule for the state directory is a warning. `None` for a directory that cannot be examined, which has its own
/// finding.
fn judge_spool_space(path: &Path, limits: &LimitsSection, needed: ByteSize) -> Option<Finding> {
    const SPOOL_ADVICE: &str = "Free space on the volume, or name a directory of another one in `sandbox-transfer.spool_directory`.";
    if !path.is_dir() {
        return None;
    }
    let shown = path.display();
    // An empty volume passes with 100 percent, even if it is smaller than `needed`: no more space can be freed.
    if free_disk(path, 100, needed).is_err() {
        let text = format!(
            "less than {needed} is free in {shown}; transfers that collect a file there fail"
        );
        return Some(Finding::problem("spool directory", text, SPOOL_ADVICE));
    }
    let (percent, enough) = (limits.free_disk_percent, limits.free_disk_enough);
    free_disk(path, percent, enough).err().map(|_| {
        let text = format!("less than {percent} % and less than {enough} is free in {shown}");
        Finding::warning("spool directory", text, SPOOL_ADVICE)
    })
}

fn check(directories: ConfiguredDirectories<'_>) -> Vec<Finding> {
    if directories.paths.is_empty() {
        let text = format!("no directory is allowed (`{}`)", directories.key);
        return vec![Finding::skipped(directories.subject, text)];
    }
    let judge = |path: &PathBuf| judge_directory(&directories, path);
    directories.paths.iter().map(judge).collect()
}

fn judge_directory(directories: &ConfiguredDirectories<'_>, path: &Path) -> Finding {
    let ConfiguredDirectories { subject, key, .. } = *directories;
    let shown = path.display();
    if !path.is_absolute() {
        return Finding::problem(
            subject,
            format!("{shown} in `{key}` is not an absolute path"),
            "Write the whole path, from /.",
        );
    }
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return Finding::problem(
                subject,
                format!("{shown} in `{key}` is not a directory"),
                format!("Name a directory in `{key}`."),
            );
        }
        Err(error) => {
            return Finding::problem(
                subject,
                format!("{shown} in `{key}` cannot be looked at: {error}"),
                format!("Make the directory, or correct `{key}`."),
            );
        }
    }
    if let Err(error) = rustix::fs::access(path, directories.access) {
        return Finding::problem(
            subject,
            format!(
                "{shown} cannot be {} by this user: {error}",
                directories.access_text
            ),
            "Change its owner or mode, or run as a user that may.",
        );
    }
    Finding::good(
        subject,
        format!("{shown} can be {}", directories.access_text),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    fn findings_for(root: PathBuf) -> Vec<Finding> {
        let mut transfer = dray_sandbox_transfer::Config::default();
        transfer.local.roots = vec![root];
        check_directories(
            &dray_file_resolver::Config::default(),
            &transfer,
            &no_limits(),
        )
    }

    /// Limits that any disk meets.
    fn no_limits() -> LimitsSection {
        LimitsSection {
            free_disk_percent: 0,
            ..LimitsSection::default()
        }
    }

    #[test]
    fn a_full_spool_directory_is_a_problem_and_a_nearly_full_one_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let judge = |limits: &LimitsSection, needed| {
            judge_spool_space(directory.path(), limits, needed).map(|finding| finding.level)
        };
        let (none, endless) = (ByteSize::bytes(0), ByteSize::bytes(u64::MAX));
        assert_eq!(judge(&no_limits(), none), None);
        assert_eq!(judge(&no_limits(), endless), Some(FindingLevel::Problem));
        let strict = LimitsSection {
            // More than any disk has.
            free_disk_percent: 100,
            free_disk_enough: endless,
            ..LimitsSection::default()
        };
        assert_eq!(judge(&strict, none), Some(FindingLevel::Warning));
        let missing = Path::new("/nonexistent/spool");
        assert_eq!(judge_spool_space(missing, &strict, endless), None);
    }

    fn finding(root: PathBuf) -> Finding {
        let mut findings = findings_for(root).into_iter();
        findings
            .find(|finding| finding.subject == "local sandboxes")
            .unwrap()
    }

    #[test]
    fn a_root_that_no_sandbox_can_use_is_a_problem_with_its_key() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            finding(directory.path().to_owned()).level,
            FindingLevel::Good
        );
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        for root in [directory.path().join("missing"), file, PathBuf::from("box")] {
            let finding = finding(root);
            assert_eq!(finding.level, FindingLevel::Problem, "{finding:?}");
            assert!(
                finding.text.contains("`sandbox-transfer.local.roots`"),
                "{finding:?}"
            );
            assert!(!finding.advice.is_empty(), "{finding:?}");
        }
    }

    #[test]
    fn a_setting_without_directories_is_skipped_and_a_disabled_service_is_not_examined() {
        let resolver = dray_file_resolver::Config::default();
        let mut transfer = dray_sandbox_transfer::Config::default();
        let subjects = |transfer: &dray_sandbox_transfer::Config| -> Vec<_> {
            let findings = check_directories(&resolver, transfer, &no_limits());
            findings
                .into_iter()
                .map(|finding| (finding.subject, finding.level))
                .collect()
        };
        let local = ("local sandboxes".to_owned(), FindingLevel::Skipped);
        assert!(subjects(&transfer).contains(&local));
        transfer.kinds.retain(|kind| kind != "local");
        assert!(!subjects(&transfer).contains(&local));
    }

    #[test]
    fn manifests_that_cannot_be_read_are_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(check_manifests(directory.path()).level, FindingLevel::Good);
        let missing = check_manifests(&directory.path().join("missing"));
        assert_eq!(missing.level, FindingLevel::Problem);
        assert!(
            missing.text.contains("`orchestrator.manifests`"),
            "{missing:?}"
        );
    }

    #[test]
    fn a_missing_spool_directory_is_a_problem() {
        let transfer = dray_sandbox_transfer::Config {
            spool_directory: "/nonexistent/spool".into(),
            ..Default::default()
        };
        let resolver = dray_file_resolver::Config::default();
        let findings = check_directories(&resolver, &transfer, &no_limits());
        let spool = findings
            .iter()
            .find(|finding| finding.subject == "spool directory")
            .unwrap();
        assert_eq!(spool.level, FindingLevel::Problem, "{spool:?}");
    }
}
