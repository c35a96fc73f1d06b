//! Reads the policy files of the operator, at start and again whenever they change: from a file, a directory, or a
//! bucket of the bus ([`crate::policy_bucket`]).
//!
//! The files are read every [`POLL_INTERVAL`] and compared by content, so that replaced symbolic links and modification
//! times make no difference; `reload` decides when a change counts. Files that cannot be read or are invalid
//! change nothing: the rules in force stay, the log has the reason, and the metric `dray_egress_policy_stale` is 1.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dray_bus::KeyError;
use dray_guard::RuleSet;
use dray_guard::ruleset::{MAX_POLICY_BYTES, PolicyFileProblem, PolicyText, policy_files_digest};
use dray_types::reload::{ReloadState, ReloadStep};
use dray_types::{ErrorChain, Sha256Digest};
use tokio_util::sync::CancellationToken;

use crate::audit::PolicyReporter;
use crate::fetch::Fetcher;
use crate::metrics::EgressMetrics;

mod source;

pub use source::PolicySource;

/// Time between two reads.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Most files of a directory.
pub(crate) const MAX_FILES: usize = 256;
/// Extension of the files of a directory that are read.
pub(crate) const POLICY_EXTENSION: &str = "toml";

/// The reason why a policy could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PolicyReadError {
    /// A file or directory could not be read.
    #[error("could not read the policy file {}", path.display())]
    Io {
        /// Name of the file or directory.
        path: PathBuf,
        /// The reason that the system gave.
        #[source]
        source: io::Error,
    },
    /// A path from which no policy can be read.
    #[error("{} {problem}", path.display())]
    NotReadable {
        /// Path of the file or directory.
        path: PathBuf,
        /// The reason why it is refused.
        problem: &'static str,
    },
    /// The bucket could not be read.
    #[error("could not read the bucket dray_egress_policy")]
    Bus(#[source] KeyError),
    /// The keys of the bucket are not the files of a policy.
    #[error("the bucket dray_egress_policy {0}")]
    BucketContent(String),
    /// The files are not a policy.
    #[error("{}", problem_lines(.0))]
    Invalid(Vec<PolicyFileProblem>),
}

