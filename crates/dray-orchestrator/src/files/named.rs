//! Stored files behind what a model names: ids of the conversation's files, files of DIAL, addresses and `data:`.

use std::time::Duration;

use dray_tool::{FileStorage as _, ToolFailure, UrlClass};
use dray_types::{Claim, Sha256Digest};

use super::ask::CallFailure;
use super::data;
use super::drive::DriveError;
use super::name_key::digest_of_key;
use super::storage::{data_name, drive_failure};
use super::turn::TurnFiles;

impl TurnFiles {
    /// The stored file that a reference names: an id of the conversation's files, a file of DIAL, an address, or
    /// `data:`. Bytes of DIAL's files pass through in pieces.
    pub(super) async fn claim_of(
        &self,
        parameter: &str,
        reference: &str,
        limit: u64,
        time: Duration,
    ) -> Result<(Claim, String), ToolFailure> {
        if let Some(found) = self.catalog_entry(reference) {
            let named = |(claim, _)| (claim, found.name.clone());
            if let Some(claim) = self.stored(found.key.as_deref(), &found.name).await? {
                return Ok((claim, found.name));
            }
            let source = found.key.as_deref().filter(|key| key.starts_with("files/"));
            let source = source.unwrap_or(&found.url);
            return self
                .claim_behind(parameter, source, limit, time)
                .await
                .map(named);
        }
        if let Some(claim) = self.named_claim(reference, "file").await? {
            return Ok((claim, "file".to_owned()));
        }
        self.claim_behind(parameter, reference, limit, time).await
    }

    /// The stored file of a key of the catalog, `artifact/<sha256>/<size>`. Keys come from names that were checked when
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

    /// The stored file of a name that a client or a model shows. The name of another conversation, a digest without its
    /// MAC and the name of a file that is gone are all the same: the file does not exist.
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

    /// Digest and size behind a name of this conversation.
    pub(super) fn checked_name(&self, name: &str) -> Option<(Sha256Digest, u64)> {
        let services = &self.services;
        services
            .name_key
            .check(&services.tenant, &self.conversation, name)
    }

    /// The name under which this conversation finds a stored file again.
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

    async fn claim_behind(
        &self,
        parameter: &str,
        url: &str,
        limit: u64,
        time: Duration,
    ) -> Result<(Claim, String), ToolFailure> {
        match self.classify(url) {
            UrlClass::Dial => self.downloaded(parameter, url, limit).await,
            UrlClass::External => {
                let fetched = self.fetch(parameter, url, limit, time).await?;
                Ok((fetched.claim, fetched.name))
            }
            UrlClass::Data => {
                let inline = data::decode_data_url(url, limit).map_err(|why| {
                    ToolFailure::parameter(parameter, why.sentence(parameter, limit))
                })?;
                let name = data_name(&inline);
                let stored = self
                    .services
                    .store_bytes(inline.bytes, &inline.media_type, &name);
                Ok((stored.await?, name))
            }
            UrlClass::Unsupported => Err(ToolFailure::parameter(
                parameter,
                UrlClass::unsupported_sentence(url),
            )),
        }
    }

    /// A file of DIAL, copied into the store piece by piece.
    async fn downloaded(
        &self,
        parameter: &str,
        url: &str,
        limit: u64,
    ) -> Result<(Claim, String), ToolFailure> {
        use futures_util::StreamExt as _;

        let (Some(drive), Some(path)) = (&self.services.drive, self.dial_path(url)) else {
            return Err(ToolFailure::parameter(
                parameter,
                UrlClass::unsupported_sentence(url),
            ));
        };
        let failed = |error| drive_failure(parameter, error);
        let item = drive.metadata(&self.caller, &path).await.map_err(failed)?;
        if let Some(size) = item.size.filter(|size| *size > limit) {
            return Err(failed(DriveError::TooLarge { size, limit }));
        }
        let mut bytes = drive
            .open(&self.caller, &path, limit)
            .await
            .map_err(failed)?;
        let services = &self.services;
        let operation = dray_types::OperationId::mint();
        let time = services.config.transfer_timeout.as_duration();
        let writer = services.store.writer(&services.tenant, &operation, 0);
        let mut writer = writer.deadline(services.deadline(time));
        while let Some(piece) = bytes.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(cause) => {
                    writer.abort().await;
                    return Err(failed(to_drive_error(cause)));
                }
            };
            // A wrong announced length does not bypass the limit (R3).
            let size = writer
                .size()
                .saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            if size > limit {
                writer.abort().await;
                return Err(failed(DriveError::TooLarge { size, limit }));
            }
            writer.write(piece).await.map_err(CallFailure::store)?;
        }
        let media_type = item.media_type.unwrap_or_default();
        let label = dray_store::ArtifactLabel::new(media_type, item.name.as_str());
        let claim = writer.finish(label).await.map_err(CallFailure::store)?;
        Ok((claim, item.name))
    }
}

/// A cause of a body that broke off: a storage's own error, or the connection.
fn to_drive_error(cause: dray_http::Cause) -> DriveError {
    match cause.downcast::<DriveError>() {
        Ok(error) => *error,
        Err(cause) => DriveError::Away(cause),
    }
}
