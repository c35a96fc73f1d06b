//! Section 20: a configuration that could silently disable a restriction does not start, and sends nothing.

use super::public;
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

#[test]
fn an_ambiguous_configuration_does_not_start() {
    scenario_network::run("start", &ScenarioSetup::default(), |scenario_network| {
        let cases: Vec<_> = [
            ("EXTERNAL_URL_FETCH_ENABLED", "yes"),
            ("EXTERNAL_URL_FETCH_ENABLED", "1"),
            ("EXTERNAL_URL_FETCH_HOST_ALOWLIST", "example.com"),
            ("EXTERNAL_URL_FETCH_PROXY", "http://198.41.0.4:3128"),
            ("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", ","),
            ("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", "[]"),
            ("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", "[\"\"]"),
            (
                "EXTERNAL_URL_FETCH_HOST_ALLOWLIST",
                "example.com,,example.org",
            ),
            ("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", "*"),
            ("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", "https://example.com"),
            ("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", "10.0.0.0/8"),
            ("EXTERNAL_URL_FETCH_MAX_REDIRECTS", "11"),
            ("EXTERNAL_URL_FETCH_MAX_REDIRECTS", "-1"),
            ("EXTERNAL_URL_FETCH_MAX_REDIRECTS", "many"),
            ("EXTERNAL_URL_FETCH_CONNECT_TIMEOUT_SECONDS", "0"),
            ("EXTERNAL_URL_FETCH_TOTAL_TIMEOUT_SECONDS", "301"),
            ("EXTERNAL_URL_FETCH_ALLOWED_PORTS", "80,25"),
            ("EXTERNAL_URL_FETCH_HTTPS_ONLY", "maybe"),
            ("EXTERNAL_URL_FETCH_DNS_SERVERS", "dns.example.com"),
            ("EXTERNAL_URL_FETCH_NAT64_PREFIXES", "64:ff9b::/97"),
            ("EXTERNAL_URL_FETCH_EXTRA_BLOCKED_CIDRS", "everything"),
            ("EXTERNAL_URL_FETCH_CA_BUNDLE", "/nonexistent/bundle.pem"),
            ("EXTERNAL_URL_FETCH_USER_AGENT", "two\nlines"),
        ]
        .into_iter()
        .map(|(variable, value)| {
            (
                FetchCommand::new(public("/")).set(variable, value),
                FetchExpectation::NoStart,
            )
        })
        .collect();
        scenario_network.check(&cases);
        scenario_network.demand(scenario_network.attempts() == 0, || {
            format!("{} connection attempts", scenario_network.attempts())
        });
        let questions = scenario_network.internet.questions();
        scenario_network.demand(questions.is_empty(), || format!("questions: {questions:?}"));
        scenario_network.check_one(
            &FetchCommand::new(public("/")),
            &FetchExpectation::Reached(PUBLIC_ADDRESS),
        );
    });
}
