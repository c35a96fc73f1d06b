//! Tests of section 12, I-3, P-5, and the pivot rule of 8.6 along a chain.

use super::*;
use crate::judge::{DnsAnswer, Judge, JudgeConfig};
use crate::pattern::HostPatterns;
use crate::policy::{AdminPolicy, AppPolicy, MaxRedirects};

const FIRST_URL: &str = "https://start.example.com/dir/file?q=1#f";

fn admin() -> AdminPolicy {
    AdminPolicy {
        enabled: true,
        ..AdminPolicy::default()
    }
}

fn start(admin: &AdminPolicy, app: &AppPolicy, text: &str) -> Result<Chain, RefusedUrl> {
    let policy = EffectivePolicy::new(admin, app).unwrap();
    Chain::start(text, Arc::new(policy))
}

fn follow(chain: &mut Chain, location: &str) -> Result<NextHop, Code> {
    chain
        .on_redirect(302, &[location.as_bytes()])
        .map_err(Code::from)
}

#[track_caller]
fn check(admin: &AdminPolicy, first: &str, location: &str, expected: Result<&str, Code>) {
    let mut chain = start(admin, &AppPolicy::default(), first).unwrap();
    let target = follow(&mut chain, location).map(|_| chain.current().to_string());
    assert_eq!(
        target.as_deref().map_err(|code| *code),
        expected,
        "{location}"
    );
}

#[test]
fn references_are_resolved_against_the_current_url() {
    let check = |location, expected| check(&admin(), FIRST_URL, location, Ok(expected));
    check("https://other.example.com/a", "https://other.example.com/a");
    check(
        "//other.example.com:8443/a",
        "https://other.example.com:8443/a",
    );
    check("/abs?x#y", "https://start.example.com/abs?x");
    check("rel", "https://start.example.com/dir/rel");
    check("../up", "https://start.example.com/up");
    check(
        "?only=query",
        "https://start.example.com/dir/file?only=query",
    );
    check("#only-fragment", "https://start.example.com/dir/file?q=1");
    check("./a:b", "https://start.example.com/dir/a:b");
    check("/a//b", "https://start.example.com/a//b");
    check(
        "/%2f%2fevil.example/",
        "https://start.example.com/%2f%2fevil.example/",
    );
    check("/é", "https://start.example.com/%C3%A9");
}

/// A reference with a scheme or an authority is judged as written, without repairs.
#[test]
fn references_that_parsers_would_repair_are_refused() {
    let check = |location, code| check(&admin(), FIRST_URL, location, Err(code));
    check("https:other.example.com", Code::RedirectInvalid);
    check("https:/other.example.com", Code::RedirectInvalid);
    check("https:///other.example.com", Code::RedirectInvalid);
    check("https:", Code::RedirectInvalid);
    check("///other.example.com", Code::RedirectInvalid);
    check("////other.example.com", Code::RedirectInvalid);
    check("//", Code::RedirectInvalid);
    check("//?q", Code::RedirectInvalid);
    check("//other.example.com:0/", Code::RedirectInvalid);
    check("/\\other.example.com", Code::RedirectInvalid);
    check("\\\\other.example.com", Code::RedirectInvalid);
    check("/a b", Code::RedirectInvalid);
    check(" /a", Code::RedirectInvalid);
    check("/a\t", Code::RedirectInvalid);
    check("/a\u{feff}", Code::RedirectInvalid);
    check("https://exam%70le.com/", Code::RedirectInvalid);
}

/// Codes other than `invalid_url` stay unchanged.
#[test]
fn targets_are_refused_with_the_reason_of_their_kind() {
    let check = |location, code| check(&admin(), FIRST_URL, location, Err(code));
    check("ftp://other.example.com/", Code::UnsupportedScheme);
    check("javascript:alert(1)", Code::UnsupportedScheme);
    check("data:text/plain,a", Code::UnsupportedScheme);
    check("file:///etc/passwd", Code::UnsupportedScheme);
    check("https://2130706433/", Code::AmbiguousHost);
    check("//127.1/", Code::AmbiguousHost);
    check("https://１２７.0.0.1/", Code::AmbiguousHost);
    check("https://localhost/", Code::BlockedHost);
    check("//metadata.google.internal/", Code::BlockedHost);
    check("https://other.example.com:22/", Code::PortNotAllowed);
}

//
#[test]
fn x_1_five_redirects_are_six_requests() {
    let mut chain = start(&admin(), &AppPolicy::default(), FIRST_URL).unwrap();
    for number in 1..=5 {
        assert_eq!(
            follow(&mut chain, &format!("/{number}")),
            Ok(NextHop::Follow)
        );
        assert_eq!((chain.followed(), chain.hop()), (number, number));
    }
    assert_eq!(follow(&mut chain, "/6"), Err(Code::RedirectLimit));
    // An invalid location is reported before the limit.
    assert_eq!(follow(&mut chain, ""), Err(Code::RedirectInvalid));
    assert_eq!(chain.followed(), 5);
}

