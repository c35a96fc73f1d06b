//! The typed configuration of the service (egress-security 20).
//!
//! Every variable of the specification is an alias of a field here (`config/aliases.rs`). [`Config::compile`] checks
//! the values when the configuration is loaded, and converts them into the types of the fetcher. The operator's policy
//! is read once, so a change needs a rollout; `reload` applies changes of credentials, keys, times and limits.

mod aliases;
mod audit_file;
mod audit_syslog;
mod cache;
mod client_tls;
mod compile;
mod credential;
mod interception;
mod proxy;
mod questions;
mod robots;
mod upstream_proxy;

pub use audit_file::{AuditFileConfig, AuditFileSettings, AuditFormat};
pub use audit_syslog::{AuditSyslogConfig, AuditSyslogSettings, SyslogAddress};
pub use cache::{CacheConfig, CacheSettings};
pub use client_tls::{
    CertificateClient, CertificateClientConfig, ClientTlsConfig, ClientTlsSettings,
};
pub use compile::CompiledConfig;
pub use credential::CredentialConfig;
pub use interception::{InterceptionConfig, InterceptionSettings};
pub use proxy::{ProxyConfig, ProxySettings};
pub use questions::{QuestionConfig, QuestionSettings};
pub use robots::RobotsSetting;
pub use upstream_proxy::UpstreamProxyConfig;

use std::path::PathBuf;

