//! The rule for URLs of issuers: tokens, keys and client secrets are sent over TLS, or within one machine.

use url::{Host, Url};

/// The reason why a URL of an issuer cannot be used. The texts follow the name of its setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsecureUrl {
    /// The text is not a URL.
    #[error("is not a URL: {0}")]
    Syntax(url::ParseError),
    /// The URL has a fragment, which is never sent.
    #[error("has a fragment")]
    Fragment,
    /// The URL is neither `https` nor `http` on loopback.
    #[error("is not an https URL")]
    Scheme,
}

/// Parses a URL whose scheme is `https`, or `http` with a host on loopback.
///
/// # Errors
///
/// [`InsecureUrl`].
pub fn check_secure_url(text: &str) -> Result<Url, InsecureUrl> {
    let url = Url::parse(text).map_err(InsecureUrl::Syntax)?;
    let is_loopback = match url.host() {
        // Only this exact name counts: `localhost.example.org` can resolve to any address.
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        // RFC 8707 section 2 and RFC 6749 section 3.1: no fragment.
        "https" | "http" if url.fragment().is_some() => Err(InsecureUrl::Fragment),
        "https" => Ok(url),
        "http" if is_loopback => Ok(url),
        _ => Err(InsecureUrl::Scheme),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_urls_without_fragment_are_accepted() {
        for accepted in [
            "https://login.example.org/realms/a",
            "http://127.0.0.1:5556/dex",
            "http://[::1]:80/",
            "http://localhost/",
        ] {
            assert!(check_secure_url(accepted).is_ok(), "{accepted}");
        }
        for refused in [
            "http://login.example.org",
            "http://localhost.example.org",
            "https://login.example.org/#a",
            "ftp://127.0.0.1/",
            "login.example.org",
            "",
        ] {
            assert!(check_secure_url(refused).is_err(), "{refused}");
        }
    }
}
