//! Topology: created, read back, compared, never corrected without a report.

use std::time::Duration;

use super::{BusFixture, on_both, outgoing_message, small_topology};
use crate::topology::{
    DEAD_LETTER_STREAM, EVENT_STREAM, FullStreamPolicy, LEDGER_STREAM, StreamRetention, StreamSpec,
    StreamState, WORK_STREAM,
};
use crate::{Permissions, StreamSizing, Topology, TopologyMismatch, TopologyUpdateError};

on_both!(
    an_applied_topology_reads_back_without_a_difference,
    missing_streams_and_consumers_are_reported,
    one_deviating_field_of_a_stream_is_reported_and_not_changed,
    one_deviating_field_of_a_consumer_is_reported,
    applying_again_corrects_what_may_be_corrected,
    an_update_without_a_size_keeps_sizes_and_content,
    an_update_that_would_drop_content_changes_nothing,
    a_new_stream_gets_its_share_of_the_existing_store,
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

const MIB: u64 = 1024 * 1024;

async fn stream_state(fixture: &BusFixture, name: &str) -> StreamState {
    fixture.backend().stream(name).await.unwrap().unwrap()
}

/// One MiB of dead letters, for which a store of 4 MiB is too small.
async fn provision_with_dead_letters(fixture: &BusFixture) -> StreamState {
    // 8 % of this store are 1.3 MiB.
    let topology = Topology::new(1, 16 * MIB);
    assert_eq!(fixture.bus.apply_topology(&topology).await.unwrap(), []);
    for _ in 0..8 {
        let letter = outgoing_message(
            "dray.dead.toolcall.v1.resolve.acme",
            "",
            vec![0; 128 * 1024],
        );
        let stored = fixture.backend().store(&letter, Duration::from_secs(5));
        stored.await.unwrap();
    }
    stream_state(fixture, DEAD_LETTER_STREAM).await
}

async fn an_update_without_a_size_keeps_sizes_and_content(fixture: BusFixture) {
    let before = provision_with_dead_letters(&fixture).await;
    // As `dray topology apply` without options: the sizes in the topology are those for an empty server.
    let topology = Topology::new(1, 4 * MIB);
    let sizing = StreamSizing::default();
    let updated = fixture
        .bus
        .update_topology(&topology, &sizing)
        .await
        .unwrap();
    assert_eq!((updated.changes, updated.mismatches), (vec![], vec![]));
    let after = stream_state(&fixture, DEAD_LETTER_STREAM).await;
    assert_eq!(after.messages, 8);
    assert_eq!(after.spec, before.spec);
}

async fn an_update_that_would_drop_content_changes_nothing(fixture: BusFixture) {
    let before = provision_with_dead_letters(&fixture).await;
    let topology = Topology::new(1, 4 * MIB);
    let mut sizing = StreamSizing {
        store_bytes: Some(4 * MIB),
        ..StreamSizing::default()
    };
    let refused = fixture.bus.update_topology(&topology, &sizing).await;
    let Err(TopologyUpdateError::DropsContent(changes)) = refused else {
        panic!("{refused:?}");
    };
    let [change] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    assert_eq!(
        (change.stream.as_str(), change.from),
        (DEAD_LETTER_STREAM, before.bytes)
    );
    let after = stream_state(&fixture, DEAD_LETTER_STREAM).await;
    assert_eq!((after.messages, after.spec), (8, before.spec));
    let different = fixture.bus.compare_topology_sizing(&topology, &sizing);
    let different = different.await.unwrap();
    assert_eq!(different.len(), topology.streams.len());
    assert!(different.iter().all(|other| other.field == "max_bytes"));

    sizing.allow_smaller = true;
    let updated = fixture
        .bus
        .update_topology(&topology, &sizing)
        .await
        .unwrap();
    assert_eq!(updated.changes.len(), topology.streams.len());
    assert_eq!(updated.mismatches, []);
    let different = fixture.bus.compare_topology_sizing(&topology, &sizing);
    assert_eq!(different.await.unwrap(), []);
}

async fn a_new_stream_gets_its_share_of_the_existing_store(fixture: BusFixture) {
    let mut older = Topology::new(1, 16 * MIB);
    older.consumers.clear();
    older.streams.truncate(2);
    assert_eq!(older.streams[0].name, WORK_STREAM);
    assert_eq!(older.streams[1].name, EVENT_STREAM);
    // The share of work was larger in earlier versions.
    older.streams[0].max_bytes *= 2;
    assert_eq!(fixture.bus.apply_topology(&older).await.unwrap(), []);
    let sizing = StreamSizing::default();
    let topology = Topology::new(1, 4 * MIB);
    let updated = fixture
        .bus
        .update_topology(&topology, &sizing)
        .await
        .unwrap();
    assert_eq!(updated.mismatches, []);
    assert_eq!(updated.changes.len(), topology.streams.len() - 2);
    let ledger = stream_state(&fixture, LEDGER_STREAM).await;
    let share = Topology::new(1, 16 * MIB).streams;
    let share = share
        .iter()
        .find(|spec| spec.name == LEDGER_STREAM)
        .unwrap();
    // Both shares are rounded down.
    let difference = share.max_bytes.abs_diff(ledger.spec.max_bytes);
    assert!(difference < 1000, "{difference}");
}

/// Copies need several servers on NATS, so this runs in process only.
#[tokio::test]
async fn an_update_reduces_copies_only_when_that_is_allowed() {
    let fixture = BusFixture::in_process();
    let three = Topology::new(3, 16 * MIB);
    assert_eq!(fixture.bus.apply_topology(&three).await.unwrap(), []);
    let topology = Topology::new(1, 16 * MIB);
    let mut sizing = StreamSizing::default();
    let updated = fixture
        .bus
        .update_topology(&topology, &sizing)
        .await
        .unwrap();
    assert_eq!(updated.changes, []);
    assert_eq!(stream_state(&fixture, WORK_STREAM).await.spec.replicas, 3);

    sizing.replicas = Some(1);
    let refused = fixture.bus.update_topology(&topology, &sizing).await;
    let Err(TopologyUpdateError::FewerCopies(changes)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(changes[0].to_string(), "DRAY_WORK: replicas from 3 to 1");
    assert_eq!(stream_state(&fixture, WORK_STREAM).await.spec.replicas, 3);
    let different = fixture.bus.compare_topology_sizing(&topology, &sizing);
    let different = different.await.unwrap();
    assert_eq!(
        different[0].to_string(),
        "DRAY_WORK: replicas must be 1, is 3"
    );

    sizing.allow_fewer_copies = true;
    let updated = fixture
        .bus
        .update_topology(&topology, &sizing)
        .await
        .unwrap();
    assert_eq!(updated.changes, changes);
    assert_eq!(stream_state(&fixture, WORK_STREAM).await.spec.replicas, 1);
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
