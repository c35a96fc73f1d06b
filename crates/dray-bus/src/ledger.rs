//! The ledger: who works on an operation, and its outcome (messaging-reliability 7).
//!
//! Every change is a compare-and-set. A write whose outcome is unknown is repeated. If the first write was stored after
//! all, the entry equals the written value, which counts as success.

pub(crate) mod record;

use std::time::Duration;

use dray_proto::{Work, v1};
use dray_types::{Clock, OperationId, TenantId};
use opentelemetry::metrics::Counter;
use prost::Message as _;

use crate::backoff::Backoff;
use crate::bus_core::Bus;
use crate::health::ConnectionHealth;
use crate::key_value::{KeyError, KeyValue};

/// Bucket of the ledger: one record for each operation, until the record's retention ends.
pub const LEDGER_BUCKET: &str = "dray_ledger";

/// Most attempts of one write whose outcome is unknown.
pub const MAX_WRITE_ATTEMPTS: u32 = 3;

/// Reads and changes ledger entries.
#[derive(Clone, Debug)]
pub struct Ledger {
    keys: KeyValue,
    clock: Clock,
    health: ConnectionHealth,
    regressions: Counter<u64>,
}

/// `<area>.<verb>.<tenant>.<operation>`: the key of one piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LedgerKey(String);

impl LedgerKey {
    /// The key of an operation's work of kind `W`.
    pub fn of<W: Work>(tenant: &TenantId, operation: &OperationId) -> Self {
        Self::new(W::AREA, W::VERB, &tenant.token(), operation)
    }

    /// The key of exactly this message's work, in the area that it travels in.
    pub fn of_message<W: Work>(work: &W, tenant: &TenantId, operation: &OperationId) -> Self {
        Self::new(&work.area(), W::VERB, &tenant.token(), operation)
    }

    pub(crate) fn new(area: &str, verb: &str, tenant: &str, operation: &OperationId) -> Self {
        Self(format!(
            "{area}.{verb}.{tenant}.{}",
            operation.ledger_token()
        ))
    }

    /// The key as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The reasons why a ledger operation failed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another worker changed the entry: read again and decide.
    #[error("the ledger entry was changed meanwhile")]
    Moved,
    /// The bus failed; a write may have happened or not.
    #[error("the ledger cannot be reached")]
    Unreachable(#[source] KeyError),
    /// The entry is not a ledger entry.
    #[error("the ledger entry does not decode")]
    Corrupt(#[source] prost::DecodeError),
}

impl From<LedgerError> for dray_types::Fault {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Unreachable(key) => key.into(),
            LedgerError::Moved | LedgerError::Corrupt(_) => Self::internal(),
        }
    }
}

/// An entry with the revision to change it by.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionedRecord {
    /// State, owner, lease, attempts and result of the work.
    pub record: v1::LedgerRecord,
    /// Revision that a change has to name; it is the fencing token of a worker.
    pub revision: u64,
}

impl Ledger {
    pub(crate) fn new(bus: &Bus) -> Self {
        Self {
            keys: bus.key_value(LEDGER_BUCKET),
            clock: bus.inner.clock.clone(),
            health: bus.inner.health.clone(),
            regressions: bus.inner.metrics.ledger_regression_total.clone(),
        }
    }

    /// The state of an operation's work of kind `W`; `None` before the first claim.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn find<W: Work>(
        &self,
        tenant: &TenantId,
        operation: &OperationId,
    ) -> Result<Option<v1::LedgerRecord>, LedgerError> {
        let entry = self.read(&LedgerKey::of::<W>(tenant, operation)).await?;
        Ok(entry.map(|entry| entry.record))
    }

    /// The entry under a key.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn read(&self, key: &LedgerKey) -> Result<Option<RevisionedRecord>, LedgerError> {
        let Some(entry) = self
            .keys
            .get(key.as_str())
            .await
            .map_err(LedgerError::Unreachable)?
        else {
            return Ok(None);
        };
        Ok(Some(RevisionedRecord {
            record: v1::LedgerRecord::decode(entry.value).map_err(LedgerError::Corrupt)?,
            revision: entry.revision,
        }))
    }

    /// Writes an entry over revision `expected` (0: the key has no entry) and returns it with its revision.
    pub(crate) async fn write(
        &self,
        key: &LedgerKey,
        record: v1::LedgerRecord,
        expected: u64,
    ) -> Result<RevisionedRecord, LedgerError> {
        let value = bytes::Bytes::from(record.encode_to_vec());
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let mut attempts = 0;
        loop {
            attempts += 1;
            // The revision is read before the write: two concurrent writes may be confirmed in any order.
            let known = self.health.ledger_revision();
            let written = if expected == 0 {
                self.keys.create(key.as_str(), value.clone()).await
            } else {
                self.keys
                    .update(key.as_str(), value.clone(), expected)
                    .await
            };
            match written {
                Ok(revision) => {
                    if self.health.record_ledger_write(known, revision) {
                        self.regressions.add(1, &[]);
                        tracing::error!(revision, known, "the ledger has lost entries");
                    }
                    return Ok(RevisionedRecord { record, revision });
                }
                Err(KeyError::Exists | KeyError::Stale) => {
                    // An earlier attempt of this very write may have been stored although its acknowledgement was lost
                    // . Then the entry equals the value of this write.
                    let found = self.read(key).await?;
                    return found
                        .filter(|entry| entry.record == record)
                        .ok_or(LedgerError::Moved);
                }
                Err(KeyError::Transport(error))
                    // Repeating is safe: of two writes over the same revision the server stores one.
                    if error.is_temporary() && attempts < MAX_WRITE_ATTEMPTS =>
                {
                    tokio::time::sleep(backoff.next_delay()).await;
                }
                Err(error) => return Err(LedgerError::Unreachable(error)),
            }
        }
    }

    /// The server's time of an entry that was written just now, and the local time, both in Unix milliseconds.
    pub(crate) async fn server_time(&self, key: &LedgerKey) -> Option<(u64, u64)> {
        let entry = self.keys.get(key.as_str()).await.ok()??;
        Some((entry.time_ms, self.clock.now_ms()))
    }
}
