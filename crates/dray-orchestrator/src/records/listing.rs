//! Records beyond a single one whose revision is known: lists, changes, and deletions of any revision.

use dray_agent::failure::RequestFailure;
use dray_bus::{KeyError, KeyWatch};
use serde::de::DeserializeOwned;

use super::{CallerRecords, RecordKind, StoredValue, bus_failure};

/// A change of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordChange<T> {
    pub(crate) id: String,
    /// `None` when the record was deleted.
    pub(crate) value: Option<StoredValue<T>>,
    pub(crate) revision: u64,
}

impl CallerRecords {
    /// Deletes a record of any revision. Succeeds even when the record does not exist.
    ///
    /// # Errors
    ///
    /// 409 when it was changed meanwhile, 503 while the bus fails.
    pub(crate) async fn delete_newest<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
    ) -> Result<(), RequestFailure> {
        let Some(found) = self.get::<T>(kind, principal, id).await? else {
            return Ok(());
        };
        let deleted = self.delete(kind, principal, id, found.revision).await;
        deleted.map_err(RequestFailure::from)
    }

    /// Begins to watch a record.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn watch(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
    ) -> Result<KeyWatch, RequestFailure> {
        let watch = self.keys.watch(&self.key(kind, principal, id)).await;
        watch.map_err(|error| bus_failure(&error))
    }

    /// The first change of a record of this principal at revision `from` or later. One request to the bus.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn next_change<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
        principal: &str,
        from: u64,
    ) -> Result<Option<RecordChange<T>>, RequestFailure> {
        let prefix = self.prefix(kind, principal);
        let id = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let change = match self.keys.next(&prefix, from).await {
            // The bus has logged it, and the records after it can be read.
            Err(KeyError::Foreign { key, revision, .. }) => Some(RecordChange {
                id: id(&key),
                value: Some(StoredValue::Unreadable),
                revision,
            }),
            Err(error) => return Err(bus_failure(&error)),
            Ok(change) => change.map(|change| RecordChange {
                id: id(&change.key),
                value: change.value.map(|value| StoredValue::parse(&value)),
                revision: change.revision,
            }),
        };
        Ok(change)
    }

    /// Up to `limit` records of a principal with their ids, longest unchanged first.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
        principal: &str,
        limit: usize,
    ) -> Result<Vec<(String, T)>, RequestFailure> {
        let prefix = self.prefix(kind, principal);
        let listing = self.keys.list(&prefix, limit).await;
        let listing = listing.map_err(|error| bus_failure(&error))?;
        let records = listing.entries.into_iter().filter_map(|(key, entry)| {
            let id = key.rsplit('.').next()?.to_owned();
            Some((id, serde_json::from_slice(&entry.value).ok()?))
        });
        Ok(records.collect())
    }
}
