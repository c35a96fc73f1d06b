//! I-2: a name is asked once for each hop, and what was judged is what is connected.

use serde_json::{Map, Value, json};

use super::to;
use crate::cable::PUBLIC_ADDRESSES;
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::range;
use crate::world::{self, StoryNetwork, StorySetup};

#[test]
fn a_name_that_rebinds_to_an_internal_address_is_never_followed() {
    let mut zone = Map::new();
    let (mut first, mut second, mut hops) = (Vec::new(), Vec::new(), Vec::new());
    for (number, address) in range::highlights().iter().enumerate() {
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        let turning: Value = json!([{"A": [PUBLIC_ADDRESSES]}, {kind: [address]}]);
        let (direct, hop) = (
            format!("d{number}.example.com"),
            format!("h{number}.example.com"),
        );
        zone.insert(direct.clone(), turning.clone());
        zone.insert(hop.clone(), turning);
        let direct = FetchCommand::new(format!("http://{direct}/"));
        first.push((direct.clone(), FetchExpectation::Reached(PUBLIC_ADDRESSES)));
        second.push((direct, FetchExpectation::Denied("ssrf_blocked")));
        let back = to(307, &format!("http://{hop}/secret"));
        hops.push((
            FetchCommand::new(format!("http://{hop}{back}")),
            FetchExpectation::Denied("ssrf_blocked"),
        ));
    }
    let names = hops.len();
    world::run(
        "rebinding",
        &StorySetup {
            zone: zone.into(),
            ..StorySetup::default()
        },
        |world| {
            world.check(&first);
            for number in 0..names {
                expect_lookups(world, &format!("d{number}.example.com"), 1);
            }
            world.check(&second);
            world.check(&hops);
            for number in 0..names {
                expect_lookups(world, &format!("h{number}.example.com"), 2);
            }
        },
    );
}

/// Each lookup asks once for each family.
fn expect_lookups(world: &StoryNetwork, name: &str, lookups: usize) {
    let questions = world.internet.questions();
    for kind in ["A", "AAAA"] {
        let count = questions
            .iter()
            .filter(|question| question.name == name && question.kind == kind)
            .count();
        world.demand(count == lookups, || {
            format!("{count} questions for {kind} of {name}, not {lookups}")
        });
    }
}

#[test]
fn a_connection_that_fails_does_not_use_another_answer() {
    // Port 8000 has a listener inside and none outside. A caller may repeat the whole fetch; then the answer
    // is judged again, and no connection is tried without an answer of its own (D-6).
    let turning = json!([{"A": [PUBLIC_ADDRESSES]}, {"A": ["127.0.0.1"]}]);
    let zone =
        json!({"turning.example.com": turning, "closed.example.com": [{"A": [PUBLIC_ADDRESSES]}]});
    let plan = StorySetup {
        zone,
        ..StorySetup::default()
    };
    world::run("refusing", &plan, |world| {
        let fetch = FetchCommand::new("http://closed.example.com:8000/");
        world.check_one(&fetch, &FetchExpectation::Denied("connect_failed"));
        let tries = usize::try_from(world.attempts()).unwrap();
        world.demand((1..=3).contains(&tries), || {
            format!("{tries} connection attempts")
        });
        expect_lookups(world, "closed.example.com", tries);
        let line = world.check_one(
            &FetchCommand::new("http://turning.example.com:8000/"),
            &FetchExpectation::Refused,
        );
        let code = line["code"].as_str().unwrap_or_default();
        world.demand(["connect_failed", "ssrf_blocked"].contains(&code), || {
            format!("the code is {code}")
        });
        let more = usize::try_from(world.attempts()).unwrap() - tries;
        world.demand(more == 1, || format!("{more} connection attempts, not 1"));
    });
}
