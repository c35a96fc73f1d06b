//! Sinks and sources over the artifact store.

use std::error::Error as StdError;

use async_trait::async_trait;
use bytes::Bytes;
use dray_media_type::kind;
use dray_presentation::name;
use dray_sandbox::{Body, Error, ErrorKind, Metadata};
use dray_store::{ArtifactLabel, ArtifactWriter, PutError, ReadError, Store};
use dray_transfer_engine::{Sink, Source};
use dray_types::{Claim, Deadline, Fault, FaultCode, OperationId, Sha256Digest, TenantId};

/// The tenant and the operation of a transfer.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Tenant to whom the bytes belong.
    pub tenant: TenantId,
    /// Operation for which they are moved.
    pub operation: OperationId,
    /// Number that rises with every take-over of the operation.
    pub epoch: u64,
    /// Time by which the transfer must have ended.
    pub deadline: Deadline,
}

/// Writes a file out of a sandbox into the store's cache, and labels it by its content.
pub struct StoreSink<'a> {
    store: &'a Store,
    owner: &'a Owner,
    /// Name for users; `None` takes that of the file.
    display_name: Option<String>,
    name: String,
    head: Vec<u8>,
    writer: Option<ArtifactWriter>,
    claim: Option<Claim>,
}

impl std::fmt::Debug for StoreSink<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSink")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<'a> StoreSink<'a> {
    /// Makes a sink for one file of this owner.
    pub fn new(store: &'a Store, owner: &'a Owner, display_name: Option<String>) -> Self {
        Self {
            store,
            owner,
            display_name,
            name: String::new(),
            head: Vec::new(),
            writer: None,
            claim: None,
        }
    }

    /// The claim for the file, if the transfer is complete.
    pub fn into_claim(self) -> Option<Claim> {
        self.claim
    }
}

#[async_trait]
impl Sink for StoreSink<'_> {
    async fn begin(&mut self, file: &Metadata) -> Result<(), Error> {
        // A copy that begins again discards what the previous copy left in the store.
        self.abort().await;
        self.name = match &self.display_name {
            Some(display_name) => display_name.clone(),
            None => name::clean_name(file.path.name()),
        };
        self.head.clear();
        let owner = self.owner;
        self.writer = Some(
            self.store
                .writer(&owner.tenant, &owner.operation, owner.epoch)
                .deadline(owner.deadline)
                .cached(),
        );
        Ok(())
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        let room = kind::HEAD_BYTES
            .saturating_sub(self.head.len())
            .min(chunk.len());
        self.head
            .extend_from_slice(chunk.get(..room).unwrap_or_default());
        match &mut self.writer {
            Some(writer) => writer.write(chunk).await.map_err(put_failed),
            None => Err(Error::new(ErrorKind::Protocol, "no transfer was begun")),
        }
    }

    fn sha256(&self) -> Option<Sha256Digest> {
        self.writer.as_ref().map(ArtifactWriter::sha256)
    }

    async fn finish(&mut self, sha256: Sha256Digest, size: u64) -> Result<(), Error> {
        let Some(writer) = self.writer.take() else {
            return Err(Error::new(ErrorKind::Protocol, "no transfer was begun"));
        };
        // The type is detected from the bytes, with the name as a hint: a sandbox states no type.
        let detected = kind::detect_kind(&self.head, &self.name, size);
        let label = ArtifactLabel::new(detected.media_type, self.name.clone());
        let claim = writer.finish(label).await.map_err(put_failed)?;
        if claim.artifact.sha256 != sha256 || claim.artifact.size != size {
            return Err(Error::new(
                ErrorKind::Corrupted,
                "the store has other bytes than were sent",
            ));
        }
        self.claim = Some(claim);
        Ok(())
    }

    async fn abort(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.abort().await;
        }
    }
}

/// The error of a file that the store did not take. Its cause is the store's fault, which callers get
/// ([`store_fault`]).
pub(crate) fn put_failed(error: PutError) -> Error {
    let context = format!("the store did not take the file: {}", cause_text(&error));
    let fault = Fault::from(error);
    let kind = match fault.code {
        // A wait does not help when the store is full, unlike after its other failures.
        _ if fault.detail == "store_full" => ErrorKind::NoSpace,
        FaultCode::TooLarge => ErrorKind::TooLarge,
        FaultCode::Timeout => ErrorKind::Timeout,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, context).caused_by(fault)
}

/// The store's own fault, if the store caused an error and not the sandbox.
pub(crate) fn store_fault(error: &Error) -> Option<&Fault> {
    StdError::source(error)?.downcast_ref()
}

/// An error with its causes, for the operator's log.
fn cause_text(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A stored file as the source of a put.
#[derive(Clone, Debug)]
pub struct StoreSource {
    store: Store,
    tenant: TenantId,
    claim: Claim,
    deadline: Deadline,
}

impl StoreSource {
    /// Makes a source of the file behind a claim. The store refuses claims of other tenants.
    pub fn new(store: &Store, tenant: &TenantId, claim: Claim, deadline: Deadline) -> Self {
        Self {
            store: store.clone(),
            tenant: tenant.clone(),
            claim,
            deadline,
        }
    }

    /// The claim for the file that is read.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }
}

#[async_trait]
impl Source for StoreSource {
    fn size(&self) -> u64 {
        self.claim.artifact.size
    }

    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        Ok(self.claim.artifact.sha256)
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        let reader = self
            .store
            .read(&self.tenant, &self.claim, self.deadline)
            .await
            .map_err(read_failed)?;
        let chunks = futures_util::stream::unfold(Some((reader, offset)), |state| async move {
            let (mut reader, mut skip) = state?;
            loop {
                match reader.next().await {
                    Ok(None) => return None,
                    Err(error) => return Some((Err(read_failed(error)), None)),
                    Ok(Some(mut chunk)) => {
                        // The store reads from the beginning; what is before the offset is skipped here.
                        let past = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
                        skip -= past as u64;
                        let rest = chunk.split_off(past);
                        if !rest.is_empty() {
                            return Some((Ok(rest), Some((reader, skip))));
                        }
                    }
                }
            }
        });
        Ok(Body::new(chunks))
    }
}

/// The error of a stored file that was not read. Its cause is the store's fault.
fn read_failed(error: ReadError) -> Error {
    let context = format!("the stored file cannot be read: {}", cause_text(&error));
    let fault = Fault::from(error);
    let kind = match fault.code {
        FaultCode::NotFound => ErrorKind::NotFound,
        FaultCode::Denied => ErrorKind::PermissionDenied,
        FaultCode::Timeout => ErrorKind::Timeout,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, context).caused_by(fault)
}
