//! Compiles the text of the configuration into the types that the fetcher works with. All problems are reported
//! together.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use dray_guard::judge::{parse_blocked_networks, parse_nat64_prefixes};
use dray_guard::{AdminPolicy, HostPatterns, JudgeConfig, MaxRedirects, PrivateRanges};
use dray_service::config::ConfigProblem;
use dray_service::reload::interval_problem;
use dray_types::Period;
use http::HeaderValue;

use super::robots::contact_comment;
use super::{
    AuditFileSettings, AuditSyslogSettings, CacheSettings, Config, ProxySettings, QuestionSettings,
};
use crate::dial::UpstreamProxySettings;
use crate::fetch::FetchLimits;
use crate::limits::AdmissionLimits;
use crate::resolve::{NameServer, parse_servers};

/// Longest total time that an operator may configure (egress-security 14).
const MAX_TOTAL_TIMEOUT: Period = Period::secs(300);
/// Longest time for connecting that an operator may configure (egress-security 20).
const MAX_CONNECT: Period = Period::secs(30);
/// Longest `User-Agent` in bytes (egress-security 20).
const MAX_USER_AGENT_BYTES: usize = 128;

/// A checked configuration in the types that the fetcher uses.
#[derive(Clone, Debug)]
pub struct CompiledConfig {
    /// The operator's switches, allowlist, ports and ranges: the cap that no message can widen (I-5).
    pub admin: AdminPolicy,
    /// The configured part of the judge's knowledge: everything but the addresses of this machine and of protected
    /// names.
    pub judge: JudgeConfig,
    /// Limits of time and size of one fetch.
    pub settings: FetchLimits,
    /// How many fetches and connections run or wait concurrently.
    pub sizes: AdmissionLimits,
    /// Configured DNS servers; `None` for those of the system's file.
    pub servers: Option<Vec<NameServer>>,
    /// Protected host names that must be looked up.
    pub protected_hosts: Vec<String>,
    /// The file of audit events; `None` without one.
    pub audit_file: Option<AuditFileSettings>,
    /// The syslog server of audit events; `None` without one.
    pub audit_syslog: Option<AuditSyslogSettings>,
    /// Stored responses; `None` when responses are not stored.
    pub cache: Option<CacheSettings>,
    /// The upstream proxy; `None` without one.
    pub upstream_proxy: Option<UpstreamProxySettings>,
    /// Questions to people.
    pub questions: QuestionSettings,
    /// The forward proxy; `None` without one.
    pub proxy: Option<ProxySettings>,
}

/// Collects the problems of all fields, so that one start shows every mistake.
#[derive(Default)]
pub(super) struct ProblemCollector(pub(super) Vec<ConfigProblem>);

impl ProblemCollector {
    /// The value, or its default and a problem with `field`.
    pub(super) fn read<T: Default, E: Display>(&mut self, field: &str, value: Result<T, E>) -> T {
        // The default only lets the checks continue: with a recorded problem, the result is discarded.
        value.unwrap_or_else(|error| {
            self.0.push(ConfigProblem::new(field, error.to_string()));
            T::default()
        })
    }

    pub(super) fn period(&mut self, field: &str, value: Period, limit: Period) -> Duration {
        if value == Period::default() || value > limit {
            self.0.push(ConfigProblem::new(
                field,
                format!("must be more than 0 and at most {limit}"),
            ));
        }
        value.as_duration()
    }

    /// An empty item is a mistake: the restriction that it should express would be missing.
    fn not_blank(&mut self, field: &str, items: &[String]) {
        if items.iter().any(|item| item.trim().is_empty()) {
            self.0.push(ConfigProblem::new(field, "has an empty item"));
        }
    }

    pub(super) fn count(&mut self, field: &str, value: u32) -> usize {
        let allowed_counts: RangeInclusive<u32> = 1..=65_536;
        if !allowed_counts.contains(&value) {
            self.0.push(ConfigProblem::new(field, "must be 1 to 65536"));
        }
        usize::try_from(value).unwrap_or(usize::MAX)
    }
}

