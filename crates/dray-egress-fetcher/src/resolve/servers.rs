//! Which DNS servers are asked (D-2): those of the configuration, or the `nameserver` lines of the system's file.
//!
//! There is no default server. Search lists and options of the file are not read (D-1).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

const DNS_PORT: u16 = 53;

/// No DNS server could be found.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// The system's file cannot be read.
    #[error("the DNS servers cannot be read from {path}; set EXTERNAL_URL_FETCH_DNS_SERVERS")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system's file names none.
    #[error("{0} has no usable nameserver line; set EXTERNAL_URL_FETCH_DNS_SERVERS")]
    None(String),
    /// An item of the configuration is not a server.
    #[error(
        "`{0}` is not a DNS server; write an address, or an address with a port such as 192.0.2.1:53"
    )]
    Invalid(String),
}

/// Reads `address` or `address:port` items separated by commas. IPv6 addresses with a port need brackets.
pub fn parse_servers<'a>(
    items: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<SocketAddr>, ServersError> {
    items
        .into_iter()
        .map(|item| {
            let item = item.trim();
            item.parse::<IpAddr>()
                .map(|ip| SocketAddr::new(ip, DNS_PORT))
                .or_else(|_| item.parse::<SocketAddr>())
                .ok()
                .filter(|server| server.port() != 0)
                .ok_or_else(|| ServersError::Invalid(item.to_owned()))
        })
        .collect()
}

/// The servers of the `nameserver` lines of `file` (`/etc/resolv.conf`).
pub fn name_servers(file: &Path) -> Result<Vec<SocketAddr>, ServersError> {
    let path = || file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| ServersError::Unreadable {
        path: path(),
        source,
    })?;
    let servers: Vec<_> = text.lines().filter_map(name_server).collect();
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
    let ip: IpAddr = words.next()?.parse().ok()?;
    Some(SocketAddr::new(ip, DNS_PORT))
}
