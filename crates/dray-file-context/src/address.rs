//! Checks which URLs are accepted, and normalises them (agent-file-context 3).
//!
//! Origins are compared after parsing, never as text prefixes, and the URL that remains after removing the own origin
//! is checked again.

use url::{Host, Url};

use crate::generation::ContractGeneration;

/// Normalises the URLs of one request.
#[derive(Clone, Debug)]
pub struct UrlNormaliser {
    generation: ContractGeneration,
    origin: Option<Url>,
}

impl UrlNormaliser {
    /// Rules for requests to a server whose public name is `origin`. An origin that cannot be parsed counts as
    /// absent.
    pub fn new(generation: ContractGeneration, origin: Option<&str>) -> Self {
        let origin = origin
            .and_then(|origin| Url::parse(origin).ok())
            .filter(|origin| matches!(origin.scheme(), "http" | "https") && origin.has_host());
        Self { generation, origin }
    }

    /// The normalised URL, or `None` if the file is dropped. A URL of the own origin becomes a relative path.
    pub fn normalise(&self, url: &str) -> Option<String> {
        // Parsers remove tabs and line feeds (WHATWG URL), so the checked URL would differ from the fetched one.
        if url.chars().any(char::is_control) {
            return None;
        }
        if url.starts_with("data:") {
            return self.generation.accepts_data().then(|| url.to_owned());
        }
        if url.starts_with('/') {
            return (!self.generation.accepts_only_http() && is_own_path(url))
                .then(|| url.to_owned());
        }
        if !self.has_accepted_start(url) {
            return None;
        }
        let parsed = Url::parse(url).ok()?;
        if !self.accepts(&parsed) {
            return None;
        }
        if self.is_own(&parsed) && !self.generation.accepts_only_http() {
            return own_rest(url);
        }
        Some(url.to_owned())
    }

    /// The URL that another service can open: absolute `http(s)`. `None` without such a form.
    pub fn absolute(&self, url: &str) -> Option<String> {
        if url.starts_with('/') {
            let origin = self.origin.as_ref().filter(|_| is_own_path(url))?;
            return Some(format!("{}{url}", origin.origin().ascii_serialization()));
        }
        is_absolute_http(url).then(|| url.to_owned())
    }

    /// Checks the beginning without parsing the URL. The newer generations ignore the case of the scheme.
    fn has_accepted_start(&self, url: &str) -> bool {
        if self.generation.accepts_only_http() || self.generation == ContractGeneration::Stable {
            let head: String = url.chars().take(8).flat_map(char::to_lowercase).collect();
            let scheme = head.split("://").next().unwrap_or_default();
            return head.contains("://")
                && (scheme.starts_with("http")
                    || (scheme.starts_with("ws") && !self.generation.accepts_only_http()));
        }
        url.starts_with("http") || url.starts_with("ws")
    }

    fn accepts(&self, url: &Url) -> bool {
        let scheme = match url.scheme() {
            "http" | "https" => true,
            "ws" | "wss" => !self.generation.accepts_only_http(),
            _ => false,
        };
        scheme && url.has_host()
    }

    fn is_own(&self, url: &Url) -> bool {
        // A URL with credentials keeps its origin, because they would be lost together with the authority.
        let has_no_credentials = url.username().is_empty() && url.password().is_none();
        has_no_credentials
            && self
                .origin
                .as_ref()
                // `https://h.example.evil` begins with `https://h.example`, but has another origin.
                .is_some_and(|origin| origin.origin() == url.origin())
    }
}

/// The part after the authority, if it is a path of this server. A path that would name another host keeps its
/// origin. `None` if nothing follows the authority.
fn own_rest(url: &str) -> Option<String> {
    let (_, after) = url.split_once("://")?;
    // Without text after the authority, the URL is the origin itself, which is dropped (section 3, step 4).
    let authority_end = after.find(['/', '\\', '?', '#'])?;
    let (_, rest) = after.split_at(authority_end);
    if is_own_path(rest) {
        return Some(rest.to_owned());
    }
    rest.starts_with(['/', '\\']).then(|| url.to_owned())
}

/// A path that stays on the server that it is resolved against.
fn is_own_path(path: &str) -> bool {
    let mut characters = path.chars();
    // `//host` and `/\host` name another host (WHATWG URL).
    characters.next() == Some('/') && !matches!(characters.next(), Some('/' | '\\'))
}

