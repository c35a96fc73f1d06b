//! Tests of sections 7 and 8 with the judge. `opened.rs` tests the list of 8.6.

use super::*;

mod nat64;
mod opened;

fn judge(config: JudgeConfig) -> Judge {
    Judge::new(config)
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn answer(texts: &[&str]) -> DnsAnswer {
    DnsAnswer {
        name: "files.example.com".parse().unwrap(),
        cnames: Vec::new(),
        addresses: addresses(texts),
        dnssec: DnssecStatus::NotKnown,
    }
}

/// The sockets that may be connected to, or the code.
fn decide(judge: &Judge, answer: &DnsAnswer, hop: HopContext) -> Result<Vec<String>, Code> {
    let pinned = judge.judge_answer(answer, 443, hop);
    pinned
        .map(|pinned| {
            let sockets = pinned.addresses().iter();
            sockets
                .map(|pinned| pinned.socket_addr().to_string())
                .collect()
        })
        .map_err(|refusal| refusal.code)
}

#[track_caller]
fn check(config: JudgeConfig, texts: &[&str], expected: Result<&[&str], Code>) {
    let decision = decide(&judge(config), &answer(texts), HopContext::default());
    let expected = expected.map(|sockets| sockets.iter().map(ToString::to_string).collect());
    assert_eq!(decision, expected, "{texts:?}");
}

fn networks(text: &str) -> Vec<IpNet> {
    parse_blocked_networks(text).unwrap()
}

#[test]
fn public_answers_are_pinned_with_the_port_of_the_url() {
    check(JudgeConfig::default(), &["8.8.8.8"], Ok(&["8.8.8.8:443"]));
    check(
        JudgeConfig::default(),
        &["2606:4700::1"],
        Ok(&["[2606:4700::1]:443"]),
    );
    check(JudgeConfig::default(), &[], Err(Code::DnsNotFound));
}

// D-4
#[test]
fn d_4_one_blocked_address_refuses_the_whole_answer() {
    for bad in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "::ffff:10.0.0.1",
        "3fff::1",
    ] {
        check(JudgeConfig::default(), &[bad], Err(Code::SsrfBlocked));
        check(
            JudgeConfig::default(),
            &["8.8.8.8", bad],
            Err(Code::SsrfBlocked),
        );
        check(
            JudgeConfig::default(),
            &[bad, "8.8.8.8"],
            Err(Code::SsrfBlocked),
        );
    }
}

// D-4: the ninth and the last address count as well, although they would not be kept.
#[test]
fn d_4_addresses_are_judged_before_any_is_dropped() {
    let many: Vec<String> = (1..=200).map(|last| format!("8.8.8.{last}")).collect();
    let mut texts: Vec<&str> = many.iter().map(String::as_str).collect();
    let judged = judge(JudgeConfig::default());
    assert_eq!(
        decide(&judged, &answer(&texts), HopContext::default())
            .unwrap()
            .len(),
        MAX_PINNED
    );
    texts.push("127.0.0.1");
    check(JudgeConfig::default(), &texts, Err(Code::SsrfBlocked));
    // D-3: IPv6 addresses are judged even where IPv6 is not used.
    let config = JudgeConfig {
        ipv4_only: true,
        ..JudgeConfig::default()
    };
    check(config, &["8.8.8.8", "::1"], Err(Code::SsrfBlocked));
}

#[test]
fn a_refusal_contains_every_address_with_its_class() {
    let refusal = judge(JudgeConfig::default())
        .judge_answer(
            &answer(&["8.8.8.8", "::ffff:127.0.0.1", "fe80::1"]),
            80,
            HopContext::default(),
        )
        .unwrap_err();
    let classes: Vec<_> = refusal
        .judged
        .iter()
        .map(|judged| format!("{} {}", judged.address, judged.class))
        .collect();
    assert_eq!(
        classes,
        ["8.8.8.8 public", "127.0.0.1 loopback", "fe80::1 link_local"]
    );
    assert_eq!(refusal.to_string(), "ssrf_blocked");
}

