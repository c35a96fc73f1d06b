//! Targets of a forward proxy: the authority of `CONNECT`, the `Host` field beside a target, and the server name of a
//! TLS handshake inside a tunnel.
//!
//! A target is read by the rules of a URL (section 5), so a proxied connection and a fetch cannot see two different
//! hosts in one text.

use super::{CanonicalUrl, Host};
use crate::reason::Code;

impl CanonicalUrl {
    /// Reads `host:port`, the target of `CONNECT` (RFC 9110, section 9.3.6). `https` is whether the tunnel has to carry
    /// TLS.
    ///
    /// # Errors
    /// Those of [`CanonicalUrl::parse`]; `invalid_url` also for a missing port and for anything that is not an
    /// authority.
    pub fn of_authority(authority: &str, https: bool) -> Result<Self, Code> {
        // These end an authority, so the text after them would silently become a path.
        if authority.contains(['/', '?', '#']) {
            return Err(Code::InvalidUrl);
        }
        let scheme = if https { "https" } else { "http" };
        let url = Self::parse(&format!("{scheme}://{authority}/"))?;
        // The port of `CONNECT` has no default. Without one, the last colon is missing or inside the brackets.
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        if has_port {
            Ok(url)
        } else {
            Err(Code::InvalidUrl)
        }
    }

    /// Returns whether the value of a `Host` field names the host and the port of this URL. A field without a port
    /// names the port of the URL's scheme (RFC 9110, section 7.2).
    pub fn is_host_field(&self, field: &str) -> bool {
        if field.contains(['/', '?', '#']) {
            return false;
        }
        Self::parse(&format!("{}://{field}/", self.scheme()))
            .is_ok_and(|named| named.host == self.host && named.port == self.port)
    }
}

impl Host {
    /// Returns whether the server name of a TLS handshake fits this host (RFC 6066, section 3). A name needs exactly
    /// itself, in any case; an address needs a handshake without a name, since addresses are not allowed there.
    pub fn fits_server_name(&self, server_name: Option<&str>) -> bool {
        match (self, server_name) {
            // A root dot in the server name is not allowed either, so it does not fit.
            (Self::Name(name), Some(server_name)) => {
                server_name.eq_ignore_ascii_case(name.as_str())
            }
            (Self::Ip(_), None) => true,
            (Self::Name(_), None) | (Self::Ip(_), Some(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(text: &str) -> Result<String, Code> {
        CanonicalUrl::of_authority(text, true).map(|url| format!("{} {}", url.host(), url.port()))
    }

    #[test]
    fn u_9_an_authority_is_a_host_with_a_port() {
        for (text, expected) in [
            ("files.example.org:443", "files.example.org 443"),
            ("Files.Example.ORG:8443", "files.example.org 8443"),
            ("8.8.8.8:443", "8.8.8.8 443"),
            ("[2606:4700::1111]:443", "[2606:4700::1111] 443"),
            ("[::ffff:127.0.0.1]:443", "127.0.0.1 443"),
        ] {
            assert_eq!(authority(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn u_4_an_authority_has_one_reading_or_is_refused() {
        for (text, code) in [
            ("", Code::InvalidUrl),
            ("files.example.org", Code::InvalidUrl),
            ("files.example.org:", Code::InvalidUrl),
            ("files.example.org:0443", Code::InvalidUrl),
            ("files.example.org:443:443", Code::InvalidUrl),
            ("files.example.org:443/", Code::InvalidUrl),
            ("files.example.org:443?x", Code::InvalidUrl),
            ("files.example.org:443#x", Code::InvalidUrl),
            ("files.example.org/:443", Code::InvalidUrl),
            ("http://files.example.org:443", Code::InvalidUrl),
            (" files.example.org:443", Code::InvalidUrl),
            ("[::1]", Code::InvalidUrl),
            ("[::1%25lo]:443", Code::InvalidUrl),
            ("::1:443", Code::InvalidUrl),
            ("%31%32%37.0.0.1:443", Code::InvalidUrl),
            ("a\\@127.0.0.1:443", Code::InvalidUrl),
            ("user@files.example.org:443", Code::UrlCredentials),
            ("@files.example.org:443", Code::UrlCredentials),
            ("127.1:443", Code::AmbiguousHost),
            ("2130706433:443", Code::AmbiguousHost),
            ("0x7f.0.0.1:443", Code::AmbiguousHost),
            ("0177.0.0.1:443", Code::AmbiguousHost),
        ] {
            assert_eq!(authority(text).unwrap_err(), code, "{text}");
        }
    }

    #[test]
    fn a_host_field_must_name_the_target() {
        let check = |text: &str, field: &str| {
            let url = CanonicalUrl::of_authority(text, true).unwrap();
            url.is_host_field(field)
        };
        assert!(check("files.example.org:443", "files.example.org:443"));
        assert!(check("files.example.org:443", "FILES.example.org"));
        assert!(!check("files.example.org:8443", "files.example.org"));
        assert!(check("[::1]:443", "[::1]:443"));
        for field in [
            "",
            "other.example.org",
            "files.example.org:80",
            "files.example.org, other.example.org",
            "files.example.org:443/x",
            "user@files.example.org:443",
        ] {
            assert!(!check("files.example.org:443", field), "{field:?}");
        }
        let plain = CanonicalUrl::parse("http://files.example.org/").unwrap();
        assert!(plain.is_host_field("files.example.org"));
        assert!(plain.is_host_field("files.example.org:80"));
        assert!(!plain.is_host_field("files.example.org:443"));
    }

    #[test]
    fn t_5_a_server_name_fits_only_its_own_host() {
        let name = CanonicalUrl::parse("https://files.example.org/").unwrap();
        let address = CanonicalUrl::parse("https://8.8.8.8/").unwrap();
        for (host, server_name, fits) in [
            (name.host(), Some("files.example.org"), true),
            (name.host(), Some("FILES.example.org"), true),
            (name.host(), Some("files.example.org."), false),
            (name.host(), Some("example.org"), false),
            (name.host(), Some("x.files.example.org"), false),
            (name.host(), Some(""), false),
            (name.host(), None, false),
            (address.host(), None, true),
            (address.host(), Some("8.8.8.8"), false),
            (address.host(), Some("files.example.org"), false),
        ] {
            assert_eq!(host.fits_server_name(server_name), fits, "{server_name:?}");
        }
    }
}
