//! Exchanges claims of callers for cached files, so that a file stays until its delivery ends.

use dray_bus::Meta;
use dray_proto::v1;
use dray_store::{ReadError, Store};
use dray_types::{Claim, Clock, Deadline, Fault};

use super::plan::PROTECTED_MS;
use crate::error::DeliveryError;

/// The reason why a claim for a cached file was not exchanged.
#[derive(Debug)]
pub(crate) enum ClaimFailure {
    /// The file is no longer in the cache.
    Missing,
    /// The store failed, or refused the claim.
    Failed(Box<Fault>),
}

/// Exchanges claims for cached files.
#[derive(Clone, Debug)]
pub(crate) struct ClaimKeeper {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
}

impl ClaimKeeper {
    /// Returns a claim that lasts as long as a delivery may take. A claim for a cached file is exchanged for one that
    /// does not expire earlier; any other claim is returned unchanged. An invalid claim is reported when the file is
    /// read.
    pub(crate) async fn keep_claim(
        &self,
        meta: &Meta,
        claim: v1::Claim,
    ) -> Result<v1::Claim, ClaimFailure> {
        let Ok(parsed) = Claim::try_from(claim.clone()) else {
            return Ok(claim);
        };
        if dray_store::cache_key(&parsed).is_none() {
            return Ok(claim);
        }
        let timeout = std::time::Duration::from_millis(PROTECTED_MS);
        let deadline = Deadline::after(self.clock.now_ms(), timeout).min(meta.deadline);
        match self.store.keep(&meta.tenant, &parsed, deadline).await {
            Ok(kept) => Ok(kept.into()),
            Err(ReadError::Missing) => Err(ClaimFailure::Missing),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a file of the cache cannot be kept"
                );
                Err(ClaimFailure::Failed(Box::new(error.into())))
            }
        }
    }

    /// Returns the request with claims that last until it is done. A missing file is reported when the file is sent.
    pub(crate) async fn with_kept_claims(
        &self,
        meta: &Meta,
        work: &v1::SendFileRequested,
    ) -> Result<v1::SendFileRequested, DeliveryError> {
        let mut work = work.clone();
        for claim in &mut work.claims {
            match self.keep_claim(meta, claim.clone()).await {
                Ok(kept) => *claim = kept,
                // The caller tries again later. After other failures, only the single file fails when it is read.
                Err(ClaimFailure::Failed(fault)) if fault.is_retryable() => {
                    return Err(DeliveryError::ServiceFault {
                        description: "the store",
                        fault,
                    });
                }
                Err(ClaimFailure::Missing | ClaimFailure::Failed(_)) => {}
            }
        }
        Ok(work)
    }
}

impl From<ClaimFailure> for Fault {
    fn from(failure: ClaimFailure) -> Self {
        match failure {
            ClaimFailure::Missing => Self::from(ReadError::Missing),
            ClaimFailure::Failed(fault) => *fault,
        }
    }
}
