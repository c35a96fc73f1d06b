//! Tests of D-9: NAT64 prefixes.

use super::*;

fn with(prefixes: &str) -> JudgeConfig {
    JudgeConfig {
        nat64_prefixes: parse_nat64_prefixes(prefixes).unwrap(),
        ..JudgeConfig::default()
    }
}

fn class(prefixes: &str, text: &str) -> &'static str {
    judge(with(prefixes)).class(text.parse().unwrap()).as_str()
}

#[test]
fn d_9_without_configuration_every_nat64_address_is_blocked() {
    assert_eq!(class("", "64:ff9b::8.8.8.8"), "nat64");
    assert_eq!(class("", "64:ff9b:1::8.8.8.8"), "nat64_local");
}

/// The examples of RFC 6052 2.4 (192.0.2.33), and the same with a public address.
#[test]
fn d_9_the_carried_address_is_judged_for_each_length() {
    for (prefix, documentation, public) in [
        ("2606:db8::/32", "2606:db8:c000:221::", "2606:db8:808:808::"),
        (
            "2606:db8:100::/40",
            "2606:db8:1c0:2:21::",
            "2606:db8:108:808:8::",
        ),
        (
            "2606:db8:122::/48",
            "2606:db8:122:c000:2:2100::",
            "2606:db8:122:808:8:800::",
        ),
        (
            "2606:db8:122:300::/56",
            "2606:db8:122:3c0:0:221::",
            "2606:db8:122:308:8:808::",
        ),
        (
            "2606:db8:122:344::/64",
            "2606:db8:122:344:c0:2:2100::",
            "2606:db8:122:344:8:808:800::",
        ),
        (
            "2606:db8:122:344::/96",
            "2606:db8:122:344::192.0.2.33",
            "2606:db8:122:344::8.8.8.8",
        ),
    ] {
        assert_eq!(class(prefix, documentation), "documentation", "{prefix}");
        assert_eq!(class(prefix, public), "public", "{prefix}");
    }
    assert_eq!(class("64:ff9b::/96", "64:ff9b::8.8.8.8"), "public");
    assert_eq!(class("64:ff9b::/96", "64:ff9b::127.0.0.1"), "loopback");
    assert_eq!(
        class("64:ff9b::/96", "64:ff9b::168.63.129.16"),
        "azure_platform"
    );
    assert_eq!(class("64:ff9b::/96", "64:ff9b:1::8.8.8.8"), "nat64_local");
    assert_eq!(class("64:ff9b:1::/48", "64:ff9b:1:808:8:800::"), "public");
}

#[test]
fn d_9_the_outer_address_is_pinned() {
    check(
        with("64:ff9b::/96"),
        &["64:ff9b::8.8.8.8"],
        Ok(&["[64:ff9b::808:808]:443"]),
    );
    check(
        with("64:ff9b::/96"),
        &["64:ff9b::8.8.8.8", "64:ff9b::10.0.0.1"],
        Err(Code::SsrfBlocked),
    );
}

// I-4
#[test]
fn i_4_an_address_that_cannot_be_decoded_is_blocked() {
    assert_eq!(
        class("2606:db8:122::/48", "2606:db8:122:808:108:800::"),
        "nat64_malformed"
    );
}

#[test]
fn d_9_additions_apply_to_the_carried_address() {
    let config = JudgeConfig {
        extra_blocked: networks("8.8.8.0/24"),
        own_addresses: addresses(&["9.9.9.9"]),
        ..with("64:ff9b::/96")
    };
    let judged = judge(config);
    let class = |text: &str| judged.class(text.parse().unwrap()).as_str();
    assert_eq!(class("64:ff9b::8.8.8.8"), "operator_blocked");
    assert_eq!(class("64:ff9b::9.9.9.9"), "own_address");
    assert_eq!(class("64:ff9b::1.1.1.1"), "public");
}

#[test]
fn d_9_the_longest_prefix_decides() {
    // Under /32 the octets would be 0.0.0.8; under /96 they are 8.8.8.8.
    let text = "2606:db8::8.8.8.8";
    assert_eq!(class("2606:db8::/32,2606:db8::/96", text), "public");
    assert_eq!(class("2606:db8::/32", text), "this_network");
}

#[test]
fn d_9_prefixes_are_read_strictly() {
    let refused = |text: &str| parse_nat64_prefixes(text).unwrap_err();
    for text in ["64:ff9b::", "10.0.0.0/8", "x", "64:ff9b::/96,"] {
        assert!(matches!(refused(text), Nat64Error::NotAPrefix(_)), "{text}");
    }
    for text in ["2606:4700::/33", "2606:4700::/128", "2606::/16", "::/0"] {
        assert!(matches!(refused(text), Nat64Error::Length(_)), "{text}");
    }
    for text in [
        "2606:4700::1/96",
        "2606:4700:0:0:100::/96",
        "2606:4700:1::/32",
    ] {
        assert!(matches!(refused(text), Nat64Error::Bits(_)), "{text}");
    }
    // I-9: no prefix opens special space.
    for text in [
        "fe80::/64",
        "::/96",
        "::ffff:0:0/96",
        "fd00::/96",
        "fd00:ec2::/32",
        "2002::/32",
        "2001::/32",
        "ff00::/32",
        "64:ff9b:2::/48",
        "64:ff9b::/32",
        "3fff::/32",
    ] {
        assert!(matches!(refused(text), Nat64Error::Special(_)), "{text}");
    }
    assert_eq!(parse_nat64_prefixes(" ").unwrap(), []);
    let two = parse_nat64_prefixes("64:ff9b::/96, 2606:4700::/40").unwrap();
    assert_eq!(
        two.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["64:ff9b::/96", "2606:4700::/40"]
    );
}
