//! The policies of the operator and of the app (section 3).
//!
//! The operator's policy is a cap (I-5): an app may only narrow it (C-3). The effective policy is computed once per
//! fetch and holds for the whole redirect chain (C-4).

use std::sync::Arc;

use dray_types::Sha256Digest;
use serde_json::{Value, json};

use crate::canon::{CanonicalUrl, Host};
use crate::judge::PrivateRanges;
use crate::pattern::{HostPattern, HostPatterns};
use crate::reason::Code;
use crate::ruleset::{Caller, RequestView, RuleDecision, RuleSet};
use crate::steps::{PolicyStep, RuleOwner, StepObserver};

mod ports;
mod prepared;
mod text;

pub use ports::{AllowedPorts, BAD_PORTS, PortsError};
pub use prepared::PreparedPolicy;
pub use text::{MaxRedirects, MaxRedirectsError, SwitchError, parse_switch};

/// The operator's policy: the limit that apps can only narrow (I-5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminPolicy {
    /// Whether anything is fetched at all. Off by default.
    pub enabled: bool,
    /// Hosts that may be fetched; `None` allows every public host.
    pub host_allowlist: Option<HostPatterns>,
    /// Ports that may be fetched from; bad ports stay refused (U-9).
    pub ports: AllowedPorts,
    /// Refuses plain http, as the agent's URL and as a redirect target.
    pub https_only: bool,
    /// Lets a redirect lead from https to http.
    pub allow_downgrade: bool,
    /// Redirects that are followed at most.
    pub max_redirects: MaxRedirects,
    /// Private ranges that are open. [`crate::judge`] applies them; they are here for the digest and the warnings.
    pub private_ranges: PrivateRanges,
    /// Hosts that are never fetched, in addition to the built-in ones.
    pub blocked_hosts: HostPatterns,
}

/// The policy of an app (`features.external_url_fetch` of its manifest). The default adds no restriction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppPolicy {
    /// `None` and `true` add nothing; `false` refuses every fetch.
    pub enabled: Option<bool>,
    /// `None` adds no restriction; an empty list allows no host (P-1).
    pub host_allowlist: Option<Vec<String>>,
}

/// The kind of a request, which decides what the rules can see of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// A file that egress-fetcher itself requests.
    #[default]
    Fetch,
    /// A request through the proxy, with its method.
    Request(String),
    /// A tunnel through the proxy.
    Tunnel,
    /// A tunnel that the proxy intercepts. Each request inside is judged as [`Self::Request`] too.
    Intercepted,
}

impl RequestKind {
    /// Whether the request is a tunnel, intercepted or not.
    pub const fn is_tunnel(&self) -> bool {
        matches!(self, Self::Tunnel | Self::Intercepted)
    }

    /// The method, as far as it is visible; empty for a tunnel.
    pub fn method(&self) -> &str {
        match self {
            Self::Fetch => "GET",
            Self::Request(method) => method,
            Self::Tunnel | Self::Intercepted => "",
        }
    }

    /// The parts of a request for `url` that the rules see.
    pub fn view<'a>(&'a self, url: &'a CanonicalUrl) -> RequestView<'a> {
        match self {
            Self::Fetch => RequestView::fetch(url),
            Self::Request(method) => RequestView::request(url, method),
            Self::Tunnel => RequestView::tunnel(url),
            Self::Intercepted => RequestView::intercepted(url),
        }
    }
}

/// The rules of the policy files, for one caller. They apply to a whole chain, even if the files change (C-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerRules {
    /// The compiled rules, as they were when the fetch began.
    pub rules: Arc<RuleSet>,
    /// The caller, which determines the roles that apply.
    pub caller: Caller,
    /// The kind of the request.
    pub kind: RequestKind,
    /// The hosts that people have allowed for the session of the caller.
    pub grants: Vec<HostGrant>,
}

/// The answer of a person: a session may reach exactly this host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGrant {
    /// The canonical host.
    pub host: Host,
    /// The TCP port.
    pub port: u16,
}

impl HostGrant {
    /// The grant that `url` would need.
    pub fn of_url(url: &CanonicalUrl) -> Self {
        Self {
            host: url.host().clone(),
            port: url.port(),
        }
    }
}

impl CallerRules {
    /// Decides about a URL. A grant allows only a URL about which the rules would ask.
    pub fn decide(&self, url: &CanonicalUrl) -> RuleDecision {
        let decision = self.rules.decide(&self.caller, &self.kind.view(url));
        if self.grants.contains(&HostGrant::of_url(url)) {
            decision.approved()
        } else {
            decision
        }
    }
}

/// Both policies, checked, for one fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectivePolicy {
    admin: Arc<AdminPolicy>,
    app_hosts: Option<HostPatterns>,
    rules: Option<CallerRules>,
    digest: String,
}

impl EffectivePolicy {
    /// Decides whether fetching is on (3.2), and checks the app's patterns.
    ///
    /// # Errors
    /// `disabled_by_admin`, `disabled_by_app`, `policy_invalid`.
    pub fn new(admin: &AdminPolicy, app: &AppPolicy) -> Result<Self, Code> {
        Self::observed(admin, app, &mut ())
    }

