//! Tests of decisions that are made before any DNS request or connection.

use dray_guard::{HostPatterns, PrivateRanges};

use super::fake_network::*;
use dray_guard::{AdminPolicy, AppPolicy};

fn patterns(items: &[&str]) -> HostPatterns {
    HostPatterns::parse(items).unwrap()
}

fn app(enabled: Option<bool>, hosts: Option<&[&str]>) -> AppPolicy {
    AppPolicy {
        enabled,
        host_allowlist: hosts.map(|hosts| hosts.iter().map(|host| (*host).to_owned()).collect()),
    }
}

#[tokio::test(start_paused = true)]
async fn section_3_2_the_switches_decide_before_everything_else() {
    let rows = [
        (false, None, "disabled_by_admin"),
        (false, Some(true), "disabled_by_admin"),
        (false, Some(false), "disabled_by_admin"),
        (true, None, "ok"),
        (true, Some(true), "ok"),
        (true, Some(false), "disabled_by_app"),
    ];
    for (enabled, app_enabled, expected) in rows {
        let mut fixture = FetcherFixture::default();
        fixture.admin.enabled = enabled;
        let outcome = fixture
            .fetch_for("http://files.example.org/", app(app_enabled, None))
            .await;
        assert_eq!(outcome.code(), expected, "{enabled} {app_enabled:?}");
        let invalid = fixture
            .fetch_for("no url at all", app(app_enabled, None))
            .await;
        let expected = if expected == "ok" {
            "invalid_url"
        } else {
            expected
        };
        assert_eq!(invalid.code(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn section_3_3_the_allowlists_decide_without_a_dns_query() {
    let host = "files.example.org";
    let rows = [
        (None, None, "ok"),
        (None, Some(host), "ok"),
        (None, Some("other.example.org"), "host_not_in_app_allowlist"),
        (None, Some(""), "host_not_in_app_allowlist"),
        (Some(host), None, "ok"),
        (Some("*.example.com"), None, "host_not_in_admin_allowlist"),
        (Some("*.example.org"), Some(host), "ok"),
        (
            Some(host),
            Some("a.example.org"),
            "host_not_in_app_allowlist",
        ),
        (
            Some("a.example.org"),
            Some(host),
            "host_not_in_admin_allowlist",
        ),
        (
            Some("a.example.org"),
            Some("b.example.org"),
            "host_not_in_admin_allowlist",
        ),
        (Some(host), Some(""), "host_not_in_app_allowlist"),
        (
            Some("a.example.org"),
            Some(""),
            "host_not_in_admin_allowlist",
        ),
    ];
    for (admin, app_host, expected) in rows {
        let mut fixture = FetcherFixture::default();
        fixture.admin.host_allowlist = admin.map(|host| patterns(&[host]));
        let list: Option<Vec<&str>> =
            app_host.map(|host| if host.is_empty() { vec![] } else { vec![host] });
        let outcome = fixture
            .fetch_for("http://files.example.org/", app(None, list.as_deref()))
            .await;
        assert_eq!(outcome.code(), expected, "{admin:?} {app_host:?}");
        if expected != "ok" {
            assert_eq!(
                fixture.fake_network.queried_names(),
                Vec::<String>::new(),
                "3.1: nothing was resolved"
            );
            assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c_3_an_app_cannot_widen_the_policy_and_an_absent_list_changes_nothing() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.host_allowlist = Some(patterns(&["other.example.org"]));
    let outcome = fixture
        .fetch_for(
            "http://files.example.org/",
            app(Some(true), Some(&["files.example.org"])),
        )
        .await;
    assert_eq!(outcome.code(), "host_not_in_admin_allowlist", "I-5");
    assert_eq!(
        FetcherFixture::default()
            .fetch_for("http://files.example.org/", AppPolicy::default())
            .await
            .code(),
        "ok"
    );
}

#[tokio::test(start_paused = true)]
async fn p_4_an_invalid_app_pattern_refuses_every_fetch() {
    let fixture = FetcherFixture::default();
    let outcome = fixture
        .fetch_for(
            "http://files.example.org/",
            app(None, Some(&["files.example.org", "*"])),
        )
        .await;
    assert_eq!(outcome.end(), ("policy_invalid", "policy"));
}

#[tokio::test(start_paused = true)]
async fn p_3_an_allowlisted_name_is_still_judged_by_address() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.host_allowlist = Some(patterns(&["files.example.org"]));
    fixture
        .fake_network
        .name("files.example.org", &["127.0.0.1"]);
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ssrf_blocked"
    );
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new(), "I-1");
}

#[tokio::test(start_paused = true)]
async fn i_1_no_spelling_of_a_blocked_address_is_dialled() {
    let fixture = FetcherFixture::default();
    let rows = [
        ("http://127.0.0.1/", "ssrf_blocked"),
        ("http://169.254.169.254/latest/meta-data/", "ssrf_blocked"),
        ("http://[::1]/", "ssrf_blocked"),
        ("http://[::ffff:127.0.0.1]/", "ssrf_blocked"),
        ("http://[64:ff9b::7f00:1]/", "ssrf_blocked"),
        ("http://2130706433/", "ambiguous_host"),
        ("http://0x7f.1/", "ambiguous_host"),
        ("http://127.1/", "ambiguous_host"),
        ("http://localhost/", "blocked_host"),
        ("http://metadata.google.internal/", "blocked_host"),
        ("http://user@files.example.org/", "url_credentials"),
        ("http://files.example.org:22/", "port_not_allowed"),
        ("file:///etc/passwd", "unsupported_scheme"),
        ("gopher://127.0.0.1/", "unsupported_scheme"),
        ("http://files.example.org\\@127.0.0.1/", "invalid_url"),
    ];
    for (url, expected) in rows {
        assert_eq!(fixture.fetch(url).await.code(), expected, "{url}");
    }
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new());
    assert_eq!(fixture.fake_network.queried_names(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn c_4_the_policy_is_frozen_and_its_digest_recorded() {
    let fixture = FetcherFixture::default();
    let one = fixture
        .fetch("http://files.example.org/")
        .await
        .record
        .policy_digest;
    let same = fixture
        .fetch("http://files.example.org/other")
        .await
        .record
        .policy_digest;
    let other = fixture
        .fetch_for("http://files.example.org/", app(Some(true), None))
        .await
        .record
        .policy_digest;
    assert_eq!(one.len(), 64);
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[tokio::test(start_paused = true)]
async fn c_2_the_size_limit_is_clamped_and_zero_means_the_default() {
    let mut fixture = FetcherFixture::default();
    fixture.settings.size = 5;
    fixture.settings.size_ceiling = 8;
    let fetcher = fixture.fetcher();
    let rows = [
        (0, 5, "ok"),
        (0, 6, "too_large"),
        (6, 6, "ok"),
        (6, 7, "too_large"),
        (u64::MAX, 8, "ok"),
        (u64::MAX, 9, "too_large"),
    ];
    for (size_limit, size, expected) in rows {
        fixture.fake_network.serve(
            PUBLIC_ADDRESS,
            dray_testkit::http::ResponseScript::ok(vec![b'x'; size]),
        );
        let request = crate::fetch::FetchJob {
            size_limit,
            ..request("http://files.example.org/")
        };
        assert_eq!(
            run(&fetcher, &request).await.code(),
            expected,
            "{size_limit} {size}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn section_8_6_an_opened_range_opens_no_other_address() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.private_ranges = PrivateRanges::parse("10.1.0.0/16").unwrap();
    fixture
        .fake_network
        .name("inside.example.org", &["10.1.2.3"]);
    fixture
        .fake_network
        .name("beside.example.org", &["10.2.0.1"]);
    fixture
        .fake_network
        .name("mixed.example.org", &["10.1.2.3", PUBLIC_ADDRESS]);
    fixture
        .fake_network
        .serve("10.1.2.3", dray_testkit::http::ResponseScript::ok("inside"));
    let outcome = fixture.fetch("http://inside.example.org/").await;
    assert_eq!(outcome.code(), "ok");
    assert_eq!(
        outcome.record.hops[0].answers[0].class.to_string(),
        "opened:10.1.0.0/16"
    );
    assert_eq!(fixture.fetch("http://10.1.2.3/").await.code(), "ok");
    for url in [
        "http://beside.example.org/",
        "http://mixed.example.org/",
        "http://10.2.0.1/",
        "http://127.0.0.1/",
    ] {
        assert_eq!(fixture.fetch(url).await.code(), "ssrf_blocked", "{url}");
    }
    fixture.judge.own_addresses = vec!["10.1.2.3".parse().unwrap()];
    assert_eq!(
        fixture.fetch("http://inside.example.org/").await.code(),
        "ssrf_blocked",
        "8.4 wins"
    );
}

#[tokio::test(start_paused = true)]
async fn section_17_messages_name_the_url_and_never_an_address() {
    let mut fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("inside.example.org", &["10.11.12.13"]);
    let outcome = fixture
        .fetch("http://inside.example.org/a?token=secret#part")
        .await;
    assert_eq!(
        outcome.message(),
        "External URL http://inside.example.org/a resolves to a blocked address \
         (loopback, private, link-local, or cloud-metadata)."
    );
    let outcome = fixture.fetch("http://nowhere.example.org/").await;
    assert_eq!(
        outcome.message(),
        "External URL http://nowhere.example.org/ could not be fetched. could not resolve host nowhere.example.org."
    );
    fixture.admin = AdminPolicy::default();
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(
        outcome.message(),
        "External URL fetching is disabled by operator policy (EXTERNAL_URL_FETCH_ENABLED)."
    );
}
