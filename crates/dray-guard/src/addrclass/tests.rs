//! Tests every row of 8.1, 8.2 and 8.4 at its borders, and all of IPv4 with an independent table.

use super::*;

mod exhaustive;
mod rows;

fn class(address: &str) -> &'static str {
    classify(address.parse().unwrap()).as_str()
}

#[test]
fn ordinary_addresses_are_public() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.216.34",
        "2606:4700:4700::1111",
        "2a00:1450:4001:81b::200e",
        "2400:cb00::1",
    ] {
        assert_eq!(class(address), "public", "{address}");
    }
}

/// 8.1 and 8.2 name these addresses one by one.
#[test]
fn known_metadata_and_service_addresses_are_blocked() {
    for address in [
        "0.0.0.0",
        "100.100.100.200",
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.169.253",
        "169.254.169.123",
        "169.254.42.42",
        "169.254.0.23",
        "169.254.20.10",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::253",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fd00:a9fe:a9fe::1",
        "fd00:100::100:200",
        "fe80::a9fe:a9fe",
    ] {
        assert!(classify(address.parse().unwrap()).is_blocked(), "{address}");
    }
}

/// 8.3: all forms of an address get the same verdict.
#[test]
fn mapped_addresses_have_the_class_of_their_ipv4_address() {
    let check = |address: &str, expected: &str| assert_eq!(class(address), expected, "{address}");
    check("::ffff:8.8.8.8", "public");
    check("::ffff:127.0.0.1", "loopback");
    check("::ffff:10.0.0.1", "private_use");
    check("::ffff:169.254.169.254", "link_local");
    check("::ffff:168.63.129.16", "azure_platform");
}

/// 8.3: compatible, translated, NAT64, 6to4 and Teredo forms are refused as blocks, with any content.
#[test]
fn other_embedded_forms_are_refused_as_blocks() {
    let check = |address: &str, expected: &str| assert_eq!(class(address), expected, "{address}");
    check("::8.8.8.8", "ipv4_compatible");
    check("::ffff:0:8.8.8.8", "ipv4_translated");
    check("64:ff9b::8.8.8.8", "nat64");
    check("64:ff9b:1::8.8.8.8", "nat64_local");
    check("2002:808:808::1", "six_to_four");
    check("2001:0:808:808::", "teredo");
}

/// 8.3: ISATAP interface identifiers under a global prefix, with both values of the universal bit.
#[test]
fn isatap_around_a_blocked_address_is_refused() {
    let check = |address: &str, expected: &str| assert_eq!(class(address), expected, "{address}");
    check("2606:4700::5efe:10.0.0.1", "isatap");
    check("2606:4700::200:5efe:127.0.0.1", "isatap");
    check("2606:4700::5efe:168.63.129.16", "isatap");
    check("2606:4700::5efe:8.8.8.8", "public");
    check("2606:4700::100:5efe:10.0.0.1", "public");
    check("2606:4700::5eff:10.0.0.1", "public");
    check("fe80::5efe:8.8.8.8", "link_local");
}

/// Section 24: metrics and audit events have the edition.
#[test]
fn the_tables_carry_their_edition() {
    assert_eq!(TABLE_EDITION, "2025-10-09");
}

/// S-3: firewall rules are made from the same rows.
#[test]
fn networks_for_firewalls_are_exact_and_blocked() {
    let networks: Vec<_> = blocked_networks().collect();
    assert_eq!(networks.len(), IPV4_BLOCKS.len() + IPV6_BLOCKS.len());
    for network in networks {
        assert_eq!(network, network.trunc());
        if network.to_string() != "::ffff:0.0.0.0/96" {
            assert!(classify(network.network()).is_blocked(), "{network}");
            assert!(classify(network.broadcast()).is_blocked(), "{network}");
        }
    }
}

#[test]
fn classes_print_for_audit_and_label_metrics() {
    let opened = Class::Opened("10.1.0.0/16".parse().unwrap());
    assert_eq!(
        (opened.to_string().as_str(), opened.as_str()),
        ("opened:10.1.0.0/16", "opened")
    );
    assert_eq!(Class::Public.to_string(), "public");
    assert_eq!(Class::Blocked("loopback").to_string(), "loopback");
}
