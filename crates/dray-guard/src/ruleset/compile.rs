//! Checks all files of a policy together and converts their entries for [`super::decide`].

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use dray_types::Sha256Digest;
use toml::Spanned;

use super::path::PathList;
use super::pattern::{HostList, MediaPattern, NameList};
use super::source::{
    DenyEntry, LimitsEntry, MAX_POLICY_BYTES, PolicyDocument, PolicyText, RoleEntry, RuleEntry,
};
use super::{Caller, DEFAULT_RULE, DefaultOutcome, RuleName, RuleOutcome, RuleSet};
use crate::robots::RobotsMode;

mod fields;
mod intercept;

pub(super) use intercept::InterceptRule;

/// Most rules of a policy, including those of the list `deny`.
const MAX_RULES: usize = 4096;
/// Most problems that are reported together.
const MAX_PROBLEMS: usize = 50;
/// The outcomes that a rule can have, for messages.
const OUTCOME_REMEDY: &str = "Write \"allow\", \"report\", \"ask\" or \"deny\".";

/// A problem in a policy file, with its place and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}. {remedy}")]
pub struct PolicyFileProblem {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Description of the problem.
    pub problem: String,
    /// Advice on how to solve it.
    pub remedy: String,
}

/// Quotas of the callers of a role, for each tenant. `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleLimits {
    /// Fetches and connections in an hour.
    pub requests_per_hour: Option<u64>,
    /// Fetches and connections in a day.
    pub requests_per_day: Option<u64>,
    /// Bytes in an hour, in both directions.
    pub bytes_per_hour: Option<u64>,
    /// Bytes in a day, in both directions.
    pub bytes_per_day: Option<u64>,
    /// Fetches and connections at the same time.
    pub concurrent: Option<u64>,
    /// Whether the limits are in report-only mode: exceeding one is reported and refuses nothing.
    pub is_trial: bool,
}

/// The effect of a rule on a request that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleEffect {
    Allow,
    /// Refuses until a person has answered for the session.
    Ask,
    Deny,
}

/// A rule, ready to be matched. An absent list matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompiledRule {
    pub(super) name: Arc<RuleName>,
    pub(super) effect: RuleEffect,
    /// Whether the rule is in report-only mode: its outcome is `report`, or its file has `report_only`.
    pub(super) is_trial: bool,
    pub(super) hosts: Option<HostList>,
    pub(super) ports: Option<BTreeSet<u16>>,
    pub(super) methods: Option<BTreeSet<String>>,
    pub(super) paths: Option<PathList>,
    pub(super) response: Option<Arc<ResponseLimits>>,
}

/// The requirements of an `allow` rule for the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseLimits {
    pub(super) media_types: Option<Vec<MediaPattern>>,
    pub(super) max_bytes: Option<u64>,
    pub(super) robots: Option<RobotsMode>,
}

/// A role with its members and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompiledRole {
    pub(super) name: Arc<RuleName>,
    tenants: Option<NameList>,
    sessions: Option<NameList>,
    apps: Option<NameList>,
    certificates: Option<NameList>,
    pub(super) rules: Vec<CompiledRule>,
    pub(super) limits: Option<RoleLimits>,
}

impl CompiledRole {
    pub(super) fn has_member(&self, caller: &Caller) -> bool {
        let is_in = |list: &Option<NameList>, name: &str| {
            list.as_ref().is_none_or(|list| list.matches(name))
        };
        is_in(&self.tenants, &caller.tenant)
            && is_in(&self.sessions, &caller.session)
            && is_in(&self.apps, &caller.app)
            && is_in(&self.certificates, &caller.certificate)
    }
}

