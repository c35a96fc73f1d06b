//! Fresh URLs for stored objects (agent-file-context 16.2, R-15). The caller requests the signatures before the build
//! and passes the results in the request.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::address;

/// The stored objects that a request may name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreScope {
    /// Directories of the object store, without a slash at the end.
    directories: Vec<String>,
}

impl StoreScope {
    /// The objects below any of these directories.
    pub fn of(directories: impl IntoIterator<Item = String>) -> Self {
        let directories = directories.into_iter();
        let directories = directories.map(|directory| directory.trim_end_matches('/').to_owned());
        Self {
            directories: directories
                .filter(|directory| !directory.is_empty())
                .collect(),
        }
    }

    /// Whether a key is below one of the directories. False for a key with an empty, `.` or `..` segment, a backslash
    /// or a control character.
    pub fn contains(&self, key: &str) -> bool {
        is_plain(key)
            && self.directories.iter().any(|directory| {
                // A scope that was read from JSON was not normalised by `of`.
                let directory = directory.trim_end_matches('/');
                let rest = key
                    .strip_prefix(directory)
                    .and_then(|rest| rest.strip_prefix('/'));
                !directory.is_empty() && rest.is_some_and(|rest| !rest.is_empty())
            })
    }
}

/// Whether no segment has a special meaning for a store.
fn is_plain(key: &str) -> bool {
    !key.contains(|character: char| character == '\\' || character.is_control())
        && key
            .split('/')
            .all(|segment| !matches!(segment, "" | "." | ".."))
}

/// Fresh URLs from the signer, and the restrictions on fetching.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewedLinks {
    /// Objects that belong to this conversation. Absent means that the caller checked already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<StoreScope>,
    /// Key to fresh URL; null or absent when it could not be signed.
    #[serde(default)]
    pub signed: BTreeMap<String, Option<String>>,
    /// Hosts of external files that may be fetched; `*.example.com` means every host below. Absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Keys that are invalid, such as a path with `..` in it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub invalid: BTreeSet<String>,
}

/// The reason why a file has no URL that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum RenewalRefusal {
    /// The key belongs to another conversation.
    #[error("Workflow file key does not belong to the current workflow")]
    Scope,
    /// The signer gave no URL for the key.
    #[error("The file is no longer available: its link could not be renewed")]
    Unsigned,
    /// The key is not the name of a file.
    #[error("No file with this name can be opened")]
    Name,
    /// The text is not a URL, or its host is not allowed.
    #[error("Invalid workflow file URL")]
    Url,
}

impl RenewedLinks {
    /// The fresh URL of a key.
    pub fn url(&self, key: &str) -> Result<&str, RenewalRefusal> {
        // The scope is checked first, so that a refusal reveals nothing about objects of others.
        if self
            .scope
            .as_ref()
            .is_some_and(|scope| !scope.contains(key))
        {
            return Err(RenewalRefusal::Scope);
        }
        if self.invalid.contains(key) {
            return Err(RenewalRefusal::Name);
        }
        let signed = self.signed.get(key).and_then(Option::as_deref);
        signed
            .filter(|url| !url.is_empty())
            .ok_or(RenewalRefusal::Unsigned)
    }

    /// Whether an external URL may be fetched.
    pub fn allows(&self, url: &str) -> bool {
        allows_host(self.allowed_hosts.as_deref(), url)
    }

    /// Returns the keys that have to be signed: each once, and none outside the scope.
    pub fn keys_to_sign<'a>(
        scope: Option<&StoreScope>,
        keys: impl IntoIterator<Item = &'a str>,
    ) -> Vec<String> {
        let mut seen = BTreeSet::new();
        keys.into_iter()
            .filter(|key| scope.is_none_or(|scope| scope.contains(key)))
            .filter(|key| seen.insert(*key))
            .map(str::to_owned)
            .collect()
    }
}

/// Whether the host of `url` is among `hosts`; no list allows every host.
pub(crate) fn allows_host(hosts: Option<&[String]>, url: &str) -> bool {
    let Some(hosts) = hosts else {
        return true;
    };
    let Some(host) = address::url_host(url) else {
        return false;
    };
    hosts.iter().any(|allowed| {
        let allowed = allowed.to_ascii_lowercase();
        match allowed.strip_prefix("*.") {
            Some(parent) => host
                .strip_suffix(parent)
                // The dot excludes `evilexample.com`, and the parent domain itself is not included.
                .is_some_and(|below| below.ends_with('.') && below.len() > 1),
            None => host == allowed,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_15_a_scope_contains_only_its_own_objects() {
        let scope = StoreScope::of(["chat/app/user/chat".to_owned()]);
        assert!(scope.contains("chat/app/user/chat/a.pdf"));
        for key in [
            "chat/app/user/chat2/a.pdf",
            "chat/app/user/chat",
            "chat/app/user/chat/",
            "chat/app/user/chat/../other/a.pdf",
            "chat/app/user/chat/./a.pdf",
            "chat/app/user/chat/..\\a.pdf",
            "/chat/app/user/chat/a.pdf",
            "",
        ] {
            assert!(!scope.contains(key), "{key}");
        }
        let stored: StoreScope = serde_json::from_str("[\"\", \"a/\"]").unwrap();
        assert!(stored.contains("a/b") && !stored.contains("b"));
    }

    #[test]
    fn r_15_a_key_is_signed_once_and_never_for_others() {
        let scope = StoreScope::of(["mine".to_owned()]);
        let keys = ["mine/a", "other/b", "mine/a", "mine/c"];
        assert_eq!(
            RenewedLinks::keys_to_sign(Some(&scope), keys),
            ["mine/a", "mine/c"]
        );
        let renewals = RenewedLinks {
            scope: Some(scope),
            signed: [
                ("mine/a".to_owned(), Some("https://s/a".to_owned())),
                ("mine/c".to_owned(), None),
                ("other/b".to_owned(), Some("https://s/b".to_owned())),
            ]
            .into(),
            ..RenewedLinks::default()
        };
        assert_eq!(renewals.url("mine/a"), Ok("https://s/a"));
        assert_eq!(renewals.url("mine/c"), Err(RenewalRefusal::Unsigned));
        assert_eq!(renewals.url("mine/d"), Err(RenewalRefusal::Unsigned));
        assert_eq!(renewals.url("other/b"), Err(RenewalRefusal::Scope));
    }

    #[test]
    fn hosts_are_allowed_whole_or_below_a_parent() {
        let hosts = vec!["a.example".to_owned(), "*.b.example".to_owned()];
        let check = |url: &str| allows_host(Some(&hosts), url);
        assert!(check("https://A.example./x") && check("https://x.b.example/"));
        assert!(!check("https://b.example/") && !check("https://xa.example/"));
        assert!(!check("https://a.example.evil/") && !check("https://xb.example/") && !check("/x"));
        assert!(allows_host(None, "https://anything/"));
    }
}
