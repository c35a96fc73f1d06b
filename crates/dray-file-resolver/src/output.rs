//! Where resolved arguments are written: into memory while they are few, into the store from then on (R7).

use bytes::Bytes;

use dray_proto::convert::ContentSource;
use dray_store::{ArtifactLabel, ArtifactWriter, PutError, Store};
use dray_types::{Deadline, OperationId, TenantId};

/// Media type of arguments.
pub const MEDIA_TYPE: &str = "application/json";

/// Resolved arguments on their way out. Dropping it gives up; what was stored is removed in the background.
///
/// Holds at most the inline limit and what a [`ArtifactWriter`] holds.
#[derive(Debug)]
pub struct ArgumentsOutput<'a> {
    store: &'a Store,
    tenant: &'a TenantId,
    operation: &'a OperationId,
    epoch: u64,
    deadline: Deadline,
    inline_limit: usize,
    held: Vec<u8>,
    writer: Option<ArtifactWriter>,
}

impl<'a> ArgumentsOutput<'a> {
    /// An empty output that goes to the store when it grows past `inline_limit` bytes.
    pub fn new(
        store: &'a Store,
        tenant: &'a TenantId,
        operation: &'a OperationId,
        epoch: u64,
        deadline: Deadline,
        inline_limit: usize,
    ) -> Self {
        Self {
            store,
            tenant,
            operation,
            epoch,
            deadline,
            inline_limit,
            held: Vec::new(),
            writer: None,
        }
    }

    /// Adds bytes.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), PutError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.writer.is_none() && self.held.len() + bytes.len() <= self.inline_limit {
            self.held.extend_from_slice(&bytes);
            return Ok(());
        }
        let writer = self.writer.get_or_insert_with(|| {
            self.store
                .writer(self.tenant, self.operation, self.epoch)
                .deadline(self.deadline)
        });
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            writer.write(held.into()).await?;
        }
        writer.write(bytes).await
    }

    /// Everything that was written, here or in the store.
    pub async fn finish(self) -> Result<ContentSource, PutError> {
        match self.writer {
            None => Ok(ContentSource::Inline(self.held.into())),
            Some(writer) => {
                let claim = writer.finish(ArtifactLabel::new(MEDIA_TYPE, "")).await?;
                Ok(ContentSource::Claim(claim))
            }
        }
    }

    /// Gives up, and returns when what was stored is removed.
    pub async fn abort(self) {
        if let Some(writer) = self.writer {
            writer.abort().await;
        }
    }
}