    /// Like [`Self::new`], with an observer of the steps.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn observed(
        admin: &AdminPolicy,
        app: &AppPolicy,
        steps: &mut dyn StepObserver,
    ) -> Result<Self, Code> {
        let digest = policy_digest(admin, app);
        Self::check_app(&Arc::new(admin.clone()), app, &digest, steps)
    }

    /// Applies the switches, and checks the app's patterns. `digest` is that of both policies.
    fn check_app(
        admin: &Arc<AdminPolicy>,
        app: &AppPolicy,
        digest: &str,
        steps: &mut dyn StepObserver,
    ) -> Result<Self, Code> {
        // The operator's message is reported before the app's (3.2).
        let verdict = refuse_if(!admin.enabled, Code::DisabledByAdmin);
        steps.observe(PolicyStep::OperatorSwitch, RuleOwner::Operator, verdict)?;
        let verdict = refuse_if(app.enabled == Some(false), Code::DisabledByApp);
        steps.observe(PolicyStep::AppSwitch, RuleOwner::App, verdict)?;
        // An invalid pattern is not skipped: the rest would not be the list that its author wrote (P-4).
        let app_hosts = app
            .host_allowlist
            .as_ref()
            .map(HostPatterns::parse)
            .transpose()
            .map_err(|_| Code::PolicyInvalid);
        let verdict = app_hosts.as_ref().map(|_| ()).map_err(|code| *code);
        steps.observe(PolicyStep::AppPatterns, RuleOwner::App, verdict)?;
        Ok(Self {
            admin: Arc::clone(admin),
            app_hosts: app_hosts?,
            rules: None,
            digest: digest.to_owned(),
        })
    }

    /// Adds the rules of the policy files, which can only narrow the policy.
    #[must_use]
    pub fn with_rules(mut self, rules: Option<CallerRules>) -> Self {
        self.rules = rules;
        self
    }

    /// The rules of the policy files for the caller; `None` without files.
    pub const fn rules(&self) -> Option<&CallerRules> {
        self.rules.as_ref()
    }

    /// Adds a host that a person has allowed for the session of the caller.
    pub fn grant(&mut self, grant: HostGrant) {
        if let Some(rules) = &mut self.rules {
            rules.grants.push(grant);
        }
    }

    /// The decision of the policy files about `url`; `None` without files.
    pub fn decide(&self, url: &CanonicalUrl) -> Option<RuleDecision> {
        self.rules.as_ref().map(|rules| rules.decide(url))
    }

    /// Everything that is decided by URL alone, in the order of 3.1: scheme, both allowlists, port, name,
    /// rules of the policy files.
    ///
    /// # Errors
    /// The refusal of the first step that fails.
    pub fn check(&self, url: &CanonicalUrl) -> Result<(), Code> {
        self.check_observed(url, &mut ())
    }

    /// Like [`Self::check`], with an observer of the steps.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub fn check_observed(
        &self,
        url: &CanonicalUrl,
        steps: &mut dyn StepObserver,
    ) -> Result<(), Code> {
        let operator = RuleOwner::Operator;
        steps.observe(PolicyStep::Scheme, operator, self.check_scheme(url))?;
        // The operator's list is reported first (3.3).
        let verdict = self.check_admin_hosts(url);
        steps.observe(PolicyStep::OperatorHosts, operator, verdict)?;
        let verdict = self.check_app_hosts(url);
        steps.observe(PolicyStep::AppHosts, RuleOwner::App, verdict)?;
        let port = self.check_port(url.port());
        let owner = owner_of(port.is_err() && BAD_PORTS.contains(&url.port()));
        steps.observe(PolicyStep::Port, owner, port)?;
        let name = self.check_name(url);
        let owner = owner_of(name.is_err() && is_built_in_name(url));
        steps.observe(PolicyStep::HostName, owner, name)?;
        match self.decide(url) {
            Some(decision) => steps.observe(PolicyStep::PolicyRules, operator, decision.verdict()),
            None => Ok(()),
        }
    }

    /// Refuses plain http when the operator wants https only (U-3).
    ///
    /// # Errors
    ///
    /// [`Code::UnsupportedScheme`].
    pub fn check_scheme(&self, url: &CanonicalUrl) -> Result<(), Code> {
        refuse_if(
            self.admin.https_only && !url.https(),
            Code::UnsupportedScheme,
        )
    }

    fn check_admin_hosts(&self, url: &CanonicalUrl) -> Result<(), Code> {
        let allows = list_allows(self.admin.host_allowlist.as_ref(), url);
        refuse_if(!allows, Code::HostNotInAdminAllowlist)
    }

    fn check_app_hosts(&self, url: &CanonicalUrl) -> Result<(), Code> {
        let allows = list_allows(self.app_hosts.as_ref(), url);
        refuse_if(!allows, Code::HostNotInAppAllowlist)
    }

    /// Refuses a port outside the allowed set (U-9).
    ///
    /// # Errors
    ///
    /// [`Code::PortNotAllowed`].
    pub fn check_port(&self, port: u16) -> Result<(), Code> {
        refuse_if(!self.admin.ports.allows(port), Code::PortNotAllowed)
    }

    /// Refuses names that are never fetched (section 6). Addresses have no name to refuse.
    ///
    /// # Errors
    ///
    /// [`Code::BlockedHost`].
    pub fn check_name(&self, url: &CanonicalUrl) -> Result<(), Code> {
        let is_blocked = match url.host() {
            crate::Host::Name(name) => {
                crate::canon::names::is_blocked_name(name, &self.admin.blocked_hosts)
            }
            crate::Host::Ip(_) => false,
        };
        refuse_if(is_blocked, Code::BlockedHost)
    }

    /// Whether the operator's list is set and names this host. This lets a redirect enter an opened range (8.6).
    pub fn is_admin_listed(&self, url: &CanonicalUrl) -> bool {
        self.admin
            .host_allowlist
            .as_ref()
            .is_some_and(|list| list.matches(url))
    }

    /// The operator's policy, frozen for this chain.
    pub fn admin(&self) -> &AdminPolicy {
        &self.admin
    }

    /// SHA-256 of the policy in hexadecimal, for the audit event (C-4).
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

