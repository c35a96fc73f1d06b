//! Tests of robots.txt over the whole pipeline: when it is requested, what it refuses, and that its requests are
//! judged.

use std::time::Duration;

use dray_guard::robots::RobotsMode;
use dray_guard::ruleset::PolicyText;
use dray_guard::{AppPolicy, Code, MaxRedirects, PolicyStep, RuleSet};
use dray_testkit::http::{ReceivedRequest, ResponseScript, ResponseStep, ScriptedResponder};

use super::fake_network::*;
use crate::fetch::FetchJob;
use crate::record::{FetchRecord, RobotsOutcome};

mod concurrent;
mod ports;

const FILE_URL: &str = "http://files.example.org/private/a.csv?x=1";
const RULES: &str =
    "User-agent: *\nDisallow: /\n\nUser-agent: dray\nDisallow: /private/\nAllow: /private/open\n";

fn is_robots(request: &ReceivedRequest) -> bool {
    request.head.starts_with("GET /robots.txt HTTP/1.1\r\n")
}

/// A fixture with this mode, and its server, which answers requests for the robots.txt with `robots`.
fn served(mode: RobotsMode, robots: ResponseScript) -> (FetcherFixture, ScriptedResponder) {
    let mut fixture = FetcherFixture::default();
    fixture.settings.robots = mode;
    let server = fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, move |request| {
            if is_robots(request) {
                robots.clone()
            } else {
                ResponseScript::ok("hello")
            }
        });
    (fixture, server)
}

/// A server without a robots.txt, whose file takes 14 seconds.
fn slow_file(request: &ReceivedRequest) -> ResponseScript {
    if is_robots(request) {
        return ResponseScript::status(404);
    }
    ResponseScript::raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
        .then(ResponseStep::Pause(Duration::from_secs(14)))
        .then(ResponseStep::send("lo"))
}

/// Number of requests for the file and for robots.txt.
fn requests(server: &ScriptedResponder) -> (usize, usize) {
    let requests = server.received_requests();
    let robots = requests.iter().filter(|request| is_robots(request)).count();
    (requests.len() - robots, robots)
}

