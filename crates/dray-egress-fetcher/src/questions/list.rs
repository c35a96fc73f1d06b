//! Lists of the questions of a tenant.
//!
//! Records are kept longer than the longest question, and reading one takes a request. So a list begins at the first
//! record that had a question whose time was not over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_proto::v1;
use dray_types::TenantId;

use super::{QuestionError, QuestionStore, SessionKey, SessionQuestions, tenant_prefix};

/// Most sessions whose questions are listed.
pub(super) const MAX_LISTED_SESSIONS: usize = 200;
/// Most records that are read for one list.
const MAX_READ_RECORDS: usize = 5_000;
/// How long a start is used, so that a bucket that was made again is read from its beginning.
const START_LIFETIME_MS: u64 = 300_000;

/// Where the lists of a tenant begin.
#[derive(Clone, Copy, Debug)]
struct ListStart {
    /// No record before this revision has a question that counts; a change of one of them gets a later revision.
    revision: u64,
    /// Unix milliseconds until which it is used.
    until_ms: u64,
}

/// The starts of lists, by prefix of the keys.
#[derive(Clone, Debug, Default)]
pub(super) struct ListStarts {
    starts: Arc<Mutex<HashMap<String, ListStart>>>,
}

impl ListStarts {
    fn first_revision(&self, prefix: &str, now_ms: u64) -> u64 {
        let mut starts = self.lock_starts();
        let start = starts.get(prefix).copied();
        let start = start.filter(|start| start.until_ms > now_ms);
        if start.is_none() {
            starts.remove(prefix);
        }
        start.map_or(1, |start| start.revision)
    }

    fn set_first_revision(&self, prefix: &str, revision: u64, now_ms: u64) {
        let mut starts = self.lock_starts();
        let start = starts.entry(prefix.to_owned()).or_insert(ListStart {
            revision,
            until_ms: now_ms.saturating_add(START_LIFETIME_MS),
        });
        start.revision = start.revision.max(revision);
    }

    fn lock_starts(&self) -> MutexGuard<'_, HashMap<String, ListStart>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuestionStore {
    /// The questions of a tenant, and whether there are more.
    pub(crate) async fn list(
        &self,
        tenant: &TenantId,
        include_answered: bool,
    ) -> Result<(Vec<v1::EgressQuestion>, bool), QuestionError> {
        let prefix = tenant_prefix(tenant);
        let now_ms = self.clock.now_ms();
        let mut listed = Vec::new();
        let mut sessions = 0;
        let mut is_truncated = true;
        let mut from = self.list_starts.first_revision(&prefix, now_ms);
        let mut only_ended = true;
        for _ in 0..MAX_READ_RECORDS {
            let Some(change) = self.keys.next(&prefix, from).await? else {
                is_truncated = false;
                break;
            };
            let value = change.value.as_deref();
            let mut record = value.map(questions_of).unwrap_or_default();
            let questions = &mut record.questions;
            questions.retain(|question| question.expires_ms > now_ms);
            only_ended &= questions.is_empty();
            questions.retain(|question| include_answered || question.answer.is_none());
            if !record.questions.is_empty() {
                if sessions == MAX_LISTED_SESSIONS {
                    break;
                }
                sessions += 1;
                let key = SessionKey::of_session(tenant, &record.session);
                let questions = record.questions.iter();
                listed.extend(questions.map(|question| record.to_proto(&key, question)));
            }
            from = change.revision + 1;
            if only_ended {
                self.list_starts.set_first_revision(&prefix, from, now_ms);
            }
        }
        listed.sort_by_key(|question: &v1::EgressQuestion| question.asked_at_ms);
        Ok((listed, is_truncated))
    }
}

/// The questions in a record; none in one that cannot be read.
fn questions_of(value: &[u8]) -> SessionQuestions {
    serde_json::from_slice(value).unwrap_or_else(|error| {
        tracing::error!(%error, "a record of questions cannot be read");
        SessionQuestions::default()
    })
}
