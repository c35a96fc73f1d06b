//! Sections 8.1, 8.2, the constant row of 8.4 and the provider blocks of 8.6 as data.
//!
//! The first row that contains an address determines its class, so narrow ranges precede the wide ranges that contain
//! them. A change that blocks less needs two reviewers (section 24).

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// One blocked network with its class name; `Number` is `u32` for IPv4 and `u128` for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedNetwork<Number> {
    /// Lowest address of the block.
    pub first: Number,
    /// Highest address, part of the block.
    pub last: Number,
    /// Length of the prefix in bits.
    pub prefix: u8,
    /// Class name in snake case. It is a metric label, so rows of the same kind share it.
    pub name: &'static str,
    /// The RFC or the provider that the row comes from.
    pub source: &'static str,
}

impl BlockedNetwork<u32> {
    /// The row in the notation of firewall rules.
    pub const fn network(&self) -> IpNet {
        IpNet::V4(Ipv4Net::new_assert(
            Ipv4Addr::from_bits(self.first),
            self.prefix,
        ))
    }
}

impl BlockedNetwork<u128> {
    /// The row in the notation of firewall rules.
    pub const fn network(&self) -> IpNet {
        IpNet::V6(Ipv6Net::new_assert(
            Ipv6Addr::from_bits(self.first),
            self.prefix,
        ))
    }
}

const fn ipv4_network(
    octets: [u8; 4],
    prefix: u8,
    name: &'static str,
    source: &'static str,
) -> BlockedNetwork<u32> {
    let first = u32::from_be_bytes(octets);
    BlockedNetwork {
        first,
        // A plain shift by 32 overflows, and /32 rows exist.
        last: first + u32::MAX.unbounded_shr(prefix as u32),
        prefix,
        name,
        source,
    }
}

const fn ipv6_network(
    segments: [u16; 8],
    prefix: u8,
    name: &'static str,
    source: &'static str,
) -> BlockedNetwork<u128> {
    let mut first = 0;
    // The loop uses slices, because a `const fn` cannot call `next`.
    let mut rest: &[u16] = &segments;
    while let [segment, after @ ..] = rest {
        first = first * 0x1_0000 + *segment as u128;
        rest = after;
    }
    BlockedNetwork {
        first,
        last: first + u128::MAX.unbounded_shr(prefix as u32),
        prefix,
        name,
        source,
    }
}

/// Section 8.1, preceded by the constant row of 8.4.
#[rustfmt::skip]
pub const IPV4_BLOCKS: [BlockedNetwork<u32>; 28] = [
    ipv4_network([168, 63, 129, 16], 32, "azure_platform", "Azure WireServer and platform DNS, public space (8.4)"),
    ipv4_network([0, 0, 0, 0], 8, "this_network", "RFC 791, RFC 1122; 0.0.0.0 reaches the local host on Linux"),
    ipv4_network([10, 0, 0, 0], 8, "private_use", "RFC 1918"),
    ipv4_network([100, 64, 0, 0], 10, "shared_address_space", "RFC 6598"),
    ipv4_network([127, 0, 0, 0], 8, "loopback", "RFC 1122"),
    ipv4_network([169, 254, 0, 0], 16, "link_local", "RFC 3927; has cloud metadata"),
    ipv4_network([172, 16, 0, 0], 12, "private_use", "RFC 1918"),
    ipv4_network([192, 0, 0, 0], 29, "ipv4_service_continuity", "RFC 7335"),
    ipv4_network([192, 0, 0, 8], 32, "ipv4_dummy", "RFC 7600"),
    ipv4_network([192, 0, 0, 9], 32, "port_control_anycast", "RFC 7723"),
    ipv4_network([192, 0, 0, 10], 32, "turn_anycast", "RFC 8155"),
    ipv4_network([192, 0, 0, 170], 32, "nat64_discovery", "RFC 8880"),
    ipv4_network([192, 0, 0, 171], 32, "nat64_discovery", "RFC 8880"),
    ipv4_network([192, 0, 0, 192], 32, "metadata", "Oracle Cloud classic metadata"),
    ipv4_network([192, 0, 0, 0], 24, "ietf_protocol", "RFC 6890"),
    ipv4_network([192, 0, 2, 0], 24, "documentation", "RFC 5737, TEST-NET-1"),
    ipv4_network([192, 31, 196, 0], 24, "as112", "RFC 7535"),
    ipv4_network([192, 52, 193, 0], 24, "amt", "RFC 7450"),
    ipv4_network([192, 88, 99, 2], 32, "six_a44_relay", "RFC 6751"),
    ipv4_network([192, 88, 99, 0], 24, "six_to_four_relay", "RFC 7526"),
    ipv4_network([192, 168, 0, 0], 16, "private_use", "RFC 1918"),
    ipv4_network([192, 175, 48, 0], 24, "as112", "RFC 7534"),
    ipv4_network([198, 18, 0, 0], 15, "benchmarking", "RFC 2544"),
    ipv4_network([198, 51, 100, 0], 24, "documentation", "RFC 5737, TEST-NET-2"),
    ipv4_network([203, 0, 113, 0], 24, "documentation", "RFC 5737, TEST-NET-3"),
    ipv4_network([224, 0, 0, 0], 4, "multicast", "RFC 5771"),
    ipv4_network([255, 255, 255, 255], 32, "limited_broadcast", "RFC 919, RFC 8190"),
    ipv4_network([240, 0, 0, 0], 4, "reserved", "RFC 1112"),
];

