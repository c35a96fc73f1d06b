//! The upstream proxy in the configuration.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_guard::{CanonicalUrl, Host};
use dray_types::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;
use crate::dial::UpstreamProxySettings;

/// A proxy between this service and the web, for networks without direct access to it. There is none without `url`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamProxyConfig {
    /// Upstream proxy: `http://HOST:PORT`, or `https://HOST:PORT` for TLS to the proxy. Unset: none. The proxy gets
    /// `CONNECT` with a checked address, never with a name, and must allow it for every port in `allowed_ports`. Names
    /// are still resolved by `dns_servers`. Addresses in `private_cidrs` are connected to directly.
    #[serde(serialize_with = "super::serialize_redacted_option")]
    pub url: Option<String>,
    /// User for Basic authentication at the upstream proxy (RFC 7617). Unset: none.
    pub username: Option<String>,
    /// Password of `username`.
    pub password: Option<Secret>,
}

impl UpstreamProxyConfig {
    /// Checks the fields; `None` when there is to be no upstream proxy.
    pub(super) fn compile(&self, checks: &mut ProblemCollector) -> Option<UpstreamProxySettings> {
        let authorization = self.authorization(checks);
        let Some(url) = &self.url else {
            if self.username.is_some() || self.password.is_some() {
                checks.add("upstream_proxy.url", "must be set with a user");
            }
            return None;
        };
        match CanonicalUrl::parse(url) {
            Ok(url) if url.path_and_query() == "/" => {
                Some(UpstreamProxySettings { url, authorization })
            }
            _ => {
                checks.add(
                    "upstream_proxy.url",
                    "must be http://HOST:PORT or https://HOST:PORT; the user belongs into `username` and `password`",
                );
                None
            }
        }
    }

    /// The host of the proxy, from which no file is fetched.
    pub(super) fn host(&self) -> Option<String> {
        let url = CanonicalUrl::parse(self.url.as_ref()?).ok()?;
        Some(match url.host() {
            Host::Ip(address) => address.to_string(),
            Host::Name(name) => name.to_string(),
        })
    }

    fn authorization(&self, checks: &mut ProblemCollector) -> Option<Secret> {
        let (username, password) = match (&self.username, &self.password) {
            (Some(username), Some(password)) => (username, password.expose()),
            (None, None) => return None,
            (Some(_), None) => {
                checks.add("upstream_proxy.password", "must be set with `username`");
                return None;
            }
            (None, Some(_)) => {
                checks.add("upstream_proxy.username", "must be set with `password`");
                return None;
            }
        };
        // A colon ends the user (RFC 7617, section 2).
        if username.contains(':') || username.chars().any(char::is_control) {
            checks.add(
                "upstream_proxy.username",
                "must have no colon and no control characters",
            );
        }
        if password.chars().any(char::is_control) {
            checks.add(
                "upstream_proxy.password",
                "must be one line; `password_file` names a file with it",
            );
        }
        let pair = STANDARD.encode(format!("{username}:{password}"));
        Some(Secret::new(format!("Basic {pair}")))
    }
}

#[cfg(test)]
mod tests {
    use dray_service::config::refused_fields;

    use super::*;
    use crate::Config;

    fn upstream(url: &str) -> UpstreamProxyConfig {
        UpstreamProxyConfig {
            url: Some(url.to_owned()),
            ..UpstreamProxyConfig::default()
        }
    }

    fn problems_of(upstream_proxy: UpstreamProxyConfig) -> Vec<String> {
        refused_fields(|config: &mut Config| config.upstream_proxy = upstream_proxy)
    }

    #[test]
    fn an_upstream_proxy_is_a_scheme_a_host_and_a_port() {
        for url in [
            "http://proxy.corp.example:3128",
            "https://proxy.corp.example",
            "http://10.1.2.3:3128/",
        ] {
            assert_eq!(problems_of(upstream(url)), [""; 0], "{url}");
        }
        for url in [
            "proxy.corp.example:3128",
            "socks5://proxy.corp.example:1080",
            "http://user:secret@proxy.corp.example:3128",
            "http://proxy.corp.example:3128/path",
        ] {
            assert_eq!(problems_of(upstream(url)), ["upstream_proxy.url"], "{url}");
        }
    }

    #[test]
    fn a_user_has_a_name_without_a_colon_a_password_and_a_proxy() {
        let with = |username: Option<&str>, password: Option<&str>| UpstreamProxyConfig {
            username: username.map(str::to_owned),
            password: password.map(Secret::new),
            ..upstream("http://proxy.corp.example:3128")
        };
        assert_eq!(problems_of(with(Some("dray"), Some("s3:cret"))), [""; 0]);
        assert_eq!(
            problems_of(with(Some("dray"), None)),
            ["upstream_proxy.password"]
        );
        assert_eq!(
            problems_of(with(None, Some("x"))),
            ["upstream_proxy.username"]
        );
        assert_eq!(
            problems_of(with(Some("dr:ay"), Some("x\ny"))),
            ["upstream_proxy.username", "upstream_proxy.password"]
        );
        let without_url = UpstreamProxyConfig {
            url: None,
            ..with(Some("dray"), Some("x"))
        };
        assert_eq!(problems_of(without_url), ["upstream_proxy.url"]);
    }

    #[test]
    fn nothing_is_fetched_from_the_upstream_proxy() {
        let config = Config {
            upstream_proxy: upstream("http://proxy.corp.example:3128"),
            ..Config::default()
        };
        let compiled = config.compile().unwrap();
        assert_eq!(compiled.protected_hosts, ["proxy.corp.example"]);
    }
}
