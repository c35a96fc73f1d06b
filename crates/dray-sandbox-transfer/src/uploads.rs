//! Files that users sent to each session, from the moment when they are stored until the agent has seen them.
//!
//! There is one record for each session in the bucket `dray_uploads`; every change is a compare-and-set, so that
//! work, calls and their repetitions may coincide. Files wait there without a sandbox, and are put before the next
//! tool call (platform-delivery 11, R-14). Archives are never unpacked.

use bytes::Bytes;
use dray_bus::{Bus, KeyError, KeyValue, Meta};
use dray_presentation::{line, name};
use dray_proto::v1;
use dray_types::{OperationId, TenantId};
use prost::Message as _;

use crate::error::Error;
use crate::sessions::token;

/// Bucket with one list of uploads for each session.
pub(crate) const UPLOAD_BUCKET: &str = "dray_uploads";
/// Attempts to write a record that others change at the same time.
const MAX_WRITE_ATTEMPTS: usize = 16;
/// Uploads that one session remembers; reported ones are dropped first.
const MAX_UPLOADS: usize = 200;
/// Largest encoded list to which an upload is added. The bucket takes 256 KiB; the difference is for paths that are
/// longer than [`MAX_END_BYTES`] expects.
const MAX_LIST_BYTES: usize = 192 << 10;
/// Most bytes of uploads in one reply. Further uploads are in a later one.
const MAX_REPLY_BYTES: usize = dray_proto::MAX_MESSAGE_BYTES / 4 * 3;
/// Bytes that the end of an upload adds to its record, without the copies of its name: path, line and receipt.
const MAX_END_BYTES: usize = 1024;
/// Copies of its name that the end of an upload adds to its record.
const NAME_COPIES: usize = 3;
/// State of an upload that has not been put yet.
pub(crate) const WAITING_STATE: &str = "waiting";
/// Final state of an upload whose file is in the sandbox.
pub(crate) const PLACED_STATE: &str = "placed";
/// Final state of an upload that could not be put.
const FAILED_STATE: &str = "failed";

/// Access to the records of all sessions.
#[derive(Clone, Debug)]
pub struct Uploads {
    keys: KeyValue,
}

pub(crate) fn key(tenant: &TenantId, session: &str) -> String {
    format!("{}.{}", tenant.token(), token(session))
}

/// Bytes of the record after all its uploads have ended.
fn final_bytes(uploads: &[v1::Upload]) -> usize {
    let entry_bytes = |upload: &v1::Upload| {
        let end_bytes = if upload.state == WAITING_STATE {
            MAX_END_BYTES + NAME_COPIES * upload.name.len()
        } else {
            0
        };
        // The tag and the length of an entry take up to 4 bytes.
        upload.encoded_len() + 4 + end_bytes
    };
    uploads.iter().map(entry_bytes).sum()
}

/// Drops the oldest reported uploads until the list has at most `max_uploads` that fit into one record. Returns whether
/// it has. An upload that was not reported to the agent stays, or the agent would never learn of it.
fn drop_reported(uploads: &mut Vec<v1::Upload>, max_uploads: usize) -> bool {
    while uploads.len() > max_uploads || final_bytes(uploads) > MAX_LIST_BYTES {
        let Some(reported) = uploads.iter().position(|upload| upload.told) else {
            return false;
        };
        uploads.remove(reported);
    }
    true
}

/// Decodes a list. A missing value is an empty list. A damaged list is an error, because it must not be overwritten.
fn decode_list(value: Option<Bytes>) -> Result<Vec<v1::Upload>, Error> {
    let list = v1::UploadList::decode(value.unwrap_or_default());
    Ok(list.map_err(Error::InvalidUploadList)?.uploads)
}

impl Uploads {
    /// Opens the records on this bus. No record is read yet.
    pub fn new(bus: &Bus) -> Self {
        Self {
            keys: bus.key_value(UPLOAD_BUCKET),
        }
    }

    pub(crate) async fn list(
        &self,
        tenant: &TenantId,
        session: &str,
    ) -> Result<Vec<v1::Upload>, Error> {
        let entry = self.keys.get(&key(tenant, session)).await?;
        decode_list(entry.map(|entry| entry.value))
    }

