//! Decisions and their uses. The decisions of one request are all recorded before the first one is used, so that the
//! same request can be repeated when the bus fails in between: either all its calls are made, or none is.

use dray_agent::failure::RequestFailure;
use dray_agent::message::Message;

use super::{ApprovalDecision, ApprovalRecord, ApprovalStore, expired_failure, used_failure};
use crate::records::{RecordError, RevisedRecord, random_id, unavailable_failure};

/// Prefix of the ids of uses.
const USE_PREFIX: &str = "use_";
/// Attempts to use a decision while the bus fails.
const MAX_ATTEMPTS: usize = 3;

impl ApprovalStore {
    /// Records a decision of the caller that [`ApprovalStore::use_decision`] uses afterwards. Until then the caller can
    /// decide again.
    ///
    /// # Errors
    ///
    /// 400 when another request has decided it meanwhile, 503 while the bus fails.
    pub(crate) async fn note_decision(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
        decision: ApprovalDecision,
    ) -> Result<(), RequestFailure> {
        if record.value.awaits_use && record.value.decision.as_ref() == Some(&decision) {
            // An earlier request with the same decision failed before it used it.
            return Ok(());
        }
        // A call that is refused needs no use: it is not made. A tool that asked continues with every answer.
        record.value.awaits_use = decision.permits() || record.value.questions.is_some();
        let decided = self.record_decision(principal, id, record, decision).await;
        decided.map_err(|error| match error {
            RecordError::Stale => used_failure(),
            error @ RecordError::Failed(_) => error.into(),
        })
    }

    /// Uses a decision. It holds for this one turn from now on, even when its process ends.
    ///
    /// # Errors
    ///
    /// 400 when another request has used it, 503 while the bus fails.
    pub(crate) async fn use_decision(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
    ) -> Result<(), RequestFailure> {
        let used_by = Some(random_id(USE_PREFIX));
        record.value.is_used = true;
        record.value.awaits_use = false;
        record.value.used_by.clone_from(&used_by);
        let mut is_unknown = false;
        for _ in 0..MAX_ATTEMPTS {
            match self.update(principal, id, record).await {
                Ok(()) => return Ok(()),
                Err(RecordError::Stale) if !is_unknown => return Err(used_failure()),
                Err(RecordError::Failed(failure)) if failure.status != 503 => return Err(failure),
                Err(_) => is_unknown = true,
            }
            // The response was lost, and the record shows whether the request was.
            let found = self.get(principal, id).await?;
            let found = found.ok_or_else(expired_failure)?;
            if found.value.used_by == used_by {
                *record = found;
                return Ok(());
            }
            if found.revision != record.revision {
                return Err(used_failure());
            }
        }
        Err(unavailable_failure())
    }

    /// The result of a call that an earlier request made with this approval or answer, for a repetition of that request:
    /// its model failed, or its response was lost.
    ///
    /// # Errors
    ///
    /// 400 for a decision that permits no call, and when the result is not known, because the call still runs or its
    /// process has died; 503 while the store or the bus fails.
    pub(crate) async fn used_outcome(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Message, RequestFailure> {
        let record = self.get(principal, id).await?.map(|record| record.value);
        let record = record.ok_or_else(expired_failure)?;
        let decision = record.decision.as_ref();
        let is_permitted = decision.is_some_and(ApprovalDecision::permits);
        let outcome = record.outcome.as_ref().filter(|_| is_permitted);
        let outcome = outcome.ok_or_else(used_failure)?;
        let message = self.records.read_document(outcome).await?;
        message.ok_or_else(used_failure)
    }

    /// Takes back what this request recorded, because it makes no call. If that fails, the decision stays used.
    pub(crate) async fn take_back(
        &self,
        principal: &str,
        id: &str,
        record: &RevisedRecord<ApprovalRecord>,
        previous: ApprovalRecord,
    ) {
        let mut record = RevisedRecord {
            value: previous,
            revision: record.revision,
        };
        if let Err(error) = self.update(principal, id, &mut record).await {
            tracing::warn!(?error, id, "the use of an approval was not taken back");
        }
    }
}
