//! Tests of 8.6: private ranges that the operator opened, item by item.

use super::*;

fn config_with_ranges(ranges: &str) -> JudgeConfig {
    JudgeConfig {
        private_ranges: ranges.parse().unwrap(),
        ..JudgeConfig::default()
    }
}

fn class(config: JudgeConfig, text: &str) -> String {
    judge(config).class(text.parse().unwrap()).to_string()
}

#[test]
fn an_opened_range_is_reached_and_its_neighbours_are_not() {
    check(
        config_with_ranges("10.20.0.0/16"),
        &["10.20.1.2"],
        Ok(&["10.20.1.2:443"]),
    );
    check(
        config_with_ranges("10.20.0.0/16"),
        &["10.19.255.255"],
        Err(Code::SsrfBlocked),
    );
    check(
        config_with_ranges("10.20.0.0/16"),
        &["10.21.0.0"],
        Err(Code::SsrfBlocked),
    );
    check(
        config_with_ranges("fd12:3456::/48"),
        &["fd12:3456::9"],
        Ok(&["[fd12:3456::9]:443"]),
    );
    check(
        config_with_ranges("fd12:3456::/48"),
        &["fd12:3456:1::9"],
        Err(Code::SsrfBlocked),
    );
    check(
        config_with_ranges(""),
        &["10.20.1.2"],
        Err(Code::SsrfBlocked),
    );
    // The mapped form is the same address.
    check(
        config_with_ranges("10.20.0.0/16"),
        &["::ffff:10.20.1.2"],
        Ok(&["10.20.1.2:443"]),
    );
    let config = config_with_ranges("10.0.0.0/8,10.20.0.0/16");
    assert_eq!(class(config, "10.20.1.2"), "opened:10.20.0.0/16");
}

#[test]
fn entries_are_exact_networks_inside_private_space() {
    for text in [
        "8.8.8.0/24",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "100.64.0.0/10",
        "0.0.0.0/0",
        "172.0.0.0/8",
        "192.0.0.0/8",
        "::/0",
        "::1/128",
        "fe80::/10",
        "fec0::/10",
        "2606:4700::/32",
        "f800::/5",
        "::ffff:10.0.0.0/104",
    ] {
        let error = PrivateRanges::parse(text).unwrap_err();
        assert!(
            matches!(error, PrivateRangeError::NotPrivate(_)),
            "{text}: {error}"
        );
    }
    for text in [
        "10.0.0.1",
        "fd00::1",
        "example.com",
        "10.0.0.0/33",
        "10/8",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "fd00::/+8",
        ",",
        "10.1.0.0/16,",
        "10.0.0.0/8;10.1.0.0/16",
    ] {
        let error = PrivateRanges::parse(text).unwrap_err();
        assert!(
            matches!(error, PrivateRangeError::NotANetwork(_)),
            "{text}: {error}"
        );
    }
    for text in ["10.1.0.1/16", "fd00::1/48", "192.168.1.1/24"] {
        let error = PrivateRanges::parse(text).unwrap_err();
        assert!(
            matches!(error, PrivateRangeError::HostBits(..)),
            "{text}: {error}"
        );
    }
    let ranges = PrivateRanges::parse(" 192.168.1.0/24 , 10.0.0.0/8,10.0.0.0/8, fd00::/8").unwrap();
    assert_eq!(ranges.to_string(), "10.0.0.0/8,192.168.1.0/24,fd00::/8");
    assert!(PrivateRanges::parse(" ").unwrap().is_empty());
}

#[test]
fn wide_entries_are_warned_about() {
    let warnings = |text: &str| PrivateRanges::parse(text).unwrap().warnings().len();
    assert_eq!(warnings("10.0.0.0/15"), 1);
    assert_eq!(warnings("10.0.0.0/16"), 0);
    assert_eq!(warnings("fd00::/47"), 1);
    assert_eq!(warnings("fd00::/48"), 0);
}

#[test]
fn own_protected_and_extra_blocked_addresses_stay_closed_in_an_opened_range() {
    let config = JudgeConfig {
        own_addresses: addresses(&["10.20.0.5"]),
        protected: networks("10.20.0.6, 10.20.96.0/20"),
        extra_blocked: networks("10.20.7.0/24"),
        ..opened("10.20.0.0/16")
    };
    assert_eq!(class(config.clone(), "10.20.0.5"), "own_address");
    assert_eq!(class(config.clone(), "10.20.0.6"), "protected");
    assert_eq!(class(config.clone(), "10.20.100.1"), "protected");
    assert_eq!(class(config.clone(), "10.20.7.1"), "operator_blocked");
    assert_eq!(class(config, "10.20.8.1"), "opened:10.20.0.0/16");
}