    async fn change<T>(
        &self,
        tenant: &TenantId,
        session: &str,
        change: impl Fn(&mut Vec<v1::Upload>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let key = key(tenant, session);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let entry = self.keys.get(&key).await?;
            let before = decode_list(entry.as_ref().map(|entry| entry.value.clone()))?;
            let mut after = before.clone();
            let result = change(&mut after)?;
            // Most calls change nothing, and a write would make others repeat theirs.
            if after == before {
                return Ok(result);
            }
            let value = Bytes::from(v1::UploadList { uploads: after }.encode_to_vec());
            let written = match entry {
                Some(entry) => self.keys.update(&key, value, entry.revision).await,
                None => self.keys.create(&key, value).await,
            };
            match written {
                Ok(_) => return Ok(result),
                Err(KeyError::Stale | KeyError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    /// Records an upload, once for each operation.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyUploads`] when no upload can be dropped, [`Error::InvalidUploadList`], [`Error::Contended`]
    /// and [`Error::Keys`].
    pub async fn record(&self, meta: &Meta, work: &v1::PlaceUpload) -> Result<(), Error> {
        let upload = new_upload(meta, work);
        self.change(&meta.tenant, &work.session, |uploads| {
            if uploads
                .iter()
                .any(|known| known.operation_id == upload.operation_id)
            {
                return Ok(());
            }
            uploads.push(upload.clone());
            if drop_reported(uploads, MAX_UPLOADS) {
                Ok(())
            } else {
                Err(Error::TooManyUploads)
            }
        })
        .await
    }

    /// Reads one upload of a session.
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] when it was forgotten, and [`Error::Keys`].
    pub async fn find(
        &self,
        tenant: &TenantId,
        session: &str,
        operation: &OperationId,
    ) -> Result<v1::Upload, Error> {
        let uploads = self.list(tenant, session).await?;
        uploads
            .into_iter()
            .find(|upload| upload.operation_id == operation.as_str())
            .ok_or(Error::Contended)
    }

    /// Returns the uploads that have ended and were not reported before; with `all`, every upload of the session. Those
    /// that the request acknowledges count as reported, and so do the returned ones unless its caller acknowledges
    /// uploads. Uploads that do not fit into one reply are returned by a later request.
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] after too many attempts, and [`Error::Keys`].
    pub async fn take_ended(
        &self,
        tenant: &TenantId,
        request: &v1::SettleUploadsRequest,
    ) -> Result<v1::SettleUploadsReply, Error> {
        let reports = !request.all && !request.acknowledges;
        self.change(tenant, &request.session, |uploads| {
            let mut reply = v1::SettleUploadsReply::default();
            for upload in uploads {
                let is_waiting = upload.state == WAITING_STATE;
                reply.waiting |= is_waiting;
                upload.told |= !is_waiting && request.acknowledged.contains(&upload.operation_id);
                let fits = reply.uploads.is_empty()
                    || reply.encoded_len() + upload.encoded_len() <= MAX_REPLY_BYTES;
                if fits && (request.all || !(is_waiting || upload.told)) {
                    upload.told |= reports;
                    reply.uploads.push(upload.clone());
                }
            }
            Ok(reply)
        })
        .await
    }

    /// Records the end of one upload; an end is never changed again.
    pub(crate) async fn record_end(
        &self,
        tenant: &TenantId,
        session: &str,
        ended: &v1::Upload,
    ) -> Result<(), Error> {
        self.change(tenant, session, |uploads| {
            for upload in uploads.iter_mut() {
                if upload.operation_id == ended.operation_id && upload.state == WAITING_STATE {
                    upload.clone_from(ended);
                }
            }
            // Names and paths may be longer than was expected when the upload was recorded.
            drop_reported(uploads, MAX_UPLOADS);
            Ok(())
        })
        .await
    }
}

fn new_upload(meta: &Meta, work: &v1::PlaceUpload) -> v1::Upload {
    let clean = name::upload_name(&work.name);
    let size = work
        .claim
        .as_ref()
        .and_then(|claim| claim.artifact.as_ref())
        .map_or(work.claimed_size, |artifact| artifact.size);
    let mut upload = v1::Upload {
        operation_id: meta.operation.to_string(),
        session: work.session.clone(),
        state: WAITING_STATE.to_owned(),
        name: clean,
        claim: work.claim.clone(),
        chat: work.chat.clone(),
        message_id: work.message_id.clone(),
        position: work.position,
        ..v1::Upload::default()
    };
    if work.claim.is_none() {
        let reason = if work.unavailable.is_empty() {
            "it could not be fetched"
        } else {
            &work.unavailable
        };
        set_failed(&mut upload, (size > 0).then_some(size), reason);
    }
    upload
}

pub(crate) fn set_failed(upload: &mut v1::Upload, size: Option<u64>, reason: &str) {
    FAILED_STATE.clone_into(&mut upload.state);
    upload.reason = name::shown_text(reason, 200);
    upload.context_line = line::not_available(&upload.name, size, &upload.reason);
}
