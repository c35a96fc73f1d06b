//! T-5 and X-3: certificates are checked for the name in the URL, and https does not turn into http.

use serde_json::json;

use super::to;
use crate::cable::{PUBLIC, PUBLIC_6};
use crate::expect::Expect;
use crate::fetch::Fetch;
use crate::world::{self, Plan};

#[test]
fn only_a_valid_certificate_for_the_name_is_accepted() {
    let server = json!([{"A": [PUBLIC]}]);
    let zone = json!({
        "secure.example.com": server, "misnamed.example.com": server, "expired.example.com": server,
        "stranger.example.com": server, "secure.example.net": server,
    });
    world::run(
        "tls",
        &Plan {
            zone,
            ..Plan::default()
        },
        |world| {
            let trusting =
                |url: &str| Fetch::new(url).set("EXTERNAL_URL_FETCH_CA_BUNDLE", world.bundle());
            let bad = Expect::Denied("tls_error");
            world.check(&[
                (
                    trusting("https://secure.example.com/"),
                    Expect::Reached(PUBLIC),
                ),
                (
                    trusting("https://secure.example.com:8443/"),
                    Expect::Reached(PUBLIC),
                ),
                (trusting("https://93.184.216.34/"), Expect::Reached(PUBLIC)),
                (
                    trusting("https://[2606:2800:220:1::1]/"),
                    Expect::Reached(PUBLIC_6),
                ),
                (Fetch::new("https://secure.example.com/"), bad.clone()),
                (trusting("https://misnamed.example.com/"), bad.clone()),
                (trusting("https://expired.example.com/"), bad.clone()),
                (trusting("https://stranger.example.com/"), bad.clone()),
                (trusting("https://secure.example.net/"), bad.clone()),
                (trusting("https://93.184.216.35/"), bad.clone()),
                // A server that speaks no TLS.
                (trusting("https://secure.example.com:8080/"), bad),
            ]);
            let arrived = world.internet.requests().len();
            world.demand(arrived == 4, || {
                format!("{arrived} requests were written, not 4")
            });
        },
    );
}

#[test]
fn https_does_not_turn_into_http() {
    let zone = json!({"secure.example.com": [{"A": [PUBLIC]}]});
    world::run(
        "downgrade",
        &Plan {
            zone,
            ..Plan::default()
        },
        |world| {
            let start = |location: &str| {
                Fetch::new(format!("https://secure.example.com{}", to(302, location)))
                    .set("EXTERNAL_URL_FETCH_CA_BUNDLE", world.bundle())
            };
            let allowed = start("http://secure.example.com/")
                .set("EXTERNAL_URL_FETCH_ALLOW_DOWNGRADE", "true");
            let upgrade = Fetch::new(format!(
                "http://secure.example.com{}",
                to(301, "https://secure.example.com/")
            ))
            .set("EXTERNAL_URL_FETCH_CA_BUNDLE", world.bundle());
            let only = Fetch::new("http://secure.example.com/")
                .set("EXTERNAL_URL_FETCH_HTTPS_ONLY", "true");
            world.check(&[
                (
                    start("http://secure.example.com/"),
                    Expect::Denied("redirect_downgrade"),
                ),
                (start("//secure.example.com/"), Expect::Reached(PUBLIC)),
                (start("/plain"), Expect::Reached(PUBLIC)),
                (allowed, Expect::Reached(PUBLIC)),
                (upgrade, Expect::Reached(PUBLIC)),
                (only, Expect::Denied("unsupported_scheme")),
            ]);
        },
    );
}
