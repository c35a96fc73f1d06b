//! The configuration of the resolver: the section, its aliases and its checks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dray_service::config::{ConfigProblem, RestartSetting, Section, VariableAlias, parse};
use dray_service::reload::{DEFAULT_RELOAD_INTERVAL, interval_problem};
use dray_service::restart_settings;
use dray_types::{ByteSize, FileSetting, Period, Secret, TenantId};

use crate::dial::{CallerCredentials, is_header_value};
use crate::downloads::DownloadLimits;
use crate::reading::ReadingConfig;
use crate::resolver::ResolveLimits;
use dray_dial::origin::DialOrigin;
use dray_http::HttpTimeouts;

/// The file-resolver, which puts the content of files into arguments of tool calls and reads documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// Base URL of DIAL Core, such as `https://core.dial.example`. Keys go to this scheme, host and port and nowhere
    /// else. Without it, `files/…` references cannot be loaded.
    pub dial_url: Option<String>,
    /// PEM file with the authorities that sign DIAL Core's certificate. Unset: the public ones.
    pub dial_ca_file: Option<FileSetting>,
    /// Time to connect to DIAL Core, TLS included. Default `5s`.
    pub dial_connect_timeout: Period,
    /// Longest time that DIAL Core may send nothing, before or within a response. Default `30s`.
    pub dial_read_timeout: Period,
    /// Most bytes of one file when the app sets no limit. Default `10MiB`.
    pub default_size_limit: ByteSize,
    /// Largest size limit that an app may set for a file; at least `default_size_limit`. Default `512MiB`.
    pub max_size_limit: ByteSize,
    /// Most bytes of one tool call's arguments before they are resolved, at most `64MiB`. They are held in memory.
    /// Default `4MiB`.
    pub max_arguments: ByteSize,
    /// Most file references in one tool call: 1 to 1024. Default 64.
    pub max_references: usize,
    /// Time for the files of one tool call when the app sets none; at most `1h`. Default `5m`.
    pub tool_timeout: Period,
    /// How long a submitted tool call may take in all, waiting included; at most `1h`. Default `10m`.
    pub work_deadline: Period,
    /// Lifetime of a link to resolved arguments, if the caller requests one: `5m` to `7d`. Default `10m`.
    pub link_lifetime: Period,
    /// How long a file that was loaded for one tool call is kept for the other tool calls of the same request, at most
    /// `1h`. With `0s` each call loads the file again. Default `10m`.
    pub download_lifetime: Period,
    /// Most files that are kept for other tool calls; at least 1. Default 4096.
    pub download_entries: usize,
    /// Settings of reading documents.
    pub reading: ReadingConfig,
    /// Credentials for DIAL Core by tenant, for tool calls that come as work messages. Direct calls carry credentials
    /// of their own and never use these. Default none.
    pub tenants: BTreeMap<String, TenantCredentials>,
    /// How often the configuration file and the directory of secrets are read again: `1s` to `1h`. The log names changed
    /// settings that need a restart. Default `2s`.
    pub reload_interval: Period,
}

/// Credentials that the work of one tenant sends to DIAL Core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TenantCredentials {
    /// Value of `Api-Key`.
    pub api_key: Secret,
    /// Value of `Authorization`.
    pub authorization: Secret,
}

const ONE_HOUR: Period = Period::secs(3600);

impl Default for Config {
    fn default() -> Self {
        Self {
            dial_url: None,
            dial_ca_file: None,
            dial_connect_timeout: Period::secs(5),
            dial_read_timeout: Period::secs(30),
            default_size_limit: ByteSize::mib(10),
            max_size_limit: ByteSize::mib(512),
            max_arguments: ByteSize::mib(4),
            max_references: 64,
            tool_timeout: Period::secs(300),
            work_deadline: Period::secs(600),
            link_lifetime: Period::secs(600),
            download_lifetime: Period::secs(600),
            download_entries: 4096,
            reading: ReadingConfig::default(),
            tenants: BTreeMap::new(),
            reload_interval: DEFAULT_RELOAD_INTERVAL,
        }
    }
}

