//! A response that runs in this process: its lease, and its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::failure::RequestFailure;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::conversation_ends::is_lasting;
use super::{MAX_ATTEMPTS, ResponseDocument, ResponseRecord, ResponseStatus, ResponseStore};
use crate::progress::{ConnectedRun, ProgressStore};
use crate::records::{RecordError, RecordKind, RevisedRecord, wait_after_conflict};

/// Attempts to store the end of a response while the bus fails.
const MAX_END_FAILURES: u32 = 3;
/// Delay before the second attempt; it doubles.
const END_RETRY_DELAY: Duration = Duration::from_millis(200);

/// The record of a response that runs in this process.
#[derive(Debug)]
pub(crate) struct RunningResponse {
    pub(super) store: ResponseStore,
    pub(super) principal: String,
    pub(super) id: String,
    /// For a response in the foreground that another replica may finish.
    pub(super) connected: Option<Arc<ConnectedRun>>,
    /// The record as this process last wrote or read it.
    pub(super) record: RevisedRecord<ResponseRecord>,
}

/// This process must not continue a response: another request has ended it, another replica has taken it over or may
/// do so, or it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superseded;

impl RunningResponse {
    /// How often the lease must be renewed.
    pub(crate) fn lease_interval(&self) -> Duration {
        self.store.lease_interval()
    }

    /// Reports to other replicas that the response still runs.
    ///
    /// # Errors
    ///
    /// [`Superseded`] when another request has ended it, another replica has taken it over, or the lease has ended
    /// while the bus fails. Until then the response continues without the bus: its lease is longer than several
    /// attempts.
    pub(crate) async fn renew(&mut self) -> Result<(), Superseded> {
        let mut next = self.record.clone();
        next.value.lease_ms = self.store.lease_ms();
        match self.write(next).await {
            Ok(()) => Ok(()),
            Err(RecordError::Stale) => match self.find().await {
                Ok(Some(found)) if self.is_own(&found) => {
                    self.record = found;
                    Ok(())
                }
                Ok(_) => Err(Superseded),
                Err(_) => self.continue_within_lease(),
            },
            Err(RecordError::Failed(failure)) => {
                tracing::warn!(%failure, id = %self.id, "the lease of a response was not renewed");
                self.continue_within_lease()
            }
        }
    }

