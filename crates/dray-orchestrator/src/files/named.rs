//! Stored files behind what a model names: ids of the conversation's files, files of DIAL, addresses and `data:`.

use std::time::Duration;

use dray_tool::{Failure, Storage as _, UrlClass};
use dray_types::{Claim, Sha256Digest};

use super::ask::Unanswered;
use super::data;
use super::drive::DriveError;
use super::storage::{data_name, drive_failure, unsupported};
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
    ) -> Result<(Claim, String), Failure> {
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
        if let Some(claim) = self.stored(Some(reference), "file").await? {
            return Ok((claim, "file".to_owned()));
        }
        self.claim_behind(parameter, reference, limit, time).await
    }

    /// The stored file of a key `artifact/<sha256>…`.
    pub(super) async fn stored(
        &self,
        key: Option<&str>,
        name: &str,
    ) -> Result<Option<Claim>, Failure> {
        let Some(rest) = key.and_then(|key| key.strip_prefix("artifact/")) else {
            return Ok(None);
        };
        let Ok(digest) = rest
            .split('/')
            .next()
            .unwrap_or_default()
            .parse::<Sha256Digest>()
        else {
            return Ok(None);
        };
        let services = &self.services;
        let label = dray_store::Label::new("application/octet-stream", name);
        let claim = services.store.claim(&services.tenant, digest, label).await;
        Ok(claim.map_err(Unanswered::store)?)
    }

    async fn claim_behind(
        &self,
        parameter: &str,
        url: &str,
        limit: u64,
        time: Duration,
    ) -> Result<(Claim, String), Failure> {
        match self.classify(url) {
            UrlClass::Dial => self.downloaded(parameter, url, limit).await,
            UrlClass::External => {
                let fetched = self.fetch(parameter, url, limit, time).await?;
                Ok((fetched.claim, fetched.name))
            }
            UrlClass::Data => {
                let inline = data::decode(url, limit)
                    .map_err(|why| Failure::parameter(parameter, why.sentence(parameter, limit)))?;
                let name = data_name(&inline);
                let stored = self
                    .services
                    .store_bytes(inline.bytes, &inline.media_type, &name);
                Ok((stored.await?, name))
            }
            UrlClass::Unsupported => Err(Failure::parameter(parameter, unsupported(url))),
        }
    }

    /// A file of DIAL, copied into the store piece by piece.
    async fn downloaded(
        &self,
        parameter: &str,
        url: &str,
        limit: u64,
    ) -> Result<(Claim, String), Failure> {
        use futures_util::StreamExt as _;

        let (Some(drive), Some(path)) = (&self.services.drive, self.dial_path(url)) else {
            return Err(Failure::parameter(parameter, unsupported(url)));
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
                    return Err(failed(broken(cause)));
                }
            };
            // A length that was told wrong is no way round the limit (R3).
            let size = writer
                .size()
                .saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            if size > limit {
                writer.abort().await;
                return Err(failed(DriveError::TooLarge { size, limit }));
            }
            writer.write(piece).await.map_err(Unanswered::store)?;
        }
        let media_type = item.media_type.unwrap_or_default();
        let label = dray_store::Label::new(media_type, item.name.as_str());
        let claim = writer.finish(label).await.map_err(Unanswered::store)?;
        Ok((claim, item.name))
    }
}

/// A cause of a body that broke off: a storage's own error, or the connection.
fn broken(cause: dray_http::Cause) -> DriveError {
    match cause.downcast::<DriveError>() {
        Ok(error) => *error,
        Err(cause) => DriveError::Away(cause),
    }
}
