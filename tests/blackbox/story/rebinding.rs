//! I-2: a name is asked once for each hop, and what was judged is what is connected.

use serde_json::{Map, Value, json};

use super::to;
use crate::cable::PUBLIC;
use crate::expect::Expect;
use crate::fetch::Fetch;
use crate::range;
use crate::world::{self, Plan, World};

#[test]
fn a_name_that_turns_inside_is_never_followed() {
    let mut zone = Map::new();
    let (mut first, mut second, mut hops) = (Vec::new(), Vec::new(), Vec::new());
    for (number, address) in range::highlights().iter().enumerate() {
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        let turning: Value = json!([{"A": [PUBLIC]}, {kind: [address]}]);
        let (direct, hop) = (
            format!("d{number}.example.com"),
            format!("h{number}.example.com"),
        );
        zone.insert(direct.clone(), turning.clone());
        zone.insert(hop.clone(), turning);
        let direct = Fetch::new(format!("http://{direct}/"));
        first.push((direct.clone(), Expect::Reached(PUBLIC)));
        second.push((direct, Expect::Denied("ssrf_blocked")));
        let back = to(307, &format!("http://{hop}/secret"));
        hops.push((
            Fetch::new(format!("http://{hop}{back}")),
            Expect::Denied("ssrf_blocked"),
        ));
    }
    let names = hops.len();
    world::run(
        "rebinding",
        &Plan {
            zone: zone.into(),
            ..Plan::default()
        },
        |world| {
            world.check(&first);
            for number in 0..names {
                asked(world, &format!("d{number}.example.com"), 1);
            }
            world.check(&second);
            world.check(&hops);
            for number in 0..names {
                asked(world, &format!("h{number}.example.com"), 2);
            }
        },
    );
}

/// Each lookup asks once for each family.
fn asked(world: &World, name: &str, lookups: usize) {
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
fn a_connection_that_fails_does_not_ask_again() {
    // Nobody listens at port 8000 outside; inside somebody does (D-6).
    let turning = json!([{"A": [PUBLIC]}, {"A": ["127.0.0.1"]}]);
    let zone = json!({"first.example.com": turning, "closed.example.com": [{"A": [PUBLIC]}]});
    world::run(
        "refusing",
        &Plan {
            zone,
            ..Plan::default()
        },
        |world| {
            for name in ["first.example.com", "closed.example.com"] {
                let fetch = Fetch::new(format!("http://{name}:8000/"));
                let line = world.check_one(&fetch, &Expect::Refused);
                world.demand(line["code"] == "connect_failed", || {
                    format!("the code is {}", line["code"])
                });
                asked(world, name, 1);
            }
            world.demand(world.attempts() == 2, || {
                format!("{} connection attempts, not 2", world.attempts())
            });
        },
    );
}
