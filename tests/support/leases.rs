//! Leases of killed services: tests read how much work was interrupted, and let it continue sooner than after a lease.

use std::time::Duration;

use dray_bus::{Bus, Topology, test_bus};
use dray_proto::v1;
use prost::Message as _;

/// Bucket of the records of work.
pub(crate) const LEDGER_BUCKET: &str = "dray_ledger";

/// Makes the leases of killed workers expire, as after a minute, so that their work can be claimed. Call it while the
/// services that had work are down, and call [`apply_topology`] with a short ack wait once they run again.
pub(crate) async fn expire_leases(bus: &Bus) {
    let keys = bus.key_value(LEDGER_BUCKET);
    for (key, entry) in keys.list("", usize::MAX).await.unwrap().entries {
        let mut record = v1::LedgerRecord::decode(entry.value).unwrap();
        if record.lease_until_ms > 0 {
            record.lease_until_ms = 1;
            let value = record.encode_to_vec().into();
            // If a running worker renewed its lease at the same time, the lease remains.
            let _ = keys.update(&key, value, entry.revision).await;
        }
    }
}

/// How many units of work a second worker claimed after the first one had stopped.
pub(crate) async fn count_taken_over(bus: &Bus) -> usize {
    let keys = bus.key_value(LEDGER_BUCKET);
    let records = keys.list("", usize::MAX).await.unwrap().entries.into_iter();
    records
        .map(|(_, entry)| v1::LedgerRecord::decode(entry.value).unwrap())
        .filter(|record| record.epoch > 1)
        .count()
}

/// Applies a topology, with another ack wait if there is one. Services refuse to start on another topology than the
/// standard one; running services keep working, and the server redelivers the messages of killed ones sooner.
pub(crate) async fn apply_topology(bus: &Bus, mut topology: Topology, ack_wait: Option<Duration>) {
    if let Some(ack_wait) = ack_wait {
        for consumer in &mut topology.consumers {
            consumer.ack_wait = ack_wait;
        }
    }
    test_bus::provision(bus, &topology).await;
}
