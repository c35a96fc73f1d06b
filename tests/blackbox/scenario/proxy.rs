//! T-3: proxy variables of the environment are never read.

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

use super::public;

/// Proxies on a public address, and one on the binary's own host.
const PROXY_URLS: [&str; 4] = [
    "http://198.41.0.4:3128",
    "http://198.41.0.4:80",
    "socks5h://198.41.0.4:8080",
    "http://127.0.0.1:8080",
];

#[test]
fn proxies_of_the_environment_see_no_packet() {
    scenario_network::run("proxy", &ScenarioSetup::default(), |scenario_network| {
        let mut cases = Vec::new();
        for proxy in PROXY_URLS {
            let through = |url: String| {
                [
                    "http_proxy",
                    "HTTP_PROXY",
                    "https_proxy",
                    "HTTPS_PROXY",
                    "all_proxy",
                    "ALL_PROXY",
                ]
                .iter()
                .fold(FetchCommand::new(url), |fetch, variable| {
                    fetch.set(variable, proxy)
                })
            };
            cases.push((
                through(public("/")),
                FetchExpectation::Reached(PUBLIC_ADDRESS),
            ));
            cases.push((
                through("http://169.254.169.254/".to_owned()),
                FetchExpectation::Denied("ssrf_blocked"),
            ));
            let secure = through(format!("https://{PUBLIC_ADDRESS}/"))
                .set("EXTERNAL_URL_FETCH_CA_BUNDLE", scenario_network.bundle());
            cases.push((secure, FetchExpectation::Reached(PUBLIC_ADDRESS)));
        }
        scenario_network.check(&cases);
        let is_direct = scenario_network
            .internet
            .requests()
            .iter()
            .all(|request| request.head.starts_with("GET / HTTP/1.1\r\n"));
        scenario_network.demand(is_direct, || "a request was written for a proxy".to_owned());
    });
}
