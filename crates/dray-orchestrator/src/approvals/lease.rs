//! The lease of a request that waits for a chat and that no other request can continue: its process renews it. Once it
//! has expired, the process counts as ended, so a press is answered truthfully instead of being kept for a request that
//! does not exist. A question of a response in the background ends with that response.

use dray_agent::failure::RequestFailure;
use dray_proto::v1::DecideInChatReply;

use super::chats::WITHDRAWAL_REASON;
use super::outcome::decided_reply;
use super::{ApprovalDecision, ApprovalRecord, ApprovalStore};
use crate::records::{RecordError, RevisedRecord};
use crate::responses::is_over;

/// Renewals of a lease per lease time, so that several may fail.
const RENEWALS_PER_LEASE: u32 = 6;
/// How long after a decision a request can use it. A running request reads the record every half second, so its process
/// is gone by then.
const USE_PERIOD_MS: u64 = 30_000;
/// Recorded for a question whose request is gone.
const ABANDONED_REASON: &str = "The process of the request that asked has ended.";

impl ApprovalStore {
    /// When a lease that begins now ends, in Unix milliseconds.
    pub(super) fn lease_ms(&self) -> u64 {
        let now_ms = self.records.now_ms();
        now_ms.saturating_add(self.lease.as_millis())
    }

    /// Reports to other replicas that the request of a question still runs, when the lease is due. A failure is left to
    /// the next read: the lease is longer than several of them.
    pub(super) async fn renew_lease(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
    ) {
        let next_ms = self.lease_ms();
        let interval_ms = self.lease.as_millis() / u64::from(RENEWALS_PER_LEASE);
        let is_due = |lease_ms: u64| lease_ms.saturating_add(interval_ms) <= next_ms;
        // A paused turn, which its token names, is continued by another request.
        if !record.value.token.is_empty() || !record.value.lease_ms.is_some_and(is_due) {
            return;
        }
        record.value.lease_ms = Some(next_ms);
        if let Err(RecordError::Failed(failure)) = self.update(principal, id, record).await {
            tracing::debug!(%failure, id, "the lease of a question in a chat was not renewed");
        }
    }

    /// Whether no request can continue the call: the client has disconnected, or the response in the background has
    /// ended.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(super) async fn has_no_request(
        &self,
        principal: &str,
        record: &ApprovalRecord,
    ) -> Result<bool, RequestFailure> {
        match &record.response {
            Some(response) => is_over(&self.records, principal, response).await,
            None => Ok(record.has_lost_its_lease(self.records.now_ms())),
        }
    }

    /// Like [`ApprovalStore::has_no_request`]; `false` while that is not known.
    pub(super) async fn is_unusable(&self, principal: &str, record: &ApprovalRecord) -> bool {
        let has_no_request = self.has_no_request(principal, record).await;
        has_no_request.unwrap_or(false)
    }

    /// Ends a question whose request has ended, and returns the reply about it. `None` when the request renewed its
    /// lease after all, or another replica was faster. No request can use an answer to the question from then on.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(super) async fn abandon(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
    ) -> Result<Option<DecideInChatReply>, RequestFailure> {
        // A response has also ended for its client. So its questions end as if its process had withdrawn them.
        let is_of_response = record.value.response.is_some();
        record.value.is_abandoned = !is_of_response;
        let reason = if is_of_response {
            WITHDRAWAL_REASON
        } else {
            ABANDONED_REASON
        };
        let decision = ApprovalDecision::Refused {
            reason: Some(reason.to_owned()),
        };
        match self.record_decision(principal, id, record, decision).await {
            Ok(()) => {}
            Err(RecordError::Stale) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        tracing::warn!(id, "the request of a question in a chat has ended");
        Ok(Some(decided_reply(&record.value, false)))
    }

    /// Ends a decision that no request has used. No request can use it from then on.
    pub(super) async fn lapse(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
    ) -> Result<(), RecordError> {
        record.value.is_lapsed = true;
        // This is read by replicas of an earlier version, which do not know the other field.
        record.value.is_used = true;
        self.update(principal, id, record).await?;
        tracing::warn!(
            id,
            "a decision of a chat was not used: its request has ended"
        );
        Ok(())
    }
}

impl ApprovalRecord {
    /// Whether the process of the request that asked has ended and no other request can continue the call.
    fn has_lost_its_lease(&self, now_ms: u64) -> bool {
        self.token.is_empty() && self.lease_ms.is_some_and(|lease_ms| lease_ms <= now_ms)
    }

    /// Whether a request that still runs, or a response in the background, has to act on the decision. A paused turn,
    /// which its token names, acts on it when its client continues.
    pub(super) fn waits_for_use(&self) -> bool {
        let is_paused = !self.token.is_empty() && self.response.is_none();
        self.permits() && !self.is_used && !is_paused
    }

    /// Unix milliseconds from which no request uses the decision. A response in the background may have to find
    /// another process first.
    pub(super) fn last_use_ms(&self) -> u64 {
        let decided_ms = self.decided_ms.unwrap_or_default();
        let from_ms = match &self.response {
            Some(_) => decided_ms.max(self.expires_ms),
            None => decided_ms,
        };
        from_ms.saturating_add(USE_PERIOD_MS)
    }
}