/// Whether a URL is absolute, `http` or `https`, and names a host.
pub fn is_absolute_http(url: &str) -> bool {
    !url.chars().any(char::is_control)
        && url.contains("://")
        && Url::parse(url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// The URL without its fragment.
pub(crate) fn without_fragment(url: &str) -> &str {
    url.split('#').next().unwrap_or(url)
}

/// The URL without its fragment and without parameters that only prove the right to fetch it, so that two signatures
/// of one file compare equal.
pub(crate) fn without_signature(url: &str) -> String {
    let url = without_fragment(url);
    let Some((path, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let has_sig = query.split('&').any(|pair| pair.starts_with("sig="));
    let remaining: Vec<_> = query
        .split('&')
        .filter(|pair| !is_signature(pair, has_sig))
        .collect();
    if remaining.is_empty() {
        return path.to_owned();
    }
    format!("{path}?{}", remaining.join("&"))
}

/// Parameters of common URL signatures. A plain `token` is not among them, because it often identifies the file. The
/// short names count as a signature only together with `sig`.
fn is_signature(pair: &str, has_sig: bool) -> bool {
    let name = pair.split('=').next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    name.starts_with("x-amz-")
        || name.starts_with("x-goog-")
        || name.starts_with("x-oss-")
        || matches!(
            name.as_str(),
            "signature"
                | "expires"
                | "awsaccesskeyid"
                | "ossaccesskeyid"
                | "googleaccessid"
                | "key-pair-id"
        )
        || has_sig
            && matches!(
                name.as_str(),
                "sig"
                    | "se"
                    | "st"
                    | "sp"
                    | "sv"
                    | "sr"
                    | "spr"
                    | "skoid"
                    | "sktid"
                    | "skt"
                    | "ske"
                    | "sks"
                    | "skv"
            )
}

/// The host of a URL in lower case.
pub(crate) fn url_host(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(match url.host()? {
        // `example.com.` is the same host and must not get past a list of hosts.
        Host::Domain(name) => name.trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_ORIGIN: &str = "https://h.example";

    fn check(generation: ContractGeneration, url: &str, expected: Option<&str>) {
        let normaliser = UrlNormaliser::new(generation, Some(TEST_ORIGIN));
        assert_eq!(
            normaliser.normalise(url).as_deref(),
            expected,
            "{generation} {url}"
        );
    }

    #[test]
    fn the_own_origin_is_removed() {
        for generation in [
            ContractGeneration::G1,
            ContractGeneration::G3,
            ContractGeneration::Stable,
        ] {
            check(generation, "https://h.example/a.pdf", Some("/a.pdf"));
            check(
                generation,
                "https://h.example/a.pdf?x=1#f",
                Some("/a.pdf?x=1#f"),
            );
            check(generation, "/a.pdf", Some("/a.pdf"));
            check(generation, "https://h.example", None);
        }
        check(
            ContractGeneration::G5,
            "https://h.example/a.pdf",
            Some("https://h.example/a.pdf"),
        );
    }

    #[test]
    fn each_generation_accepts_its_own_schemes() {
        let data = "data:image/png;base64,AAAA";
        check(ContractGeneration::G1, data, Some(data));
        check(ContractGeneration::G2, data, Some(data));
        check(ContractGeneration::G3, data, None);
        check(ContractGeneration::G4, data, None);
        check(ContractGeneration::G5, data, None);
        check(
            ContractGeneration::G4,
            "wss://x.example/a",
            Some("wss://x.example/a"),
        );
        check(ContractGeneration::G5, "wss://x.example/a", None);
        check(
            ContractGeneration::G5,
            "HTTPS://x.example/a",
            Some("HTTPS://x.example/a"),
        );
        check(ContractGeneration::G4, "HTTPS://x.example/a", None);
        check(ContractGeneration::G5, "/a.pdf", None);
        for generation in ContractGeneration::ALL_GENERATIONS {
            for url in [
                "",
                "not-a-url",
                "ftp://x.example/a",
                "file:///etc/passwd",
                " https://x.example/a",
            ] {
                check(generation, url, None);
            }
        }
    }

    #[test]
    fn r_2_a_host_that_begins_like_the_origin_is_another_host() {
        for generation in [ContractGeneration::G1, ContractGeneration::Stable] {
            for url in [
                "https://h.example.evil/a.pdf",
                "https://h.example@evil.example/a.pdf",
                "https://h.example:8443/a.pdf",
                "http://h.example/a.pdf",
            ] {
                check(generation, url, Some(url));
            }
            check(generation, "https://H.EXAMPLE:443/a.pdf", Some("/a.pdf"));
        }
    }

    #[test]
    fn r_2_the_part_after_the_origin_is_checked_again() {
        check(
            ContractGeneration::G1,
            "https://h.example//evil.example/a",
            Some("https://h.example//evil.example/a"),
        );
        check(
            ContractGeneration::G1,
            "https://h.example/\\evil.example/a",
            Some("https://h.example/\\evil.example/a"),
        );
        check(ContractGeneration::G1, "https://h.example?x=1", None);
        check(ContractGeneration::G1, "//evil.example/a", None);
        check(ContractGeneration::G1, "/\\evil.example/a", None);
    }

    #[test]
    fn r_2_a_word_that_only_begins_like_a_scheme_is_not_a_url() {
        for url in [
            "httpfoo",
            "wsx",
            "http:",
            "https://",
            "http-a://b/c",
            "/a\nb",
        ] {
            check(ContractGeneration::G1, url, None);
            check(ContractGeneration::Stable, url, None);
        }
    }

    #[test]
    fn r_10_only_a_known_origin_makes_a_path_absolute() {
        let known = UrlNormaliser::new(ContractGeneration::Stable, Some("https://h.example/app/"));
        assert_eq!(
            known.absolute("/a.pdf").as_deref(),
            Some("https://h.example/a.pdf")
        );
        assert_eq!(known.absolute("//evil/a.pdf"), None);
        assert_eq!(known.absolute("wss://x.example/a"), None);
        let unknown = UrlNormaliser::new(ContractGeneration::Stable, None);
        assert_eq!(unknown.absolute("/a.pdf"), None);
        assert_eq!(
            unknown.absolute("http://x.example/a").as_deref(),
            Some("http://x.example/a")
        );
    }

    #[test]
    fn signatures_and_fragments_do_not_make_another_file() {
        let first = without_signature(
            "https://s.example/k?filename=a.pdf&X-Amz-Signature=1&X-Amz-Date=2#p",
        );
        assert_eq!(first, "https://s.example/k?filename=a.pdf");
        assert_eq!(
            without_signature("https://s.example/k?sig=1&se=2"),
            "https://s.example/k"
        );
        assert_eq!(
            without_signature("https://s.example/k?se=2"),
            "https://s.example/k?se=2"
        );
        assert_eq!(without_signature("/read?token=a"), "/read?token=a");
        assert_eq!(without_signature("/k"), "/k");
    }
}
