//! Pages of this console to which a login leads back.

use url::Url;

/// Longest path with its query, in bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Stands for the console's origin while a path is parsed; its value does not matter.
const PLACEHOLDER_ORIGIN: &str = "http://console.invalid";

/// A path with its query; its origin is that of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnPath(String);

impl OwnPath {
    /// The path if it stays on the origin of the console, otherwise the first page: no login is an open redirect (RFC
    /// 9700 section 4.11).
    pub(crate) fn parse(text: &str) -> Self {
        Self::checked(text).unwrap_or_else(|| Self("/".to_owned()))
    }

    fn checked(text: &str) -> Option<Self> {
        // Browsers read `//host` and `/\host` as other hosts; the parser below follows the same standard (WHATWG URL).
        if text.len() > MAX_PATH_BYTES || !text.starts_with('/') {
            return None;
        }
        let base = Url::parse(PLACEHOLDER_ORIGIN).ok()?;
        let url = base.join(text).ok()?;
        // A page of the login would begin another login.
        if url.origin() != base.origin() || url.path().starts_with("/login") {
            return None;
        }
        let path = url.path();
        // A path such as `/.//host` keeps the origin here, but its normalised text `//host` names another host.
        if path.starts_with("//") {
            return None;
        }
        Some(Self(match url.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        }))
    }

    /// The path; all its characters are valid in a header.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_console_keep_their_query() {
        for (text, path) in [
            ("/live", "/live"),
            ("/operations/a%2Fb", "/operations/a%2Fb"),
            (
                "/sandboxes?session=s&path=a b#top",
                "/sandboxes?session=s&path=a%20b",
            ),
            ("/a/../files", "/files"),
        ] {
            assert_eq!(OwnPath::parse(text).as_str(), path);
        }
    }

    #[test]
    fn other_hosts_and_pages_of_the_login_are_replaced_by_the_first_page() {
        let long = format!("/{}", "a".repeat(MAX_PATH_BYTES));
        for text in [
            "",
            "live",
            "//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "/\n//evil.example",
            "/.//evil.example",
            "/a/..//evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/login?token=a",
            "/login/provider",
            "/a/../login",
            &long,
        ] {
            assert_eq!(OwnPath::parse(text).as_str(), "/", "{text:?}");
        }
    }
}