#[test]
fn provider_services_stay_closed_inside_an_opened_range() {
    for text in [
        "fd00:ec2::254",
        "fd00:ec2:ffff::1",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fd00:a9fe:a9fe::1",
        "fd00:100::100:200",
    ] {
        assert_eq!(
            class(config_with_ranges("fc00::/7"), text),
            "provider_service",
            "{text}"
        );
    }
    for text in [
        "fd00:ec3::1",
        "fd00:ec1::1",
        "fd00:a9fe:a9ff::1",
        "fd20:cf::1",
    ] {
        assert_eq!(
            class(config_with_ranges("fc00::/7"), text),
            "opened:fc00::/7",
            "{text}"
        );
    }
}

#[test]
fn network_and_broadcast_addresses_of_an_entry_stay_closed() {
    let check = |range: &str, text: &str, expected: &str| {
        assert_eq!(
            class(config_with_ranges(range), text),
            expected,
            "{text} in {range}"
        );
    };
    check("10.20.0.0/16", "10.20.0.0", "range_edge");
    check("10.20.0.0/16", "10.20.255.255", "range_edge");
    check("10.20.0.0/16", "10.20.0.255", "opened:10.20.0.0/16");
    check("10.20.0.0/30", "10.20.0.3", "range_edge");
    check("10.20.0.0/30", "10.20.0.2", "opened:10.20.0.0/30");
    check("10.20.0.0/31", "10.20.0.0", "opened:10.20.0.0/31");
    check("10.20.0.1/32", "10.20.0.1", "opened:10.20.0.1/32");
    check("10.20.0.0/16,10.20.3.0/24", "10.20.3.255", "range_edge");
    check("fd12::/48", "fd12::", "opened:fd12::/48");
}

#[test]
fn d_4_a_response_with_private_and_public_addresses_is_refused() {
    let config = || config_with_ranges("10.20.0.0/16,192.168.7.0/24");
    check(
        config(),
        &["10.20.0.1", "192.168.7.1"],
        Ok(&["10.20.0.1:443", "192.168.7.1:443"]),
    );
    check(config(), &["10.20.0.1", "8.8.8.8"], Err(Code::SsrfBlocked));
    check(config(), &["8.8.8.8", "10.20.0.1"], Err(Code::SsrfBlocked));
    check(
        config(),
        &["10.20.0.1", "10.21.0.1"],
        Err(Code::SsrfBlocked),
    );
    check(
        config(),
        &["2606:4700::1", "192.168.7.1"],
        Err(Code::SsrfBlocked),
    );
}

#[test]
fn a_redirect_from_a_public_hop_enters_only_when_the_operator_lists_the_host() {
    let judged = judge(config_with_ranges("10.20.0.0/16"));
    let check = |previous, admin_listed, text: &str, expected: bool| {
        let hop = HopContext {
            previous,
            admin_listed,
        };
        let by_name = decide(&judged, &answer(&[text]), hop);
        let by_literal = judged.judge_literal(text.parse().unwrap(), 443, hop);
        assert_eq!(by_name.is_ok(), expected, "{hop:?} {text}");
        assert_eq!(by_literal.is_ok(), expected, "{hop:?} {text}");
        if !expected {
            assert_eq!(by_name, Err(Code::SsrfBlocked));
        }
    };
    check(None, false, "10.20.0.1", true);
    check(Some(Network::Public), false, "10.20.0.1", false);
    check(Some(Network::Public), true, "10.20.0.1", true);
    check(Some(Network::Opened), false, "10.20.0.1", true);
    check(Some(Network::Opened), false, "8.8.8.8", true);
    check(Some(Network::Public), false, "8.8.8.8", true);
    check(Some(Network::Public), true, "10.21.0.1", false);
}

#[test]
fn embedded_forms_do_not_become_reachable() {
    let config = || JudgeConfig {
        nat64_prefixes: parse_nat64_prefixes("64:ff9b::/96").unwrap(),
        ..opened("10.0.0.0/8,fd00::/8")
    };
    let check = |text: &str, expected: &str| assert_eq!(class(config(), text), expected, "{text}");
    check("::10.20.0.1", "ipv4_compatible");
    check("::ffff:0:10.20.0.1", "ipv4_translated");
    check("2002:a14:1::", "six_to_four");
    check("2001:0:a14:1::", "teredo");
    check("64:ff9b::10.20.0.1", "private_use");
    check("64:ff9b:1::10.20.0.1", "nat64_local");
    check("2606:4700::5efe:10.20.0.1", "isatap");
    check("fd12::5efe:10.20.0.1", "isatap");
    check("fd12::5efe:8.8.8.8", "opened:fd00::/8");
}
