//! Settings of the backend.

use std::path::PathBuf;

use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::Endpoint;

/// Settings of the Docker backend.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the engine listens: `unix:///var/run/docker.sock`, or `http://HOST:PORT` (`tcp://` means the same) on a
    /// network that nobody else can reach. Whoever may talk to it is root on its host.
    pub endpoint: String,
    /// Time for connecting.
    pub connect_timeout: Period,
    /// Time until the engine begins to answer. While a file is read from a container, every other question about that
    /// container waits, so this is longer than the longest read.
    pub answer_timeout: Period,
    /// Time for a short answer of a shell in a container. One that takes longer counts as hung: for a minute the
    /// container is reached through the archive calls alone, as one without a shell. Default `15s`.
    pub shell_timeout: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: "unix:///var/run/docker.sock".to_owned(),
            connect_timeout: Period::secs(5),
            answer_timeout: Period::secs(120),
            shell_timeout: Period::secs(15),
        }
    }
}

/// Why the backend cannot be used as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Neither a socket of this host nor an address.
    #[error(
        "`{0}` is not an endpoint; write unix:///PATH or http://HOST:PORT, and put a tunnel in front of TLS and ssh://"
    )]
    Endpoint(String),
}

impl Config {
    /// Where to connect.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, ConfigError> {
        let wrong = || ConfigError::Endpoint(self.endpoint.clone());
        match self.endpoint.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') => {
                Ok(Endpoint::Unix(PathBuf::from(path)))
            }
            Some(("http" | "tcp", address)) => {
                let address = address.strip_suffix('/').unwrap_or(address);
                let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
                let plain = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
                match port.parse::<u16>() {
                    Ok(_) if plain => Ok(Endpoint::Tcp(address.to_owned())),
                    _ => Err(wrong()),
                }
            }
            _ => Err(wrong()),
        }
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
    fn anything_else_is_refused_by_its_text() {
        for text in [
            "",
            "unix://run/docker.sock",
            "https://engine:2376",
            "ssh://me@engine",
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
