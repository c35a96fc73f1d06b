//! The forward proxy for programs in sandboxes: which of them get its address, and a token for each.
//!
//! The variables only name the proxy to programs. A sandbox can bypass the proxy unless its network has no other route
//! out.

use std::time::Duration;

use dray_bus::Meta;
use dray_guard::CanonicalUrl;
use dray_guard::proxy_token::{MintError, ProxyIdentity, TokenKeys};
use dray_proto::v1::{self, sandbox_ref};
use dray_sandbox::{Address, Error as SandboxError, ErrorKind};
use dray_types::{Clock, Secret, SessionId, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
use crate::commands::fits;
use crate::sessions::token as key_token;

/// User name in the address of the proxy, which does not read it.
const PROXY_USER: &str = "sandbox";
/// Time that a token stays valid after the time limit of its program. It covers the end of the program, and clock
/// differences.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);
/// Variables with the URL of the proxy. Clients differ in the case of letters that they read; `ALL_PROXY` is for
/// protocols without a separate variable.
const PROXY_VARIABLES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
/// Variables with the file of trusted certificates, in this order: OpenSSL and programs that read its variable, curl,
/// Python's `requests`, Node.js, npm, git, pip and cargo. All but that of Node.js replace the default trust store of
/// the client. npm ignores that of Node.js where its configuration names a file of its own.
const CA_FILE_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
];
/// Variable with the hosts that are reached without the proxy.
const NO_PROXY_VARIABLE: &str = "NO_PROXY";

/// Section `sandbox-transfer.egress_proxy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EgressProxyConfig {
    /// Key that signs tokens: the value of `egress-fetcher.proxy.token_key`, at least 32 bytes. Its holder can act as
    /// any tenant. Required with `rules`.
    pub token_key: Option<Secret>,
    /// Which programs get the proxy in their environment. The first rule that fits the tenant and the sandbox applies;
    /// if none fits, a program gets no proxy. Default none.
    pub rules: Vec<EgressProxyRule>,
}

/// A rule that chooses the proxy for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EgressProxyRule {
    /// Tenants; `*` stands for any characters, also none.
    pub tenants: Vec<String>,
    /// Sandboxes by address, for instance `docker:agent-*`; `*` stands for any characters, also none.
    pub sandboxes: Vec<String>,
    /// Host and port of the proxy, as the sandbox reaches it: `egress-proxy:3128`.
    pub address: String,
    /// Whether the proxy speaks TLS with its clients (`egress-fetcher.proxy.tls`): the address then begins with
    /// `https://`. Programs must trust its certificate. Default false.
    #[serde(default)]
    pub tls: bool,
    /// Hosts that programs reach without the proxy. Default `localhost`, `127.0.0.1` and `::1`: the sandbox itself.
    #[serde(default = "own_hosts")]
    pub no_proxy: Vec<String>,
    /// Absolute path of a file in the sandbox with the certificates that programs trust, for a proxy that intercepts
    /// tunnels. The file contains the usual public certificates and that of the proxy's authority, in PEM form. Its
    /// image or a mount provides the file. Absent sets no variable of this kind.
    #[serde(default)]
    pub ca_file: Option<String>,
}

fn own_hosts() -> Vec<String> {
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into()
}

