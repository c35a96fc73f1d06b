//! Names by which a conversation finds its stored files again.

use dray_tool::ToolFailure;
use dray_types::{Claim, Sha256Digest};

use super::ask::CallFailure;
use super::name_key::digest_of_key;
use super::services::FileServices;

/// The names of one conversation's stored files. A name is bound to its conversation by a MAC.
#[derive(Debug)]
pub(super) struct StoredNames {
    services: FileServices,
    conversation: String,
}

impl StoredNames {
    pub(super) const fn new(services: FileServices, conversation: String) -> Self {
        Self {
            services,
            conversation,
        }
    }

    /// Finds the stored file of a catalog key, `artifact/<sha256>/<size>`. Keys come from names that were checked when
    /// the catalog was built; text of clients and models goes through [`Self::named_claim`].
    pub(super) async fn stored(
        &self,
        key: Option<&str>,
        label: &str,
    ) -> Result<Option<Claim>, ToolFailure> {
        match key.and_then(digest_of_key) {
            Some(digest) => self.stored_under(digest, label).await,
            None => Ok(None),
        }
    }

    /// Finds the stored file of a name that a client or a model sent. Returns `None` for the name of another
    /// conversation, a digest without its MAC and the name of a deleted file, so that a caller cannot distinguish
    /// these.
    pub(super) async fn named_claim(
        &self,
        name: &str,
        label: &str,
    ) -> Result<Option<Claim>, ToolFailure> {
        match self.checked_name(name) {
            Some((digest, _)) => self.stored_under(digest, label).await,
            None => Ok(None),
        }
    }

    /// Returns the digest and the size in a name; `None` when the name does not belong to this conversation.
    pub(super) fn checked_name(&self, name: &str) -> Option<(Sha256Digest, u64)> {
        let services = &self.services;
        services
            .name_key
            .check(&services.tenant, &self.conversation, name)
    }

    /// Returns the name by which this conversation finds a stored file again.
    pub(super) fn name_of(&self, claim: &Claim) -> String {
        let services = &self.services;
        let artifact = &claim.artifact;
        services.name_key.name(
            &services.tenant,
            &self.conversation,
            &artifact.sha256,
            artifact.size,
        )
    }

    async fn stored_under(
        &self,
        digest: Sha256Digest,
        label: &str,
    ) -> Result<Option<Claim>, ToolFailure> {
        let services = &self.services;
        let label = dray_store::ArtifactLabel::new("application/octet-stream", label);
        let claim = services.store.claim(&services.tenant, digest, label).await;
        Ok(claim.map_err(CallFailure::store)?)
    }
}
