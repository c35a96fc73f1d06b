//! Gathers the files of a request: copies them out of a sandbox into the store. A failed file never drops the others
//!

mod context;
mod fetch;

use std::time::Duration;

pub(crate) use self::context::{RequestContext, failed_call};
pub(crate) use self::fetch::kind_of;
use dray_bus::{Meta, WorkCompleted, WorkFailure};
use dray_platform::ErrorKind;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, DeliveryStage};
use dray_types::{Fault, FaultCode};
use tokio_util::sync::CancellationToken;

use crate::accept::SESSION_TIMEOUT;
use crate::cache::{ClaimKeeper, GatheringNotes};
use crate::chat_positions::ChatPositions;
use crate::deliver::conclude;
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::link::LinkPolicy;
use crate::reconciler::{round_meta, round_work};
use crate::record::{DeliveryRecord, DeliveryStart, FileFailureKind, FileRecord, FileState};
use crate::records::{self, RecordError, RevisionedRecord};
use crate::report;

/// Most bytes of all paths of a request, and of its message, because events contain both.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Most files that a refusal names.
const MAX_REFUSED_FILES: usize = 100;

/// Longest time for a call that moves no bytes.
const METADATA_TIMEOUT: Duration = Duration::from_mins(1);

/// Longest time for any call.
const CALL_TIMEOUT: Duration = Duration::from_mins(10);

/// The request whose files are gathered.
pub(crate) struct GatherRequest<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) work: &'a v1::SendFileRequested,
    pub(crate) epoch: u64,
}

/// Checks a request before it becomes work.
///
/// # Errors
/// The field that is wrong, with its limit.
pub fn check_request(work: &v1::SendFileRequested, max_files: usize) -> Result<(), InvalidMessage> {
    let count = work.paths.len() + work.claims.len();
    if count == 0 || count > max_files {
        let reason = format!("between 1 and {max_files} files can be sent together");
        return Err(InvalidMessage::field("paths", reason));
    }
    // Every event repeats the paths, and NATS refuses messages above 1 MiB.
    let bytes: usize = work.paths.iter().map(Vec::len).sum();
    if bytes > MAX_TEXT_BYTES {
        let reason = format!("all paths together have more than {MAX_TEXT_BYTES} bytes");
        return Err(InvalidMessage::field("paths", reason));
    }
    if work
        .paths
        .iter()
        .any(|path| path.is_empty() || path.contains(&0))
    {
        return Err(InvalidMessage::field(
            "paths",
            "must not have an empty path or one with a NUL byte",
        ));
    }
    if work.message.len() > MAX_TEXT_BYTES {
        let reason = format!("must have at most {MAX_TEXT_BYTES} bytes");
        return Err(InvalidMessage::field("message", reason));
    }
    // Both lengths are limited, because the record and every event repeat both names.
    if work.turn.len() > 256 || work.session.len() > 128 {
        return Err(InvalidMessage::field(
            "turn",
            "must have at most 256 bytes, and `session` at most 128",
        ));
    }
    Ok(())
}

/// Handles the work of the service's own queue.
#[derive(Debug)]
pub(crate) struct Gatherer {
    pub(crate) context: RequestContext,
    pub(crate) claims: ClaimKeeper,
    pub(crate) log: DeliveryLog,
    pub(crate) places: ChatPositions,
    /// Protects copies that are in no record yet from sweeps of the cache.
    pub(crate) gatherings: GatheringNotes,
}