impl Config {
    /// Checks everything and builds the policy, the judge's knowledge and the limits.
    ///
    /// # Errors
    ///
    /// Every problem of every field.
    pub fn compile(&self) -> Result<CompiledConfig, Vec<ConfigProblem>> {
        let mut checks = ProblemCollector::default();
        let admin = self.admin(&mut checks);
        for (field, items) in [
            ("extra_blocked_cidrs", &self.extra_blocked_cidrs),
            ("nat64_prefixes", &self.nat64_prefixes),
            ("private_cidrs", &self.private_cidrs),
            ("protected", &self.protected),
        ] {
            checks.not_blank(field, items);
        }
        let (networks, protected_hosts) = self.protected();
        let judge = JudgeConfig {
            extra_blocked: checks.read(
                "extra_blocked_cidrs",
                parse_blocked_networks(&self.extra_blocked_cidrs.join(",")),
            ),
            extra_blocked_hosts: admin.blocked_hosts.clone(),
            // The service reads the interfaces itself, at start and again later (8.4).
            own_addresses: Vec::new(),
            protected: checks.read("protected", parse_blocked_networks(&networks.join(","))),
            private_ranges: admin.private_ranges.clone(),
            nat64_prefixes: checks.read(
                "nat64_prefixes",
                parse_nat64_prefixes(&self.nat64_prefixes.join(",")),
            ),
            ipv4_only: !self.ipv6,
            ipv6_first: self.ipv6_first,
        };
        checks.count("policy_replicas", self.policy_replicas);
        if self.policy_bucket && self.policy_path.is_some() {
            checks.add("policy_bucket", "must be false with policy_path");
        }
        checks.0.extend(interval_problem(self.reload_interval));
        self.check_credentials(&mut checks);
        let proxy = self.proxy.compile(&admin, &mut checks);
        let compiled = CompiledConfig {
            admin,
            judge,
            settings: self.settings(&mut checks),
            sizes: self.sizes(&mut checks),
            servers: self.servers(&mut checks),
            protected_hosts,
            audit_file: self.audit_file.compile(&mut checks),
            audit_syslog: self.audit_syslog.compile(&mut checks),
            cache: self.cache.compile(&mut checks),
            upstream_proxy: self.upstream_proxy.compile(&mut checks),
            questions: self.questions.compile(&mut checks),
            proxy,
        };
        if checks.0.is_empty() {
            Ok(compiled)
        } else {
            Err(checks.0)
        }
    }

    fn check_credentials(&self, checks: &mut ProblemCollector) {
        for (index, credential) in self.credentials.iter().enumerate() {
            credential.check(index, checks);
            let mut earlier = self.credentials.iter().take(index);
            if let Some(first) = earlier.position(|earlier| credential.overlaps(earlier)) {
                checks.add(
                    &format!("credentials.{index}.tenants"),
                    &format!(
                        "names a tenant, host and port of credentials.{first}: a request gets only one credential"
                    ),
                );
            }
        }
    }

    fn admin(&self, checks: &mut ProblemCollector) -> AdminPolicy {
        let host_allowlist = match self.host_allowlist.as_deref() {
            // An empty list could mean "none" or "all", and neither guess is safe (P-4).
            Some([]) => {
                checks.0.push(ConfigProblem::new(
                    "host_allowlist",
                    "must name at least one host; leave it out to allow every public host",
                ));
                None
            }
            Some(items) => {
                Some(checks.read("host_allowlist", HostPatterns::parse_allowlist(items)))
            }
            None => None,
        };
        AdminPolicy {
            enabled: self.enabled,
            host_allowlist,
            ports: checks.read("allowed_ports", self.allowed_ports.parse()),
            https_only: self.https_only,
            allow_downgrade: self.allow_downgrade,
            max_redirects: checks.read("max_redirects", MaxRedirects::new(self.max_redirects)),
            private_ranges: checks.read(
                "private_cidrs",
                PrivateRanges::parse(&self.private_cidrs.join(",")),
            ),
            blocked_hosts: checks.read(
                "extra_blocked_hosts",
                HostPatterns::parse(&self.extra_blocked_hosts),
            ),
        }
    }

