//! Section 5: texts that two parsers could read as two hosts are refused, without a DNS query and without a packet.

use serde_json::json;

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

/// Other ways to write an address, private or public (U-6, U-8).
const AMBIGUOUS_ADDRESSES: [&str; 21] = [
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0X7F.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://127.0.0.01/",
    "http://127.0.0.1./",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://134744072/",
    "http://010.8.8.8/",
    "http://8.8.8.8./",
    "http://0/",
    "http://１２７.０.０.１/",
    "http://127。0。0。1/",
    "http://ⓔxample.example.com/",
];

/// Texts that are not absolute http(s) URLs, or that parsers read differently (U-1 to U-5, U-7, U-9).
const INVALID_URLS: [&str; 33] = [
    " http://good.example.com/",
    "http://good.example.com/ ",
    "http://good.example.com/a b",
    "http://good.example.com/a\tb",
    "http://good.example.com/a\r\nHost: evil",
    "ht\ttp://good.example.com/",
    "http://a\\@127.0.0.1/",
    "http:\\\\127.0.0.1\\",
    "http:good.example.com",
    "http:/good.example.com",
    "http:///good.example.com",
    "http://",
    "http:///",
    "http://exa%6dple.example.com/",
    "http://127.0.0.1%00.example.com/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[127.0.0.1]/",
    "http://[v1.fe80::1]/",
    "http://[good.example.com]/",
    "http://[::1/",
    "http://[::1]x/",
    "http://a..example.com/",
    "http://.example.com/",
    "http://good.example.com../",
    "http://-a.example.com/",
    "http://a*b.example.com/",
    "http://a;b.example.com/",
    "http://good.example.com:/",
    "http://good.example.com:0/",
    "http://good.example.com:080/",
    "http://good.example.com:+80/",
    "http://good.example.com:65536/",
];

/// User info, even an empty one (U-4).
const CREDENTIAL_URLS: [&str; 5] = [
    "http://user@good.example.com/",
    "http://u:p@127.0.0.1/",
    "http://@good.example.com/",
    "http://:@10.0.0.1/",
    "http://good.example.com@evil.example.com/",
];

/// Other schemes (U-3, U-13).
const OTHER_SCHEMES: [&str; 7] = [
    "ftp://good.example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "data:text/plain,x",
    "javascript:alert(1)",
    "ws://good.example.com/",
    "unix:///var/run/docker.sock",
];

#[test]
fn unusual_spellings_are_refused_before_any_query_or_connection() {
    let zone = json!({"good.example.com": [{"A": [PUBLIC_ADDRESS]}]});
    scenario_network::run(
        "spelling",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let coded = |url: &str, code| (FetchCommand::new(url), FetchExpectation::Coded(code));
            let mut cases = Vec::new();
            cases.extend(AMBIGUOUS_ADDRESSES.iter().map(|url| {
                (
                    FetchCommand::new(*url),
                    FetchExpectation::Denied("ambiguous_host"),
                )
            }));
            cases.extend(INVALID_URLS.iter().map(|url| coded(url, "invalid_url")));
            cases.extend(
                CREDENTIAL_URLS
                    .iter()
                    .map(|url| coded(url, "url_credentials")),
            );
            cases.extend(
                OTHER_SCHEMES
                    .iter()
                    .map(|url| coded(url, "unsupported_scheme")),
            );
            for port in [22, 25, 53, 81, 2375, 3128, 6379, 6443, 9200, 10250, 65535] {
                let url = format!("http://good.example.com:{port}/");
                cases.push((
                    FetchCommand::new(url),
                    FetchExpectation::Denied("port_not_allowed"),
                ));
            }
            scenario_network.check(&cases);
            let questions = scenario_network.internet.questions();
            scenario_network.demand(questions.is_empty(), || format!("questions: {questions:?}"));
            scenario_network.demand(scenario_network.attempts() == 0, || {
                format!("{} connection attempts", scenario_network.attempts())
            });
        },
    );
}

#[test]
fn the_port_list_is_the_operators() {
    let mut plan = ScenarioSetup {
        zone: json!({"good.example.com": [{"A": [PUBLIC_ADDRESS]}]}),
        ..ScenarioSetup::default()
    };
    plan.openings.ports.push(8081);
    scenario_network::run("port", &plan, |scenario_network| {
        let ports = |url: &str, list: &str| {
            FetchCommand::new(url).set("EXTERNAL_URL_FETCH_ALLOWED_PORTS", list)
        };
        let other = "http://good.example.com:8081/";
        scenario_network.check(&[
            (
                FetchCommand::new(other),
                FetchExpectation::Denied("port_not_allowed"),
            ),
            (
                ports(other, "80,8081"),
                FetchExpectation::Reached(PUBLIC_ADDRESS),
            ),
            (
                ports(other, "any"),
                FetchExpectation::Reached(PUBLIC_ADDRESS),
            ),
            (
                ports("http://good.example.com:22/", "any"),
                FetchExpectation::Denied("port_not_allowed"),
            ),
            (
                ports("http://good.example.com:8080/", "80,8081"),
                FetchExpectation::Denied("port_not_allowed"),
            ),
            (ports(other, "80,22"), FetchExpectation::NoStart),
        ]);
    });
}
