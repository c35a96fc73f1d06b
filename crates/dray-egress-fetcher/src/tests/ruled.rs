//! Tests of fetches under the rules of policy files.

use std::sync::Arc;

use dray_guard::ruleset::PolicyText;
use dray_guard::{Caller, RuleSet};
use dray_testkit::http::ResponseScript;

use super::fake_network::*;
use crate::credential::{Credential, CredentialLocation, CredentialStore};
use crate::fetch::{FetchJob, Fetcher};

const POLICY_TEXT: &str = r#"
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

fn fetcher_with_rules(fixture: &FetcherFixture, text: &str) -> Fetcher {
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
    let fetcher = fetcher_with_rules(&fixture, POLICY_TEXT);
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
        let outcome = run(&fetcher_with_rules(&fixture, open), &job_of("acme", url)).await;
        assert_eq!(outcome.code(), code, "{url}");
    }
    fixture.admin.host_allowlist =
        Some(dray_guard::HostPatterns::parse(["x.example.org"]).unwrap());
    let outcome = run(
        &fetcher_with_rules(&fixture, open),
        &job_of("acme", "http://files.example.org/"),
    )
    .await;
    assert_eq!(outcome.code(), "host_not_in_admin_allowlist");
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rule_limits_type_and_size_of_the_response() {
    let fixture = FetcherFixture::default();
    let fetcher = fetcher_with_rules(&fixture, POLICY_TEXT);
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
    let fetcher = fetcher_with_rules(&fixture, POLICY_TEXT);
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
    let fetcher = fetcher_with_rules(&fixture, POLICY_TEXT);
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
async fn a_refusal_by_a_report_only_policy_passes_and_is_recorded() {
    let fixture = FetcherFixture::default();
    let trial = format!("report_only = true\n{POLICY_TEXT}");
    let outcome = run(
        &fetcher_with_rules(&fixture, &trial),
        &job_of("umbrella", "http://files.example.org/"),
    )
    .await;
    assert_eq!(outcome.code(), "ok");
    assert_eq!(outcome.record.reported.unwrap().name, "default");
    let outcome = run(
        &fetcher_with_rules(&fixture, &trial),
        &job_of("acme", "http://files.example.org/private/x"),
    )
    .await;
    assert_eq!(outcome.record.reported.unwrap().name, "acme/private-files");
}

const QUOTA_TEXT: &str =
    "default = \"allow\"\n[[role]]\nname = \"acme\"\ntenants = [\"acme\"]\n[role.limits]\n";

#[tokio::test(start_paused = true)]
async fn a_tenant_over_its_quota_learns_when_it_refills_and_nothing_is_dialled() {
    let fixture = FetcherFixture::default();
    let clock = dray_types::Clock::manual(3_600_000 * 1000 + 3_540_000);
    let fetcher = fixture.fetcher().with_quotas(clock.clone(), 1);
    set_rules(&fetcher, &format!("{QUOTA_TEXT}requests_per_hour = 1\n"));
    let job = job_of("acme", "http://files.example.org/");
    assert_eq!(run(&fetcher, &job).await.code(), "ok");
    fixture.fake_network.forget_dials();
    let mut record = crate::record::FetchRecord::default();
    let explanation = fetcher.explain(&job, false, &mut record).await;
    assert_eq!(explanation.quota, "acme/requests_per_hour (policy.toml:2)");
    let refused = run(&fetcher, &job).await;
    assert_eq!(refused.end(), ("quota_exceeded", "policy"));
    let fault = refused.result.unwrap_err().fault;
    assert_eq!(
        fault.message,
        "External URL fetching has used the quota of this tenant. The quota refills in 60 seconds."
    );
    let minute = dray_types::RetryAdvice::After(std::time::Duration::from_mins(1));
    assert_eq!(fault.retry, minute);
    assert_eq!(refused.record.quota.unwrap().name, "acme/requests_per_hour");
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new());
    // A refusal is not counted, and the next hour starts from zero.
    assert_eq!(
        run(&fetcher, &job_of("umbrella", &job.url)).await.code(),
        "ok"
    );
    clock.advance(std::time::Duration::from_mins(1));
    assert_eq!(run(&fetcher, &job).await.code(), "ok");
}

