//! TLS between clients and the proxy in the configuration, and the clients that their certificates identify.

use std::path::PathBuf;

use dray_types::{AppId, SessionId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;

/// TLS between clients and the proxy. Off until `certificate` is set; then the listener accepts nothing else. The files
/// are read again every second; a change counts for the next connection, and a file that cannot be used leaves the
/// earlier ones in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientTlsConfig {
    /// PEM file with the certificate of the proxy, followed by the certificates up to its root. Unset: no TLS with
    /// clients.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of `certificate`. It is read again with the certificate.
    pub private_key: Option<PathBuf>,
    /// PEM file with the authorities that sign client certificates. Unset: clients are not asked for certificates.
    pub client_authorities: Option<PathBuf>,
    /// PEM file with certificate revocation lists (CRLs): a current one of each issuer of client certificates. A client
    /// is refused if an issuer in its chain has no list in the file, or one whose `nextUpdate` has passed. Unset:
    /// nothing is revoked. Each of these files has at most 16 MiB.
    pub revocation_lists: Option<PathBuf>,
    /// Refuses the TLS handshake of clients without a certificate. Otherwise they need a token.
    pub require_certificate: bool,
    /// Speaks only HTTP/1.1. Otherwise clients that offer HTTP/2 get it.
    pub http1_only: bool,
    /// Identities of clients with certificates. The first entry that matches a certificate applies.
    pub clients: Vec<CertificateClientConfig>,
}

/// The clients whose certificates have certain names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateClientConfig {
    /// Names of certificates, such as `spiffe://example.org/agents/*`; `*` stands for any text, `/` and `.` included.
    /// The name of a certificate is its first URI (`subjectAltName`), or without one its first DNS name.
    pub names: Vec<String>,
    /// The tenant of these clients.
    pub tenant: String,
    /// Their session. Unset: each name of a certificate has a session of its own.
    pub session: Option<String>,
    /// Their app.
    pub app: Option<String>,
}

/// The checked settings of TLS with clients.
#[derive(Clone, Debug)]
pub struct ClientTlsSettings {
    /// The file with the certificate of the proxy and its chain.
    pub certificate: PathBuf,
    /// The file with its private key.
    pub private_key: PathBuf,
    /// The file with the authorities of client certificates; `None` to ask for none.
    pub client_authorities: Option<PathBuf>,
    /// The file with revocation lists; `None` to revoke nothing.
    pub revocation_lists: Option<PathBuf>,
    /// Whether every client needs a certificate.
    pub requires_certificate: bool,
    /// Whether clients that offer HTTP/2 get HTTP/1.1.
    pub http1_only: bool,
    /// Who the clients are, in the order of the configuration.
    pub clients: Vec<CertificateClient>,
}

/// Identity of the clients whose certificates have one of these names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateClient {
    /// Patterns of names.
    pub names: Vec<String>,
    /// Their tenant.
    pub tenant: TenantId,
    /// Their session; `None` for one of each name.
    pub session: Option<SessionId>,
    /// Their app.
    pub app: Option<AppId>,
}

impl ClientTlsConfig {
    /// Checks the fields; `None` when the listener does not speak TLS. Files are read at the start.
    pub(super) fn compile(&self, checks: &mut ProblemCollector) -> Option<ClientTlsSettings> {
        let clients = self.clients.iter().enumerate();
        let clients = clients
            .filter_map(|(index, client)| client.compile(index, checks))
            .collect();
        let mut problem = |field: &str, text: &str| checks.add(&format!("proxy.tls.{field}"), text);
        let needs_authorities = self.require_certificate || !self.clients.is_empty();
        if needs_authorities && self.client_authorities.is_none() {
            problem(
                "client_authorities",
                "must be set, or no client can have a certificate",
            );
        }
        if self.revocation_lists.is_some() && self.client_authorities.is_none() {
            problem(
                "revocation_lists",
                "must be absent without `client_authorities`",
            );
        }
        match (&self.certificate, &self.private_key) {
            (Some(certificate), Some(private_key)) => {
                return Some(ClientTlsSettings {
                    certificate: certificate.clone(),
                    private_key: private_key.clone(),
                    client_authorities: self.client_authorities.clone(),
                    revocation_lists: self.revocation_lists.clone(),
                    requires_certificate: self.require_certificate,
                    http1_only: self.http1_only,
                    clients,
                });
            }
            (Some(_), None) => problem("private_key", "must be set with `certificate`"),
            (None, Some(_)) => problem("certificate", "must be set with `private_key`"),
            (None, None) if self.client_authorities.is_some() || needs_authorities => {
                problem(
                    "certificate",
                    "must be set, or the listener does not speak TLS",
                );
            }
            (None, None) => {}
        }
        None
    }
}

