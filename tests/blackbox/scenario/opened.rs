//! Section 8.6: private ranges that the operator opened, and addresses that stay blocked.

use serde_json::json;

use super::{public, to};
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

const PRIVATE_CIDRS_VARIABLE: &str = "EXTERNAL_URL_FETCH_PRIVATE_CIDRS";
const OPENED_CIDRS: &str = "10.77.0.0/24,fd12:3456:789a::/48";

/// The addresses in the opened ranges that the scenarios reach. The other addresses there stay forbidden and are
/// counted.
fn plan() -> ScenarioSetup {
    let mut plan = ScenarioSetup {
        zone: json!({
            "files.example.com": [{"A": ["10.77.0.5"]}],
            "six.example.com": [{"AAAA": ["fd12:3456:789a::5"]}],
            "mixed.example.com": [{"A": ["10.77.0.5", PUBLIC_ADDRESS]}],
            "families.example.com": [{"A": ["10.77.0.5"], "AAAA": ["2606:2800:220:1::1"]}],
            "beside.example.com": [{"A": ["10.77.0.5", "10.78.0.5"]}],
            "portal.example.org": [{"A": [PUBLIC_ADDRESS]}],
        }),
        ..ScenarioSetup::default()
    };
    plan.openings
        .networks
        .extend(["10.77.0.5/32", "10.77.0.6/32", "fd12:3456:789a::5/128"]);
    plan
}

fn fetch_opened(url: impl Into<String>) -> FetchCommand {
    FetchCommand::new(url).set(PRIVATE_CIDRS_VARIABLE, OPENED_CIDRS)
}

#[test]
fn exactly_the_opened_range_is_reached() {
    scenario_network::run("opened", &plan(), |scenario_network| {
        scenario_network.add_own_address("10.77.0.9/32");
        let blocked = |url: &str| (fetch_opened(url), FetchExpectation::Denied("ssrf_blocked"));
        scenario_network.check(&[
            (
                fetch_opened("http://10.77.0.5/"),
                FetchExpectation::Reached("10.77.0.5"),
            ),
            (
                fetch_opened("http://10.77.0.6:8080/"),
                FetchExpectation::Reached("10.77.0.6"),
            ),
            (
                fetch_opened("http://files.example.com/"),
                FetchExpectation::Reached("10.77.0.5"),
            ),
            (
                fetch_opened("http://six.example.com/"),
                FetchExpectation::Reached("fd12:3456:789a::5"),
            ),
            (
                fetch_opened("http://[::ffff:10.77.0.5]/"),
                FetchExpectation::Reached("10.77.0.5"),
            ),
            (
                fetch_opened(public("/")),
                FetchExpectation::Reached(PUBLIC_ADDRESS),
            ),
            (
                FetchCommand::new("http://10.77.0.5/"),
                FetchExpectation::Denied("ssrf_blocked"),
            ),
            blocked("http://10.77.0.0/"),
            blocked("http://10.77.0.255/"),
            blocked("http://10.76.255.255/"),
            blocked("http://10.77.1.0/"),
            blocked("http://[fd12:3456:789b::5]/"),
            blocked("http://127.0.0.1/"),
            blocked("http://169.254.169.254/"),
            blocked("http://[fd00:ec2::254]/"),
            blocked("http://[64:ff9b::10.77.0.5]/"),
            blocked("http://[2002:a4d:5::1]/"),
            blocked("http://[::10.77.0.5]/"),
            blocked("http://mixed.example.com/"),
            blocked("http://families.example.com/"),
            blocked("http://beside.example.com/"),
            // An address of this host inside the range.
            blocked("http://10.77.0.9/"),
        ]);
        let port = fetch_opened("http://10.77.0.5:22/");
        let addition = fetch_opened("http://10.77.0.7/")
            .set("EXTERNAL_URL_FETCH_EXTRA_BLOCKED_CIDRS", "10.77.0.7/32");
        let servers = fetch_opened("http://10.77.0.53/")
            .set("EXTERNAL_URL_FETCH_DNS_SERVERS", "9.9.9.9,10.77.0.53");
        let platform =
            fetch_opened("http://10.77.0.8/").set("KUBERNETES_SERVICE_HOST", "10.77.0.8");
        let provider =
            FetchCommand::new("http://[fd00:ec2::254]/").set(PRIVATE_CIDRS_VARIABLE, "fd00::/16");
        scenario_network.check(&[
            (port, FetchExpectation::Denied("port_not_allowed")),
            (addition, FetchExpectation::Denied("ssrf_blocked")),
            (servers, FetchExpectation::Denied("ssrf_blocked")),
            (platform, FetchExpectation::Denied("ssrf_blocked")),
            (provider, FetchExpectation::Denied("ssrf_blocked")),
        ]);
        scenario_network.demand(scenario_network.opened() == 5, || {
            format!(
                "{} connections into opened ranges, not 5",
                scenario_network.opened()
            )
        });
    });
}

