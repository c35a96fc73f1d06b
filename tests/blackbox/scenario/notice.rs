//! Tests the suite itself: a packet that the binary sends to a watched range is counted on both sides of the veth pair.

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};

#[test]
fn a_packet_to_a_watched_range_is_reported_as_a_finding() {
    // The configuration of the binary opens a range that the counters still watch.
    let findings = scenario_network::collect_findings(
        "notice",
        &ScenarioSetup::default(),
        |scenario_network| {
            let opened = FetchCommand::new("http://10.77.0.5/")
                .set("EXTERNAL_URL_FETCH_PRIVATE_CIDRS", "10.77.0.0/24");
            scenario_network.check(&[
                (opened, FetchExpectation::Reached("10.77.0.5")),
                (
                    FetchCommand::new("http://10.77.0.6/"),
                    FetchExpectation::Reached("10.77.0.6"),
                ),
            ]);
        },
    );
    let expected = [
        "1 packets sent for v4_private_10",
        "1 packets arrived for v4_private_10",
    ];
    for finding in expected {
        assert!(
            findings.iter().any(|reported| reported == finding),
            "missing finding: {finding}: {findings:?}"
        );
    }
    // The third finding is the second fetch, which was refused although the test expects it to be allowed.
    assert_eq!(findings.len(), expected.len() + 1, "{findings:?}");
}