#[tokio::test(start_paused = true)]
async fn a_robots_txt_is_not_requested_by_default() {
    let (fixture, server) = served(RobotsMode::Ignore, ResponseScript::ok(RULES));
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(outcome.code(), "ok");
    assert_eq!(outcome.record.robots, None);
    assert_eq!(requests(&server), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_robots_txt_are_counted() {
    let (fixture, _) = served(RobotsMode::Obey, ResponseScript::ok(RULES));
    let outcome = fixture.fetch("http://files.example.org/private/open").await;
    assert_eq!(outcome.code(), "ok");
    assert_eq!(outcome.record.robots_bytes, RULES.len() as u64);
    // The bytes of the file are counted separately: an interrupted fetch continues at that offset.
    assert_eq!(outcome.record.counts.wire, 5);
}

#[tokio::test(start_paused = true)]
async fn rules_that_cannot_be_compared_within_the_bound_allow_nothing() {
    use std::fmt::Write as _;
    let mut rules = "User-agent: *\n".to_owned();
    for number in 0..10_000 {
        writeln!(rules, "Disallow: /x{number}*y").unwrap();
    }
    let (fixture, server) = served(RobotsMode::Obey, ResponseScript::ok(rules));
    let outcome = fixture.fetch("http://files.example.org/open").await;
    assert_eq!(outcome.code(), "ok");
    let long = format!("http://files.example.org/open?{}", "a".repeat(6_000));
    let outcome = fixture.fetch(&long).await;
    assert_eq!(outcome.end(), ("robots_denied", "policy"));
    assert_eq!(requests(&server).0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_line_and_sends_no_request_for_the_file() {
    let (fixture, server) = served(RobotsMode::Obey, ResponseScript::ok(RULES));
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(outcome.end(), ("robots_denied", "policy"));
    assert_eq!(
        outcome.message(),
        "External URL http://files.example.org/private/a.csv is refused by the robots.txt of its server (line 5)."
    );
    let robots = outcome.record.robots.unwrap();
    assert_eq!((robots.outcome, robots.line), (RobotsOutcome::Denied, 5));
    assert_eq!(requests(&server), (0, 1));
    // The hop of the file is the last one and has the code.
    let hops = outcome.record.hops;
    let is_robots: Vec<_> = hops.iter().map(|hop| hop.is_robots).collect();
    assert_eq!(is_robots, [true, false]);
    assert_eq!(hops[0].status, Some(200));
    assert_eq!(hops[1].code.unwrap().as_str(), "robots_denied");
}

#[tokio::test(start_paused = true)]
async fn an_allowed_path_is_fetched_and_its_robots_txt_is_requested_once() {
    let (fixture, server) = served(RobotsMode::Obey, ResponseScript::ok(RULES));
    let fetcher = fixture.fetcher();
    for url in [
        "http://files.example.org/private/open.csv",
        "http://files.example.org/b",
        "http://files.example.org/robots.txt",
    ] {
        let outcome = run(&fetcher, &request(url)).await;
        assert_eq!(outcome.code(), "ok", "{url}");
        let robots = outcome.record.robots.unwrap();
        assert_eq!(robots.outcome, RobotsOutcome::Allowed);
    }
    assert_eq!(
        run(&fetcher, &request(FILE_URL)).await.code(),
        "robots_denied"
    );
    // Two files, the first robots.txt, and the one that is itself the file.
    assert_eq!(requests(&server), (2, 2));
    // Another tenant does not use the cached file, and after a day it is requested again.
    let mut other = request("http://files.example.org/b");
    other.caller.tenant = "other".to_owned();
    assert_eq!(run(&fetcher, &other).await.code(), "ok");
    assert_eq!(requests(&server), (3, 3));
    tokio::time::advance(Duration::from_hours(24)).await;
    assert_eq!(run(&fetcher, &other).await.code(), "ok");
    assert_eq!(requests(&server), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_only_reported_in_report_mode() {
    let (fixture, _) = served(RobotsMode::Report, ResponseScript::ok(RULES));
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(
        (outcome.code(), outcome.body.as_slice()),
        ("ok", b"hello".as_slice())
    );
    assert_eq!(
        outcome.record.robots.unwrap().outcome,
        RobotsOutcome::Reported
    );
    let reported = outcome.record.reported_by().unwrap();
    assert_eq!(reported.to_string(), "robots.txt (line 5)");
}

#[tokio::test(start_paused = true)]
async fn a_report_of_a_robots_txt_hides_no_report_of_a_rule() {
    let mut fixture = FetcherFixture::default();
    fixture.settings.robots = RobotsMode::Report;
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, |request| {
        if is_robots(request) {
            ResponseScript::ok(RULES)
        } else if request.head.starts_with("GET /private/") {
            ResponseScript::raw(
                "HTTP/1.1 302 Found\r\nLocation: /open\r\nContent-Length: 0\r\n\r\n",
            )
        } else {
            ResponseScript::ok("hello")
        }
    });
    let fetcher = fixture.fetcher();
    let text = "report_only = true\ndefault = \"allow\"\n[[role]]\nname = \"all\"\n\
                [[role.rule]]\nname = \"open\"\noutcome = \"deny\"\npaths = [\"/open\"]\n";
    let rules = RuleSet::parse(&[PolicyText::new("trial.toml", text)]).unwrap();
    fetcher.set_rules(std::sync::Arc::new(rules));
    // The robots.txt reports the first hop, and the rule the second one.
    let outcome = run(&fetcher, &request(FILE_URL)).await;
    assert_eq!(outcome.code(), "ok");
    let record = outcome.record;
    assert_eq!(record.reported_by().unwrap().name, "all/open");
    assert_eq!(
        record.robots_reported.unwrap().to_string(),
        "robots.txt (line 5)"
    );
}

#[tokio::test(start_paused = true)]
async fn an_absent_robots_txt_allows_and_an_unreadable_one_refuses() {
    let raw = |text: &str| ResponseScript::raw(text);
    for (robots, expected) in [
        (ResponseScript::status(404), "ok"),
        (ResponseScript::status(403), "ok"),
        (ResponseScript::status(429), "ok"),
        (ResponseScript::ok(""), "ok"),
        (ResponseScript::status(500), "robots_denied"),
        (ResponseScript::status(503), "robots_denied"),
        (raw("nonsense\r\n\r\n"), "robots_denied"),
        (
            raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
            "robots_denied",
        ),
        (
            ResponseScript::redirect(301, "http://10.0.0.1/"),
            "robots_denied",
        ),
        (ResponseScript::redirect(301, "/robots.txt"), "ok"),
    ] {
        let (fixture, _) = served(RobotsMode::Obey, robots.clone());
        let outcome = fixture.fetch(FILE_URL).await;
        assert_eq!(outcome.code(), expected, "{robots:?}");
        assert!(
            fixture
                .fake_network
                .dialled()
                .iter()
                .all(|to| to == "93.184.215.14:80")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_robots_txt_is_requested_again_after_a_minute() {
    let (fixture, server) = served(RobotsMode::Obey, ResponseScript::status(500));
    let fetcher = fixture.fetcher();
    for _ in 0..2 {
        let outcome = run(&fetcher, &request(FILE_URL)).await;
        assert_eq!(
            outcome.message(),
            "External URL http://files.example.org/private/a.csv could not be fetched. The robots.txt of its server could \
             not be read."
        );
    }
    assert_eq!(requests(&server), (0, 1));
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(
        run(&fetcher, &request(FILE_URL)).await.code(),
        "robots_denied"
    );
    assert_eq!(requests(&server), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn five_redirects_to_the_file_are_followed_and_every_host_is_judged() {
    let mut fixture = FetcherFixture::default();
    fixture.settings.robots = RobotsMode::Obey;
    let chain = |last: usize| {
        move |request: &ReceivedRequest| {
            let step = |index: usize| format!("GET /step{index} ");
            if is_robots(request) {
                return ResponseScript::redirect(302, "/step1");
            }
            for index in 1..last {
                if request.head.starts_with(&step(index)) {
                    return ResponseScript::redirect(302, &format!("/step{}", index + 1));
                }
            }
            if request.head.starts_with(&step(last)) {
                return ResponseScript::ok("user-agent: *\ndisallow: /\n");
            }
            ResponseScript::ok("hello")
        }
    };
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, chain(5));
    assert_eq!(fixture.fetch(FILE_URL).await.code(), "robots_denied");
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, chain(6));
    assert_eq!(
        fixture.fetch(FILE_URL).await.code(),
        "ok",
        "after six redirects the robots.txt counts as absent"
    );
    // RFC 9309 lets a crawler treat the file as absent only after more than five redirects.
    fixture.admin.max_redirects = MaxRedirects::new(4).unwrap();
    assert_eq!(fixture.fetch(FILE_URL).await.code(), "robots_denied");
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_a_policy_decide_about_the_mode_and_about_hosts_of_redirects() {
    let policy = r#"
[[role]]
name = "all"
[[role.rule]]
name = "files"
outcome = "allow"
hosts = ["files.example.org"]
paths = ["/private/**"]
robots = "obey"
"#;
    let rules = RuleSet::parse(&[PolicyText::new("policy.toml", policy)]);
    let rules = std::sync::Arc::new(rules.unwrap());
    // The rule allows only the paths of files, and the robots.txt is requested nevertheless.
    let (fixture, server) = served(RobotsMode::Ignore, ResponseScript::ok(RULES));
    let fetcher = fixture.fetcher();
    fetcher.set_rules(std::sync::Arc::clone(&rules));
    assert_eq!(
        run(&fetcher, &request(FILE_URL)).await.code(),
        "robots_denied"
    );
    assert_eq!(requests(&server), (0, 1));
    // The paths of the rule do not count for a redirect within the host either.
    let (fixture, _) = served(RobotsMode::Ignore, ResponseScript::status(404));
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, |request| {
        if is_robots(request) {
            ResponseScript::redirect(301, "/robots")
        } else if request.head.starts_with("GET /robots HTTP") {
            ResponseScript::status(404)
        } else {
            ResponseScript::ok("hello")
        }
    });
    let fetcher = fixture.fetcher();
    fetcher.set_rules(std::sync::Arc::clone(&rules));
    assert_eq!(run(&fetcher, &request(FILE_URL)).await.code(), "ok");
    // No rule allows the other host.
    let target = ResponseScript::redirect(301, "http://other.example.org/robots.txt");
    let (fixture, _) = served(RobotsMode::Ignore, target);
    fixture
        .fake_network
        .name("other.example.org", &[OTHER_PUBLIC_ADDRESS]);
    let fetcher = fixture.fetcher();
    fetcher.set_rules(rules);
    assert_eq!(
        run(&fetcher, &request(FILE_URL)).await.code(),
        "robots_denied"
    );
    assert_eq!(fixture.fake_network.queried_names(), ["files.example.org"]);
}

#[tokio::test(start_paused = true)]
async fn the_allow_list_of_an_app_does_not_decide_for_other_apps() {
    let target = ResponseScript::redirect(301, "http://other.example.org/robots.txt");
    let (fixture, _) = served(RobotsMode::Obey, target);
    fixture
        .fake_network
        .name("other.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture
        .fake_network
        .serve(OTHER_PUBLIC_ADDRESS, ResponseScript::status(404));
    let fetcher = fixture.fetcher();
    let narrow = FetchJob {
        app_policy: AppPolicy {
            host_allowlist: Some(vec!["files.example.org".to_owned()]),
            ..AppPolicy::default()
        },
        ..request(FILE_URL)
    };
    let refused = run(&fetcher, &narrow).await;
    assert_eq!(refused.code(), "robots_denied");
    // The audit event names the target that was refused.
    let hop = &refused.record.hops[1];
    assert!(hop.is_robots);
    let target = hop.url.as_ref().unwrap();
    assert_eq!(target.host().to_string(), "other.example.org");
    assert_eq!(hop.code, Some(Code::HostNotInAppAllowlist));
    assert_eq!(run(&fetcher, &request(FILE_URL)).await.code(), "ok");
}

#[tokio::test(start_paused = true)]
async fn the_hop_of_a_robots_txt_that_cannot_be_read_says_why() {
    let (fixture, _) = served(RobotsMode::Obey, ResponseScript::status(500));
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(outcome.record.hops[0].code, Some(Code::HttpStatus(500)));
}

#[tokio::test(start_paused = true)]
async fn the_robots_txt_of_a_redirect_target_is_requested_too() {
    let (fixture, _) = served(RobotsMode::Obey, ResponseScript::status(404));
    fixture
        .fake_network
        .name("other.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, |request| {
        if is_robots(request) {
            ResponseScript::status(404)
        } else {
            ResponseScript::redirect(302, "http://other.example.org/private/b")
        }
    });
    let other = fixture
        .fake_network
        .serve_with(OTHER_PUBLIC_ADDRESS, |_| ResponseScript::ok(RULES));
    let outcome = fixture.fetch(FILE_URL).await;
    assert_eq!(outcome.code(), "robots_denied");
    assert_eq!(requests(&other), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_large_robots_txt_is_read_up_to_its_own_limit() {
    let large = format!(
        "user-agent: dray\ndisallow: /private/\n{}",
        "#\n".repeat(400 * 1024)
    );
    let (fixture, _) = served(RobotsMode::Obey, ResponseScript::ok(&large));
    let small = FetchJob {
        size_limit: 10,
        ..request("http://files.example.org/b")
    };
    let fetcher = fixture.fetcher();
    assert_eq!(run(&fetcher, &small).await.code(), "ok");
    assert_eq!(
        run(&fetcher, &request(FILE_URL)).await.code(),
        "robots_denied"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_robots_txt_without_a_response_ends_with_the_fetch() {
    let silent = ResponseScript(vec![ResponseStep::Hold]);
    let (fixture, _) = served(RobotsMode::Obey, silent);
    let hurried = FetchJob {
        tool_timeout: Some(Duration::from_secs(3)),
        ..request(FILE_URL)
    };
    let started = tokio::time::Instant::now();
    let outcome = run(&fixture.fetcher(), &hurried).await;
    assert_eq!(outcome.code(), "timeout");
    assert_eq!(started.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_robots_txt_that_drips_counts_as_unreachable_after_ten_seconds() {
    let mut steps = vec![ResponseStep::send(
        "HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n",
    )];
    for _ in 0..100 {
        // Faster than the slowest rate of a body.
        steps.push(ResponseStep::send("#\n".repeat(2_000)));
        steps.push(ResponseStep::Pause(Duration::from_secs(1)));
    }
    let (fixture, server) = served(RobotsMode::Report, ResponseScript(steps));
    let fetcher = fixture.fetcher();
    let started = tokio::time::Instant::now();
    for _ in 0..2 {
        let outcome = run(&fetcher, &request(FILE_URL)).await;
        assert_eq!(outcome.code(), "ok");
        let reported = outcome.record.reported_by().unwrap();
        assert_eq!(reported.to_string(), "robots.txt (could not be read)");
    }
    assert!(started.elapsed() < Duration::from_secs(11));
    assert_eq!(requests(&server), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn report_mode_fetches_a_file_whose_robots_txt_gets_no_slot_in_time() {
    let mut fixture = FetcherFixture::default();
    fixture.settings.robots = RobotsMode::Report;
    fixture.sizes.per_host = 1;
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, slow_file);
    let fetcher = fixture.fetcher();
    let first = request(FILE_URL);
    let mut second = request(FILE_URL);
    second.caller.tenant = "other".to_owned();
    let (first, second) = tokio::join!(run(&fetcher, &first), async {
        // paused clock: the first fetch holds the only slot of the host
        tokio::time::sleep(Duration::from_secs(1)).await;
        run(&fetcher, &second).await
    });
    assert_eq!((first.code(), second.code()), ("ok", "ok"));
    let reported = second.record.reported_by().unwrap();
    assert_eq!(reported.to_string(), "robots.txt (could not be read)");
}

#[test]
fn the_robots_txt_of_a_redirect_target_continues_the_fetch() {
    let mut record = FetchRecord::default();
    record.enter(0, None);
    assert!(!record.continues(), "the first request of all");
    // A robots.txt begins a separate chain, whose first hop also has number 0.
    record.enter(0, None);
    assert!(record.continues());
}

#[tokio::test(start_paused = true)]
async fn an_explanation_is_incomplete_where_a_fetch_would_request_a_robots_txt() {
    for (mode, complete) in [(RobotsMode::Ignore, true), (RobotsMode::Obey, false)] {
        let (fixture, server) = served(mode, ResponseScript::ok(RULES));
        let mut record = FetchRecord::default();
        let explanation = fixture
            .fetcher()
            .explain(&request(FILE_URL), true, &mut record)
            .await;
        assert_eq!(explanation.complete, complete, "{mode:?}");
        assert_eq!(explanation.steps.find(PolicyStep::Robots), None);
        assert_eq!(requests(&server), (0, 0));
    }
}
