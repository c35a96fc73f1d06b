//! The policy of the operator in files: who may reach what, and how much.
//!
//! A policy is one or several TOML files with roles. A role names *who* (tenants, sessions, apps), its rules name
//! *what* (hosts, ports, methods, paths) with an outcome, and its limits set *how much*. A list `deny` applies to
//! everyone and comes first. The rules can only narrow what [`crate::policy`] and [`crate::judge`] allow: they are one
//! more step of a judgement, and nothing here opens anything. A list `intercept` names the hosts whose tunnels the
//! proxy looks into.
//!
//! | module | what it does |
//! |---|---|
//! | [`source`] | reads the text of a file, with the line of every entry |
//! | [`compile`] | checks all files together |
//! | `pattern` | patterns of names, hosts, paths and media types |
//! | [`decide`] | which rule decides about a request |
//! | [`expectation`] | checks a policy against a table of expectations |
//! | [`overrides`] | methods that a request names beside that of its request line |
//! | [`replay`] | what another policy would have decided |
//!
//! Every function is pure. The fetcher reads the files and counts.
//!
//! ```
//! use dray_guard::ruleset::{Caller, PolicyText, RequestView, RuleSet};
//! use dray_guard::CanonicalUrl;
//!
//! let text = r#"
//! [[role]]
//! name = "analysts"
//! tenants = ["acme"]
//! [[role.rule]]
//! name = "packages"
//! outcome = "allow"
//! hosts = ["pypi.org", "*.pythonhosted.org"]
//! "#;
//! let rules = RuleSet::parse(&[PolicyText::new("policy.toml", text)]).unwrap();
//! let url = CanonicalUrl::parse("https://pypi.org/simple/").unwrap();
//! let acme = Caller { tenant: "acme".to_owned(), ..Caller::default() };
//! let decision = rules.decide(&acme, &RequestView::fetch(&url));
//! assert!(decision.is_allowed());
//! assert_eq!(decision.rule.to_string(), "analysts/packages (policy.toml:5)");
//! assert!(!rules.decide(&Caller::default(), &RequestView::fetch(&url)).is_allowed());
//! ```

use std::fmt;
use std::sync::Arc;

pub mod compile;
pub mod decide;
pub mod expectation;
pub mod overrides;
pub mod path;
mod pattern;
pub mod replay;
pub mod source;

pub use compile::{PolicyFileProblem, RoleLimits, policy_files_digest};
pub use decide::{Caller, ObservedPart, RequestView, RuleDecision, UnrecordedPart};
pub use path::ReadablePath;
pub use pattern::matches_name;
pub use source::{MAX_POLICY_BYTES, PolicyText};

use compile::{CompiledRole, CompiledRule, InterceptRule};

use crate::canon::CanonicalUrl;
use crate::policy::RequestKind;

/// Name of the rule that decides where no other one does.
pub const DEFAULT_RULE: &str = "default";

/// A checked policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    digest: String,
    deny: Vec<CompiledRule>,
    intercept: Vec<InterceptRule>,
    roles: Vec<CompiledRole>,
    defaults: DefaultOutcome,
    /// Whether any rule is in report-only mode, so that a second judgement is needed.
    has_trial: bool,
}

/// The outcome for a request that no rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DefaultOutcome {
    rule: Arc<RuleName>,
    outcome: RuleOutcome,
    /// The outcome if all report-only rules were in force.
    outcome_in_trial: RuleOutcome,
}

/// The outcome of a rule, and so of a policy, for a request that it matches. The outcome `report` of a file has no
/// variant: such a rule denies, in report-only mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleOutcome {
    Allow,
    /// Refused, unless a person has allowed the host for the session.
    Ask,
    Deny,
}

/// The name of a rule and its place in the files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleName {
    /// `ROLE/RULE`, `deny/NAME` or `default`.
    pub name: String,
    /// `FILE:LINE`; empty for a default that no file sets.
    pub place: String,
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.name),
            place => write!(f, "{} ({place})", self.name),
        }
    }
}

impl RuleSet {
    /// Reads and checks the files of a policy. Their order is the order of their rules.
    ///
    /// # Errors
    /// Every problem of every file, with its line.
    pub fn parse(files: &[PolicyText<'_>]) -> Result<Self, Vec<PolicyFileProblem>> {
        compile::compile_files(files)
    }

    /// SHA-256 in hexadecimal. For a file, that of the file, as `sha256sum policy.toml` prints it; for a directory,
    /// that of the lines that `sha256sum *.toml` prints there.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Number of rules, those of the list `deny` included.
    pub fn rule_count(&self) -> usize {
        self.deny.len()
            + self
                .roles
                .iter()
                .map(|role| role.rules.len())
                .sum::<usize>()
    }

    /// How a tunnel of `tenant` to the host and port of `url` is judged. [`RequestKind::Intercepted`] if an entry of
    /// `intercept` names the host and the tunnel carries TLS, otherwise [`RequestKind::Tunnel`].
    pub fn tunnel_kind(&self, tenant: &str, url: &CanonicalUrl) -> RequestKind {
        let mut entries = self.intercept.iter();
        if url.https() && entries.any(|entry| entry.matches(tenant, url)) {
            RequestKind::Intercepted
        } else {
            RequestKind::Tunnel
        }
    }

    /// The limits of the roles that `caller` has, each with the name of the role.
    pub fn limits<'a>(
        &'a self,
        caller: &'a Caller,
    ) -> impl Iterator<Item = (&'a Arc<RuleName>, &'a RoleLimits)> {
        self.roles
            .iter()
            .filter(|role| role.has_member(caller))
            .filter_map(|role| Some((&role.name, role.limits.as_ref()?)))
    }
}

#[cfg(test)]
mod tests;
