//! Scopes, and which of them a request of the protocol needs.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::options::ToolName;

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Read and list files, deliveries and documents.
    Read,
    /// Fetch outside URLs, under the operator's policy.
    Fetch,
    /// Write files: into the sandbox, and new files into the local directory.
    Put,
    /// Send files to people.
    Send,
    /// Answer questions about hosts, if the server asks users.
    Approve,
}

impl Scope {
    /// Every scope, in the order of the documentation.
    pub const ALL_SCOPES: [Self; 5] = [
        Self::Read,
        Self::Fetch,
        Self::Put,
        Self::Send,
        Self::Approve,
    ];

    /// The name in tokens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Fetch => "fetch",
            Self::Put => "put",
            Self::Send => "send",
            Self::Approve => "approve",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Fetch => 2,
            Self::Put => 4,
            Self::Send => 8,
            Self::Approve => 16,
        }
    }
}

/// The text is not the name of a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope `{0}`; the scopes are read, fetch, put, send, approve")]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(name: &str) -> Result<Self, UnknownScope> {
        let mut all = Self::ALL_SCOPES.into_iter();
        all.find(|scope| scope.as_str() == name)
            .ok_or_else(|| UnknownScope(name.to_owned()))
    }
}

/// The scopes of a token or a login, one bit for each [`Scope`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeSet(u8);

impl ScopeSet {
    /// Every scope, for callers that the operator trusts completely.
    pub fn all() -> Self {
        Scope::ALL_SCOPES.into_iter().collect()
    }

    /// The scopes of a space-separated list (RFC 6749 section 3.3). Scopes of other services are ignored.
    pub fn from_list(list: &str) -> Self {
        list.split(' ')
            .filter_map(|name| name.parse().ok())
            .collect()
    }

    /// Whether all scopes of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The scopes of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for scope in Scope::ALL_SCOPES {
            if self.contains(ScopeSet::from_iter([scope])) {
                write!(f, "{separator}{}", scope.as_str())?;
                separator = " ";
            }
        }
        Ok(())
    }
}

/// The scopes that a call of a tool needs: one for its effect, and one for each source from which it reads a file.
///
/// Invalid arguments need no further scopes, because the call fails before it has an effect.
pub(crate) fn required_scopes(
    tool: ToolName,
    arguments: Option<&serde_json::Map<String, Value>>,
) -> ScopeSet {
    let text = |name: &str| arguments?.get(name)?.as_str();
    match tool {
        ToolName::Read => source_scopes(text("path")),
        ToolName::Fetch | ToolName::PolicyCheck => [Scope::Fetch].into_iter().collect(),
        ToolName::List | ToolName::Receipts => [Scope::Read].into_iter().collect(),
        ToolName::Get => {
            let writes = text("to").map(|_| Scope::Put);
            source_scopes(text("from")).union(writes.into_iter().collect())
        }
        ToolName::Put => source_scopes(text("from")).union([Scope::Put].into_iter().collect()),
        ToolName::SendFile => {
            let files = arguments.and_then(|all| all.get("files")?.as_array());
            let paths = files
                .into_iter()
                .flatten()
                .map(|file| source_scopes(file.as_str()));
            paths.fold([Scope::Send].into_iter().collect(), ScopeSet::union)
        }
        // The references are found only when they are resolved, and those to URLs are fetched.
        ToolName::ResolveFileArguments => [Scope::Read, Scope::Fetch].into_iter().collect(),
        // The scopes of `send_file` and `put`: the upload has their effect, only later.
        ToolName::UploadTicket if text("to") == Some("chat") => [Scope::Send].into_iter().collect(),
        ToolName::UploadTicket => [Scope::Put].into_iter().collect(),
        // The holder of the URL reads the file without a token, so its maker must be allowed to read it.
        ToolName::DownloadTicket => source_scopes(text("from")),
    }
}

/// The scopes that reading a file from this location needs.
fn source_scopes(path: Option<&str>) -> ScopeSet {
    let scheme = path.and_then(|path| Some(path.split_once("://")?.0));
    let is_url = scheme.is_some_and(|scheme| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    });
    let scope = if is_url { Scope::Fetch } else { Scope::Read };
    [scope].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn required_scope(tool: ToolName, arguments: &Value) -> String {
        required_scopes(tool, arguments.as_object()).to_string()
    }

    #[test]
    fn a_call_needs_the_scope_of_its_effect_and_of_each_source() {
        let url = "HTTPS://a.example/x";
        for (tool, arguments, scopes) in [
            (ToolName::Read, json!({"path": "a.pdf"}), "read"),
            (ToolName::Read, json!({"path": url}), "fetch"),
            (ToolName::Get, json!({"from": "sandbox:a"}), "read"),
            (ToolName::Get, json!({"from": url, "to": "b"}), "fetch put"),
            (ToolName::Put, json!({"from": "a"}), "read put"),
            (ToolName::Put, json!({"from": url}), "fetch put"),
            (
                ToolName::SendFile,
                json!({"files": ["a", url]}),
                "read fetch send",
            ),
            (ToolName::SendFile, json!({}), "send"),
            (ToolName::PolicyCheck, json!({"url": url}), "fetch"),
            (ToolName::ResolveFileArguments, json!({}), "read fetch"),
            (ToolName::Receipts, json!({}), "read"),
            (ToolName::UploadTicket, json!({}), "put"),
            (ToolName::UploadTicket, json!({"to": "sandbox:a"}), "put"),
            (ToolName::UploadTicket, json!({"to": "chat"}), "send"),
            (ToolName::DownloadTicket, json!({"from": "a"}), "read"),
            (ToolName::DownloadTicket, json!({"from": url}), "fetch"),
        ] {
            assert_eq!(
                required_scope(tool, &arguments),
                scopes,
                "{tool} {arguments}"
            );
        }
    }

    #[test]
    fn scopes_of_other_services_are_left_out_of_a_list() {
        let scopes = ScopeSet::from_list("openid read  reader send");
        assert_eq!(scopes.to_string(), "read send");
        assert!(!scopes.contains(ScopeSet::all()));
        assert_eq!(ScopeSet::all().to_string(), "read fetch put send approve");
    }
}
