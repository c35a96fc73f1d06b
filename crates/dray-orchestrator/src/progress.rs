//! The progress of responses: the checkpoint from which another replica can finish each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_agent::failure::RequestFailure;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::records::{
    CallerRecords, RecordError, RecordKind, RevisedRecord, STORE_TIMEOUT, unavailable_failure,
};
use crate::responses::{BackgroundRun, note_run};

/// Attempts to write a record that another process may write at the same time.
const MAX_ATTEMPTS: usize = 3;
/// Attempts to raise the number of takeovers.
const MAX_TAKEOVER_ATTEMPTS: u32 = 5;
/// Delay before the second attempt while the bus fails; it grows with each attempt.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The record of a response that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ProgressRecord {
    /// Number of times that a replica has taken the response over.
    takeovers: u32,
    /// The checkpoint; `None` while a tool runs that must not be called again.
    token: Option<String>,
}

/// A run of a response that another replica can finish.
#[derive(Clone, Debug, Default)]
pub struct ResponseRun {
    /// Id of the response, as the API shows it.
    pub(crate) id: String,
    /// Number of times that a replica has taken it over.
    pub(crate) takeovers: u32,
    /// For a response whose client is connected; `None` in the background, and after a takeover.
    pub(crate) connected: Option<Arc<ConnectedRun>>,
}

/// A response whose client is connected and knows its id. It has no checkpoint before its first question in a chat: its
/// rounds must not wait for the store, and without a question it ends with its connection.
#[derive(Debug)]
pub(crate) struct ConnectedRun {
    /// The record by which another replica finds the response.
    record: BackgroundRun,
    /// Whether the response is stored, which happens while its turn runs.
    is_stored: watch::Sender<bool>,
    has_checkpoints: AtomicBool,
}

impl ConnectedRun {
    /// A run without checkpoints, whose response is not stored.
    pub(crate) fn new(record: BackgroundRun) -> Self {
        Self {
            record,
            is_stored: watch::Sender::new(false),
            has_checkpoints: AtomicBool::new(false),
        }
    }

    /// The response is stored from now on.
    pub(crate) fn note_stored(&self) {
        self.is_stored.send_replace(true);
    }

    async fn wait_until_stored(&self) -> Result<(), RequestFailure> {
        let mut is_stored = self.is_stored.subscribe();
        let stored = is_stored.wait_for(|is_stored| *is_stored);
        let stored = timeout(STORE_TIMEOUT, stored).await;
        stored.map_or_else(|_| Err(unavailable_failure()), |_| Ok(()))
    }

    /// Whether it has checkpoints. Agents that hand the turn over to each other share this.
    pub(crate) fn has_checkpoints(&self) -> bool {
        self.has_checkpoints.load(Ordering::SeqCst)
    }
}

impl ResponseRun {
    /// Whether its client waits for it on a connection.
    pub(crate) const fn has_client(&self) -> bool {
        self.connected.is_some()
    }

    /// Whether its rounds have checkpoints.
    pub(crate) fn has_checkpoints(&self) -> bool {
        let connected = self.connected.as_ref();
        connected.is_none_or(|connected| connected.has_checkpoints())
    }
}

/// Checkpoints of all callers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ProgressStore {
    records: CallerRecords,
}

impl ProgressStore {
    /// Checkpoints in these records.
    pub(crate) const fn new(records: CallerRecords) -> Self {
        Self { records }
    }

