//! A response that runs in this process: its lease, and its end.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::failure::RequestFailure;

use super::{
    ConversationRecord, HistoryEntry, MAX_ATTEMPTS, ResponseDocument, ResponseRecord,
    ResponseStatus, ResponseStore,
};
use crate::progress::{ConnectedRun, ProgressStore};
use crate::records::{RecordError, RecordKind, RevisedRecord};

/// The record of a response that runs in this process.
#[derive(Debug)]
pub(crate) struct RunningResponse {
    pub(super) store: ResponseStore,
    pub(super) principal: String,
    pub(super) id: String,
    /// For a response in the foreground that another replica may finish.
    pub(super) connected: Option<Arc<ConnectedRun>>,
    pub(super) record: RevisedRecord<ResponseRecord>,
}

/// A response was ended by another request, or is gone.
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
    /// [`Superseded`] when another request has ended it. While the bus fails the response continues: its lease is
    /// longer than several attempts.
    pub(crate) async fn renew(&mut self) -> Result<(), Superseded> {
        self.record.value.lease_ms = self.store.lease_ms();
        match self.update().await {
            Ok(()) => Ok(()),
            Err(RecordError::Stale) => self.reread().await,
            Err(RecordError::Failed(failure)) => {
                tracing::warn!(%failure, id = %self.id, "the lease of a response was not renewed");
                Ok(())
            }
        }
    }

    /// Reads the record again after an update whose outcome is unknown. While the record is in progress, it belongs to
    /// this process.
    async fn reread(&mut self) -> Result<(), Superseded> {
        let records = &self.store.records;
        let found = records
            .get::<ResponseRecord>(RecordKind::Response, &self.principal, &self.id)
            .await;
        match found {
            Ok(Some(found)) if found.value.status == ResponseStatus::InProgress => {
                self.record = found;
                Ok(())
            }
            Ok(_) => Err(Superseded),
            Err(_) => Ok(()),
        }
    }

    async fn update(&mut self) -> Result<(), RecordError> {
        let records = &self.store.records;
        let updated = records.update(
            RecordKind::Response,
            &self.principal,
            &self.id,
            &self.record,
        );
        self.record.revision = updated.await?;
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
    /// conversation.
    ///
    /// # Errors
    ///
    /// 409 when another request has ended it meanwhile, 413 for a response that is too large, 503 while the store or
    /// the bus fails.
    pub(crate) async fn finish(
        &mut self,
        status: ResponseStatus,
        document: &ResponseDocument,
    ) -> Result<(), RequestFailure> {
        let store = self.store.clone();
        let content = match store.store(document).await {
            Ok(content) => content,
            // The failure is reported in any case, with the document that was stored at the beginning.
            Err(_) if !status.can_continue() => self.record.value.document.clone(),
            Err(failure) => return Err(failure),
        };
        let entry = HistoryEntry {
            content: content.clone(),
            stored_ms: store.records.now_ms(),
            conversation: None,
        };
        self.record.value.document = content;
        self.record.value.status = status;
        self.record.value.expires_ms = store.expires_ms();
        self.end().await?;
        if self.has_progress() {
            let progress = ProgressStore::new(store.records.clone());
            progress.delete(&self.principal, &self.id).await;
            // A record with events stays, so that a replica deletes both after their time.
            if !self.record.value.has_events {
                store.forget_run(&self.id).await;
            }
        }
        if let Some(conversation) = self.record.value.conversation.clone()
            && status.can_continue()
        {
            let add = |record: &mut ConversationRecord| record.history.push(entry.clone());
            let changed = store.change_conversation(&self.principal, &conversation, add);
            if let Err(failure) = changed.await {
                // A response that is missing in its conversation must not look as if it were a part of it.
                self.record.value.status = ResponseStatus::Failed;
                self.end().await?;
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), RequestFailure> {
        let ended = self.record.value.clone();
        for _ in 0..MAX_ATTEMPTS {
            match self.update().await {
                Ok(()) => return Ok(()),
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
            if self.reread().await.is_err() {
                break;
            }
            let revision = self.record.revision;
            self.record = RevisedRecord {
                value: ended.clone(),
                revision,
            };
        }
        Err(RequestFailure::new(
            409,
            "The response was cancelled or deleted by another request.",
        ))
    }
}