//
#[test]
fn x_1_zero_follows_no_redirect_and_ten_is_the_maximum() {
    for limit in [0, 1, 10] {
        let admin = AdminPolicy {
            max_redirects: MaxRedirects::new(limit).unwrap(),
            ..admin()
        };
        let mut chain = start(&admin, &AppPolicy::default(), FIRST_URL).unwrap();
        for _ in 0..limit {
            assert_eq!(follow(&mut chain, "/same"), Ok(NextHop::Follow));
        }
        assert_eq!(follow(&mut chain, "/same"), Err(Code::RedirectLimit));
    }
}

// the same for all five codes. R-5: 300, 304, 305 and 306 do not redirect.
#[test]
fn x_2_exactly_five_statuses_redirect() {
    for status in 100..600 {
        let mut chain = start(&admin(), &AppPolicy::default(), FIRST_URL).unwrap();
        let next = chain.on_redirect(status, &[b"/next"]).unwrap();
        let expected = if [301, 302, 303, 307, 308].contains(&status) {
            NextHop::Follow
        } else {
            NextHop::Answer
        };
        assert_eq!(next, expected, "{status}");
        assert_eq!(chain.followed(), u32::from(next == NextHop::Follow));
    }
}

//
#[test]
fn x_3_https_does_not_become_http_unless_allowed() {
    let down = "http://other.example.com/";
    let lax = AdminPolicy {
        allow_downgrade: true,
        ..admin()
    };
    let strict = AdminPolicy {
        https_only: true,
        allow_downgrade: true,
        ..admin()
    };
    let plain = "http://start.example.com/";
    check(&admin(), FIRST_URL, down, Err(Code::RedirectDowngrade));
    check(&lax, FIRST_URL, down, Ok(down));
    check(&strict, FIRST_URL, down, Err(Code::UnsupportedScheme));
    check(&admin(), plain, down, Ok(down));
    check(
        &admin(),
        plain,
        "https://other.example.com/",
        Ok("https://other.example.com/"),
    );
    // The downgrade is reported before faults of the target itself.
    check(
        &admin(),
        FIRST_URL,
        "http://localhost:22/",
        Err(Code::RedirectDowngrade),
    );
}

//
#[test]
fn x_4_credentials_in_a_location_are_refused_and_fragments_dropped() {
    for location in [
        "https://u:p@other.example.com/",
        "//u@other.example.com/",
        "//@other.example.com/",
    ] {
        check(&admin(), FIRST_URL, location, Err(Code::UrlCredentials));
    }
    check(
        &admin(),
        FIRST_URL,
        "/a#@b",
        Ok("https://start.example.com/a"),
    );
    check(
        &admin(),
        FIRST_URL,
        "/u:p@a",
        Ok("https://start.example.com/u:p@a"),
    );
}

// X-5, P-5, I-3: the policy of the start holds for every hop.
#[test]
fn x_5_p_5_both_lists_are_enforced_on_every_hop() {
    let admin = AdminPolicy {
        host_allowlist: Some(HostPatterns::parse(["*.example.com"]).unwrap()),
        ..admin()
    };
    let app = AppPolicy {
        enabled: Some(true),
        host_allowlist: Some(vec!["start.example.com".into(), "b.example.com".into()]),
    };
    let mut chain = start(&admin, &app, FIRST_URL).unwrap();
    let digest = chain.policy().digest().to_owned();
    assert_eq!(follow(&mut chain, "//b.example.com/"), Ok(NextHop::Follow));
    assert_eq!(
        follow(&mut chain, "//c.example.com/"),
        Err(Code::HostNotInAppAllowlist)
    );
    assert_eq!(
        follow(&mut chain, "//evil.example/"),
        Err(Code::HostNotInAdminAllowlist)
    );
    assert_eq!(
        follow(&mut chain, "//8.8.8.8/"),
        Err(Code::HostNotInAdminAllowlist)
    );
    assert_eq!(
        follow(&mut chain, "//b.example.com./"),
        Err(Code::HostNotInAdminAllowlist)
    );
    assert_eq!((chain.policy().digest(), chain.hop()), (digest.as_str(), 1));
}

