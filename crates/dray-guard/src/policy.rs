//! What the operator and the app allow (section 3).
//!
//! The operator's policy is a cap (I-5): an app may only narrow it (C-3). The effective policy is computed once per
//! fetch and holds for the whole redirect chain (C-4).

use dray_types::Sha256Digest;
use serde_json::{Value, json};

use crate::canon::CanonicalUrl;
use crate::judge::PrivateRanges;
use crate::pattern::{HostPattern, HostPatterns};
use crate::reason::Code;

mod ports;
mod text;

pub use ports::{AllowedPorts, BAD_PORTS, PortsError};
pub use text::{MaxRedirects, MaxRedirectsError, SwitchError, parse_switch};

/// What the operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminPolicy {
    /// Whether anything is fetched at all. Off by default.
    pub enabled: bool,
    /// Hosts that may be fetched; `None` allows every public host.
    pub host_allowlist: Option<HostPatterns>,
    /// Ports that may be fetched from.
    pub ports: AllowedPorts,
    /// Refuses plain http.
    pub https_only: bool,
    /// Lets a redirect lead from https to http.
    pub allow_downgrade: bool,
    /// Redirects that are followed at most.
    pub max_redirects: MaxRedirects,
    /// Private ranges that are open. Judged in [`crate::judge`]; here for the digest and the warnings.
    pub private_ranges: PrivateRanges,
    /// Hosts that are never fetched, in addition to the built-in ones.
    pub blocked_hosts: HostPatterns,
}

/// What an app allows (`features.external_url_fetch` of its manifest). The default says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppPolicy {
    /// `None` and `true` add nothing; `false` refuses every fetch.
    pub enabled: Option<bool>,
    /// `None` says nothing; an empty list allows no host (P-1).
    pub host_allowlist: Option<Vec<String>>,
}

/// Both policies, checked, for one fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectivePolicy {
    admin: AdminPolicy,
    app_hosts: Option<HostPatterns>,
    digest: String,
}

impl EffectivePolicy {
    /// Decides the on/off axis (3.2) and checks the app's patterns.
    ///
    /// # Errors
    /// `disabled_by_admin`, `disabled_by_app`, `policy_invalid`.
    pub fn new(admin: &AdminPolicy, app: &AppPolicy) -> Result<Self, Code> {
        if !admin.enabled {
            return Err(Code::DisabledByAdmin);
        }
        if app.enabled == Some(false) {
            return Err(Code::DisabledByApp);
        }
        let app_hosts = app
            .host_allowlist
            .as_ref()
            .map(HostPatterns::parse)
            .transpose()
            .map_err(|_| Code::PolicyInvalid)?;
        Ok(Self {
            admin: admin.clone(),
            app_hosts,
            digest: policy_digest(admin, app),
        })
    }

    /// Everything that is decided by URL alone, in the order of 3.1: scheme, both allowlists, port, name.
    pub fn check(&self, url: &CanonicalUrl) -> Result<(), Code> {
        self.check_scheme(url)?;
        self.check_host(url)?;
        self.check_port(url.port())?;
        self.check_name(url)
    }

    /// Refuses plain http when the operator wants https only (U-3).
    pub fn check_scheme(&self, url: &CanonicalUrl) -> Result<(), Code> {
        if self.admin.https_only && !url.https() {
            return Err(Code::UnsupportedScheme);
        }
        Ok(())
    }

    /// The allowlist axis (3.3); the operator's list is reported first.
    pub fn check_host(&self, url: &CanonicalUrl) -> Result<(), Code> {
        let allows =
            |list: &Option<HostPatterns>| list.as_ref().is_none_or(|list| list.matches(url));
        if !allows(&self.admin.host_allowlist) {
            return Err(Code::HostNotInAdminAllowlist);
        }
        if !allows(&self.app_hosts) {
            return Err(Code::HostNotInAppAllowlist);
        }
        Ok(())
    }

    /// Refuses a port outside the allowed set (U-9).
    pub fn check_port(&self, port: u16) -> Result<(), Code> {
        if self.admin.ports.allows(port) {
            Ok(())
        } else {
            Err(Code::PortNotAllowed)
        }
    }

    /// Refuses names that are never fetched (section 6). Addresses have no name to refuse.
    pub fn check_name(&self, url: &CanonicalUrl) -> Result<(), Code> {
        match url.host() {
            crate::Host::Name(name)
                if crate::canon::names::is_blocked_name(name, &self.admin.blocked_hosts) =>
            {
                Err(Code::BlockedHost)
            }
            crate::Host::Name(_) | crate::Host::Ip(_) => Ok(()),
        }
    }

    /// Whether the operator's list is set and names this host: what lets a redirect enter an opened range (8.6).
    pub fn is_admin_listed(&self, url: &CanonicalUrl) -> bool {
        self.admin
            .host_allowlist
            .as_ref()
            .is_some_and(|list| list.matches(url))
    }

    /// The operator's part.
    pub const fn admin(&self) -> &AdminPolicy {
        &self.admin
    }

    /// SHA-256 of the policy in hexadecimal, for the audit event (C-4).
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl AdminPolicy {
    /// Warnings for the operator at start: odd but legal settings (H-5, 8.6).
    pub fn warnings(&self) -> Vec<String> {
        let list = |name: &str, patterns: &HostPatterns| -> Vec<String> {
            patterns
                .over_public_suffixes()
                .map(|pattern| format!("{name}: {pattern} covers every name under a public suffix"))
                .collect()
        };
        let mut warnings = list("blocked hosts", &self.blocked_hosts);
        if let Some(patterns) = &self.host_allowlist {
            warnings.extend(list("host allowlist", patterns));
            let addresses = patterns.iter().filter(|pattern| pattern.is_address());
            warnings.extend(
                addresses
                    .map(|one| format!("host allowlist: {one} is an address and matches no host")),
            );
        }
        warnings.extend(self.private_ranges.warnings());
        if self.host_allowlist.is_none() && !self.private_ranges.is_empty() {
            warnings
                .push("private ranges are open to every app: there is no host allowlist".into());
        }
        warnings
    }
}

/// SHA-256 in hexadecimal over both policies, in a form that does not depend on how they were written. Exists for
/// invalid and switched-off policies too, so that refusals can be audited.
pub fn policy_digest(admin: &AdminPolicy, app: &AppPolicy) -> String {
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
        "dray egress policy 1",
        enabled,
        host_allowlist.as_ref().map(names),
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

/// Sorted and unique; items that are not patterns stay as they are behind a mark that no pattern has.
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
