//! The records of previews: keys of the bucket `dray_sessions`, changed by compare-and-set.

use dray_types::whole_millis;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, KeyError, KeyValue};
use dray_proto::v1::{self, PreviewAction};
use prost::Message as _;

use crate::error::PreviewError;
use crate::token::PreviewKey;

/// Bucket of the records. `sandbox-transfer` keeps its sessions there, under other keys.
const PREVIEW_BUCKET: &str = "dray_sessions";
/// Attempts to change a record that others change at the same time.
const MAX_WRITE_ATTEMPTS: usize = 8;

/// How long the record of a delivery's preview is kept.
const DELIVERY_RETENTION: Duration = Duration::from_hours(30 * 24);
/// Ended previews of one reference that are kept.
const MAX_ENDED: usize = 128;
/// Most bytes of a record, with [`CHANGE_BYTES`] for each preview that is open: below the largest message of the bucket,
/// 64 KiB with subject and headers.
const MAX_RECORD_BYTES: usize = 56 << 10;
/// Bytes that views and a revocation add to one preview. They must always fit: a link that cannot be revoked stays open.
const CHANGE_BYTES: usize = 64;

/// Access to the records, which all replicas share.
#[derive(Clone, Debug)]
pub(crate) struct PreviewRecordStore {
    keys: KeyValue,
}

impl PreviewRecordStore {
    pub(crate) fn new(bus: &Bus) -> Self {
        Self {
            keys: bus.key_value(PREVIEW_BUCKET),
        }
    }

    /// The record; an empty one where there is none.
    pub(crate) async fn load(&self, key: PreviewKey) -> Result<v1::PreviewRecords, PreviewError> {
        match self.keys.get(&key.record_key()).await? {
            Some(entry) => decode(entry.value),
            None => Ok(v1::PreviewRecords::default()),
        }
    }

    /// Changes a record, and removes it when it is empty afterwards. `change` runs again when another writer came
    /// first; if it fails, the record stays as it was.
    pub(crate) async fn change<T>(
        &self,
        key: PreviewKey,
        mut change: impl FnMut(&mut v1::PreviewRecords) -> Result<T, PreviewError>,
    ) -> Result<T, PreviewError> {
        let key = key.record_key();
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let entry = self.keys.get(&key).await?;
            let (before, revision) = match entry {
                Some(entry) => (decode(entry.value)?, Some(entry.revision)),
                None => (v1::PreviewRecords::default(), None),
            };
            let mut after = before.clone();
            let changed = change(&mut after)?;
            if after == before {
                return Ok(changed);
            }
            let value = Bytes::from(after.encode_to_vec());
            let written = match revision {
                Some(revision) if after.records.is_empty() => {
                    self.keys.delete(&key, revision).await
                }
                Some(revision) => self.keys.update(&key, value, revision).await.map(|_| ()),
                None => self.keys.create(&key, value).await.map(|_| ()),
            };
            match written {
                Ok(()) => return Ok(changed),
                Err(KeyError::Stale | KeyError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(PreviewError::Contended)
    }
}

fn decode(value: Bytes) -> Result<v1::PreviewRecords, PreviewError> {
    v1::PreviewRecords::decode(value).map_err(PreviewError::InvalidRecord)
}

/// The preview of a record that has not ended.
pub(crate) fn open_preview(record: &v1::PreviewRecord, now_ms: u64) -> Option<&v1::Preview> {
    let preview = record.preview.as_ref()?;
    let is_open = preview.expires_at_ms > now_ms && preview.revoked_at_ms == 0;
    is_open.then_some(preview)
}

/// The id of a preview; empty for a damaged record.
pub(crate) fn id_of(record: &v1::PreviewRecord) -> &str {
    record
        .preview
        .as_ref()
        .map_or("", |preview| preview.preview_id.as_str())
}

/// Whether the audit event of an action is not stored yet.
pub(crate) fn is_unreported(record: &v1::PreviewRecord, action: PreviewAction) -> bool {
    record.unreported.contains(&action.into())
}

/// Marks the audit event of an action as not stored yet.
pub(crate) fn add_unreported(record: &mut v1::PreviewRecord, action: PreviewAction) {
    if !is_unreported(record, action) {
        record.unreported.push(action.into());
    }
}

/// Removes ended previews, except revoked ones whose event is not stored yet. Those of deliveries are kept for their receipts, which are read later, without their paths and
/// handles, which no receipt has. The oldest of them are removed when the record is too large.
pub(crate) fn remove_ended(records: &mut v1::PreviewRecords, now_ms: u64) {
    let retention_ms = whole_millis(DELIVERY_RETENTION);
    let is_kept = |record: &v1::PreviewRecord| {
        record.preview.as_ref().is_some_and(|preview| {
            let is_needed =
                !preview.delivery_id.is_empty() || is_unreported(record, PreviewAction::Revoked);
            is_needed && now_ms.saturating_sub(preview.created_at_ms) < retention_ms
        })
    };
    records
        .records
        .retain(|record| open_preview(record, now_ms).is_some() || is_kept(record));
    for record in &mut records.records {
        if open_preview(record, now_ms).is_none() && !is_unreported(record, PreviewAction::Revoked)
        {
            remove_place(record);
        }
    }
    let ended = records
        .records
        .iter()
        .filter(|record| open_preview(record, now_ms).is_none())
        .count();
    // The oldest are removed first.
    let mut surplus = ended.saturating_sub(MAX_ENDED);
    let mut surplus_bytes = reserved_bytes(records, now_ms).saturating_sub(MAX_RECORD_BYTES);
    records.records.retain(|record| {
        let is_removed =
            (surplus > 0 || surplus_bytes > 0) && open_preview(record, now_ms).is_none();
        if is_removed {
            surplus = surplus.saturating_sub(1);
            surplus_bytes = surplus_bytes.saturating_sub(record.encoded_len());
        }
        !is_removed
    });
}

/// Whether the record fits a message, also after views and revocations of all of its open previews.
pub(crate) fn has_room(records: &v1::PreviewRecords, now_ms: u64) -> bool {
    reserved_bytes(records, now_ms) <= MAX_RECORD_BYTES
}

/// Bytes of a record with the reserve for changes.
fn reserved_bytes(records: &v1::PreviewRecords, now_ms: u64) -> usize {
    let open = records.records.iter();
    let open = open
        .filter(|record| open_preview(record, now_ms).is_some())
        .count();
    records.encoded_len() + open * CHANGE_BYTES
}

/// Removes what only an open preview needs: the secret of its link, and the place that it shows.
fn remove_place(record: &mut v1::PreviewRecord) {
    record.secret_sha256.clear();
    if let Some(preview) = &mut record.preview {
        preview.handle = None;
        preview.session.clear();
        preview.directory.clear();
        preview.file.clear();
    }
}
