//! Reads a URL that has only one reading (section 5), and refuses every other one.
//!
//! If two widely used parsers could see two different hosts in a text, the text is refused. So a splitter of this crate
//! runs on the raw text first, without trimming anything, and its result must agree with the `url` crate and with
//! `http::Uri` (U-11). Whether the host may be fetched is decided elsewhere; [`names`] holds the hosts that never are.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Url;

use crate::reason::Code;

mod agree;
mod authority;
mod join;
mod name;
pub mod names;
mod proxied;

pub(crate) use authority::parse_port;
pub use name::CanonicalName;

/// Longest URL in bytes, as written and in canonical form (U-1).
pub const MAX_URL_BYTES: usize = 8192;

/// A URL that can be read in one way only. It is passed on instead of text and has no user info and no fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CanonicalUrl {
    https: bool,
    host: Host,
    root_dot: bool,
    port: u16,
    path_and_query: String,
}

/// The host of a URL, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A domain name; blocked names and single labels are still possible here.
    Name(CanonicalName),
    /// A literal address; never an IPv4-mapped one, which becomes its IPv4 address (8.3).
    Ip(IpAddr),
}

impl CanonicalUrl {
    /// Reads an absolute URL that an agent wrote or a redirect named.
    ///
    /// # Errors
    /// `invalid_url`, `unsupported_scheme` (also checked before the host is looked at, U-13), `url_credentials` or
    /// `ambiguous_host`.
    pub fn parse(text: &str) -> Result<Self, Code> {
        let url = Self::read(text)?;
        let canonical = url.to_string();
        // U-11: writing it down and reading it again changes nothing.
        // The second reading checks the length again: percent-encoding can triple a text (U-1, U-12).
        if agree::with_http(&url, &canonical) && Self::read(&canonical)? == url {
            Ok(url)
        } else {
            Err(Code::InvalidUrl)
        }
    }

    fn read(text: &str) -> Result<Self, Code> {
        // U-2 is checked before any parser, because the WHATWG parser strips tabs, line ends and outer blanks without
        // reporting it.
        check_text(text)?;
        // U-13: the `url` crate keeps the host of other schemes as opaque text, also `gopher://127.0.0.1`.
        let (https, rest) = split_scheme(text)?;
        let authority = authority::UrlAuthority::split(rest)?;
        let (host, root_dot) = authority.host()?;
        let port = authority.port.unwrap_or(if https { 443 } else { 80 });
        let parsed = Url::parse(text).map_err(|_| Code::InvalidUrl)?;
        // The fragment is left out from here on (U-10). Dot segments are removed, and percent-encoding stays (U-12).
        let mut path_and_query = parsed.path().to_owned();
        if let Some(query) = parsed.query() {
            path_and_query.push('?');
            path_and_query.push_str(query);
        }
        let url = Self {
            https,
            host,
            root_dot,
            port,
            path_and_query,
        };
        if agree::with_whatwg(&url, &parsed) {
            Ok(url)
        } else {
            Err(Code::InvalidUrl)
        }
    }

    /// Whether the scheme is https; the only other one is http.
    pub const fn https(&self) -> bool {
        self.https
    }

    /// `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// The canonical host; not yet judged.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Whether the host was written with a root dot. Such a host matches no pattern (H-3).
    pub const fn root_dot(&self) -> bool {
        self.root_dot
    }

    /// The port as written, or 80 or 443 by the scheme (U-9).
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Path and query, percent-encoded; begins with `/`.
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }

    /// The path without the query; begins with `/`.
    pub fn path(&self) -> &str {
        self.path_and_query
            .split_once('?')
            .map_or(self.path_and_query.as_str(), |(path, _)| path)
    }

    /// The value of the `Host` field: canonical host without root dot, the port unless it is the scheme's default.
    pub fn host_header(&self) -> String {
        // RFC 9112 3.2.
        format!("{}{}", self.host, self.port_suffix())
    }

    /// Scheme, host, port and path; no query. For replies and audit events (B-7).
    pub fn without_query(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.host_header(), self.path())
    }

    fn port_suffix(&self) -> String {
        let default = if self.https { 443 } else { 80 };
        if self.port == default {
            String::new()
        } else {
            format!(":{}", self.port)
        }
    }
}

impl FromStr for CanonicalUrl {
    type Err = Code;

    fn from_str(text: &str) -> Result<Self, Code> {
        Self::parse(text)
    }
}

/// The canonical text, root dot and query included. Not for logs (S-5).
impl fmt::Display for CanonicalUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = if self.root_dot { "." } else { "" };
        let Self { host, .. } = self;
        let port = self.port_suffix();
        let path_and_query = &self.path_and_query;
        write!(f, "{}://{host}{root}{port}{path_and_query}", self.scheme())
    }
}

/// The canonical host without root dot, IPv6 in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Ip(IpAddr::V4(address)) => address.fmt(f),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Checks length and characters (U-1, U-2) of the text exactly as received.
fn check_text(text: &str) -> Result<(), Code> {
    if text.is_empty() || text.len() > MAX_URL_BYTES || text.chars().any(is_forbidden) {
        return Err(Code::InvalidUrl);
    }
    Ok(())
}

/// Characters that some parser strips, trims or treats as a separator (U-2).
pub(crate) const fn is_forbidden(character: char) -> bool {
    // The backslash is refused: in `http://a\@127.0.0.1/`, the WHATWG parser sees the host `a`, and curl sees
    // `127.0.0.1`.
    matches!(
        character,
        '\0'..=' ' | '\\' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffd}'
    )
}

/// Splits `http` or `https` and exactly `://` from the text (U-3). Returns whether it was `https`, and the rest.
fn split_scheme(text: &str) -> Result<(bool, &str), Code> {
    let (scheme, rest) = join::split_reference(text).ok_or(Code::InvalidUrl)?;
    let https = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(Code::UnsupportedScheme),
    };
    // WHATWG would add the slashes that `http:host` and `http:/host` lack.
    let rest = rest.strip_prefix("//").ok_or(Code::InvalidUrl)?;
    Ok((https, rest))
}

#[cfg(test)]
mod tests;
