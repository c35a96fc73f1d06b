//! Files that users sent to each session, from the moment when they are stored until the agent has seen them.
//!
//! There is one record for each session in the bucket `dray_uploads`; every change is a compare-and-set, so that
//! work, calls and their repetitions may coincide. Files wait there without a sandbox, and are put before the next
//! tool call (platform-delivery 11, R-14). Archives are never unpacked.

use bytes::Bytes;
use dray_bus::{Bus, KeyError, KeyValue, Meta};
use dray_presentation::{line, name};
use dray_proto::v1;
use dray_sandbox::{ErrorKind, RetryMode};
use dray_store::ReadError;
use dray_transfer_engine::{Collision, PutOptions};
use dray_types::{Claim, Deadline, OperationId, TenantId};
use prost::Message as _;

use crate::error::Error;
use crate::service::{OpenedSandbox, SandboxTransfer};
use crate::sessions::token;
use crate::store::StoreSource;

/// Bucket with one list of uploads for each session.
pub(crate) const UPLOAD_BUCKET: &str = "dray_uploads";
/// Attempts to write a record that others change at the same time.
const MAX_WRITE_ATTEMPTS: usize = 16;
/// Uploads that one session remembers; reported ones are dropped first.
const MAX_UPLOADS: usize = 200;
/// State of an upload that has not been put yet.
const WAITING_STATE: &str = "waiting";
/// Final state of an upload whose file is in the sandbox.
const PLACED_STATE: &str = "placed";
/// Final state of an upload that could not be put.
const FAILED_STATE: &str = "failed";

/// Access to the records of all sessions.
#[derive(Clone, Debug)]
pub struct Uploads {
    keys: KeyValue,
}

