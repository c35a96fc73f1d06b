//! The callers of the gRPC endpoint: who they are, for which tenant they act, and which methods they may call.
//!
//! The file contains digests of tokens instead of tokens, so that a copy of it gives no access.

use std::collections::BTreeSet;
use std::sync::Arc;

use dray_types::{Sha256Digest, TenantId, toml_problem};
use prost::Message as _;
use serde::Deserialize;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

/// Scope that allows every method.
const ALL_METHODS: &str = "*";
/// Most identities of one file: every request is compared with all of them.
const MAX_IDENTITIES: usize = 10_000;

/// A known caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerIdentity {
    /// Name for the log and for messages to the caller itself.
    pub(crate) name: String,
    /// The tenant of all its requests.
    pub(crate) tenant: TenantId,
    scopes: BTreeSet<String>,
}

impl CallerIdentity {
    /// Whether it may call the method at `path`, such as `/dray.v1.Files/Resolve`.
    pub(crate) fn may_call(&self, path: &str) -> bool {
        let method = path.trim_start_matches('/');
        let service = method
            .split_once('/')
            .map_or(method, |(service, _)| service);
        [ALL_METHODS, service, method]
            .into_iter()
            .any(|scope| self.scopes.contains(scope))
    }
}

/// All known callers, as the file lists them.
#[derive(Debug, Default)]
pub(crate) struct IdentityTable {
    /// One entry for each digest of a token.
    tokens: Vec<(Sha256Digest, Arc<CallerIdentity>)>,
    /// One entry for each name in a certificate.
    certificates: Vec<(String, Arc<CallerIdentity>)>,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityFile {
    #[serde(default)]
    identity: Vec<IdentityEntry>,
}

/// One `[[identity]]` of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityEntry {
    name: String,
    tenant: String,
    #[serde(default)]
    token_sha256: Vec<String>,
    #[serde(default)]
    certificate_names: Vec<String>,
    scopes: Vec<String>,
}

impl IdentityTable {
    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// A sentence on the first problem, without a value that could be a secret.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: IdentityFile = toml::from_str(text).map_err(|error| {
            toml_problem(text, error.span().map(|span| span.start), error.message())
        })?;
        if file.identity.len() > MAX_IDENTITIES {
            return Err(format!("must list at most {MAX_IDENTITIES} identities"));
        }
        let methods = known_scopes();
        let mut table = Self::default();
        let mut names = BTreeSet::new();
        for entry in &file.identity {
            if entry.name.trim().is_empty() || !names.insert(entry.name.as_str()) {
                return Err(format!(
                    "the name `{}` must be unique and not empty",
                    entry.name
                ));
            }
            table
                .add(entry, &methods)
                .map_err(|problem| format!("identity `{}`: {problem}", entry.name))?;
        }
        Ok(table)
    }

    fn add(&mut self, entry: &IdentityEntry, methods: &BTreeSet<String>) -> Result<(), String> {
        let tenant = TenantId::new(entry.tenant.as_str())
            .map_err(|error| format!("`tenant` is not valid: {error}"))?;
        if entry.scopes.is_empty() {
            return Err("`scopes` must name at least one method, service or `*`".to_owned());
        }
        // A scope with a typing error would refuse requests later, far from its cause.
        if let Some(unknown) = entry.scopes.iter().find(|scope| !methods.contains(*scope)) {
            return Err(format!(
                "`{unknown}` in `scopes` is not a service or method of dray.v1"
            ));
        }
        if entry.token_sha256.is_empty() && entry.certificate_names.is_empty() {
            return Err("`token_sha256` or `certificate_names` must have an entry".to_owned());
        }
        let identity = Arc::new(CallerIdentity {
            name: entry.name.clone(),
            tenant,
            scopes: entry.scopes.iter().cloned().collect(),
        });
        for digest in &entry.token_sha256 {
            let digest: Sha256Digest = digest.parse().map_err(|_| {
                "`token_sha256` must hold digests of 64 hexadecimal digits, not tokens".to_owned()
            })?;
            if self.tokens.iter().any(|(known, _)| *known == digest) {
                return Err("a digest in `token_sha256` is listed twice".to_owned());
            }
            self.tokens.push((digest, Arc::clone(&identity)));
        }
        for name in &entry.certificate_names {
            let name = normal_name(name);
            if name.is_empty() || self.certificates.iter().any(|(known, _)| *known == name) {
                return Err(format!(
                    "`{name}` in `certificate_names` is empty or listed twice"
                ));
            }
            self.certificates.push((name, Arc::clone(&identity)));
        }
        Ok(())
    }

    /// Finds the owner of a token. Takes the same time for every token, known or not.
    pub(crate) fn by_token(&self, token: &str) -> Option<&Arc<CallerIdentity>> {
        let presented = Sha256Digest::of(token.as_bytes());
        let mut found = u64::MAX;
        for (index, (digest, _)) in self.tokens.iter().enumerate() {
            let equal: Choice = digest.as_bytes().ct_eq(presented.as_bytes());
            // The loop has no early end: the place of a match must not show in the time.
            found.conditional_assign(&(index as u64), equal);
        }
        let index = usize::try_from(found).ok()?;
        self.tokens.get(index).map(|(_, identity)| identity)
    }

    /// Finds the identity of a verified certificate by one of its names.
    pub(crate) fn by_certificate(&self, names: &[String]) -> Option<&Arc<CallerIdentity>> {
        let normal: Vec<String> = names.iter().map(|name| normal_name(name)).collect();
        self.certificates
            .iter()
            .find(|(name, _)| normal.contains(name))
            .map(|(_, identity)| identity)
    }
}

