//! Checks of the directories beside the state directory: roots of local sandboxes, roots of documents, and the spool
//! directory of transfers.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::finding::Finding;

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
    findings
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
        check_directories(&dray_file_resolver::Config::default(), &transfer)
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
            let findings = check_directories(&resolver, transfer);
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
    fn a_missing_spool_directory_is_a_problem() {
        let transfer = dray_sandbox_transfer::Config {
            spool_directory: "/nonexistent/spool".into(),
            ..Default::default()
        };
        let findings = check_directories(&dray_file_resolver::Config::default(), &transfer);
        let spool = findings
            .iter()
            .find(|finding| finding.subject == "spool directory")
            .unwrap();
        assert_eq!(spool.level, FindingLevel::Problem, "{spool:?}");
    }
}
