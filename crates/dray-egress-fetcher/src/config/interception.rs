//! The authority for intercepted tunnels in the configuration.

use std::path::PathBuf;

use dray_types::{FileSetting, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;

/// The certificate authority for tunnels into which the proxy looks; the policy files name their hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterceptionConfig {
    /// File with the certificate of the authority in PEM form, followed by the certificates up to its root. Sandboxes
    /// trust it. Unset: tunnels that the policy files select for interception are refused.
    pub certificate: Option<FileSetting>,
    /// Private key of the authority, PKCS#8 in PEM form. Its holder can impersonate any server to every client that
    /// trusts the authority. Required with `certificate`.
    pub key: Option<Secret>,
}

/// The checked settings of the authority.
#[derive(Clone, Debug)]
pub struct InterceptionSettings {
    /// The file with the certificate and its chain.
    pub certificate: PathBuf,
    /// The private key as PEM text.
    pub key: Secret,
}

impl InterceptionConfig {
    /// Checks the fields; `None` when there is to be no authority. The file is read at the start.
    pub(super) fn compile(&self, checks: &mut ProblemCollector) -> Option<InterceptionSettings> {
        let field = "proxy.interception";
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                if !key.expose().contains("-----BEGIN PRIVATE KEY-----") {
                    let problem =
                        "must be a private key in PKCS#8 PEM form; `key_file` names a file with it";
                    checks.add(&format!("{field}.key"), problem);
                }
                return Some(InterceptionSettings {
                    certificate: certificate.to_path_buf(),
                    key: key.clone(),
                });
            }
            (Some(_), None) => {
                checks.add(&format!("{field}.key"), "must be set with `certificate`");
            }
            (None, Some(_)) => {
                checks.add(&format!("{field}.certificate"), "must be set with `key`");
            }
            (None, None) => {}
        }
        None
    }
}