/// DNS names compare without case (RFC 4343), URIs as they are.
fn normal_name(name: &str) -> String {
    if name.contains(':') {
        return name.trim().to_owned();
    }
    name.trim().to_ascii_lowercase()
}

/// Every scope that can be granted: `*`, `dray.v1.Files`, `dray.v1.Files/Resolve` …
fn known_scopes() -> BTreeSet<String> {
    let mut scopes = BTreeSet::from([ALL_METHODS.to_owned()]);
    let files =
        prost_types::FileDescriptorSet::decode(dray_proto::FILE_DESCRIPTOR_SET).unwrap_or_default();
    for file in &files.file {
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            let methods = service.method.iter();
            scopes.extend(methods.map(|method| format!("{name}/{}", method.name())));
            scopes.insert(name);
        }
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(token: &str) -> String {
        Sha256Digest::of(token.as_bytes()).to_hex()
    }

    fn file() -> String {
        format!(
            r#"
[[identity]]
name = "billing"
tenant = "acme"
token_sha256 = ["{}", "{}"]
scopes = ["dray.v1.Files/Resolve", "dray.v1.ToolCalls"]

[[identity]]
name = "nightly"
tenant = "other"
certificate_names = ["spiffe://prod/Nightly", "Nightly.Internal"]
scopes = ["*"]
"#,
            digest("old-token"),
            digest("new-token"),
        )
    }

    #[test]
    fn every_token_of_an_identity_finds_it_and_no_other_token_does() {
        let table = IdentityTable::parse(&file()).unwrap();
        for token in ["old-token", "new-token"] {
            let identity = table.by_token(token).unwrap();
            assert_eq!(
                (identity.name.as_str(), identity.tenant.as_str()),
                ("billing", "acme")
            );
        }
        for token in ["", "old-toke", "old-token ", &digest("old-token")] {
            assert_eq!(table.by_token(token), None, "{token}");
        }
        assert_eq!(IdentityTable::default().by_token("old-token"), None);
    }

    #[test]
    fn certificates_are_found_by_any_listed_name() {
        let table = IdentityTable::parse(&file()).unwrap();
        let find = |name: &str| table.by_certificate(&["x".to_owned(), name.to_owned()]);
        assert_eq!(find("NIGHTLY.internal").unwrap().name, "nightly");
        assert_eq!(find("spiffe://prod/Nightly").unwrap().name, "nightly");
        // The path of a URI has case.
        assert_eq!(find("spiffe://prod/nightly"), None);
        assert_eq!(find("internal"), None);
    }

    #[test]
    fn a_scope_is_a_method_a_service_or_everything() {
        let table = IdentityTable::parse(&file()).unwrap();
        let billing = table.by_token("new-token").unwrap();
        for (path, allowed) in [
            ("/dray.v1.Files/Resolve", true),
            ("/dray.v1.ToolCalls/Submit", true),
            ("/dray.v1.ToolCalls/Outcome", true),
            ("/dray.v1.Sandboxes/Get", false),
            ("/dray.v1.FilesX/Resolve", false),
            ("/dray.v1.Files/Resolve/x", false),
            ("/", false),
        ] {
            assert_eq!(billing.may_call(path), allowed, "{path}");
        }
        let nightly = table
            .by_certificate(&["nightly.internal".to_owned()])
            .unwrap();
        assert!(nightly.may_call("/dray.v1.Sandboxes/Get"));
    }

    #[test]
    fn problems_of_the_file_are_named_without_its_secrets() {
        let entry = |fields: &str| format!("[[identity]]\nname = \"a\"\n{fields}");
        let valid = format!("token_sha256 = [\"{}\"]\n", digest("t"));
        for (text, expected) in [
            ("identity = 3".to_owned(), "line 1"),
            (
                entry("tenant = \"x\"\nscopes = [\"*\"]\ntoken_sha256 = \"s3cret\"\n"),
                "wrong type",
            ),
            (
                entry("tenant = \"x\"\nscopes = [\"*\"]\ntoken = \"s3cret\"\n"),
                "unknown field",
            ),
            (
                entry("tenant = \"x\"\nscopes = [\"*\"]\n"),
                "must have an entry",
            ),
            (
                entry("tenant = \"x\"\nscopes = [\"*\"]\ntoken_sha256 = [\"s3cret\"]\n"),
                "not tokens",
            ),
            (
                entry(&format!("tenant = \"\"\nscopes = [\"*\"]\n{valid}")),
                "`tenant`",
            ),
            (
                entry(&format!("tenant = \"x\"\nscopes = []\n{valid}")),
                "`scopes`",
            ),
            (
                entry(&format!(
                    "tenant = \"x\"\nscopes = [\"dray.v1.File\"]\n{valid}"
                )),
                "`dray.v1.File` in `scopes`",
            ),
            (
                format!(
                    "{0}{0}",
                    entry(&format!("tenant = \"x\"\nscopes = [\"*\"]\n{valid}"))
                ),
                "unique",
            ),
        ] {
            let problem = IdentityTable::parse(&text).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }
}
