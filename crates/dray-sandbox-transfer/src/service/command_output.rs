//! The outputs of a program. The beginning goes into the reply; a longer output goes into the store as a whole.

use bytes::Bytes;
use dray_media_type::kind;
use dray_proto::v1;
use dray_sandbox::Error;
use dray_store::{ArtifactLabel, ArtifactWriter, Store};

use crate::store::{Owner, put_failed};

/// Most bytes of one output in the reply. Both outputs together fit into a message.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// Collects one output.
pub(super) struct OutputCollector<'a> {
    store: &'a Store,
    owner: &'a Owner,
    name: &'static str,
    limit: u64,
    head: Vec<u8>,
    size: u64,
    truncated: bool,
    writer: Option<ArtifactWriter>,
}

impl<'a> OutputCollector<'a> {
    /// Collects at most `limit` bytes under this name.
    pub(super) const fn new(
        store: &'a Store,
        owner: &'a Owner,
        name: &'static str,
        limit: u64,
    ) -> Self {
        Self {
            store,
            owner,
            name,
            limit,
            head: Vec::new(),
            size: 0,
            truncated: false,
            writer: None,
        }
    }

    /// Bytes of the output so far, without dropped ones.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next bytes and returns those that are kept; bytes beyond the limit are dropped.
    pub(super) async fn write(&mut self, mut chunk: Bytes) -> Result<Bytes, Error> {
        let room = usize::try_from(self.limit - self.size).unwrap_or(usize::MAX);
        self.truncated |= chunk.len() > room;
        chunk.truncate(room);
        if chunk.is_empty() {
            return Ok(chunk);
        }
        self.size += chunk.len() as u64;
        if let Some(writer) = &mut self.writer {
            writer.write(chunk.clone()).await.map_err(put_failed)?;
            return Ok(chunk);
        }
        self.head.extend_from_slice(&chunk);
        if self.head.len() <= MAX_HEAD_BYTES {
            return Ok(chunk);
        }
        let owner = self.owner;
        let mut writer = self
            .store
            .writer(&owner.tenant, &owner.operation, owner.epoch)
            .deadline(owner.deadline)
            .cached();
        let all = Bytes::copy_from_slice(&self.head);
        self.head.truncate(MAX_HEAD_BYTES);
        writer.write(all).await.map_err(put_failed)?;
        self.writer = Some(writer);
        Ok(chunk)
    }

    /// Records that the sandbox left out the rest of the output.
    pub(super) const fn set_truncated(&mut self) {
        self.truncated = true;
    }

    /// Completes the stored output, if the output is longer than the head.
    pub(super) async fn finish(self) -> Result<v1::CommandOutput, Error> {
        let claim = match self.writer {
            Some(writer) => {
                let detected = kind::detect_kind(&self.head, self.name, self.size);
                let label = ArtifactLabel::new(detected.media_type, self.name.to_owned());
                let claim = writer.finish(label).await.map_err(put_failed)?;
                Some(claim.into())
            }
            None => None,
        };
        Ok(v1::CommandOutput {
            head: self.head,
            size: self.size,
            truncated: self.truncated,
            claim,
        })
    }
}
