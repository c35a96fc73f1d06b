//! The file in which an operator configures the accepted tokens.
//!
//! It is separate from the configuration of the services, because it defines the callers of one endpoint, and refers to
//! files with secrets. It is read once, when the server starts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dray_jwt::check_secure_url;
use dray_types::{SessionId, Sha256Digest, TenantId, toml_problem};
use serde::Deserialize;

use super::{
    AuthOptions, BearerToken, Caller, KeyLocation, OAuthOptions, Scope, ScopeSet, StaticToken,
};

/// The reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthFileError {
    /// The file, or a file that it names, cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file that cannot be read.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML, or has unknown keys.
    #[error("{} is not valid: {problem}", path.display())]
    Syntax {
        /// The configuration file.
        path: PathBuf,
        /// The line and the problem. The error of the parser would show the line, which may have a token.
        problem: String,
    },
    /// A value cannot be used.
    #[error("{key} {problem}")]
    Value {
        /// The key, with the name of its token if the key belongs to one.
        key: String,
        /// The problem, as the predicate of a sentence about the key.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthFile {
    #[serde(default)]
    oauth: Option<OAuthTable>,
    #[serde(default)]
    token: Vec<TokenTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OAuthTable {
    issuer: String,
    resource: String,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    jwks_url: Option<String>,
    #[serde(default)]
    jwks_file: Option<PathBuf>,
    #[serde(default = "default_tenant_claim")]
    tenant_claim: String,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default = "default_session_claim")]
    session_claim: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenTable {
    name: String,
    #[serde(default)]
    file: Option<PathBuf>,
    #[serde(default)]
    sha256: Option<String>,
    scopes: Vec<String>,
    #[serde(default)]
    tenant: Option<String>,
    session: String,
}

fn default_tenant_claim() -> String {
    "tenant".to_owned()
}

fn default_session_claim() -> String {
    "session".to_owned()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "errors and literals are passed as they come"
)]
fn unusable(key: impl Into<String>, problem: impl ToString) -> AuthFileError {
    AuthFileError::Value {
        key: key.into(),
        problem: problem.to_string(),
    }
}

impl AuthOptions {
    /// Reads the file. `tenant` applies to static tokens without a tenant. Paths in it are relative to its directory.
    ///
    /// # Errors
    ///
    /// [`AuthFileError`].
    pub fn read(path: &Path, tenant: &TenantId) -> Result<Self, AuthFileError> {
        let text = read_text(path)?;
        let file: AuthFile = toml::from_str(&text).map_err(|error| AuthFileError::Syntax {
            path: path.to_owned(),
            problem: toml_problem(&text, error.span().map(|span| span.start), error.message()),
        })?;
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        let mut names = BTreeSet::new();
        let mut options = Self::default();
        for table in &file.token {
            let key = format!("token `{}`:", table.name);
            // The name is the subject of audit events, so two tokens must not share one.
            if table.name.is_empty() || !names.insert(&table.name) {
                return Err(unusable(key, "the name is missing or used twice"));
            }
            let token = table.token(directory, tenant)?;
            let added = options.add_token(token);
            added.map_err(|error| unusable(key, error))?;
        }
        options.oauth = file
            .oauth
            .map(|oauth| oauth.options(directory))
            .transpose()?;
        // An empty file would open the endpoint to everyone, which is never intended.
        if !options.is_required() {
            return Err(unusable(
                "the file",
                "names neither `[oauth]` nor a `[[token]]`",
            ));
        }
        Ok(options)
    }
}

impl TokenTable {
    fn token(&self, directory: &Path, tenant: &TenantId) -> Result<StaticToken, AuthFileError> {
        let key = format!("token `{}`:", self.name);
        let invalid = |problem: &dyn std::fmt::Display| unusable(key.as_str(), problem);
        let token = match (&self.file, &self.sha256) {
            (Some(file), None) => {
                let text = read_text(&directory.join(file))?;
                // Editors and `echo` end the file with a line feed, which is not a part of the token.
                BearerToken::new(text.trim()).map_err(|error| invalid(&error))?
            }
            (None, Some(digest)) => {
                let digest: Sha256Digest = digest
                    .parse()
                    .map_err(|_| invalid(&"`sha256` has 64 hexadecimal digits"))?;
                BearerToken::from_digest(digest)
            }
            _ => return Err(invalid(&"needs either `file` or `sha256`")),
        };
        let scopes: Result<ScopeSet, _> = self
            .scopes
            .iter()
            .map(|name| name.parse::<Scope>())
            .collect();
        let tenant = match &self.tenant {
            Some(tenant) => TenantId::new(tenant).map_err(|error| invalid(&error))?,
            None => tenant.clone(),
        };
        Ok(StaticToken {
            token,
            caller: Caller {
                tenant,
                session: SessionId::new(&self.session).map_err(|error| invalid(&error))?,
                scopes: scopes.map_err(|error| invalid(&error))?,
                subject: format!("token:{}", self.name),
                expires_at_ms: None,
            },
        })
    }
}