impl Gatherer {
    /// Handles one message of the service's own queue: checks the request, copies its files, and publishes a message to
    /// the platform's queue.
    ///
    /// # Errors
    /// The work failed. If it can never succeed, the failure has an event with a report.
    pub(crate) async fn send(
        &self,
        meta: &Meta,
        work: &v1::SendFileRequested,
        epoch: u64,
        is_last_attempt: bool,
        cancel: &CancellationToken,
    ) -> Result<WorkCompleted, WorkFailure> {
        let gather_request = GatherRequest { meta, work, epoch };
        let key = records::record_key(&meta.tenant, &meta.operation);
        let found = self.log.records.read(&key).await.map_err(Fault::from)?;
        // A record means that an earlier attempt gathered the files already.
        let own = found.filter(|stored| !is_foreign_mark(&stored.record, &work.session));
        let stored = if let Some(stored) = own {
            stored
        } else {
            let gathered = tokio::select! {
                gathered = self.gather(&gather_request, is_last_attempt) => gathered,
                () = cancel.cancelled() => Err(DeliveryError::Interrupted),
            };
            let stored = match gathered {
                Ok((start, place)) => self
                    .record(meta, &key, start, place)
                    .await
                    .map_err(|error| Fault::from(error).into()),
                Err(error) => Err(self
                    .refuse(&gather_request, &key, error, is_last_attempt)
                    .await),
            };
            // The gathering ends after a failure too, because the next attempt writes its own note.
            if work.paths.len() > 1 {
                self.gatherings.end(&key).await;
            }
            stored?
        };
        // The delivery ended before its files were sent: an earlier attempt refused it, or it was cancelled.
        if stored.record.finished {
            self.places.release_place_of(&key, &stored.record).await;
        }
        if is_refusal(&stored.record) {
            return Err(repeated_refusal(meta, &stored.record));
        }
        // In later rounds the reconciler publishes the work; a second message here would start it twice.
        if !stored.record.finished && stored.record.rounds == 0 {
            let deliver = round_work(&stored.record);
            let envelope = round_meta(&stored.record).unwrap_or_else(|| meta.clone());
            let envelope = envelope.with_trace(meta.trace.clone());
            self.context
                .bus
                // The message id is fixed, so a redelivery of this work publishes nothing new.
                .publish_work(&envelope, &deliver)
                .await
                .map_err(|error| Fault::from(DeliveryError::Publish(error)))?;
        }
        Ok(WorkCompleted::event(&context::progress_report(
            &gather_request,
            DeliveryStage::Stored,
            "",
        )))
    }

    /// Gathers until all files are stored, and takes the place of the delivery in its chat.
    async fn gather(
        &self,
        gather_request: &GatherRequest<'_>,
        is_last_attempt: bool,
    ) -> Result<(DeliveryStart, u64), DeliveryError> {
        let work = gather_request.work;
        check_request(work, self.context.config.get().max_files)?;
        self.check_previews(work)?;
        self.context
            .publish_progress(gather_request, DeliveryStage::Checking, "")
            .await;
        let session = self
            .context
            .session(gather_request, "", METADATA_TIMEOUT)
            .await?;
        let target = self.context.target(gather_request, session.as_ref())?;
        self.places.accounts.find(
            &gather_request.meta.tenant,
            &target.platform,
            &target.account,
        )?;
        let key = records::record_key(&gather_request.meta.tenant, &gather_request.meta.operation);
        // The position is taken before the files are copied, so that later requests do not overtake large files.
        let position = self
            .places
            .position_of(&gather_request.meta.tenant, &key, &target)
            .await?;
        self.begin_gathering(gather_request).await?;
        let fetched = self.fetch_all(gather_request).await;
        // The store or another service is away: the work is parked with that reason, and no attempt counts.
        let away = fetched.iter().find_map(|file| file.parking_fault.clone());
        if let Some(fault) = away {
            return Err(DeliveryError::ServiceFault {
                description: "a file",
                fault: Box::new(fault),
            });
        }
        let files: Vec<_> = fetched.into_iter().map(|fetched| fetched.file).collect();
        let is_transient = |file: &FileRecord| file.error_kind == Some(ErrorKind::Transient.into());
        // The whole request is tried again, because the result names all files. Files that were copied are in the
        // cache. An unavailable file fails only at the last attempt, so that a restart of sandbox-transfer does not
        // fail it earlier than necessary.
        if !is_last_attempt && files.iter().any(is_transient) {
            return Err(DeliveryError::ServiceFault {
                description: "the sandbox",
                fault: Box::new(
                    Fault::new(
                        FaultCode::Unavailable,
                        "A file of the sandbox is not available right now.",
                    )
                    .detail("sandbox_unavailable")
                    .retry_after(Duration::from_secs(2)),
                ),
            });
        }
        let start = DeliveryStart {
            delivery_id: gather_request.meta.operation.to_string(),
            session: work.session.clone(),
            target: Some(target),
            message: work.message.clone(),
            flags: work.flags,
            files,
            turn: work.turn.clone(),
        };
        Ok((start, position))
    }