    /// Begins the checkpoints of a response, unless it has them.
    ///
    /// # Errors
    ///
    /// 503 while the store or the bus fails; the response has no checkpoint then.
    pub(crate) async fn begin(&self, run: &ResponseRun) -> Result<(), RequestFailure> {
        let connected = run.connected.as_ref();
        let Some(connected) = connected.filter(|connected| !connected.has_checkpoints()) else {
            return Ok(());
        };
        // A replica forgets a run without a response.
        connected.wait_until_stored().await?;
        // Without this record no replica would look for the response.
        note_run(&self.records, &run.id, &connected.record).await?;
        // Set before the first checkpoint is written: one whose outcome is not known must be removed, too, before a
        // call that must not be repeated.
        connected.has_checkpoints.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Sets the checkpoint of a response, or removes it.
    ///
    /// # Errors
    ///
    /// 409 when another replica has taken the response over, 503 while the bus fails. After an error the earlier
    /// checkpoint stays.
    pub(crate) async fn set(
        &self,
        principal: &str,
        run: &ResponseRun,
        token: Option<&str>,
    ) -> Result<(), RequestFailure> {
        let response = &run.id;
        let record = ProgressRecord {
            takeovers: run.takeovers,
            token: token.map(str::to_owned),
        };
        for _ in 0..MAX_ATTEMPTS {
            let found = self.get(principal, response).await?;
            let is_taken_over =
                |found: &RevisedRecord<ProgressRecord>| found.value.takeovers > run.takeovers;
            if found.as_ref().is_some_and(is_taken_over) {
                // Another replica took over because it considers this process dead. Its newer checkpoint must not be
                // replaced.
                return Err(taken_over_failure());
            }
            let written = if let Some(mut found) = found {
                found.value = record.clone();
                let updated =
                    self.records
                        .update(RecordKind::Progress, principal, response, &found);
                updated.await
            } else {
                let created =
                    self.records
                        .create(RecordKind::Progress, principal, response, &record);
                created.await
            };
            match written {
                Ok(_) => return Ok(()),
                Err(RecordError::Stale) => {}
                Err(RecordError::Failed(failure)) => return Err(failure),
            }
        }
        Err(RecordError::Stale.into())
    }

    /// The checkpoint from which a response can be finished.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn checkpoint(
        &self,
        principal: &str,
        response: &str,
    ) -> Result<Option<String>, RequestFailure> {
        let found = self.get(principal, response).await?;
        Ok(found.and_then(|found| found.value.token))
    }

    /// Raises the number of takeovers, so that the former process cannot change the checkpoint any more, and returns
    /// the checkpoint.
    ///
    /// # Errors
    ///
    /// 409 when yet another replica has taken the response over, 503 while the bus fails.
    pub(crate) async fn take_over(
        &self,
        principal: &str,
        response: &str,
        takeovers: u32,
    ) -> Result<Option<String>, RequestFailure> {
        let kind = RecordKind::Progress;
        let mut failure = None;
        for attempt in 0..MAX_TAKEOVER_ATTEMPTS {
            if failure.is_some() {
                sleep(RETRY_DELAY * attempt).await;
            }
            let mut found = match self.get(principal, response).await {
                Ok(Some(found)) => found,
                // It had no checkpoint, or it has ended.
                Ok(None) => return Ok(None),
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            if found.value.takeovers > takeovers {
                return Err(taken_over_failure());
            }
            found.value.takeovers = takeovers;
            match self.records.update(kind, principal, response, &found).await {
                Ok(_) => return Ok(found.value.token),
                Err(RecordError::Stale) => failure = None,
                Err(RecordError::Failed(error)) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| RecordError::Stale.into()))
    }

    /// Deletes the checkpoint of a response that has ended. If that fails, the record stays until it expires.
    pub(crate) async fn delete(&self, principal: &str, response: &str) {
        let deleted =
            self.records
                .delete_newest::<ProgressRecord>(RecordKind::Progress, principal, response);
        if let Err(failure) = deleted.await {
            tracing::debug!(%failure, response, "a checkpoint was not deleted");
        }
    }

    async fn get(
        &self,
        principal: &str,
        response: &str,
    ) -> Result<Option<RevisedRecord<ProgressRecord>>, RequestFailure> {
        self.records
            .get(RecordKind::Progress, principal, response)
            .await
    }
}

fn taken_over_failure() -> RequestFailure {
    RequestFailure::new(409, "Another replica makes the response.")
}
