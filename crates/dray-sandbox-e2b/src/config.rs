//! Settings of this sandbox backend.

use dray_http::parse_base_url;
use dray_types::{FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the E2B backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Key of the account. Without one every sandbox is refused.
    pub api_key: Secret,
    /// Token of the daemon in a sandbox, for a control API that does not report it. Default none.
    pub access_token: Secret,
    /// Domain of the provider. Default `e2b.app`.
    pub domain: String,
    /// Whether one host serves all sandboxes and distinguishes them by a header. Otherwise each sandbox has a host name
    /// of its own.
    pub shared_host: bool,
    /// URL of the control API. Default `https://api.DOMAIN`.
    pub api_url: Option<String>,
    /// URL of the daemons of all sandboxes. Default: derived from `domain` and `shared_host`.
    pub envd_url: Option<String>,
    /// User in the sandbox who owns files and runs commands. Default `user`.
    pub user: String,
    /// Longest remaining lifetime that a transfer may give a sandbox. Default `1h`.
    pub longest_life: Period,
    /// PEM file with additional certificate authorities. Unset: none.
    pub ca_file: Option<FileSetting>,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during a transfer or a command. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent. Default `1m`.
    pub response_timeout: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            api_key: Secret::default(),
            access_token: Secret::default(),
            domain: "e2b.app".to_owned(),
            shared_host: false,
            api_url: None,
            envd_url: None,
            user: "user".to_owned(),
            longest_life: Period::secs(3600),
            ca_file: None,
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(60),
        }
    }
}

/// The reason why the configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A setting that is not an `http://` or `https://` address, or has credentials in it.
    #[error("`{0}` is not an http:// or https:// address")]
    Address(&'static str),
    /// The domain has characters that no host name has.
    #[error("`domain` is not the name of a host")]
    Domain,
    /// The user has characters that no user name has.
    #[error("`user` is not the name of a user")]
    User,
    /// The client cannot be made, for example because `ca_file` cannot be read.
    #[error("the HTTP client cannot be made")]
    Client(#[source] dray_http::HttpError),
}

impl Config {
    /// Checks addresses, domain and user, which become parts of URLs and headers.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for (name, url) in [("api_url", &self.api_url), ("envd_url", &self.envd_url)] {
            if url
                .as_deref()
                .is_some_and(|url| parse_base_url(url).is_none())
            {
                return Err(ConfigError::Address(name));
            }
        }
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
        if self.domain.is_empty() || !self.domain.bytes().all(is_host_byte) {
            return Err(ConfigError::Domain);
        }
        let is_user_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if self.user.is_empty() || !self.user.bytes().all(is_user_byte) {
            return Err(ConfigError::User);
        }
        Ok(())
    }

    /// The URL of the control API, without a slash at the end.
    pub(crate) fn api(&self) -> String {
        match &self.api_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("https://api.{}", self.domain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_configuration_is_valid() {
        let config = Config::default();
        assert!(config.check().is_ok());
        assert_eq!(config.api(), "https://api.e2b.app");
    }

    #[test]
    fn invalid_settings_are_refused_without_naming_their_values() {
        let default = Config::default;
        let invalid_configs = [
            Config {
                api_url: Some("ftp://host".to_owned()),
                ..default()
            },
            Config {
                envd_url: Some("http://user:pw@host".to_owned()),
                ..default()
            },
            Config {
                domain: "a/b".to_owned(),
                ..default()
            },
            Config {
                user: "a:b".to_owned(),
                ..default()
            },
        ];
        for config in invalid_configs {
            let error = config.check().unwrap_err();
            assert!(!error.to_string().contains("pw"), "{error}");
        }
    }
}
