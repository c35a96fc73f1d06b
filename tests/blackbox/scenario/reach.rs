//! Tests of fetches that must work: an envelope that refuses everything would pass every other scenario.

use serde_json::json;

use super::{pattern, public, to};
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::{PUBLIC_ADDRESS, PUBLIC_ADDRESS_6};

#[test]
fn public_servers_are_reached_over_both_families() {
    let zone = json!({
        "both.example.com": [{"A": [PUBLIC_ADDRESS], "AAAA": [PUBLIC_ADDRESS_6]}],
        "four.example.com": [{"A": [PUBLIC_ADDRESS]}],
        "six.example.com": [{"AAAA": [PUBLIC_ADDRESS_6]}],
        "alias.example.com": [{"CNAME": "four.example.com"}],
        "under_score.example.com": [{"A": [PUBLIC_ADDRESS]}],
        "xn--bcher-kva.example.com": [{"A": [PUBLIC_ADDRESS]}],
        "many.example.com": [{"A": [PUBLIC_ADDRESS, "93.184.216.35", "93.184.216.36"], "AAAA": [PUBLIC_ADDRESS_6]}],
    });
    scenario_network::run(
        "reach",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let cases: Vec<_> = REACHED_URLS
                .iter()
                .map(|(url, address)| (FetchCommand::new(*url), FetchExpectation::Reached(address)))
                .collect();
            scenario_network.check(&cases);
            let (arrived, expected) = (scenario_network.internet.requests().len(), cases.len());
            scenario_network.demand(arrived == expected, || {
                format!("{arrived} requests for {expected} fetches")
            });
            let attempts = usize::try_from(scenario_network.attempts()).unwrap();
            scenario_network.demand(attempts >= expected, || {
                format!("the counters saw {attempts} connection attempts")
            });
        },
    );
}

/// URLs, and the addresses to which they lead, including the nearest neighbours of blocked ranges.
const REACHED_URLS: [(&str, &str); 23] = [
    ("http://93.184.216.34/", PUBLIC_ADDRESS),
    ("http://93.184.216.34:8080/a/b?c=d#e", PUBLIC_ADDRESS),
    ("http://[::ffff:93.184.216.34]/", PUBLIC_ADDRESS),
    ("http://both.example.com/", PUBLIC_ADDRESS),
    ("http://FOUR.Example.COM/", PUBLIC_ADDRESS),
    ("http://four.example.com./", PUBLIC_ADDRESS),
    ("http://alias.example.com/", PUBLIC_ADDRESS),
    ("http://under_score.example.com/", PUBLIC_ADDRESS),
    ("http://bücher.example.com/", PUBLIC_ADDRESS),
    ("http://many.example.com/", PUBLIC_ADDRESS),
    (
        "http://four.example.com/?url=http://169.254.169.254/",
        PUBLIC_ADDRESS,
    ),
    ("http://[2606:2800:220:1::1]/", PUBLIC_ADDRESS_6),
    ("http://six.example.com/", PUBLIC_ADDRESS_6),
    ("http://1.1.1.1/", "1.1.1.1"),
    ("http://100.128.0.1/", "100.128.0.1"),
    ("http://172.32.0.1/", "172.32.0.1"),
    ("http://192.0.1.1/", "192.0.1.1"),
    ("http://198.20.0.1/", "198.20.0.1"),
    ("http://223.255.255.255/", "223.255.255.255"),
    ("http://168.63.129.17/", "168.63.129.17"),
    ("http://[2001:200::1]/", "2001:200::1"),
    ("http://[2003::1]/", "2003::1"),
    ("http://[3ffe::1]/", "3ffe::1"),
];

#[test]
fn files_arrive_whole_with_size_digest_and_labels() {
    scenario_network::run("files", &ScenarioSetup::default(), |scenario_network| {
        let content = |path: &str, size| {
            (
                FetchCommand::new(public(path)),
                FetchExpectation::Content(pattern(size)),
            )
        };
        scenario_network.check(&[
            content("/bytes/0", 0),
            content("/bytes/1", 1),
            content("/bytes/70000", 70_000),
            content("/bytes/3000000", 3_000_000),
            content("/chunked/100000", 100_000),
            content("/gzip/100000", 100_000),
        ]);
        let named = FetchCommand::new(public("/named/7265706f72742e637376"));
        let line =
            scenario_network.check_one(&named, &FetchExpectation::Content(b"a,b\n".to_vec()));
        scenario_network.demand(line["name"] == "report.csv", || {
            format!("the name is {}", line["name"])
        });
        scenario_network.demand(line["media_type"] == "text/csv", || {
            format!("the media type is {}", line["media_type"])
        });
        // "../../etc/passwd"
        let escaping = FetchCommand::new(public("/named/2e2e2f2e2e2f6574632f706173737764"));
        let line =
            scenario_network.check_one(&escaping, &FetchExpectation::Content(b"a,b\n".to_vec()));
        let name = line["name"].as_str().unwrap_or_default();
        scenario_network.demand(!name.contains('/') && !name.starts_with('.'), || {
            format!("the name is {name}")
        });
    });
}

#[test]
fn five_redirects_are_followed_and_a_sixth_is_not() {
    let zone = json!({
        "start.example.com": [{"A": [PUBLIC_ADDRESS]}],
        "end.example.com": [{"A": ["93.184.216.40"]}],
    });
    scenario_network::run(
        "chain",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let end = FetchExpectation::Content(b"end of the chain\n".to_vec());
            let chain = |length: u8| FetchCommand::new(public(&format!("/chain/{length}")));
            let hops = |limit: &str| chain(1).set("EXTERNAL_URL_FETCH_MAX_REDIRECTS", limit);
            let mut cases = vec![
                (chain(0), end.clone()),
                (chain(1), end.clone()),
                (chain(5), end.clone()),
                (chain(6), FetchExpectation::Denied("redirect_limit")),
                (chain(60), FetchExpectation::Denied("redirect_limit")),
                (hops("0"), FetchExpectation::Denied("redirect_limit")),
                (hops("1"), end.clone()),
                (chain(10).set("EXTERNAL_URL_FETCH_MAX_REDIRECTS", "10"), end),
                (
                    chain(11).set("EXTERNAL_URL_FETCH_MAX_REDIRECTS", "10"),
                    FetchExpectation::Denied("redirect_limit"),
                ),
            ];
            for status in super::REDIRECT_STATUSES {
                let redirecting_url = format!(
                    "http://start.example.com{}",
                    to(status, "//end.example.com/there")
                );
                cases.push((
                    FetchCommand::new(redirecting_url),
                    FetchExpectation::Reached("93.184.216.40"),
                ));
            }
            scenario_network.check(&cases);
            // "5" means six requests.
            let request_count = |path: &str| {
                scenario_network
                    .internet
                    .requests()
                    .iter()
                    .filter(|request| request.head.contains(path))
                    .count()
            };
            scenario_network.demand(request_count("GET /chain/55 ") == 1, || {
                "the sixth request of a long chain is missing".to_owned()
            });
            scenario_network.demand(request_count("GET /chain/54 ") == 0, || {
                "a seventh request was sent".to_owned()
            });
        },
    );
}
