//! Tests of explaining a judgement: it has the same steps as the judgement of a fetch, and connects to nothing.

use dray_bus::CallError;
use dray_guard::{AppPolicy, HostPatterns, PolicyStep, RuleOwner};
use dray_proto::v1::{self, StepVerdict};
use dray_testkit::egress::{EGRESS_CASES, EGRESS_NAMES};
use dray_testkit::http::ResponseScript;
use dray_types::{Fault, FaultCode};

use super::fake_network::*;
use super::test_service::*;
use crate::fetch::PolicyExplanation;
use crate::record::FetchRecord;

/// URLs of the fuzzing corpus. Each of its files contains one.
fn fuzz_urls() -> Vec<String> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/url_text");
    let files = std::fs::read_dir(directory).unwrap();
    let urls: Vec<String> = files
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert!(urls.len() > 20, "{directory}");
    urls
}

/// A network in which every name of the corpus has its addresses, and every public address a server.
fn corpus_fixture() -> FetcherFixture {
    let fixture = FetcherFixture::default();
    for (name, addresses) in EGRESS_NAMES {
        fixture.fake_network.name(name, addresses);
    }
    for port in [80, 443, 8080, 8443] {
        for address in [PUBLIC_ADDRESS, "8.8.8.8", PUBLIC_V6] {
            let peer = dray_testkit::http::ScriptedResponder::always(ResponseScript::ok("hello"));
            fixture
                .fake_network
                .peer(address, port, FakePeer::Plain(peer));
        }
    }
    fixture
}

async fn explain(
    fixture: &FetcherFixture,
    url: &str,
    app_policy: &AppPolicy,
    resolve_names: bool,
) -> (PolicyExplanation, FetchRecord) {
    let job = crate::fetch::FetchJob {
        app_policy: app_policy.clone(),
        ..request(url)
    };
    let mut record = FetchRecord::default();
    let fetcher = fixture.fetcher();
    let explanation = fetcher.explain(&job, resolve_names, &mut record).await;
    (explanation, record)
}

fn app_policies() -> [AppPolicy; 5] {
    let hosts = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect());
    let policy = |enabled, host_allowlist| AppPolicy {
        enabled,
        host_allowlist,
    };
    [
        AppPolicy::default(),
        policy(Some(false), None),
        policy(None, hosts(&[])),
        policy(None, hosts(&["*.example.org"])),
        policy(None, hosts(&["not a pattern"])),
    ]
}

/// Fixtures with the policies of several operators.
fn operators() -> Vec<FetcherFixture> {
    let mut off = corpus_fixture();
    off.admin.enabled = false;
    let mut strict = corpus_fixture();
    strict.admin.https_only = true;
    strict.admin.host_allowlist = Some(HostPatterns::parse(["*.example.org"]).unwrap());
    let mut blocking = corpus_fixture();
    blocking.admin.blocked_hosts = HostPatterns::parse(["files.example.org"]).unwrap();
    blocking.admin.ports = "80,443".parse().unwrap();
    vec![corpus_fixture(), off, strict, blocking]
}

