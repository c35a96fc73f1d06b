//! Private ranges that an operator opened for internal file servers (8.6).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::networks;

/// The only space that may be opened (8.6): RFC 1918 and RFC 4193.
const OPENABLE_BLOCKS: [IpNet; 4] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0),
        7,
    )),
];

/// Exact private networks that may be fetched from. None by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateRanges {
    /// Sorted and without duplicates, so that the policy digest does not depend on how they were written.
    entries: Vec<IpNet>,
}

/// The reason why an operator's private range is not accepted: an error at start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrivateRangeError {
    /// The text is not a network in the notation of its family with a prefix length.
    #[error("{0:?} is not a network such as 10.20.0.0/16")]
    NotANetwork(String),
    /// Bits after the prefix are set.
    #[error("{0} has bits set after its prefix; write {1}")]
    HostBits(IpNet, IpNet),
    /// The network is not inside one of the private ranges.
    #[error(
        "{0} cannot be opened; only networks inside 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or fc00::/7 can"
    )]
    NotPrivate(IpNet),
}

impl PrivateRanges {
    /// Reads networks with commas between them; blank text opens nothing.
    ///
    /// # Errors
    ///
    /// [`PrivateRangeError`] for the first item that is not a network, has bits set after its prefix, or is not inside
    /// a private range (RFC 1918, RFC 4193).
    pub fn parse(text: &str) -> Result<Self, PrivateRangeError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut entries: Vec<IpNet> = text
            .split(',')
            .map(|item| parse_entry(item.trim()))
            .collect::<Result<_, _>>()?;
        entries.sort();
        entries.dedup();
        Ok(Self { entries })
    }

    /// Whether no range is open.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The open networks in a fixed order, for the start-up log and every audit event.
    pub fn iter(&self) -> impl Iterator<Item = IpNet> {
        self.entries.iter().copied()
    }

    /// Warnings for the operator: entries wider than /16 (IPv4) or /48 (IPv6).
    pub fn warnings(&self) -> Vec<String> {
        self.iter()
            .filter(|entry| match entry {
                IpNet::V4(entry) => entry.prefix_len() < 16,
                IpNet::V6(entry) => entry.prefix_len() < 48,
            })
            .map(|entry| format!("{entry} opens a very wide private range"))
            .collect()
    }

    /// The narrowest entry that contains `address`.
    pub(super) fn find(&self, address: IpAddr) -> Option<IpNet> {
        self.entries
            .iter()
            .filter(|entry| entry.contains(&address))
            // Ranges may be nested; the audit event names the most specific one.
            .max_by_key(|entry| entry.prefix_len())
            .copied()
    }

    /// Whether `address` is the network or broadcast address of an IPv4 entry of /30 or wider.
    pub(super) fn is_edge(&self, address: IpAddr) -> bool {
        self.entries.iter().any(|entry| match (entry, address) {
            // Every host on the link may answer to these two.
            (IpNet::V4(entry), IpAddr::V4(address)) => {
                entry.prefix_len() <= 30
                    && (entry.network() == address || entry.broadcast() == address)
            }
            _ => false,
        })
    }
}

fn parse_entry(text: &str) -> Result<IpNet, PrivateRangeError> {
    let entry = networks::read_network(text)
        .ok_or_else(|| PrivateRangeError::NotANetwork(text.to_owned()))?;
    // Set bits after the prefix are refused and not cleared: a mistyped length would open more than was meant.
    if entry.trunc() != entry {
        return Err(PrivateRangeError::HostBits(entry, entry.trunc()));
    }
    // The whole range must be inside one block (I-9).
    if OPENABLE_BLOCKS.iter().any(|range| range.contains(&entry)) {
        Ok(entry)
    } else {
        Err(PrivateRangeError::NotPrivate(entry))
    }
}

impl FromStr for PrivateRanges {
    type Err = PrivateRangeError;

    fn from_str(text: &str) -> Result<Self, PrivateRangeError> {
        Self::parse(text)
    }
}

/// The entries with commas between them.
impl fmt::Display for PrivateRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<_> = self.entries.iter().map(IpNet::to_string).collect();
        f.write_str(&entries.join(","))
    }
}