/// Reads and checks all files.
pub(super) fn compile_files(files: &[PolicyText<'_>]) -> Result<RuleSet, Vec<PolicyFileProblem>> {
    let mut compiler = Compiler::default();
    let total: usize = files.iter().map(|file| file.bytes.len()).sum();
    if let Some(last) = files.last().filter(|_| total > MAX_POLICY_BYTES) {
        let limit = MAX_POLICY_BYTES / 1024;
        let problem = format!("the policy is larger than {limit} KiB");
        compiler.problems.push(last.problem(
            0,
            problem,
            "Use patterns instead of long lists of hosts.",
        ));
        return Err(compiler.problems);
    }
    for file in files {
        match file.read() {
            Ok(document) => compiler.add_file(file, document),
            Err(problem) => compiler.problems.push(problem),
        }
    }
    compiler.finish(policy_files_digest(files))
}

/// The digest of policy files, valid or not: that of a single file, or that of the list of digests and names as
/// `sha256sum` prints it.
pub fn policy_files_digest(files: &[PolicyText<'_>]) -> String {
    let digest_of = |bytes: &[u8]| Sha256Digest::of(bytes).to_hex();
    match files {
        [file] => digest_of(file.bytes),
        files => {
            let mut lines = String::new();
            for file in files {
                // Writing to a string cannot fail.
                let _ = writeln!(lines, "{}  {}", digest_of(file.bytes), file.name);
            }
            digest_of(lines.as_bytes())
        }
    }
}

/// A part of a policy whose names are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NamedPart {
    Role,
    Deny,
    Intercept,
}

impl NamedPart {
    /// The part in messages.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "a role",
            Self::Deny => "an entry of deny",
            Self::Intercept => "an entry of intercept",
        }
    }
}

#[derive(Default)]
struct Compiler {
    problems: Vec<PolicyFileProblem>,
    deny: Vec<CompiledRule>,
    intercept: Vec<InterceptRule>,
    roles: Vec<CompiledRole>,
    default: Option<(RuleName, DefaultSetting)>,
    /// Place of the first use of each name of a role, or of an entry of a list.
    names: HashMap<(NamedPart, String), String>,
    has_enforced_file: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DefaultSetting {
    Allow,
    /// The request is allowed and reported.
    Report,
    Ask,
    Deny,
    /// The default of a file in report-only mode.
    Trial {
        is_allowed: bool,
    },
}

impl Compiler {
    fn add_file(&mut self, file: &PolicyText<'_>, document: PolicyDocument) {
        let PolicyDocument {
            default,
            report_only,
            deny,
            intercept,
            role,
        } = document;
        if default.is_none() && deny.is_empty() && role.is_empty() && intercept.is_empty() {
            // An empty file is usually one that was not written completely.
            let remedy = "Write roles, or default = \"deny\" for a policy that allows nothing.";
            self.problems
                .push(file.problem(0, "the file has no rule", remedy));
            return;
        }
        self.has_enforced_file |= !report_only;
        if let Some(default) = default {
            self.set_default(file, &default, report_only);
        }
        for entry in deny {
            self.add_deny(file, entry, report_only);
        }
        for entry in intercept {
            self.add_intercept(file, entry, report_only);
        }
        for entry in role {
            self.add_role(file, entry, report_only);
        }
    }

    fn set_default(&mut self, file: &PolicyText<'_>, text: &Spanned<String>, report_only: bool) {
        let offset = text.span().start;
        let setting = match (text.as_ref().as_str(), report_only) {
            ("allow", false) => DefaultSetting::Allow,
            ("deny", false) => DefaultSetting::Deny,
            ("report", false) => DefaultSetting::Report,
            ("ask", false) => DefaultSetting::Ask,
            ("allow", true) => DefaultSetting::Trial { is_allowed: true },
            ("report" | "ask" | "deny", true) => DefaultSetting::Trial { is_allowed: false },
            (other, _) => return self.bad_outcome(file, offset, other),
        };
        let name = rule_name(file, offset, DEFAULT_RULE.to_owned());
        if let Some((first, _)) = &self.default {
            let problem = format!("default is set already at {}", first.place);
            let remedy = "Keep one of the two.";
            return self.problems.push(file.problem(offset, problem, remedy));
        }
        self.default = Some((name, setting));
    }

    fn bad_outcome(&mut self, file: &PolicyText<'_>, offset: usize, outcome: &str) {
        let problem = format!("{outcome:?} is not an outcome");
        self.problems
            .push(file.problem(offset, problem, OUTCOME_REMEDY));
    }