impl EgressProxyConfig {
    /// The first problem: the field and what is wrong with it.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let problem = |field, text: &str| Some((field, text.to_owned()));
        match &self.token_key {
            None if !self.rules.is_empty() => {
                return problem(
                    "token_key",
                    "must be set, or the proxy identifies no program",
                );
            }
            Some(key) => {
                if let Err(error) = TokenKeys::new(key, None) {
                    return problem("token_key", &error.to_string());
                }
            }
            None => {}
        }
        for rule in &self.rules {
            if rule.tenants.is_empty() || rule.sandboxes.is_empty() {
                return problem("rules", "must name tenants and sandboxes in each rule");
            }
            if CanonicalUrl::of_authority(&rule.address, false).is_err() {
                return problem("rules", "must have an `address` HOST:PORT in each rule");
            }
            let is_host = |host: &String| {
                !host.is_empty()
                    && host
                        .bytes()
                        .all(|byte| byte.is_ascii_graphic() && byte != b',')
            };
            if !rule.no_proxy.iter().all(is_host) {
                return problem(
                    "rules",
                    "must have hosts without blanks and commas in `no_proxy`",
                );
            }
            let is_path = |path: &String| path.starts_with('/') && !path.contains('\0');
            if !rule.ca_file.as_ref().is_none_or(is_path) {
                return problem("rules", "must have an absolute path in `ca_file`");
            }
        }
        None
    }

    fn rule(&self, tenant: &TenantId, sandbox: &Address) -> Option<&EgressProxyRule> {
        let sandbox = sandbox.to_string();
        let is_any = |patterns: &[String], text: &str| {
            let mut patterns = patterns.iter();
            patterns.any(|pattern| fits(pattern, text))
        };
        let mut rules = self.rules.iter();
        rules.find(|rule| {
            is_any(&rule.tenants, tenant.as_str()) && is_any(&rule.sandboxes, &sandbox)
        })
    }

    /// Adds the variables to those of a program that runs for at most `time` in `sandbox`, if a rule fits. A variable
    /// of the request stays as it is, even if the case of its letters differs. The names go into `audit`, the token
    /// does not.
    ///
    /// # Errors
    ///
    /// A token that cannot be minted, for instance because it would be too long. The program is then not run.
    pub(crate) fn add_variables(
        &self,
        program: &ProxiedProgram<'_>,
        body: &mut v1::ExecSandboxRequest,
        audit: &mut v1::SandboxCommandAudit,
    ) -> Result<(), CommandError> {
        let rule = self.rule(&program.meta.tenant, program.sandbox);
        let (Some(rule), Some(key)) = (rule, &self.token_key) else {
            return Ok(());
        };
        let token = program
            .token(key, body.sandbox.as_ref())
            .map_err(CommandError::NotRun)?;
        let scheme = if rule.tls { "https" } else { "http" };
        let url = format!("{scheme}://{PROXY_USER}:{token}@{}", rule.address);
        // The list has no blanks: curl accepts them, Go and Python differ.
        let hosts = rule.no_proxy.join(",");
        let names = PROXY_VARIABLES.map(|name| (name, &url));
        // Some programs read only one of the two cases.
        for (name, value) in names.into_iter().chain([(NO_PROXY_VARIABLE, &hosts)]) {
            let lower = name.to_ascii_lowercase();
            add_missing(body, audit, name, &[name, &lower], value);
        }
        for name in CA_FILE_VARIABLES {
            if let Some(path) = &rule.ca_file {
                add_missing(body, audit, name, &[name], path);
            }
        }
        Ok(())
    }
}

/// Adds the variables `forms`, unless the request has `name` in any case of letters.
fn add_missing(
    body: &mut v1::ExecSandboxRequest,
    audit: &mut v1::SandboxCommandAudit,
    name: &str,
    forms: &[&str],
    value: &str,
) {
    let mut present = body.environment.iter();
    if present.any(|variable| variable.name.eq_ignore_ascii_case(name)) {
        return;
    }
    for form in forms {
        audit.environment_names.push((*form).to_owned());
        body.environment.push(v1::EnvironmentVariable {
            name: (*form).to_owned(),
            value: value.as_bytes().to_vec(),
        });
    }
}

/// A program that may get the proxy.
pub(crate) struct ProxiedProgram<'a> {
    /// Tenant, app and session of the caller.
    pub(crate) meta: &'a Meta,
    /// Address of the sandbox in which it runs.
    pub(crate) sandbox: &'a Address,
    /// Time limit of the program.
    pub(crate) time: Duration,
    /// Clock from whose present time the token expires.
    pub(crate) clock: &'a Clock,
}

impl ProxiedProgram<'_> {
    /// Mints the token of the program, which expires [`EXPIRY_MARGIN`] after the time limit of the program.
    fn token(
        &self,
        key: &Secret,
        sandbox: Option<&v1::SandboxRef>,
    ) -> Result<String, SandboxError> {
        let expires = Duration::from_millis(self.clock.now_ms()) + self.time + EXPIRY_MARGIN;
        let identity = ProxyIdentity {
            tenant: self.meta.tenant.clone(),
            session: self.session(sandbox)?,
            app: self.meta.app.clone(),
            // Claims have whole seconds; the margin covers the rounding down.
            expires_s: expires.as_secs(),
            allow: None,
            certificate: None,
        };
        // The message has no part of key or token.
        let failed = |error: MintError| SandboxError::new(ErrorKind::TooLarge, error.to_string());
        TokenKeys::new(key, None)
            .and_then(|keys| keys.mint(&identity))
            .map_err(failed)
    }

    /// The session to which the sandbox belongs. If the request names the sandbox by its address, the session of the
    /// call; without a session, the address itself.
    fn session(&self, sandbox: Option<&v1::SandboxRef>) -> Result<SessionId, SandboxError> {
        let named = sandbox.and_then(|named| named.sandbox.as_ref());
        if let Some(sandbox_ref::Sandbox::Session(session)) = named {
            return SessionId::new(session).map_err(|_| invalid_session());
        }
        if let Some(session) = &self.meta.session {
            return Ok(session.clone());
        }
        let address = self.sandbox.to_string();
        // An address can be too long, or have blanks.
        SessionId::new(&address)
            .or_else(|_| SessionId::new(key_token(&address)))
            .map_err(|_| invalid_session())
    }
}

fn invalid_session() -> SandboxError {
    SandboxError::new(ErrorKind::InvalidName, "the session does not fit a token")
}

#[cfg(test)]
mod tests;
