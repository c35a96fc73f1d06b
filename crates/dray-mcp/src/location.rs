//! Parses the location of a file, as an agent writes it.

use dray_presentation::name;
use dray_types::{Fault, Sha256Digest};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::failure;

/// Longest location, in bytes.
const MAX_LOCATION_BYTES: usize = 8_192;
/// Prefix of the URI of a stored file.
const ARTIFACT_PREFIX: &str = "dray://artifact/";
/// Prefix of the URI of a file that is uploaded through a ticket.
const TICKET_PREFIX: &str = "dray://ticket/";
/// Prefix of the URI of a file in a sandbox.
pub(crate) const SANDBOX_PREFIX: &str = "dray://sandbox/";
/// Prefix of the URI of a receipt.
pub(crate) const RECEIPT_PREFIX: &str = "dray://receipt/";
/// Prefix of a path in the sandbox of the session.
pub(crate) const SANDBOX_PATH_PREFIX: &str = "sandbox:";

/// A place that a tool can read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A path below the local directory, as written.
    Local(String),
    /// An outside URL, http or https.
    Url(String),
    /// A stored file.
    Artifact(Sha256Digest),
    /// A file that was uploaded through a ticket of the session, by the id of the ticket.
    Ticket(Sha256Digest),
    /// A path in the sandbox of the session.
    Sandbox(String),
}

impl Location {
    /// Parses a location. `session` is the only session whose sandbox may be named.
    pub(crate) fn parse(text: &str, session: &str) -> Result<Self, Fault> {
        if text.is_empty() || text.len() > MAX_LOCATION_BYTES || text.contains('\0') {
            return Err(invalid_location(text));
        }
        if let Some(digest) = text.strip_prefix(ARTIFACT_PREFIX) {
            let digest = digest.parse().map_err(|_| invalid_location(text))?;
            return Ok(Self::Artifact(digest));
        }
        if let Some(id) = text.strip_prefix(TICKET_PREFIX) {
            let id = id.parse().map_err(|_| invalid_location(text))?;
            return Ok(Self::Ticket(id));
        }
        if let Some(rest) = text.strip_prefix(SANDBOX_PREFIX) {
            return Self::parse_sandbox(text, rest, session);
        }
        if let Some(path) = text.strip_prefix(SANDBOX_PATH_PREFIX) {
            let path = if path.is_empty() { "." } else { path };
            return Ok(Self::Sandbox(path.to_owned()));
        }
        match text.split_once("://") {
            Some((scheme, _))
                if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") =>
            {
                Ok(Self::Url(text.to_owned()))
            }
            // This includes `file://`, because a URL must not be another spelling of a path.
            Some((scheme, _)) if is_scheme(scheme) => Err(invalid_location(text)),
            _ => Ok(Self::Local(text.to_owned())),
        }
    }

    fn parse_sandbox(text: &str, rest: &str, session: &str) -> Result<Self, Fault> {
        let (session_name, path) = rest.split_once('/').ok_or_else(|| invalid_location(text))?;
        let decode = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8().ok()?;
            (!decoded.contains('\0')).then(|| decoded.into_owned())
        };
        let (session_name, path) = decode(session_name)
            .zip(decode(path))
            .ok_or_else(|| invalid_location(text))?;
        // The same message as for a session that does not exist, so that no caller can detect other sessions.
        if session_name != session {
            return Err(Fault::new(
                dray_types::FaultCode::NotFound,
                "The session is not known here.",
            )
            .detail("session_not_found")
            .advice("Write `sandbox:PATH` for a file in the sandbox of this session."));
        }
        let path = if path.is_empty() {
            ".".to_owned()
        } else {
            path
        };
        Ok(Self::Sandbox(path))
    }
}

/// The URI of a stored file.
pub(crate) fn artifact_uri(sha256: Sha256Digest) -> String {
    format!("{ARTIFACT_PREFIX}{sha256}")
}

/// The URI of a file that is uploaded through the ticket with this id.
pub(crate) fn ticket_uri(id: &str) -> String {
    format!("{TICKET_PREFIX}{id}")
}

/// The file name at the end of a URL's path; `None` where the path ends with `/`.
pub(crate) fn path_name_of_url(url: &str) -> Option<String> {
    let parsed = Url::parse(url).ok()?;
    let last = parsed.path_segments()?.next_back()?;
    // The name is cleaned after it was decoded, because `%2F` is a separator in a name.
    let decoded: Vec<u8> = percent_decode_str(last).collect();
    (!decoded.is_empty()).then(|| name::clean_name(decoded))
}

