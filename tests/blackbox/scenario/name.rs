//! Sections 6 and 7 with names: DNS returns internal addresses, alone, beside public ones, or behind an alias.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::range;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::{PUBLIC_ADDRESS, PUBLIC_ADDRESS_6};

/// An answer with these addresses, each under its own type.
fn answer(addresses: &[IpAddr]) -> Value {
    let of_kind =
        |is_kind: fn(&&IpAddr) -> bool| addresses.iter().filter(is_kind).collect::<Vec<_>>();
    json!({
        "A": of_kind(|address| address.is_ipv4()),
        "AAAA": of_kind(|address| address.is_ipv6()),
    })
}

/// A zone with one answer for each name, and a fetch of each name that must be refused.
fn refused_names(names: &[(String, Value)]) -> (Value, Vec<(FetchCommand, FetchExpectation)>) {
    let zone: Map<String, Value> = names
        .iter()
        .map(|(name, answer)| (name.clone(), json!([answer])))
        .collect();
    let cases = names
        .iter()
        .map(|(name, _)| {
            (
                FetchCommand::new(format!("http://{name}/")),
                FetchExpectation::Denied("ssrf_blocked"),
            )
        })
        .collect();
    (zone.into(), cases)
}

#[test]
fn no_blocked_address_is_reached_by_a_name() {
    let names: Vec<_> = range::samples()
        .iter()
        .enumerate()
        .map(|(number, address)| (format!("n{number}.example.com"), answer(&[*address])))
        .collect();
    let (zone, cases) = refused_names(&names);
    scenario_network::run(
        "name",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            scenario_network.check(&cases);
            scenario_network.demand(scenario_network.attempts() == 0, || {
                format!("{} connection attempts", scenario_network.attempts())
            });
            for (name, _) in &names {
                scenario_network.demand(question_count(scenario_network, name) == 2, || {
                    format!(
                        "{} questions about {name}, not 2",
                        question_count(scenario_network, name)
                    )
                });
            }
        },
    );
}

fn question_count(scenario_network: &scenario_network::ScenarioNetwork, name: &str) -> usize {
    scenario_network
        .internet
        .questions()
        .iter()
        .filter(|question| question.name == name)
        .count()
}

#[test]
fn one_blocked_address_among_public_ones_refuses_the_whole_answer() {
    let (public_v4, public_v6): (IpAddr, IpAddr) = (
        PUBLIC_ADDRESS.parse().unwrap(),
        PUBLIC_ADDRESS_6.parse().unwrap(),
    );
    let mut names = Vec::new();
    for (number, address) in range::SENSITIVE_ADDRESSES.iter().enumerate() {
        let address: IpAddr = address.parse().unwrap();
        names.push((
            format!("m{number}.example.com"),
            answer(&[public_v4, public_v6, address]),
        ));
        names.push((
            format!("f{number}.example.com"),
            answer(&[address, public_v4, public_v6]),
        ));
    }
    // The blocked address is beyond the eight that are kept for connecting: D-4 applies before D-5.
    let mut many_addresses: Vec<IpAddr> = (1..=12)
        .map(|last| IpAddr::from([93, 184, 217, last]))
        .collect();
    many_addresses.push(IpAddr::from([10, 0, 0, 1]));
    names.push(("crowd.example.com".to_owned(), answer(&many_addresses)));
    let (zone, cases) = refused_names(&names);
    scenario_network::run(
        "mixed",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            scenario_network.check(&cases);
            scenario_network.demand(scenario_network.attempts() == 0, || {
                format!("{} connection attempts", scenario_network.attempts())
            });
            // D-3: AAAA is judged although it would not be used.
            let unused = FetchCommand::new("http://m17.example.com/")
                .set("EXTERNAL_URL_FETCH_IPV6", "false");
            scenario_network.check_one(&unused, &FetchExpectation::Denied("ssrf_blocked"));
        },
    );
}