// D-5
#[test]
fn d_5_at_most_eight_are_kept_alternating_between_families() {
    let many: Vec<String> = (1..=6)
        .map(|last| format!("8.8.8.{last}"))
        .chain((1..=6).map(|last| format!("2606:4700::{last}")))
        .collect();
    let texts: Vec<&str> = many.iter().map(String::as_str).collect();
    let families = |config| {
        let sockets = decide(&judge(config), &answer(&texts), HopContext::default()).unwrap();
        let family = |socket: &String| if socket.starts_with('[') { '6' } else { '4' };
        sockets.iter().map(family).collect::<String>()
    };
    let with = |ipv4_only, ipv6_first| JudgeConfig {
        ipv4_only,
        ipv6_first,
        ..JudgeConfig::default()
    };
    assert_eq!(families(with(false, false)), "46464646");
    assert_eq!(families(with(false, true)), "64646464");
    assert_eq!(families(with(true, false)), "444444");
    check(
        JudgeConfig::default(),
        &["2606:4700::1", "2606:4700::2", "8.8.8.8", "2606:4700::3"],
        Ok(&[
            "8.8.8.8:443",
            "[2606:4700::1]:443",
            "[2606:4700::2]:443",
            "[2606:4700::3]:443",
        ]),
    );
    check(
        JudgeConfig::default(),
        &["8.8.8.8", "::ffff:8.8.8.8", "8.8.8.8"],
        Ok(&["8.8.8.8:443"]),
    );
    let refusal = judge(with(true, false))
        .judge_answer(&answer(&["2606:4700::1"]), 443, HopContext::default())
        .unwrap_err();
    assert_eq!(
        (refusal.code, refusal.judged.len()),
        (Code::ConnectFailed, 1)
    );
}

// D-10
#[test]
fn d_10_answers_with_more_than_256_addresses_are_refused_after_judging_all() {
    let check = |count: usize, last: &str, expected: Result<(), Code>| {
        let mut answer = answer(&[last]);
        let others = (1..count).map(|index| {
            let [.., high, low] = index.to_be_bytes();
            IpAddr::from([93, 184, high, low])
        });
        answer.addresses.splice(0..0, others);
        let judge = Judge::new(JudgeConfig::default());
        let judged = judge.judge_answer(&answer, 80, HopContext::default());
        if let Err(refusal) = &judged {
            assert_eq!(refusal.judged.len(), count);
        }
        assert_eq!(
            judged.map(drop).map_err(|refusal| refusal.code),
            expected,
            "{count} {last}"
        );
    };
    check(256, "8.8.8.8", Ok(()));
    check(257, "8.8.8.8", Err(Code::DnsFailure));
    check(4000, "10.0.0.1", Err(Code::SsrfBlocked));
}

#[test]
fn d_8_cname_chains_are_short_and_lead_to_names_that_may_be_fetched() {
    let check = |cnames: &[&str], expected: Result<(), Code>| {
        let config = JudgeConfig {
            extra_blocked_hosts: HostPatterns::parse(["*.corp.example.com"]).unwrap(),
            ..JudgeConfig::default()
        };
        let answer = DnsAnswer {
            cnames: cnames.iter().map(ToString::to_string).collect(),
            ..answer(&["8.8.8.8"])
        };
        let decision = decide(&judge(config), &answer, HopContext::default());
        assert_eq!(decision.map(|_| ()), expected, "{cnames:?}");
    };
    check(&["cdn.example.net."], Ok(()));
    check(&["cdn.example.net."; 8], Ok(()));
    check(&["cdn.example.net."; 9], Err(Code::DnsFailure));
    check(&["cdn.example.net.", "localhost."], Err(Code::SsrfBlocked));
    check(
        &["a.svc.cluster.local.", "cdn.example.net."],
        Err(Code::SsrfBlocked),
    );
    check(&["a.corp.example.com."], Err(Code::SsrfBlocked));
    check(&["a\\000b.example.com."], Err(Code::SsrfBlocked));
}

#[test]
fn literals_are_judged_like_answers() {
    let judged = judge(JudgeConfig::default());
    let check = |text: &str, expected: Result<&str, Code>| {
        let decision = judged
            .judge_literal(text.parse().unwrap(), 80, HopContext::default())
            .map(|pinned| pinned.addresses()[0].socket_addr().to_string())
            .map_err(|refusal| refusal.code);
        assert_eq!(
            decision.as_deref().map_err(|code| *code),
            expected,
            "{text}"
        );
    };
    check("8.8.8.8", Ok("8.8.8.8:80"));
    check("2606:4700::1", Ok("[2606:4700::1]:80"));
    check("127.0.0.1", Err(Code::SsrfBlocked));
    check("169.254.169.254", Err(Code::SsrfBlocked));
    check("::", Err(Code::SsrfBlocked));
}

// 8.3
#[test]
fn mapped_addresses_are_unwrapped_before_they_are_pinned() {
    let pinned = judge(JudgeConfig::default())
        .judge_answer(&answer(&["::ffff:8.8.8.8"]), 80, HopContext::default())
        .unwrap();
    assert_eq!(
        pinned.addresses()[0].socket_addr(),
        "8.8.8.8:80".parse().unwrap()
    );
    assert_eq!(pinned.judged()[0].address, addresses(&["8.8.8.8"])[0]);
}

