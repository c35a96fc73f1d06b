//! Fetches under the rules of policy files.

use std::sync::Arc;

use dray_guard::ruleset::PolicyText;
use dray_guard::{Caller, RuleSet};
use dray_testkit::http::ResponseScript;

use super::fake_network::*;
use crate::fetch::{FetchJob, Fetcher};

const POLICY: &str = r#"
[[deny]]
name = "other"
hosts = ["other.example.org"]

[[role]]
name = "acme"
tenants = ["acme"]
[[role.rule]]
name = "private-files"
outcome = "deny"
paths = ["/private/**"]
[[role.rule]]
name = "tables"
outcome = "allow"
hosts = ["files.example.org"]
methods = ["GET"]
media_types = ["text/csv"]
max_bytes = 8
[[role.rule]]
name = "rest"
outcome = "allow"
"#;

fn ruled(fixture: &FetcherFixture, text: &str) -> Fetcher {
    let fetcher = fixture.fetcher();
    set_rules(&fetcher, text);
    fetcher
}

fn set_rules(fetcher: &Fetcher, text: &str) {
    let rules = RuleSet::parse(&[PolicyText::new("policy.toml", text)]).unwrap();
    fetcher.set_rules(Arc::new(rules));
}

fn job_of(tenant: &str, url: &str) -> FetchJob {
    FetchJob {
        caller: Caller {
            tenant: tenant.to_owned(),
            ..Caller::default()
        },
        ..request(url)
    }
}

fn csv(body: &str) -> ResponseScript {
    ResponseScript::with_fields(&[("Content-Type", "text/csv; charset=utf-8")], body)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_rule_allows_is_refused_before_any_query() {
    let fixture = FetcherFixture::default();
    let fetcher = ruled(&fixture, POLICY);
    for (tenant, url, rule) in [
        (
            "acme",
            "http://other.example.org/",
            "deny/other (policy.toml:2)",
        ),
        (
            "acme",
            "http://files.example.org/private/a",
            "acme/private-files (policy.toml:9)",
        ),
        (
            "acme",
            "http://files.example.org/a/%2e%2e/private/a",
            "acme/private-files (policy.toml:9)",
        ),
        ("umbrella", "http://files.example.org/", "default"),
    ] {
        let outcome = run(&fetcher, &job_of(tenant, url)).await;
        assert_eq!(outcome.end(), ("policy_denied", "policy"), "{url}");
        let decision = outcome.record.decision.unwrap();
        assert_eq!(decision.rule.to_string(), rule);
        assert_eq!(outcome.record.rules_digest.len(), 64);
    }
    assert_eq!(fixture.fake_network.queried_names(), Vec::<String>::new());
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn i_5_a_rule_that_allows_opens_nothing_that_is_closed() {
    let mut fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("inside.example.org", &["10.0.0.1"]);
    fixture
        .fake_network
        .name("meta.example.org", &["169.254.169.254"]);
    let open = "default = \"allow\"\n[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"allow\"\n\
                hosts = [\"inside.example.org\", \"meta.example.org\", \"files.example.org\"]\n";
    for (url, code) in [
        ("http://inside.example.org/", "ssrf_blocked"),
        ("http://meta.example.org/", "ssrf_blocked"),
        ("http://127.0.0.1/", "ssrf_blocked"),
        ("http://localhost/", "blocked_host"),
        ("http://files.example.org:22/", "port_not_allowed"),
    ] {
        let outcome = run(&ruled(&fixture, open), &job_of("acme", url)).await;
        assert_eq!(outcome.code(), code, "{url}");
    }
    fixture.admin.host_allowlist =
        Some(dray_guard::HostPatterns::parse(["x.example.org"]).unwrap());
    let outcome = run(
        &ruled(&fixture, open),
        &job_of("acme", "http://files.example.org/"),
    )
    .await;
    assert_eq!(outcome.code(), "host_not_in_admin_allowlist");
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rule_limits_type_and_size_of_the_response() {
    let fixture = FetcherFixture::default();
    let fetcher = ruled(&fixture, POLICY);
    let job = job_of("acme", "http://files.example.org/");
    for (script, end) in [
        (csv("12345678"), ("ok", "")),
        (csv("123456789"), ("too_large", "head")),
        (ResponseScript::ok("1"), ("media_type_not_allowed", "head")),
        (
            ResponseScript::with_fields(&[("Content-Type", "text/html")], "1"),
            ("media_type_not_allowed", "head"),
        ),
    ] {
        fixture.fake_network.serve(PUBLIC_ADDRESS, script);
        assert_eq!(run(&fetcher, &job).await.end(), end);
    }
}

#[tokio::test(start_paused = true)]
async fn x_5_every_redirect_target_is_judged_by_the_rules() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("other.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture
        .fake_network
        .name("third.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture.fake_network.serve(
        OTHER_PUBLIC_ADDRESS,
        ResponseScript::ok("more than eight bytes"),
    );
    let fetcher = ruled(&fixture, POLICY);
    for (target, code, rule) in [
        ("http://other.example.org/", "policy_denied", "deny/other"),
        (
            "http://third.example.org/private/x",
            "policy_denied",
            "acme/private-files",
        ),
        // The limits are those of the rule that allows the last hop.
        ("http://third.example.org/x", "ok", "acme/rest"),
    ] {
        fixture
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::redirect(302, target));
        let outcome = run(&fetcher, &job_of("acme", "http://files.example.org/")).await;
        assert_eq!(outcome.code(), code, "{target}");
        assert_eq!(outcome.record.decision.unwrap().rule.name, rule);
    }
    assert!(
        !fixture
            .fake_network
            .queried_names()
            .contains(&"other.example.org".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn c_4_rules_that_change_during_a_fetch_do_not_change_it() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.serve(PUBLIC_ADDRESS, csv("hello"));
    fixture
        .fake_network
        .slow("files.example.org", std::time::Duration::from_secs(1));
    let fetcher = ruled(&fixture, POLICY);
    let job = job_of("acme", "http://files.example.org/");
    let digest = fetcher.rules().unwrap().digest().to_owned();
    let (outcome, ()) = tokio::join!(run(&fetcher, &job), async {
        // paused clock: the fetch waits for DNS
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        set_rules(&fetcher, "default = \"deny\"");
    });
    assert_eq!(
        (outcome.code(), outcome.record.rules_digest),
        ("ok", digest)
    );
    assert_eq!(run(&fetcher, &job).await.code(), "policy_denied");
}

#[tokio::test(start_paused = true)]
async fn what_is_only_tried_passes_and_is_recorded() {
    let fixture = FetcherFixture::default();
    let trial = format!("report_only = true\n{POLICY}");
    let outcome = run(
        &ruled(&fixture, &trial),
        &job_of("umbrella", "http://files.example.org/"),
    )
    .await;
    assert_eq!(outcome.code(), "ok");
    assert_eq!(outcome.record.reported.unwrap().name, "default");
    let outcome = run(
        &ruled(&fixture, &trial),
        &job_of("acme", "http://files.example.org/private/x"),
    )
    .await;
    assert_eq!(outcome.record.reported.unwrap().name, "acme/private-files");
}