#[test]
fn an_alias_to_a_blocked_address_or_name_is_refused() {
    let mut zone = Map::new();
    let mut cases = Vec::new();
    for (number, address) in range::one_sample_per_range().iter().enumerate() {
        let target = format!("t{number}.example.net");
        zone.insert(format!("c{number}.example.com"), json!([{"CNAME": target}]));
        zone.insert(target, json!([answer(&[*address])]));
        cases.push((
            FetchCommand::new(format!("http://c{number}.example.com/")),
            FetchExpectation::Denied("ssrf_blocked"),
        ));
    }
    for (number, target) in INNER_NAMES.iter().enumerate() {
        zone.insert(format!("i{number}.example.com"), json!([{"CNAME": target}]));
        zone.insert((*target).to_owned(), json!([{"A": [PUBLIC_ADDRESS]}]));
        cases.push((
            FetchCommand::new(format!("http://i{number}.example.com/")),
            FetchExpectation::Denied("ssrf_blocked"),
        ));
    }
    for number in 0..12 {
        zone.insert(
            format!("l{number}.example.com"),
            json!([{"CNAME": format!("l{}.example.com", number + 1)}]),
        );
    }
    zone.insert(
        "l12.example.com".to_owned(),
        json!([{"A": [PUBLIC_ADDRESS]}]),
    );
    zone.insert(
        "round.example.com".to_owned(),
        json!([{"CNAME": "round.example.com"}]),
    );
    // D-8: at most eight aliases.
    cases.push((
        FetchCommand::new("http://l4.example.com/"),
        FetchExpectation::Reached(PUBLIC_ADDRESS),
    ));
    cases.push((
        FetchCommand::new("http://l3.example.com/"),
        FetchExpectation::Refused,
    ));
    cases.push((
        FetchCommand::new("http://round.example.com/"),
        FetchExpectation::Refused,
    ));
    scenario_network::run(
        "alias",
        &ScenarioSetup {
            zone: zone.into(),
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            scenario_network.check(&cases);
            scenario_network.demand(scenario_network.attempts() == 1, || {
                format!("{} connection attempts, not 1", scenario_network.attempts())
            });
            let questions = scenario_network.internet.questions();
            let inner = questions
                .iter()
                .filter(|question| INNER_NAMES.contains(&question.name.as_str()))
                .count();
            scenario_network.demand(inner == 0, || {
                format!("{inner} questions about names that are never fetched")
            });
        },
    );
}

/// Names that are never fetched (section 6).
pub(super) const INNER_NAMES: [&str; 25] = [
    "localhost",
    "metadata",
    "kubernetes",
    "a.localhost",
    "printer.local",
    "x.invalid",
    "x.onion",
    "router.home.arpa",
    "x.alt",
    "1.0.0.127.in-addr.arpa",
    "ipv4only.arpa",
    "metadata.google.internal",
    "x.corp",
    "x.home",
    "x.lan",
    "x.intranet",
    "x.private",
    "x.localdomain",
    "web.default.svc",
    "web.default.svc.cluster",
    "kubernetes.default.svc.cluster.local",
    "node.dc1.consul",
    "metadata.goog",
    "metadata.tencentyun.com",
    "metadata.platformequinix.com",
];

#[test]
fn names_that_are_never_fetched_are_refused_without_a_query() {
    let zone: Map<String, Value> = INNER_NAMES
        .iter()
        .map(|name| ((*name).to_owned(), json!([{"A": [PUBLIC_ADDRESS]}])))
        .collect();
    scenario_network::run(
        "inner",
        &ScenarioSetup {
            zone: zone.into(),
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let mut cases: Vec<_> = INNER_NAMES
                .iter()
                .map(|name| {
                    (
                        FetchCommand::new(format!("http://{name}/")),
                        FetchExpectation::Denied("blocked_host"),
                    )
                })
                .collect();
            cases.push((
                FetchCommand::new("http://metadata.google.internal./"),
                FetchExpectation::Denied("blocked_host"),
            ));
            let extra = FetchCommand::new("http://wiki.company.example/").set(
                "EXTERNAL_URL_FETCH_EXTRA_BLOCKED_HOSTS",
                "*.company.example",
            );
            cases.push((extra, FetchExpectation::Denied("blocked_host")));
            scenario_network.check(&cases);
            let questions = scenario_network.internet.questions();
            scenario_network.demand(questions.is_empty(), || format!("questions: {questions:?}"));
        },
    );
}