/// A file name for the page at the root of a host, with the usual extension of its media type.
pub(crate) fn host_name_of_url(url: &str, media_type: &str) -> String {
    let host = Url::parse(url).ok();
    let host = host.as_ref().and_then(Url::host_str).unwrap_or_default();
    match dray_media_type::usual_extension(media_type) {
        Some(extension) => name::clean_name(format!("{host}.{extension}")),
        None => name::clean_name(host),
    }
}

fn is_scheme(text: &str) -> bool {
    // RFC 3986 section 3.1.
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn invalid_location(text: &str) -> Fault {
    failure::invalid(
        format!("`{}` does not name a file.", name::shown_text(text, 200)),
        "Give a path, an http or https URL, `sandbox:PATH`, or a handle `dray://artifact/SHA256`.",
    )
    .detail("location_invalid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, Fault> {
        Location::parse(text, "s1")
    }

    #[test]
    fn a_file_from_the_web_is_named_by_its_path_or_by_its_host() {
        for (url, name) in [
            ("https://a.example/docs/page.html", "page.html"),
            ("https://a.example/page.html?x=/y#z", "page.html"),
            ("https://a.example/r%C3%A9sum%C3%A9%202.pdf", "résumé 2.pdf"),
            ("https://a.example/..%2F..%2Fetc%2Fpasswd", "passwd"),
            ("https://a.example/a%00b%0Ac.txt", "abc.txt"),
            ("https://a.example/%FF.txt", "_.txt"),
        ] {
            assert_eq!(path_name_of_url(url).as_deref(), Some(name), "{url}");
        }
        for url in [
            "https://a.example/",
            "https://a.example",
            "https://a.example/docs/",
        ] {
            assert_eq!(path_name_of_url(url), None, "{url}");
            assert_eq!(host_name_of_url(url, "text/html"), "a.example.html");
        }
        assert_eq!(
            host_name_of_url("https://a.example/", "x/unknown"),
            "a.example"
        );
    }

    #[test]
    fn each_form_is_recognised() {
        let digest = Sha256Digest::of(b"x");
        let local = |text: &str| Ok(Location::Local(text.to_owned()));
        let sandbox = |text: &str| Ok(Location::Sandbox(text.to_owned()));
        assert_eq!(parse("a/b.txt"), local("a/b.txt"));
        // Percent signs in paths are characters: a second decoding would bypass the checks of the first.
        assert_eq!(parse("%2e%2e/x"), local("%2e%2e/x"));
        assert_eq!(parse("a:b.txt"), local("a:b.txt"));
        assert_eq!(
            parse("HTTPS://a.example/x"),
            Ok(Location::Url("HTTPS://a.example/x".to_owned()))
        );
        assert_eq!(parse(&artifact_uri(digest)), Ok(Location::Artifact(digest)));
        assert_eq!(
            parse(&ticket_uri(&digest.to_hex())),
            Ok(Location::Ticket(digest))
        );
        assert_eq!(parse("sandbox:out/a.txt"), sandbox("out/a.txt"));
        assert_eq!(parse("dray://sandbox/s1//w/a%20b"), sandbox("/w/a b"));
        assert_eq!(parse("dray://sandbox/s1/"), sandbox("."));
    }

    #[test]
    fn other_schemes_and_broken_handles_are_refused() {
        let long = "x".repeat(MAX_LOCATION_BYTES + 1);
        for text in [
            "",
            "a\0b",
            "file:///etc/passwd",
            "FILE:///etc/passwd",
            "file://localhost/etc/passwd",
            "file+x:///etc/passwd",
            "ftp://a.example/x",
            "dray://artifact/12",
            "dray://sandbox/s1",
            "dray://sandbox/s1/a%00b",
            "dray://receipt/1",
            long.as_str(),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!(fault.detail, "location_invalid", "{text}");
        }
    }

    #[test]
    fn the_sandbox_of_another_session_is_not_found() {
        for text in ["dray://sandbox/s2/a", "dray://sandbox/s1%2f..%2fs2/a"] {
            assert_eq!(parse(text).unwrap_err().detail, "session_not_found");
        }
    }
}
