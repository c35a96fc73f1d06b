//! From paths in a sandbox to stored files: one failed file never drops its siblings.

mod fetch;
mod place;
mod policy;

use std::time::Duration;

#[cfg(test)]
pub(crate) use self::fetch::stored_file;
pub(crate) use self::policy::asked_in_vain;
use dray_bus::{Meta, WorkCompleted, WorkFailure};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_types::{Deadline, Fault, OperationId};
use tokio_util::sync::CancellationToken;

use crate::deliver::{DeliveryService, conclude_report, new_record};
use crate::error::DeliveryError;
use crate::reconciler::{round_meta, round_work};
use crate::records::{self, RecordError, RevisionedRecord};
use crate::report::{self, state};

/// Most bytes of all paths of a request together, and of its message: both travel in events.
const TEXT_MOST: usize = 16 * 1024;

/// Files that a refusal names.
const MAX_REFUSED_FILES: usize = 100;

/// Attempts of the work after which a file that cannot be had now is given up: the last one, so that a restart of
/// sandbox-transfer is waited for as long as work can wait.
const MAX_ATTEMPTS: u32 = 5;

/// How long a question that moves no bytes may take.
const METADATA_TIMEOUT: Duration = Duration::from_mins(1);

/// How long any question may take: as long as a call.
const CALL_TIMEOUT: Duration = Duration::from_mins(10);

/// What is needed to gather.
struct GatherRequest<'a> {
    meta: &'a Meta,
    work: &'a v1::SendFileRequested,
    epoch: u64,
}

/// Checks a request before it becomes work.
///
/// # Errors
/// The field that is wrong.
pub fn check_request(work: &v1::SendFileRequested, most: usize) -> Result<(), InvalidMessage> {
    let count = work.paths.len() + work.claims.len();
    if count == 0 || count > most {
        let reason = format!("between 1 and {most} files can be sent at once");
        return Err(InvalidMessage::field("paths", reason));
    }
    let bytes: usize = work.paths.iter().map(Vec::len).sum();
    if bytes > TEXT_MOST {
        let reason = format!("all paths together have more than {TEXT_MOST} bytes");
        return Err(InvalidMessage::field("paths", reason));
    }
    if work
        .paths
        .iter()
        .any(|path| path.is_empty() || path.contains(&0))
    {
        return Err(InvalidMessage::field(
            "paths",
            "a path is empty or holds a NUL",
        ));
    }
    if work.message.len() > TEXT_MOST {
        let reason = format!("it has more than {TEXT_MOST} bytes");
        return Err(InvalidMessage::field("message", reason));
    }
    if work.turn.len() > 256 || work.session.len() > 128 {
        return Err(InvalidMessage::field(
            "turn",
            "session and turn are short names",
        ));
    }
    Ok(())
}

impl DeliveryService {
    /// Does one piece of work of the service's own queue: check, copy out of the sandbox, hand to the platform's queue.
    ///
    /// # Errors
    /// The work fails, with its report when it never can do better.
    pub async fn send(
        &self,
        meta: &Meta,
        work: &v1::SendFileRequested,
        epoch: u64,
        attempt: u32,
        cancel: &CancellationToken,
    ) -> Result<WorkCompleted, WorkFailure> {
        let order = GatherRequest { meta, work, epoch };
        let key = records::record_key(&meta.tenant, &meta.operation);
        let found = self.records.read(&key).await.map_err(Fault::from)?;
        let held = if let Some(held) = found {
            if held.report.finished {
                self.release_place_of(&key, &held.report).await;
            }
            held
        } else {
            let gathered = tokio::select! {
                gathered = self.gather(&order, attempt) => gathered,
                () = cancel.cancelled() => Err(DeliveryError::Interrupted),
            };
            let held = match gathered {
                Ok((deliver, place)) => self
                    .record(meta, &key, &deliver, place)
                    .await
                    .map_err(|error| Fault::from(error).into()),
                Err(error) => Err(self.refuse(&order, &key, error).await),
            };
            if work.paths.len() > 1 {
                self.gatherings.end(&key).await;
            }
            held?
        };
        if !held.report.finished && held.report.rounds == 0 {
            let deliver = round_work(&held.report);
            let envelope = round_meta(&held.report).unwrap_or_else(|| meta.clone());
            let envelope = envelope.with_trace(meta.trace.clone());
            self.bus
                .publish_work(&envelope, &deliver)
                .await
                .map_err(|error| Fault::from(DeliveryError::Publish(error)))?;
        }
        Ok(WorkCompleted::event(&Self::news(&order, "stored", "")))
    }

    /// Everything up to the moment when all files are stored, with the place of the delivery in its chat.
    async fn gather(
        &self,
        order: &GatherRequest<'_>,
        attempt: u32,
    ) -> Result<(v1::DeliverFiles, u64), DeliveryError> {
        let work = order.work;
        check_request(work, self.config.max_files)?;
        self.tell(order, "checking", "").await;
        let session = self.session(order, "", METADATA_TIMEOUT).await?;
        let target = self.target(order, session.as_ref())?;
        self.accounts
            .find(&order.meta.tenant, &target.platform, &target.account)?;
        let key = records::record_key(&order.meta.tenant, &order.meta.operation);
        let place = self.place_of(&order.meta.tenant, &key, &target).await?;
        self.begin_gathering(order).await?;
        let files = self.fetch_all(order).await;
        let may_pass = |file: &v1::DeliveredFile| file.error_kind == "transient";
        if attempt < MAX_ATTEMPTS && files.iter().any(may_pass) {
            return Err(DeliveryError::Asked {
                what: "a file cannot be had now",
                fault: Box::new(
                    Fault::new(
                        dray_types::FaultCode::Unavailable,
                        "A file of the sandbox cannot be had right now.",
                    )
                    .detail("sandbox_unavailable")
                    .retry_after(Duration::from_secs(2)),
                ),
            });
        }
        let deliver = v1::DeliverFiles {
            delivery_id: order.meta.operation.to_string(),
            session: work.session.clone(),
            target: Some(target),
            message: work.message.clone(),
            flags: work.flags,
            files,
            turn: work.turn.clone(),
        };
        Ok((deliver, place))
    }

