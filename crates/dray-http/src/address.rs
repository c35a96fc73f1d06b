//! Base URLs of configurations, and the part of a URL that identifies the receiver of a request.

use reqwest::Url;

/// Host, with its port if it is not the default port of the scheme. `None` for a URL without a host.
pub fn url_authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(match url.port() {
        // The `url` crate drops a default port, so two spellings of one peer compare equal.
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// The rest of a sentence about a setting that [`parse_base_url`] refuses.
pub const BASE_URL_RULE: &str = "must be an http or https URL without user, query and fragment";

/// Parses a configured URL to which paths are appended; `None` for a URL that breaks [`BASE_URL_RULE`].
pub fn parse_base_url(text: &str) -> Option<Url> {
    // The parser would remove white space at both ends and escape it elsewhere; a setting with it is a mistake.
    if text.contains(char::is_whitespace) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let is_base = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        // Credentials in a URL would end up in logs.
        && url.username().is_empty()
        && url.password().is_none()
        // A query or a fragment would be in the middle of the requested URL.
        && url.query().is_none()
        && url.fragment().is_none();
    is_base.then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_http_and_has_nothing_that_an_appended_path_would_displace() {
        for text in [
            "https://app.daytona.io/api",
            "http://[::1]:80/",
            "HTTPS://h",
        ] {
            assert!(parse_base_url(text).is_some(), "{text}");
        }
        for text in [
            "",
            "host",
            "ftp://host",
            "https://",
            "http://user@host",
            "http://:word@host",
            "http://host?a=b",
            "http://host/#part",
            " http://host",
            "http://host/a b",
            "data:text/plain,a",
        ] {
            assert!(parse_base_url(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_port_is_named_where_it_is_not_the_schemes_own() {
        for (url, expected) in [
            ("https://Files.Example/a?b", Some("files.example")),
            ("https://files.example:443/", Some("files.example")),
            ("https://files.example:8443/", Some("files.example:8443")),
            ("http://user:word@[::1]:80/", Some("[::1]")),
            ("data:,a", None),
        ] {
            let authority = url_authority(&Url::parse(url).unwrap());
            assert_eq!(authority.as_deref(), expected, "{url}");
        }
    }
}
