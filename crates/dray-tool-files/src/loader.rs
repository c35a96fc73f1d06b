//! Finds stored files for references of a client or a model: ids of the conversation's files, files of DIAL, addresses
//! and `data:`.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::message::Attachment;
use dray_dial::{decode_attachment_data, decode_data_url};
use dray_tool::{ToolFailure, UrlClass};
use dray_types::Claim;

use super::ask::CallFailure;
use super::catalog::ConversationCatalog;
use super::data::refused_data_sentence;
use super::dial_files::app_file_url;
use super::drive::DriveError;
use super::fetched::fetch;
use super::scope::TurnScope;
use super::storage::{STORED_NAME_FIELD, data_name, drive_failure};
use super::stored_names::StoredNames;

/// Reads the content behind references into the artifact store.
#[derive(Debug)]
pub(super) struct FileLoader {
    pub(super) scope: Arc<TurnScope>,
    pub(super) names: Arc<StoredNames>,
    pub(super) catalog: Arc<ConversationCatalog>,
}

impl FileLoader {
    /// The stored file that a reference names: an id of the conversation's files, a file of DIAL, an address, or
    /// `data:`. Bytes of DIAL's files are passed on in chunks.
    pub(super) async fn claim_of(
        &self,
        parameter: &str,
        reference: &str,
        limit: u64,
        time: Duration,
    ) -> Result<(Claim, String), ToolFailure> {
        if let Some(found) = self.catalog.entry(reference) {
            let named = |(claim, _)| (claim, found.name.clone());
            if let Some(claim) = self.names.stored(found.key.as_deref(), &found.name).await? {
                return Ok((claim, found.name));
            }
            // A link in `url` may have expired; a path in DIAL does not.
            let source = found.key.as_deref().filter(|key| key.starts_with("files/"));
            let source = source.unwrap_or(&found.url);
            return self
                .claim_behind(parameter, source, limit, time)
                .await
                .map(named);
        }
        if let Some(claim) = self.names.named_claim(reference, "file").await? {
            return Ok((claim, "file".to_owned()));
        }
        self.claim_behind(parameter, reference, limit, time).await
    }

    /// The stored file of an attachment, whether it contains its content or a reference to it.
    pub(super) async fn attached_claim(
        &self,
        attachment: &Attachment,
    ) -> Result<(Claim, String), ToolFailure> {
        let limit = self.scope.services.config.upload_limit.as_u64();
        let time = self.scope.services.config.transfer_timeout.as_duration();
        let name = attachment.title.clone().unwrap_or_default();
        let key = attachment
            .rest
            .get(STORED_NAME_FIELD)
            .and_then(serde_json::Value::as_str);
        if let Some(key) = key
            && let Some(claim) = self.names.named_claim(key, &name).await?
        {
            return Ok((claim, name));
        }
        if let Some(url) = attachment.url.as_deref().filter(|url| !url.is_empty()) {
            return self.claim_of("attachment", url, limit, time).await;
        }
        let Some(data) = attachment.data.as_deref() else {
            return Err(ToolFailure::parameter(
                "attachment",
                "it has no content and no address",
            ));
        };
        let kind = attachment.kind.clone().unwrap_or_default();
        let bytes = decode_attachment_data(&kind, data);
        let claim = self.scope.services.store_bytes(bytes, &kind, &name).await?;
        Ok((claim, name))
    }

    async fn claim_behind(
        &self,
        parameter: &str,
        url: &str,
        limit: u64,
        time: Duration,
    ) -> Result<(Claim, String), ToolFailure> {
        match self.scope.services.classify(url) {
            UrlClass::Dial => self.downloaded(parameter, url, limit).await,
            UrlClass::External => {
                let fetched = fetch(&self.scope, parameter, url, limit, time).await?;
                Ok((fetched.claim, fetched.name))
            }
            UrlClass::Data => {
                let inline = decode_data_url(url, limit).map_err(|refusal| {
                    let sentence = refused_data_sentence(refusal, parameter, limit);
                    ToolFailure::parameter(parameter, sentence)
                })?;
                let name = data_name(&inline);
                let stored =
                    self.scope
                        .services
                        .store_bytes(inline.bytes, &inline.media_type, &name);
                Ok((stored.await?, name))
            }
            UrlClass::Unsupported => match app_file_url(&self.scope, url).await {
                Some(url) => self.downloaded(parameter, &url, limit).await,
                None => Err(ToolFailure::parameter(
                    parameter,
                    UrlClass::unsupported_sentence(url),
                )),
            },
        }
    }

    /// A file of DIAL, copied into the store chunk by chunk.
    async fn downloaded(
        &self,
        parameter: &str,
        url: &str,
        limit: u64,
    ) -> Result<(Claim, String), ToolFailure> {
        use futures_util::StreamExt as _;

        let (Some(drive), Some(path)) = (
            &self.scope.services.drive,
            self.scope.services.dial_path(url),
        ) else {
            return Err(ToolFailure::parameter(
                parameter,
                UrlClass::unsupported_sentence(url),
            ));
        };
        let failed = |error| drive_failure(parameter, error);
        // The size is read before the download, so that a file above the limit costs no transfer.
        let item = drive
            .metadata(&self.scope.caller, &path)
            .await
            .map_err(failed)?;
        if let Some(size) = item.content_length.filter(|size| *size > limit) {
            return Err(failed(DriveError::TooLarge { size, limit }));
        }
        let mut bytes = drive
            .open(&self.scope.caller, &path, limit)
            .await
            .map_err(failed)?;
        let services = &self.scope.services;
        let operation = dray_types::OperationId::mint();
        let time = services.config.transfer_timeout.as_duration();
        let writer = services.store.writer(&services.tenant, &operation, 0);
        let mut writer = writer.deadline(services.deadline(time));
        while let Some(chunk) = bytes.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(cause) => {
                    writer.abort().await;
                    return Err(failed(DriveError::of_download(cause, limit)));
                }
            };
            // A wrong announced length does not bypass the limit (R3).
            let size = writer
                .size()
                .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if size > limit {
                writer.abort().await;
                return Err(failed(DriveError::TooLarge { size, limit }));
            }
            writer.write(chunk).await.map_err(CallFailure::store)?;
        }
        let media_type = item.content_type.unwrap_or_default();
        let label = dray_store::ArtifactLabel::new(media_type, item.name.as_str());
        let claim = writer.finish(label).await.map_err(CallFailure::store)?;
        Ok((claim, item.name))
    }
}
