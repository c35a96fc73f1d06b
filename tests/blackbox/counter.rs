//! Packet counters: an nftables table that counts connection attempts and datagrams by destination. No packet is
//! dropped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::Value;

use crate::machine;
use crate::namespace::NetworkNamespace;
use crate::range::BLOCKED_RANGES;

/// Counters for traffic to other destinations than the ranges of section 8: own addresses, configured ranges, ports and
/// datagrams.
pub(crate) const OTHER_COUNTERS: [&str; 8] = [
    "isatap",
    "own_address",
    "kubernetes",
    "extra",
    "proxy",
    "other_port",
    "other_datagram",
    "other_name_server",
];

/// Traffic that the scenario allows. Packets to these networks increase the counter `opened`.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedTraffic {
    /// Networks in CIDR notation.
    pub(crate) networks: Vec<&'static str>,
    /// TCP ports besides the default ports.
    pub(crate) ports: Vec<u16>,
}

/// The side of the veth pair on which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CableSide {
    /// All packets that the binary sends, loopback included.
    Sent,
    /// All packets that arrive on the far side.
    Arrived,
}

/// Starts counting in a namespace.
pub(crate) fn install(
    namespace: &NetworkNamespace,
    side: CableSide,
    openings: &AllowedTraffic,
    servers: &[IpAddr],
) {
    machine::feed(
        namespace.command("nft").args(["-f", "-"]),
        &ruleset(side, openings, servers),
    );
}

/// Returns the number of packets of each counter by its name.
pub(crate) fn read(namespace: &NetworkNamespace) -> BTreeMap<String, u64> {
    let listed = machine::run(namespace.command("nft").args(["-j", "list", "counters"]));
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    let counters = listed["nftables"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item.get("counter"));
    counters
        .map(|counter| {
            (
                counter["name"].as_str().unwrap().to_owned(),
                counter["packets"].as_u64().unwrap(),
            )
        })
        .collect()
}

/// Sets all counters to zero.
pub(crate) fn reset(namespace: &NetworkNamespace) {
    machine::run(namespace.command("nft").args(["reset", "counters"]));
}

fn ruleset(side: CableSide, openings: &AllowedTraffic, servers: &[IpAddr]) -> String {
    let mut text = String::from("table inet watch {\n");
    for name in BLOCKED_RANGES
        .iter()
        .map(|range| range.name)
        .chain(OTHER_COUNTERS)
        .chain(["opened", "allowed"])
    {
        writeln!(text, "counter {name} {{ }}").unwrap();
    }
    text.push_str(match side {
        CableSide::Sent => "chain watch { type filter hook output priority -300;\n",
        CableSide::Arrived => {
            "chain watch { type filter hook prerouting priority -300;\n iifname != \"far\" return\n"
        }
    });
    // The following are not counted: packets that the kernel sends by itself, and packets of connections whose SYN was
    // counted.
    text.push_str("meta l4proto { icmp, ipv6-icmp, igmp } return\n");
    text.push_str("meta l4proto tcp tcp flags & (syn | ack) != syn return\n");
    if side == CableSide::Sent {
        // Connections to the binary's embedded store are not counted either. The servers that detect leaks listen on
        // lower ports.
        text.push_str("ip daddr 127.0.0.1 tcp dport 32768-65535 return\n");
    }
    for network in &openings.networks {
        writeln!(
            text,
            "{} daddr {network} counter name opened return",
            family(network)
        )
        .unwrap();
    }
    for range in &BLOCKED_RANGES {
        writeln!(
            text,
            "{} daddr {} counter name {}",
            family(range.network),
            range.network,
            range.name
        )
        .unwrap();
    }
    text.push_str(WATCHED_ADDRESSES);
    text.push_str(&outbound_rules(side, openings, servers));
    text.push_str("}\n}\n");
    text
}

/// Rules for ports and name servers of traffic that leaves this host.
fn outbound_rules(side: CableSide, openings: &AllowedTraffic, servers: &[IpAddr]) -> String {
    let leaving = match side {
        CableSide::Sent => "oifname != \"lo\" ",
        CableSide::Arrived => "",
    };
    let open: Vec<u16> = [80, 443, 8000, 8080, 8443]
        .iter()
        .chain(&openings.ports)
        .copied()
        .collect();
    let open = join_items(open.iter());
    let v4 = join_items(servers.iter().filter(|server| server.is_ipv4()));
    let v6 = join_items(servers.iter().filter(|server| server.is_ipv6()));
    format!(
        "{leaving}tcp dport != {{ 53, {open} }} counter name other_port\n\
         {leaving}udp dport != 53 counter name other_datagram\n\
         {leaving}th dport 53 ip daddr != {{ {v4} }} counter name other_name_server\n\
         {leaving}th dport 53 ip6 daddr != {{ {v6} }} counter name other_name_server\n\
         {leaving}tcp dport {{ {open} }} counter name allowed\n"
    )
}

/// Rules for addresses outside of the ranges: those of the interface, those that scenarios configure as forbidden, and
/// the proxy.
const WATCHED_ADDRESSES: &str = "\
ip6 daddr & 0:0:0:0:fdff:ffff:0:0 == 0:0:0:0:0:5efe:0:0 counter name isatap
ip daddr 151.101.1.2 counter name own_address
ip6 daddr 2a04:4e42:1::2 counter name own_address
ip daddr 34.118.224.1 counter name kubernetes
ip daddr 20.33.0.0/16 counter name extra
ip6 daddr 2603:1000::/24 counter name extra
ip daddr 198.41.0.4 counter name proxy
";

fn family(network: &str) -> &'static str {
    if network.contains(':') { "ip6" } else { "ip" }
}

fn join_items(items: impl Iterator<Item = impl ToString>) -> String {
    items
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
