//! The responses of all callers that another replica can finish, so that it finds those whose process has ended
//! although no client polls them.

use dray_agent::failure::RequestFailure;
use serde::{Deserialize, Serialize};

use super::conversation_ends::is_lasting;
use super::{ResponseRecord, ResponseStatus, ResponseStore, missing_failure};
use crate::records::{CallerRecords, RecordChange, RecordKind, RevisedRecord, StoredValue};

/// Owner of the records of all runs. Ids of responses are random, so callers cannot collide.
const RUN_OWNER: &str = "responses in the background";

/// The stored form of one response that another replica can finish: its owner, and the data of its request that the
/// turn needs. It has no credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackgroundRun {
    /// Owner of the response.
    pub(crate) principal: String,
    /// Headers that name the user, the user's groups and the session, in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Language of texts for the user.
    pub(crate) language: Option<String>,
    /// Whether its request had data that is not stored, so that only a request of its client can finish it.
    pub(crate) needs_client: bool,
}

/// The task of a replica for a response in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// Nothing before this time, in Unix milliseconds: its process runs, and has renewed its lease.
    Running { until_ms: u64 },
    /// Finish or report it: its process has ended.
    Abandoned,
    /// Forget the run; `has_events` says whether its events are kept for a while.
    Ended { has_events: bool },
    /// Forget all of it: the response was deleted or has expired.
    Gone,
    /// Leave it to a version that can read its record.
    Unreadable,
}

/// Records that a response runs that another replica can finish.
///
/// # Errors
///
/// 503 while the bus fails.
pub(crate) async fn note_run(
    records: &CallerRecords,
    id: &str,
    run: &BackgroundRun,
) -> Result<(), RequestFailure> {
    let created = records.create(RecordKind::BackgroundRun, RUN_OWNER, id, run);
    created.await?;
    Ok(())
}

impl ResponseStore {
    /// Now, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.records.now_ms()
    }

    /// Like [`note_run`].
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn note_run(
        &self,
        id: &str,
        run: &BackgroundRun,
    ) -> Result<(), RequestFailure> {
        note_run(&self.records, id, run).await
    }

    /// Deletes the record of a run. If that fails, another replica deletes it later.
    pub(crate) async fn forget_run(&self, id: &str) {
        let deleted =
            self.records
                .delete_newest::<BackgroundRun>(RecordKind::BackgroundRun, RUN_OWNER, id);
        if let Err(failure) = deleted.await {
            tracing::debug!(%failure, id, "the record of a run was not deleted");
        }
    }

    /// The next change of a run at this revision or later.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn next_run(
        &self,
        from: u64,
    ) -> Result<Option<RecordChange<BackgroundRun>>, RequestFailure> {
        self.records
            .next_change(RecordKind::BackgroundRun, RUN_OWNER, from)
            .await
    }

    /// Fails for a response that a caller cannot see.
    ///
    /// # Errors
    ///
    /// 404 for one that is not there, expired, or another caller's; 503 while the bus fails.
    pub(crate) async fn require_response(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<(), RequestFailure> {
        match self.run_state(principal, id, false).await? {
            RunState::Gone | RunState::Unreadable => Err(missing_failure("response", id)),
            RunState::Running { .. } | RunState::Abandoned | RunState::Ended { .. } => Ok(()),
        }
    }

    /// The state of a response in the background. With `waits` a process counts as gone one lease later: until then a
    /// request of the client finishes the response, which brings its own headers.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn run_state(
        &self,
        principal: &str,
        id: &str,
        waits: bool,
    ) -> Result<RunState, RequestFailure> {
        let found = self
            .records
            .find::<ResponseRecord>(RecordKind::Response, principal, id);
        let (record, revision) = match found.await?.map(|found| (found.value, found.revision)) {
            None => return Ok(RunState::Gone),
            Some((StoredValue::Unreadable, _)) => return Ok(RunState::Unreadable),
            Some((StoredValue::Readable(record), revision)) => (record, revision),
        };
        let mut found = RevisedRecord {
            value: record,
            revision,
        };
        match self.add_to_conversation(principal, id, &mut found).await {
            Err(failure) if !is_lasting(&failure) => return Err(failure),
            _ => {}
        }
        let record = found.value;
        let now_ms = self.records.now_ms();
        let grace_ms = if waits { self.lease.as_millis() } else { 0 };
        let until_ms = record.lease_ms.saturating_add(grace_ms);
        Ok(if record.expires_ms <= now_ms {
            RunState::Gone
        } else if record.status != ResponseStatus::InProgress {
            RunState::Ended {
                has_events: record.has_events,
            }
        } else if until_ms <= now_ms {
            RunState::Abandoned
        } else {
            RunState::Running { until_ms }
        })
    }
}
