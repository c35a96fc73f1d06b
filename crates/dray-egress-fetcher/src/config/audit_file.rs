//! The file of audit events in the configuration.

use std::path::PathBuf;

use dray_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;

/// Audit events as lines of a file, in addition to log and stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditFileConfig {
    /// Absolute path of the file, which has mode 0600. Unset: none. Processes of one user, and of root, can share it on
    /// a machine. A new file after a rotation belongs to the owner of the file before it. The first file that root
    /// creates belongs to the owner of the directory.
    pub path: Option<PathBuf>,
    /// `json`: one event in a line, as in the log. `ocsf`: HTTP Activity, Network Activity and, for policies, Entity
    /// Management of OCSF 1.3.0.
    pub format: AuditFormat,
    /// Size at which the file is rotated to `FILE.1`; at least `1MiB`.
    pub max_bytes: ByteSize,
    /// Most files that are kept, the current one included: 1 to 100.
    pub max_files: u32,
    /// Percentage of allowed operations whose events are written: 0 to 100. Refusals and failures are always written.
    pub sample_percent: u32,
}

/// Format of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditFormat {
    /// Lines of JSON with the field names of the log.
    #[default]
    Json,
    /// Open Cybersecurity Schema Framework.
    Ocsf,
}

/// The checked settings of the file.
#[derive(Clone, Debug)]
pub struct AuditFileSettings {
    /// The file.
    pub path: PathBuf,
    /// Format of the events.
    pub format: AuditFormat,
    /// Size at which it is rotated.
    pub max_bytes: u64,
    /// Files that are kept.
    pub max_files: u32,
    /// Percent of allowed requests that are written.
    pub sample_percent: u32,
}

/// Smallest file that is rotated: larger than any event.
const MIN_FILE_BYTES: ByteSize = ByteSize::mib(1);

impl Default for AuditFileConfig {
    fn default() -> Self {
        Self {
            path: None,
            format: AuditFormat::Json,
            max_bytes: ByteSize::mib(64),
            max_files: 8,
            sample_percent: 100,
        }
    }
}

impl AuditFileConfig {
    /// Checks the fields; `None` when there is to be no file.
    pub(super) fn compile(&self, checks: &mut ProblemCollector) -> Option<AuditFileSettings> {
        if self.path.as_ref().is_some_and(|path| !path.is_absolute()) {
            checks.add("audit_file.path", "must be an absolute path");
        }
        if self.max_bytes < MIN_FILE_BYTES {
            checks.add("audit_file.max_bytes", "must be at least 1MiB");
        }
        if !(1..=100).contains(&self.max_files) {
            checks.add("audit_file.max_files", "must be 1 to 100");
        }
        if self.sample_percent > 100 {
            checks.add("audit_file.sample_percent", "must be 0 to 100");
        }
        Some(AuditFileSettings {
            path: self.path.clone()?,
            format: self.format,
            max_bytes: self.max_bytes.as_u64(),
            max_files: self.max_files,
            sample_percent: self.sample_percent,
        })
    }
}
