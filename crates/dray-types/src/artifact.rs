//! References to stored bytes. Messages carry these instead of contents.

use crate::{Sha256Digest, TenantId};

/// Finished content in the artifact store, named by tenant, digest and size.
///
/// The same bytes stored twice by one tenant are one artifact; two tenants never share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Who owns the bytes; the first part of the object key after `cas/`.
    pub tenant: TenantId,
    /// SHA-256 of the stored bytes.
    pub sha256: Sha256Digest,
    /// Number of stored bytes.
    pub size: u64,
    /// Declared media type; a label, never trusted. `application/octet-stream` when unknown.
    pub media_type: String,
    /// File name for people; a label, never used as a path. Empty when unknown.
    pub name: String,
}

impl Artifact {
    /// The object key of finished content: `cas/<tenant>/<2 hex>/<64 hex>` (messaging-reliability K-3).
    pub fn key(&self) -> String {
        let hex = self.sha256.to_hex();
        let (prefix, _) = hex.split_at(2);
        format!("cas/{}/{prefix}/{hex}", self.tenant.token())
    }
}

/// An artifact with the data that a reader needs to fetch and verify it (messaging-reliability K-2).
///
/// Messages carry it in place of the content (the claim check pattern). It is data, not a URL: the reader maps `store`
/// to its own endpoint and credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The stored content: its digest, size and labels.
    pub artifact: Artifact,
    /// Alias of the store that contains the object; every service maps the alias to its own configuration.
    pub store: String,
    /// Object version, where the bucket keeps versions.
    pub version_id: Option<String>,
    /// Unix milliseconds at which the object was finished.
    pub created_at_ms: u64,
    /// Unix milliseconds after which the object may be deleted.
    pub expires_at_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_namespaced_by_tenant_and_spread_by_digest() {
        let artifact = Artifact {
            tenant: TenantId::new("acme").unwrap(),
            sha256: Sha256Digest::of(b"abc"),
            size: 3,
            media_type: "text/plain".to_owned(),
            name: String::new(),
        };
        assert_eq!(
            artifact.key(),
            "cas/acme/ba/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
