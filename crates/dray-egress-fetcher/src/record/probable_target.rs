//! The probable target of a refused URL, for the audit event.
//!
//! Never used to decide or to connect. Holds no path, query, fragment or user info (S-5).

use dray_guard::CanonicalUrl;
use dray_types::RedactedUrl;

/// Scheme, host and port as far as they can be read from a text that is not an acceptable URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedOrigin {
    /// Scheme in lower case; empty when there is none.
    pub scheme: String,
    /// Host as it was written; empty when there is none.
    pub host: String,
    /// Port as it was written, or the scheme's default; 0 when there is neither.
    pub port: u16,
}

impl RequestedOrigin {
    /// Reads the shown form of `text`, which has no user info and no query.
    pub fn from_text(text: &str) -> Self {
        // User info and query are removed before anything is kept (S-5).
        let redacted = RedactedUrl::from_text(text);
        let (scheme, rest) = match redacted.as_str().split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme, rest) => (scheme.to_ascii_lowercase(), rest),
            _ => (String::new(), redacted.as_str()),
        };
        // Browsers accept any number of slashes and backslashes before the host, so the probable target follows them.
        let after = rest.trim_start_matches(['/', '\\']);
        let is_opaque =
            !scheme.is_empty() && after.len() == rest.len() && default_port(&scheme) == 0;
        if is_opaque {
            return Self {
                scheme,
                ..Self::default()
            };
        }
        let authority = after.split(['/', '\\']).next().unwrap_or_default();
        let (host, port) = split_port(authority);
        Self {
            port: port.parse().unwrap_or(default_port(&scheme)),
            host: host.to_owned(),
            scheme,
        }
    }

    /// The target of a redirect from `base`: of the first of its `Location` fields.
    pub fn redirect(base: &CanonicalUrl, locations: &[&[u8]]) -> Self {
        let text = String::from_utf8_lossy(locations.first().copied().unwrap_or_default());
        if text.starts_with("//") || text.starts_with("\\\\") {
            return Self::from_text(&format!("{}:{text}", base.scheme()));
        }
        let has_scheme = text
            .split_once(':')
            .is_some_and(|(scheme, rest)| is_scheme(scheme, rest));
        if has_scheme {
            return Self::from_text(&text);
        }
        Self {
            scheme: base.scheme().to_owned(),
            host: base.host().to_string(),
            port: base.port(),
        }
    }
}

/// Returns whether a text before a colon is a scheme and not a host before its port.
fn is_scheme(scheme: &str, rest: &str) -> bool {
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
        && !(scheme.contains('.') && rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn default_port(scheme: &str) -> u16 {
    match scheme {
        "http" => 80,
        "https" => 443,
        _ => 0,
    }
}

/// Splits host and port; the port may be any text, of which only a number is kept.
fn split_port(authority: &str) -> (&str, &str) {
    match authority.rfind(']') {
        Some(end) => {
            let (host, rest) = authority.split_at(end + 1);
            (host, rest.strip_prefix(':').unwrap_or_default())
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tried: &RequestedOrigin, scheme: &str, host: &str, port: u16) {
        let parsed = (tried.scheme.as_str(), tried.host.as_str(), tried.port);
        assert_eq!(parsed, (scheme, host, port));
    }

    #[test]
    fn section_18_scheme_and_host_are_recorded_as_written() {
        for (text, scheme, host, port) in [
            ("http://2130706433/", "http", "2130706433", 80),
            ("HTTPS://0x7f.1:8443/x?y#z", "https", "0x7f.1", 8443),
            ("http://user:hunter2@h.example/", "http", "h.example", 80),
            ("ftp://files.example.org/a", "ftp", "files.example.org", 0),
            ("file:///etc/passwd", "file", "etc", 0),
            ("http:\\\\127.1\\x", "http", "127.1", 80),
            ("http://[::1%25eth0]:81/", "http", "[::1%25eth0]", 81),
            ("http://host:hunter2/", "http", "host", 80),
            ("data:text/plain,hunter2", "data", "", 0),
            ("example.org:80/x", "", "example.org", 80),
            ("not a url", "", "not a url", 0),
            ("", "", "", 0),
        ] {
            check(&RequestedOrigin::from_text(text), scheme, host, port);
        }
    }

    #[test]
    fn section_18_redirect_targets_are_recorded_against_their_base() {
        let base = CanonicalUrl::parse("https://files.example.org:8443/a").unwrap();
        for (location, scheme, host, port) in [
            (b"http://2130706433/".as_slice(), "http", "2130706433", 80),
            (b"//0x7f.1/", "https", "0x7f.1", 443),
            (b"gopher:x", "gopher", "", 0),
            (b"/relative", "https", "files.example.org", 8443),
            (b"", "https", "files.example.org", 8443),
            (b"\xff", "https", "files.example.org", 8443),
        ] {
            check(
                &RequestedOrigin::redirect(&base, &[location]),
                scheme,
                host,
                port,
            );
        }
        check(
            &RequestedOrigin::redirect(&base, &[]),
            "https",
            "files.example.org",
            8443,
        );
    }
}
