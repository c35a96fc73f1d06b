//! NAT64 prefixes of an IPv6-only network (D-9, RFC 6052).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv6Net};

use crate::addrclass::IPV6_BLOCKS;

use super::networks;

/// A prefix behind which a translator reaches IPv4. The carried address is judged instead of the outer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nat64Prefix(Ipv6Net);

/// The reason why an operator's NAT64 prefix is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nat64Error {
    /// The text is not an IPv6 network with its prefix length.
    #[error("{0:?} is not an IPv6 prefix such as 64:ff9b::/96")]
    NotAPrefix(String),
    /// RFC 6052 defines only six lengths.
    #[error("{0}: the length of a NAT64 prefix is 32, 40, 48, 56, 64 or 96")]
    Length(Ipv6Net),
    /// Bits below the prefix, or bits 64 to 71, are set.
    #[error("{0}: the bits after the prefix and bits 64 to 71 of a NAT64 prefix must be zero")]
    Bits(Ipv6Net),
    /// The prefix would open addresses that no setting may open (I-9).
    #[error("{0}: a NAT64 prefix lies in 64:ff9b::/96, 64:ff9b:1::/48 or public space")]
    Special(Ipv6Net),
}

impl Nat64Prefix {
    /// Length of the prefix in bits.
    pub fn length(&self) -> u8 {
        self.0.prefix_len()
    }

    pub(super) fn contains(&self, address: Ipv6Addr) -> bool {
        self.0.contains(&address)
    }

    /// The carried address: the four octets after the prefix, skipping bits 64 to 71, which must be zero.
    pub(super) fn decode(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if octet_u(address.to_bits()) != 0 {
            return None;
        }
        let mut carried = address
            .octets()
            .into_iter()
            .enumerate()
            .skip(usize::from(self.length() / 8))
            // RFC 6052 2.2: octet 8 holds bits 64 to 71 and carries nothing.
            .filter(|(index, _)| *index != 8)
            .map(|(_, octet)| octet);
        let mut next = || carried.next();
        Some(Ipv4Addr::new(next()?, next()?, next()?, next()?))
    }
}

const fn octet_u(bits: u128) -> u8 {
    let [.., octet, _, _, _, _, _, _, _] = bits.to_be_bytes();
    octet
}

impl FromStr for Nat64Prefix {
    type Err = Nat64Error;

    fn from_str(text: &str) -> Result<Self, Nat64Error> {
        // The parser of `ipnet` is not used, because it accepts leading zeros.
        let Some(IpNet::V6(prefix)) = networks::read_network(text) else {
            return Err(Nat64Error::NotAPrefix(text.to_owned()));
        };
        if !matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(Nat64Error::Length(prefix));
        }
        if prefix.trunc() != prefix || octet_u(prefix.addr().to_bits()) != 0 {
            return Err(Nat64Error::Bits(prefix));
        }
        if is_special(prefix) {
            return Err(Nat64Error::Special(prefix));
        }
        Ok(Self(prefix))
    }
}

/// Whether it touches a block of 8.2 other than the two that exist for NAT64.
fn is_special(prefix: Ipv6Net) -> bool {
    let within = |name: &str| {
        IPV6_BLOCKS
            .iter()
            .filter(|block| block.name == name)
            .any(|block| block.network().contains(&IpNet::V6(prefix)))
    };
    // The prefix must be inside these ranges; overlapping is not enough, because a wider prefix would reach reserved
    // space around them.
    if within("nat64") || within("nat64_local") {
        return false;
    }
    // The overlap may be in either direction: the prefix may lie in a block, or a block in the prefix.
    let (first, last) = (prefix.network().to_bits(), prefix.broadcast().to_bits());
    IPV6_BLOCKS
        .iter()
        .any(|block| first <= block.last && block.first <= last)
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads prefixes with commas between them; blank text is none.
///
/// # Errors
///
/// [`Nat64Error`] for the first item that is not a prefix as RFC 6052 allows it.
pub fn parse_nat64_prefixes(text: &str) -> Result<Vec<Nat64Prefix>, Nat64Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|item| item.trim().parse()).collect()
}
