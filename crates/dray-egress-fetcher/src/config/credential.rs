//! Credentials in the configuration.

use dray_guard::HostPattern;
use dray_service::config::ConfigProblem;
use dray_types::{Secret, TenantId};
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;
use crate::credential::{Credential, CredentialLocation};

/// Fields that frame or route a request, which no credential replaces.
const REFUSED_FIELDS: [&str; 14] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "range",
    "if-range",
    "accept",
    "accept-encoding",
    "user-agent",
    "proxy-authorization",
];

/// The port of a credential that names none.
const HTTPS_PORT: u16 = 443;

/// A secret of the operator that is added to requests for one host. Callers never see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CredentialConfig {
    /// Name in audit events.
    pub name: String,
    /// The exact host; no pattern.
    pub host: String,
    /// The exact port.
    pub port: Option<u16>,
    /// Header field that holds the value, such as `authorization`. Either this or `query`.
    pub header: Option<String>,
    /// Parameter of the query that holds the value.
    pub query: Option<String>,
    /// Text before the value in the header field, such as `Bearer ` with its blank.
    pub prefix: String,
    /// The value: one line of printable ASCII.
    pub secret: Secret,
    /// Tenants whose requests get it; at least one.
    pub tenants: Vec<String>,
    /// Sends it over plain http too, where everyone on the path can read it.
    pub allow_plain_http: bool,
}

impl CredentialConfig {
    /// Checks every field.
    pub(super) fn check(&self, index: usize, checks: &mut ProblemCollector) {
        let mut problem = |field: &str, text: &str| {
            let field = format!("credentials.{index}.{field}");
            checks.0.push(ConfigProblem::new(field, text.to_owned()));
        };
        if self.name.is_empty() {
            problem("name", "must not be empty");
        }
        let is_host =
            HostPattern::parse(&self.host).is_ok_and(|host| host.to_string() == self.host);
        if !is_host || self.host.starts_with('*') {
            problem(
                "host",
                "must be one host name in lower case, without a wildcard",
            );
        }
        if self.tenants.is_empty() {
            problem(
                "tenants",
                "must name the tenants whose requests get the credential",
            );
        }
        let is_tenant = |name: &String| !name.contains('*') && TenantId::new(name).is_ok();
        if !self.tenants.iter().all(is_tenant) {
            problem(
                "tenants",
                "must be whole ids of tenants, 1 to 128 printable ASCII characters each: a pattern with * matches none",
            );
        }
        let value = self.secret.expose();
        if value.is_empty() || !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            problem(
                "secret",
                "must be one line of printable ASCII; `secret_file` names a file with it",
            );
        }
        if self.place().is_none() {
            problem(
                "header",
                "must be a header field that frames no request, or `query` a parameter of letters, digits and - _; not both",
            );
        }
        if self.query.is_some() && !self.prefix.is_empty() {
            problem("prefix", "belongs to a header field");
        }
    }

    /// Whether both would be sent with the same requests, of which only the first one is.
    pub(super) fn overlaps(&self, earlier: &Self) -> bool {
        let is_shared = |tenant: &String| earlier.tenants.contains(tenant);
        self.host == earlier.host
            && self.target_port() == earlier.target_port()
            && self.tenants.iter().any(is_shared)
    }

    fn target_port(&self) -> u16 {
        self.port.unwrap_or(HTTPS_PORT)
    }

    fn place(&self) -> Option<CredentialLocation> {
        match (&self.header, &self.query) {
            (Some(header), None) => {
                let name = HeaderName::from_bytes(header.as_bytes()).ok()?;
                (!REFUSED_FIELDS.contains(&name.as_str()))
                    .then_some(CredentialLocation::Header(name))
            }
            (None, Some(query)) => {
                let is_name = !query.is_empty()
                    && query
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
                is_name.then(|| CredentialLocation::Query(query.clone()))
            }
            _ => None,
        }
    }

    /// The credential; `None` where neither `header` nor `query` is valid, which is a problem of the configuration.
    pub fn credential(&self) -> Option<Credential> {
        Some(Credential {
            name: self.name.clone(),
            host: self.host.clone(),
            port: self.target_port(),
            place: self.place()?,
            value: Secret::new(format!("{}{}", self.prefix, self.secret.expose())),
            allow_plain_http: self.allow_plain_http,
            tenants: self.tenants.clone(),
        })
    }
}
