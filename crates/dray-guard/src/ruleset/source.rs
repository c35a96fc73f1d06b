//! The text of a policy file: its fields, and the line of each entry.

use dray_types::ByteSize;
use serde::Deserialize;
use toml::Spanned;

use super::compile::PolicyFileProblem;

/// Most bytes of a policy file, and of all files of a directory together.
pub const MAX_POLICY_BYTES: usize = 1024 * 1024;

/// A file of a policy: its name, as messages show it, and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct PolicyText<'a> {
    /// Name without a directory.
    pub name: &'a str,
    /// The bytes, which need not be UTF-8.
    pub bytes: &'a [u8],
}

impl<'a> PolicyText<'a> {
    /// A file with this name and text.
    pub fn new(name: &'a str, text: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self {
            name,
            bytes: text.as_ref(),
        }
    }

    /// The line of a byte, from 1.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        let before = self.bytes.get(..offset).unwrap_or(self.bytes);
        1 + before
            .split(|byte| *byte == b'\n')
            .count()
            .saturating_sub(1)
    }

    pub(super) fn problem(
        &self,
        offset: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> PolicyFileProblem {
        PolicyFileProblem {
            file: self.name.to_owned(),
            line: self.line_at(offset),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// Reads the fields.
    pub(super) fn read(&self) -> Result<PolicyDocument, PolicyFileProblem> {
        if self.bytes.len() > MAX_POLICY_BYTES {
            let problem = format!("the file is larger than {} KiB", MAX_POLICY_BYTES / 1024);
            return Err(self.problem(0, problem, "Use patterns instead of long lists of hosts."));
        }
        let text = std::str::from_utf8(self.bytes).map_err(|error| {
            let offset = error.valid_up_to();
            self.problem(offset, "the file is not UTF-8", "Save it as UTF-8 text.")
        })?;
        toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let remedy = "See the fields in docs/egress-policy.md.";
            // The names of Rust types say nothing to an operator.
            let problem = error.message().replace('\n', " ");
            let problem = problem.replace("expected i64", "expected a whole number");
            self.problem(
                offset,
                problem.replace("expected u64", "expected a whole number"),
                remedy,
            )
        })
    }
}

/// A list of texts with their places.
pub(super) type TextList = Spanned<Vec<Spanned<String>>>;

/// A list of ports with their places; whether each is a port is checked later.
pub(super) type PortList = Spanned<Vec<Spanned<i64>>>;

/// A policy file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PolicyDocument {
    pub(super) default: Option<Spanned<String>>,
    pub(super) report_only: bool,
    pub(super) deny: Vec<Spanned<DenyEntry>>,
    pub(super) intercept: Vec<Spanned<InterceptEntry>>,
    pub(super) role: Vec<Spanned<RoleEntry>>,
}

/// An entry of the list `deny`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DenyEntry {
    pub(super) name: Spanned<String>,
    pub(super) hosts: Option<TextList>,
    pub(super) ports: Option<PortList>,
}

/// An entry of the list `intercept`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterceptEntry {
    pub(super) name: Spanned<String>,
    pub(super) hosts: TextList,
    pub(super) ports: Option<PortList>,
    pub(super) tenants: Option<TextList>,
}

/// An item of `roles`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoleEntry {
    pub(super) name: Spanned<String>,
    pub(super) tenants: Option<TextList>,
    pub(super) sessions: Option<TextList>,
    pub(super) apps: Option<TextList>,
    pub(super) certificates: Option<TextList>,
    pub(super) limits: Option<Spanned<LimitsEntry>>,
    #[serde(default)]
    pub(super) rule: Vec<Spanned<RuleEntry>>,
}

/// A rule of a role.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleEntry {
    pub(super) name: Spanned<String>,
    pub(super) outcome: Spanned<String>,
    pub(super) hosts: Option<TextList>,
    pub(super) ports: Option<PortList>,
    pub(super) methods: Option<TextList>,
    pub(super) paths: Option<TextList>,
    pub(super) media_types: Option<TextList>,
    pub(super) max_bytes: Option<Spanned<ByteSize>>,
    pub(super) robots: Option<Spanned<String>>,
}

/// The limits of a role.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsEntry {
    pub(super) requests_per_hour: Option<Spanned<u64>>,
    pub(super) requests_per_day: Option<Spanned<u64>>,
    pub(super) bytes_per_hour: Option<Spanned<ByteSize>>,
    pub(super) bytes_per_day: Option<Spanned<ByteSize>>,
    pub(super) concurrent: Option<Spanned<u64>>,
}