    /// Protected addresses and networks, and protected names.
    fn protected(&self) -> (Vec<String>, Vec<String>) {
        let is_network = |item: &String| {
            // A URL has slashes too; its host has to be looked up.
            item.parse::<IpAddr>().is_ok() || item.contains('/') && !item.contains("://")
        };
        // The product itself connects to both, so fetches must not.
        let hosts = [self.audit_syslog.host(), self.upstream_proxy.host()];
        self.protected
            .iter()
            .chain(&self.kubernetes_api)
            .cloned()
            .chain(hosts.into_iter().flatten())
            .partition(is_network)
    }

    fn servers(&self, checks: &mut ProblemCollector) -> Option<Vec<NameServer>> {
        let items = self.dns_servers.as_ref()?;
        if items.is_empty() {
            checks.0.push(ConfigProblem::new(
                "dns_servers",
                "must name at least one server; leave it out to use those of /etc/resolv.conf",
            ));
        }
        Some(checks.read(
            "dns_servers",
            parse_servers(items.iter().map(String::as_str)),
        ))
    }

    fn settings(&self, checks: &mut ProblemCollector) -> FetchLimits {
        for (field, size) in [
            ("max_bytes", self.max_bytes),
            ("max_bytes_ceiling", self.max_bytes_ceiling),
        ] {
            if size.as_u64() == 0 {
                checks
                    .0
                    .push(ConfigProblem::new(field, "must be at least 1 byte"));
            }
        }
        if self.min_rate.as_u64() > 0 && self.min_rate_after == Period::default() {
            checks.0.push(ConfigProblem::new(
                "min_rate_after",
                "must be more than 0, or no body is fast enough; set min_rate to 0 for no least rate",
            ));
        }
        FetchLimits {
            dns: checks.period("dns_timeout", self.dns_timeout, MAX_TOTAL_TIMEOUT),
            connect: checks.period("connect_timeout", self.connect_timeout, MAX_CONNECT),
            tls: checks.period("tls_timeout", self.tls_timeout, MAX_TOTAL_TIMEOUT),
            head: checks.period("head_timeout", self.head_timeout, MAX_TOTAL_TIMEOUT),
            total: checks.period("total_timeout", self.total_timeout, MAX_TOTAL_TIMEOUT),
            idle: checks.period("idle_timeout", self.idle_timeout, MAX_TOTAL_TIMEOUT),
            // This limit applies after `grace`: the average counts only when it has passed (B-8).
            floor: self.min_rate.as_u64(),
            grace: self.min_rate_after.as_duration(),
            size: self.max_bytes.as_u64(),
            size_ceiling: self.max_bytes_ceiling.as_u64(),
            user_agent: self.user_agent(checks),
            robots: self.robots.into(),
        }
    }

    fn user_agent(&self, checks: &mut ProblemCollector) -> HeaderValue {
        let comment = contact_comment(self.contact.as_deref(), checks);
        let agent = format!("{}{comment}", self.user_agent);
        let agent = agent.as_str();
        let is_printable = agent.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let is_trimmed = agent.trim() == agent && !agent.is_empty();
        match HeaderValue::from_str(agent) {
            // `HeaderValue` alone would accept a tab, and blanks at the ends, which recipients strip (RFC 9110,
            // section 5.5).
            Ok(value) if is_printable && is_trimmed && agent.len() <= MAX_USER_AGENT_BYTES => value,
            _ => {
                checks.0.push(ConfigProblem::new(
                    "user_agent",
                    "must be 1 to 128 printable ASCII characters without blanks around them, the contact included",
                ));
                // A placeholder until `compile` returns the problem; it is never sent.
                HeaderValue::from_static("dray")
            }
        }
    }

    fn sizes(&self, checks: &mut ProblemCollector) -> AdmissionLimits {
        AdmissionLimits {
            global: checks.count("max_concurrency", self.max_concurrency),
            per_tenant: usize::MAX,
            per_host: checks.count("max_per_host", self.max_per_host),
            per_address: checks.count("max_per_address", self.max_per_address),
            shares_targets: false,
            per_app: checks.count("max_per_app", self.max_per_app),
            queue: checks.count("max_queue", self.max_queue),
        }
    }
}