impl Section for Config {
    /// What is kept between calls, and the programs of conversions.
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<Config>] = restart_settings![
            Config: dial_url, download_lifetime, download_entries, reading.download_lifetime, reading.download_entries,
            reading.workers, reading.worker, reload_interval
        ];
        Some(RESTART_SETTINGS)
    }

    fn aliases() -> &'static [VariableAlias] {
        const VARIABLE_ALIASES: [VariableAlias; 3] = [
            VariableAlias {
                variable: "DIAL_URL",
                field: "dial_url",
                parse: parse::parse_text,
            },
            VariableAlias {
                variable: "DEFAULT_FILE_LOADING_SIZE_LIMIT",
                field: "default_size_limit",
                parse: parse::parse_bytes,
            },
            VariableAlias {
                variable: "DEFAULT_TOOL_TIMEOUT_SECONDS",
                field: "tool_timeout",
                parse: parse::parse_seconds,
            },
        ];
        &VARIABLE_ALIASES
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = self.endpoint_problems();
        problems.extend(self.download_problems());
        problems.extend(self.reading.problems());
        problems.extend(interval_problem(self.reload_interval));
        let mut require = |is_valid: bool, field: &str, message: &str| {
            if !is_valid {
                problems.push(ConfigProblem::new(field, message));
            }
        };
        // A limit of zero would refuse every file.
        let is_set = |size: ByteSize| size > ByteSize::default();
        require(
            is_set(self.default_size_limit),
            "default_size_limit",
            "must be above 0",
        );
        require(
            self.max_size_limit >= self.default_size_limit,
            "max_size_limit",
            "must be at least default_size_limit",
        );
        require(
            is_set(self.max_arguments) && self.max_arguments <= ByteSize::mib(64),
            "max_arguments",
            "must be 1B to 64MiB",
        );
        require(
            (1..=1024).contains(&self.max_references),
            "max_references",
            "must be 1 to 1024",
        );
        for (field, period) in [
            ("tool_timeout", self.tool_timeout),
            ("work_deadline", self.work_deadline),
        ] {
            let is_valid = period > Period::default() && period <= ONE_HOUR;
            require(is_valid, field, "must be above 0 and at most 1h");
        }
        require(
            (Period::secs(300)..=Period::secs(7 * 86_400)).contains(&self.link_lifetime),
            "link_lifetime",
            "must be 5m to 7d",
        );
        for (tenant, credentials) in &self.tenants {
            let field = format!("tenants.{tenant}");
            require(
                TenantId::new(tenant.as_str()).is_ok(),
                &field,
                "is not a tenant's name",
            );
            require(
                // The key is checked at the start; otherwise the first request of that tenant would fail.
                is_header_value(&credentials.api_key)
                    && is_header_value(&credentials.authorization),
                &field,
                "must have values that are valid in a header",
            );
        }
        problems
    }
}