fn refuse_if(is_refused: bool, code: Code) -> Result<(), Code> {
    if is_refused { Err(code) } else { Ok(()) }
}

fn list_allows(list: Option<&HostPatterns>, url: &CanonicalUrl) -> bool {
    // Unset and empty differ: an empty list matches no host (P-1).
    list.is_none_or(|list| list.matches(url))
}

const fn owner_of(is_built_in: bool) -> RuleOwner {
    if is_built_in {
        RuleOwner::BuiltIn
    } else {
        RuleOwner::Operator
    }
}

/// Whether the host is a name that is blocked in every configuration.
fn is_built_in_name(url: &CanonicalUrl) -> bool {
    match url.host() {
        crate::Host::Name(name) => {
            crate::canon::names::is_blocked_name(name, &HostPatterns::default())
        }
        crate::Host::Ip(_) => false,
    }
}

impl AdminPolicy {
    /// Warnings for the operator at start: legal but unusual settings (H-5, 8.6).
    pub fn warnings(&self) -> Vec<String> {
        let suffix_warnings = |name: &str, patterns: &HostPatterns| -> Vec<String> {
            patterns
                .over_public_suffixes()
                .map(|pattern| format!("{name}: {pattern} covers every name under a public suffix"))
                .collect()
        };
        let mut warnings = suffix_warnings("blocked hosts", &self.blocked_hosts);
        if let Some(patterns) = &self.host_allowlist {
            warnings.extend(suffix_warnings("host allowlist", patterns));
            let addresses = patterns.iter().filter(|pattern| pattern.is_address());
            warnings.extend(addresses.map(|pattern| {
                format!("host allowlist: {pattern} is an address and matches no host")
            }));
        }
        warnings.extend(self.private_ranges.warnings());
        // SHOULD of 8.6: without a list any app reaches the opened ranges.
        if self.host_allowlist.is_none() && !self.private_ranges.is_empty() {
            warnings.push("private ranges are open to every app: no host allowlist is set".into());
        }
        warnings
    }
}

/// SHA-256 in hexadecimal over both policies, in a form that does not depend on how they were written. Exists for
/// invalid and switched-off policies too, so that refusals can be audited.
pub fn policy_digest(admin: &AdminPolicy, app: &AppPolicy) -> String {
    // The policy is destructured without `..`, so that a new setting does not compile until it is part of the digest.
    let AdminPolicy {
        enabled,
        host_allowlist,
        ports,
        https_only,
        allow_downgrade,
        max_redirects,
        private_ranges,
        blocked_hosts,
    } = admin;
    let names =
        |patterns: &HostPatterns| -> Value { patterns.iter().map(ToString::to_string).collect() };
    let form = json!([
        // The number changes with the form, so that digests of two forms are never equal.
        "dray egress policy 1",
        enabled,
        host_allowlist.as_ref().map(names),
        // The text of the ports does not depend on the order in which the operator wrote them.
        ports.to_string(),
        https_only,
        allow_downgrade,
        max_redirects.get(),
        private_ranges.to_string(),
        names(blocked_hosts),
        app.enabled,
        app.host_allowlist.as_deref().map(canonical_items),
    ]);
    Sha256Digest::of(form.to_string().as_bytes()).to_hex()
}

/// Sorted and unique. Items that are not patterns are kept as text, after a mark that no pattern contains.
fn canonical_items(items: &[String]) -> Vec<String> {
    let set: std::collections::BTreeSet<String> = items
        .iter()
        .map(|item| match HostPattern::parse(item) {
            Ok(pattern) => pattern.to_string(),
            Err(_) => format!("!{item}"),
        })
        .collect();
    set.into_iter().collect()
}

#[cfg(test)]
mod tests;