/// Section 8.2; the last three rows are everything outside `2000::/3`.
#[rustfmt::skip]
pub const IPV6_BLOCKS: [BlockedNetwork<u128>; 32] = [
    ipv6_network([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified", "RFC 4291"),
    ipv6_network([0, 0, 0, 0, 0, 0, 0, 0x1], 128, "loopback", "RFC 4291"),
    ipv6_network([0, 0, 0, 0, 0, 0, 0, 0], 96, "ipv4_compatible", "RFC 4291 2.5.5.1"),
    ipv6_network([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "ipv4_mapped", "RFC 4291 2.5.5.2; classified as the address inside, listed for firewalls"),
    ipv6_network([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "ipv4_translated", "RFC 2765"),
    ipv6_network([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "nat64", "RFC 6052"),
    ipv6_network([0x64, 0xff9b, 0x1, 0, 0, 0, 0, 0], 48, "nat64_local", "RFC 8215"),
    ipv6_network([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discard_only", "RFC 6666"),
    ipv6_network([0x100, 0, 0, 0x1, 0, 0, 0, 0], 64, "dummy_prefix", "RFC 9780"),
    ipv6_network([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "teredo", "RFC 4380"),
    ipv6_network([0x2001, 0x1, 0, 0, 0, 0, 0, 0x1], 128, "port_control_anycast", "RFC 7723"),
    ipv6_network([0x2001, 0x1, 0, 0, 0, 0, 0, 0x2], 128, "turn_anycast", "RFC 8155"),
    ipv6_network([0x2001, 0x1, 0, 0, 0, 0, 0, 0x3], 128, "srp_anycast", "RFC 9665"),
    ipv6_network([0x2001, 0x2, 0, 0, 0, 0, 0, 0], 48, "benchmarking", "RFC 5180"),
    ipv6_network([0x2001, 0x3, 0, 0, 0, 0, 0, 0], 32, "amt", "RFC 7450"),
    ipv6_network([0x2001, 0x4, 0x112, 0, 0, 0, 0, 0], 48, "as112", "RFC 7535"),
    ipv6_network([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, "orchid", "RFC 4843"),
    ipv6_network([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, "orchid_v2", "RFC 7343"),
    ipv6_network([0x2001, 0x30, 0, 0, 0, 0, 0, 0], 28, "drone_remote_id", "RFC 9374"),
    ipv6_network([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "ietf_protocol", "RFC 2928"),
    ipv6_network([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation", "RFC 3849"),
    ipv6_network([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "six_to_four", "RFC 3056"),
    ipv6_network([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, "as112", "RFC 7534"),
    ipv6_network([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation", "RFC 9637"),
    ipv6_network([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "segment_routing", "RFC 9602"),
    ipv6_network([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "unique_local", "RFC 4193; has the metadata of several providers"),
    ipv6_network([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link_local", "RFC 4291"),
    ipv6_network([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site_local", "RFC 3879"),
    ipv6_network([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast", "RFC 4291 2.7"),
    ipv6_network([0, 0, 0, 0, 0, 0, 0, 0], 3, "unassigned", "IANA IPv6 address space: outside 2000::/3"),
    ipv6_network([0x4000, 0, 0, 0, 0, 0, 0, 0], 2, "unassigned", "IANA IPv6 address space: outside 2000::/3"),
    ipv6_network([0x8000, 0, 0, 0, 0, 0, 0, 0], 1, "unassigned", "IANA IPv6 address space: outside 2000::/3"),
];

/// Metadata and service blocks of providers inside `fc00::/7`: no opened range reaches them (8.6).
#[rustfmt::skip]
pub const PROVIDER_SERVICES: [BlockedNetwork<u128>; 6] = [
    ipv6_network([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32, "provider_service", "AWS"),
    ipv6_network([0xfd20, 0xce, 0, 0, 0, 0, 0, 0], 32, "provider_service", "Google Cloud"),
    ipv6_network([0xfd00, 0xc1, 0, 0, 0, 0, 0, 0], 32, "provider_service", "Oracle Cloud"),
    ipv6_network([0xfd00, 0x42, 0, 0, 0, 0, 0, 0], 32, "provider_service", "Scaleway"),
    ipv6_network([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 0], 48, "provider_service", "Linode"),
    ipv6_network([0xfd00, 0x100, 0, 0, 0, 0, 0, 0], 32, "provider_service", "Alibaba Cloud"),
];
