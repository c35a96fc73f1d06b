//! Tests of properties that hold for every input (section 23.2).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;

use crate::{
    AdminPolicy, AppPolicy, CanonicalUrl, Chain, Class, Code, DnsAnswer, EffectivePolicy,
    HopContext, Host, HostPatterns, Judge, JudgeConfig, Network, classify,
};

/// Texts that are almost URLs: parts that matter to parsers, in any order.
fn url_text() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        4 => Just("http://".to_owned()).boxed(),
        4 => Just("https://".to_owned()).boxed(),
        8 => "[a-z0-9_-]{1,8}(\\.[a-z0-9]{1,5}){0,3}".boxed(),
        2 => "[0-9]{1,3}(\\.[0-9]{1,3}){0,4}".boxed(),
        2 => "\\[[0-9a-f:.]{2,20}\\]".boxed(),
        2 => ":[0-9]{0,6}".boxed(),
        1 => Just("@".to_owned()).boxed(),
        1 => "[/?#%.\\\\]{1,2}".boxed(),
        1 => "\\PC{1,3}".boxed(),
        1 => "[αéüß例ｅ。\u{ad}\u{200d}]{1,3}".boxed(),
        1 => any::<char>().prop_map(String::from).boxed(),
    ];
    proptest::collection::vec(fragment, 1..8).prop_map(|pieces| pieces.concat())
}

/// Texts that begin like a URL with a plausible host, so that most are accepted.
fn plausible() -> impl Strategy<Value = String> {
    "https?://([a-z0-9]{1,6}\\.){1,3}(com|[a-z]{2,4})\\.?(:80|:8443)?(/[!-~&&[^\\\\]]{0,20})?(\\?[!-~&&[^\\\\]]{0,9})?"
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        // Global unicast, and IPv4-mapped.
        any::<u128>().prop_map(|bits| Ipv6Addr::from_bits((bits >> 3) | (1 << 125)).into()),
        any::<u32>()
            .prop_map(|bits| Ipv6Addr::from_bits(0xffff_0000_0000 | u128::from(bits)).into()),
    ]
}

