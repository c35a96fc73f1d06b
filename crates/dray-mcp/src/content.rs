//! Transfer of content into the store, and from it into a local file.

use bytes::{Bytes, BytesMut};
use dray_media_type::kind::{HEAD_BYTES, detect_kind};
use dray_presentation::name;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::ArtifactLabel;
use dray_types::{ByteSize, Claim, Fault, FaultCode, OperationId, Sha256Digest};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use crate::client::{ServiceClient, TRANSFER_TIMEOUT};
use crate::local::{LocalRoot, NewFile};
use crate::location::{self, Location};
use crate::options::{FileLimits, TicketAccess};
use crate::progress::ProgressReporter;
use crate::tools::tickets::principal;

/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;
/// Label of content of unknown type.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Content that a tool placed in the store, with the type that its bytes have.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    pub(crate) claim: Claim,
    /// Media type, detected from the content and never taken from a server.
    pub(crate) media_type: String,
    /// What the scan of a file of the sandbox found, as `TransferReceipt.content_warning`; empty for none.
    content_warning: String,
}

impl StoredFile {
    pub(crate) const fn new(claim: Claim, media_type: String) -> Self {
        Self {
            claim,
            media_type,
            content_warning: String::new(),
        }
    }

    /// The handle under which every tool finds the content again.
    pub(crate) fn handle(&self) -> String {
        location::artifact_uri(self.claim.artifact.sha256)
    }

    /// The description of a file in a result, without its bytes.
    pub(crate) fn describe(&self) -> Value {
        let artifact = &self.claim.artifact;
        let mut description = json!({
            "handle": self.handle(),
            "name": artifact.name,
            "size": artifact.size,
            "sha256": artifact.sha256.to_hex(),
            "media_type": self.media_type,
        });
        if !self.content_warning.is_empty()
            && let Some(fields) = description.as_object_mut()
        {
            fields.insert("content_warning".to_owned(), json!(self.content_warning));
        }
        description
    }
}

/// The sources and destinations of content.
#[derive(Clone, Debug)]
pub(crate) struct ContentAccess {
    pub(crate) client: ServiceClient,
    /// The directory of this machine; `None` if tools may not use one.
    pub(crate) root: Option<LocalRoot>,
    pub(crate) limits: FileLimits,
    /// The ticket endpoint; `None` if tools create no tickets.
    pub(crate) tickets: Option<TicketAccess>,
}

impl ContentAccess {
    pub(crate) fn parse(&self, location: &str) -> Result<Location, Fault> {
        Location::parse(location, self.client.session.as_str())
    }

    /// The local directory.
    pub(crate) fn root(&self) -> Result<&LocalRoot, Fault> {
        self.root.as_ref().ok_or_else(|| {
            Fault::new(FaultCode::Denied, "This server uses no directory of its machine.")
                .detail("no_root")
                .advice("Give a URL, `sandbox:PATH` or a handle. Only an operator can name a directory, with --root.")
        })
    }

    /// Copies the content of a location into the store.
    pub(crate) async fn store(
        &self,
        location: &Location,
        progress: &mut ProgressReporter,
    ) -> Result<StoredFile, Fault> {
        self.store_within(location, self.limits.transfer, progress)
            .await
    }

    /// Like [`Self::store`], with another limit on a file of this machine.
    pub(crate) async fn store_within(
        &self,
        location: &Location,
        limit: ByteSize,
        progress: &mut ProgressReporter,
    ) -> Result<StoredFile, Fault> {
        match location {
            Location::Local(path) => self.store_local(path, limit, progress).await,
            Location::Url(url) => {
                progress.step("fetching").await;
                Ok(self.fetch(url, 0).await?.0)
            }
            Location::Artifact(sha256) => self.find(*sha256).await,
            Location::Ticket(id) => self.find_upload(*id).await,
            Location::Sandbox(path) => {
                progress.step("copying from the sandbox").await;
                self.store_sandbox_file(path).await
            }
        }
    }