//
#[test]
fn x_6_a_refusal_names_the_hop_and_the_target() {
    let refused = start(&admin(), &AppPolicy::default(), "https://localhost/").unwrap_err();
    assert_eq!((refused.code, refused.hop), (Code::BlockedHost, 0));
    assert_eq!(refused.target.unwrap().host().to_string(), "localhost");
    let refused = start(&admin(), &AppPolicy::default(), "nonsense").unwrap_err();
    assert_eq!(
        (refused.code, refused.hop, refused.target),
        (Code::InvalidUrl, 0, None)
    );

    let mut chain = start(&admin(), &AppPolicy::default(), FIRST_URL).unwrap();
    follow(&mut chain, "/a").unwrap();
    let refused = chain.on_redirect(302, &[b"//printer.local/"]).unwrap_err();
    assert_eq!((refused.code, refused.hop), (Code::BlockedHost, 2));
    assert_eq!(
        refused.target.as_ref().unwrap().host_header(),
        "printer.local"
    );
    assert_eq!(refused.to_string(), "hop 2: blocked_host");
    // The chain stays at its URL.
    assert_eq!((chain.hop(), chain.current().path()), (1, "/a"));
}

#[test]
fn a_redirect_needs_one_readable_location() {
    let check = |locations: &[&[u8]], expected: Result<NextHop, Code>| {
        let mut chain = start(&admin(), &AppPolicy::default(), FIRST_URL).unwrap();
        assert_eq!(
            chain.on_redirect(301, locations).map_err(Code::from),
            expected,
            "{locations:?}"
        );
    };
    check(&[], Err(Code::RedirectInvalid));
    check(&[b""], Err(Code::RedirectInvalid));
    check(&[b"", b""], Err(Code::RedirectInvalid));
    check(&[b"/a", b"/b"], Err(Code::RedirectInvalid));
    check(&[b"/a", b""], Err(Code::RedirectInvalid));
    check(&[b"/\xff"], Err(Code::RedirectInvalid));
    check(&[b"/a\r\nX: y"], Err(Code::RedirectInvalid));
    check(&[b"/a", b"/a", b"/a"], Ok(NextHop::Follow));
    check(&["/é".as_bytes()], Ok(NextHop::Follow));
    check(&["a".repeat(9000).as_bytes()], Err(Code::RedirectInvalid));
}

// P-3
#[test]
fn p_3_a_listed_host_is_still_judged_by_address() {
    let admin = AdminPolicy {
        host_allowlist: Some(HostPatterns::parse(["start.example.com"]).unwrap()),
        ..admin()
    };
    let chain = start(&admin, &AppPolicy::default(), FIRST_URL).unwrap();
    assert!(chain.context().admin_listed);
    for address in ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1"] {
        let judge = Judge::new(JudgeConfig::default());
        let judged = judge.judge_literal(address.parse().unwrap(), 443, chain.context());
        assert_eq!(judged.unwrap_err().code, Code::SsrfBlocked, "{address}");
    }
}

// 8.6: the whole path from the chain to the judge.
#[test]
fn a_public_page_leads_into_an_opened_range_only_when_the_operator_lists_the_host() {
    let judge = Judge::new(JudgeConfig {
        private_ranges: "10.20.0.0/16".parse().unwrap(),
        ..JudgeConfig::default()
    });
    let judged = |chain: &mut Chain, address: &str| {
        let answer = DnsAnswer {
            name: "files.example.com".parse().unwrap(),
            cnames: Vec::new(),
            addresses: vec![address.parse().unwrap()],
            dnssec: crate::DnssecStatus::NotKnown,
        };
        let pinned = judge.judge_answer(&answer, chain.current().port(), chain.context());
        pinned
            .map(|pinned| chain.record_network(&pinned))
            .map_err(|refusal| refusal.code)
    };
    let begin = |list: Option<&str>| {
        let admin = AdminPolicy {
            host_allowlist: list.map(|text| HostPatterns::parse(text.split(',')).unwrap()),
            ..admin()
        };
        start(&admin, &AppPolicy::default(), FIRST_URL).unwrap()
    };
    let (public, inside) = ("8.8.8.8", "10.20.0.1");

    let mut direct = begin(None);
    assert_eq!(judged(&mut direct, inside), Ok(()));
    follow(&mut direct, "/again").unwrap();
    assert_eq!(judged(&mut direct, inside), Ok(()));
    follow(&mut direct, "/out").unwrap();
    assert_eq!(judged(&mut direct, public), Ok(()));
    follow(&mut direct, "/in").unwrap();
    // The request for the robots.txt of the host is refused too.
    let mut robots = direct.for_robots().unwrap();
    assert_eq!(robots.current().path_and_query(), "/robots.txt");
    assert_eq!(robots.hop(), 0);
    assert_eq!(judged(&mut robots, inside), Err(Code::SsrfBlocked));
    assert_eq!(judged(&mut direct, inside), Err(Code::SsrfBlocked));

    let mut listed = begin(Some("*.example.com"));
    assert_eq!(judged(&mut listed, public), Ok(()));
    follow(&mut listed, "//inside.example.com/").unwrap();
    assert_eq!(judged(&mut listed, inside), Ok(()));

    // A hop that was not recorded counts as public.
    let mut forgotten = begin(None);
    follow(&mut forgotten, "/next").unwrap();
    assert_eq!(judged(&mut forgotten, inside), Err(Code::SsrfBlocked));
}
