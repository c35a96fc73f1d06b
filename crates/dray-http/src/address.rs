//! The part of a URL that identifies the receiver of a request.

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

#[cfg(test)]
mod tests {
    use super::*;

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
