//! Settings of this sandbox backend.

use dray_types::{FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig};

/// Settings of the Modal backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Id of the token (`ak-…`). Without one no sandbox can be reached.
    pub token_id: String,
    /// Secret of the token (`as-…`). Required with `token_id`.
    #[schemars(with = "String")]
    pub token_secret: Secret,
    /// URL of the provider: `https://HOST[:PORT]`, or `http://` for a fake server on this host.
    pub server_url: String,
    /// PEM file with the authorities that are trusted instead of the public ones. Unset: the public ones.
    pub ca_file: Option<FileSetting>,
    /// Longest time for connecting.
    pub connect_timeout: Period,
    /// Longest time for one response, except for requests that wait for the end of a command.
    pub response_timeout: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            token_id: String::new(),
            token_secret: Secret::default(),
            server_url: "https://api.modal.com".to_owned(),
            ca_file: None,
            connect_timeout: Period::secs(10),
            response_timeout: Period::secs(30),
        }
    }
}

/// The reason why the configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The address of the provider is not a URL of a host alone.
    #[error("`{0}` is not an address; write https://HOST or https://HOST:PORT")]
    Url(String),
    /// The token holds characters that no token has.
    #[error("the token holds characters that cannot be sent")]
    Token,
    /// The file of certificates cannot be read.
    #[error("the file of certificates cannot be read")]
    CaFile(#[source] std::io::Error),
}

/// The settings in the form in which requests need them.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) token_id: MetadataValue<Ascii>,
    pub(crate) token_secret: MetadataValue<Ascii>,
    pub(crate) server_url: String,
    pub(crate) tls: ClientTlsConfig,
    /// Whether URLs without TLS are accepted: only if `server_url` itself is without TLS.
    pub(crate) plain: bool,
    pub(crate) connect: std::time::Duration,
    pub(crate) response: std::time::Duration,
}

impl Settings {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let plain = is_plain_http(&config.server_url)
            .ok_or_else(|| ConfigError::Url(config.server_url.clone()))?;
        let token = |text: &str| {
            let mut value: MetadataValue<Ascii> = text.parse().map_err(|_| ConfigError::Token)?;
            // Sensitive values are left out of the debug output of requests.
            value.set_sensitive(true);
            Ok::<_, ConfigError>(value)
        };
        let tls = match &config.ca_file {
            Some(file) => {
                let pem = std::fs::read(file).map_err(ConfigError::CaFile)?;
                // The certificate replaces the public authorities.
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
            }
            None => ClientTlsConfig::new().with_webpki_roots(),
        };
        Ok(Self {
            token_id: token(&config.token_id)?,
            token_secret: token(config.token_secret.expose())?,
            server_url: config.server_url.clone(),
            tls,
            plain,
            connect: config.connect_timeout.as_duration(),
            response: config.response_timeout.as_duration(),
        })
    }
}

/// Whether a URL is without TLS; `None` for text that is not a URL of a host without a path.
pub(crate) fn is_plain_http(url: &str) -> Option<bool> {
    let uri: http::Uri = url.parse().ok()?;
    let authority = uri.authority()?;
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if authority.host().is_empty() || authority.as_str().contains('@') || !bare {
        return None;
    }
    match uri.scheme_str()? {
        "https" => Some(false),
        "http" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_be_used_without_a_token() {
        let settings = Settings::new(&Config::default()).unwrap();
        assert!(!settings.plain);
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for url in [
            "",
            "api.modal.com",
            "ftp://h",
            "https://u@h",
            "https://h/p",
            "https://h?q",
        ] {
            assert_eq!(is_plain_http(url), None, "{url}");
        }
        assert_eq!(is_plain_http("https://api.modal.com"), Some(false));
        assert_eq!(is_plain_http("http://127.0.0.1:80/"), Some(true));
    }

    #[test]
    fn tokens_are_checked_and_never_shown() {
        let config = Config {
            token_secret: Secret::new("as-\nsecret"),
            ..Config::default()
        };
        assert!(matches!(Settings::new(&config), Err(ConfigError::Token)));
        let config = Config {
            token_secret: Secret::new("as-hidden"),
            ..Config::default()
        };
        let shown = format!("{config:?} {:?}", Settings::new(&config).unwrap());
        assert!(!shown.contains("as-hidden"), "{shown}");
    }

    #[test]
    fn a_missing_file_of_certificates_is_reported() {
        let config = Config {
            ca_file: Some("/nowhere/ca.pem".into()),
            ..Config::default()
        };
        assert!(matches!(
            Settings::new(&config),
            Err(ConfigError::CaFile(_))
        ));
    }
}
