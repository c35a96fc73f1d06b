//! T-5 and X-3: certificates are checked for the name in the URL, and https does not turn into http.

use serde_json::json;

use super::to;
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::{PUBLIC_ADDRESS, PUBLIC_ADDRESS_6};

#[test]
fn only_a_valid_certificate_for_the_name_is_accepted() {
    let server = json!([{"A": [PUBLIC_ADDRESS]}]);
    let zone = json!({
        "secure.example.com": server, "misnamed.example.com": server, "expired.example.com": server,
        "stranger.example.com": server, "secure.example.net": server,
    });
    scenario_network::run(
        "tls",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let trusting = |url: &str| {
                FetchCommand::new(url)
                    .set("EXTERNAL_URL_FETCH_CA_BUNDLE", scenario_network.bundle())
            };
            let refused = FetchExpectation::Denied("tls_error");
            scenario_network.check(&[
                (
                    trusting("https://secure.example.com/"),
                    FetchExpectation::Reached(PUBLIC_ADDRESS),
                ),
                (
                    trusting("https://secure.example.com:8443/"),
                    FetchExpectation::Reached(PUBLIC_ADDRESS),
                ),
                (
                    trusting("https://93.184.216.34/"),
                    FetchExpectation::Reached(PUBLIC_ADDRESS),
                ),
                (
                    trusting("https://[2606:2800:220:1::1]/"),
                    FetchExpectation::Reached(PUBLIC_ADDRESS_6),
                ),
                (
                    FetchCommand::new("https://secure.example.com/"),
                    refused.clone(),
                ),
                (trusting("https://misnamed.example.com/"), refused.clone()),
                (trusting("https://expired.example.com/"), refused.clone()),
                (trusting("https://stranger.example.com/"), refused.clone()),
                (trusting("https://secure.example.net/"), refused.clone()),
                (trusting("https://93.184.216.35/"), refused.clone()),
                // A server that speaks no TLS.
                (trusting("https://secure.example.com:8080/"), refused),
            ]);
            let arrived = scenario_network.internet.requests().len();
            scenario_network.demand(arrived == 4, || {
                format!("{arrived} requests were written, not 4")
            });
        },
    );
}

#[test]
fn https_does_not_turn_into_http() {
    let zone = json!({"secure.example.com": [{"A": [PUBLIC_ADDRESS]}]});
    scenario_network::run(
        "downgrade",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let start = |location: &str| {
                FetchCommand::new(format!("https://secure.example.com{}", to(302, location)))
                    .set("EXTERNAL_URL_FETCH_CA_BUNDLE", scenario_network.bundle())
            };
            let allowed = start("http://secure.example.com/")
                .set("EXTERNAL_URL_FETCH_ALLOW_DOWNGRADE", "true");
            let upgrade = FetchCommand::new(format!(
                "http://secure.example.com{}",
                to(301, "https://secure.example.com/")
            ))
            .set("EXTERNAL_URL_FETCH_CA_BUNDLE", scenario_network.bundle());
            let https_only = FetchCommand::new("http://secure.example.com/")
                .set("EXTERNAL_URL_FETCH_HTTPS_ONLY", "true");
            scenario_network.check(&[
                (
                    start("http://secure.example.com/"),
                    FetchExpectation::Denied("redirect_downgrade"),
                ),
                (
                    start("//secure.example.com/"),
                    FetchExpectation::Reached(PUBLIC_ADDRESS),
                ),
                (start("/plain"), FetchExpectation::Reached(PUBLIC_ADDRESS)),
                (allowed, FetchExpectation::Reached(PUBLIC_ADDRESS)),
                (upgrade, FetchExpectation::Reached(PUBLIC_ADDRESS)),
                (https_only, FetchExpectation::Denied("unsupported_scheme")),
            ]);
        },
    );
}
