//! Classifies an address by its number (section 8).
//!
//! The tables are data ([`IPV4_BLOCKS`], [`IPV6_BLOCKS`]); an IPv6 address outside `2000::/3` is always blocked,
//! because no other range is assigned for global unicast. [`crate::judge`] applies the configuration to the class.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

mod tables;

pub use tables::{BlockedNetwork, IPV4_BLOCKS, IPV6_BLOCKS, PROVIDER_SERVICES};

/// Date of the IANA special-purpose address registries, IPv4 and IPv6, that the tables follow.
pub const TABLE_EDITION: &str = "2025-10-09";

/// The class of an address, for the decision, the audit event and the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// No rule blocks it: connections are allowed.
    Public,
    /// Inside a private range that the operator opened (8.6). Never the result of [`classify`].
    Opened(IpNet),
    /// Connections are refused; the name of the block or rule.
    Blocked(&'static str),
}

impl Class {
    /// A name from a closed set: `public`, `opened`, or the name of the block.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Opened(_) => "opened",
            Self::Blocked(name) => name,
        }
    }

    /// Whether the address must not be connected to.
    pub const fn is_blocked(&self) -> bool {
        matches!(self, Self::Blocked(_))
    }
}

/// The form in an audit event: `public`, `opened:10.1.0.0/16`, `loopback`.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened(range) => write!(f, "opened:{range}"),
            Self::Public | Self::Blocked(_) => f.write_str(self.as_str()),
        }
    }
}

/// Classifies any address. An IPv4-mapped address has the class of its IPv4 address (8.3).
pub fn classify(address: IpAddr) -> Class {
    // RFC 4291 2.5.5.2. This comes first, so that no code after it sees two forms of one address.
    match address.to_canonical() {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> Class {
    let number = address.to_bits();
    // The first match gives the name: narrow rows are before the wide rows that contain them.
    IPV4_BLOCKS
        .iter()
        .find(|block| block.first <= number && number <= block.last)
        .map_or(Class::Public, |block| Class::Blocked(block.name))
}

fn classify_v6(address: Ipv6Addr) -> Class {
    let number = address.to_bits();
    if let Some(block) = IPV6_BLOCKS
        .iter()
        .find(|block| block.first <= number && number <= block.last)
    {
        return Class::Blocked(block.name);
    }
    // The address is refused only around a blocked address: the identifier may follow any global prefix (8.3).
    match isatap_address(address).map(classify_v4) {
        // The class is named after the outer form: the audit event shows the address that DNS returned.
        Some(Class::Blocked(_)) => Class::Blocked("isatap"),
        _ => Class::Public,
    }
}

/// The IPv4 address inside an ISATAP interface identifier, `0:5efe:a.b.c.d` or `200:5efe:a.b.c.d` (RFC 5214 6.1).
pub(crate) fn isatap_address(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    match address.segments() {
        // 0x0200 is the "u" bit: set when the inner address is globally unique.
        [_, _, _, _, 0 | 0x0200, 0x5efe, ..] => Some(Ipv4Addr::new(a, b, c, d)),
        _ => None,
    }
}

/// Every blocked network of sections 8.1, 8.2 and the constant part of 8.4, for firewall rules (S-3).
///
/// Rows may lie inside one another.
pub fn blocked_networks() -> impl Iterator<Item = IpNet> {
    IPV4_BLOCKS
        .iter()
        .map(BlockedNetwork::<u32>::network)
        .chain(IPV6_BLOCKS.iter().map(BlockedNetwork::<u128>::network))
}

#[cfg(test)]
mod tests;
