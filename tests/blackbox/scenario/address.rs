//! Section 8 with literal addresses: every blocked range, with its first and last address, and every service that an
//! attacker would want.

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::range;
use crate::scenario_network::{self, ScenarioSetup};

#[test]
fn no_blocked_address_is_reached_as_a_literal() {
    scenario_network::run("literal", &ScenarioSetup::default(), |scenario_network| {
        let mut cases: Vec<_> = range::samples()
            .into_iter()
            .map(|address| {
                (
                    FetchCommand::new(format!("http://{}/", range::host(address))),
                    FetchExpectation::Denied("ssrf_blocked"),
                )
            })
            .collect();
        for url in [
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:a9fe:a9fe]/latest/meta-data/",
            "http://[0:0:0:0:0:ffff:7f00:1]/",
            "http://[::FFFF:10.0.0.1]:8080/",
            "https://169.254.169.254/",
            "https://[fd00:ec2::254]:8443/",
            "http://127.0.0.1:8000/",
            "http://[0000:0000:0000:0000:0000:0000:0000:0001]:8080/",
        ] {
            cases.push((
                FetchCommand::new(url),
                FetchExpectation::Denied("ssrf_blocked"),
            ));
        }
        scenario_network.check(&cases);
        let questions = scenario_network.internet.questions();
        scenario_network.demand(questions.is_empty(), || {
            format!("a literal address caused DNS queries: {questions:?}")
        });
        scenario_network.demand(scenario_network.attempts() == 0, || {
            format!("{} connection attempts", scenario_network.attempts())
        });
    });
}

#[test]
fn own_platform_and_listed_addresses_are_blocked_too() {
    scenario_network::run("ours", &ScenarioSetup::default(), |scenario_network| {
        let blocked = |url: &str| {
            (
                FetchCommand::new(url),
                FetchExpectation::Denied("ssrf_blocked"),
            )
        };
        let listed = |url: &str| {
            let ranges = "20.33.0.0/16,2603:1000::/24";
            (
                FetchCommand::new(url).set("EXTERNAL_URL_FETCH_EXTRA_BLOCKED_CIDRS", ranges),
                FetchExpectation::Denied("ssrf_blocked"),
            )
        };
        let platform = FetchCommand::new("http://34.118.224.1/")
            .set("KUBERNETES_SERVICE_HOST", "34.118.224.1");
        scenario_network.check(&[
            blocked("http://151.101.1.2/"),
            blocked("http://[2a04:4e42:1::2]/"),
            blocked("http://[::ffff:151.101.1.2]/"),
            listed("http://20.33.0.0/"),
            listed("http://20.33.255.255/"),
            listed("http://[2603:1000::1]/"),
            listed("http://[::ffff:20.33.1.1]/"),
            (platform, FetchExpectation::Denied("ssrf_blocked")),
        ]);
        let beside = FetchCommand::new("http://20.34.0.0/")
            .set("EXTERNAL_URL_FETCH_EXTRA_BLOCKED_CIDRS", "20.33.0.0/16");
        scenario_network.check_one(&beside, &FetchExpectation::Reached("20.34.0.0"));
    });
}

#[test]
fn a_configured_nat64_prefix_is_judged_by_the_address_inside() {
    let mut plan = ScenarioSetup::default();
    plan.openings.networks.push("64:ff9b::808:808/128");
    scenario_network::run("nat64", &plan, |scenario_network| {
        let prefix = |url: &str| {
            FetchCommand::new(url).set("EXTERNAL_URL_FETCH_NAT64_PREFIXES", "64:ff9b::/96")
        };
        let blocked = |url: &str| (prefix(url), FetchExpectation::Denied("ssrf_blocked"));
        scenario_network.check(&[
            (
                prefix("http://[64:ff9b::8.8.8.8]/"),
                FetchExpectation::Reached("64:ff9b::808:808"),
            ),
            (
                FetchCommand::new("http://[64:ff9b::8.8.8.8]/"),
                FetchExpectation::Denied("ssrf_blocked"),
            ),
            blocked("http://[64:ff9b::127.0.0.1]/"),
            blocked("http://[64:ff9b::169.254.169.254]/"),
            blocked("http://[64:ff9b::10.0.0.1]/"),
            blocked("http://[64:ff9b:1::8.8.8.8]/"),
        ]);
        scenario_network.demand(scenario_network.opened() == 1, || {
            format!("{} packets to the prefix, not 1", scenario_network.opened())
        });
    });
}
