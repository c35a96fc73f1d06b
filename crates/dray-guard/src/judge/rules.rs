//! The rules of section 8, in the order in which they are applied to an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addrclass::{self, Class, PROVIDER_SERVICES};

use super::JudgeConfig;

/// Class names that the rules in this module give, in addition to the names in the tables.
pub(super) const CLASS_NAMES: [&str; 7] = [
    "own_address",
    "protected",
    "operator_blocked",
    "provider_service",
    "range_edge",
    "nat64_malformed",
    "isatap",
];

/// Classifies an address that is not IPv4-mapped.
pub(super) fn classify_native(config: &JudgeConfig, address: IpAddr) -> Class {
    // Additions are checked first, because they win over opened ranges and NAT64 (8.4).
    if let Some(name) = listed_addition(config, address) {
        return Class::Blocked(name);
    }
    if let IpAddr::V6(address) = address {
        if let Some(class) = nat64_class(config, address) {
            return class;
        }
        // This precedes the opened ranges: fc00::/7 may be opened, but metadata in it may not (8.6).
        if is_provider_service(address) {
            return Class::Blocked("provider_service");
        }
    }
    let class = match config.private_ranges.find(address) {
        // The edge of any range counts, not only that of the narrowest: wider ranges have a broadcast address too.
        Some(_) if config.private_ranges.is_edge(address) => Class::Blocked("range_edge"),
        Some(range) => Class::Opened(range),
        None => addrclass::classify(address),
    };
    // This follows the ranges: an opened range must not make the address inside reachable.
    if !class.is_blocked() && carries_blocked(config, address) {
        return Class::Blocked("isatap");
    }
    class
}

/// The class of an address on one of the lists that override all settings (8.4); `None` for any other address.
fn listed_addition(config: &JudgeConfig, address: IpAddr) -> Option<&'static str> {
    let is_own = config
        .own_addresses
        .iter()
        .any(|own| own.to_canonical() == address);
    if is_own {
        return Some("own_address");
    }
    if config.protected.iter().any(|net| net.contains(&address)) {
        return Some("protected");
    }
    config
        .extra_blocked
        .iter()
        .any(|net| net.contains(&address))
        .then_some("operator_blocked")
}

/// The class of an address behind a configured NAT64 prefix (D-9): that of the IPv4 address in it. `None` for any other
/// address.
fn nat64_class(config: &JudgeConfig, address: Ipv6Addr) -> Option<Class> {
    // The longest prefix decides, as in routing.
    let prefix = config
        .nat64_prefixes
        .iter()
        .filter(|prefix| prefix.contains(address))
        .max_by_key(|prefix| prefix.length())?;
    Some(match prefix.decode(address) {
        Some(inner) => carried_class(config, inner),
        None => Class::Blocked("nat64_malformed"),
    })
}

/// Whether it is an ISATAP address around a blocked one (8.3).
fn carries_blocked(config: &JudgeConfig, address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => addrclass::isatap_address(address)
            .is_some_and(|inner| carried_class(config, inner).is_blocked()),
        IpAddr::V4(_) => false,
    }
}

/// The class of an IPv4 address that an IPv6 address carries. Opened ranges do not apply (8.6).
fn carried_class(config: &JudgeConfig, inner: Ipv4Addr) -> Class {
    match listed_addition(config, inner.into()) {
        Some(name) => Class::Blocked(name),
        // `classify_native` is not used: opened ranges and prefixes inside prefixes must not apply.
        None => addrclass::classify(inner.into()),
    }
}

fn is_provider_service(address: Ipv6Addr) -> bool {
    let number = address.to_bits();
    PROVIDER_SERVICES
        .iter()
        .any(|block| block.first <= number && number <= block.last)
}
