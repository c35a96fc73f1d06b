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

use dray_service::config::{ConfigProblem, FormerName, RestartSetting, Section, VariableAlias};
use dray_service::reload::DEFAULT_RELOAD_INTERVAL;
use dray_service::restart_settings;
use dray_types::{ByteSize, FileSetting, Period, RedactedUrl, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// The egress-fetcher, which fetches URLs of the web and is the forward proxy of sandboxes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a documented switch of its own"
)]
pub struct Config {
    /// Whether URLs are fetched. If false, every fetch is refused.
    pub enabled: bool,
    /// Hosts that may be fetched, as `example.com` or `*.example.com`. Unset: every public host.
    pub host_allowlist: Option<Vec<String>>,
    /// Ports that may be fetched from: numbers separated by commas, or `any`. The bad ports of the WHATWG Fetch
    /// standard are always refused.
    pub allowed_ports: String,
    /// Refuses plain http.
    pub https_only: bool,
    /// Lets a redirect lead from https to http.
    pub allow_downgrade: bool,
    /// Most redirects that one fetch follows: 0 (none) to 10.
    pub max_redirects: u32,
    /// Connects over IPv6 too. IPv6 addresses in DNS responses are checked in any case.
    pub ipv6: bool,
    /// Tries IPv6 addresses before IPv4 ones.
    pub ipv6_first: bool,
    /// DNS servers. Either all are addresses with an optional port, or all are encrypted: `tls://ADDRESS#NAME` (DNS
    /// over TLS) or `https://ADDRESS/PATH#NAME` (DNS over HTTPS). The certificate must have NAME, or without `#NAME`
    /// the address. Unset: the `nameserver` lines of `/etc/resolv.conf`. There is no other fallback.
    pub dns_servers: Option<Vec<String>>,
    /// NAT64 prefixes of this network (RFC 6052). An address inside a prefix is judged by the IPv4 address that it
    /// contains.
    pub nat64_prefixes: Vec<String>,
    /// Networks that are never connected to, in addition to the built-in ones. List the public addresses of nodes, load
    /// balancers and egress gateways, and corporate public ranges. Empty: none.
    pub extra_blocked_cidrs: Vec<String>,
    /// Hosts that are never fetched, in addition to the built-in ones, written as in `host_allowlist`. Empty: none.
    pub extra_blocked_hosts: Vec<String>,
    /// Private networks (RFC 1918 or ULA) that may be reached, for internal file servers. Loopback, link-local and
    /// metadata addresses, and addresses of this machine, stay refused. Empty: no private network.
    pub private_cidrs: Vec<String>,
    /// Addresses, networks or host names to which the product itself connects, blocked like `extra_blocked_cidrs`.
    /// Names are looked up with the system's resolver at start and every 60 s. Bus and store are added automatically.
    #[serde(serialize_with = "serialize_redacted")]
    pub protected: Vec<String>,
    /// Address of the Kubernetes API, which is blocked like those in `protected`.
    #[serde(serialize_with = "serialize_redacted_option")]
    pub kubernetes_api: Option<String>,
    /// PEM file with certificate authorities that are trusted in addition to the built-in web roots.
    pub ca_bundle: Option<FileSetting>,
    /// The proxy through which the web is reached. Proxy variables in the environment are never read.
    pub upstream_proxy: UpstreamProxyConfig,
    /// Fetches over HTTP/2 if an https server offers it. Connections of the forward proxy to targets always use
    /// HTTP/1.1.
    pub http2: bool,
    /// `User-Agent` of every request: printable ASCII, at most 128 characters.
    pub user_agent: String,
    /// Contact for operators of servers: a URL or an email address, sent as `(+CONTACT)` after `user_agent`; at most 80
    /// characters. Unset: none.
    pub contact: Option<String>,
    /// How fetches treat the robots.txt of hosts: `ignore`, `report` a refusal in the audit event, or `obey`. Rules
    /// of policy files can override it.
    pub robots: RobotsSetting,
    /// Fails a fetch, and refuses a connection of the proxy, if its audit event could not be published or not be
    /// written to `audit_file`.
    pub audit_required: bool,
    /// Fails a fetch that returns a small file if the origin of the file could not be recorded in the store. A fetch
    /// that stores its file always fails in this case. Set it if `platform-delivery.web_files` has rules.
    pub origin_required: bool,
    /// Key of the hash that replaces path and query in audit events, so that equal paths can be recognised across
    /// replicas. Unset: a random key for each process.
    pub audit_key: Option<Secret>,
    /// Audit events as lines of a file.
    pub audit_file: AuditFileConfig,
    /// Audit events as messages to a syslog server.
    pub audit_syslog: AuditSyslogConfig,
    /// Most stored bytes of a fetch whose request sets no limit.
    pub max_bytes: ByteSize,
    /// Largest limit of stored bytes that a request may set.
    pub max_bytes_ceiling: ByteSize,
    /// Longest time of a fetch, retries included; at most `5m`. A request can only shorten it.
    pub total_timeout: Period,
    /// Longest time for the DNS lookup of each hop, at most `5m`. A hop is a request; every redirect begins a new one.
    pub dns_timeout: Period,
    /// Longest time for connecting in each hop, all addresses together; at most `30s`.
    pub connect_timeout: Period,
    /// Longest time of the TLS handshake in each hop; at most `5m`.
    pub tls_timeout: Period,
    /// Longest time from the request to the final head of the response in each hop; at most `5m`.
    pub head_timeout: Period,
    /// Longest time without a byte within a body; at most `5m`.
    pub idle_timeout: Period,
    /// Lowest average rate of a body in bytes per second, checked once `min_rate_after` has passed; 0 for no limit.
    pub min_rate: ByteSize,
    /// Time after the start of a body from which `min_rate` applies.
    pub min_rate_after: Period,
    /// Most concurrent fetches. A tenant gets another slot only while it holds fewer slots than are free, so at most
    /// half of all.
    pub max_concurrency: u32,
    /// Most concurrent fetches from one host.
    pub max_per_host: u32,
    /// Most concurrent connections to one address.
    pub max_per_address: u32,
    /// Most concurrent fetches for one app.
    pub max_per_app: u32,
    /// Most fetches that wait for a slot. When the queue is full, a further fetch is refused, or displaces the newest
    /// one of the tenant with the most waiting fetches.
    pub max_queue: u32,
    /// Policy file in TOML form, or a directory of files `*.toml`, with the rules and quotas of tenants, sessions and
    /// apps. They can only narrow this section, apply to fetches and to the proxy, and are read again when they change.
    /// Unset: no rules.
    pub policy_path: Option<PathBuf>,
    /// Takes the policy files from the key-value bucket `dray_egress_policy` of the bus, instead of `policy_path`.
    /// `dray policy put` writes it, and `dray topology apply` creates it.
    pub policy_bucket: bool,
    /// Number of processes that share the quotas of the policy files. Each process has counters of its own and grants
    /// its share of every quota, at least 1.
    pub policy_replicas: u32,
    /// How often the configuration file and the directory of secrets are read again: `1s` to `1h`. The log names changed
    /// settings that need a restart. Default `2s`.
    pub reload_interval: Period,
    /// Secrets that are added to requests to certain hosts: to fetches, and to plain HTTP requests through the proxy.
    /// Empty: none.
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
    /// The operator's policy, the network and the listeners (egress-security 20).
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<Config>] = restart_settings![
            Config: enabled, host_allowlist, allowed_ports, https_only, allow_downgrade, max_redirects, ipv6, ipv6_first,
            dns_servers, nat64_prefixes, extra_blocked_cidrs, extra_blocked_hosts, private_cidrs, protected,
            kubernetes_api, ca_bundle, upstream_proxy, http2, user_agent, contact, robots, audit_required,
            origin_required, audit_key, audit_file, audit_syslog, policy_path, policy_bucket, policy_replicas, cache,
            questions, reload_interval, proxy.listen, proxy.connect_ports, proxy.http_ports, proxy.plain_ports,
            proxy.allow_encrypted_hello, proxy.max_tunnels, proxy.max_queue, proxy.max_unidentified,
            proxy.interception, proxy.tls
        ];
        Some(RESTART_SETTINGS)
    }

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