fn check_canonical(text: &str) -> Result<(), TestCaseError> {
    let Ok(url) = CanonicalUrl::parse(text) else {
        return Ok(());
    };
    let canonical = url.to_string();
    // canon(canon(x)) == canon(x)
    prop_assert_eq!(CanonicalUrl::parse(&canonical), Ok(url.clone()));
    // Every other parser sees the same host.
    let whatwg = url::Url::parse(&canonical).unwrap();
    let uri: http::Uri = canonical.parse().unwrap();
    let root = if url.root_dot() { "." } else { "" };
    let host = format!("{}{root}", url.host());
    prop_assert_eq!(whatwg.host_str(), Some(host.as_str()));
    prop_assert_eq!(uri.host(), Some(host.as_str()));
    prop_assert_eq!(whatwg.port_or_known_default(), Some(url.port()));
    // No host has a byte outside its alphabet.
    match url.host() {
        Host::Name(name) => {
            let is_clean =
                |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
            prop_assert!(name.as_str().bytes().all(is_clean));
            prop_assert!(name.as_str().len() <= 253);
            prop_assert!(name.as_str().parse::<IpAddr>().is_err());
        }
        Host::Ip(address) => prop_assert_eq!(address.to_canonical(), *address),
    }
    let (_, rest) = canonical.split_once("://").unwrap();
    let (authority, _) = rest.split_once('/').unwrap();
    prop_assert!(!authority.contains(['@', '%', '?', '#']), "{}", authority);
    prop_assert!(canonical.is_ascii() && !canonical.contains(['#', '\\', ' ']));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    // U-11
    #[test]
    fn u_11_accepted_urls_are_canonical_and_parsed_alike(text in url_text()) {
        check_canonical(&text)?;
    }

    // U-11
    #[test]
    fn u_11_plausible_urls_are_canonical_and_read_alike(text in plausible()) {
        check_canonical(&text)?;
    }

    #[test]
    fn any_text_is_decided_without_a_panic(text in any::<String>()) {
        check_canonical(&text)?;
        check_canonical(&format!("http://{text}/"))?;
        check_canonical(&format!("http://a.example/{text}"))?;
    }

    // I-4
    #[test]
    fn i_4_every_address_has_a_class_and_ipv6_outside_global_unicast_is_blocked(address in address()) {
        let class = classify(address);
        prop_assert!(!matches!(class, Class::Opened(_)));
        if let IpAddr::V6(address) = address.to_canonical() {
            prop_assert!(class.is_blocked() || address.segments()[0] >> 13 == 1);
        }
        prop_assert_eq!(class, classify(address.to_canonical()));
    }

    // I-5: adding a list, of the operator or of the app, never allows more.
    #[test]
    fn i_5_lists_only_narrow(
        text in plausible(),
        patterns in proptest::collection::vec("(\\*\\.)?[a-z]{1,2}\\.(com|[a-z]{2})|\\*\\.com", 0..4),
        more in proptest::collection::vec("(\\*\\.)?[a-z]{1,2}\\.(com|[a-z]{2})|\\*\\.com", 0..4),
    ) {
        let Ok(url) = CanonicalUrl::parse(&text) else { return Ok(()); };
        let decide = |admin: Option<&Vec<String>>, app: Option<&Vec<String>>| {
            let admin = AdminPolicy {
                enabled: true,
                host_allowlist: admin.map(|list| HostPatterns::parse(list).unwrap()),
                ..AdminPolicy::default()
            };
            let app = AppPolicy { enabled: None, host_allowlist: app.cloned() };
            EffectivePolicy::new(&admin, &app).unwrap().check(&url).is_ok()
        };
        let open = decide(None, None);
        let by_admin = decide(Some(&patterns), None);
        let by_app = decide(None, Some(&more));
        let by_both = decide(Some(&patterns), Some(&more));
        prop_assert!(open || !by_admin && !by_app);
        prop_assert_eq!(by_both, by_admin && by_app);
    }

    // D-4, I-1: what is pinned was public or opened, and no address of its answer was blocked.
    #[test]
    fn d_4_nothing_blocked_is_ever_pinned(
        addresses in proptest::collection::vec(address(), 0..12),
        open in any::<bool>(),
        admin_listed in any::<bool>(),
        from_public in any::<bool>(),
    ) {
        let judge = Judge::new(JudgeConfig {
            private_ranges: if open { "10.0.0.0/8,fd00::/8" } else { "" }.parse().unwrap(),
            ..JudgeConfig::default()
        });
        let answer = DnsAnswer { name: "a.example.com".parse().unwrap(), cnames: Vec::new(), addresses, dnssec: crate::DnssecStatus::NotKnown };
        let hop = HopContext { previous: from_public.then_some(Network::Public), admin_listed };
        match judge.judge_answer(&answer, 443, hop) {
            Ok(pinned) => {
                prop_assert!((1..=8).contains(&pinned.addresses().len()));
                for one in pinned.addresses() {
                    let ip = one.socket_addr().ip();
                    prop_assert!(answer.addresses.iter().any(|address| address.to_canonical() == ip));
                    prop_assert!(classify(ip) == Class::Public || open);
                    prop_assert_eq!(judge.reclassify(one.socket_addr(), SocketAddr::from(([192, 0, 2, 1], 40_000)), one), Ok(()));
                }
                prop_assert!(pinned.judged().iter().all(|judged| !judged.class.is_blocked()));
            }
            Err(refusal) => prop_assert_eq!(refusal.judged.len(), answer.addresses.len()),
        }
    }

    // I-3: a followed redirect leads to a URL that could have been written by the agent.
    #[test]
    fn i_3_a_redirect_target_passes_the_checks_of_a_first_url(location in prop_oneof![url_text(), plausible(), any::<String>(), "//?[a-z./]{1,20}"]) {
        let admin = AdminPolicy { enabled: true, allow_downgrade: true, ..AdminPolicy::default() };
        let policy = Arc::new(EffectivePolicy::new(&admin, &AppPolicy::default()).unwrap());
        let mut chain = Chain::start("https://start.example.com/a/b?c", policy.clone()).unwrap();
        match chain.on_redirect(302, &[location.as_bytes()]) {
            Ok(_) => {
                let repeated = Chain::start(&chain.current().to_string(), policy).unwrap();
                prop_assert_eq!(repeated.current(), chain.current());
            }
            Err(refused) => {
                prop_assert_ne!(refused.code, Code::InvalidUrl);
                prop_assert_eq!(chain.hop(), 0);
            }
        }
    }
}