impl OAuthTable {
    fn options(self, directory: &Path) -> Result<OAuthOptions, AuthFileError> {
        check_url("oauth.issuer", &self.issuer)?;
        check_url("oauth.resource", &self.resource)?;
        let keys = match (self.jwks_url, self.jwks_file) {
            (Some(url), None) => {
                check_url("oauth.jwks_url", &url)?;
                KeyLocation::Url(url)
            }
            (None, Some(file)) => KeyLocation::File(directory.join(file)),
            _ => return Err(unusable("oauth", "needs either `jwks_url` or `jwks_file`")),
        };
        let audiences = if self.audiences.is_empty() {
            // RFC 8707: the audience of a token is the resource that it was requested for.
            vec![self.resource.clone()]
        } else {
            self.audiences
        };
        let default_tenant = self.tenant.map(TenantId::new).transpose();
        Ok(OAuthOptions {
            issuer: self.issuer,
            resource: self.resource,
            audiences,
            keys,
            tenant_claim: self.tenant_claim,
            default_tenant: default_tenant.map_err(|error| unusable("oauth.tenant", error))?,
            session_claim: self.session_claim,
        })
    }
}

/// Tokens and keys must not travel in clear text, except within one machine.
fn check_url(key: &str, text: &str) -> Result<(), AuthFileError> {
    match check_secure_url(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(unusable(key, error)),
    }
}

fn read_text(path: &Path) -> Result<String, AuthFileError> {
    std::fs::read_to_string(path).map_err(|source| AuthFileError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AuthOptions, AuthFileError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ci.token"), "a-secret-of-the-ci\n").unwrap();
        let path = directory.path().join("auth.toml");
        std::fs::write(&path, text).unwrap();
        AuthOptions::read(&path, &TenantId::new("own").unwrap())
    }

    #[test]
    fn tokens_have_scopes_a_tenant_and_a_session() {
        let digest = Sha256Digest::of(b"another-secret-value");
        let options = read(&format!(
            "[[token]]\nname = 'ci'\nfile = 'ci.token'\nscopes = ['read', 'put']\nsession = 's1'\n\
             [[token]]\nname = 'b'\nsha256 = '{digest}'\nscopes = []\nsession = 's2'\ntenant = 'acme'\n"
        ))
        .unwrap();
        let [one, two] = options.tokens.as_slice() else {
            panic!("{options:?}");
        };
        assert!(one.token.admits("a-secret-of-the-ci") && two.token.admits("another-secret-value"));
        assert_eq!(one.caller.scopes.to_string(), "read put");
        assert_eq!(one.caller.tenant.as_str(), "own");
        assert_eq!(two.caller.tenant.as_str(), "acme");
        assert_ne!(one.caller.subject, two.caller.subject);
    }

    #[test]
    fn an_invalid_file_is_refused_with_its_problem() {
        let token = "[[token]]\nname = 'ci'\nsession = 's1'\n";
        let oauth = "[oauth]\nissuer = 'https://a.example'\nresource = 'https://b.example/mcp'\n";
        for (text, problem) in [
            (String::new(), "neither"),
            ("[oath]\n".to_owned(), "not valid"),
            (
                format!("{token}file = 'ci.token'\nscopes = ['write']\n"),
                "unknown scope `write`",
            ),
            (
                format!("{token}scopes = ['read']\n"),
                "either `file` or `sha256`",
            ),
            (
                format!("{token}sha256 = '12'\nscopes = ['read']\n"),
                "64 hexadecimal",
            ),
            (
                format!("{token}file = 'none'\nscopes = ['read']\n"),
                "cannot read",
            ),
            (
                format!("{token}file = 'ci.token'\nscopes = []\n").repeat(2),
                "used twice",
            ),
            (oauth.to_owned(), "either `jwks_url` or `jwks_file`"),
            (
                format!("{oauth}jwks_url = 'http://a.example/keys'\n"),
                "not an https URL",
            ),
            (
                format!("{}jwks_file = 'k'\n", oauth.replace("/mcp", "/mcp#x")),
                "fragment",
            ),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_problem_of_the_file_shows_no_token() {
        let token = "[[token]]\nname = 'ci'\nsession = 's1'\nscopes = []\n";
        for line in [
            "token = 's3cr3t-of-the-ci'",
            "sha256 = 's3cr3t-of-the-ci",
            "file = ['s3cr3t-of-the-ci']",
            "tenant = 's3cr3t-of-the-ci' tenant",
            "s3cr3t-of-the-ci",
            "sha256 = 's3cr3t-of-the-ci'",
        ] {
            let error = read(&format!("{token}{line}\n")).unwrap_err();
            let texts = format!("{} {error:?}", dray_types::ErrorChain(&error));
            assert!(!texts.contains("s3cr3t"), "{line}: {texts}");
        }
    }

    #[test]
    fn the_audience_is_the_resource_unless_others_are_named() {
        let text = "[oauth]\nissuer = 'https://a.example'\nresource = 'https://b.example/mcp'\n\
                    jwks_url = 'https://a.example/keys'\n";
        let oauth = read(text).unwrap().oauth.unwrap();
        assert_eq!(oauth.audiences, ["https://b.example/mcp"]);
        assert_eq!(
            (oauth.tenant_claim.as_str(), oauth.default_tenant),
            ("tenant", None)
        );
        let other = read(&format!("{text}audiences = ['api']\n"))
            .unwrap()
            .oauth
            .unwrap();
        assert_eq!(other.audiences, ["api"]);
    }
}
