//! Topology: created, read back, compared, never corrected without a report.

use std::time::Duration;

use super::{BusFixture, on_both, small_topology};
use crate::topology::{FullStreamPolicy, StreamRetention, StreamSpec, WORK_STREAM};
use crate::{Permissions, Topology, TopologyMismatch};

on_both!(
    an_applied_topology_reads_back_without_a_difference,
    missing_streams_and_consumers_are_reported,
    one_deviating_field_of_a_stream_is_reported_and_not_changed,
    one_deviating_field_of_a_consumer_is_reported,
    applying_again_corrects_what_may_be_corrected,
    a_stream_that_captures_a_call_subject_is_reported,
    readiness_needs_the_ledger,
);

fn mismatched_fields(mismatches: &[TopologyMismatch]) -> Vec<&'static str> {
    mismatches.iter().map(|mismatch| mismatch.field).collect()
}

async fn an_applied_topology_reads_back_without_a_difference(fixture: BusFixture) {
    let topology = small_topology(|_| {});
    assert_eq!(fixture.bus.apply_topology(&topology).await.unwrap(), []);
    assert_eq!(fixture.bus.verify_topology(&topology).await.unwrap(), []);
    let used = Permissions::service("sweeper").sweeps().topology();
    assert_eq!(fixture.bus.verify_topology(&used).await.unwrap(), []);
}

async fn missing_streams_and_consumers_are_reported(fixture: BusFixture) {
    let mismatches = fixture
        .bus
        .verify_topology(&Topology::default())
        .await
        .unwrap();
    let all = Topology::default();
    assert_eq!(mismatches.len(), all.streams.len() + all.consumers.len());
    assert!(
        mismatches
            .iter()
            .all(|mismatch| mismatch.field == "existence")
    );
}

async fn one_deviating_field_of_a_stream_is_reported_and_not_changed(fixture: BusFixture) {
    type Change = fn(&mut StreamSpec);
    let changes: [(&str, Change); 7] = [
        ("retention", |spec| {
            spec.retention = StreamRetention::Interest;
        }),
        ("discard", |spec| spec.discard = FullStreamPolicy::Old),
        ("max_age", |spec| spec.max_age += Duration::from_secs(1)),
        ("duplicate_window", |spec| spec.duplicate_window *= 2),
        ("max_msg_size", |spec| spec.max_message_size = 1000),
        ("allow_rollup", |spec| spec.allow_rollup = true),
        ("max_msgs_per_subject", |spec| spec.max_per_subject = 5),
    ];
    for (number, (field, change)) in changes.into_iter().enumerate() {
        let required = small_topology(|topology| {
            topology.consumers.clear();
            topology.streams.truncate(1);
            topology.streams[0].name = format!("TEST_{number}");
            topology.streams[0].subjects = vec![format!("test.{number}.>")];
            // A server refuses rollups where purging is refused.
            topology.streams[0].deny_purge = field != "allow_rollup";
        });
        let mut deviating = required.clone();
        change(&mut deviating.streams[0]);
        assert_eq!(
            fixture.bus.apply_topology(&deviating).await.unwrap(),
            [],
            "{field}"
        );
        for _ in 0..2 {
            let mismatches = fixture.bus.verify_topology(&required).await.unwrap();
            assert_eq!(mismatched_fields(&mismatches), [field]);
        }
    }
}

async fn one_deviating_field_of_a_consumer_is_reported(fixture: BusFixture) {
    let required = small_topology(|_| {});
    let deviating =
        small_topology(|topology| topology.consumers[0].ack_wait = Duration::from_secs(7));
    fixture.bus.apply_topology(&deviating).await.unwrap();
    let mismatches = fixture.bus.verify_topology(&required).await.unwrap();
    assert_eq!(mismatched_fields(&mismatches), ["ack_wait"]);
    assert_eq!(mismatches[0].object, "DRAY_WORK/file-resolver");
    assert_eq!(
        mismatches[0].to_string(),
        "DRAY_WORK/file-resolver: ack_wait must be 6s, is 7s"
    );
}

async fn applying_again_corrects_what_may_be_corrected(fixture: BusFixture) {
    let deviating = small_topology(|topology| {
        topology.streams[0].max_age = Duration::from_hours(1);
        topology.consumers[0].max_deliver = 3;
    });
    fixture.bus.apply_topology(&deviating).await.unwrap();
    let required = small_topology(|_| {});
    assert_eq!(
        fixture.bus.verify_topology(&required).await.unwrap().len(),
        2
    );
    assert_eq!(fixture.bus.apply_topology(&required).await.unwrap(), []);
    let state = fixture
        .backend()
        .stream(WORK_STREAM)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(state.spec.max_age, Duration::from_hours(6));
}

async fn a_stream_that_captures_a_call_subject_is_reported(fixture: BusFixture) {
    let topology = small_topology(|topology| {
        topology.consumers.clear();
        topology.streams.truncate(1);
        topology.streams[0].name = "TEST".to_owned();
        topology.streams[0].subjects = vec!["dray.egress.>".to_owned()];
    });
    let mismatches = fixture.bus.apply_topology(&topology).await.unwrap();
    assert!(
        mismatches
            .iter()
            .any(|mismatch| mismatch.expected.contains("dray.egress.v1.fetch")),
        "{mismatches:?}"
    );
}

async fn readiness_needs_the_ledger(fixture: BusFixture) {
    assert!(fixture.bus.round_trip().await.is_err());
    fixture.provision(Duration::from_secs(30)).await;
    fixture.bus.round_trip().await.unwrap();
}

/// A setting that the topology does not have, and that would change what a worker gets.
#[tokio::test]
async fn another_setting_of_a_consumer_is_reported() {
    let fixture = BusFixture::on_nats().await;
    let topology = small_topology(|_| {});
    fixture.bus.apply_topology(&topology).await.unwrap();
    let consumer = &topology.consumers[0];
    let request = serde_json::json!({
        "stream_name": WORK_STREAM,
        "config": {
            "durable_name": consumer.durable, "filter_subject": consumer.filter, "headers_only": true,
            "ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant",
            "ack_wait": consumer.ack_wait.as_nanos(), "max_ack_pending": consumer.max_ack_pending,
            "max_batch": consumer.max_batch, "max_deliver": consumer.max_deliver,
        },
    });
    let subject = format!(
        "$JS.API.CONSUMER.CREATE.{WORK_STREAM}.{}.{}",
        consumer.durable, consumer.filter
    );
    let message = super::outgoing_message(&subject, "", request.to_string());
    let mut inbox = fixture.backend().inbox();
    let address = inbox.address().to_owned();
    let sent = fixture.backend().publish(Some(&address), &message);
    sent.await.unwrap();
    let reply = inbox.next().await.unwrap();
    let reply: serde_json::Value = serde_json::from_slice(&reply.payload).unwrap();
    assert!(reply["error"].is_null(), "{reply}");
    let mismatches = fixture.bus.verify_topology(&topology).await.unwrap();
    assert_eq!(mismatched_fields(&mismatches), ["other_settings"]);
    assert_eq!(mismatches[0].found, "[\"headers_only\"]");
}
