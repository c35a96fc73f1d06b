//! Deliveries while the store is away. Their work is parked until the store responds: no file fails, and no attempt
//! counts (messaging-reliability 8).

use dray_store::ReadError;
use dray_types::{Claim, Fault};

use super::run::DeliveryRun;
use crate::error::DeliveryError;
use crate::record::FileRecord;
use crate::source::StoredSource;

impl DeliveryRun<'_> {
    /// The stored bytes of a file; `None` without a usable claim.
    pub(super) fn stored_source(&self, file: &FileRecord) -> Option<StoredSource> {
        let claim = file.claim.clone()?;
        Some(StoredSource {
            store: self.context.store.clone(),
            tenant: self.meta.tenant.clone(),
            claim: Claim::try_from(claim).ok()?,
            clock: self.context.clock.clone(),
        })
    }

    /// Reads the first byte of the first of these files again, after something that needs the store has failed. A
    /// platform only reports that its source failed, and not why.
    ///
    /// # Errors
    /// The store is away, so its work is parked. Other failures of the file are not errors here.
    pub(super) async fn check_store(&self, files: &[u32]) -> Result<(), DeliveryError> {
        let first = files.first().and_then(|index| usize::try_from(*index).ok());
        let file = first.and_then(|index| self.record().files.get(index));
        let Some(source) = file.and_then(|file| self.stored_source(file)) else {
            return Ok(());
        };
        match source.head(1).await {
            Err(error) if error.is_unavailable() => Err(store_unavailable(error)),
            _ => Ok(()),
        }
    }
}

/// The failure that parks the work of a delivery.
pub(super) fn store_unavailable(error: ReadError) -> DeliveryError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "a delivery waits for the store"
    );
    DeliveryError::ServiceFault {
        description: "the store",
        fault: Box::new(Fault::from(error)),
    }
}
