//! The place of the policy files, what was read from it last, and why it cannot be used.

use std::fmt;
use std::path::PathBuf;

use dray_proto::v1;

use super::{PolicyBytes, PolicyReadError, read_policy};
use crate::audit::ReadPolicy;
use crate::policy_bucket::{POLICY_BUCKET, PolicyBucket};

/// The place of the policy files.
#[derive(Debug)]
pub enum PolicySource {
    /// A file, or a directory of files.
    Path(PathBuf),
    /// The bucket of the bus.
    Bucket(PolicyBucket),
}

impl PolicySource {
    pub(super) async fn read(&mut self) -> Result<PolicyBytes, PolicyReadError> {
        match self {
            Self::Path(path) => read_policy(path).await,
            Self::Bucket(bucket) => bucket.read().await,
        }
    }
}

/// The revision of the bucket for the log; empty for files.
#[derive(Debug, Default)]
pub(super) struct LoggedRevision {
    pub(super) number: Option<u64>,
    pub(super) written_by: Option<String>,
}

impl PolicySource {
    pub(super) fn logged_revision(&self) -> LoggedRevision {
        let revision = match self {
            Self::Path(_) => None,
            Self::Bucket(bucket) => bucket.revision(),
        };
        revision.map_or_else(LoggedRevision::default, |revision| LoggedRevision {
            number: Some(revision.number),
            written_by: revision.written_by,
        })
    }

    /// What was read last, with the digest of its files.
    pub(super) fn read_policy(&self, digest: String) -> ReadPolicy {
        let revision = self.logged_revision();
        ReadPolicy {
            source: match self {
                Self::Path(_) => "path",
                Self::Bucket(_) => "bucket",
            },
            digest,
            revision: revision.number.unwrap_or_default(),
            written_by: revision.written_by.unwrap_or_default(),
        }
    }
}

impl PolicyReadError {
    /// The first problem as the audit event names it, without a path of the host.
    pub(super) fn refusal(&self) -> v1::EgressPolicyRefusal {
        if let Self::Invalid(problems) = self
            && let Some(first) = problems.first()
        {
            return v1::EgressPolicyRefusal {
                file: first.file.clone(),
                line: u32::try_from(first.line).unwrap_or(u32::MAX),
                problem: first.problem.clone(),
                remedy: first.remedy.clone(),
                problem_count: u32::try_from(problems.len()).unwrap_or(u32::MAX),
                ..v1::EgressPolicyRefusal::default()
            };
        }
        let file = match self {
            Self::Io { path, .. } | Self::NotReadable { path, .. } => path.file_name(),
            Self::Bus(_) | Self::BucketContent(_) | Self::Invalid(_) => None,
        };
        let (problem, remedy) = match self {
            Self::Io { source, .. } => (
                format!("could not be read: {source}"),
                "Make the file readable for the service.",
            ),
            Self::NotReadable { problem, .. } => {
                ((*problem).to_owned(), "Correct the file or directory.")
            }
            Self::BucketContent(problem) => (
                format!("the bucket {problem}"),
                "Put the whole policy with `dray policy put`.",
            ),
            Self::Bus(_) | Self::Invalid(_) => (self.to_string(), ""),
        };
        v1::EgressPolicyRefusal {
            file: file.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            problem,
            remedy: remedy.to_owned(),
            problem_count: 1,
            ..v1::EgressPolicyRefusal::default()
        }
    }
}

impl fmt::Display for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Bucket(_) => write!(f, "bucket {POLICY_BUCKET}"),
        }
    }
}
