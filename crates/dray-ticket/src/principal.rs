//! The tenant and the session for which a ticket is made.

use dray_types::{SessionId, Sha256Digest, TenantId};

/// The tenant and the session of a ticket. The maker of the ticket sets them, never its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Owner of the stored content.
    pub tenant: TenantId,
    /// Conversation in which the ticket was made; quotas count for it.
    pub session: SessionId,
}

impl Principal {
    /// The key under which the use of this principal is counted.
    pub(crate) fn usage_key(&self) -> String {
        // The session is hashed: a session may have characters that a key cannot have.
        let session = Sha256Digest::of(self.session.as_str().as_bytes());
        format!("usage.{}.{session}", self.tenant.token())
    }
}

impl Default for Principal {
    /// The user of a one-machine system.
    fn default() -> Self {
        Self {
            tenant: TenantId::default(),
            session: SessionId::new("cli").unwrap_or_else(|_| unreachable!("a constant id")),
        }
    }
}
