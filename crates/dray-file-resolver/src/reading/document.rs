//! Opens a document from any source as an unnamed temporary file, which the system removes when the file is closed.

use std::fs::File;
use std::io::{Seek as _, Write as _};

use dray_bus::{CallError, Meta};
use dray_proto::convert::{ContentSource, InvalidMessage};
use dray_proto::export::Exported;
use dray_proto::v1;
use dray_proto::v1::document_source::Source as DocumentSource;
use dray_reading::record::Code;
use dray_types::{ByteSize, Claim, Fault, FaultCode, Sha256Digest};

use super::ReadingContext;
use super::keys::StoredKey;
use crate::dial::CallerCredentials;
use crate::downloads::DownloadScope;
use crate::error::ResolveError;
use crate::external::ExternalFetch;
use crate::loader::{FileLoader, LoadError, LoadScope};
use crate::source::FileSource;
use dray_dial::origin::{LoadTarget, classify_reference};

/// A document that was opened.
#[derive(Debug)]
pub(super) struct OpenedDocument {
    /// The bytes of the document; the file is positioned at its start.
    pub(super) file: File,
    /// Size of the document in bytes.
    pub(super) size: u64,
    /// Name of the document at its source; may be empty.
    pub(super) name: String,
}

/// The reason why a document was not opened.
#[derive(Debug)]
pub(super) enum OpenFailure {
    /// This document is not available; the model can react to that.
    Refused(RefusedDocument),
    /// A part of the system failed.
    Fault(Fault),
}

/// A document that is not available.
#[derive(Debug)]
pub(super) struct RefusedDocument {
    /// The code of the reason in the record.
    pub(super) code: Code,
    /// The reason, as a sentence for the model.
    pub(super) reason: String,
    /// Detail of the fault that caused the refusal; empty without one.
    pub(super) detail: String,
}

impl OpenFailure {
    fn refused(code: Code, reason: impl Into<String>) -> Self {
        Self::Refused(RefusedDocument {
            code,
            reason: reason.into(),
            detail: String::new(),
        })
    }
}

impl From<Fault> for OpenFailure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<ResolveError> for OpenFailure {
    fn from(error: ResolveError) -> Self {
        Self::Fault(crate::service::report_error(error))
    }
}

impl From<LoadError> for OpenFailure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Correctable(fault) => document_failure(fault),
            LoadError::Failed(error) => sort_fault(crate::service::report_error(error)),
        }
    }
}

/// The permissions and services with which a caller loads documents.
#[derive(Debug)]
pub(super) struct DocumentAccess {
    /// Envelope of the call.
    pub(super) meta: Meta,
    /// Credentials for requests to DIAL.
    pub(super) credentials: CallerCredentials,
    /// The policy of the app on outside URLs.
    pub(super) app_policy: Option<v1::AppPolicy>,
    /// Most bytes of one document.
    pub(super) limit: ByteSize,
}

impl ReadingContext {
    /// Opens a document that is not a file of the workspace.
    pub(super) async fn open(
        &self,
        access: &DocumentAccess,
        source: DocumentSource,
    ) -> Result<OpenedDocument, OpenFailure> {
        match source {
            // The caller handles paths of the workspace itself.
            DocumentSource::Path(_) => Err(Fault::internal().into()),
            DocumentSource::Claim(claim) => {
                let claim = Claim::try_from(claim).map_err(Fault::from)?;
                self.open_claim(access, &claim).await
            }
            DocumentSource::Sandbox(path) => {
                let claim = self.export_from_sandbox(access, path).await?;
                self.open_claim(access, &claim).await
            }
            DocumentSource::Url(url) => self.open_url(access, &url).await,
            DocumentSource::Inline(bytes) => spool_inline(bytes).await,
        }
    }

    /// Opens a file of a conversation, by its key when it has one.
    pub(super) async fn open_file(
        &self,
        access: &DocumentAccess,
        key: Option<&str>,
        url: &str,
        name: &str,
    ) -> Result<OpenedDocument, OpenFailure> {
        match key.and_then(StoredKey::parse) {
            None => self.open_url(access, url).await,
            Some(StoredKey::Dial(path)) => self.open_target(access, &LoadTarget::Dial(path)).await,
            Some(StoredKey::Artifact(sha256)) => {
                let claim = self.claim(&access.meta.tenant, sha256, name).await?;
                let claim = claim.ok_or_else(|| missing_artifact(&sha256))?;
                self.open_claim(access, &claim).await
            }
        }
    }

