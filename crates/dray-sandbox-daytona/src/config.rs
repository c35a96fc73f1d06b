//! Settings of this sandbox backend.

use dray_http::parse_base_url;
use dray_types::{FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the Daytona backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// API key of the organization. Without one every sandbox is refused.
    pub api_key: Secret,
    /// URL of the API. Default `https://app.daytona.io/api`.
    pub api_url: String,
    /// URL of the toolboxes of all sandboxes. Default: the URL that the API reports for each sandbox.
    pub toolbox_url: Option<String>,
    /// PEM file with additional certificate authorities. Unset: none.
    pub ca_file: Option<FileSetting>,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during a transfer. Default `30s`.
    pub idle_timeout: Period,
    /// Longest wait for a response after the whole request was sent. Default `1m`.
    pub response_timeout: Period,
    /// Longest time for one command, for instance for the digest of a large file. Its output arrives only at its end.
    /// Default `10m`.
    pub command_timeout: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            api_key: Secret::default(),
            api_url: "https://app.daytona.io/api".to_owned(),
            toolbox_url: None,
            ca_file: None,
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(30),
            response_timeout: Period::secs(60),
            command_timeout: Period::secs(600),
        }
    }
}

/// The reason why the configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A setting that is not an `http://` or `https://` address, or has credentials in it.
    #[error("`{0}` is not an http:// or https:// address")]
    Address(&'static str),
    /// The client cannot be made, for example because `ca_file` cannot be read.
    #[error("the HTTP client cannot be made")]
    Client(#[source] dray_http::HttpError),
}

impl Config {
    /// Checks both URLs: ids are appended to them, and the key is sent to them.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if parse_base_url(&self.api_url).is_none() {
            return Err(ConfigError::Address("api_url"));
        }
        if self
            .toolbox_url
            .as_deref()
            .is_some_and(|url| parse_base_url(url).is_none())
        {
            return Err(ConfigError::Address("toolbox_url"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused_without_naming_their_values() {
        assert!(Config::default().check().is_ok());
        for url in ["", "ftp://host", "https://", "http://user:pw@host", "host"] {
            let api = Config {
                api_url: url.to_owned(),
                ..Config::default()
            };
            let toolbox = Config {
                toolbox_url: Some(url.to_owned()),
                ..Config::default()
            };
            for config in [api, toolbox] {
                let error = config.check().unwrap_err();
                assert!(!error.to_string().contains("pw"), "{error}");
            }
        }
    }
}
