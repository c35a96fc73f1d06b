//! The records of deliveries in the bucket `dray_deliveries`, changed only by compare-and-set.
//!
//! A record holds the delivery proof of each file: the platform's own ids of its messages.

use dray_bus::{Bus, KeyError, KeyValue};
use dray_delivery_rules::failure::{MAX_WRITE_ATTEMPTS, WRITE_RETRY_DELAY};
use dray_proto::codes::UnknownCode;
use dray_proto::v1;
use dray_types::{Fault, OperationId, TenantId};
use prost::Message as _;

use crate::error::left_to_other_replica;
use crate::record::DeliveryRecord;

/// Bucket of the records.
pub const DELIVERY_BUCKET: &str = "dray_deliveries";

/// Reads and changes records.
#[derive(Clone, Debug)]
pub struct RecordStore {
    keys: KeyValue,
}

/// A record with its revision, which the next write must name.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionedRecord {
    /// The record as it is stored at that revision.
    pub record: DeliveryRecord,
    /// The record's revision; 0 while it is not stored.
    pub revision: u64,
}

/// The reason why a record was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another worker changed the record, so this one must stop.
    #[error("another worker changed the delivery's record")]
    Moved,
    /// The bus failed.
    #[error("the delivery's record cannot be reached")]
    Unreachable(#[source] KeyError),
    /// The stored bytes are not a record.
    #[error("the delivery's record does not decode")]
    Corrupt(#[source] prost::DecodeError),
    /// A newer worker wrote the record, and this version cannot continue it.
    #[error("the delivery's record is of a newer version")]
    Newer(#[source] UnknownCode),
}

impl From<RecordError> for Fault {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Unreachable(key) => key.into(),
            // During an upgrade, a replica of the newer version continues it.
            RecordError::Newer(_) => left_to_other_replica(),
            // The caller cannot act on any of these; the log has the reason.
            RecordError::Moved | RecordError::Corrupt(_) => Self::internal(),
        }
    }
}

/// Decodes a record of this version or of the one before.
///
/// # Errors
/// The value is not a record, or has steps that only a newer worker can send.
pub(crate) fn decode_record(value: bytes::Bytes) -> Result<DeliveryRecord, RecordError> {
    let wire = v1::DeliveryRecord::decode(value).map_err(RecordError::Corrupt)?;
    DeliveryRecord::try_from(wire).map_err(RecordError::Newer)
}

/// `<tenant>.<delivery>`.
pub fn record_key(tenant: &TenantId, delivery: &OperationId) -> String {
    format!("{}.{}", tenant.token(), delivery.ledger_token())
}

/// The operation id of the work that continues a delivery after its `round`th wait; the delivery's own id for round 0.
pub fn round_operation(delivery: &OperationId, round: u32) -> OperationId {
    if round == 0 {
        return delivery.clone();
    }
    // The text has at most 76 printable characters, so this cannot fail.
    OperationId::new(format!("r{round}-{}", delivery.ledger_token()))
        .unwrap_or_else(|_| delivery.clone())
}

impl RecordStore {
    /// The records of this bus.
    pub fn new(bus: &Bus) -> Self {
        Self {
            keys: bus.key_value(DELIVERY_BUCKET),
        }
    }

    /// The keys themselves, for the index.
    pub(crate) fn keys(&self) -> &KeyValue {
        &self.keys
    }

    /// The record under a key.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn read(&self, key: &str) -> Result<Option<RevisionedRecord>, RecordError> {
        let entry = self.keys.get(key).await.map_err(RecordError::Unreachable)?;
        entry
            .map(|entry| {
                Ok(RevisionedRecord {
                    record: decode_record(entry.value)?,
                    revision: entry.revision,
                })
            })
            .transpose()
    }

    /// Replaces revision `expected` (0: the record must not exist). A write whose outcome is unknown is repeated. If
    /// the first write was stored, the stored record equals this one, which counts as success.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn write(
        &self,
        key: &str,
        record: DeliveryRecord,
        expected: u64,
    ) -> Result<RevisionedRecord, RecordError> {
        let value = bytes::Bytes::from(v1::DeliveryRecord::from(&record).encode_to_vec());
        let mut attempts = 0;
        loop {
            attempts += 1;
            let written = match expected {
                0 => self.keys.create(key, value.clone()).await,
                revision => self.keys.update(key, value.clone(), revision).await,
            };
            match written {
                Ok(revision) => return Ok(RevisionedRecord { record, revision }),
                // The first write may have been stored although its response was lost.
                Err(KeyError::Exists | KeyError::Stale) if attempts > 1 => {
                    let found = self.read(key).await?;
                    return found
                        .filter(|stored| stored.record == record)
                        .ok_or(RecordError::Moved);
                }
                Err(KeyError::Exists | KeyError::Stale) => return Err(RecordError::Moved),
                Err(KeyError::Transport(error))
                    if error.is_temporary() && attempts < MAX_WRITE_ATTEMPTS =>
                {
                    tracing::warn!(%error, "a delivery's record is written again");
                    tokio::time::sleep(WRITE_RETRY_DELAY).await;
                }
                Err(error) => return Err(RecordError::Unreachable(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::in_process;

    #[test]
    fn each_round_has_another_operation() {
        let plain = OperationId::new("0198-a").unwrap();
        assert_eq!(round_operation(&plain, 0), plain);
        assert_eq!(round_operation(&plain, 3).as_str(), "r3-0198-a");
        let long = OperationId::new("x".repeat(128)).unwrap();
        assert!(round_operation(&long, u32::MAX).as_str().len() <= 76);
        assert_ne!(round_operation(&long, 1), round_operation(&long, 2));
    }

    #[tokio::test]
    async fn a_record_is_changed_only_at_the_revision_that_was_read() {
        let (bus, _) = in_process().await;
        let records = RecordStore::new(&bus);
        assert_eq!(records.read("acme.op").await.unwrap(), None);
        let record = |message: &str| DeliveryRecord {
            message: message.to_owned(),
            ..DeliveryRecord::default()
        };
        let first = records.write("acme.op", record("one"), 0).await.unwrap();
        let moved = records.write("acme.op", record("two"), 0).await;
        assert!(matches!(moved, Err(RecordError::Moved)));
        records
            .write("acme.op", record("three"), first.revision)
            .await
            .unwrap();
        let moved = records
            .write("acme.op", record("four"), first.revision)
            .await;
        assert!(matches!(moved, Err(RecordError::Moved)));
        let stored = records.read("acme.op").await.unwrap().unwrap();
        assert_eq!(stored.record.message, "three");
    }
}