    async fn open_claim(
        &self,
        access: &DocumentAccess,
        claim: &Claim,
    ) -> Result<OpenedDocument, OpenFailure> {
        let size = claim.artifact.size;
        // The claim has the size, so no byte needs to be read.
        if size > access.limit.as_u64() {
            let reason = dray_reading::message::too_large(size, access.limit.as_u64());
            return Err(OpenFailure::refused(Code::TooLarge, reason));
        }
        let Meta {
            tenant, deadline, ..
        } = &access.meta;
        let reader = self.store.read(tenant, claim, *deadline).await;
        let reader = reader.map_err(|error| sort_fault(error.into()))?;
        let artifact = &claim.artifact;
        let source = FileSource::store(reader, artifact.sha256, artifact.media_type.clone());
        spool_source(source, artifact.name.clone()).await
    }

    async fn export_from_sandbox(
        &self,
        access: &DocumentAccess,
        path: v1::SandboxPath,
    ) -> Result<Claim, OpenFailure> {
        let v1::SandboxPath { sandbox, path } = path;
        let request = v1::GetSandboxFileRequest {
            sandbox,
            path,
            max_bytes: access.limit.as_u64(),
            for_reading: true,
        };
        let reply = self.bus.call(&access.meta, &request).await;
        let reply = reply.map_err(|error| match error {
            CallError::Fault(fault) => sort_fault(fault),
            other => OpenFailure::Fault(other.into()),
        })?;
        let exported = Exported::from_file(reply).map_err(Fault::from)?;
        Ok(exported.claim)
    }

    async fn open_url(
        &self,
        access: &DocumentAccess,
        url: &str,
    ) -> Result<OpenedDocument, OpenFailure> {
        let origin = self.dial.as_ref().map(dray_dial::DialClient::origin);
        match classify_reference(url, origin) {
            Ok(target) => self.open_target(access, &target).await,
            Err(unsupported) => {
                let reason = unsupported.sentence().trim_end_matches('.');
                Err(OpenFailure::refused(Code::Unreadable, reason))
            }
        }
    }

    async fn open_target(
        &self,
        access: &DocumentAccess,
        target: &LoadTarget,
    ) -> Result<OpenedDocument, OpenFailure> {
        let name = match target {
            LoadTarget::Dial(path) => last_segment(path.as_str()),
            LoadTarget::External(url) => last_segment(url),
        };
        let DocumentAccess {
            meta,
            credentials,
            app_policy,
            limit,
        } = access;
        let scope = LoadScope {
            tenant: meta.tenant.clone(),
            operation: meta.operation.clone(),
            // Only leased work has an epoch.
            epoch: 0,
            deadline: meta.deadline,
            limit: *limit,
            credentials: credentials.clone(),
            fetch: ExternalFetch {
                meta: meta.clone(),
                app_policy: app_policy.clone(),
                limit: *limit,
                // 0 means no timeout besides the deadline and the operator's timeout.
                tool_timeout_ms: 0,
            },
        };
        let loader = FileLoader::new(
            self.bus.clone(),
            self.store.clone(),
            self.dial.clone(),
            scope,
        );
        let source = match target {
            // The download is not shared between callers: DIAL checks each caller, and the file may have changed.
            LoadTarget::Dial(_) => loader.open_once(target).await?,
            LoadTarget::External(_) => {
                let conversation = DownloadScope::of_conversation(meta);
                let loader = loader.sharing(&self.downloads, conversation);
                loader.open_once(target).await?
            }
        };
        spool_source(source, name).await
    }

    /// Reads the content of a request, inline or by claim. Content by claim is limited to `max_context` bytes.
    pub(super) async fn content(
        &self,
        meta: &Meta,
        content: Option<v1::Content>,
        field: &'static str,
    ) -> Result<bytes::Bytes, Fault> {
        let content = content.ok_or_else(|| InvalidMessage::field(field, "is missing"))?;
        match ContentSource::try_from(content)? {
            ContentSource::Inline(bytes) => Ok(bytes),
            ContentSource::Claim(claim) => {
                let reader = self.store.read(&meta.tenant, &claim, meta.deadline).await?;
                Ok(reader.read_all(self.config.max_context).await?)
            }
        }
    }

    /// Makes the content of a reply: inline if it is small, otherwise stored and referenced by a claim.
    pub(super) async fn reply(
        &self,
        meta: &Meta,
        bytes: Vec<u8>,
        media_type: &str,
    ) -> Result<v1::Content, Fault> {
        if bytes.len() <= dray_proto::MAX_INLINE_BYTES {
            return Ok(ContentSource::Inline(bytes.into()).into());
        }
        let label = dray_store::ArtifactLabel::new(media_type, "");
        let stored = self
            .store
            .put(&meta.tenant, &meta.operation, bytes.into(), label)
            .await?;
        Ok(ContentSource::Claim(stored).into())
    }
}

