//! Tests of resolving and pinning over the whole pipeline (section 7).

use dray_testkit::http::ResponseScript;

use super::fake_network::*;
use crate::resolve::DnsError;

#[tokio::test(start_paused = true)]
async fn d_4_any_blocked_address_refuses_the_whole_answer() {
    for blocked in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "::ffff:10.0.0.1",
        "100.64.0.1",
    ] {
        for answers in [[PUBLIC_ADDRESS, blocked], [blocked, PUBLIC_ADDRESS]] {
            let fixture = FetcherFixture::default();
            fixture.fake_network.name("files.example.org", &answers);
            let outcome = fixture.fetch("http://files.example.org/").await;
            assert_eq!(outcome.end(), ("ssrf_blocked", "dns"), "{answers:?}");
            assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new(), "I-1");
            assert_eq!(
                outcome.record.hops[0].answers.len(),
                2,
                "both are in the audit"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d_4_a_blocked_address_after_many_public_ones_refuses_the_answer() {
    let mut addresses: Vec<String> = (1..=40).map(|last| format!("93.184.215.{last}")).collect();
    addresses.push("10.0.0.1".to_owned());
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let fixture = FetcherFixture::default();
    fixture.fake_network.name("files.example.org", &addresses);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ssrf_blocked"
    );
}

#[tokio::test(start_paused = true)]
async fn d_5_at_most_eight_addresses_are_tried_alternating_by_family() {
    let fixture = FetcherFixture::default();
    let v4: Vec<String> = (1..=10).map(|last| format!("93.184.215.{last}")).collect();
    let v6: Vec<String> = (1..=10).map(|last| format!("2606:4700::{last}")).collect();
    let all: Vec<&str> = v6.iter().chain(&v4).map(String::as_str).collect();
    fixture.fake_network.name("files.example.org", &all);
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.end(), ("connect_failed", "connect"));
    let dialled = fixture.fake_network.dialled();
    assert_eq!(dialled.len(), 3 * 8, "in each of three attempts");
    assert_eq!(dialled[..8], dialled[8..16]);
    assert_eq!(
        dialled[..3],
        ["93.184.215.1:80", "[2606:4700::1]:80", "93.184.215.2:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn d_6_a_rebinding_name_is_resolved_once_and_its_pin_holds() {
    let fixture = FetcherFixture::default();
    let public = || Ok(answer("rebind.example.org", &[], &[PUBLIC_ADDRESS]));
    let blocked = || Ok(answer("rebind.example.org", &[], &["127.0.0.1"]));
    fixture
        .fake_network
        .set_dns_answers("rebind.example.org", vec![public(), blocked()]);
    let outcome = fixture.fetch("http://rebind.example.org/").await;
    assert_eq!(
        (outcome.code(), outcome.body),
        ("ok", b"hello".to_vec()),
        "I-2"
    );
    assert_eq!(fixture.fake_network.queried_names().len(), 1);
    assert_eq!(
        fixture.fake_network.dialled(),
        [format!("{PUBLIC_ADDRESS}:80")]
    );
    assert_eq!(
        fixture.fetch("http://rebind.example.org/").await.code(),
        "ssrf_blocked"
    );
}

#[tokio::test(start_paused = true)]
async fn d_6_when_the_pin_fails_the_next_attempt_is_judged_on_its_own_answer() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.set_dns_answers(
        "rebind.example.org",
        vec![
            Ok(answer("rebind.example.org", &[], &["93.184.215.99"])),
            Ok(answer("rebind.example.org", &[], &["127.0.0.1"])),
        ],
    );
    let outcome = fixture.fetch("http://rebind.example.org/").await;
    assert_eq!(outcome.code(), "ssrf_blocked");
    assert_eq!(fixture.fake_network.queried_names().len(), 2);
    assert_eq!(fixture.fake_network.dialled(), ["93.184.215.99:80"]);
    assert_eq!(outcome.record.hops.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn d_7_every_hop_resolves_again_and_is_judged_on_its_own_answer() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.set_dns_answers(
        "rebind.example.org",
        vec![
            Ok(answer("rebind.example.org", &[], &[PUBLIC_ADDRESS])),
            Ok(answer("rebind.example.org", &[], &["169.254.169.254"])),
        ],
    );
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::redirect(302, "http://rebind.example.org/second"),
    );
    let outcome = fixture.fetch("http://rebind.example.org/first").await;
    assert_eq!(outcome.code(), "ssrf_blocked");
    assert_eq!(fixture.fake_network.queried_names().len(), 2);
    assert_eq!(
        fixture.fake_network.dialled(),
        [format!("{PUBLIC_ADDRESS}:80")]
    );
}

#[tokio::test(start_paused = true)]
async fn d_8_refused_alias_targets_are_refused_with_any_address() {
    let rows: [(&[&str], &str); 5] = [
        (&["cdn.example.net."], "ok"),
        (&["cdn.example.net.", "db.internal."], "ssrf_blocked"),
        (&["localhost."], "ssrf_blocked"),
        (&["metadata.google.internal"], "ssrf_blocked"),
        (
            &[
                "a.test", "b.test", "c.test", "d.test", "e.test", "f.test", "g.test", "h.test",
                "i.test",
            ],
            "dns_failure",
        ),
    ];
    for (cnames, expected) in rows {
        let fixture = FetcherFixture::default();
        fixture.fake_network.set_dns_answers(
            "files.example.org",
            vec![Ok(answer("files.example.org", cnames, &[PUBLIC_ADDRESS]))],
        );
        let outcome = fixture.fetch("http://files.example.org/").await;
        assert_eq!(outcome.code(), expected, "{cnames:?}");
        assert_eq!(outcome.record.hops[0].cnames.len(), cnames.len());
    }
}

#[tokio::test(start_paused = true)]
async fn d_3_dns_failures_have_their_own_codes() {
    let rows = [
        (DnsError::NotFound, "dns_not_found"),
        (DnsError::Failure("SERVFAIL".to_owned()), "dns_failure"),
        (DnsError::Timeout, "timeout"),
    ];
    for (error, expected) in rows {
        let fixture = FetcherFixture::default();
        let kind = error.kind();
        fixture
            .fake_network
            .set_dns_answers("files.example.org", vec![Err(error)]);
        let outcome = fixture.fetch("http://files.example.org/").await;
        assert_eq!(outcome.end(), (expected, "dns"));
        assert_eq!(outcome.record.dns_errors, [kind]);
        assert!(
            !outcome.message().contains("SERVFAIL"),
            "section 17: no resolver text"
        );
    }
    let fixture = FetcherFixture::default();
    fixture.fake_network.name("files.example.org", &[]);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "dns_not_found"
    );
}

