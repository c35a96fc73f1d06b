//! Segments: verified parts of incomplete content, such as an upload that continues after a broken connection.
//!
//! They are stored below `stage/`, which no claim refers to, and expire with the lifetime of staged objects unless they
//! are removed earlier. The caller that keeps their list decides their order in the content.

use bytes::Bytes;
use dray_types::{Deadline, OperationId, Sha256Digest};

use crate::checksum::ObjectChecksum;
use crate::chunks;
use crate::error::{PutError, ReadError};
use crate::object;
use crate::reader::ArtifactReader;
use crate::request::RequestError;
use crate::store::Store;

/// Largest segment in bytes, so that one segment that is being filled and one that is being sent fit into
/// [`crate::MAX_TRANSFER_BYTES`].
pub const MAX_SEGMENT_BYTES: usize = 4 << 20;

/// One stored segment. It can be kept in a record: reading the segment checks size and digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedSegment {
    /// Random name of the segment below its operation.
    pub name: [u8; 16],
    /// Bytes of the segment, at least 1.
    pub size: u64,
    /// SHA-256 of its bytes.
    pub sha256: Sha256Digest,
}

impl Store {
    /// Stores one segment of `operation` under a new name. The store verifies its checksum.
    ///
    /// # Errors
    ///
    /// [`PutError::TooLarge`] above [`MAX_SEGMENT_BYTES`], or the store failed. In both cases no reference to the
    /// object exists, and the sweep removes the written bytes.
    pub async fn stage_segment(
        &self,
        operation: &OperationId,
        bytes: Bytes,
    ) -> Result<StagedSegment, PutError> {
        if bytes.len() > MAX_SEGMENT_BYTES {
            return Err(PutError::TooLarge {
                limit: MAX_SEGMENT_BYTES as u64,
            });
        }
        let size = bytes.len() as u64;
        let (sha256, bytes) = chunks::digest_one(bytes).await;
        // Every attempt has a new name: two writers of one operation never write to one key (K-3).
        let name = uuid::Uuid::new_v4().into_bytes();
        let key = segment_key(operation, name);
        let sum = ObjectChecksum::Sha256(sha256);
        object::put_object(&self.inner, &key, vec![bytes], sum, None).await?;
        Ok(StagedSegment { name, size, sha256 })
    }

    /// Opens a segment for reading; its end is reported only when size and digest agree.
    ///
    /// # Errors
    ///
    /// [`ReadError::Missing`] after its lifetime, or the store failed.
    pub async fn read_segment(
        &self,
        operation: &OperationId,
        segment: &StagedSegment,
        deadline: Deadline,
    ) -> Result<ArtifactReader, ReadError> {
        let key = segment_key(operation, segment.name);
        ArtifactReader::open_key(&self.inner, &key, segment.size, segment.sha256, deadline).await
    }

    /// Removes a segment. A missing one is not an error.
    ///
    /// # Errors
    ///
    /// The store could not be reached; the sweep removes the segment after its lifetime.
    pub async fn remove_segment(
        &self,
        operation: &OperationId,
        segment: &StagedSegment,
    ) -> Result<(), RequestError> {
        object::delete_object(&self.inner, &segment_key(operation, segment.name), None).await
    }
}

fn segment_key(operation: &OperationId, name: [u8; 16]) -> String {
    let name = uuid::Uuid::from_bytes(name).simple();
    format!("stage/{}/segments/{name}", operation.ledger_token())
}
