//! Section 12: a redirect leads nowhere that the agent could not have gone.

use serde_json::{Map, json};

use super::{REDIRECTS, public, to};
use crate::cable::PUBLIC;
use crate::expect::Expect;
use crate::fetch::Fetch;
use crate::range;
use crate::world::{self, Plan};

#[test]
fn no_blocked_address_is_reached_by_a_redirect() {
    let mut zone = Map::new();
    let mut cases = Vec::new();
    let statuses = REDIRECTS.iter().cycle();
    for ((number, address), status) in range::highlights().iter().enumerate().zip(statuses) {
        let (written, name) = (range::host(*address), format!("r{number}.example.com"));
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        zone.insert(name.clone(), json!([{kind: [address]}]));
        // Straight to the address, and to a name that has it, in turns of the ways to write a location.
        let location = if number % 2 == 0 {
            format!("http://{written}/secret")
        } else {
            format!("//{written}:8080")
        };
        cases.push(refused(*status, &location));
        cases.push(refused(*status, &format!("http://{name}/")));
    }
    world::run(
        "redirect",
        &Plan {
            zone: zone.into(),
            ..Plan::default()
        },
        |world| {
            world.check(&cases);
            let (arrived, sent) = (world.internet.requests().len(), cases.len());
            world.demand(arrived == sent, || {
                format!("{arrived} requests arrived for {sent} fetches")
            });
        },
    );
}

fn refused(status: u16, location: &str) -> (Fetch, Expect) {
    (
        Fetch::new(public(&to(status, location))),
        Expect::Denied("ssrf_blocked"),
    )
}

/// Locations, and why they are not followed.
const LOCATIONS: [(&str, &str); 18] = [
    ("http://localhost/", "blocked_host"),
    ("http://metadata.google.internal/", "blocked_host"),
    ("http://2130706433/", "ambiguous_host"),
    ("http://0x7f.1/", "ambiguous_host"),
    ("http://0177.0.0.1/", "ambiguous_host"),
    ("http://user:secret@two.example.com/", "url_credentials"),
    ("http://two.example.com:22/", "port_not_allowed"),
    ("http://two.example.com:6379/", "port_not_allowed"),
    ("ftp://two.example.com/", "unsupported_scheme"),
    ("file:///etc/passwd", "unsupported_scheme"),
    ("gopher://127.0.0.1:6379/_INFO", "unsupported_scheme"),
    ("http:/two.example.com/", "redirect_invalid"),
    ("http:two.example.com", "redirect_invalid"),
    ("\\\\127.0.0.1\\", "redirect_invalid"),
    ("http://a\\@127.0.0.1/", "redirect_invalid"),
    ("/with blank", "redirect_invalid"),
    ("///127.0.0.1/", "redirect_invalid"),
    ("", "redirect_invalid"),
];

#[test]
fn a_redirect_goes_through_every_rule_again() {
    let zone = json!({
        "one.example.com": [{"A": [PUBLIC]}],
        "two.example.com": [{"A": [PUBLIC]}],
        "three.example.org": [{"A": [PUBLIC]}],
    });
    world::run(
        "again",
        &Plan {
            zone,
            ..Plan::default()
        },
        |world| {
            let mut cases: Vec<_> = LOCATIONS
                .iter()
                .map(|(location, code)| {
                    (Fetch::new(public(&to(302, location))), Expect::Denied(code))
                })
                .collect();
            // The sentence then speaks of the redirect target; only the refusal matters here.
            let nowhere = public(&to(302, "http://nowhere.example.com/"));
            cases.push((Fetch::new(nowhere), Expect::Refused));
            world.check(&cases);
            let listed = |list: &str| {
                let start = format!(
                    "http://one.example.com{}",
                    to(302, "http://three.example.org/")
                );
                Fetch::new(start).set("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", list)
            };
            let app = json!({"enabled": null, "host_allowlist": ["*.example.com"]});
            world.check(&[
                (
                    listed("*.example.com"),
                    Expect::Denied("host_not_in_admin_allowlist"),
                ),
                (
                    listed("*.example.com,three.example.org").policy(app),
                    Expect::Denied("host_not_in_app_allowlist"),
                ),
            ]);
            let questions = world.internet.questions();
            let asked = questions
                .iter()
                .any(|question| question.name == "three.example.org");
            world.demand(!asked, || {
                "a host outside the allowlist was asked for after a redirect".to_owned()
            });
            world.check_one(
                &listed("*.example.com,*.example.org"),
                &Expect::Reached(PUBLIC),
            );
        },
    );
}