#[tokio::test(start_paused = true)]
async fn d_3_ipv6_answers_are_judged_even_when_ipv6_is_off() {
    let mut fixture = FetcherFixture::default();
    fixture.judge.ipv4_only = true;
    fixture
        .fake_network
        .name("files.example.org", &[PUBLIC_ADDRESS, "::1"]);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ssrf_blocked"
    );
    fixture
        .fake_network
        .name("files.example.org", &[PUBLIC_V6, PUBLIC_ADDRESS]);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok"
    );
    assert_eq!(
        fixture.fake_network.dialled(),
        [format!("{PUBLIC_ADDRESS}:80")]
    );
    fixture.fake_network.name("files.example.org", &[PUBLIC_V6]);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "connect_failed"
    );
}

#[tokio::test(start_paused = true)]
async fn section_8_3_a_mapped_address_is_dialled_as_ipv4() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("files.example.org", &["::ffff:93.184.215.14"]);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok"
    );
    assert_eq!(
        fixture.fake_network.dialled(),
        [format!("{PUBLIC_ADDRESS}:80")]
    );
}

#[tokio::test(start_paused = true)]
async fn d_9_nat64_addresses_are_judged_by_what_they_carry_once_configured() {
    let mut fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("files.example.org", &["64:ff9b::5db8:d70e"]);
    fixture
        .fake_network
        .serve("64:ff9b::5db8:d70e", ResponseScript::ok("translated"));
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ssrf_blocked"
    );
    fixture.judge.nat64_prefixes = vec!["64:ff9b::/96".parse().unwrap()];
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok"
    );
    fixture
        .fake_network
        .name("files.example.org", &["64:ff9b::7f00:1"]);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ssrf_blocked"
    );
}

#[tokio::test(start_paused = true)]
async fn i_8_a_refusal_does_not_show_whether_the_target_listens() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("inside.example.org", &["10.0.0.7"]);
    let closed = fixture.fetch("http://inside.example.org/x").await;
    fixture
        .fake_network
        .serve("10.0.0.7", ResponseScript::ok("secret"));
    let open = fixture.fetch("http://inside.example.org/x").await;
    assert_eq!(closed.result, open.result);
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new());
}
