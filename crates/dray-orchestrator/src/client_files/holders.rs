//! Which files have a content, over all callers of a tenant, for an operator who knows only a digest.
//!
//! A record for each file has the digest of its content in its key and the caller in its value. It is written before
//! the file, and it is compared with the file when it is read, so a record that is left over is not shown.
//! Files that were stored before these records existed are not found.

use dray_agent::failure::RequestFailure;
use dray_proto::v1;
use dray_types::{Fault, FaultCode, Sha256Digest, TenantId};
use serde::{Deserialize, Serialize};

use super::{ClientFiles, FileRecord};
use crate::records::RecordKind;

/// Most contents of one request.
const MAX_CONTENTS: usize = 50;
/// Most files of one content when the request names none.
const DEFAULT_HOLDERS: u32 = 50;
/// Most files of one content in a reply.
const MAX_HOLDERS: u32 = 200;
/// Records that are read beyond those of the reply, because files may have expired.
const MAX_STALE_RECORDS: usize = 1000;

/// The caller who keeps a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct HolderRecord {
    principal: String,
}

impl ClientFiles {
    /// The files of another tenant on the same bus.
    pub(crate) fn for_tenant(&self, tenant: TenantId) -> Self {
        Self {
            records: self.records.for_tenant(tenant),
            lifetime: self.lifetime,
        }
    }

    /// Records that a caller is about to keep a file.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(super) async fn record_holder(
        &self,
        principal: &str,
        id: &str,
        file: &FileRecord,
    ) -> Result<(), RequestFailure> {
        let holder = HolderRecord {
            principal: principal.to_owned(),
        };
        let content = file.content.sha256_hex();
        let created = self
            .records
            .create(RecordKind::FileHolder, content, id, &holder);
        created.await?;
        Ok(())
    }

    /// Removes the record of a file that was deleted. A failure is logged by the bus and leaves a record that leads to
    /// nothing.
    pub(super) async fn forget_holder(&self, id: &str, file: &FileRecord) {
        let content = file.content.sha256_hex();
        let deleted =
            self.records
                .delete_newest::<HolderRecord>(RecordKind::FileHolder, content, id);
        if let Err(failure) = deleted.await {
            tracing::debug!(
                status = failure.status,
                "the record of a deleted file was left"
            );
        }
    }

    /// The files that have these contents.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for no digest, too many, or one of another length; `Unavailable` while the bus fails.
    pub(crate) async fn list_holders(
        &self,
        request: &v1::ListFileHoldersRequest,
    ) -> Result<v1::ListFileHoldersReply, Fault> {
        let contents = digests_of(&request.sha256)?;
        let limit = match request.limit {
            0 => DEFAULT_HOLDERS,
            limit => limit.min(MAX_HOLDERS),
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut reply = v1::ListFileHoldersReply::default();
        for content in contents {
            let found = self.holders_of(content, limit).await;
            let (holders, is_cut) = found.map_err(|failure| unavailable_fault(&failure))?;
            reply.holders.extend(holders);
            reply.truncated |= is_cut;
        }
        Ok(reply)
    }

    /// Up to `limit` files with this content, oldest first, and whether there may be more.
    async fn holders_of(
        &self,
        content: Sha256Digest,
        limit: usize,
    ) -> Result<(Vec<v1::FileHolder>, bool), RequestFailure> {
        let digits = content.to_hex();
        let max_records = limit + MAX_STALE_RECORDS;
        let records =
            self.records
                .list::<HolderRecord>(RecordKind::FileHolder, &digits, max_records);
        let records = records.await?;
        let mut is_cut = records.len() >= max_records;
        let mut holders = Vec::new();
        for (id, HolderRecord { principal }) in records {
            let found = self
                .records
                .get::<FileRecord>(RecordKind::File, &principal, &id)
                .await?;
            let file = found.map(|found| found.value);
            let file =
                file.filter(|file| self.is_alive(file) && file.content.sha256_hex() == digits);
            let Some(file) = file else { continue };
            if holders.len() >= limit {
                is_cut = true;
                break;
            }
            holders.push(v1::FileHolder {
                sha256: content.as_bytes().to_vec(),
                file_id: id,
                principal,
                size: file.content.size(),
                name: file.name,
                media_type: file.media_type,
                purpose: file.purpose,
                created_at_ms: file.created_ms,
                expires_at_ms: file.expires_ms,
            });
        }
        Ok((holders, is_cut))
    }
}

fn digests_of(contents: &[Vec<u8>]) -> Result<Vec<Sha256Digest>, Fault> {
    if !(1..=MAX_CONTENTS).contains(&contents.len()) {
        let sentence = format!("A request names 1 to {MAX_CONTENTS} digests.");
        return Err(Fault::new(FaultCode::InvalidArgument, sentence));
    }
    let digests = contents.iter().map(|content| {
        let bytes: Result<[u8; 32], _> = content.as_slice().try_into();
        bytes.map(Sha256Digest::from_bytes).map_err(|_| {
            Fault::new(
                FaultCode::InvalidArgument,
                "A digest of SHA-256 has 32 bytes.",
            )
        })
    });
    digests.collect()
}

fn unavailable_fault(failure: &RequestFailure) -> Fault {
    Fault::new(FaultCode::Unavailable, failure.message.clone())
}
