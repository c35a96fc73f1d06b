//! The settings for connecting to NATS.

use std::path::PathBuf;

use dray_types::{Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Servers, identity and limits of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NatsOptions {
    /// Servers, such as `nats://nats:4222` or `tls://nats:4222`. Default: `nats://127.0.0.1:4222`.
    pub servers: Vec<String>,
    /// Name of the connection, as the server lists it. It is also the suffix of the reply inbox `_INBOX_<name>`, which
    /// the server's permissions bind to the identity. Default: `dray`.
    pub name: String,
    /// User name at the server, with `password`. Empty: none.
    pub user: String,
    /// Password of `user`.
    pub password: Secret,
    /// Seed of the `NKey` that identifies this client. Empty: none.
    pub nkey_seed: Secret,
    /// File with a JWT and its `NKey` seed, as `nsc` writes it. It is read for each connection, as are the other files.
    /// Unset: none.
    pub credentials_file: Option<PathBuf>,
    /// Whether a connection without TLS is refused. Default: false.
    pub require_tls: bool,
    /// PEM file with the root certificates that verify the servers. Unset: those of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client certificate; needs `client_key_file`. Unset: none.
    pub client_certificate_file: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    pub client_key_file: Option<PathBuf>,
    /// Longest wait for a connection. Default: 5s.
    pub connect_timeout: Period,
}

impl Default for NatsOptions {
    fn default() -> Self {
        Self {
            servers: vec!["nats://127.0.0.1:4222".to_owned()],
            name: "dray".to_owned(),
            user: String::new(),
            password: Secret::default(),
            nkey_seed: Secret::default(),
            credentials_file: None,
            require_tls: false,
            ca_file: None,
            client_certificate_file: None,
            client_key_file: None,
            connect_timeout: Period::secs(5),
        }
    }
}

impl NatsOptions {
    /// One server, without identity: for tests and for one machine.
    pub fn at(server: impl Into<String>) -> Self {
        Self {
            servers: vec![server.into()],
            ..Self::default()
        }
    }

    /// Sets the name of the service.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}
