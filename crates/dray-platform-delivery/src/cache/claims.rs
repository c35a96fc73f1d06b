//! Claims of callers for files of the cache: a file that is delivered later is kept from now on.

use dray_bus::Meta;
use dray_proto::v1;
use dray_store::{ReadError, Store};
use dray_types::{Claim, Clock, Deadline, Fault};

use super::plan::PROTECTED_MS;
use crate::error::DeliveryError;

/// The reason for which a stored file cannot be kept.
#[derive(Debug)]
pub(crate) enum ClaimFailure {
    /// The file is gone from the cache.
    Gone,
    /// The store failed, or refused the claim.
    Failed(Box<Fault>),
}

/// Exchanges claims for files of the cache.
#[derive(Clone, Debug)]
pub(crate) struct ClaimKeeper {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
}

impl ClaimKeeper {
    /// Returns a claim that lasts as long as a delivery may take: one for a file of the cache is exchanged for one
    /// that is kept. An invalid claim is returned as it is; its reader reports it.
    pub(crate) async fn kept(
        &self,
        meta: &Meta,
        claim: v1::Claim,
    ) -> Result<v1::Claim, ClaimFailure> {
        let Ok(read) = Claim::try_from(claim.clone()) else {
            return Ok(claim);
        };
        if dray_store::cache_key(&read).is_none() {
            return Ok(claim);
        }
        let soon = std::time::Duration::from_millis(PROTECTED_MS);
        let deadline = Deadline::after(self.clock.now_ms(), soon).min(meta.deadline);
        match self.store.keep(&meta.tenant, &read, deadline).await {
            Ok(kept) => Ok(kept.into()),
            Err(ReadError::Missing) => Err(ClaimFailure::Gone),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a file of the cache cannot be kept"
                );
                Err(ClaimFailure::Failed(Box::new(error.into())))
            }
        }
    }

    /// Returns the request with claims that last until it is done. A missing file is reported when its turn comes.
    pub(crate) async fn with_kept_claims(
        &self,
        meta: &Meta,
        work: &v1::SendFileRequested,
    ) -> Result<v1::SendFileRequested, DeliveryError> {
        let mut work = work.clone();
        for claim in &mut work.claims {
            match self.kept(meta, claim.clone()).await {
                Ok(kept) => *claim = kept,
                // The work is attempted again. The others below stay as they are and fail as single files.
                Err(ClaimFailure::Failed(fault)) if fault.is_retryable() => {
                    return Err(DeliveryError::Asked {
                        what: "the store",
                        fault,
                    });
                }
                Err(ClaimFailure::Gone | ClaimFailure::Failed(_)) => {}
            }
        }
        Ok(work)
    }
}

impl From<ClaimFailure> for Fault {
    fn from(unkept: ClaimFailure) -> Self {
        match unkept {
            ClaimFailure::Gone => Self::from(ReadError::Missing),
            ClaimFailure::Failed(fault) => *fault,
        }
    }
}
