//! The policy for paths of a sandbox: where files may come from and go to (platform-delivery 5).
//!
//! Two lists decide: roots, beneath which a path must lie, and the deny list, which wins over them. Both are applied
//! twice, to the path as it was written and to the path after the sandbox resolved its links. Every refusal names its
//! rule and how an operator lifts it; agents and users only learn that the path is not allowed.

mod content;
mod deny;
mod options;
mod place;
#[cfg(test)]
mod tests;

use std::fmt;

pub use content::{Finding, MAX_SCANNED_BYTES, Scanner, Verdict, is_private_key};
pub use options::{ContentAction, PolicyOptions};
pub use place::{Places, expand};

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;

/// The direction in which a file moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferDirection {
    /// Out of the sandbox. Names that suggest credentials are refused.
    Outbound,
    /// Into the sandbox. A user may give an agent a `credentials.json`, so only directories are checked.
    Inbound,
}

/// The paths that may be accessed in one sandbox: [`PolicyOptions`] with its home and directories filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A path must lie beneath one of these.
    pub(crate) roots: Vec<SandboxPath>,
    /// Whether the root `.` permits nothing, because the working directory is `/`.
    pub(crate) works_in_root: bool,
    /// The roots that an operator configured as absolute paths.
    pub(crate) configured_roots: Vec<SandboxPath>,
    /// Homes of the sandbox user, as reported and with links resolved; empty when unknown.
    pub(crate) homes: Vec<SandboxPath>,
    /// Patterns that the operator lifts from the deny list.
    pub(crate) allow: Vec<Pattern>,
    /// Patterns that the operator adds to the deny list.
    pub(crate) deny: Vec<Pattern>,
    /// The action for files whose content looks like a secret.
    pub(crate) content: ContentAction,
}

/// A path with all beneath it, or a file name in any directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// The path and everything beneath it.
    Beneath(SandboxPath),
    /// Every file or directory of this name; ASCII case does not matter.
    Name(Vec<u8>),
}

impl Pattern {
    /// Whether the pattern covers `path`.
    fn matches(&self, path: &SandboxPath) -> bool {
        match self {
            Self::Beneath(ancestor) => path.is_beneath(ancestor),
            // Every part is compared: entries of a directory with this name are covered too.
            Self::Name(name) => path
                .as_bytes()
                .split(|byte| *byte == b'/')
                .any(|part| part.eq_ignore_ascii_case(name)),
        }
    }
}

impl Policy {
    /// Allows all paths beneath `roots` that the deny list does not refuse. The home of the sandbox user counts as
    /// unknown, so that deny entries for homes match at any depth.
    pub fn beneath(roots: impl IntoIterator<Item = SandboxPath>) -> Self {
        let roots: Vec<SandboxPath> = roots.into_iter().collect();
        Self {
            configured_roots: roots.clone(),
            roots,
            works_in_root: false,
            homes: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            content: ContentAction::default(),
        }
    }

    /// The same policy with another action for content that looks like a secret.
    #[must_use]
    pub const fn with_content(mut self, content: ContentAction) -> Self {
        self.content = content;
        self
    }

    /// The policy for a file that an agent only reads: a private key in its text causes a warning where it would cause
    /// a refusal before people, because the agent can read the file in its sandbox anyway.
    #[must_use]
    pub const fn for_reading(mut self) -> Self {
        if matches!(self.content, ContentAction::BlockKeys) {
            self.content = ContentAction::Warn;
        }
        self
    }

    /// The directories beneath which paths must lie.
    pub fn roots(&self) -> &[SandboxPath] {
        &self.roots
    }

    /// Checks that a path may be accessed. Callers check the path as written, and again after its links were resolved.
    ///
    /// # Errors
    ///
    /// [`Refusal`], which converts to an [`Error`] of kind [`ErrorKind::DeniedPath`] or [`ErrorKind::OutsideRoot`].
    pub fn check(&self, path: &SandboxPath, direction: TransferDirection) -> Result<(), Refusal> {
        // `allow` lifts entries of the deny list only; the roots still apply.
        if !self.allow.iter().any(|pattern| pattern.matches(path))
            && let Some(rule) = self.denied(path, direction)
        {
            return Err(Refusal {
                kind: ErrorKind::DeniedPath,
                rule,
                path: path.clone(),
                works_in_root: false,
            });
        }
        if self.roots.iter().any(|root| path.is_beneath(root)) {
            return Ok(());
        }
        Err(Refusal {
            kind: ErrorKind::OutsideRoot,
            rule: "roots".to_owned(),
            path: path.clone(),
            works_in_root: self.works_in_root,
        })
    }

