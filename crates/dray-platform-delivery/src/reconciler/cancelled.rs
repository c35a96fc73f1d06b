//! Cancels deliveries. The first writer of the record decides how a delivery ends, and a worker that finds the record
//! changed stops.

use dray_bus::Meta;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, OperationId};

use super::{Reconciler, ended, give_up, log_failure};
use crate::accept::SESSION_TIMEOUT;
use crate::error::DeliveryError;
use crate::gather::{GatherRequest, RequestContext};
use crate::machine::DeliveryStep;
use crate::record::{DeliveryRecord, DeliveryStart, FileState};
use crate::records::{self, RecordError, RevisionedRecord};
use crate::report;

/// Most attempts while a worker changes the record too. A worker writes a few times per file.
const MAX_CANCEL_ATTEMPTS: u32 = 20;
/// Message of files that were not sent.
const CANCELLED_MESSAGE: &str = "The delivery was cancelled.";

impl Reconciler {
    /// Ends a delivery of the session; a finished delivery is not changed.
    ///
    /// # Errors
    /// The delivery is unknown in this session, or the bus failed.
    pub(crate) async fn cancel(
        &self,
        context: &RequestContext,
        meta: &Meta,
        request: &v1::CancelDeliveryRequest,
    ) -> Result<v1::DeliveryReport, DeliveryError> {
        let id = OperationId::new(request.delivery_id.as_str())
            .map_err(|error| InvalidMessage::field("delivery_id", error))?;
        let key = records::record_key(&meta.tenant, &id);
        for _ in 0..MAX_CANCEL_ATTEMPTS {
            let ending = match self.log.records.read(&key).await? {
                Some(stored) if stored.record.session != request.session => {
                    return Err(DeliveryError::NotFound("delivery"));
                }
                Some(stored) if stored.record.finished => {
                    let report = as_report(&stored.record);
                    if ended::is_unpublished(&stored.record) {
                        log_failure(self.publish_end(&key, stored).await);
                    }
                    return Ok(report);
                }
                Some(mut stored) => {
                    cancel_record(&mut stored.record);
                    stored
                }
                None => {
                    self.record_before_files(context, meta, &id, request)
                        .await?
                }
            };
            match self.end(&key, ending).await {
                // The next check finds the end, or the changes of the worker.
                Ok(()) | Err(DeliveryError::Record(RecordError::Moved)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RecordError::Moved.into())
    }

    /// A mark for a delivery whose files are not stored yet. The worker finds this record when it writes its own, and
    /// replaces it if the delivery belongs to another session, which is unknown here.
    async fn record_before_files(
        &self,
        context: &RequestContext,
        meta: &Meta,
        id: &OperationId,
        request: &v1::CancelDeliveryRequest,
    ) -> Result<RevisionedRecord, DeliveryError> {
        let ledger = self.bus.ledger();
        let found = ledger.find::<v1::SendFileRequested>(&meta.tenant, id).await;
        let found = found.map_err(|error| DeliveryError::ServiceFault {
            description: "the ledger",
            fault: Box::new(Fault::from(error)),
        })?;
        if found.is_none_or(|work| work.terminal() != TerminalState::Unspecified) {
            return Err(DeliveryError::NotFound("delivery"));
        }
        let work = v1::SendFileRequested {
            session: request.session.clone(),
            ..v1::SendFileRequested::default()
        };
        let own_meta = meta.clone().with_operation(id.clone());
        let gather_request = GatherRequest {
            meta: &own_meta,
            work: &work,
            epoch: 0,
        };
        // The chat is read so that the place in it is released.
        let session = context
            .session(&gather_request, "cancel", SESSION_TIMEOUT)
            .await;
        let target = session
            .ok()
            .and_then(|session| context.target(&gather_request, session.as_ref()).ok());
        let start = DeliveryStart {
            delivery_id: id.to_string(),
            session: request.session.clone(),
            target,
            ..DeliveryStart::default()
        };
        let mut record = DeliveryRecord::begin(&own_meta, start, self.clock.now_ms(), 0);
        record.cancelled = true;
        Ok(RevisionedRecord {
            record,
            revision: 0,
        })
    }
}

fn as_report(record: &DeliveryRecord) -> v1::DeliveryReport {
    report::fit_report(v1::DeliveryReport::from(record), report::MAX_RESPONSE_BYTES)
}

/// Ends every step and every file. A file that was being sent may be visible.
fn cancel_record(record: &mut DeliveryRecord) {
    record.cancelled = true;
    let is_sending = |step: &DeliveryStep| matches!(step, DeliveryStep::Sending(_));
    let sending: Vec<u32> = record
        .steps
        .iter()
        .filter(|step| is_sending(step))
        .flat_map(|step| step.files.clone())
        .collect();
    for (index, file) in record.files.iter_mut().enumerate() {
        let is_sent = u32::try_from(index).is_ok_and(|index| sending.contains(&index));
        if !is_sent && !file.state.is_final() {
            file.state = FileState::Failed;
            CANCELLED_MESSAGE.clone_into(&mut file.error_message);
        }
    }
    // Only files of steps that were being sent are left.
    give_up(record);
}

#[cfg(test)]
mod tests {
    use dray_platform::Route;

    use super::*;
    use crate::machine::{ReadyStep, StepPlan};
    use crate::record::FileRecord;

    #[test]
    fn files_of_a_request_under_way_are_unknown_and_the_others_were_not_sent() {
        let step = |file: u32| {
            let plan = StepPlan {
                files: vec![file],
                ..StepPlan::text(Route::Document, String::new())
            };
            ReadyStep::new(plan, Vec::new())
        };
        let done = step(0).begin(1).confirm(Vec::new());
        let mut record = DeliveryRecord {
            files: vec![FileRecord::in_state(FileState::Queued); 4],
            steps: vec![done.into(), step(1).begin(2).into(), step(2).into()],
            ..DeliveryRecord::default()
        };
        record.files[0].state = FileState::Delivered;
        cancel_record(&mut record);
        let states: Vec<_> = record.files.iter().map(|file| file.state).collect();
        let failed = FileState::Failed;
        assert_eq!(
            states,
            [FileState::Delivered, FileState::Unknown, failed, failed]
        );
        assert!(record.steps.iter().all(DeliveryStep::is_final));
        assert!(record.files[2].error_message.contains("cancelled"));
        assert!(record.cancelled);
    }
}
