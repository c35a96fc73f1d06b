//! The hosts from which a platform's files are fetched, and to which files and tokens are sent.
//!
//! It decides by the text of a URL and resolves no name.

use dray_http::url_authority;
use url::Url;

use crate::error::{ErrorKind, PlatformError};

/// An allow-list of hosts for URLs that a peer chose, such as the address of a file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHosts {
    authorities: Vec<String>,
    allow_http: bool,
}

impl FileHosts {
    /// Allows the hosts of the option `file_hosts`: `HOST`, or `HOST:PORT` for another port than that of the scheme.
    /// Subdomains are other hosts. URLs without TLS are allowed only with `allow_http`.
    pub fn new(file_hosts: &[String], allow_http: bool) -> Self {
        Self {
            authorities: file_hosts.to_vec(),
            allow_http,
        }
    }

    /// Allows the host of the API, too, because some servers send files from there. URLs without TLS are allowed if the
    /// operator chose an API without TLS.
    pub fn with_api(file_hosts: &[String], base_url: &Url) -> Self {
        let mut hosts = Self::new(file_hosts, base_url.scheme() == "http");
        hosts.authorities.extend(url_authority(base_url));
        hosts
    }

    /// Returns the parsed URL if its host and scheme are allowed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forbidden`] if they are not, or if `url` is not a URL.
    pub fn check(&self, url: &str) -> Result<Url, PlatformError> {
        let allowed = Url::parse(url).ok().filter(|url| {
            let is_listed = url_authority(url).is_some_and(|host| self.authorities.contains(&host));
            let has_scheme = url.scheme() == "https" || (self.allow_http && url.scheme() == "http");
            is_listed && has_scheme
        });
        allowed.ok_or_else(|| {
            PlatformError::new(ErrorKind::Forbidden, "the host is not in file_hosts")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_9_only_listed_hosts_with_their_ports_are_allowed() {
        let listed = ["files.example".to_owned(), "files.example:8443".to_owned()];
        let hosts = FileHosts::new(&listed, false);
        for (url, expected) in [
            ("https://files.example/a", true),
            ("https://files.example:443/a", true),
            ("https://files.example:8443/a", true),
            ("https://FILES.example/a", true),
            ("http://files.example/a", false),
            ("ftp://files.example/a", false),
            ("https://files.example:444/a", false),
            ("https://cdn.files.example/a", false),
            ("https://files.example.evil.example/a", false),
            ("https://evil.example/?files.example", false),
            ("https://files.example@evil.example/", false),
            ("file:///etc/passwd", false),
            ("not a URL", false),
        ] {
            let checked = hosts.check(url).map_err(|error| error.kind());
            assert_eq!(checked.is_ok(), expected, "{url}");
            assert!(expected || checked == Err(ErrorKind::Forbidden));
        }
    }

    #[test]
    fn r_9_the_host_of_the_api_is_allowed_and_decides_whether_tls_is_required() {
        let with_api = |base: &str| FileHosts::with_api(&[], &Url::parse(base).unwrap());
        let (plain, encrypted) = (
            with_api("http://127.0.0.1:8080/api"),
            with_api("https://api.example"),
        );
        assert!(plain.check("http://127.0.0.1:8080/file").is_ok());
        assert!(plain.check("http://127.0.0.1:8081/file").is_err());
        assert!(plain.check("ftp://127.0.0.1:8080/file").is_err());
        assert!(encrypted.check("https://api.example/file").is_ok());
        assert!(encrypted.check("http://api.example/file").is_err());
    }
}
