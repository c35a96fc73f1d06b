//! The section of the gRPC endpoint: its address, the clients that it trusts, and the checks before its start.

use std::net::SocketAddr;
use std::path::PathBuf;

use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{ConfigProblem, Section};

/// The gRPC endpoint: the same calls as on the bus, for clients that do not speak NATS. An address that other machines
/// reach needs `certificate`, `private_key` and `identities`. Without `identities`, callers are not identified, and the
/// tenant comes from the metadata of the request. See [grpc.md](grpc.md).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrpcSection {
    /// Address of the gRPC endpoint. Port 0 takes a free port. Unset: no endpoint is served.
    pub listen: Option<SocketAddr>,
    /// Time limit of a request without `grpc-timeout`; at least `1s`.
    pub default_timeout: Period,
    /// PEM file with the certificate of the endpoint, then those of its issuers. With it the endpoint accepts only TLS.
    /// Unset: no TLS.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of `certificate`.
    pub private_key: Option<PathBuf>,
    /// PEM file with the authorities that sign client certificates. Unset: clients are not asked for certificates.
    pub client_authorities: Option<PathBuf>,
    /// Refuses connections without a client certificate. Otherwise a token is enough.
    pub require_client_certificate: bool,
    /// TOML file with the callers: digests of tokens, names in certificates, tenant and scopes. Unset: every caller is
    /// accepted for every tenant.
    pub identities: Option<PathBuf>,
    /// How often `certificate`, `private_key`, `client_authorities` and `identities` are read again: `10ms` to `1h`. If
    /// a file cannot be used, its earlier content stays in force.
    pub reload_interval: Period,
    /// Longest time of a TLS handshake, and then until a client begins to speak HTTP/2: `10ms` to `1m`.
    pub handshake_timeout: Period,
    /// Longest time in which the message of a request arrives completely, after its metadata: `10ms` to `1h`.
    pub message_timeout: Period,
    /// Age at which a connection ends after its running requests, and its client opens another one: `10ms` to `1d`. The
    /// new one may be with another replica, and its client certificate is verified again.
    pub max_connection_age: Period,
    /// Allows an address that other machines reach although TLS or `identities` is missing. The network in front of the
    /// service must then decide who may call, and for which tenant.
    pub insecure: bool,
}

impl Default for GrpcSection {
    fn default() -> Self {
        Self {
            listen: None,
            default_timeout: Period::secs(60),
            certificate: None,
            private_key: None,
            client_authorities: None,
            require_client_certificate: false,
            identities: None,
            reload_interval: Period::secs(10),
            handshake_timeout: Period::secs(10),
            message_timeout: Period::secs(60),
            max_connection_age: Period::secs(3600),
            insecure: false,
        }
    }
}

impl GrpcSection {
    /// Whether other machines can reach the endpoint although it has no TLS or does not identify its callers.
    fn is_exposed(&self) -> bool {
        let protected = self.certificate.is_some() && self.identities.is_some();
        // An unspecified address such as `0.0.0.0` is not loopback, so it counts as reachable by others.
        self.listen.is_some_and(|listen| !listen.ip().is_loopback()) && !protected
    }

    fn period_problems(&self) -> Vec<ConfigProblem> {
        let (minute, hour, day) = (60, 3600, 86_400);
        let limits = [
            ("reload_interval", self.reload_interval, hour, "1h"),
            ("handshake_timeout", self.handshake_timeout, minute, "1m"),
            ("message_timeout", self.message_timeout, hour, "1h"),
            ("max_connection_age", self.max_connection_age, day, "1d"),
        ];
        let mut problems = Vec::new();
        for (field, period, max_seconds, max) in limits {
            if !(Period::millis(10)..=Period::secs(max_seconds)).contains(&period) {
                problems.push(ConfigProblem::new(field, format!("must be 10ms to {max}")));
            }
        }
        problems
    }
}

impl Section for GrpcSection {
    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        // Each check adds its own problem, so that one start reports all of them.
        let mut refuse = |wrong: bool, field: &str, message: &str| {
            if wrong {
                problems.push(ConfigProblem::new(field, message));
            }
        };
        refuse(
            self.default_timeout < Period::secs(1),
            "default_timeout",
            "must be at least 1s",
        );
        refuse(
            self.is_exposed() && !self.insecure,
            "listen",
            "must be a loopback address unless `certificate`, `private_key` and `identities` are set: other machines \
             reach it (or set `insecure` where the network decides who calls)",
        );
        refuse(
            self.certificate.is_some() && self.private_key.is_none(),
            "private_key",
            "must be set together with `certificate`",
        );
        refuse(
            self.private_key.is_some() && self.certificate.is_none(),
            "certificate",
            "must be set together with `private_key`",
        );
        refuse(
            self.client_authorities.is_some() && self.certificate.is_none(),
            "client_authorities",
            "must be unset without `certificate`: certificates of clients need TLS",
        );
        refuse(
            self.client_authorities.is_some() && self.identities.is_none(),
            "identities",
            "must be set with `client_authorities`: it says which tenant a certificate stands for",
        );
        refuse(
            self.require_client_certificate && self.client_authorities.is_none(),
            "require_client_certificate",
            "must be false without `client_authorities`",
        );
        problems.extend(self.period_problems());
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::refused_fields;

    /// A change of the defaults.
    type SectionChange = fn(&mut GrpcSection);

    fn open_to_others(section: &mut GrpcSection) {
        section.listen = Some("0.0.0.0:50051".parse().unwrap());
    }

    fn with_tls(section: &mut GrpcSection) {
        section.certificate = Some("tls.crt".into());
        section.private_key = Some("tls.key".into());
    }

    #[test]
    fn an_address_that_others_reach_needs_tls_and_identities() {
        let exposed: [SectionChange; 3] = [
            open_to_others,
            |section| {
                open_to_others(section);
                with_tls(section);
            },
            |section| {
                open_to_others(section);
                section.identities = Some("identities.toml".into());
            },
        ];
        for change in exposed {
            assert_eq!(refused_fields::<GrpcSection>(change), ["listen"]);
            let explicit = |section: &mut GrpcSection| {
                change(section);
                section.insecure = true;
            };
            assert!(refused_fields::<GrpcSection>(explicit).is_empty());
        }
        let protected = |section: &mut GrpcSection| {
            open_to_others(section);
            with_tls(section);
            section.identities = Some("identities.toml".into());
        };
        assert!(refused_fields::<GrpcSection>(protected).is_empty());
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let here = |section: &mut GrpcSection| section.listen = loopback.parse().ok();
            assert!(refused_fields::<GrpcSection>(here).is_empty(), "{loopback}");
        }
    }

    #[test]
    fn files_that_belong_together_are_set_together() {
        let cases: [(SectionChange, &[&str]); 4] = [
            (
                |section| section.certificate = Some("tls.crt".into()),
                &["private_key"],
            ),
            (
                |section| section.private_key = Some("tls.key".into()),
                &["certificate"],
            ),
            (
                |section| section.client_authorities = Some("ca.crt".into()),
                &["client_authorities", "identities"],
            ),
            (
                |section| {
                    with_tls(section);
                    section.require_client_certificate = true;
                },
                &["require_client_certificate"],
            ),
        ];
        for (change, fields) in cases {
            assert_eq!(refused_fields::<GrpcSection>(change), fields);
        }
    }
}
