//! Selects the DNS servers (D-2): those of the configuration, or the `nameserver` lines of the system's file.
//!
//! No default server exists. Search lists and options of the file are not read (D-1).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;

use super::name_server::NameServer;

const DNS_PORT: u16 = 53;

/// No DNS server could be found.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// The system's file cannot be read.
    #[error("the DNS servers cannot be read from {path}; set EXTERNAL_URL_FETCH_DNS_SERVERS")]
    Unreadable {
        /// Path of the file that was read.
        path: String,
        /// Error of the system; the message leaves it to the chain of sources.
        #[source]
        source: io::Error,
    },
    /// The system's file has no `nameserver` line with a usable address.
    #[error("{0} has no usable nameserver line; set EXTERNAL_URL_FETCH_DNS_SERVERS")]
    None(String),
    /// An item of the configuration is not a server.
    #[error(
        "`{0}` is not a DNS server; write an address, an address with a port such as 192.0.2.1:53, \
         tls://192.0.2.1#dns.example or https://192.0.2.1/dns-query#dns.example"
    )]
    Invalid(String),
    /// Encrypted and plain servers are configured together.
    #[error(
        "encrypted and plain DNS servers cannot be used together: a slow encrypted server would send names in clear text \
         to a plain one"
    )]
    Mixed,
}

/// Reads DNS servers: `address` or `address:port` for plain DNS, `tls://address#name` for DNS over TLS, and
/// `https://address/path#name` for DNS over HTTPS. IPv6 addresses with a port need brackets; link-local ones of plain
/// DNS need a zone, as `fe80::1%eth0`.
///
/// # Errors
///
/// An item that is not a server, or encrypted and plain servers together.
pub fn parse_servers<'a>(
    items: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<NameServer>, ServersError> {
    let servers: Vec<NameServer> = items
        .into_iter()
        .map(|item| {
            let item = item.trim();
            parse_server(item)
                .filter(|server| server.address().port() != 0)
                .ok_or_else(|| ServersError::Invalid(item.to_owned()))
        })
        .collect::<Result<_, _>>()?;
    let encrypted = servers.iter().filter(|server| server.is_encrypted());
    match encrypted.count() {
        count if count == 0 || count == servers.len() => Ok(servers),
        _ => Err(ServersError::Mixed),
    }
}

fn parse_server(item: &str) -> Option<NameServer> {
    if item.contains("://") {
        return NameServer::parse_encrypted(item);
    }
    let address = parse_server_address(item).or_else(|| address_with_port(item))?;
    Some(address.into())
}

/// Reads an address without a port, and adds the port of DNS.
fn parse_server_address(text: &str) -> Option<SocketAddr> {
    match text.split_once('%') {
        None => Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, DNS_PORT)),
        Some((ip, zone)) => {
            let ip: Ipv6Addr = ip.parse().ok()?;
            let scope = interface_index(zone)?;
            Some(SocketAddrV6::new(ip, DNS_PORT, 0, scope).into())
        }
    }
}

fn address_with_port(text: &str) -> Option<SocketAddr> {
    if let Ok(server) = text.parse() {
        return Some(server);
    }
    let (inside, port) = text.strip_prefix('[')?.split_once("]:")?;
    // The standard parser takes brackets with a numeric zone, but no name of an interface.
    let mut server = parse_server_address(inside).filter(SocketAddr::is_ipv6)?;
    server.set_port(port.parse().ok()?);
    Some(server)
}

/// The number of an interface by its name, or a number as it is (RFC 4007, section 11.2).
fn interface_index(zone: &str) -> Option<u32> {
    if let Ok(index) = zone.parse() {
        return Some(index);
    }
    // The zone becomes part of a path below (path traversal).
    if zone.is_empty() || zone.starts_with('.') || zone.contains('/') {
        return None;
    }
    let index = std::fs::read_to_string(format!("/sys/class/net/{zone}/ifindex")).ok()?;
    index.trim().parse().ok()
}

/// The file in which the system names its DNS servers (D-2).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The servers that the system names in `/etc/resolv.conf` (resolv.conf(5)).
///
/// # Errors
///
/// The file cannot be read, or names no server.
pub fn system_name_servers() -> Result<Vec<SocketAddr>, ServersError> {
    name_servers(Path::new(RESOLV_CONF))
}

/// The servers of the `nameserver` lines of `file` (`/etc/resolv.conf`).
pub fn name_servers(file: &Path) -> Result<Vec<SocketAddr>, ServersError> {
    let path = || file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| ServersError::Unreadable {
        path: path(),
        source,
    })?;
    let servers: Vec<_> = text.lines().filter_map(name_server).collect();
    // There is no fallback to a public resolver: names of the deployment would leak to it (D-2).
    if servers.is_empty() {
        return Err(ServersError::None(path()));
    }
    Ok(servers)
}

fn name_server(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace();
    if words.next() != Some("nameserver") {
        return None;
    }
    parse_server_address(words.next()?)
}
