//! I-2: a name is resolved once for each hop, and only the judged address is connected to.

use serde_json::{Map, Value, json};

use super::to;
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::range;
use crate::scenario_network::{self, ScenarioNetwork, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

#[test]
fn a_name_that_rebinds_to_an_internal_address_is_never_followed() {
    let mut zone = Map::new();
    let (mut first, mut second, mut hops) = (Vec::new(), Vec::new(), Vec::new());
    for (number, address) in range::one_sample_per_range().iter().enumerate() {
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        let rebinding_answers: Value = json!([{"A": [PUBLIC_ADDRESS]}, {kind: [address]}]);
        let (direct, hop) = (
            format!("d{number}.example.com"),
            format!("h{number}.example.com"),
        );
        zone.insert(direct.clone(), rebinding_answers.clone());
        zone.insert(hop.clone(), rebinding_answers);
        let direct = FetchCommand::new(format!("http://{direct}/"));
        first.push((direct.clone(), FetchExpectation::Reached(PUBLIC_ADDRESS)));
        second.push((direct, FetchExpectation::Denied("ssrf_blocked")));
        let back = to(307, &format!("http://{hop}/secret"));
        hops.push((
            FetchCommand::new(format!("http://{hop}{back}")),
            FetchExpectation::Denied("ssrf_blocked"),
        ));
    }
    let name_count = hops.len();
    scenario_network::run(
        "rebinding",
        &ScenarioSetup {
            zone: zone.into(),
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            scenario_network.check(&first);
            for number in 0..name_count {
                expect_lookups(scenario_network, &format!("d{number}.example.com"), 1);
            }
            scenario_network.check(&second);
            scenario_network.check(&hops);
            for number in 0..name_count {
                expect_lookups(scenario_network, &format!("h{number}.example.com"), 2);
            }
        },
    );
}

/// Checks how often a name was looked up; each lookup sends one question for each address family.
fn expect_lookups(scenario_network: &ScenarioNetwork, name: &str, lookups: usize) {
    let questions = scenario_network.internet.questions();
    for kind in ["A", "AAAA"] {
        let count = questions
            .iter()
            .filter(|question| question.name == name && question.kind == kind)
            .count();
        scenario_network.demand(count == lookups, || {
            format!("{count} questions for {kind} of {name}, not {lookups}")
        });
    }
}

#[test]
fn a_connection_that_fails_does_not_use_another_answer() {
    // Port 8000 has a listener inside and none outside. A caller may repeat the whole fetch; then the DNS response is
    // judged again, and no connection is tried without its own DNS response (D-6).
    let rebinding_answers = json!([{"A": [PUBLIC_ADDRESS]}, {"A": ["127.0.0.1"]}]);
    let zone = json!({"turning.example.com": rebinding_answers, "closed.example.com": [{"A": [PUBLIC_ADDRESS]}]});
    let plan = ScenarioSetup {
        zone,
        ..ScenarioSetup::default()
    };
    scenario_network::run("refusing", &plan, |scenario_network| {
        let fetch = FetchCommand::new("http://closed.example.com:8000/");
        scenario_network.check_one(&fetch, &FetchExpectation::Denied("connect_failed"));
        let attempts = usize::try_from(scenario_network.attempts()).unwrap();
        scenario_network.demand((1..=3).contains(&attempts), || {
            format!("{attempts} connection attempts")
        });
        expect_lookups(scenario_network, "closed.example.com", attempts);
        let line = scenario_network.check_one(
            &FetchCommand::new("http://turning.example.com:8000/").with_changing_answer(),
            &FetchExpectation::Refused,
        );
        let code = line["code"].as_str().unwrap_or_default();
        scenario_network.demand(["connect_failed", "ssrf_blocked"].contains(&code), || {
            format!("the code is {code}")
        });
        let more = usize::try_from(scenario_network.attempts()).unwrap() - attempts;
        scenario_network.demand(more == 1, || format!("{more} connection attempts, not 1"));
    });
}
