//! T-3: proxy variables of the environment are never read.

use crate::cable::PUBLIC;
use crate::expect::Expect;
use crate::fetch::Fetch;
use crate::world::{self, Plan};

use super::public;

/// A proxy outside, and one that waits on the own host.
const PROXIES: [&str; 4] = [
    "http://198.41.0.4:3128",
    "http://198.41.0.4:80",
    "socks5h://198.41.0.4:8080",
    "http://127.0.0.1:8080",
];

#[test]
fn proxies_of_the_environment_see_no_packet() {
    world::run("proxy", &Plan::default(), |world| {
        let mut cases = Vec::new();
        for proxy in PROXIES {
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
                .fold(Fetch::new(url), |fetch, variable| {
                    fetch.set(variable, proxy)
                })
            };
            cases.push((through(public("/")), Expect::Reached(PUBLIC)));
            cases.push((
                through("http://169.254.169.254/".to_owned()),
                Expect::Denied("ssrf_blocked"),
            ));
            let secure = through(format!("https://{PUBLIC}/"))
                .set("EXTERNAL_URL_FETCH_CA_BUNDLE", world.bundle());
            cases.push((secure, Expect::Reached(PUBLIC)));
        }
        world.check(&cases);
        let direct = world
            .internet
            .requests()
            .iter()
            .all(|request| request.head.starts_with("GET / HTTP/1.1\r\n"));
        world.demand(direct, || "a request was written for a proxy".to_owned());
    });
}
