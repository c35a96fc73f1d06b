//! Publishes the ends of deliveries that no worker ended. The record says whether its end is published, so that a crash
//! between the two loses neither.

use dray_bus::Bus;
use dray_proto::v1;

use super::{Reconciler, log_failure, round_meta};
use crate::deliver::audit;
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::record::DeliveryRecord;
use crate::records::RevisionedRecord;
use crate::report;

/// How long an end is left to the process that wrote it, in milliseconds.
const PUBLISH_GRACE_MS: u64 = 10_000;

/// Notes in a finished record that its end is to be published: a delivery that is over waits for nothing else.
pub(crate) fn mark_unpublished(record: &mut DeliveryRecord, now_ms: u64) {
    record.due_at_ms = now_ms.max(1);
}

/// Whether the end of a finished delivery is not known to be published.
pub(super) const fn is_unpublished(record: &DeliveryRecord) -> bool {
    record.finished && record.due_at_ms != 0
}

/// Publishes the report of a record, and notes that in a finished one. A repeat has the same message id.
pub(crate) async fn publish_end(
    bus: &Bus,
    log: &DeliveryLog,
    key: &str,
    stored: RevisionedRecord,
) -> Result<(), DeliveryError> {
    let RevisionedRecord {
        mut record,
        revision,
    } = stored;
    if record.finished {
        record.due_at_ms = 0;
    }
    if let Some(meta) = round_meta(&record) {
        let done = v1::DeliveryDone {
            report: Some(report::for_event(&record)),
        };
        let part = format!("ended.{revision}");
        bus.publish_event_part(&meta, &part, &done).await?;
    }
    if record.finished {
        log.write(key, record, revision).await?;
    }
    Ok(())
}

impl Reconciler {
    /// Releases the place of a delivery that is over, and publishes its end.
    pub(super) async fn publish_end(
        &self,
        key: &str,
        stored: RevisionedRecord,
    ) -> Result<(), DeliveryError> {
        let record = &stored.record;
        self.places.release_place_of(key, record).await;
        if let Some(meta) = round_meta(record) {
            let platform = record.target.clone().unwrap_or_default().platform;
            // The events are written before the end counts as published: a repetition may write the events twice, but
            // none is lost.
            audit(&self.bus, &meta, &platform, record).await;
        }
        publish_end(&self.bus, &self.log, key, stored).await
    }

    /// Publishes the ends whose process stopped, or lost the bus, before it published them.
    pub(super) async fn publish_missing_ends(&self, now_ms: u64) {
        let before_ms = now_ms.saturating_sub(PUBLISH_GRACE_MS);
        for key in self.log.index.unpublished_ends(before_ms) {
            log_failure(self.publish_left_end(&key).await);
        }
    }

    async fn publish_left_end(&self, key: &str) -> Result<(), DeliveryError> {
        match self.log.records.read(key).await? {
            Some(stored) if is_unpublished(&stored.record) => self.publish_end(key, stored).await,
            // The index is behind the record.
            _ => Ok(()),
        }
    }
}