    async fn store_local(
        &self,
        path: &str,
        limit: ByteSize,
        progress: &mut ProgressReporter,
    ) -> Result<StoredFile, Fault> {
        let (root, owned_path) = (self.root()?.clone(), path.to_owned());
        let (file, size) = run_blocking(move || root.open_file(&owned_path)).await?;
        check_size(path, size, limit)?;
        let mut file = tokio::fs::File::from_std(file);
        let client = &self.client;
        let mut writer = client.store.writer(&client.tenant, &OperationId::mint(), 1);
        let (mut buffer, mut head, mut copied_bytes) = (BytesMut::new(), BytesMut::new(), 0_u64);
        loop {
            buffer.reserve(CHUNK_BYTES);
            let count = file
                .read_buf(&mut buffer)
                .await
                .map_err(|error| read_fault(&error))?;
            if count == 0 {
                break;
            }
            copied_bytes += count as u64;
            // If a file grows during the copy, the writer is dropped, which removes the partial copy.
            check_size(path, copied_bytes, limit)?;
            let missing = HEAD_BYTES.saturating_sub(head.len()).min(buffer.len());
            head.extend_from_slice(buffer.get(..missing).unwrap_or_default());
            // The bytes are split off, so that the buffer is reused without copying.
            writer.write(buffer.split().freeze()).await?;
            progress.bytes(copied_bytes, size).await;
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        let shown = name::clean_name(last);
        let media_type = detect_kind(&head, &shown, copied_bytes).media_type;
        let claim = writer.finish(ArtifactLabel::new(media_type, shown)).await?;
        Ok(StoredFile::new(claim, media_type.to_owned()))
    }

    /// Fetches an outside URL under the policy of the operator. `max_bytes` 0 means the operator's default.
    pub(crate) async fn fetch(
        &self,
        url: &str,
        max_bytes: u64,
    ) -> Result<(StoredFile, v1::FetchReply), Fault> {
        let request = v1::FetchRequest {
            url: url.to_owned(),
            size_limit_bytes: max_bytes,
            sink: v1::Sink::ClaimOnly.into(),
            ..v1::FetchRequest::default()
        };
        // The call is not repeated, because a refusal of the policy is a decision.
        let reply = self.client.call_once(TRANSFER_TIMEOUT, &request).await;
        let reply = reply.map_err(add_enable_advice)?;
        let claim = reply.content.clone().ok_or_else(Fault::internal)?;
        let ContentSource::Claim(mut claim) =
            ContentSource::try_from(claim).map_err(|_| Fault::internal())?
        else {
            return Err(Fault::internal());
        };
        let head = self.head(&claim).await?;
        let own_name = Some(reply.name.clone()).filter(|name| !name.is_empty());
        let path_name = own_name.or_else(|| location::path_name_of_url(&reply.final_url));
        let shown = path_name.as_deref().unwrap_or_default();
        let media_type = detect_kind(&head, shown, reply.size).media_type.to_owned();
        if claim.artifact.name.is_empty() {
            // Few servers name a file in `Content-Disposition`.
            let host_name = || location::host_name_of_url(&reply.final_url, &media_type);
            claim.artifact.name = path_name.unwrap_or_else(host_name);
        }
        Ok((StoredFile::new(claim, media_type), reply))
    }

    /// A file with a private key is refused, unlike one that an agent only reads: its handle can be sent on.
    async fn store_sandbox_file(&self, path: &str) -> Result<StoredFile, Fault> {
        let request = v1::GetSandboxFileRequest {
            sandbox: Some(self.client.sandbox()),
            path: path.as_bytes().to_vec(),
            ..v1::GetSandboxFileRequest::default()
        };
        let file = self.client.call_once(TRANSFER_TIMEOUT, &request).await?;
        let claim = file.claim.ok_or_else(Fault::internal)?;
        let claim = Claim::try_from(claim).map_err(|_| Fault::internal())?;
        let claim = self.copy_from_cache(claim).await?;
        let media_type = claim.artifact.media_type.clone();
        let receipt = file.receipt.unwrap_or_default();
        Ok(StoredFile {
            content_warning: receipt.content_warning,
            ..StoredFile::new(claim, media_type)
        })
    }

    /// Copies an object of the cache into the permanent content of the store. A handle names only the digest, but an
    /// object of the cache is found only by its claim.
    async fn copy_from_cache(&self, claim: Claim) -> Result<Claim, Fault> {
        if dray_store::cache_key(&claim).is_none() {
            return Ok(claim);
        }
        let client = &self.client;
        let deadline = client.deadline(TRANSFER_TIMEOUT);
        let mut reader = client.store.read(&client.tenant, &claim, deadline).await?;
        let mut writer = client.store.writer(&client.tenant, &OperationId::mint(), 1);
        while let Some(bytes) = reader.next().await? {
            writer.write(bytes).await?;
        }
        let label = ArtifactLabel::new(&claim.artifact.media_type, &claim.artifact.name);
        Ok(writer.finish(label).await?)
    }

    async fn find(&self, sha256: Sha256Digest) -> Result<StoredFile, Fault> {
        let client = &self.client;
        let label = ArtifactLabel::new(UNKNOWN_TYPE, "");
        let found = client.store.claim(&client.tenant, sha256, label).await?;
        let claim = found.ok_or_else(|| {
            Fault::new(
                FaultCode::NotFound,
                format!("Nothing is stored under {sha256}."),
            )
            .detail("claim_missing")
            .advice(
                "Stored files are removed after their lifetime; read or fetch the source again.",
            )
        })?;
        let head = self.head(&claim).await?;
        let media_type = detect_kind(&head, "", claim.artifact.size)
            .media_type
            .to_owned();
        Ok(StoredFile::new(claim, media_type))
    }

    /// The content of an upload ticket of this session.
    async fn find_upload(&self, id: Sha256Digest) -> Result<StoredFile, Fault> {
        let unknown = || {
            Fault::new(FaultCode::NotFound, "No file was uploaded under this URI.")
                .detail("upload_missing")
                .advice("Send the file to the upload URL first, or request another URL.")
        };
        let tickets = self.tickets.as_ref().ok_or_else(unknown)?;
        let client = &self.client;
        let principal = principal(self);
        let content = tickets.service.uploaded_content(&principal, id).await?;
        let content = content.ok_or_else(unknown)?;
        let sha256 = content.sha256.parse().map_err(|_| Fault::internal())?;
        let label = ArtifactLabel::new(content.media_type.as_str(), content.name.as_str());
        let claim = client.store.claim(&client.tenant, sha256, label).await?;
        let claim = claim.ok_or_else(unknown)?;
        Ok(StoredFile::new(claim, content.media_type))
    }

    /// The start of stored content. The digest of the complete content is checked only when all of it is read.
    async fn head(&self, claim: &Claim) -> Result<Bytes, Fault> {
        let client = &self.client;
        let deadline = client.deadline(TRANSFER_TIMEOUT);
        let reader = client.store.read(&client.tenant, claim, deadline).await?;
        Ok(reader.read_head(HEAD_BYTES).await?)
    }

    /// Digest of a file of the local directory.
    pub(crate) async fn local_digest(&self, path: &str) -> Result<Sha256Digest, Fault> {
        let (root, owned_path) = (self.root()?.clone(), path.to_owned());
        run_blocking(move || {
            let (mut file, _) = root.open_file(&owned_path)?;
            let mut hasher = Sha256::new();
            std::io::copy(&mut file, &mut hasher).map_err(|error| read_fault(&error))?;
            Ok(Sha256Digest::from_bytes(hasher.finalize().into()))
        })
        .await
    }

    /// Writes stored content into a new file of the local directory.
    pub(crate) async fn save(
        &self,
        stored: &StoredFile,
        path: &str,
        progress: &mut ProgressReporter,
    ) -> Result<(), Fault> {
        let (root, owned_path) = (self.root()?.clone(), path.to_owned());
        let mut file = run_blocking(move || root.create_file(&owned_path)).await?;
        let (client, claim) = (&self.client, &stored.claim);
        let deadline = client.deadline(TRANSFER_TIMEOUT);
        let mut reader = client.store.read(&client.tenant, claim, deadline).await?;
        let mut saved_bytes = 0_u64;
        while let Some(bytes) = reader.next().await? {
            saved_bytes += bytes.len() as u64;
            file = run_blocking(move || write_chunk(file, &bytes)).await?;
            progress.bytes(saved_bytes, claim.artifact.size).await;
        }
        // The file gets its name only now, because the reader ends without an error only if the digest matches.
        run_blocking(move || file.finish()).await
    }
}

fn write_chunk(mut file: NewFile, bytes: &[u8]) -> Result<NewFile, Fault> {
    file.write(bytes)?;
    Ok(file)
}

/// Runs file operations on a thread that may block.
pub(crate) async fn run_blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(operation)
        .await
        .map_err(|_| Fault::internal())?
}

