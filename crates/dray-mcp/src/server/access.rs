//! The services and permissions of one caller, and their expiry.

use std::time::Duration;

use dray_types::{Fault, FaultCode};

use crate::auth::ScopeSet;
use crate::content::ContentAccess;

/// The services and permissions of one caller.
#[derive(Debug)]
pub(super) struct CallerAccess {
    pub(super) access: ContentAccess,
    pub(super) scopes: ScopeSet,
    pub(super) subject: String,
    pub(super) expires_at_ms: Option<u64>,
}

impl CallerAccess {
    /// Waits until the token of the caller expires. Never returns for a token without an expiry.
    pub(super) async fn expired(&self) {
        let Some(at_ms) = self.expires_at_ms else {
            return std::future::pending().await;
        };
        let left_ms = at_ms.saturating_sub(self.access.client.clock.now_ms());
        tokio::time::sleep(Duration::from_millis(left_ms)).await;
    }

    /// Fails if the token lacks a scope, with advice for the user.
    pub(super) fn require(&self, required: ScopeSet) -> Result<(), Fault> {
        if self.scopes.contains(required) {
            return Ok(());
        }
        Err(Fault::new(
            FaultCode::Denied,
            format!("The token does not allow this. It needs the scopes: {required}."),
        )
        .detail("insufficient_scope")
        .advice("Ask the user to sign in again, or the operator for another token."))
    }
}
