//! Settings of the Docker backend.

use std::path::PathBuf;

use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dial::{SshEndpoint, TlsEndpoint};
use crate::wire::Endpoint;

/// Settings of the Docker backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the engine: `unix:///var/run/docker.sock`; `https://HOST:PORT` for TLS with the certificates in
    /// `cert_path`; `ssh://USER@HOST[:PORT]` for `ssh … docker system dial-stdio`, without a password; or
    /// `http://HOST:PORT` on a private network. `tcp://` means `https://` if `tls_verify` is set, otherwise
    /// `http://`. Every client of an engine has root rights on the engine's host.
    pub endpoint: String,
    /// Whether `tcp://` means TLS. Any non-empty value of `DOCKER_TLS_VERIFY` means true. Default false.
    pub tls_verify: bool,
    /// Directory with `ca.pem`, which verifies the engine, and with `cert.pem` and `key.pem`, the client certificate.
    /// Required for TLS.
    pub cert_path: Option<PathBuf>,
    /// Program for `ssh://` endpoints. Default `ssh`, which is searched in `PATH`.
    pub ssh_program: PathBuf,
    /// Longest time for connecting.
    pub connect_timeout: Period,
    /// Longest time until the engine begins to respond. While a file is read from a container, the engine delays all
    /// other requests for that container, so this time should be longer than the longest read.
    pub response_timeout: Period,
    /// Longest time for a short response of a shell in a container. A slower shell counts as hung: for a minute only
    /// the archive methods of the engine are used, if the container's user is root. Default `15s`.
    pub shell_timeout: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: "unix:///var/run/docker.sock".to_owned(),
            tls_verify: false,
            cert_path: None,
            ssh_program: PathBuf::from("ssh"),
            connect_timeout: Period::secs(5),
            response_timeout: Period::secs(120),
            shell_timeout: Period::secs(15),
        }
    }
}

/// The reason why the configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The endpoint is neither a socket of this host nor a network address.
    #[error(
        "`{0}` is not an endpoint; write unix:///PATH, https://HOST:PORT, ssh://USER@HOST or http://HOST:PORT"
    )]
    Endpoint(String),
    /// The endpoint uses TLS, but the directory with the engine's certificate authority is not set.
    #[error(
        "`{0}` needs `cert_path` (DOCKER_CERT_PATH): a directory with ca.pem, and with cert.pem and key.pem"
    )]
    Certificates(String),
}

impl Config {
    /// Parses the endpoint with its settings.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, ConfigError> {
        let invalid = || ConfigError::Endpoint(self.endpoint.clone());
        match self.endpoint.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') => {
                Ok(Endpoint::Unix(PathBuf::from(path)))
            }
            Some((scheme @ ("http" | "tcp" | "https"), address)) => {
                let address = address.strip_suffix('/').unwrap_or(address);
                let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
                let is_plain_host = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
                if !is_plain_host || port.parse::<u16>().is_err() {
                    return Err(invalid());
                }
                if scheme == "http" || (scheme == "tcp" && !self.tls_verify) {
                    return Ok(Endpoint::Tcp(address.to_owned()));
                }
                let missing = || ConfigError::Certificates(self.endpoint.clone());
                Ok(Endpoint::Tls(TlsEndpoint {
                    address: address.to_owned(),
                    certificates: self.cert_path.clone().ok_or_else(missing)?,
                }))
            }
            Some(("ssh", destination)) => {
                self.ssh(destination).ok_or_else(invalid).map(Endpoint::Ssh)
            }
            _ => Err(invalid()),
        }
    }

    /// Parses `USER@HOST[:PORT]`. No part of it may look like an option or a command, because `ssh` gets it as an
    /// argument.
    fn ssh(&self, destination: &str) -> Option<SshEndpoint> {
        let destination = destination.strip_suffix('/').unwrap_or(destination);
        let (destination, port) = match destination.rsplit_once(':') {
            // `[::1]` ends in a bracket: its last colon is part of the address.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (destination, None),
        };
        let destination = destination.replace(['[', ']'], "");
        let is_plain = |character: char| {
            character.is_ascii_alphanumeric()
                || matches!(character, '@' | '.' | '-' | '_' | ':' | '%')
        };
        let is_plain_destination = !destination.is_empty()
            && !destination.starts_with('-')
            && destination.chars().all(is_plain);
        is_plain_destination.then(|| SshEndpoint {
            program: self.ssh_program.clone(),
            destination,
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Result<Endpoint, ConfigError> {
        let config = Config {
            endpoint: text.to_owned(),
            ..Config::default()
        };
        config.endpoint()
    }

    #[test]
    fn an_endpoint_is_a_socket_or_an_address() {
        let unix = Endpoint::Unix("/run/docker.sock".into());
        assert_eq!(endpoint("unix:///run/docker.sock"), Ok(unix));
        for text in ["tcp://engine:2375", "http://engine:2375/"] {
            assert_eq!(endpoint(text), Ok(Endpoint::Tcp("engine:2375".into())));
        }
        assert_eq!(
            endpoint("http://[::1]:2375"),
            Ok(Endpoint::Tcp("[::1]:2375".into()))
        );
        assert!(Config::default().endpoint().is_ok());
    }

    #[test]
    fn tls_needs_certificates_and_tcp_means_tls_with_tls_verify() {
        let mut config = Config {
            endpoint: "tcp://engine:2376".to_owned(),
            cert_path: Some("/certs".into()),
            ..Config::default()
        };
        assert_eq!(config.endpoint(), Ok(Endpoint::Tcp("engine:2376".into())));
        config.tls_verify = true;
        let tls = Ok(Endpoint::Tls(TlsEndpoint {
            address: "engine:2376".into(),
            certificates: "/certs".into(),
        }));
        assert_eq!(config.endpoint(), tls);
        config.tls_verify = false;
        config.endpoint = "https://engine:2376/".to_owned();
        assert_eq!(config.endpoint(), tls);
        config.cert_path = None;
        let error = config.endpoint().unwrap_err().to_string();
        assert!(error.contains("DOCKER_CERT_PATH"), "{error}");
    }

    #[test]
    fn an_ssh_endpoint_is_a_destination_and_a_port() {
        for (text, destination, port) in [
            ("ssh://me@engine", "me@engine", None),
            ("ssh://engine:2222/", "engine", Some(2222)),
            ("ssh://me@[::1]:22", "me@::1", Some(22)),
            ("ssh://me@[::1]", "me@::1", None),
        ] {
            let ssh = SshEndpoint {
                program: "ssh".into(),
                destination: destination.into(),
                port,
            };
            assert_eq!(endpoint(text), Ok(Endpoint::Ssh(ssh)), "{text}");
        }
    }

    #[test]
    fn other_endpoints_are_refused_by_their_text() {
        for text in [
            "",
            "unix://run/docker.sock",
            "ssh://-oProxyCommand=x",
            "ssh://me@engine;x",
            "ssh://me@engine:x",
            "https://engine",
            "http://engine",
            "http://user@engine:1",
            "http://engine:70000",
            "/var/run/docker.sock",
        ] {
            let error = endpoint(text).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
