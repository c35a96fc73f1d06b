//! Deliveries that a caller ends. The record decides, as for every other end: who writes it first wins, and a worker
//! that finds it changed stops.

use dray_bus::Meta;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, OperationId};

use super::{Reconciler, give_up};
use crate::accept::SESSION_TIMEOUT;
use crate::error::DeliveryError;
use crate::gather::{GatherRequest, RequestContext};
use crate::machine::DeliveryStep;
use crate::record::{DeliveryRecord, DeliveryStart, FileState};
use crate::records::{self, RecordError, RevisionedRecord};
use crate::report;

/// Attempts while a worker changes the record at the same time. It writes a few times per file.
const MAX_CANCEL_ATTEMPTS: u32 = 20;
/// What is reported about files that were not sent.
const CANCELLED_MESSAGE: &str = "The delivery was cancelled.";

impl Reconciler {
    /// Ends a delivery of the session; one that is over stays as it is.
    ///
    /// # Errors
    /// It is unknown in this session, or the bus failed.
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
                Some(held) if held.record.session != request.session => {
                    return Err(DeliveryError::NotFound("delivery"));
                }
                Some(held) if held.record.finished => return Ok(as_report(&held.record)),
                Some(mut held) => {
                    cancel_record(&mut held.record);
                    held
                }
                None => {
                    self.record_before_files(context, meta, &id, request)
                        .await?
                }
            };
            match self.end(&key, ending, "cancelled").await {
                // The next look finds the end, or what the worker wrote.
                Ok(()) | Err(DeliveryError::Record(RecordError::Moved)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RecordError::Moved.into())
    }

    /// A record for a delivery whose files are not stored yet. Its worker finds it when it writes its own.
    async fn record_before_files(
        &self,
        context: &RequestContext,
        meta: &Meta,
        id: &OperationId,
        request: &v1::CancelDeliveryRequest,
    ) -> Result<RevisionedRecord, DeliveryError> {
        let ledger = self.bus.ledger();
        let found = ledger.find::<v1::SendFileRequested>(&meta.tenant, id).await;
        let found = found.map_err(|error| DeliveryError::Asked {
            what: "the ledger",
            fault: Box::new(Fault::from(error)),
        })?;
        if found.is_none_or(|work| work.terminal() != TerminalState::Unspecified) {
            return Err(DeliveryError::NotFound("delivery"));
        }
        let work = v1::SendFileRequested {
            session: request.session.clone(),
            ..v1::SendFileRequested::default()
        };
        let own = meta.clone().with_operation(id.clone());
        let order = GatherRequest {
            meta: &own,
            work: &work,
            epoch: 0,
        };
        // Its chat, so that the place in it is given back.
        let session = context.session(&order, "cancel", SESSION_TIMEOUT).await;
        let target = session
            .ok()
            .and_then(|session| context.target(&order, session.as_ref()).ok());
        let start = DeliveryStart {
            delivery_id: id.to_string(),
            session: request.session.clone(),
            target,
            ..DeliveryStart::default()
        };
        let mut record = DeliveryRecord::begin(&own, start, self.clock.now_ms(), 0);
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

/// Ends every step and every file. What a platform has already may be visible.
fn cancel_record(record: &mut DeliveryRecord) {
    record.cancelled = true;
    let is_sending = |step: &DeliveryStep| matches!(step, DeliveryStep::Sending(_));
    let sending: Vec<u32> = record
        .steps
        .iter()
        .filter(|step| is_sending(step))
        .flat_map(|step| step.files.clone())
        .collect();
    for (at, file) in record.files.iter_mut().enumerate() {
        let is_sent = u32::try_from(at).is_ok_and(|at| sending.contains(&at));
        if !is_sent && !file.state.is_final() {
            file.state = FileState::Failed;
            CANCELLED_MESSAGE.clone_into(&mut file.error_message);
        }
    }
    // The files that are left are those of steps under way.
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