    /// Sees to it that the first copy is still there when the last one comes.
    async fn begin_gathering(&self, order: &GatherRequest<'_>) -> Result<(), DeliveryError> {
        let count = order.work.paths.len();
        if count < 2 {
            return Ok(());
        }
        let longest = CALL_TIMEOUT * u32::try_from(count).unwrap_or(u32::MAX);
        let left = order.meta.deadline.remaining(self.clock.now_ms());
        let key = records::record_key(&order.meta.tenant, &order.meta.operation);
        self.gatherings
            .begin(&key, longest.min(left))
            .await
            .map_err(|error| RecordError::Unreachable(error).into())
    }

    /// Writes the record that everything else follows from; the first write wins.
    async fn record(
        &self,
        meta: &Meta,
        key: &str,
        work: &v1::DeliverFiles,
        place: u64,
    ) -> Result<RevisionedRecord, DeliveryError> {
        let patience = self.config.patience.as_millis();
        let report = new_record(meta, work, place, patience);
        match self.records.write(key, report, 0).await {
            Err(RecordError::Moved) => {}
            other => return Ok(other?),
        }
        let found = self.records.read(key).await?;
        Ok(found.ok_or(RecordError::Moved)?)
    }

    /// Ends a request that never can be delivered, so that its outcome can be asked for.
    async fn refuse(
        &self,
        order: &GatherRequest<'_>,
        key: &str,
        error: DeliveryError,
    ) -> WorkFailure {
        error.log("files are not delivered");
        let fault = Fault::from(error);
        if fault.is_retryable() {
            return fault.into();
        }
        let work = order.work;
        let deliver = v1::DeliverFiles {
            delivery_id: order.meta.operation.to_string(),
            session: work.session.chars().take(128).collect(),
            target: work.target.clone(),
            turn: work.turn.chars().take(128).collect(),
            files: refused_files(work, &fault),
            ..v1::DeliverFiles::default()
        };
        let mut report = new_record(order.meta, &deliver, self.clock.now_ms(), 0);
        conclude_report(&mut report, self.clock.now_ms());
        report.success = false;
        report.result_json = report::result_json(&report);
        let rejected = v1::DeliveryRejected {
            operation_id: order.meta.operation.to_string(),
            session: deliver.session,
            state: v1::TerminalState::Failed.into(),
            fault: Some(fault.clone().into()),
            report: Some(report::for_event(&report)),
        };
        match self.records.write(key, report, 0).await {
            Ok(held) => self.index.note(key, &held),
            Err(RecordError::Moved) => {}
            Err(error) => return Fault::from(error).into(),
        }
        WorkFailure::with_event(fault, &rejected)
    }

    fn news(order: &GatherRequest<'_>, stage: &str, name: &str) -> v1::DeliveryProgressed {
        v1::DeliveryProgressed {
            delivery_id: order.meta.operation.to_string(),
            session: order.work.session.clone(),
            stage: stage.to_owned(),
            name: name.to_owned(),
            ..v1::DeliveryProgressed::default()
        }
    }

    async fn tell(&self, order: &GatherRequest<'_>, stage: &str, name: &str) {
        let part = format!("{stage}.{}.{:x}", order.epoch, rand::random::<u32>());
        let news = Self::news(order, stage, name);
        if let Err(error) = self.bus.publish_event_part(order.meta, &part, &news).await {
            tracing::debug!(%error, "news of a delivery was not published");
        }
    }

    /// The envelope of a question about this work that may take `time`: a dead responder is noticed after a part of
    /// that.
    fn question(&self, order: &GatherRequest<'_>, suffix: &str, time: Duration) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), time).min(order.meta.deadline);
        let operation = match suffix {
            "" => order.meta.operation.clone(),
            suffix => OperationId::new(format!("{}-{suffix}", order.meta.operation.ledger_token()))
                .unwrap_or_else(|_| order.meta.operation.clone()),
        };
        order
            .meta
            .clone()
            .with_operation(operation)
            .with_deadline(deadline)
    }
}

/// The files of a request that is refused as a whole, those of the sandbox first.
fn refused_files(work: &v1::SendFileRequested, fault: &Fault) -> Vec<v1::DeliveredFile> {
    let paths = work.paths.iter().map(|path| v1::DeliveredFile {
        path: path.clone(),
        name: dray_content::name::shown_name(path),
        ..v1::DeliveredFile::default()
    });
    let claims = work.claims.iter().map(|claim| v1::DeliveredFile {
        claim: None,
        ..fetch::stored_file(claim.clone())
    });
    let kind = match fault.detail.as_str() {
        "no_account" => "no_account",
        _ => fetch::kind_of(fault).as_str(),
    };
    let refused = paths
        .chain(claims)
        .take(MAX_REFUSED_FILES)
        .map(|file| v1::DeliveredFile {
            state: state::STATE_REJECTED.to_owned(),
            error_kind: kind.to_owned(),
            error_message: fault.message.clone(),
            ..file
        });
    refused.collect()
}