use dray_service::config::{ConfigProblem, FormerName, Section, VariableAlias};
use dray_service::reload::DEFAULT_RELOAD_INTERVAL;
use dray_types::{ByteSize, FileSetting, Period, RedactedUrl, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// Section `egress-fetcher`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a documented switch of its own"
)]
pub struct Config {
    /// Whether anything is fetched at all.
    pub enabled: bool,
    /// Hosts that may be fetched, as `example.com` or `*.example.com`; absent allows every public host.
    pub host_allowlist: Option<Vec<String>>,
    /// Ports that may be fetched from: numbers separated by commas, or `any`. The bad ports of the WHATWG Fetch
    /// standard stay refused.
    pub allowed_ports: String,
    /// Refuses plain http.
    pub https_only: bool,
    /// Lets a redirect lead from https to http.
    pub allow_downgrade: bool,
    /// Redirects that are followed at most, 0 to 10.
    pub max_redirects: u32,
    /// Connects over IPv6 too. IPv6 addresses of an answer are judged either way.
    pub ipv6: bool,
    /// Tries IPv6 addresses before IPv4 ones.
    pub ipv6_first: bool,
    /// DNS servers: addresses with an optional port, or encrypted servers alone, as `tls://ADDRESS#NAME` (DNS over TLS)
    /// and `https://ADDRESS/PATH#NAME` (DNS over HTTPS). Their certificates must have the name, or without one the
    /// address. Absent uses the `nameserver` lines of `/etc/resolv.conf`. No other fallback exists.
    pub dns_servers: Option<Vec<String>>,
    /// NAT64 prefixes that are in use here (RFC 6052); addresses inside are judged by the IPv4 address they carry.
    pub nat64_prefixes: Vec<String>,
    /// Networks that are never connected to, in addition to the built-in ones. Set it to the public addresses of
    /// nodes, load balancers and egress gateways, and to corporate public ranges.
    pub extra_blocked_cidrs: Vec<String>,
    /// Hosts that are never fetched, in addition to the built-in ones; patterns as in `host_allowlist`.
    pub extra_blocked_hosts: Vec<String>,
    /// Exact private networks (RFC 1918 or ULA) that are opened for internal file servers. Never loopback, link-local
    /// or metadata addresses, nor addresses of this machine.
    pub private_cidrs: Vec<String>,
    /// Addresses, networks or host names to which the product itself connects, blocked like `extra_blocked_cidrs`.
    /// Names are looked up with the system's resolver at start and every 60 s. Bus and store are added automatically.
    #[serde(serialize_with = "serialize_redacted")]
    pub protected: Vec<String>,
    /// Address of the Kubernetes API, blocked likewise.
    #[serde(serialize_with = "serialize_redacted_option")]
    pub kubernetes_api: Option<String>,
    /// File with further trust anchors in PEM form, in addition to the built-in web roots.
    pub ca_bundle: Option<FileSetting>,
    /// The proxy through which the web is reached. Proxy variables in the environment are never read.
    pub upstream_proxy: UpstreamProxyConfig,
    /// Fetches over HTTP/2 where a server of https offers it. Connections of the proxy to targets use HTTP/1.1.
    pub http2: bool,
    /// `User-Agent` of every request: printable ASCII, at most 128 characters.
    pub user_agent: String,
    /// Contact for operators of servers: a URL or an email address, sent as `(+CONTACT)` after `user_agent`.
    pub contact: Option<String>,
    /// How fetches treat the robots.txt of hosts: `ignore`, `report` a refusal in the audit event, or `obey`. Rules
    /// of policy files can override it.
    pub robots: RobotsSetting,
    /// Fails a fetch, and refuses a connection of the proxy, whose audit event could not be published, or not be
    /// recorded in `audit_file`.
    pub audit_required: bool,
    /// Fails a fetch that returns a small file whose origin could not be recorded in the store. A fetch that stores its
    /// file always fails then. Set it where `platform-delivery.web_files` has rules.
    pub origin_required: bool,
    /// Key of the hash that replaces path and query in audit events, so that equal paths can be recognised across
    /// replicas; absent uses a random one for each process.
    pub audit_key: Option<Secret>,
    /// Audit events as lines of a file.
    pub audit_file: AuditFileConfig,
    /// Audit events as messages to a syslog server.
    pub audit_syslog: AuditSyslogConfig,
    /// Most stored bytes of a fetch whose request sets no limit.
    pub max_bytes: ByteSize,
    /// Most stored bytes that a request may ask for.
    pub max_bytes_ceiling: ByteSize,
    /// Longest time of a fetch, retries included; a request may only ask for less. At most 300 s.
    pub total_timeout: Period,
    /// Time for DNS, per hop.
    pub dns_timeout: Period,
    /// Time for connecting, all addresses together, per hop; at most 30 s.
    pub connect_timeout: Period,
    /// Time for the TLS handshake, per hop.
    pub tls_timeout: Period,
    /// Time from the request to the final response head, per hop.
    pub head_timeout: Period,
    /// Longest silence within a body.
    pub idle_timeout: Period,
    /// Least bytes per second of a body on average, once `min_rate_after` has passed; 0 for none.
    pub min_rate: ByteSize,
    /// Time of a body before `min_rate` counts.
    pub min_rate_after: Period,
    /// Fetches at the same time. A tenant gets another slot only while it holds fewer than are free, so at most half of
    /// them.
    pub max_concurrency: u32,
    /// Fetches at the same time to one host.
    pub max_per_host: u32,
    /// Connections at the same time to one address.
    pub max_per_address: u32,
    /// Fetches at the same time for one app.
    pub max_per_app: u32,
    /// Fetches that wait for a slot. When the queue is full, a further fetch is refused, or displaces the newest one of
    /// the tenant with the most waiting fetches.
    pub max_queue: u32,
    /// Policy file in TOML form, or a directory of files `*.toml`, with the rules and quotas of tenants, sessions and
    /// apps. They can only narrow this section, hold for fetches and the proxy, and are read again when they change.
    /// Absent for no rules.
    pub policy_path: Option<PathBuf>,
    /// Takes the policy files from the key-value bucket `dray_egress_policy` of the bus, instead of `policy_path`: each
    /// key is a file. `dray policy put` writes it.
    pub policy_bucket: bool,
    /// Number of processes that share the quotas of the policy files. Each process has counters of its own and grants
    /// its part of every quota, at least 1.
    pub policy_replicas: u32,
    /// How often the configuration file and the directory of secrets are read again: `1s` to `1h`. Changed credentials,
    /// keys of tokens, times and most limits apply to later fetches and connections; the log names changes that need a
    /// restart. Default `2s`.
    pub reload_interval: Period,
    /// Secrets that are added to requests for a host, of fetches and of plain requests through the proxy.
    pub credentials: Vec<CredentialConfig>,
    /// Stored responses of fetches.
    pub cache: CacheConfig,
    /// Questions to people about hosts, which rules with the outcome `ask` cause.
    pub questions: QuestionConfig,
    /// The forward proxy for what runs inside sandboxes.
    pub proxy: ProxyConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: false,
            host_allowlist: None,
            allowed_ports: dray_guard::AllowedPorts::default().to_string(),
            https_only: false,
            allow_downgrade: false,
            max_redirects: 5,
            ipv6: true,
            ipv6_first: false,
            dns_servers: None,
            nat64_prefixes: Vec::new(),
            extra_blocked_cidrs: Vec::new(),
            extra_blocked_hosts: Vec::new(),
            private_cidrs: Vec::new(),
            protected: Vec::new(),
            kubernetes_api: None,
            ca_bundle: None,
            upstream_proxy: UpstreamProxyConfig::default(),
            http2: true,
            user_agent: concat!("dray/", env!("CARGO_PKG_VERSION")).to_owned(),
            contact: None,
            robots: RobotsSetting::Ignore,
            audit_required: false,
            origin_required: false,
            audit_key: None,
            audit_file: AuditFileConfig::default(),
            audit_syslog: AuditSyslogConfig::default(),
            max_bytes: ByteSize::mib(10),
            max_bytes_ceiling: ByteSize::mib(100),
            total_timeout: Period::secs(60),
            dns_timeout: Period::secs(3),
            connect_timeout: Period::secs(5),
            tls_timeout: Period::secs(5),
            head_timeout: Period::secs(10),
            idle_timeout: Period::secs(15),
            min_rate: ByteSize::kib(1),
            min_rate_after: Period::secs(20),
            max_concurrency: 64,
            max_per_host: 4,
            max_per_address: 8,
            max_per_app: 16,
            max_queue: 256,
            policy_path: None,
            policy_bucket: false,
            policy_replicas: 1,
            reload_interval: DEFAULT_RELOAD_INTERVAL,
            credentials: Vec::new(),
            cache: CacheConfig::default(),
            questions: QuestionConfig::default(),
            proxy: ProxyConfig::default(),
        }
    }
}

/// Names may be written as URLs, which sometimes contain a password (S-5).
fn serialize_redacted<S: Serializer>(items: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(items.iter().map(|item| show_name(item)))
}

#[expect(
    clippy::ref_option,
    reason = "the signature that the derived code calls"
)]
fn serialize_redacted_option<S: Serializer>(
    item: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    item.as_deref().map(show_name).serialize(serializer)
}

fn show_name(item: &str) -> String {
    RedactedUrl::from_text(item).to_string()
}

impl Section for Config {
    fn former_names() -> &'static [FormerName] {
        const FORMER_NAMES: [FormerName; 2] = [
            FormerName::below("proxy.tls", "key_file", "private_key"),
            FormerName::below("proxy.tls", "key_path", "private_key"),
        ];
        &FORMER_NAMES
    }

    fn aliases() -> &'static [VariableAlias] {
        &aliases::VARIABLE_ALIASES
    }

    fn strict_prefixes() -> &'static [&'static str] {
        &["EXTERNAL_URL_FETCH_"]
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        self.compile().err().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