#[tokio::test(start_paused = true)]
async fn an_explanation_and_a_fetch_agree_on_the_whole_corpus() {
    let corpus = EGRESS_CASES.iter().map(|(url, _)| (*url).to_owned());
    let urls: Vec<String> = corpus.chain(fuzz_urls()).collect();
    for (number, fixture) in operators().into_iter().enumerate() {
        for app in app_policies() {
            for url in &urls {
                let (explanation, record) = explain(&fixture, url, &app, true).await;
                assert_eq!(
                    fixture.fake_network.dialled(),
                    Vec::<String>::new(),
                    "{url}"
                );
                let fetched = fixture.fetch_for(url, app.clone()).await;
                let case = format!("{url:?} under operator {number} for {app:?}");
                // The steps of the fetch are those of the explanation.
                assert_eq!(explanation.steps, fetched.record.steps, "{case}");
                match (&explanation.refusal, &fetched.result) {
                    (Some(refused), Err(failed)) => {
                        assert_eq!(refused, failed, "{case}");
                        let last = explanation.steps.steps().last().unwrap();
                        assert_eq!(last.refusal, Some(refused.code), "{case}");
                    }
                    // The fetch can only fail at something after the judgement.
                    (None, Err(failed)) => {
                        let phase = failed.phase.as_str();
                        assert!(["connect", "tls"].contains(&phase), "{case}: {phase}");
                    }
                    (None, Ok(_)) => {}
                    (Some(refused), Ok(_)) => panic!("{case}: only explained as {refused:?}"),
                }
                assert!(explanation.complete && record.lookup_only, "{case}");
                fixture.fake_network.forget_dials();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_url_of_the_corpus_has_its_expected_verdict() {
    let fixture = corpus_fixture();
    for (url, code) in EGRESS_CASES {
        let (explanation, _) = explain(&fixture, url, &AppPolicy::default(), true).await;
        let refusal = explanation
            .refusal
            .map_or("", |refused| refused.code.as_str());
        assert_eq!(refusal, code, "{url:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_names_nothing_is_looked_up_and_addresses_are_judged() {
    let fixture = FetcherFixture::default();
    let app = AppPolicy::default();
    let (named, _) = explain(&fixture, "http://files.example.org/", &app, false).await;
    assert_eq!((named.refusal, named.complete), (None, false));
    assert!(named.steps.find(PolicyStep::HostName).is_some());
    assert!(named.steps.find(PolicyStep::Resolution).is_none());
    let (literal, _) = explain(&fixture, "http://169.254.169.254/", &app, false).await;
    assert_eq!(literal.refusal.unwrap().code.as_str(), "ssrf_blocked");
    assert!(literal.complete);
    assert_eq!(fixture.fake_network.queried_names(), Vec::<String>::new());
    assert_eq!(fixture.fake_network.dialled(), Vec::<String>::new(), "I-1");
}

#[tokio::test(start_paused = true)]
async fn a_built_in_rule_is_distinguished_from_a_setting() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.blocked_hosts = HostPatterns::parse(["files.example.org"]).unwrap();
    for (url, step, owner) in [
        (
            "http://localhost/",
            PolicyStep::HostName,
            RuleOwner::BuiltIn,
        ),
        (
            "http://files.example.org/",
            PolicyStep::HostName,
            RuleOwner::Operator,
        ),
        (
            "http://a.example.org:25/",
            PolicyStep::Port,
            RuleOwner::BuiltIn,
        ),
        (
            "http://a.example.org:9999/",
            PolicyStep::Port,
            RuleOwner::Operator,
        ),
    ] {
        let (explanation, _) = explain(&fixture, url, &AppPolicy::default(), false).await;
        let judged = explanation.steps.find(step).unwrap();
        assert_eq!(judged.owner, owner, "{url}");
        assert_eq!(
            judged.refusal,
            explanation.refusal.map(|refusal| refusal.code),
            "{url}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_waits_for_a_slot_like_a_fetch() {
    let mut fixture = FetcherFixture::default();
    fixture.sizes.global = 2;
    fixture.sizes.queue = 1;
    let fetcher = fixture.fetcher();
    let hold = |host: &str| crate::limits::SlotRequest {
        tenant: "tenant".to_owned(),
        app: "app".to_owned(),
        host: host.to_owned(),
        turn: fetcher.limits().next_turn(),
        continues: false,
    };
    let _running = fetcher.limits().slot(hold("a.example.org")).await.unwrap();
    let job = crate::fetch::FetchJob {
        tool_timeout: Some(std::time::Duration::from_secs(1)),
        ..request("http://files.example.org/")
    };
    let mut record = FetchRecord::default();
    // The tenant holds its half of the slots, so the lookup waits until its time is over.
    let explanation = fetcher.explain(&job, true, &mut record).await;
    assert_eq!(explanation.refusal.unwrap().code.as_str(), "timeout");
    assert_eq!(fixture.fake_network.queried_names(), Vec::<String>::new());
}

async fn explain_call(service: &TestService, url: &str, resolve: bool) -> v1::ExplainReply {
    let request = v1::ExplainRequest {
        url: url.to_owned(),
        resolve_names: resolve,
        ..v1::ExplainRequest::default()
    };
    explain_request(service, &request).await.unwrap()
}

async fn explain_request(
    service: &TestService,
    request: &v1::ExplainRequest,
) -> Result<v1::ExplainReply, Fault> {
    let cx = service.running.context();
    let reply = cx.bus.call_once(&meta(&cx.clock), request).await;
    reply.map_err(|error: CallError| error.into())
}

#[tokio::test]
async fn the_roles_of_a_client_certificate_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let text = "[[role]]\nname = \"agents\"\ncertificates = [\"spiffe://example.org/agents/*\"]\n\
                [[role.rule]]\nname = \"files\"\noutcome = \"allow\"\nhosts = [\"files.example.org\"]\n";
    std::fs::write(&path, text).unwrap();
    let set = [("policy_path", path.to_str().unwrap())];
    let service = start_service(&hello(), &set).await;
    let explain = async |certificate: &str| {
        let request = v1::ExplainRequest {
            url: "http://files.example.org/".to_owned(),
            client_certificate: certificate.to_owned(),
            ..v1::ExplainRequest::default()
        };
        explain_request(&service, &request).await
    };
    let decided = async |certificate: &str| {
        let reply = explain(certificate).await.unwrap();
        let mut steps = reply.steps.iter();
        let rules = steps.find(|step| step.step() == v1::PolicyStep::PolicyRules);
        (reply.verdict(), rules.unwrap().decided_by.clone())
    };
    let (verdict, rule) = decided("spiffe://example.org/agents/a").await;
    assert_eq!(verdict, StepVerdict::Allowed);
    assert_eq!(rule, "agents/files (policy.toml:4)");
    for other in ["", "spiffe://example.org/people/a"] {
        let (verdict, rule) = decided(other).await;
        assert_eq!((verdict, rule.as_str()), (StepVerdict::Refused, "default"));
    }
    // A certificate with such a name identifies no client.
    for name in ["two words", "\u{e9}", &"a".repeat(513)] {
        let fault = explain(name).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidArgument, "{name}");
    }
}

#[tokio::test]
async fn the_reply_names_the_setting_and_its_origin_but_no_address_and_no_query() {
    let fake_network = hello();
    fake_network.name("inside.example.org", &["10.9.8.7"]);
    let service = start_service(&fake_network, &[("https_only", "false")]).await;
    let reply = explain_call(&service, "http://inside.example.org/a?token=hunter2", true).await;
    assert_eq!(reply.verdict(), StepVerdict::Refused);
    assert_eq!(reply.steps.len(), 14);
    let last = &reply.steps[12];
    assert_eq!(last.code, "ssrf_blocked");
    assert_eq!(last.setting, "egress-fetcher.private_cidrs");
    assert_eq!(last.origin, "default");
    let scheme = &reply.steps[4];
    assert_eq!(
        (scheme.setting.as_str(), scheme.origin.as_str()),
        ("egress-fetcher.https_only", "option")
    );
    let fault: Fault = reply.fault.clone().unwrap().into();
    let fetched = service
        .call(&fetch_request("http://inside.example.org/a?token=hunter2"))
        .await;
    assert_eq!(fetched.unwrap_err(), fault, "the fault that a fetch gives");
    let text = format!("{reply:?}");
    for secret in ["10.9.8.7", "hunter2"] {
        assert!(!text.contains(secret), "I-8 {text}");
    }
}

#[tokio::test]
async fn section_18_a_lookup_is_audited_and_an_explanation_without_one_is_not() {
    let mut service = start_service(&hello(), &[]).await;
    let quiet = explain_call(&service, "http://files.example.org/one", false).await;
    assert_eq!(
        (quiet.verdict(), quiet.complete),
        (StepVerdict::Allowed, false)
    );
    let lookup = explain_call(&service, "http://files.example.org/two", true).await;
    assert_eq!(
        (lookup.verdict(), lookup.complete),
        (StepVerdict::Allowed, true)
    );
    let event = service.event().await;
    // The first event is that of the lookup: the explanation before it published none.
    assert!(event.lookup_only);
    assert_eq!((event.verdict.as_str(), event.stored_bytes), ("allow", 0));
    assert_eq!(event.hops[0].answers.len(), 1);
    assert_eq!(event.hops[0].peer_address, "");
    service
        .call(&fetch_request("http://files.example.org/"))
        .await
        .unwrap();
    assert!(!service.event().await.lookup_only);
}

#[tokio::test]
async fn the_reply_names_the_rule_that_decided_and_the_digest_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let text = "[[role]]\nname = \"reports\"\napps = [\"reporter\"]\n[[role.rule]]\nname = \"files\"\n\
                outcome = \"allow\"\nhosts = [\"files.example.org\"]\n\
                [[role.rule]]\nname = \"trial\"\noutcome = \"report\"\nhosts = [\"files.example.org\"]\n";
    std::fs::write(&path, text).unwrap();
    let set = [("policy_path", path.to_str().unwrap())];
    let mut service = start_service(&hello(), &set).await;
    let reply = explain_call(&service, "http://files.example.org/", false).await;
    assert_eq!(reply.verdict(), StepVerdict::Allowed);
    assert_eq!(
        reply.rules_digest,
        dray_types::Sha256Digest::of(text.as_bytes()).to_hex()
    );
    let of_rules = |reply: &v1::ExplainReply| {
        let mut steps = reply.steps.iter();
        steps
            .find(|step| step.step() == v1::PolicyStep::PolicyRules)
            .unwrap()
            .clone()
    };
    let step = of_rules(&reply);
    assert_eq!(step.decided_by, "reports/files (policy.toml:4)");
    assert_eq!(step.setting, "egress-fetcher.policy_path");
    let refused = explain_call(&service, "http://other.example.org/", false).await;
    assert_eq!(refused.verdict(), StepVerdict::Refused);
    let step = of_rules(&refused);
    assert_eq!(
        (step.code.as_str(), step.decided_by.as_str()),
        ("policy_denied", "default")
    );
    // Only the operator may see a path of the host.
    assert!(!format!("{reply:?}{refused:?}").contains(path.to_str().unwrap()));
    let fault = service
        .call(&fetch_request("http://other.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "policy_denied");
    let event = service.event().await;
    assert_eq!(
        (event.decided_by.as_str(), event.rules_digest),
        ("default", reply.rules_digest)
    );
    assert_eq!(
        (event.tenant_id.as_str(), event.method.as_str()),
        ("acme", "GET")
    );
}