    /// Checks that a file with the name of a key may leave the sandbox. `head` holds its first
    /// [`Self::KEY_FILE_HEAD_BYTES`] bytes, or all of them. `has_private_key` is the result of
    /// [`Scanner::has_private_key`], if the whole file was scanned: in a bundle the key follows the certificate, and
    /// after `openssl pkcs12` it follows attributes.
    ///
    /// # Errors
    ///
    /// [`Refusal`] for `*.pem` and `*.key` that hold a private key, unless the operator lifted it.
    pub fn check_key_file(
        &self,
        path: &SandboxPath,
        head: &[u8],
        has_private_key: bool,
    ) -> Result<(), Refusal> {
        let lifted = self.allow.iter().any(|pattern| pattern.matches(path));
        // A `*.pem` is usually a certificate, so the name alone does not refuse it.
        if lifted || !deny::may_be_key(path.name()) || !(has_private_key || is_private_key(head)) {
            return Ok(());
        }
        Err(Refusal {
            kind: ErrorKind::DeniedPath,
            rule: "private key file".to_owned(),
            path: path.clone(),
            works_in_root: false,
        })
    }

    /// Bytes at the beginning of a file that [`Self::check_key_file`] reads.
    pub const KEY_FILE_HEAD_BYTES: usize = 256;

    /// Decides about a file in which this secret was found.
    pub fn judge(&self, path: &SandboxPath, finding: Option<Finding>) -> Verdict {
        let Some(finding) = finding else {
            return Verdict::Pass;
        };
        let blocks = match self.content {
            ContentAction::Ignore => return Verdict::Pass,
            ContentAction::Warn => false,
            ContentAction::BlockKeys => finding == Finding::PrivateKey,
            ContentAction::Block => true,
        };
        if self.allow.iter().any(|pattern| pattern.matches(path)) {
            return Verdict::Pass;
        }
        if blocks {
            Verdict::Block(finding)
        } else {
            Verdict::Warn(finding)
        }
    }

    /// The rule of the deny list that covers `path`.
    fn denied(&self, path: &SandboxPath, direction: TransferDirection) -> Option<String> {
        if self.deny.iter().any(|pattern| pattern.matches(path)) {
            return Some("deny".to_owned());
        }
        // Names count only for files out of a sandbox: a user may give an agent a file that the agent may not send.
        deny::denied_directory(path, &self.homes, &self.configured_roots).or_else(|| {
            (direction == TransferDirection::Outbound)
                .then(|| deny::denied_name(path))
                .flatten()
        })
    }
}

/// The reason why a path may not be reached; shown to operators only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// [`ErrorKind::DeniedPath`] or [`ErrorKind::OutsideRoot`].
    pub kind: ErrorKind,
    /// The rule that refused, for instance `system directory /etc`.
    pub rule: String,
    /// The path that the rule refused.
    pub path: SandboxPath,
    /// Whether the root `.` permits nothing, because the working directory is `/`.
    pub works_in_root: bool,
}

impl Refusal {
    /// The option of [`PolicyOptions`] with which an operator lifts the refusal.
    pub const fn lifted_by(&self) -> &'static str {
        match self.kind {
            ErrorKind::OutsideRoot => "roots",
            _ => "allow",
        }
    }
}

/// The form for the operator's log, with the way to lift the rule.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, path, .. } = self;
        let option = self.lifted_by();
        write!(
            f,
            "the rule `{rule}` refuses {path}; to allow it, add it to `{option}` of the sandbox policy"
        )
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let error = Self::new(refusal.kind, refusal.to_string());
        if refusal.works_in_root {
            return error.with_root_as_working_directory();
        }
        error
    }
}
