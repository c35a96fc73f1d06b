//! The records of deliveries together with the index over them.

use std::sync::Arc;

use crate::index::DeliveryIndex;
use crate::record::DeliveryRecord;
use crate::records::{RecordError, RecordStore, RevisionedRecord};

/// The records of deliveries, and their index.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryLog {
    pub(crate) records: RecordStore,
    pub(crate) index: Arc<DeliveryIndex>,
}

impl DeliveryLog {
    /// Writes a record and notes it in the index, so that this replica does not wait for the change event of its own
    /// write.
    ///
    /// # Errors
    /// Those of [`RecordStore::write`].
    pub(crate) async fn write(
        &self,
        key: &str,
        record: DeliveryRecord,
        revision: u64,
    ) -> Result<RevisionedRecord, RecordError> {
        let written = self.records.write(key, record, revision).await?;
        self.index.note(key, &written);
        Ok(written)
    }
}
