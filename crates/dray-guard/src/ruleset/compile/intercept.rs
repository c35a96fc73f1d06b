//! The list `intercept`: hosts whose tunnels the proxy looks into.

use std::collections::BTreeSet;

use toml::Spanned;

use super::super::pattern::{HostList, NameList};
use super::super::source::{InterceptEntry, PolicyText};
use super::{Compiler, NamedPart};
use crate::canon::CanonicalUrl;

/// An entry of the list, ready to be matched. An absent list matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ruleset) struct InterceptRule {
    hosts: HostList,
    ports: Option<BTreeSet<u16>>,
    tenants: Option<NameList>,
}

impl InterceptRule {
    /// Whether a tunnel of `tenant` to the host and port of `url` is intercepted. A name with a root dot is the same
    /// host.
    pub(in crate::ruleset) fn matches(&self, tenant: &str, url: &CanonicalUrl) -> bool {
        let tenants = self.tenants.as_ref();
        let ports = self.ports.as_ref();
        self.hosts.matches(url.host())
            && ports.is_none_or(|ports| ports.contains(&url.port()))
            && tenants.is_none_or(|tenants| tenants.matches(tenant))
    }
}

impl Compiler {
    pub(super) fn add_intercept(
        &mut self,
        file: &PolicyText<'_>,
        entry: Spanned<InterceptEntry>,
        report_only: bool,
    ) {
        let offset = entry.span().start;
        let InterceptEntry {
            name,
            hosts,
            ports,
            tenants,
        } = entry.into_inner();
        self.check_name(file, &name);
        self.check_unique(file, &name, NamedPart::Intercept);
        if report_only {
            let problem = "an entry of intercept has no report-only mode";
            let remedy = "Move the entry to a file without report_only.";
            self.problems.push(file.problem(offset, problem, remedy));
        }
        let rule = InterceptRule {
            hosts: self.hosts(file, &hosts),
            ports: ports.map(|ports| self.ports(file, &ports)),
            tenants: self.names(file, tenants.as_ref()),
        };
        self.intercept.push(rule);
    }
}
