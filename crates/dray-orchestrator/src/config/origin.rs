//! Checks of the URLs of the section by their text. No name is resolved.

/// Whether a text is an origin as browsers write it. `*` and `null` are refused, because they allow any page.
pub(super) fn is_origin(origin: &str) -> bool {
    let Ok(url) = origin.parse::<url::Url>() else {
        return false;
    };
    matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == origin
}

/// Whether a URL leads to this machine.
pub(super) fn is_loopback_url(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|url| {
        let host = url.host().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || address
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    })
}