/// Decides what a fault means: a fault about the document is reported to the model, any other fault ends the call.
fn sort_fault(fault: Fault) -> OpenFailure {
    match fault.code {
        FaultCode::NotFound
        | FaultCode::TooLarge
        | FaultCode::Denied
        | FaultCode::Unsupported
        | FaultCode::InvalidArgument => document_failure(fault),
        FaultCode::RateLimited
        | FaultCode::Timeout
        | FaultCode::Unavailable
        | FaultCode::Internal => OpenFailure::Fault(fault),
    }
}

fn document_failure(fault: Fault) -> OpenFailure {
    let code = match fault.code {
        FaultCode::NotFound => Code::NotFound,
        FaultCode::TooLarge => Code::TooLarge,
        _ => Code::Unreadable,
    };
    OpenFailure::Refused(RefusedDocument {
        code,
        reason: fault.message.trim_end_matches('.').to_owned(),
        detail: fault.detail,
    })
}

fn missing_artifact(sha256: &Sha256Digest) -> OpenFailure {
    tracing::info!(%sha256, "a file of the conversation is no longer stored");
    OpenFailure::refused(Code::NotFound, "it is no longer stored")
}

/// The last segment of a path or URL, percent-decoded. It is a display name and must not be used as a path.
fn last_segment(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let path = text.get(..end).unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    percent_encoding::percent_decode_str(last)
        .decode_utf8_lossy()
        .into_owned()
}

/// Copies a source into an unnamed temporary file.
async fn spool_source(mut source: FileSource, name: String) -> Result<OpenedDocument, OpenFailure> {
    // No other process can open an unnamed file, and no file remains after a crash.
    let mut file = tempfile::tempfile().map_err(|error| no_space(&error))?;
    while let Some(chunk) = source.next().await? {
        // A blocking thread writes each chunk, so the file moves into its closure and back.
        file = tokio::task::spawn_blocking(move || file.write_all(&chunk).map(|()| file))
            .await
            .map_err(|_| Fault::internal())?
            .map_err(|error| no_space(&error))?;
    }
    file.rewind().map_err(|error| no_space(&error))?;
    let size = source.summary().size;
    Ok(OpenedDocument { file, size, name })
}

/// Writes the bytes of a request into an unnamed temporary file.
async fn spool_inline(bytes: bytes::Bytes) -> Result<OpenedDocument, OpenFailure> {
    if bytes.len() > dray_proto::MAX_INLINE_BYTES {
        let error = InvalidMessage::field("source.inline", "is above 64 KiB");
        return Err(Fault::from(error).into());
    }
    let size = bytes.len() as u64;
    let write = move || {
        let mut file = tempfile::tempfile()?;
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file)
    };
    let written = tokio::task::spawn_blocking(write).await;
    let file = written
        .map_err(|_| Fault::internal())?
        .map_err(|error| no_space(&error))?;
    Ok(OpenedDocument {
        file,
        size,
        name: String::new(),
    })
}

fn no_space(error: &std::io::Error) -> OpenFailure {
    tracing::warn!(%error, "could not write a document to a temporary file");
    OpenFailure::Fault(
        Fault::new(
            FaultCode::Unavailable,
            "The document could not be written to a temporary file.",
        )
        .detail("no_room")
        .advice("Ask the operator to check the space of the temporary directory."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_last_segment_decoded() {
        assert_eq!(last_segment("files/b/My%20Report.pdf"), "My Report.pdf");
        assert_eq!(last_segment("https://h/a/b.csv?sig=1/2#x"), "b.csv");
        assert_eq!(last_segment("https://h/"), "");
    }

    #[test]
    fn faults_of_the_system_end_the_call_and_are_not_reported_to_the_model() {
        let sorted = |code| sort_fault(Fault::new(code, "Words."));
        assert!(matches!(sorted(FaultCode::NotFound),
            OpenFailure::Refused(RefusedDocument { code: Code::NotFound, reason, .. }) if reason == "Words"));
        assert!(matches!(
            sorted(FaultCode::Denied),
            OpenFailure::Refused(RefusedDocument {
                code: Code::Unreadable,
                ..
            })
        ));
        assert!(matches!(
            sorted(FaultCode::Unavailable),
            OpenFailure::Fault(_)
        ));
        assert!(matches!(sorted(FaultCode::Internal), OpenFailure::Fault(_)));
    }
}