#[test]
fn a_public_page_leads_into_opened_ranges_only() {
    scenario_network::run("pivot", &plan(), |scenario_network| {
        let portal = |location: &str| {
            fetch_opened(format!("http://portal.example.org{}", to(302, location)))
        };
        let list =
            |fetch: FetchCommand, list: &str| fetch.set("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", list);
        let inside =
            |location: &str| fetch_opened(format!("http://files.example.com{}", to(302, location)));
        let named = "http://files.example.com/";
        let policy =
            json!({"enabled": true, "host_allowlist": ["portal.example.org", "files.example.com"]});
        scenario_network.check(&[
            (
                portal("http://10.77.0.5/"),
                FetchExpectation::Denied("ssrf_blocked"),
            ),
            (portal(named), FetchExpectation::Denied("ssrf_blocked")),
            (
                portal(named).policy(policy),
                FetchExpectation::Denied("ssrf_blocked"),
            ),
            (
                list(portal(named), "portal.example.org,files.example.com"),
                FetchExpectation::Reached("10.77.0.5"),
            ),
            (
                list(portal(named), "portal.example.org"),
                FetchExpectation::Denied("host_not_in_admin_allowlist"),
            ),
            (
                inside("http://10.77.0.6/"),
                FetchExpectation::Reached("10.77.0.6"),
            ),
            (
                inside(&public("/")),
                FetchExpectation::Reached(PUBLIC_ADDRESS),
            ),
            (
                inside("http://10.78.0.1/"),
                FetchExpectation::Denied("ssrf_blocked"),
            ),
        ]);
        scenario_network.demand(scenario_network.opened() == 5, || {
            format!(
                "{} connections into opened ranges, not 5",
                scenario_network.opened()
            )
        });
    });
}

#[test]
fn only_exact_private_networks_can_be_opened() {
    scenario_network::run(
        "unopenable",
        &ScenarioSetup::default(),
        |scenario_network| {
            let cases: Vec<_> = [
                "8.8.8.0/24",
                "127.0.0.0/8",
                "127.0.0.1/32",
                "169.254.0.0/16",
                "169.254.169.254/32",
                "100.64.0.0/10",
                "0.0.0.0/0",
                "::/0",
                "10.0.0.1/8",
                "10.0.0.0",
                "10.0.0.0/7",
                "::ffff:10.0.0.0/104",
                "fe80::/10",
                "::1/128",
                "files.example.com",
                "10.0.0.0/8,nonsense",
            ]
            .into_iter()
            .map(|range| {
                (
                    FetchCommand::new("http://10.77.0.5/").set(PRIVATE_CIDRS_VARIABLE, range),
                    FetchExpectation::NoStart,
                )
            })
            .collect();
            scenario_network.check(&cases);
            scenario_network.demand(scenario_network.attempts() == 0, || {
                format!("{} connection attempts", scenario_network.attempts())
            });
        },
    );
}