    fn add_deny(&mut self, file: &PolicyText<'_>, entry: Spanned<DenyEntry>, is_trial: bool) {
        let offset = entry.span().start;
        let DenyEntry { name, hosts, ports } = entry.into_inner();
        if hosts.is_none() && ports.is_none() {
            let remedy = "Name hosts or ports; default = \"deny\" refuses everything else.";
            self.problems
                .push(file.problem(offset, "the entry names nothing", remedy));
        }
        self.check_name(file, &name);
        self.check_unique(file, &name, NamedPart::Deny);
        let rule = CompiledRule {
            name: Arc::new(rule_name(file, offset, format!("deny/{}", name.as_ref()))),
            effect: RuleEffect::Deny,
            is_trial,
            hosts: hosts.map(|hosts| self.hosts(file, &hosts)),
            ports: ports.map(|ports| self.ports(file, &ports)),
            methods: None,
            paths: None,
            response: None,
        };
        self.deny.push(rule);
    }

    fn add_role(&mut self, file: &PolicyText<'_>, entry: Spanned<RoleEntry>, is_trial: bool) {
        let offset = entry.span().start;
        let RoleEntry {
            name,
            tenants,
            sessions,
            apps,
            certificates,
            limits,
            rule,
        } = entry.into_inner();
        self.check_name(file, &name);
        if name.as_ref() == DEFAULT_RULE || name.as_ref() == "deny" {
            let problem = format!("a role cannot be named {:?}", name.as_ref());
            self.problems
                .push(file.problem(name.span().start, problem, "Choose another name."));
        }
        self.check_unique(file, &name, NamedPart::Role);
        let mut first_lines = HashMap::new();
        let rules = rule
            .into_iter()
            .map(|entry| {
                let line = file.line_at(entry.span().start);
                if let Some(first) = first_lines.insert(entry.as_ref().name.as_ref().clone(), line)
                {
                    let problem = format!(
                        "the role has another rule {:?} at line {first}",
                        entry.as_ref().name.as_ref()
                    );
                    self.problems.push(file.problem(
                        entry.span().start,
                        problem,
                        "Rename one of them.",
                    ));
                }
                self.rule(file, name.as_ref(), entry, is_trial)
            })
            .collect();
        let role = CompiledRole {
            name: Arc::new(rule_name(file, offset, name.as_ref().clone())),
            tenants: self.names(file, tenants.as_ref()),
            sessions: self.names(file, sessions.as_ref()),
            apps: self.names(file, apps.as_ref()),
            certificates: self.names(file, certificates.as_ref()),
            rules,
            limits: limits.map(|limits| self.limits(file, limits.into_inner(), is_trial)),
        };
        self.roles.push(role);
    }

    fn rule(
        &mut self,
        file: &PolicyText<'_>,
        role: &str,
        entry: Spanned<RuleEntry>,
        report_only: bool,
    ) -> CompiledRule {
        let offset = entry.span().start;
        let entry = entry.into_inner();
        self.check_name(file, &entry.name);
        let outcome = entry.outcome.as_ref().as_str();
        let effect = match outcome {
            "allow" => RuleEffect::Allow,
            "ask" => RuleEffect::Ask,
            "deny" | "report" => RuleEffect::Deny,
            other => {
                self.bad_outcome(file, entry.outcome.span().start, other);
                RuleEffect::Deny
            }
        };
        let has_response =
            entry.media_types.is_some() || entry.max_bytes.is_some() || entry.robots.is_some();
        if has_response && effect != RuleEffect::Allow {
            let problem = "media_types, max_bytes and robots are limits of what a rule allows";
            let remedy = "Move them to a rule with outcome = \"allow\".";
            self.problems.push(file.problem(offset, problem, remedy));
        }
        if effect == RuleEffect::Ask && (entry.methods.is_some() || entry.paths.is_some()) {
            let problem = "a person is asked about a host and a port, not methods and paths";
            let remedy = "Name hosts and ports alone, and put a rule that denies before it.";
            self.problems.push(file.problem(offset, problem, remedy));
        }
        let response = has_response.then(|| {
            Arc::new(ResponseLimits {
                media_types: entry
                    .media_types
                    .as_ref()
                    .map(|types| self.media_types(file, types)),
                max_bytes: entry
                    .max_bytes
                    .map(|limit| self.positive_limit(file, &limit, |size| size.as_u64())),
                robots: entry.robots.and_then(|mode| self.robots(file, &mode)),
            })
        });
        CompiledRule {
            name: Arc::new(rule_name(
                file,
                offset,
                format!("{role}/{}", entry.name.as_ref()),
            )),
            effect,
            is_trial: report_only || outcome == "report",
            hosts: entry.hosts.map(|hosts| self.hosts(file, &hosts)),
            ports: entry.ports.map(|ports| self.ports(file, &ports)),
            methods: entry.methods.map(|methods| self.methods(file, &methods)),
            paths: entry.paths.map(|paths| self.paths(file, &paths)),
            response,
        }
    }

