//! Section 8 once more, written down independently of the product's own table: the ranges that counters watch and that
//! the scenarios try to reach. A test compares the two tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range that the binary must never reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedRange {
    /// Name of the range's packet counter.
    pub(crate) name: &'static str,
    /// First address and length of the prefix.
    pub(crate) network: &'static str,
}

const fn range(name: &'static str, network: &'static str) -> BlockedRange {
    BlockedRange { name, network }
}

/// Sections 8.1, 8.2 and the constant row of 8.4.
pub(crate) const BLOCKED_RANGES: [BlockedRange; 49] = [
    range("v4_this_network", "0.0.0.0/8"),
    range("v4_private_10", "10.0.0.0/8"),
    range("v4_shared", "100.64.0.0/10"),
    range("v4_loopback", "127.0.0.0/8"),
    range("v4_link_local", "169.254.0.0/16"),
    range("v4_private_172", "172.16.0.0/12"),
    range("v4_protocol", "192.0.0.0/24"),
    range("v4_test_net_1", "192.0.2.0/24"),
    range("v4_as112", "192.31.196.0/24"),
    range("v4_amt", "192.52.193.0/24"),
    range("v4_6to4_relay", "192.88.99.0/24"),
    range("v4_private_192", "192.168.0.0/16"),
    range("v4_as112_direct", "192.175.48.0/24"),
    range("v4_benchmarking", "198.18.0.0/15"),
    range("v4_test_net_2", "198.51.100.0/24"),
    range("v4_test_net_3", "203.0.113.0/24"),
    range("v4_multicast", "224.0.0.0/4"),
    range("v4_class_e", "240.0.0.0/4"),
    range("v4_broadcast", "255.255.255.255/32"),
    range("v4_azure_platform", "168.63.129.16/32"),
    range("v6_loopback", "::1/128"),
    range("v6_compatible", "::/96"),
    range("v6_mapped", "::ffff:0:0/96"),
    range("v6_translated", "::ffff:0:0:0/96"),
    range("v6_nat64", "64:ff9b::/96"),
    range("v6_nat64_local", "64:ff9b:1::/48"),
    range("v6_discard", "100::/64"),
    range("v6_dummy", "100:0:0:1::/64"),
    range("v6_protocol", "2001::/23"),
    range("v6_teredo", "2001::/32"),
    range("v6_anycast", "2001:1::/126"),
    range("v6_benchmarking", "2001:2::/48"),
    range("v6_amt", "2001:3::/32"),
    range("v6_as112", "2001:4:112::/48"),
    range("v6_orchid", "2001:10::/28"),
    range("v6_orchid_2", "2001:20::/28"),
    range("v6_drone", "2001:30::/28"),
    range("v6_documentation", "2001:db8::/32"),
    range("v6_6to4", "2002::/16"),
    range("v6_as112_direct", "2620:4f:8000::/48"),
    range("v6_documentation_2", "3fff::/20"),
    range("v6_segment_routing", "5f00::/16"),
    range("v6_unique_local", "fc00::/7"),
    range("v6_link_local", "fe80::/10"),
    range("v6_site_local", "fec0::/10"),
    range("v6_multicast", "ff00::/8"),
    range("v6_below_global", "::/3"),
    range("v6_above_global_4", "4000::/2"),
    range("v6_above_global_8", "8000::/1"),
];

/// Ranges to which the kernel of this machine sends only raw packets, and no connections or responses.
pub(crate) const UNANSWERED_RANGES: [&str; 4] =
    ["v4_multicast", "v4_broadcast", "v6_mapped", "v6_multicast"];

/// Ranges whose packets stay on the loopback device.
pub(crate) const LOOPBACK_RANGES: [&str; 4] = [
    "v4_loopback",
    "v6_loopback",
    "v6_compatible",
    "v6_below_global",
];

/// Addresses of services that are targets of attackers: metadata, platform, local host, gateways.
pub(crate) const SENSITIVE_ADDRESSES: [&str; 28] = [
    "0.0.0.0",
    "127.0.0.1",
    "127.0.0.53",
    "127.1.2.3",
    "10.0.0.1",
    "10.96.0.1",
    "172.17.0.1",
    "192.168.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "169.254.20.10",
    "169.254.0.23",
    "192.0.0.192",
    "168.63.129.16",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::10.0.0.1",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fd00:42::42",
    "fe80::a9fe:a9fe",
    "fec0::1",
];

/// ISATAP identifiers under a global prefix that carry a blocked address (8.3).
pub(crate) const ISATAP_ADDRESSES: [&str; 3] = [
    "2606:2800:220:1:0:5efe:127.0.0.1",
    "2606:2800:220:1:200:5efe:169.254.169.254",
    "2606:2800:220:1::5efe:a00:1",
];

impl BlockedRange {
    /// First and last address of the range.
    pub(crate) fn bounds(&self) -> (IpAddr, IpAddr) {
        let (address, length) = self.network.split_once('/').unwrap();
        let length: u32 = length.parse().unwrap();
        match address.parse().unwrap() {
            IpAddr::V4(first) => {
                let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
                (
                    first.into(),
                    Ipv4Addr::from_bits(first.to_bits() | hosts).into(),
                )
            }
            IpAddr::V6(first) => {
                let hosts = u128::MAX.checked_shr(length).unwrap_or(0);
                (
                    first.into(),
                    Ipv6Addr::from_bits(first.to_bits() | hosts).into(),
                )
            }
        }
    }

    /// The second address of the range, or its only one: the kernel replaces `0.0.0.0` and `::` by other addresses.
    pub(crate) fn probe(&self) -> IpAddr {
        let (first, last) = self.bounds();
        let second: IpAddr = match first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | 1).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | 1).into(),
        };
        second.min(last)
    }

    /// Whether the range contains the address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let (first, last) = self.bounds();
        first <= address && address <= last && first.is_ipv4() == address.is_ipv4()
    }
}

/// The address as the host of a URL.
pub(crate) fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// First and last address of every range, and every sensitive address, each once.
pub(crate) fn samples() -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = BLOCKED_RANGES
        .iter()
        .flat_map(|range| [range.bounds().0, range.bounds().1])
        .collect();
    addresses.extend(
        SENSITIVE_ADDRESSES
            .iter()
            .chain(&ISATAP_ADDRESSES)
            .map(|text| text.parse::<IpAddr>().unwrap()),
    );
    addresses.sort();
    addresses.dedup();
    addresses
}

/// One address of every range and every sensitive address, for scenarios in which [`samples`] would take too long.
pub(crate) fn one_sample_per_range() -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = BLOCKED_RANGES
        .iter()
        .map(|range| range.bounds().1)
        .collect();
    addresses.extend(
        SENSITIVE_ADDRESSES
            .iter()
            .chain(&ISATAP_ADDRESSES)
            .map(|text| text.parse::<IpAddr>().unwrap()),
    );
    addresses.sort();
    addresses.dedup();
    addresses
}

#[test]
fn both_tables_of_blocked_addresses_cover_each_other() {
    let bounds = |network: ipnet::IpNet| [network.network(), network.broadcast()];
    for network in dray_guard::addrclass::blocked_networks() {
        let [first, last] = bounds(network);
        assert!(
            BLOCKED_RANGES
                .iter()
                .any(|range| range.contains(first) && range.contains(last)),
            "no counter watches {network}"
        );
    }
    for sample in samples() {
        assert!(
            dray_guard::addrclass::classify(sample).is_blocked(),
            "{sample} is not blocked"
        );
    }
}
