//! A table of expectations about a policy, for tests of policy files.

use serde::Deserialize;
use std::sync::Arc;
use toml::Spanned;

use super::replay::ReplayOutcome;
use super::source::PolicyText;
use super::{Caller, PolicyFileProblem, RuleName, RuleSet};
use crate::canon::{CanonicalUrl, Host};
use crate::judge::{HopContext, Judge};
use crate::policy::{
    AdminPolicy, AllowedPorts, AppPolicy, CallerRules, EffectivePolicy, RequestKind,
};
use crate::reason::Code;

/// The expectation for one request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The URL; for a tunnel, one with its host and port.
    pub url: String,
    /// The outcome: `allow`, `report`, `ask` or `deny`.
    pub outcome: String,
    /// Name of the rule that decides or that is reported; not compared if it is absent.
    pub rule: Option<String>,
    /// The tenant; empty when absent.
    #[serde(default)]
    pub tenant: String,
    /// The session, likewise.
    #[serde(default)]
    pub session: String,
    /// The app, likewise.
    #[serde(default)]
    pub app: String,
    /// The name of the client certificate, likewise.
    #[serde(default)]
    pub certificate: String,
    /// `fetch` (the default), `request` or `tunnel`.
    pub via: Option<String>,
    /// Method of a request; `GET` when absent.
    pub method: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectationFile {
    #[serde(default)]
    expect: Vec<Spanned<Expectation>>,
}

/// The result for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectationResult {
    /// Line of the file that has the expectation, from 1.
    pub line: usize,
    /// URL of the request, as the file writes it.
    pub url: String,
    /// The expected decision, as `outcome` or `outcome by rule`.
    pub expected: String,
    /// The actual outcome, in the same form; with the code of a refusal by the configuration.
    pub found: String,
    /// Whether the two agree.
    pub is_met: bool,
}

/// Limits of the configuration, which hold beside the policy files.
#[derive(Clone, Copy, Debug)]
pub struct ConfiguredLimits<'a> {
    /// Switches, host list and ports of all requests.
    pub admin: &'a AdminPolicy,
    /// Decides which addresses are refused, for URLs that have an address in place of a name.
    pub judge: &'a Judge,
    /// Ports of tunnels through the proxy, and of requests inside of them.
    pub tunnel_ports: &'a AllowedPorts,
    /// Ports of requests in absolute form through the proxy.
    pub request_ports: &'a AllowedPorts,
}

/// Expectations with their line numbers.
#[derive(Clone, Debug)]
pub struct ExpectationTable(Vec<(usize, Expectation, RequestKind)>);

impl ExpectationTable {
    /// Reads tables `[[expect]]`.
    ///
    /// # Errors
    /// Every problem, with its line.
    pub fn parse(file: &PolicyText<'_>) -> Result<Self, Vec<PolicyFileProblem>> {
        let text = std::str::from_utf8(file.bytes).map_err(|error| {
            let offset = error.valid_up_to();
            vec![file.problem(offset, "the file is not UTF-8", "Save it as UTF-8 text.")]
        })?;
        let document: ExpectationFile = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let problem = error.message().replace('\n', " ");
            vec![file.problem(offset, problem, "See docs/egress-policy.md.")]
        })?;
        if document.expect.is_empty() {
            let remedy = "Write tables [[expect]] with url and outcome.";
            return Err(vec![file.problem(0, "the file expects nothing", remedy)]);
        }
        let mut problems = Vec::new();
        let mut table = Vec::with_capacity(document.expect.len());
        for entry in document.expect {
            let offset = entry.span().start;
            let entry = entry.into_inner();
            match checked_kind(&entry) {
                Ok(kind) => table.push((file.line_at(offset), entry, kind)),
                Err((problem, remedy)) => problems.push(file.problem(offset, problem, remedy)),
            }
        }
        if problems.is_empty() {
            Ok(Self(table))
        } else {
            Err(problems)
        }
    }

    /// Judges every request by the configuration and the policy, without DNS. The operator's switch counts as on.
    pub fn check(
        &self,
        configured: ConfiguredLimits<'_>,
        rules: &Arc<RuleSet>,
    ) -> Vec<ExpectationResult> {
        let admin = AdminPolicy {
            enabled: true,
            ..configured.admin.clone()
        };
        let configured = ConfiguredLimits {
            admin: &admin,
            ..configured
        };
        self.0
            .iter()
            .map(|(line, expectation, kind)| {
                let (outcome, rule) = judge(configured, rules, expectation, kind);
                let is_rule_met = expectation
                    .rule
                    .as_ref()
                    .is_none_or(|expected_rule| *expected_rule == rule);
                let expected = match &expectation.rule {
                    Some(rule) => format!("{} by {rule}", expectation.outcome),
                    None => expectation.outcome.clone(),
                };
                ExpectationResult {
                    line: *line,
                    url: expectation.url.clone(),
                    expected,
                    found: format!("{} by {rule}", outcome.as_str()),
                    is_met: is_rule_met && outcome.as_str() == expectation.outcome,
                }
            })
            .collect()
    }
}

