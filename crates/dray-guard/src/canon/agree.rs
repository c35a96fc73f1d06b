//! The agreement check (U-11): three parsers must see the same scheme, host and port.

use std::net::IpAddr;

use url::Url;

use super::{CanonicalUrl, Host};

/// Whether the WHATWG parser reads the text in the same way.
pub(super) fn with_whatwg(url: &CanonicalUrl, parsed: &Url) -> bool {
    let same_host = match (parsed.host(), &url.host) {
        (Some(url::Host::Domain(domain)), Host::Name(name)) => {
            // `strip_suffix` of an empty text always succeeds, so this also compares a host without root dot.
            let root = if url.root_dot { "." } else { "" };
            domain.strip_suffix(root) == Some(name.as_str())
        }
        (Some(url::Host::Ipv4(address)), Host::Ip(ours)) => IpAddr::V4(address) == *ours,
        (Some(url::Host::Ipv6(address)), Host::Ip(ours)) => {
            // The WHATWG parser keeps IPv4-mapped addresses as IPv6; ours are IPv4 already (8.3).
            IpAddr::V6(address).to_canonical() == *ours
        }
        _ => false,
    };
    same_host
        && parsed.scheme() == url.scheme()
        && parsed.port_or_known_default() == Some(url.port)
        // U-4 refused these in our own reading; the other parser must not see any either (U-11).
        && parsed.username().is_empty()
        && parsed.password().is_none()
        && parsed.path().starts_with('/')
}

/// Whether `http::Uri` reads the canonical text as the URL that it was written from.
pub(super) fn with_http(url: &CanonicalUrl, canonical: &str) -> bool {
    let Ok(uri) = canonical.parse::<http::Uri>() else {
        return false;
    };
    let root = if url.root_dot { "." } else { "" };
    uri.scheme_str() == Some(url.scheme())
        // `http::Uri` keeps the brackets of an IPv6 host, as our canonical text does.
        && uri.host() == Some(format!("{}{root}", url.host).as_str())
        && uri.port_u16().unwrap_or(if url.https { 443 } else { 80 }) == url.port
        && uri.path_and_query().map(http::uri::PathAndQuery::as_str) == Some(url.path_and_query())
}