#[tokio::test(start_paused = true)]
async fn i_7_a_fetch_ends_when_its_bytes_exceed_the_quota() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::ok(vec![b'x'; 100_000]));
    let fetcher = fetcher_with_rules(&fixture, &format!("{QUOTA_TEXT}bytes_per_day = 50000\n"));
    let job = job_of("acme", "http://files.example.org/");
    let outcome = run(&fetcher, &job).await;
    assert_eq!(outcome.end(), ("quota_exceeded", "body"));
    assert_eq!(outcome.record.quota.unwrap().name, "acme/bytes_per_day");
    let message = outcome.result.unwrap_err().fault.message;
    assert!(message.contains("The quota refills in "), "{message}");
    assert_eq!(
        run(&fetcher, &job).await.end(),
        ("quota_exceeded", "policy")
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_fetch_no_longer_counts_as_concurrent() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .slow("files.example.org", std::time::Duration::from_secs(2));
    let fetcher = fetcher_with_rules(&fixture, &format!("{QUOTA_TEXT}concurrent = 1\n"));
    let job = job_of("acme", "http://files.example.org/");
    let mut dropped = Box::pin(run(&fetcher, &job));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    assert_eq!(run(&fetcher, &job).await.code(), "quota_exceeded");
    drop(dropped);
    assert_eq!(run(&fetcher, &job).await.code(), "ok");
}

fn with_credential(fixture: &FetcherFixture, place: CredentialLocation) -> Fetcher {
    let credential = Credential {
        name: "files".to_owned(),
        host: "files.example.org".to_owned(),
        port: 80,
        place,
        value: dray_types::Secret::new("hunter2"),
        allow_plain_http: true,
        tenants: vec!["acme".to_owned()],
    };
    fixture
        .fetcher()
        .with_credentials(CredentialStore::new(vec![credential]))
}

#[tokio::test(start_paused = true)]
async fn i_6_a_credential_is_sent_in_the_first_hop_to_its_host_and_after_no_redirect() {
    for place in [
        CredentialLocation::Header(http::header::AUTHORIZATION),
        CredentialLocation::Query("key".to_owned()),
    ] {
        let fixture = FetcherFixture::default();
        fixture
            .fake_network
            .name("other.example.org", &[OTHER_PUBLIC_ADDRESS]);
        let server = fixture.fake_network.serve_with(PUBLIC_ADDRESS, |request| {
            if request.target().starts_with("/start") {
                ResponseScript::redirect(302, "http://files.example.org/same")
            } else {
                ResponseScript::redirect(302, "http://other.example.org/end")
            }
        });
        let other = fixture
            .fake_network
            .serve_with(OTHER_PUBLIC_ADDRESS, |_| ResponseScript::ok("hello"));
        let fetcher = with_credential(&fixture, place.clone());
        let outcome = run(&fetcher, &job_of("acme", "http://files.example.org/start")).await;
        assert_eq!(outcome.code(), "ok");
        assert_eq!(outcome.record.credentials, ["files"]);
        assert!(!format!("{:?}", outcome.record).contains("hunter2"));
        let heads: Vec<String> = server
            .received_requests()
            .into_iter()
            .chain(other.received_requests())
            .map(|request| request.head)
            .collect();
        let has_secret: Vec<bool> = heads.iter().map(|head| head.contains("hunter2")).collect();
        assert_eq!(has_secret, [true, false, false], "{place:?} {heads:?}");
        assert_eq!(
            outcome.result.unwrap().final_url,
            "http://other.example.org/end"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn i_6_a_redirect_that_keeps_the_query_does_not_carry_the_credential() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("other.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, |request| {
        let target = request.target();
        match target.split('?').next() {
            Some("/login") => {
                let location = format!(
                    "http://other.example.org/?to={}",
                    target.replace('=', "%3D")
                );
                ResponseScript::redirect(302, &location)
            }
            _ => ResponseScript::redirect(301, &format!("http://other.example.org{target}")),
        }
    });
    let other = fixture
        .fake_network
        .serve_with(OTHER_PUBLIC_ADDRESS, |_| ResponseScript::ok("hello"));
    let fetcher = with_credential(&fixture, CredentialLocation::Query("key".to_owned()));
    let outcome = run(
        &fetcher,
        &job_of("acme", "http://files.example.org/dir?a=b"),
    )
    .await;
    assert_eq!(outcome.code(), "ok");
    let targets: Vec<String> = other
        .received_requests()
        .iter()
        .map(|request| request.target().to_owned())
        .collect();
    assert_eq!(targets, ["/dir?a=b"]);
    // The value within another parameter cannot be removed, so nothing is requested.
    let outcome = run(&fetcher, &job_of("acme", "http://files.example.org/login")).await;
    assert_eq!(outcome.end(), ("malformed_response", "head"));
    assert_eq!(other.received_requests().len(), 1);
    assert!(!format!("{:?}", outcome.record).contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_without_the_credential_sends_none() {
    let fixture = FetcherFixture::default();
    let server = fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |_| ResponseScript::ok("hello"));
    let place = CredentialLocation::Header(http::header::AUTHORIZATION);
    let fetcher = with_credential(&fixture, place);
    let outcome = run(&fetcher, &job_of("umbrella", "http://files.example.org/")).await;
    assert_eq!(outcome.record.credentials, Vec::<String>::new());
    assert!(!server.received_requests()[0].head.contains("hunter2"));
}
