//! DNS answers: the judge never pins an address that the standard library alone recognises as internal.
//!
//! The first byte selects the configuration. Records follow: `4` and an IPv4 address, `6` and an IPv6 address; every
//! other first byte is the length of a CNAME target.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dray_guard::judge::parse_nat64_prefixes;
use dray_guard::{Class, DnsAnswer, HopContext, Judge, JudgeConfig, Network};
use libfuzzer_sys::fuzz_target;

fn records(mut bytes: &[u8]) -> (Vec<IpAddr>, Vec<String>) {
    let (mut addresses, mut cnames) = (Vec::new(), Vec::new());
    while let Some((kind, rest)) = bytes.split_first() {
        if let (4, Some((octets, after))) = (kind, rest.split_first_chunk::<4>()) {
            addresses.push(IpAddr::from(*octets));
            bytes = after;
        } else if let (6, Some((octets, after))) = (kind, rest.split_first_chunk::<16>()) {
            addresses.push(IpAddr::from(*octets));
            bytes = after;
        } else {
            let (target, after) = rest.split_at(rest.len().min(usize::from(*kind)));
            cnames.push(String::from_utf8_lossy(target).into_owned());
            bytes = after;
        }
    }
    (addresses, cnames)
}

fn is_internal_v4(address: Ipv4Addr) -> bool {
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || address.octets()[0] >= 240
        || (address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64)
}

fn is_internal_v6(address: Ipv6Addr) -> bool {
    address.segments()[0] >> 13 != 1 || address.segments()[0] == 0x2002
}

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, rest)) = bytes.split_first() else {
        return;
    };
    let flag = |bit: u8| flags & (1 << bit) != 0;
    let (is_open, has_nat64) = (flag(0), flag(1));
    let judge = Judge::new(JudgeConfig {
        private_ranges: if is_open {
            "10.20.0.0/16,fd12::/32"
        } else {
            ""
        }
        .parse()
        .expect("exact"),
        nat64_prefixes: parse_nat64_prefixes(if has_nat64 { "64:ff9b::/96" } else { "" })
            .expect("well known"),
        ipv4_only: flag(2),
        ipv6_first: flag(3),
        ..JudgeConfig::default()
    });
    let hop = HopContext {
        previous: flag(4).then_some(Network::Public),
        admin_listed: flag(5),
    };
    let (addresses, cnames) = records(rest);
    let answer = DnsAnswer {
        name: "files.example.com".parse().expect("plain"),
        cnames,
        addresses,
        dnssec: dray_guard::DnssecStatus::NotKnown,
    };
    let Ok(pinned) = judge.judge_answer(&answer, 443, hop) else {
        return;
    };
    assert!((1..=8).contains(&pinned.addresses().len()));
    assert!(answer.cnames.len() <= 8);
    for address in pinned.addresses() {
        let ip = address.socket_addr().ip();
        assert!(
            answer
                .addresses
                .iter()
                .any(|answered| answered.to_canonical() == ip)
        );
        let local = SocketAddr::from(([192, 0, 2, 1], 40_000));
        if ip != local.ip() {
            assert_eq!(
                judge.reclassify(address.socket_addr(), local, address),
                Ok(())
            );
        }
    }
    for address in answer.addresses.iter().map(IpAddr::to_canonical) {
        let is_opened = matches!(judge.class(address), Class::Opened(_));
        assert!(!is_opened || is_open && (!flag(4) || flag(5)));
        assert_eq!(is_opened, pinned.network() == Network::Opened);
        let is_inside = match address {
            IpAddr::V4(address) => is_internal_v4(address),
            IpAddr::V6(address) => match address.segments() {
                [0x64, 0xff9b, 0, 0, 0, 0, _, _] if has_nat64 => {
                    let [.., a, b, c, d] = address.octets();
                    is_internal_v4(Ipv4Addr::new(a, b, c, d))
                }
                _ => is_internal_v6(address),
            },
        };
        assert!(!is_inside || is_opened, "{address}");
    }
});
