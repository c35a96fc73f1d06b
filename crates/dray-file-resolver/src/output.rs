//! The output of resolved arguments: in memory while it is small, in the store from then on (R7).

use bytes::Bytes;

use dray_proto::convert::ContentSource;
use dray_store::{ArtifactLabel, ArtifactWriter, PutError, Store};
use dray_types::{Deadline, OperationId, TenantId};

/// Media type of resolved arguments in the store.
pub const MEDIA_TYPE: &str = "application/json";

/// The output of resolved arguments. Dropping it cancels the output; stored data is removed in the background.
///
/// Its memory is at most the inline limit plus that of an [`ArtifactWriter`].
#[derive(Debug)]
pub struct ArgumentsOutput<'a> {
    store: &'a Store,
    tenant: &'a TenantId,
    operation: &'a OperationId,
    epoch: u64,
    deadline: Deadline,
    inline_limit: usize,
    buffered: Vec<u8>,
    writer: Option<ArtifactWriter>,
}

impl<'a> ArgumentsOutput<'a> {
    /// Starts an output that moves to the store when it grows beyond `inline_limit` bytes.
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
            buffered: Vec::new(),
            writer: None,
        }
    }

    /// Appends bytes to the output; waits while the store is slower than the source.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), PutError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.writer.is_none() && self.buffered.len() + bytes.len() <= self.inline_limit {
            self.buffered.extend_from_slice(&bytes);
            return Ok(());
        }
        let writer = self.writer.get_or_insert_with(|| {
            self.store
                .writer(self.tenant, self.operation, self.epoch)
                .deadline(self.deadline)
        });
        let buffered = std::mem::take(&mut self.buffered);
        if !buffered.is_empty() {
            // The buffered bytes are the beginning of the stored object.
            writer.write(buffered.into()).await?;
        }
        writer.write(bytes).await
    }

    /// Ends the output and returns its content, inline or as a claim.
    pub async fn finish(self) -> Result<ContentSource, PutError> {
        match self.writer {
            None => Ok(ContentSource::Inline(self.buffered.into())),
            Some(writer) => {
                let claim = writer.finish(ArtifactLabel::new(MEDIA_TYPE, "")).await?;
                Ok(ContentSource::Claim(claim))
            }
        }
    }

    /// Cancels the output, and waits until stored data is removed.
    pub async fn abort(self) {
        if let Some(writer) = self.writer {
            writer.abort().await;
        }
    }
}
