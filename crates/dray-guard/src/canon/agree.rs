//! The agreement check (U-11): three parsers must see the same scheme, host and port.

use std::net::IpAddr;

use url::Url;

use super::{CanonicalUrl, Host};

/// Whether the WHATWG parser saw in the same text what we saw.
pub(super) fn with_whatwg(url: &CanonicalUrl, parsed: &Url) -> bool {
    let same_host = match (parsed.host(), &url.host) {
        (Some(url::Host::Domain(domain)), Host::Name(name)) => {
            let root = if url.root_dot { "." } else { "" };
            domain.strip_suffix(root) == Some(name.as_str())
        }
        (Some(url::Host::Ipv4(address)), Host::Ip(ours)) => IpAddr::V4(address) == *ours,
        (Some(url::Host::Ipv6(address)), Host::Ip(ours)) => {
            IpAddr::V6(address).to_canonical() == *ours
        }
        _ => false,
    };
    same_host
        && parsed.scheme() == url.scheme()
        && parsed.port_or_known_default() == Some(url.port)
        && parsed.username().is_empty()
        && parsed.password().is_none()
        && parsed.path().starts_with('/')
}

/// Whether `http::Uri` sees in the canonical text what we wrote there.
pub(super) fn with_http(url: &CanonicalUrl, canonical: &str) -> bool {
    let Ok(uri) = canonical.parse::<http::Uri>() else {
        return false;
    };
    let root = if url.root_dot { "." } else { "" };
    uri.scheme_str() == Some(url.scheme())
        && uri.host() == Some(format!("{}{root}", url.host).as_str())
        && uri.port_u16().unwrap_or(if url.https { 443 } else { 80 }) == url.port
        && uri.path_and_query().map(http::uri::PathAndQuery::as_str) == Some(url.path_and_query())
}