impl ConfiguredLimits<'_> {
    /// Whether the proxy opens the port of `url` for such a request; always for a fetch.
    fn opens_port(&self, kind: &RequestKind, url: &CanonicalUrl) -> bool {
        match kind {
            RequestKind::Fetch => true,
            RequestKind::Request(_) if !url.https() => self.request_ports.allows(url.port()),
            RequestKind::Request(_) | RequestKind::Tunnel | RequestKind::Intercepted => {
                self.tunnel_ports.allows(url.port())
            }
        }
    }

    /// The reason why the address of `url` is refused; `None` for a name, whose addresses are not known here.
    fn address_refusal(&self, url: &CanonicalUrl) -> Option<Code> {
        let Host::Ip(address) = url.host() else {
            return None;
        };
        // A literal address is in no list of hosts.
        let judged = self
            .judge
            .judge_literal(*address, url.port(), HopContext::default());
        judged.err().map(|refused| refused.code)
    }
}

fn checked_kind(entry: &Expectation) -> Result<RequestKind, (String, &'static str)> {
    if !matches!(entry.outcome.as_str(), "allow" | "report" | "ask" | "deny") {
        let problem = format!("{:?} is not an outcome", entry.outcome);
        return Err((problem, "Write \"allow\", \"report\", \"ask\" or \"deny\"."));
    }
    match (entry.via.as_deref().unwrap_or("fetch"), &entry.method) {
        ("fetch", None) => Ok(RequestKind::Fetch),
        ("tunnel", None) => Ok(RequestKind::Tunnel),
        ("request", method) => Ok(RequestKind::Request(
            method.clone().unwrap_or_else(|| "GET".to_owned()),
        )),
        ("fetch" | "tunnel", Some(_)) => Err((
            "only a request has a method".to_owned(),
            "Write via = \"request\", or leave the method out.",
        )),
        (other, _) => Err((
            format!("{other:?} is not a kind of request"),
            "Write via = \"fetch\", \"request\" or \"tunnel\".",
        )),
    }
}

/// The outcome, and the rule or code that decided.
fn judge(
    configured: ConfiguredLimits<'_>,
    rules: &Arc<RuleSet>,
    expectation: &Expectation,
    kind: &RequestKind,
) -> (ReplayOutcome, String) {
    let refused = |code: Code| (ReplayOutcome::Deny, code.as_str().to_owned());
    let url = match CanonicalUrl::parse(&expectation.url) {
        Ok(url) => url,
        Err(code) => return refused(code),
    };
    let seen_kind = match kind {
        RequestKind::Tunnel => rules.tunnel_kind(&expectation.tenant, &url),
        kind => kind.clone(),
    };
    let policy = match EffectivePolicy::new(configured.admin, &AppPolicy::default()) {
        Ok(policy) => policy.with_rules(Some(CallerRules {
            rules: Arc::clone(rules),
            caller: Caller {
                tenant: expectation.tenant.clone(),
                session: expectation.session.clone(),
                app: expectation.app.clone(),
                certificate: expectation.certificate.clone(),
            },
            kind: seen_kind,
            grants: Vec::new(),
        })),
        Err(code) => return refused(code),
    };
    match (policy.check(&url), policy.decide(&url)) {
        (Err(code), _) if !matches!(code, Code::PolicyDenied | Code::ApprovalRequired) => {
            refused(code)
        }
        (Err(Code::PolicyDenied), Some(decision)) => {
            (ReplayOutcome::Deny, decision.rule.name.clone())
        }
        // The proxy asks about no port that it never opens.
        _ if !configured.opens_port(kind, &url) => refused(Code::PortNotAllowed),
        (_, Some(decision)) => {
            // The configured rule is judged last, as in a fetch.
            if let Some(code) = configured
                .address_refusal(&url)
                .filter(|_| decision.is_allowed())
            {
                return refused(code);
            }
            let rule: &Arc<RuleName> = decision.reported.as_ref().unwrap_or(&decision.rule);
            (ReplayOutcome::of(&decision), rule.name.clone())
        }
        // The rules were given above.
        (_, None) => refused(Code::Internal),
    }
}
