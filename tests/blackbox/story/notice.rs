//! The suite itself: what the binary really sends to a watched range is noticed, on both sides and at the bait.

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::story_network::{self, StorySetup};

#[test]
fn a_packet_of_the_binary_to_a_watched_range_is_a_finding() {
    // The operator of this story opens a range, and the counters do not know.
    let findings = story_network::findings("notice", &StorySetup::default(), |story_network| {
        let opened = FetchCommand::new("http://10.77.0.5/")
            .set("EXTERNAL_URL_FETCH_PRIVATE_CIDRS", "10.77.0.0/24");
        story_network.check(&[
            (opened, FetchExpectation::Reached("10.77.0.5")),
            (
                FetchCommand::new("http://10.77.0.6/"),
                FetchExpectation::Reached("10.77.0.6"),
            ),
        ]);
    });
    let expected = [
        "1 packets sent for v4_private_10",
        "1 packets arrived for v4_private_10",
    ];
    for finding in expected {
        assert!(
            findings.iter().any(|reported| reported == finding),
            "not noticed: {finding}: {findings:?}"
        );
    }
    // And the fetch that was refused, but expected to be allowed.
    assert_eq!(findings.len(), expected.len() + 1, "{findings:?}");
}