fn key(tenant: &TenantId, session: &str) -> String {
    format!("{}.{}", tenant.token(), token(session))
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

    async fn list(&self, tenant: &TenantId, session: &str) -> Result<Vec<v1::Upload>, Error> {
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
            if uploads.len() >= MAX_UPLOADS {
                // An upload that was not reported to the agent must stay, or the agent would never learn of it.
                let notified = uploads.iter().position(|known| known.told);
                uploads.remove(notified.ok_or(Error::TooManyUploads)?);
            }
            uploads.push(upload.clone());
            Ok(())
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
    /// uploads.
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
                if request.all || !(is_waiting || upload.told) {
                    upload.told |= reports;
                    reply.uploads.push(upload.clone());
                }
            }
            Ok(reply)
        })
        .await
    }

    /// Records the end of one upload; an end is never changed again.
    async fn record_end(
        &self,
        tenant: &TenantId,
        session: &str,
        ended: &v1::Upload,
    ) -> Result<(), Error> {
        self.change(tenant, session, |uploads| {
            for upload in uploads {
                if upload.operation_id == ended.operation_id && upload.state == WAITING_STATE {
                    upload.clone_from(ended);
                }
            }
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

fn set_failed(upload: &mut v1::Upload, size: Option<u64>, reason: &str) {
    FAILED_STATE.clone_into(&mut upload.state);
    upload.reason = name::shown_text(reason, 200);
    upload.context_line = line::not_available(&upload.name, size, &upload.reason);
}

impl SandboxTransfer {
    /// Returns the upload with a claim that lasts as long as the upload may wait. A file of the cache is kept from now
    /// on.
    pub(crate) async fn with_kept_claim(
        &self,
        meta: &Meta,
        mut work: v1::PlaceUpload,
    ) -> Result<v1::PlaceUpload, Error> {
        let claim = work.claim.clone().map(Claim::try_from);
        // A claim that cannot be read is reported by the step that needs it.
        let Some(Ok(claim)) = claim else {
            return Ok(work);
        };
        if dray_store::cache_key(&claim).is_none() {
            return Ok(work);
        }
        match self.store.keep(&meta.tenant, &claim, meta.deadline).await {
            Ok(kept) => work.claim = Some(kept.into()),
            // The file has expired in the cache: the upload fails with its reason, and the agent learns of it.
            Err(ReadError::Missing) => {
                work.claim = None;
                work.claimed_size = claim.artifact.size;
                reason(ErrorKind::NotFound).clone_into(&mut work.unavailable);
            }
            Err(error) => return Err(Error::Store(error)),
        }
        Ok(work)
    }

    /// Puts the waiting uploads into the sandbox, in the order of their arrival. Without a reachable sandbox they
    /// continue to wait; an upload that can never be put fails with its reason.
    pub(crate) async fn place_waiting(
        &self,
        meta: &Meta,
        session: &str,
        deadline: Deadline,
    ) -> Result<(), Error> {
        // Two tasks that put the same upload concurrently would remove each other's temporary files.
        let _lock = self.placement_locks.lock(key(&meta.tenant, session)).await;
        let uploads = self.uploads.list(&meta.tenant, session).await?;
        // The uploads are checked before the sandbox is opened, which may start a connection.
        if !uploads.iter().any(|upload| upload.state == WAITING_STATE) {
            return Ok(());
        }
        let opened = match self.sessions.show(&meta.tenant, session).await {
            Ok(record) => self.open_session(record).await,
            Err(error) => Err(error),
        };
        let opened = match opened {
            Ok(opened) => opened,
            // This is not an error of the work: the upload is recorded and is put when there is a sandbox.
            Err(Error::NoSession | Error::NoSandbox) => return Ok(()),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "uploads wait: the sandbox cannot be reached"
                );
                return Ok(());
            }
        };
        let mut known = uploads.clone();
        for upload in uploads
            .into_iter()
            .filter(|upload| upload.state == WAITING_STATE)
        {
            let Some(ended) = self
                .place_one(meta, &opened, upload, &known, deadline)
                .await?
            else {
                continue;
            };
            self.uploads
                .record_end(&meta.tenant, session, &ended)
                .await?;
            // The next upload of the same content finds the path of this one.
            known.push(ended);
        }
        Ok(())
    }

    /// Puts one upload; `None` when it continues waiting.
    async fn place_one(
        &self,
        meta: &Meta,
        opened: &OpenedSandbox,
        mut upload: v1::Upload,
        known: &[v1::Upload],
        deadline: Deadline,
    ) -> Result<Option<v1::Upload>, Error> {
        let Some(claim) = upload.claim.clone() else {
            return Ok(None);
        };
        let claim = Claim::try_from(claim)?;
        let size = claim.artifact.size;
        // The same bytes from the same chat keep the path and name of their first upload (platform-delivery 11.6).
        let file_name = known
            .iter()
            .find(|other| other.state == PLACED_STATE && is_same(other, &upload))
            .and_then(|other| other.path.rsplit(|byte| *byte == b'/').next())
            .and_then(|name| str::from_utf8(name).ok())
            .unwrap_or(&upload.name)
            .to_owned();
        let source = StoreSource::new(&self.store, &meta.tenant, claim, deadline);
        let operation = token(&upload.operation_id);
        let options = PutOptions {
            policy: &opened.policy,
            collision: Collision::Rename,
            mode: 0o644,
            operation: operation.get(..16).unwrap_or_default(),
            epoch: self.clock.now_ms(),
        };
        let put = self.put_file(opened, &opened.uploads, &file_name, &source, &options);
        match put.await {
            Ok(placed) => {
                let path = String::from_utf8_lossy(&placed.path);
                upload.context_line = line::uploaded_line(&upload.name, size, &path);
                PLACED_STATE.clone_into(&mut upload.state);
                upload.path.clone_from(&placed.path);
                upload.receipt = placed.receipt.map(|receipt| v1::TransferReceipt {
                    operation_id: upload.operation_id.clone(),
                    ..receipt
                });
                Ok(Some(upload))
            }
            Err(Error::Sandbox(error)) if may_succeed_later(error.kind()) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an upload keeps waiting"
                );
                Ok(None)
            }
            Err(Error::Sandbox(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an upload was refused"
                );
                set_failed(&mut upload, Some(size), reason(error.kind()));
                Ok(Some(upload))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether two uploads are the same content from the same chat.
fn is_same(one: &v1::Upload, other: &v1::Upload) -> bool {
    let digest = |upload: &v1::Upload| {
        let artifact = upload.claim.as_ref()?.artifact.as_ref()?;
        Some(artifact.sha256.clone())
    };
    let location = |upload: &v1::Upload| {
        upload.chat.as_ref().map(|chat| {
            (
                chat.platform.clone(),
                chat.account.clone(),
                chat.chat.clone(),
            )
        })
    };
    digest(one).is_some() && digest(one) == digest(other) && location(one) == location(other)
}

/// Whether another sandbox, or the same one later, may accept the upload.
const fn may_succeed_later(kind: ErrorKind) -> bool {
    match kind.retry_mode() {
        RetryMode::BackOff(_) | RetryMode::Resolve => true,
        RetryMode::OtherTransport => false,
        RetryMode::Never => matches!(kind, ErrorKind::Auth),
    }
}

/// The reason as the agent reads it in the context line: short, and without paths.
const fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TooLarge => "too large",
        ErrorKind::NoSpace => "no space left in the sandbox",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnly => {
            "the directory of uploads cannot be written"
        }
        ErrorKind::OutsideRoot | ErrorKind::DeniedPath => "not allowed",
        ErrorKind::InvalidName => "the sandbox cannot hold a file of this name",
        ErrorKind::NotFound => "the stored file has expired",
        _ => "it could not be put into the sandbox",
    }
}
