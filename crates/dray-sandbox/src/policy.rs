//! Which paths of a sandbox files may come from and go to (platform-delivery 5).
//!
//! Two lists decide: roots, beneath which a path must lie, and the deny list, which wins over them. Both are asked
//! twice, with the path as it was written and with the path after the sandbox resolved its links. Every refusal
//! names its rule and how an operator lifts it; agents and users only learn that it is not allowed.

mod content;
mod deny;
mod options;
mod place;
#[cfg(test)]
mod tests;

use std::fmt;

pub use content::{Finding, SCANNED, Scanner, Verdict, is_private_key};
pub use options::{ContentAction, PolicyOptions};
pub use place::{Places, expand};

use crate::error::{Error, ErrorKind};
use crate::path::SandboxPath;

/// Which way a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Out of the sandbox. Names that tell of credentials are refused.
    Out,
    /// Into the sandbox. A user may hand an agent a `credentials.json`; only places are checked.
    In,
}

/// What may be reached in one sandbox; [`PolicyOptions`] bound to its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Beneath one of these or nowhere.
    pub(crate) roots: Vec<SandboxPath>,
    /// Those of them that an operator wrote down as they are.
    pub(crate) written: Vec<SandboxPath>,
    /// Homes of the sandbox user, as reported and as resolved; empty when unknown.
    pub(crate) homes: Vec<SandboxPath>,
    /// What the operator lifts from the deny list.
    pub(crate) allow: Vec<Pattern>,
    /// What the operator adds to the deny list.
    pub(crate) deny: Vec<Pattern>,
    /// What happens to files whose content looks like a secret.
    pub(crate) content: ContentAction,
}

/// A path with all beneath it, or a file name anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// The path and everything beneath it.
    Beneath(SandboxPath),
    /// Every file or directory of this name; ASCII case does not matter.
    Name(Vec<u8>),
}

impl Pattern {
    /// Whether it speaks of `path`.
    fn matches(&self, path: &SandboxPath) -> bool {
        match self {
            Self::Beneath(ancestor) => path.is_beneath(ancestor),
            Self::Name(name) => path
                .as_bytes()
                .split(|byte| *byte == b'/')
                .any(|part| part.eq_ignore_ascii_case(name)),
        }
    }
}

impl Policy {
    /// Nothing is allowed but what lies beneath `roots`, less the deny list. The home of the sandbox user counts as
    /// unknown, so that its entries match at any depth.
    pub fn beneath(roots: impl IntoIterator<Item = SandboxPath>) -> Self {
        let roots: Vec<SandboxPath> = roots.into_iter().collect();
        Self {
            written: roots.clone(),
            roots,
            homes: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            content: ContentAction::default(),
        }
    }

    /// The same with another answer to content that looks like a secret.
    #[must_use]
    pub const fn with_content(mut self, content: ContentAction) -> Self {
        self.content = content;
        self
    }

    /// The roots.
    pub fn roots(&self) -> &[SandboxPath] {
        &self.roots
    }

    /// Whether a path may be reached. Ask with the path as written and again with the resolved one.
    ///
    /// # Errors
    ///
    /// [`Refusal`], which converts to an [`Error`] of kind [`ErrorKind::DeniedPath`] or [`ErrorKind::OutsideRoot`].
    pub fn check(&self, path: &SandboxPath, way: Way) -> Result<(), Refusal> {
        if !self.allow.iter().any(|pattern| pattern.matches(path))
            && let Some(rule) = self.denied(path, way)
        {
            return Err(Refusal {
                kind: ErrorKind::DeniedPath,
                rule,
                path: path.clone(),
            });
        }
        if self.roots.iter().any(|root| path.is_beneath(root)) {
            return Ok(());
        }
        Err(Refusal {
            kind: ErrorKind::OutsideRoot,
            rule: "roots".to_owned(),
            path: path.clone(),
        })
    }

    /// Whether a file that is called like a key may leave. `head` is its first [`Self::HEAD`] bytes, or all there are;
    /// `has_private_key` is what [`Scanner::has_private_key`] says of the whole, where the whole was scanned: a key
    /// stands behind the certificate of a bundle, or behind the attributes that `openssl pkcs12` writes.
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
        if lifted || !deny::may_be_key(path.name()) || !(has_private_key || is_private_key(head)) {
            return Ok(());
        }
        Err(Refusal {
            kind: ErrorKind::DeniedPath,
            rule: "private key file".to_owned(),
            path: path.clone(),
        })
    }

    /// Bytes of the beginning that [`Self::check_key_file`] looks at.
    pub const HEAD: usize = 256;

    /// What to do with a file in which this was found.
    pub fn judge(&self, path: &SandboxPath, finding: Option<Finding>) -> Verdict {
        let lifted = || self.allow.iter().any(|pattern| pattern.matches(path));
        match (finding, self.content) {
            (Some(finding), ContentAction::Warn) if !lifted() => Verdict::Warn(finding),
            (Some(finding), ContentAction::Block) if !lifted() => Verdict::Block(finding),
            _ => Verdict::Pass,
        }
    }

    /// The rule of the deny list that speaks of `path`.
    fn denied(&self, path: &SandboxPath, way: Way) -> Option<String> {
        if self.deny.iter().any(|pattern| pattern.matches(path)) {
            return Some("deny".to_owned());
        }
        deny::place(path, &self.homes, &self.written)
            .or_else(|| (way == Way::Out).then(|| deny::secret_name(path)).flatten())
    }
}

/// Why a path may not be reached; shown to operators only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// [`ErrorKind::DeniedPath`] or [`ErrorKind::OutsideRoot`].
    pub kind: ErrorKind,
    /// The rule that refused, for instance `system directory /etc`.
    pub rule: String,
    /// What it refused.
    pub path: SandboxPath,
}

impl Refusal {
    /// The option of [`PolicyOptions`] that lifts it.
    pub const fn lifted_by(&self) -> &'static str {
        match self.kind {
            ErrorKind::OutsideRoot => "roots",
            _ => "allow",
        }
    }
}

/// For the operator's log.
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
        Self::new(refusal.kind, refusal.to_string())
    }
}
