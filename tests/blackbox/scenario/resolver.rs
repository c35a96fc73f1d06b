//! Section 7: which servers are asked, what they are asked, and how invalid responses are handled.

use serde_json::json;

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::{NAME_SERVER, NAME_SERVER_6, PUBLIC_ADDRESS, SYSTEM_NAME_SERVER};

const DNS_SERVERS_VARIABLE: &str = "EXTERNAL_URL_FETCH_DNS_SERVERS";

#[test]
fn names_are_queried_fully_qualified_and_only_at_the_configured_server() {
    let zone = json!({
        "files.example.com": [{"A": [PUBLIC_ADDRESS]}],
        "gone.example.com.corp.example": [{"A": [PUBLIC_ADDRESS]}],
        "gone.example.com.svc.cluster.example": [{"A": [PUBLIC_ADDRESS]}],
        "listed.example.com": [{"code": "NXDOMAIN"}],
    });
    scenario_network::run(
        "resolver",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let files = || FetchCommand::new("http://files.example.com/");
            scenario_network.check(&[
                (files(), FetchExpectation::Reached(PUBLIC_ADDRESS)),
                // The search list of the system file would complete this one (D-1).
                (
                    FetchCommand::new("http://gone.example.com/"),
                    FetchExpectation::Denied("dns_not_found"),
                ),
                // The hosts file of the system has this one (D-1).
                (
                    FetchCommand::new("http://listed.example.com/"),
                    FetchExpectation::Denied("dns_not_found"),
                ),
            ]);
            let mut names: Vec<_> = scenario_network
                .internet
                .questions()
                .into_iter()
                .map(|question| question.name)
                .collect();
            names.sort();
            names.dedup();
            scenario_network.demand(
                names
                    == [
                        "files.example.com",
                        "gone.example.com",
                        "listed.example.com",
                    ],
                || format!("questions about {names:?}"),
            );
            check_server(scenario_network, &files(), NAME_SERVER);
            check_server(
                scenario_network,
                &files().set(DNS_SERVERS_VARIABLE, "9.9.9.9:53"),
                NAME_SERVER,
            );
            check_server(
                scenario_network,
                &files().set(DNS_SERVERS_VARIABLE, "2620:fe::fe"),
                NAME_SERVER_6,
            );
            check_server(
                scenario_network,
                &files().set(DNS_SERVERS_VARIABLE, "[2620:fe::fe]:53"),
                NAME_SERVER_6,
            );
            // D-2: without the variable, the name servers of the system file, and nothing else from it.
            check_server(
                scenario_network,
                &files().unset(DNS_SERVERS_VARIABLE),
                SYSTEM_NAME_SERVER,
            );
        },
    );
}

/// Checks that both questions of this fetch go to this name server.
fn check_server(
    scenario_network: &scenario_network::ScenarioNetwork,
    fetch: &FetchCommand,
    server: &str,
) {
    scenario_network.internet.forget();
    scenario_network.check_one(fetch, &FetchExpectation::Reached(PUBLIC_ADDRESS));
    let questions = scenario_network.internet.questions();
    let (queries, is_right_server) = (
        questions.len(),
        questions.iter().all(|question| question.server == server),
    );
    scenario_network.demand(queries == 2 && is_right_server, || {
        format!("asked, instead of {server} twice: {questions:?}")
    });
}

#[test]
fn invalid_responses_of_the_name_server_are_failures_with_the_right_code() {
    let zone = json!({
        "empty.example.com": [{}],
        "servfail.example.com": [{"code": "SERVFAIL"}],
        "refused.example.com": [{"code": "REFUSED"}],
        "silent.example.com": [{"code": "SILENT"}],
        "long.example.com": [{"A": [PUBLIC_ADDRESS], "tcp_only": true}],
    });
    scenario_network::run(
        "answer",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let denied = |name: &str, code| {
                (
                    FetchCommand::new(format!("http://{name}.example.com/")),
                    FetchExpectation::Denied(code),
                )
            };
            scenario_network.check(&[
                denied("absent", "dns_not_found"),
                denied("empty", "dns_not_found"),
                denied("servfail", "dns_failure"),
                denied("refused", "dns_failure"),
                denied("silent", "timeout"),
                (
                    FetchCommand::new("http://long.example.com/"),
                    FetchExpectation::Reached(PUBLIC_ADDRESS),
                ),
            ]);
            let over_tcp = scenario_network
                .internet
                .questions()
                .into_iter()
                .any(|question| question.tcp);
            scenario_network.demand(over_tcp, || {
                "a truncated answer was not requested again over TCP".to_owned()
            });
            scenario_network.demand(scenario_network.attempts() == 1, || {
                format!("{} connection attempts, not 1", scenario_network.attempts())
            });
        },
    );
}