    fn limits(&mut self, file: &PolicyText<'_>, entry: LimitsEntry, is_trial: bool) -> RoleLimits {
        let LimitsEntry {
            requests_per_hour,
            requests_per_day,
            bytes_per_hour,
            bytes_per_day,
            concurrent,
        } = entry;
        let mut count = |limit: Option<Spanned<u64>>| {
            limit.map(|limit| self.positive_limit(file, &limit, |limit| *limit))
        };
        let (requests_per_hour, requests_per_day) =
            (count(requests_per_hour), count(requests_per_day));
        let concurrent = count(concurrent);
        let mut size = |limit: Option<Spanned<dray_types::ByteSize>>| {
            limit.map(|limit| self.positive_limit(file, &limit, |limit| limit.as_u64()))
        };
        RoleLimits {
            requests_per_hour,
            requests_per_day,
            bytes_per_hour: size(bytes_per_hour),
            bytes_per_day: size(bytes_per_day),
            concurrent,
            is_trial,
        }
    }

    fn finish(mut self, digest: String) -> Result<RuleSet, Vec<PolicyFileProblem>> {
        if !self.problems.is_empty() {
            self.problems.truncate(MAX_PROBLEMS);
            return Err(self.problems);
        }
        let defaults = self.defaults();
        let rules = || {
            self.deny
                .iter()
                .chain(self.roles.iter().flat_map(|role| &role.rules))
        };
        let has_trial =
            rules().any(|rule| rule.is_trial) || defaults.outcome != defaults.outcome_in_trial;
        let count = rules().count();
        if count > MAX_RULES {
            return Err(vec![PolicyFileProblem {
                file: "policy".to_owned(),
                line: 1,
                problem: format!("the policy has {count} rules; at most {MAX_RULES} are allowed"),
                remedy: "Put hosts with the same outcome into one rule.".to_owned(),
            }]);
        }
        Ok(RuleSet {
            digest,
            deny: self.deny,
            intercept: self.intercept,
            roles: self.roles,
            defaults,
            has_trial,
        })
    }

    /// The default outcome if no file sets one: deny, unless every file is in report-only mode.
    fn defaults(&self) -> DefaultOutcome {
        let is_unset_allowed = !self.has_enforced_file;
        let outcome_if = |is_allowed| {
            if is_allowed {
                RuleOutcome::Allow
            } else {
                RuleOutcome::Deny
            }
        };
        let (allow, deny) = (RuleOutcome::Allow, RuleOutcome::Deny);
        let (rule, outcome, outcome_in_trial) = match &self.default {
            Some((name, DefaultSetting::Allow)) => (name.clone(), allow, allow),
            Some((name, DefaultSetting::Ask)) => (name.clone(), RuleOutcome::Ask, RuleOutcome::Ask),
            Some((name, DefaultSetting::Deny)) => (name.clone(), deny, deny),
            Some((name, DefaultSetting::Report)) => (name.clone(), allow, deny),
            Some((name, DefaultSetting::Trial { is_allowed })) => (
                name.clone(),
                outcome_if(is_unset_allowed),
                outcome_if(*is_allowed),
            ),
            None => {
                let name = RuleName {
                    name: DEFAULT_RULE.to_owned(),
                    place: String::new(),
                };
                (name, outcome_if(is_unset_allowed), deny)
            }
        };
        DefaultOutcome {
            rule: Arc::new(rule),
            outcome,
            outcome_in_trial,
        }
    }
}

fn rule_name(file: &PolicyText<'_>, offset: usize, name: String) -> RuleName {
    RuleName {
        name,
        place: format!("{}:{}", file.name, file.line_at(offset)),
    }
}
