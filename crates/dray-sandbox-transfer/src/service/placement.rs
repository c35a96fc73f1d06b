//! Puts the uploads of sessions into their sandboxes (platform-delivery 11).

use dray_bus::Meta;
use dray_presentation::line;
use dray_proto::v1;
use dray_sandbox::{Error as SandboxError, ErrorKind, RetryMode};
use dray_store::ReadError;
use dray_transfer_engine::{Collision, PutOptions};
use dray_types::{Claim, Deadline, OperationId};
use tokio::time::timeout;

use super::{OpenedSandbox, SandboxTransfer};
use crate::error::Error;
use crate::sessions::token;
use crate::store::{StoreSource, store_fault};
use crate::uploads::{PLACED_STATE, WAITING_STATE, key, set_failed};

/// Detail of the store's fault for an object with other bytes than its claim says.
const DAMAGED_DETAIL: &str = "integrity_mismatch";

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
    /// continue to wait; an upload that can never be put fails with its reason. An upload that another task puts is left
    /// out, unless it is `own`: then the call waits for the other task.
    pub(crate) async fn place_waiting(
        &self,
        meta: &Meta,
        session: &str,
        deadline: Deadline,
        own: Option<&OperationId>,
    ) -> Result<(), Error> {
        let uploads = self.uploads.list(&meta.tenant, session).await?;
        let waiting = uploads
            .into_iter()
            .filter(|upload| upload.state == WAITING_STATE);
        let waiting: Vec<_> = waiting.map(|upload| upload.operation_id).collect();
        // The uploads are checked before the sandbox is opened, which may start a connection.
        if waiting.is_empty() {
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
        for (position, operation) in waiting.iter().enumerate() {
            let is_own = own.is_some_and(|own| own.as_str() == operation);
            let remaining = deadline.remaining(self.clock.now_ms());
            // A slow upload must leave time for those after it.
            let time = if is_own || position + 1 == waiting.len() {
                remaining
            } else {
                remaining / 2
            };
            let placed = self.place_operation(meta, session, operation, is_own, &opened, deadline);
            if let Ok(placed) = timeout(time, Box::pin(placed)).await {
                placed?;
            } else {
                tracing::warn!(%operation, "an upload keeps waiting: it took too long");
            }
        }
        Ok(())
    }

    /// Puts the upload of an operation unless it has ended, and records its end.
    async fn place_operation(
        &self,
        meta: &Meta,
        session: &str,
        operation: &str,
        is_own: bool,
        opened: &OpenedSandbox,
        deadline: Deadline,
    ) -> Result<(), Error> {
        // Two tasks that put the same upload concurrently would remove each other's temporary files.
        let lock = format!("{}.{}", key(&meta.tenant, session), token(operation));
        let _lock = if is_own {
            self.placement_locks.lock(lock).await
        } else if let Some(lock) = self.placement_locks.try_lock(lock) {
            lock
        } else {
            return Ok(());
        };
        // The list is read under the lock: the holder before may have put this upload, or one with the same content.
        let known = self.uploads.list(&meta.tenant, session).await?;
        let upload = known
            .iter()
            .find(|upload| upload.operation_id == operation && upload.state == WAITING_STATE);
        let Some(upload) = upload.cloned() else {
            return Ok(());
        };
        let ended = self.place_one(meta, opened, upload, &known, deadline).await;
        match ended? {
            Some(ended) => self.uploads.record_end(&meta.tenant, session, &ended).await,
            None => Ok(()),
        }
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
        let claim = match Claim::try_from(claim) {
            Ok(claim) => claim,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the claim of an upload cannot be read"
                );
                set_failed(&mut upload, None, reason(ErrorKind::Protocol));
                return Ok(Some(upload));
            }
        };
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
        record_put(&mut upload, size, put.await).map(|has_ended| has_ended.then_some(upload))
    }
}

/// Records the outcome of a put in its upload. Returns whether the upload has ended; otherwise it continues waiting.
fn record_put(
    upload: &mut v1::Upload,
    size: u64,
    put: Result<v1::PlacedFile, Error>,
) -> Result<bool, Error> {
    let error = match put {
        Ok(placed) => {
            let path = String::from_utf8_lossy(&placed.path);
            upload.context_line = line::uploaded_line(&upload.name, size, &path);
            PLACED_STATE.clone_into(&mut upload.state);
            upload.path.clone_from(&placed.path);
            upload.receipt = placed.receipt.map(|receipt| v1::TransferReceipt {
                operation_id: upload.operation_id.clone(),
                ..receipt
            });
            return Ok(true);
        }
        Err(Error::Sandbox(error)) => error,
        Err(error) => return Err(error),
    };
    let may_succeed = may_succeed_later(&error);
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        may_succeed,
        "an upload was not put"
    );
    if !may_succeed {
        let reason = match store_fault(&error) {
            Some(fault) if fault.detail == DAMAGED_DETAIL => "the stored file is damaged",
            _ => reason(error.kind()),
        };
        set_failed(upload, Some(size), reason);
    }
    Ok(!may_succeed)
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
fn may_succeed_later(error: &SandboxError) -> bool {
    // The store reports damage as temporary, because a caller can provide the file again; here only the claim is left.
    if store_fault(error).is_some_and(|fault| fault.detail == DAMAGED_DETAIL) {
        return false;
    }
    match error.kind().retry_mode() {
        RetryMode::BackOff(_) | RetryMode::Resolve => true,
        RetryMode::OtherTransport => false,
        RetryMode::Never => matches!(error.kind(), ErrorKind::Auth),
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
