//! The progress of responses in the background: the checkpoint from which another replica can finish each.

use dray_agent::failure::RequestFailure;
use serde::{Deserialize, Serialize};

use crate::records::{CallerRecords, RecordError, RecordKind, RevisedRecord};

/// Attempts to write a record that another process may write at the same time.
const MAX_ATTEMPTS: usize = 3;

/// The record of a response that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ProgressRecord {
    /// Number of times that a replica has taken the response over.
    takeovers: u32,
    /// The checkpoint; `None` while a tool runs that must not be called again.
    token: Option<String>,
}

/// A run of a response in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseRun {
    /// Id of the response, as the API shows it.
    pub(crate) id: String,
    /// Number of times that a replica has taken it over.
    pub(crate) takeovers: u32,
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
                return Err(RequestFailure::new(
                    409,
                    "Another replica makes the response.",
                ));
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
