//! The lease for renewing the tokens of one sign-in: a record that one replica at a time can create.

use std::time::Duration;

use dray_agent::failure::RequestFailure;
use dray_tool_mcp::{RENEWAL_LEASE_LIFETIME, RenewalLease};
use dray_types::whole_millis;
use serde::{Deserialize, Serialize};

use crate::records::{CallerRecords, RecordError, RecordKind, RevisedRecord};

/// Interval between two checks of a lease that another replica has.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for a lease: the lease of a replica that died expires in this time, and several replicas can finish
/// before this one.
const MAX_LEASE_WAIT: Duration = RENEWAL_LEASE_LIFETIME.saturating_mul(2);

const LEASE_RECORD_KIND: RecordKind = RecordKind::SignInRenewal;

/// The lease as it is stored for all replicas.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LeaseRecord {
    /// Unix milliseconds from which another replica may take it.
    expires_ms: u64,
}

/// Takes the lease of this id, and waits while another replica has it.
pub(super) async fn take_lease(
    records: &CallerRecords,
    principal: &str,
    id: &str,
) -> Result<RenewalLease, RequestFailure> {
    let taking = async {
        loop {
            match try_take(records, principal, id).await {
                Err(RecordError::Stale) => tokio::time::sleep(LEASE_POLL_INTERVAL).await,
                Err(RecordError::Failed(failure)) => return Err(failure),
                Ok(revision) => return Ok(RenewalLease { revision }),
            }
        }
    };
    let lease = tokio::time::timeout(MAX_LEASE_WAIT, taking).await;
    lease.unwrap_or_else(|_| Err(RecordError::Stale.into()))
}

/// Takes the lease if it is free or has expired.
async fn try_take(records: &CallerRecords, principal: &str, id: &str) -> Result<u64, RecordError> {
    let found = records
        .get::<LeaseRecord>(LEASE_RECORD_KIND, principal, id)
        .await;
    let now_ms = records.now_ms();
    let lifetime_ms = whole_millis(RENEWAL_LEASE_LIFETIME);
    let value = LeaseRecord {
        expires_ms: now_ms.saturating_add(lifetime_ms),
    };
    match found.map_err(RecordError::Failed)? {
        None => {
            records
                .create(LEASE_RECORD_KIND, principal, id, &value)
                .await
        }
        Some(found) if found.value.expires_ms > now_ms => Err(RecordError::Stale),
        Some(RevisedRecord { revision, .. }) => {
            let record = RevisedRecord { value, revision };
            records
                .update(LEASE_RECORD_KIND, principal, id, &record)
                .await
        }
    }
}

/// Releases the lease, unless another replica has taken it.
pub(super) async fn return_lease(
    records: &CallerRecords,
    principal: &str,
    id: &str,
    lease: RenewalLease,
) {
    let deleted = records
        .delete(LEASE_RECORD_KIND, principal, id, lease.revision)
        .await;
    if let Err(RecordError::Failed(failure)) = deleted {
        tracing::warn!(%failure, "the lease of a renewal was not given back; it expires");
    }
}