    /// Waits for `work` and renews the lease meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`RunningResponse::renew`]; `work` has not ended then.
    pub(crate) async fn renew_during<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Superseded> {
        let mut work = pin!(work);
        let mut lease = interval(self.lease_interval());
        lease.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes immediately, when the lease has just begun and needs no renewal.
        lease.tick().await;
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                _ = lease.tick() => self.renew().await?,
            }
        }
    }

    /// Ends the lease, so that the next request can report the response. If that fails, the lease ends by itself.
    pub(super) async fn release(&mut self) {
        let mut next = self.record.clone();
        next.value.lease_ms = 0;
        if let Err(error) = self.write(next).await {
            tracing::debug!(?error, id = %self.id, "the lease of a response was not released");
        }
    }

    /// After the end of the lease another replica may take the response over.
    fn continue_within_lease(&self) -> Result<(), Superseded> {
        let is_over = self.store.records.now_ms() >= self.record.value.lease_ms;
        if is_over { Err(Superseded) } else { Ok(()) }
    }

    async fn find(&self) -> Result<Option<RevisedRecord<ResponseRecord>>, RequestFailure> {
        let records = &self.store.records;
        records
            .get(RecordKind::Response, &self.principal, &self.id)
            .await
    }

    /// Whether a record that was read still belongs to this process.
    fn is_own(&self, found: &RevisedRecord<ResponseRecord>) -> bool {
        let found = &found.value;
        found.status == ResponseStatus::InProgress && found.takeovers == self.record.value.takeovers
    }

    async fn write(&mut self, next: RevisedRecord<ResponseRecord>) -> Result<(), RecordError> {
        let records = &self.store.records;
        let updated = records.update(RecordKind::Response, &self.principal, &self.id, &next);
        let revision = updated.await?;
        self.record = RevisedRecord { revision, ..next };
        Ok(())
    }

    /// Whether it has a checkpoint, and a record by which other replicas find it.
    fn has_progress(&self) -> bool {
        let connected = self.connected.as_ref();
        self.record.value.in_background
            || self.record.value.takeovers > 0
            || connected.is_some_and(|connected| connected.has_checkpoints())
    }

    /// Stores the end of the response. If the conversation can continue after it, it becomes a part of the
    /// conversation; while the bus fails, the next reader of the response adds it.
    ///
    /// # Errors
    ///
    /// 409 when another request has ended it meanwhile or another replica has taken it over, 404 for a conversation
    /// that is gone, 413 for a response that is too large or a conversation that is full, 503 while the store or the
    /// bus fails.
    pub(crate) async fn finish(
        &mut self,
        status: ResponseStatus,
        document: &ResponseDocument,
    ) -> Result<(), RequestFailure> {
        let store = self.store.clone();
        let mut ended = self.record.value.clone();
        match store.store(document).await {
            Ok(content) => ended.document = content,
            // The failure is reported in any case, with the document that was stored at the beginning.
            Err(_) if !status.can_continue() => {}
            Err(failure) => return Err(failure),
        }
        ended.status = status;
        ended.expires_ms = store.expires_ms();
        ended.awaits_conversation = status.can_continue() && ended.conversation.is_some();
        self.end(&ended).await?;
        let added = store.add_to_conversation(&self.principal, &self.id, &mut self.record);
        match added.await {
            Ok(()) => {}
            Err(failure) if is_lasting(&failure) => return Err(failure),
            Err(failure) => {
                tracing::warn!(%failure, id = %self.id, "a response is not in its conversation yet");
                return Ok(());
            }
        }
        // The record of the run stays until the response is in its conversation: a replica that finds the run adds it.
        if self.has_progress() {
            let progress = ProgressStore::new(store.records.clone());
            progress.delete(&self.principal, &self.id).await;
            // A record with events stays, so that a replica deletes both after their time.
            if !self.record.value.has_events {
                store.forget_run(&self.id).await;
            }
        }
        Ok(())
    }

    /// Stores the last value of the record. After a failure of the bus the record shows whether it was stored.
    async fn end(&mut self, ended: &ResponseRecord) -> Result<(), RequestFailure> {
        let mut failures = 0;
        for attempt in 0..MAX_ATTEMPTS {
            let next = RevisedRecord {
                value: ended.clone(),
                revision: self.record.revision,
            };
            let mut failure = match self.write(next).await {
                Ok(()) => return Ok(()),
                Err(RecordError::Stale) => None,
                Err(RecordError::Failed(failure)) if failure.status == 503 => Some(failure),
                Err(RecordError::Failed(failure)) => return Err(failure),
            };
            match self.find().await {
                Ok(Some(found)) if self.is_own(&found) => self.record = found,
                Ok(Some(found)) if is_end(&found.value, ended) => {
                    self.record = found;
                    return Ok(());
                }
                Ok(_) => break,
                Err(unread) => failure = Some(unread),
            }
            match failure {
                None => wait_after_conflict(attempt).await,
                Some(failure) => {
                    failures += 1;
                    if failures == MAX_END_FAILURES {
                        return Err(failure);
                    }
                    sleep(END_RETRY_DELAY * 2_u32.pow(failures - 1)).await;
                }
            }
        }
        Err(RequestFailure::new(
            409,
            "Another request or another replica has ended the response.",
        ))
    }
}

/// Whether a record is the end that this process wrote. A reader may have added it to its conversation since.
fn is_end(found: &ResponseRecord, ended: &ResponseRecord) -> bool {
    found.status == ended.status
        && found.document == ended.document
        && found.takeovers == ended.takeovers
}