impl CertificateClientConfig {
    fn compile(&self, index: usize, checks: &mut ProblemCollector) -> Option<CertificateClient> {
        let field = |name: &str| format!("proxy.tls.clients.{index}.{name}");
        if self.names.is_empty() || self.names.iter().any(String::is_empty) {
            checks.add(
                &field("names"),
                "must have at least one name, none of them empty",
            );
        }
        let tenant = TenantId::new(self.tenant.as_str())
            .map_err(|error| checks.add(&field("tenant"), &error.to_string()));
        let session = self.session.as_deref().map(SessionId::new).transpose();
        let session = session.map_err(|error| checks.add(&field("session"), &error.to_string()));
        let app = self.app.as_deref().map(AppId::new).transpose();
        let app = app.map_err(|error| checks.add(&field("app"), &error.to_string()));
        Some(CertificateClient {
            names: self.names.clone(),
            tenant: tenant.ok()?,
            session: session.ok()?,
            app: app.ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use dray_service::config::refused_fields;

    use super::*;
    use crate::Config;

    fn problems_with(change: impl FnOnce(&mut ClientTlsConfig)) -> Vec<String> {
        refused_fields(|config: &mut Config| {
            let tls = &mut config.proxy.tls;
            tls.certificate = Some("/run/proxy.pem".into());
            tls.private_key = Some("/run/proxy.key".into());
            tls.client_authorities = Some("/run/clients.pem".into());
            tls.clients = vec![CertificateClientConfig {
                names: vec!["spiffe://example.org/agents/*".to_owned()],
                tenant: "acme".to_owned(),
                ..CertificateClientConfig::default()
            }];
            change(tls);
        })
    }

    #[test]
    fn tls_needs_a_certificate_with_its_key_and_authorities_for_clients() {
        assert_eq!(problems_with(|_| {}), [""; 0]);
        assert_eq!(
            problems_with(|tls| *tls = ClientTlsConfig::default()),
            [""; 0]
        );
        assert_eq!(
            problems_with(|tls| tls.private_key = None),
            ["proxy.tls.private_key"]
        );
        assert_eq!(
            problems_with(|tls| tls.certificate = None),
            ["proxy.tls.certificate"]
        );
        let without = |tls: &mut ClientTlsConfig| (tls.certificate, tls.private_key) = (None, None);
        assert_eq!(problems_with(without), ["proxy.tls.certificate"]);
        assert_eq!(
            problems_with(|tls| tls.client_authorities = None),
            ["proxy.tls.client_authorities"]
        );
    }

    #[test]
    fn revocation_lists_need_authorities() {
        let lists = |tls: &mut ClientTlsConfig| tls.revocation_lists = Some("/run/crl.pem".into());
        assert_eq!(problems_with(lists), [""; 0]);
        let lists_alone = |tls: &mut ClientTlsConfig| {
            tls.revocation_lists = Some("/run/crl.pem".into());
            (tls.client_authorities, tls.clients) = (None, Vec::new());
        };
        assert_eq!(problems_with(lists_alone), ["proxy.tls.revocation_lists"]);
    }

    #[test]
    fn a_client_needs_a_name_and_a_tenant() {
        for (field, change) in [
            (
                "names",
                (|client| client.names.clear()) as fn(&mut CertificateClientConfig),
            ),
            ("names", |client| client.names.push(String::new())),
            ("tenant", |client| client.tenant.clear()),
            ("session", |client| client.session = Some(String::new())),
            ("app", |client| client.app = Some(String::new())),
        ] {
            let fields = problems_with(|tls| change(&mut tls.clients[0]));
            assert_eq!(fields, [format!("proxy.tls.clients.0.{field}")]);
        }
    }
}
