//! The same envelope when the URL is in the arguments of a tool call: `dray resolve`, through the bus to the
//! fetcher.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{public, to};
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::range;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

#[test]
fn a_reference_reaches_only_what_a_fetch_reaches() {
    let mut zone = Map::new();
    zone.insert(
        "files.example.com".to_owned(),
        json!([{"A": [PUBLIC_ADDRESS]}]),
    );
    zone.insert(
        "unlisted.example.org".to_owned(),
        json!([{"A": [PUBLIC_ADDRESS]}]),
    );
    let mut cases = vec![
        (
            FetchCommand::new("http://files.example.com/").referred("text"),
            FetchExpectation::Resolved("reached 93.184.216.34\n"),
        ),
        (
            FetchCommand::new(public("/bytes/3")).referred("base64"),
            FetchExpectation::Resolved("AAAA"),
        ),
    ];
    for (number, address_text) in range::SENSITIVE_ADDRESSES.iter().enumerate() {
        let address: IpAddr = address_text.parse().unwrap();
        let (name, kind) = (
            format!("p{number}.example.com"),
            ["text", "base64"][number % 2],
        );
        let answer: Value = if address.is_ipv4() {
            json!({"A": [address_text]})
        } else {
            json!({"AAAA": [address_text]})
        };
        zone.insert(name.clone(), json!([answer]));
        let blocked_url = format!("http://{}/", range::host(address));
        let urls = [
            blocked_url.clone(),
            format!("http://{name}/"),
            public(&to(302, &blocked_url)),
        ];
        let url = &urls[number % urls.len()];
        cases.push((
            FetchCommand::new(url).referred(kind),
            FetchExpectation::Rejected,
        ));
    }
    let listed = |url: &str| {
        let policy = json!({"enabled": null, "host_allowlist": ["*.example.com"]});
        FetchCommand::new(url).referred("text").policy(policy)
    };
    cases.push((
        listed("http://unlisted.example.org/"),
        FetchExpectation::Rejected,
    ));
    cases.push((
        listed("http://files.example.com/"),
        FetchExpectation::Resolved("reached 93.184.216.34\n"),
    ));
    let plan = ScenarioSetup {
        zone: zone.into(),
        ..ScenarioSetup::default()
    };
    scenario_network::run("reference", &plan, |scenario_network| {
        scenario_network.check(&cases);
        let questions = scenario_network.internet.questions();
        let has_queried = questions
            .iter()
            .any(|question| question.name == "unlisted.example.org");
        scenario_network.demand(!has_queried, || {
            "a host outside the app's list was looked up".to_owned()
        });
    });
}
