//! Tests of section 6, row by row.

use super::*;

fn name(text: &str) -> CanonicalName {
    text.parse().unwrap()
}

fn is_blocked(text: &str) -> bool {
    is_blocked_name(&name(text), &HostPatterns::default())
}

#[test]
fn every_row_of_section_6_is_blocked_with_what_is_below() {
    let rows = "localhost invalid local onion home.arpa alt arpa internal corp home lan intranet private localdomain \
                svc cluster consul metadata.goog metadata.tencentyun.com metadata.packet.net \
                metadata.platformequinix.com";
    for row in rows.split_whitespace() {
        assert!(is_blocked(row), "{row}");
        assert!(is_blocked(&format!("a.{row}")), "{row}");
        assert!(is_blocked(&format!("B.a.{row}.")), "{row}");
        assert!(!is_blocked(&format!("{row}.example.com")), "{row}");
        assert!(!is_blocked(&format!("a.not{row}.com")), "{row}");
    }
    for name in [
        "1.0.0.127.in-addr.arpa",
        "ipv4only.arpa",
        "resolver.arpa",
        "metadata.google.internal",
    ] {
        assert!(is_blocked(name), "{name}");
    }
}

#[test]
fn single_labels_are_blocked() {
    for name in [
        "localhost",
        "metadata",
        "kubernetes",
        "minio",
        "com",
        "xn--bcher-kva",
    ] {
        assert!(is_blocked(name), "{name}");
    }
}

#[test]
fn names_that_only_look_like_blocked_ones_are_not() {
    for name in [
        "a.test",
        "a.example",
        "localhost.example.com",
        "mylocal.com",
        "internal.example.com",
        "goog.com",
        "xmetadata.goog",
        "a.corporation",
    ] {
        assert!(!is_blocked(name), "{name}");
    }
}

#[test]
fn the_operator_may_add_names() {
    let extra = HostPatterns::parse(["*.corp.example.com", "exact.example.com"]).unwrap();
    let check = |text: &str, expected: bool| {
        assert_eq!(is_blocked_name(&name(text), &extra), expected, "{text}");
        assert_eq!(is_blocked_cname(text, &extra), expected, "{text}");
    };
    check("a.corp.example.com", true);
    check("a.corp.example.com.", true);
    check("corp.example.com", false);
    check("exact.example.com", true);
    check("exact.example.com.", true);
    check("a.exact.example.com", false);
}

// D-8
#[test]
fn d_8_cname_targets_pass_the_same_test() {
    let is_blocked = |target: &str| is_blocked_cname(target, &HostPatterns::default());
    for target in [
        "localhost.",
        "LOCALHOST",
        "a.localhost",
        "kubernetes.default.svc.cluster.local.",
        "metadata.google.internal.",
        "Metadata.GOOG",
        "printer.LAN",
    ] {
        assert!(is_blocked(target), "{target}");
    }
    for target in [
        "cdn.example.net.",
        "_dmarc.example.net",
        "a-.b--c.example.net",
        "test-.example",
    ] {
        assert!(!is_blocked(target), "{target}");
    }
}

// I-4
#[test]
fn i_4_a_cname_target_that_cannot_be_judged_is_blocked() {
    for target in [
        "",
        ".",
        "..",
        "a..example.com",
        "a b.example.com",
        "a\\.internal.example.com",
        "a\\046internal",
        "bücher.example",
        "*.example.com",
        "127.0.0.1",
        "a.0.",
        &format!("{}.com", "a".repeat(64)),
        &format!("{}com", "abcdefg.".repeat(32)),
    ] {
        assert!(
            is_blocked_cname(target, &HostPatterns::default()),
            "{target}"
        );
    }
}
