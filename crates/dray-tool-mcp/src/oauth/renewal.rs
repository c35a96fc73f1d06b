//! Renewal of stored tokens, by one process at a time.
//!
//! An authorization server that rotates refresh tokens accepts each of them once, and a second use may end the whole
//! sign-in (RFC 9700, section 4.14.2). So two replicas must not use the same one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_types::Secret;
use rmcp::transport::auth::{AuthError, AuthorizationManager};

use super::RemoteSignIn;
use super::stored::store_failure;

/// Longest time for a renewal. It ends well before the lease does.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Lifetime of the lease. After it, another process may renew the tokens, so that a process that ended during a renewal
/// does not block them.
pub const RENEWAL_LEASE_LIFETIME: Duration = Duration::from_secs(30);

/// The lease for renewing the tokens of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalLease {
    /// Revision of the record of the lease.
    pub revision: u64,
}

/// Keeps `rmcp` from renewing tokens by itself.
#[derive(Debug, Default)]
pub(super) struct RenewalGate {
    is_open: AtomicBool,
    was_refused: AtomicBool,
}

impl RenewalGate {
    /// Returns whether a renewal may begin.
    pub(super) fn pass(&self) -> Result<(), AuthError> {
        if self.is_open.load(Ordering::Acquire) {
            return Ok(());
        }
        self.was_refused.store(true, Ordering::Release);
        Err(store_failure("the tokens have to be renewed first"))
    }

    /// Whether a renewal was refused since the last check.
    fn take_refused(&self) -> bool {
        self.was_refused.swap(false, Ordering::AcqRel)
    }

    /// Opens the gate until the guard is dropped.
    fn open(&self) -> OpenGate<'_> {
        self.is_open.store(true, Ordering::Release);
        OpenGate(self)
    }
}

struct OpenGate<'a>(&'a RenewalGate);

impl Drop for OpenGate<'_> {
    fn drop(&mut self) {
        self.0.is_open.store(false, Ordering::Release);
    }
}

impl RemoteSignIn {
    /// The access token of a manager, renewed if it is about to expire.
    pub(super) async fn current_token(
        &self,
        manager: &AuthorizationManager,
    ) -> Result<Secret, AuthError> {
        let current = manager.get_access_token().await;
        if !self.renewals.take_refused() {
            return current.map(Secret::new);
        }
        let (keeper, owner) = self
            .store
            .as_ref()
            .ok_or(AuthError::AuthorizationRequired)?;
        let lease = keeper.begin_renewal(owner).await.map_err(store_failure)?;
        let renewed = {
            let _open = self.renewals.open();
            // Reads the tokens again: another process may have renewed them while this one waited for the lease.
            tokio::time::timeout(RENEWAL_TIMEOUT, manager.get_access_token()).await
        };
        keeper.end_renewal(owner, lease).await;
        match renewed {
            Ok(Ok(token)) => Ok(Secret::new(token)),
            // A process whose lease ended early may have been faster; then its tokens are used.
            Ok(Err(AuthError::AuthorizationRequired)) => {
                let current = manager.get_access_token().await;
                self.renewals.take_refused();
                current.map(Secret::new)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(store_failure("the tokens were not renewed in time")),
        }
    }
}
