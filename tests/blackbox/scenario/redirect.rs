//! Section 12: a redirect cannot reach what the agent could not have reached.

use serde_json::{Map, json};

use super::{REDIRECT_STATUSES, public, to};
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::range;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

#[test]
fn no_blocked_address_is_reached_by_a_redirect() {
    let mut zone = Map::new();
    let mut cases = Vec::new();
    let statuses = REDIRECT_STATUSES.iter().cycle();
    for ((number, address), status) in range::one_sample_per_range()
        .iter()
        .enumerate()
        .zip(statuses)
    {
        let (written, name) = (range::host(*address), format!("r{number}.example.com"));
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        zone.insert(name.clone(), json!([{kind: [address]}]));
        // Redirects lead directly to the address, or to a name that resolves to it, in all forms of a `Location` in
        // turn.
        let location = if number % 2 == 0 {
            format!("http://{written}/secret")
        } else {
            format!("//{written}:8080")
        };
        cases.push(refused_redirect(*status, &location));
        cases.push(refused_redirect(*status, &format!("http://{name}/")));
    }
    scenario_network::run(
        "redirect",
        &ScenarioSetup {
            zone: zone.into(),
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            scenario_network.check(&cases);
            let (arrived, sent) = (scenario_network.internet.requests().len(), cases.len());
            scenario_network.demand(arrived == sent, || {
                format!("{arrived} requests arrived for {sent} fetches")
            });
        },
    );
}

fn refused_redirect(status: u16, location: &str) -> (FetchCommand, FetchExpectation) {
    (
        FetchCommand::new(public(&to(status, location))),
        FetchExpectation::Denied("ssrf_blocked"),
    )
}

/// Locations, and why they are not followed.
const REFUSED_LOCATIONS: [(&str, &str); 18] = [
    ("http://localhost/", "blocked_host"),
    ("http://metadata.google.internal/", "blocked_host"),
    ("http://2130706433/", "ambiguous_host"),
    ("http://0x7f.1/", "ambiguous_host"),
    ("http://0177.0.0.1/", "ambiguous_host"),
    ("http://user:secret@two.example.com/", "url_credentials"),
    ("http://two.example.com:22/", "port_not_allowed"),
    ("http://two.example.com:6379/", "port_not_allowed"),
    ("ftp://two.example.com/", "unsupported_scheme"),
    ("file:///etc/passwd", "unsupported_scheme"),
    ("gopher://127.0.0.1:6379/_INFO", "unsupported_scheme"),
    ("http:/two.example.com/", "redirect_invalid"),
    ("http:two.example.com", "redirect_invalid"),
    ("\\\\127.0.0.1\\", "redirect_invalid"),
    ("http://a\\@127.0.0.1/", "redirect_invalid"),
    ("/with blank", "redirect_invalid"),
    ("///127.0.0.1/", "redirect_invalid"),
    ("", "redirect_invalid"),
];

#[test]
fn every_rule_is_applied_again_to_a_redirect() {
    let zone = json!({
        "one.example.com": [{"A": [PUBLIC_ADDRESS]}],
        "two.example.com": [{"A": [PUBLIC_ADDRESS]}],
        "three.example.org": [{"A": [PUBLIC_ADDRESS]}],
    });
    scenario_network::run(
        "again",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let mut cases: Vec<_> = REFUSED_LOCATIONS
                .iter()
                .map(|(location, code)| {
                    (
                        FetchCommand::new(public(&to(302, location))),
                        FetchExpectation::Denied(code),
                    )
                })
                .collect();
            // The sentence then speaks of the redirect target; only the refusal matters here.
            let nowhere = public(&to(302, "http://nowhere.example.com/"));
            cases.push((FetchCommand::new(nowhere), FetchExpectation::Refused));
            scenario_network.check(&cases);
            let listed = |list: &str| {
                let start = format!(
                    "http://one.example.com{}",
                    to(302, "http://three.example.org/")
                );
                FetchCommand::new(start).set("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", list)
            };
            let app = json!({"enabled": null, "host_allowlist": ["*.example.com"]});
            scenario_network.check(&[
                (
                    listed("*.example.com"),
                    FetchExpectation::Denied("host_not_in_admin_allowlist"),
                ),
                (
                    listed("*.example.com,three.example.org").policy(app),
                    FetchExpectation::Denied("host_not_in_app_allowlist"),
                ),
            ]);
            let questions = scenario_network.internet.questions();
            let has_queried = questions
                .iter()
                .any(|question| question.name == "three.example.org");
            scenario_network.demand(!has_queried, || {
                "a host outside the allowlist was looked up after a redirect".to_owned()
            });
            scenario_network.check_one(
                &listed("*.example.com,*.example.org"),
                &FetchExpectation::Reached(PUBLIC_ADDRESS),
            );
        },
    );
}