    /// Checks that the operator allows previews in place of files, and that the request names a session.
    fn check_previews(&self, work: &v1::SendFileRequested) -> Result<(), DeliveryError> {
        if !wants_previews(work) {
            return Ok(());
        }
        if self.context.config.get().preview_links == LinkPolicy::Never {
            return Err(DeliveryError::NotAllowed("form of delivery (`as_preview`)"));
        }
        if work.session.is_empty() || !work.sandbox.is_empty() {
            let reason = "previews are of the sandbox of a session";
            return Err(InvalidMessage::field("flags.as_preview", reason).into());
        }
        Ok(())
    }

    /// Protects the first copy in the cache until the last one has arrived.
    async fn begin_gathering(
        &self,
        gather_request: &GatherRequest<'_>,
    ) -> Result<(), DeliveryError> {
        // A single copy is recorded immediately, so no sweep can remove it in between.
        let count = gather_request.work.paths.len();
        if count < 2 {
            return Ok(());
        }
        // The time to copy the files one after the other is an upper bound.
        let longest = CALL_TIMEOUT * u32::try_from(count).unwrap_or(u32::MAX);
        let remaining = gather_request
            .meta
            .deadline
            .remaining(self.context.clock.now_ms());
        let key = records::record_key(&gather_request.meta.tenant, &gather_request.meta.operation);
        self.gatherings
            .begin(&key, longest.min(remaining))
            .await
            .map_err(|error| RecordError::Unreachable(error).into())
    }

    /// Writes the first record of the delivery. Returns the record of an earlier attempt, if there is one.
    async fn record(
        &self,
        meta: &Meta,
        key: &str,
        start: DeliveryStart,
        position: u64,
    ) -> Result<RevisionedRecord, DeliveryError> {
        let delivery_timeout = self.context.config.get().delivery_timeout.as_millis();
        let record = DeliveryRecord::begin(meta, start, position, delivery_timeout);
        Ok(self.write_first(key, record).await?)
    }

    /// Writes the first record of a delivery in place of a mark of another session. If another attempt of the work
    /// or a cancellation by the session wrote it already, returns that one.
    async fn write_first(
        &self,
        key: &str,
        record: DeliveryRecord,
    ) -> Result<RevisionedRecord, RecordError> {
        // Revision 0 creates the record.
        let mut revision = 0;
        loop {
            let written = self.log.records.write(key, record.clone(), revision).await;
            match written {
                Err(RecordError::Moved) => {}
                other => return other,
            }
            let found = self.log.records.read(key).await?;
            let found = found.ok_or(RecordError::Moved)?;
            if !is_foreign_mark(&found.record, &record.session) {
                return Ok(found);
            }
            revision = found.revision;
        }
    }

    /// Releases the place that a request took in its chat when it was accepted. Later deliveries would wait for it.
    async fn release_accepted_place(&self, gather_request: &GatherRequest<'_>, key: &str) {
        let work = gather_request.work;
        let mut target = work.target.clone();
        if target.is_none() {
            let session = self
                .context
                .session(gather_request, "place", SESSION_TIMEOUT);
            let session = session.await.ok().flatten();
            target = session.and_then(|session| session.chat);
        }
        let Some(target) = target else { return };
        let tenant = &gather_request.meta.tenant;
        if let Some((_, chat)) = self.places.chat_of(tenant, &target).await {
            self.places.release_place(&chat, key).await;
        }
    }