impl Config {
    fn endpoint_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if let Some(url) = &self.dial_url
            && let Err(error) = DialOrigin::parse(url)
        {
            problems.push(ConfigProblem::new("dial_url", error.to_string()));
        }
        for (field, period) in [
            ("dial_connect_timeout", self.dial_connect_timeout),
            ("dial_read_timeout", self.dial_read_timeout),
        ] {
            if period == Period::default() {
                problems.push(ConfigProblem::new(field, "must be above 0"));
            }
        }
        problems
    }

    fn download_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if self.download_lifetime > ONE_HOUR {
            problems.push(ConfigProblem::new(
                "download_lifetime",
                "must be at most 1h",
            ));
        }
        if self.download_entries == 0 {
            problems.push(ConfigProblem::new("download_entries", "must be above 0"));
        }
        problems
    }

    /// Longest times that DIAL Core may take.
    pub fn timeouts(&self) -> HttpTimeouts {
        let silence = self.dial_read_timeout.as_duration();
        HttpTimeouts {
            connect: self.dial_connect_timeout.as_duration(),
            idle: silence,
            response: silence,
        }
    }

    /// The operator's limits on tool calls.
    pub fn limits(&self) -> ResolveLimits {
        ResolveLimits {
            default_file: self.default_size_limit,
            max_file: self.max_size_limit,
            max_arguments: self.max_arguments,
            max_references: self.max_references,
            tool_timeout: self.tool_timeout,
        }
    }

    /// Bounds on what the calls of requests share.
    pub fn download_limits(&self) -> DownloadLimits {
        DownloadLimits {
            lifetime: self.download_lifetime,
            max_entries: self.download_entries,
        }
    }

    /// The credentials that the work of `tenant` sends to DIAL Core; empty when the operator configured none for it.
    pub fn credentials(&self, tenant: &TenantId) -> CallerCredentials {
        match self.tenants.get(tenant.as_str()) {
            Some(TenantCredentials {
                api_key,
                authorization,
            }) => CallerCredentials {
                api_key: api_key.clone(),
                authorization: authorization.clone(),
            },
            None => CallerCredentials::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Config), field: &str) {
        assert_eq!(dray_service::config::refused_fields(change), [field]);
    }

    #[test]
    fn defaults_are_valid_and_those_of_the_peer() {
        let config = Config::default();
        assert_eq!(config.validate(), []);
        assert_eq!(config.default_size_limit, ByteSize::bytes(10_485_760));
        assert_eq!(config.tool_timeout, Period::secs(300));
        assert_eq!(config.dial_connect_timeout, Period::secs(5));
    }

    #[test]
    fn every_field_has_its_bounds() {
        check(
            |config| config.dial_url = Some("core".to_owned()),
            "dial_url",
        );
        check(
            |config| config.dial_connect_timeout = Period::default(),
            "dial_connect_timeout",
        );
        check(
            |config| config.dial_read_timeout = Period::default(),
            "dial_read_timeout",
        );
        check(
            |config| config.default_size_limit = ByteSize::default(),
            "default_size_limit",
        );
        check(
            |config| config.max_size_limit = ByteSize::mib(1),
            "max_size_limit",
        );
        check(
            |config| config.max_arguments = ByteSize::mib(65),
            "max_arguments",
        );
        check(|config| config.max_references = 0, "max_references");
        check(
            |config| config.tool_timeout = Period::secs(3601),
            "tool_timeout",
        );
        check(
            |config| config.tool_timeout = Period::default(),
            "tool_timeout",
        );
        check(
            |config| config.work_deadline = Period::default(),
            "work_deadline",
        );
        check(
            |config| config.link_lifetime = Period::secs(1),
            "link_lifetime",
        );
        check(
            |config| config.download_lifetime = Period::secs(3601),
            "download_lifetime",
        );
        check(|config| config.download_entries = 0, "download_entries");
        check(
            |config| config.reload_interval = Period::default(),
            "reload_interval",
        );
    }

    #[test]
    fn tenants_have_valid_names_and_credentials() {
        let tenant = |name: &str, key: &str| {
            let credentials = TenantCredentials {
                api_key: Secret::new(key),
                authorization: Secret::default(),
            };
            BTreeMap::from([(name.to_owned(), credentials)])
        };
        check(|config| config.tenants = tenant("a b", "k"), "tenants.a b");
        check(
            |config| config.tenants = tenant("acme", "k\n"),
            "tenants.acme",
        );
    }

    #[test]
    fn the_variables_of_the_peer_are_known() {
        let names: Vec<_> = Config::aliases()
            .iter()
            .map(|alias| alias.variable)
            .collect();
        assert_eq!(
            names,
            [
                "DIAL_URL",
                "DEFAULT_FILE_LOADING_SIZE_LIMIT",
                "DEFAULT_TOOL_TIMEOUT_SECONDS"
            ]
        );
        let limit = (Config::aliases()[1].parse)("10485760").unwrap();
        assert_eq!(
            limit,
            dray_service::config::AliasValue::Value("10MiB".into())
        );
    }

    #[test]
    fn credentials_belong_to_one_tenant_and_do_not_print() {
        let mut config = Config::default();
        let credentials = TenantCredentials {
            api_key: Secret::new("hunter2"),
            authorization: Secret::default(),
        };
        config.tenants.insert("acme".to_owned(), credentials);
        let credentials_of = |tenant: &str| config.credentials(&TenantId::new(tenant).unwrap());
        assert_eq!(credentials_of("acme").api_key.expose(), "hunter2");
        assert_eq!(credentials_of("other"), CallerCredentials::default());
        assert!(
            !format!("{config:?} {}", serde_json::to_string(&config).unwrap()).contains("hunter2")
        );
    }
}
