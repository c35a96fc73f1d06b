//! A DNS server: its address, its transport, and its text in the configuration.
//!
//! An encrypted server is always named by its address, so no name is looked up first. Its certificate must have the
//! name after `#`, as in `resolved.conf`, or without one the address.

use std::fmt;
use std::net::SocketAddr;

use dray_guard::Host;
use http::uri::PathAndQuery;

/// Port of DNS over TLS (RFC 7858, section 3.1).
const TLS_PORT: u16 = 853;
/// Port of DNS over HTTPS.
const HTTPS_PORT: u16 = 443;
/// Path of DNS over HTTPS when the configuration has none, as in the examples of RFC 8484.
const DEFAULT_PATH: &str = "/dns-query";

/// A DNS server and the transport to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    address: SocketAddr,
    transport: DnsTransport,
}

/// How queries are sent to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DnsTransport {
    /// UDP, with TCP for what does not fit.
    Plain,
    /// DNS over TLS (RFC 7858), with a certificate for this host.
    Tls(Host),
    /// DNS over HTTPS (RFC 8484), with a certificate for this host.
    Https(Host, PathAndQuery),
}

impl From<SocketAddr> for NameServer {
    /// A server of plain DNS.
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            transport: DnsTransport::Plain,
        }
    }
}

impl NameServer {
    /// The address that is connected to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether queries and responses are encrypted and the server is authenticated.
    pub fn is_encrypted(&self) -> bool {
        self.transport != DnsTransport::Plain
    }

    /// Whether no peer on the path can change the AD bit of the server (RFC 4035, section 4.9.3): the channel is
    /// authenticated, or does not leave this machine.
    pub fn is_trusted(&self) -> bool {
        self.is_encrypted() || self.address.ip().to_canonical().is_loopback()
    }

    pub(super) fn transport(&self) -> &DnsTransport {
        &self.transport
    }

    /// Reads `tls://address[:port][#name]` or `https://address[:port][/path][#name]`.
    pub(super) fn parse_encrypted(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (rest, name) = match rest.split_once('#') {
            Some((rest, name)) => (rest, Some(name)),
            None => (rest, None),
        };
        let (authority, path) = match rest.find('/') {
            Some(index) => rest.split_at_checked(index)?,
            None => (rest, ""),
        };
        let default_port = match scheme {
            "tls" => TLS_PORT,
            "https" => HTTPS_PORT,
            _ => return None,
        };
        let address = parse_authority(authority, default_port)?;
        let host = match name {
            None => Host::Ip(address.ip()),
            Some(name) => name
                .parse()
                .map(Host::Ip)
                .or_else(|_| name.parse().map(Host::Name))
                .ok()?,
        };
        // A URI template (RFC 8484, section 4.1) is for GET; sent as it is, its braces would be part of the path.
        if path.contains(['{', '}']) {
            return None;
        }
        let transport = match (scheme, path) {
            ("tls", "") => DnsTransport::Tls(host),
            // A path of DNS over TLS would have no meaning.
            ("tls", _) => return None,
            (_, "" | "/") => DnsTransport::Https(host, PathAndQuery::from_static(DEFAULT_PATH)),
            (_, path) => DnsTransport::Https(host, path.parse().ok()?),
        };
        Some(Self { address, transport })
    }
}

/// Reads an address with an optional port; IPv6 addresses are in brackets, as in every URL.
fn parse_authority(text: &str, default_port: u16) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let ip = match text.strip_prefix('[') {
        Some(inside) => inside
            .strip_suffix(']')?
            .parse::<std::net::Ipv6Addr>()
            .ok()?
            .into(),
        None => text.parse::<std::net::Ipv4Addr>().ok()?.into(),
    };
    Some(SocketAddr::new(ip, default_port))
}

impl fmt::Display for NameServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.transport {
            DnsTransport::Plain => self.address.fmt(f),
            DnsTransport::Tls(_) => write!(f, "tls://{}", self.address),
            DnsTransport::Https(_, path) => write!(f, "https://{}{path}", self.address),
        }
    }
}