    /// Ends a request that can never be delivered, with a record that later receipts show.
    async fn refuse(
        &self,
        gather_request: &GatherRequest<'_>,
        key: &str,
        error: DeliveryError,
        is_last_attempt: bool,
    ) -> WorkFailure {
        error.log("files are not delivered");
        let is_unserved = matches!(error, DeliveryError::NoAccount(_));
        let fault = Fault::from(error);
        if fault.is_retryable() {
            // The work becomes a dead letter, so no later attempt ends the delivery.
            if is_last_attempt && !dray_bus::parks_work(&fault) {
                self.release_accepted_place(gather_request, key).await;
            }
            return fault.into();
        }
        self.release_accepted_place(gather_request, key).await;
        let work = gather_request.work;
        let kind = if is_unserved {
            FileFailureKind::NoAccount
        } else {
            fetch::kind_of(&fault).into()
        };
        let start = DeliveryStart {
            delivery_id: gather_request.meta.operation.to_string(),
            // The session is cut, because the request may have been refused for their length.
            session: work.session.chars().take(128).collect(),
            target: work.target.clone(),
            turn: work.turn.chars().take(128).collect(),
            files: refused_files(work, kind, &fault.message),
            ..DeliveryStart::default()
        };
        let now_ms = self.context.clock.now_ms();
        let mut record = DeliveryRecord::begin(gather_request.meta, start, now_ms, 0);
        conclude(&mut record, now_ms);
        record.success = false;
        record.result_json = report::result_json(&record);
        let failure = rejection(gather_request.meta, fault, &record);
        // An earlier attempt may have refused the request already; its record stays.
        match self.write_first(key, record).await {
            Ok(written) => self.log.index.note(key, &written),
            Err(error) => return Fault::from(error).into(),
        }
        failure
    }
}

/// The end of work that is refused, with the event of its record.
fn rejection(meta: &Meta, fault: Fault, record: &DeliveryRecord) -> WorkFailure {
    let rejected = v1::DeliveryRejected {
        operation_id: meta.operation.to_string(),
        session: record.session.clone(),
        state: v1::TerminalState::Failed.into(),
        fault: Some(fault.clone().into()),
        report: Some(report::for_event(record)),
    };
    WorkFailure::with_event(fault, &rejected)
}

/// Whether a record was written for a request that is refused as a whole: only such a record has no time for attempts.
const fn is_refusal(record: &DeliveryRecord) -> bool {
    record.finished && !record.cancelled && record.deadline_ms == record.begun_at_ms
}

/// The refusal of an earlier attempt that stopped before its event was published. The record has its sentence, but not
/// its fault.
fn repeated_refusal(meta: &Meta, record: &DeliveryRecord) -> WorkFailure {
    let first = record.files.first();
    let message = first.map_or("The request was refused.", |file| {
        file.error_message.as_str()
    });
    let kind = first.and_then(|file| file.error_kind);
    let code = match kind {
        Some(FileFailureKind::Platform(kind)) => fetch::code_of(kind),
        Some(FileFailureKind::NoAccount) => FaultCode::Unsupported,
        Some(FileFailureKind::Ambiguous) | None => FaultCode::InvalidArgument,
    };
    rejection(meta, Fault::new(code, message), record)
}

/// Whether a record only marks a cancellation by a session that the delivery does not belong to. The mark is written
/// before the files are stored, when only the work says whose delivery it is.
fn is_foreign_mark(record: &DeliveryRecord, session: &str) -> bool {
    record.cancelled && record.files.is_empty() && record.session != session
}

/// Whether files of the sandbox are sent as previews.
fn wants_previews(work: &v1::SendFileRequested) -> bool {
    work.flags.is_some_and(|flags| flags.as_preview)
}

/// The files of a request that is refused as a whole, those of the sandbox first.
fn refused_files(
    work: &v1::SendFileRequested,
    kind: FileFailureKind,
    message: &str,
) -> Vec<FileRecord> {
    let rejected = FileRecord::in_state(FileState::Rejected);
    let paths = work.paths.iter().map(|path| FileRecord {
        path: path.clone(),
        name: dray_presentation::name::shown_name(path),
        ..rejected.clone()
    });
    let claims = work.claims.iter().map(|claim| FileRecord {
        claim: None,
        ..FileRecord::stored(claim.clone())
    });
    let refused = paths
        .chain(claims)
        .take(MAX_REFUSED_FILES)
        .map(|file| FileRecord {
            state: FileState::Rejected,
            error_kind: Some(kind),
            error_message: message.to_owned(),
            ..file
        });
    refused.collect()
}