fn check_size(path: &str, size: u64, limit: ByteSize) -> Result<(), Fault> {
    if size <= limit.as_u64() {
        return Ok(());
    }
    Err(Fault::new(
        FaultCode::TooLarge,
        format!(
            "`{}` has {size} bytes, and the limit is {limit}.",
            name::shown_text(path, 200)
        ),
    )
    .detail("file_too_large")
    .advice("Use a smaller file or a part of it, or ask the operator to raise the limit."))
}

fn read_fault(error: &std::io::Error) -> Fault {
    tracing::warn!(%error, "a local file was not read");
    Fault::new(FaultCode::Unavailable, "The file could not be read.").detail("local")
}

/// Adds advice to the refusal of a disabled fetcher: how the user enables fetching.
fn add_enable_advice(fault: Fault) -> Fault {
    if fault.detail != "disabled_by_admin" {
        return fault;
    }
    fault.advice(
        "Fetching is off by default. Ask the user to turn it on when this server starts, with `--set \
         egress-fetcher.enabled=true` or with EXTERNAL_URL_FETCH_ENABLED=true in its environment.",
    )
}

#[cfg(test)]
mod tests {
    use dray_types::{Artifact, TenantId};

    use super::*;

    #[test]
    fn the_description_of_a_file_with_a_token_says_so() {
        let claim = Claim {
            artifact: Artifact {
                tenant: TenantId::default(),
                sha256: Sha256Digest::of(b"abc"),
                size: 3,
                media_type: "text/plain".to_owned(),
                name: "a.txt".to_owned(),
            },
            store: String::new(),
            version_id: None,
            created_at_ms: 0,
            expires_at_ms: 0,
        };
        let mut stored = StoredFile::new(claim, "text/plain".to_owned());
        assert_eq!(stored.describe().get("content_warning"), None);
        "token:GitHub".clone_into(&mut stored.content_warning);
        assert_eq!(stored.describe()["content_warning"], "token:GitHub");
    }
}
