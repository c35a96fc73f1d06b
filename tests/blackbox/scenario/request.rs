//! Section 10: the exact bytes of the requests, on every hop.

use serde_json::json;

use super::to;
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::{PUBLIC_ADDRESS, PUBLIC_ADDRESS_6};

#[test]
fn a_request_has_only_its_six_fields() {
    let zone = json!({"one.example.com": [{"A": [PUBLIC_ADDRESS]}], "two.example.com": [{"A": [PUBLIC_ADDRESS]}]});
    scenario_network::run(
        "request",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let second = to(302, "http://two.example.com:8080/file?x=%0d%0a#part");
            let url = format!("http://one.example.com{second}?token=secret#top");
            let fetch = FetchCommand::new(url).set("EXTERNAL_URL_FETCH_USER_AGENT", "blackbox/1");
            scenario_network.check_one(&fetch, &FetchExpectation::Reached(PUBLIC_ADDRESS));
            let expected = |target: &str, host: &str| {
                format!(
                    "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: blackbox/1\r\nAccept: */*\r\n\
                 Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
                )
            };
            let heads: Vec<String> = scenario_network
                .internet
                .requests()
                .into_iter()
                .map(|request| request.head)
                .collect();
            let expected_heads = [
                expected(&format!("{second}?token=secret"), "one.example.com"),
                expected("/file?x=%0d%0a", "two.example.com:8080"),
            ];
            scenario_network.demand(equal_heads(&heads, &expected_heads), || {
                format!("the requests were {heads:#?}\nnot {expected_heads:#?}")
            });
        },
    );
}

/// Compares field names without regard to case, and everything else exactly.
fn equal_heads(heads: &[String], expected: &[String]) -> bool {
    let folded = |head: &String| {
        head.split("\r\n")
            .map(|line| match line.split_once(": ") {
                Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
                None => line.to_owned(),
            })
            .collect::<Vec<_>>()
    };
    heads.iter().map(folded).eq(expected.iter().map(folded))
}

#[test]
fn hosts_are_sent_in_their_canonical_form_to_the_address_that_was_judged() {
    let zone = json!({"xn--bcher-kva.example.com": [{"A": [PUBLIC_ADDRESS]}]});
    scenario_network::run(
        "canonical",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            for (url, host) in [
                ("http://BÜCHER.example.com./", "xn--bcher-kva.example.com"),
                ("http://93.184.216.34:8080/", "93.184.216.34:8080"),
                ("http://93.184.216.34:80/", "93.184.216.34"),
                (
                    "http://[2606:2800:0220:0001:0:0:0:1]:8080/",
                    "[2606:2800:220:1::1]:8080",
                ),
            ] {
                scenario_network.internet.forget();
                let reached = if url.contains("[2606") {
                    PUBLIC_ADDRESS_6
                } else {
                    PUBLIC_ADDRESS
                };
                scenario_network
                    .check_one(&FetchCommand::new(url), &FetchExpectation::Reached(reached));
                let requests = scenario_network.internet.requests();
                let has_expected_host =
                    requests.len() == 1 && requests.iter().all(|request| request.host() == host);
                scenario_network.demand(has_expected_host, || {
                    format!("{url}: expected one request for {host}, got {requests:?}")
                });
                let port = if host.ends_with(":8080") { 8080 } else { 80 };
                let has_expected_address = requests
                    .iter()
                    .all(|request| request.to == reached && request.port == port);
                scenario_network.demand(has_expected_address, || {
                    format!("{url}: sent to another address: {requests:?}")
                });
            }
        },
    );
}
