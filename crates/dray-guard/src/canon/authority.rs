//! Host and port of the raw text (U-4 to U-9), without help from any URL library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::reason::Code;

use super::Host;
use super::name::{self, CanonicalName};

/// The part between `://` and the first `/`, `?` or `#`, split.
#[derive(Debug)]
pub(super) struct UrlAuthority<'a> {
    host: RawHost<'a>,
    /// The port as written; `None` without a colon.
    pub(super) port: Option<u16>,
}

#[derive(Debug)]
enum RawHost<'a> {
    Bracketed(&'a str),
    Plain(&'a str),
}

impl<'a> UrlAuthority<'a> {
    /// Splits the text that follows `://`; path, query and fragment are left to the URL parser.
    pub(super) fn split(rest: &'a str) -> Result<Self, Code> {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // U-4 holds even for an empty user info: parsers differ on which `@` is the border.
        if authority.contains('@') {
            return Err(Code::UrlCredentials);
        }
        // Percent-encoded hosts decode differently across parsers (CVE-2022-27780 in curl).
        if authority.is_empty() || authority.contains('%') {
            return Err(Code::InvalidUrl);
        }
        let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
            let (address, after) = inner.split_once(']').ok_or(Code::InvalidUrl)?;
            let port = match after {
                "" => None,
                _ => Some(after.strip_prefix(':').ok_or(Code::InvalidUrl)?),
            };
            (RawHost::Bracketed(address), port)
        } else {
            // The split is at the first colon: a second one becomes part of the port and is refused there.
            match authority.split_once(':') {
                Some((host, port)) => (RawHost::Plain(host), Some(port)),
                None => (RawHost::Plain(authority), None),
            }
        };
        Ok(Self {
            host,
            port: port.map(parse_port).transpose()?,
        })
    }

    /// The canonical host, and whether it was written with a root dot.
    pub(super) fn host(&self) -> Result<(Host, bool), Code> {
        match self.host {
            RawHost::Bracketed(text) => {
                // U-5. The standard parser takes no zone, no IPvFuture and no bare IPv4 address.
                let address: Ipv6Addr = text.parse().map_err(|_| Code::InvalidUrl)?;
                Ok((Host::Ip(IpAddr::V6(address).to_canonical()), false))
            }
            RawHost::Plain(text) => plain_host(text),
        }
    }
}

/// Reads a host without brackets: an IPv4 address in its printed form, or a name (U-6 to U-8).
fn plain_host(text: &str) -> Result<(Host, bool), Code> {
    // The text is mapped first: full-width digits become an address, which must then be refused as an address.
    let mapped = name::map_uts46(text)?;
    if is_address_like(&mapped) {
        // The standard parser takes four decimal octets without leading zeros: the printed form and nothing else.
        let address: Ipv4Addr = text.parse().map_err(|_| Code::AmbiguousHost)?;
        return Ok((Host::Ip(address.into()), false));
    }
    let (name, root_dot) = CanonicalName::from_mapped(&mapped)?;
    Ok((Host::Name(name), root_dot))
}

/// Whether some parser would read the host as an IPv4 address because its last non-empty label is a number.
fn is_address_like(host: &str) -> bool {
    // The last label is not enough: `8.8.8.8.` has an empty one, and WHATWG parsers read it as an address.
    let last = host
        .rsplit('.')
        .find(|label| !label.is_empty())
        .unwrap_or_default();
    !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .get(..2)
            .is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"))
}

/// Reads `[1-9][0-9]{0,4}` up to 65535 (U-9).
pub(crate) fn parse_port(text: &str) -> Result<u16, Code> {
    // `parse` alone accepts `+80` and `080`.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    match text.parse() {
        Ok(port) if is_plain => Ok(port),
        _ => Err(Code::InvalidUrl),
    }
}