fn problem_lines(problems: &[PolicyFileProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// The bytes of the files of a policy, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyBytes(Vec<(String, Vec<u8>)>);

impl PolicyBytes {
    /// Files with their names, in the order in which their rules are tried.
    pub(crate) const fn from_files(files: Vec<(String, Vec<u8>)>) -> Self {
        Self(files)
    }

    /// Names and contents of the files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let files = self.0.iter();
        files.map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// Reads a file, or the files `*.toml` of a directory in the order of their names.
    ///
    /// # Errors
    ///
    /// The file or directory that cannot be read or is too large.
    pub fn read(path: &Path) -> Result<Self, PolicyReadError> {
        let is_directory = io_result(path, fs::metadata(path))?.is_dir();
        if !is_directory {
            let name = path.file_name().unwrap_or(path.as_os_str());
            return Ok(Self(vec![(
                name.to_string_lossy().into_owned(),
                read_file(path, MAX_POLICY_BYTES)?,
            )]));
        }
        let mut remaining = MAX_POLICY_BYTES;
        let mut files = Vec::new();
        for (name, path) in policy_names(path)? {
            let bytes = read_file(&path, remaining)?;
            remaining = remaining.saturating_sub(bytes.len());
            files.push((name, bytes));
        }
        Ok(Self(files))
    }

    /// Reads the rules in the files.
    ///
    /// # Errors
    ///
    /// Every problem of every file.
    pub fn rules(&self) -> Result<RuleSet, PolicyReadError> {
        RuleSet::parse(&self.texts()).map_err(PolicyReadError::Invalid)
    }

    /// The digest of the files, also of those that are invalid.
    fn digest(&self) -> String {
        policy_files_digest(&self.texts())
    }

    fn texts(&self) -> Vec<PolicyText<'_>> {
        let files = self.0.iter();
        files
            .map(|(name, bytes)| PolicyText::new(name, bytes))
            .collect()
    }

    fn fingerprint(&self) -> Sha256Digest {
        let mut all = Vec::new();
        for (name, bytes) in &self.0 {
            // The digest of each part keeps the borders between them apart.
            all.extend_from_slice(Sha256Digest::of(name.as_bytes()).as_bytes());
            all.extend_from_slice(Sha256Digest::of(bytes).as_bytes());
        }
        Sha256Digest::of(&all)
    }
}

fn io_result<T>(path: &Path, result: io::Result<T>) -> Result<T, PolicyReadError> {
    result.map_err(|source| PolicyReadError::Io {
        path: path.to_owned(),
        source,
    })
}

/// The files of a directory by name. Names that begin with a dot are those of editors and of mounted volumes.
fn policy_names(directory: &Path) -> Result<Vec<(String, PathBuf)>, PolicyReadError> {
    let not_readable = |problem| PolicyReadError::NotReadable {
        path: directory.to_owned(),
        problem,
    };
    let mut names = Vec::new();
    for entry in io_result(directory, fs::read_dir(directory))? {
        let path = io_result(directory, entry)?.path();
        if path
            .extension()
            .is_none_or(|extension| extension != POLICY_EXTENSION)
        {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name else {
            return Err(not_readable("has a file whose name is not UTF-8"));
        };
        if !name.starts_with('.') {
            names.push((name.to_owned(), path));
        }
        if names.len() > MAX_FILES {
            return Err(not_readable("has more than 256 policy files"));
        }
    }
    if names.is_empty() {
        return Err(not_readable("has no file that ends in .toml"));
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads a regular file of at most `limit` bytes.
fn read_file(path: &Path, limit: usize) -> Result<Vec<u8>, PolicyReadError> {
    let not_readable = |problem| PolicyReadError::NotReadable {
        path: path.to_owned(),
        problem,
    };
    // Opening a named pipe would wait for a writer.
    if !io_result(path, fs::metadata(path))?.is_file() {
        return Err(not_readable("is not a regular file"));
    }
    let file = io_result(path, fs::File::open(path))?;
    let mut bytes = Vec::new();
    let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
    io_result(path, read)?;
    if bytes.len() > limit {
        return Err(not_readable("makes the policy larger than 1024 KiB"));
    }
    Ok(bytes)
}

/// Updates the rules of a [`Fetcher`] when the files change.
#[derive(Debug)]
pub struct PolicyWatcher {
    source: PolicySource,
    metrics: EgressMetrics,
    state: ReloadState<Sha256Digest>,
    digest: String,
    reporter: PolicyReporter,
}

impl PolicyWatcher {
    /// Reads the files for the first time.
    ///
    /// # Errors
    ///
    /// A service does not start without the policy that its configuration names (I-4).
    pub async fn open(
        mut source: PolicySource,
        fetcher: &Fetcher,
        metrics: EgressMetrics,
        mut reporter: PolicyReporter,
    ) -> Result<Self, PolicyReadError> {
        let (files, rules) = match read_rules(source.read().await) {
            Ok(read) => read,
            Err((digest, error)) => {
                reporter.refused(&source.read_policy(digest), error.refusal());
                // The process ends, and with it everything that is not published yet.
                reporter.finish().await;
                return Err(error);
            }
        };
        let rules = Arc::new(rules);
        reporter.in_force(
            &source.read_policy(rules.digest().to_owned()),
            rules.rule_count(),
        );
        let watcher = Self {
            source,
            metrics,
            state: ReloadState::new(files.fingerprint()),
            digest: rules.digest().to_owned(),
            reporter,
        };
        watcher.metrics.rules_in_force(&watcher.digest, true);
        watcher.metrics.rules_stale(false);
        let revision = watcher.source.logged_revision();
        tracing::info!(
            source = %watcher.source, digest = watcher.digest, rules = rules.rule_count(),
            revision = revision.number, written_by = revision.written_by,
            "egress policy files are in force"
        );
        fetcher.set_rules(rules);
        Ok(watcher)
    }

    /// Reads the files every [`POLL_INTERVAL`] until `stop`.
    pub async fn watch(mut self, fetcher: Arc<Fetcher>, stop: CancellationToken) {
        while stop
            .run_until_cancelled(tokio::time::sleep(POLL_INTERVAL))
            .await
            .is_some()
        {
            self.reload_changed(&fetcher).await;
        }
    }

    /// Reads the files once, and applies them when they have changed and are stable.
    pub(crate) async fn reload_changed(&mut self, fetcher: &Fetcher) {
        let read = self.source.read().await;
        let state = match &read {
            Ok(files) => Ok(files.fingerprint()),
            // Failures of a bus that is away differ from read to read, and each would be reported.
            Err(PolicyReadError::Bus(_)) => Err("the bus failed".to_owned()),
            Err(error) => Err(error_text(error)),
        };
        match self.state.note(state) {
            ReloadStep::InForce { was_rejected } => {
                if was_rejected {
                    tracing::info!("the egress policy files equal those in force again");
                }
                let policy = self.source.read_policy(self.digest.clone());
                self.reporter.still_in_force(&policy);
                return self.metrics.rules_stale(false);
            }
            ReloadStep::Wait => return,
            ReloadStep::Apply => {}
        }
        match read_rules(read) {
            Ok((files, rules)) => self.apply(fetcher, rules, files.fingerprint()),
            Err((digest, error)) => {
                // A bus that is away says nothing about the policy, and could not take the event.
                if !matches!(error, PolicyReadError::Bus(_)) {
                    let policy = self.source.read_policy(digest);
                    self.reporter.refused(&policy, error.refusal());
                }
                self.state.rejected();
                self.metrics.rules_reloaded(false);
                self.metrics.rules_stale(true);
                let revision = self.source.logged_revision();
                tracing::error!(
                    problem = error_text(&error),
                    digest = self.digest,
                    revision = revision.number,
                    written_by = revision.written_by,
                    "the egress policy files cannot be used; the earlier rules stay in force"
                );
            }
        }
    }

    /// Whether the last state that was read cannot be used.
    #[cfg(test)]
    pub(crate) const fn is_rejected(&self) -> bool {
        self.state.is_rejected()
    }

    fn apply(&mut self, fetcher: &Fetcher, rules: RuleSet, fingerprint: Sha256Digest) {
        self.metrics.rules_in_force(&self.digest, false);
        let before = std::mem::replace(&mut self.digest, rules.digest().to_owned());
        self.state.applied(fingerprint);
        self.metrics.rules_in_force(&self.digest, true);
        self.metrics.rules_reloaded(true);
        self.metrics.rules_stale(false);
        let policy = self.source.read_policy(self.digest.clone());
        self.reporter.in_force(&policy, rules.rule_count());
        let revision = self.source.logged_revision();
        tracing::info!(
            digest = self.digest,
            before,
            rules = rules.rule_count(),
            revision = revision.number,
            written_by = revision.written_by,
            "new egress policy files are in force"
        );
        fetcher.set_rules(Arc::new(rules));
    }
}

/// The rules of files that were read. The error has the digest of the files, where they could be read.
fn read_rules(
    read: Result<PolicyBytes, PolicyReadError>,
) -> Result<(PolicyBytes, RuleSet), (String, PolicyReadError)> {
    let files = read.map_err(|error| (String::new(), error))?;
    match files.rules() {
        Ok(rules) => Ok((files, rules)),
        Err(error) => Err((files.digest(), error)),
    }
}

fn error_text(error: &PolicyReadError) -> String {
    ErrorChain(error).to_string()
}

/// Reads the files on a thread that may block.
async fn read_policy(path: &Path) -> Result<PolicyBytes, PolicyReadError> {
    let owned = path.to_owned();
    let read = tokio::task::spawn_blocking(move || PolicyBytes::read(&owned)).await;
    read.unwrap_or_else(|_| {
        Err(PolicyReadError::NotReadable {
            path: path.to_owned(),
            problem: "could not be read: the task was cancelled",
        })
    })
}

#[cfg(test)]
mod tests;