// 8.4
#[test]
fn additions_are_blocked_and_named() {
    let config = JudgeConfig {
        own_addresses: addresses(&["93.184.216.34", "::ffff:93.184.216.35", "2606:4700::5"]),
        protected: networks("93.184.216.40, 93.184.217.0/24"),
        extra_blocked: networks("198.41.0.0/24, 2606:4700:1::/48, ::ffff:199.36.153.4/126"),
        ..JudgeConfig::default()
    };
    let judged = judge(config);
    let check = |text: &str, expected: &str| {
        assert_eq!(
            judged.class(text.parse().unwrap()).as_str(),
            expected,
            "{text}"
        );
    };
    check("93.184.216.33", "public");
    check("93.184.216.34", "own_address");
    check("93.184.216.35", "own_address");
    check("::ffff:93.184.216.34", "own_address");
    check("2606:4700::5", "own_address");
    check("93.184.216.40", "protected");
    check("93.184.217.255", "protected");
    check("198.41.0.255", "operator_blocked");
    check("198.41.1.0", "public");
    check("2606:4700:1::1", "operator_blocked");
    check("199.36.153.7", "operator_blocked");
    check("199.36.153.8", "public");
    check("2606:4700:9::5efe:198.41.0.1", "isatap");
    let later = judged.with_own_addresses(addresses(&["93.184.216.99"]));
    assert_eq!(later.class(addresses(&["93.184.216.34"])[0]), Class::Public);
    assert!(later.class(addresses(&["93.184.216.99"])[0]).is_blocked());
    assert!(later.class(addresses(&["198.41.0.1"])[0]).is_blocked());
}

// 8.4
#[test]
fn lists_of_blocked_networks_are_read_strictly() {
    assert_eq!(networks("  "), []);
    assert_eq!(
        networks("1.2.3.4"),
        [IpNet::from(addresses(&["1.2.3.4"])[0])]
    );
    let refused = |text: &str| parse_blocked_networks(text).unwrap_err();
    for text in [
        "1.2.3.0/33",
        "example.com",
        "1.2.3",
        "1.2.3.4,",
        "1.2.3.4/",
        "::/129",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "10.0.0.0/+8",
    ] {
        assert!(
            matches!(refused(text), NetworksError::NotANetwork(_)),
            "{text}"
        );
    }
    assert_eq!(
        refused("1.2.3.4/24").to_string(),
        "1.2.3.4/24 has bits set after its prefix; write 1.2.3.0/24"
    );
}

// T-2
#[test]
fn the_peer_is_checked_against_the_pin() {
    let judged = judge(JudgeConfig::default());
    let pinned = judged
        .judge_literal(addresses(&["8.8.8.8"])[0], 443, HopContext::default())
        .unwrap();
    let pin = &pinned.addresses()[0];
    let local = "192.0.2.1:40000".parse().unwrap();
    let check = |judge: &Judge, peer: &str, expected: Result<(), Code>| {
        assert_eq!(
            judge.reclassify(peer.parse().unwrap(), local, pin),
            expected,
            "{peer}"
        );
    };
    check(&judged, "8.8.8.8:443", Ok(()));
    check(&judged, "[::ffff:8.8.8.8]:443", Ok(()));
    check(&judged, "8.8.8.8:80", Err(Code::Internal));
    check(&judged, "8.8.4.4:443", Err(Code::Internal));
    check(&judged, "127.0.0.1:443", Err(Code::Internal));
    let blocked_meanwhile = judged.with_own_addresses(addresses(&["8.8.8.8"]));
    check(&blocked_meanwhile, "8.8.8.8:443", Err(Code::SsrfBlocked));
    for own in ["8.8.8.8:40000", "[::ffff:8.8.8.8]:40000"] {
        assert_eq!(
            judged.reclassify(pin.socket_addr(), own.parse().unwrap(), pin),
            Err(Code::SsrfBlocked),
            "both ends are this machine"
        );
    }
}

// I-9: these stay closed under any configuration.
#[test]
fn i_9_no_configuration_opens_loopback_link_local_metadata_shared_or_reserved_space() {
    let config = JudgeConfig {
        private_ranges: "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"
            .parse()
            .unwrap(),
        nat64_prefixes: parse_nat64_prefixes("64:ff9b::/96,64:ff9b:1::/48,2606:4700::/32").unwrap(),
        ..JudgeConfig::default()
    };
    let hop = HopContext {
        previous: None,
        admin_listed: true,
    };
    let judged = judge(config);
    for text in [
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        "169.254.169.254",
        "fe80::1",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "240.0.0.1",
        "255.255.255.255",
        "224.0.0.1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "2606:4700:7f00:1::",
        "2606:4700:a9fe:a9fe::",
        "fec0::1",
        "2002:7f00:1::",
    ] {
        let decision = judged.judge_literal(text.parse().unwrap(), 80, hop);
        assert_eq!(decision.unwrap_err().code, Code::SsrfBlocked, "{text}");
    }
}
