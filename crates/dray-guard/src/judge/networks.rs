//! Networks that an operator blocks in addition (8.4).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

/// The reason why an operator's list of blocked networks is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworksError {
    /// The text is neither an address nor a network.
    #[error("{0:?} is not an address or a network such as 203.0.113.0/24")]
    NotANetwork(String),
    /// Bits after the prefix are set: it is unclear which network is meant.
    #[error("{0} has bits set after its prefix; write {1}")]
    HostBits(IpNet, IpNet),
}

/// Reads addresses and networks with commas between them; blank text is an empty list. IPv4-mapped notation means the
/// IPv4 network.
///
/// # Errors
///
/// [`NetworksError`] for the first item that is not an address or a network, or has bits set after its prefix.
pub fn parse_blocked_networks(text: &str) -> Result<Vec<IpNet>, NetworksError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|item| parse_network(item.trim()))
        .collect()
}

fn parse_network(text: &str) -> Result<IpNet, NetworksError> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => read_network(text).ok_or_else(|| NetworksError::NotANetwork(text.to_owned()))?,
    };
    // The entry is refused, not truncated: the operator may have mistyped the address or the length.
    if network.trunc() != network {
        return Err(NetworksError::HostBits(network, network.trunc()));
    }
    Ok(unmap_network(network))
}

/// Reads `address/length`, both written plainly: no leading zeros, signs or blanks. Keeps the bits after the prefix.
pub(super) fn read_network(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let number: u8 = length.parse().ok()?;
    // `parse` alone accepts `+8` and `08`.
    if number.to_string() != length {
        return None;
    }
    IpNet::new(address, number).ok()
}

/// The IPv4 network inside an IPv4-mapped one: judged addresses are unwrapped, so it would never match (8.3).
fn unmap_network(network: IpNet) -> IpNet {
    let (IpAddr::V4(address), Some(length)) = (
        // IPv4 networks take the `else` branch as well: their lengths are below 96.
        network.addr().to_canonical(),
        network.prefix_len().checked_sub(96),
    ) else {
        return network;
    };
    match network {
        IpNet::V4(_) => network,
        IpNet::V6(_) => ipv4_network(address, length).map_or(network, IpNet::V4),
    }
}

fn ipv4_network(address: Ipv4Addr, length: u8) -> Option<Ipv4Net> {
    Ipv4Net::new(address, length).ok()
}
