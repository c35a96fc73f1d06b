//! Lists of the questions of a tenant.
//!
//! Records are kept longer than the longest question, and reading one takes a request. So a list begins at the first
//! record that had a question whose time was not over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_proto::v1;
use dray_types::TenantId;
use prost::Message as _;

use super::{QuestionError, QuestionStore, SessionKey, SessionQuestions, tenant_prefix};

/// Most sessions whose questions are listed.
pub(super) const MAX_LISTED_SESSIONS: usize = 200;
/// Most records that are read for one list.
const MAX_READ_RECORDS: usize = 5_000;
/// Most bytes of a list, because a response must fit into a message.
pub(super) const MAX_LIST_BYTES: usize = 96 * 1024;
/// How long the start position is used, so that a bucket that was created again is read from its beginning.
const START_LIFETIME_MS: u64 = 300_000;

/// Where the lists of a tenant begin.
#[derive(Clone, Copy, Debug)]
struct ListStart {
    /// No record before this revision has a question that counts. A change of such a record gets a later revision.
    revision: u64,
    /// Unix milliseconds until which it is used.
    until_ms: u64,
    /// Unix milliseconds at which it was last moved, and the questions before it had ended. A clock that was set back
    /// since then may find that they wait.
    moved_ms: u64,
}

impl ListStart {
    const fn is_valid(&self, now_ms: u64) -> bool {
        self.moved_ms <= now_ms && now_ms < self.until_ms
    }
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
        let start = start.filter(|start| start.is_valid(now_ms));
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
            moved_ms: now_ms,
        });
        start.revision = start.revision.max(revision);
        start.moved_ms = start.moved_ms.max(now_ms);
    }

    fn lock_starts(&self) -> MutexGuard<'_, HashMap<String, ListStart>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the questions of a tenant.
#[derive(Debug)]
pub(crate) struct QuestionList {
    pub(crate) questions: Vec<v1::EgressQuestion>,
    /// The revision at which the next part begins; `None` at the end.
    pub(crate) next: Option<u64>,
}

impl QuestionStore {
    /// Questions of a tenant from a revision on; without one, from the first that counts.
    pub(crate) async fn list(
        &self,
        tenant: &TenantId,
        include_answered: bool,
        after: Option<u64>,
    ) -> Result<QuestionList, QuestionError> {
        let prefix = tenant_prefix(tenant);
        let now_ms = self.clock.now_ms();
        let mut listed = Vec::new();
        let mut free_bytes = MAX_LIST_BYTES;
        let mut sessions = 0;
        let mut is_end = false;
        let mut from = after.unwrap_or_else(|| self.list_starts.first_revision(&prefix, now_ms));
        // A later part does not know the earlier records.
        let mut only_ended = after.is_none();
        for _ in 0..MAX_READ_RECORDS {
            let Some(change) = self.keys.next(&prefix, from).await? else {
                is_end = true;
                break;
            };
            let value = change.value.as_deref();
            let mut record = value.map(questions_of).unwrap_or_default();
            let questions = &mut record.questions;
            questions.retain(|question| question.expires_ms > now_ms);
            only_ended &= questions.is_empty();
            questions.retain(|question| include_answered || question.answer.is_none());
            if !record.questions.is_empty() {
                let key = SessionKey::of_session(tenant, &record.session);
                let questions = record.questions.iter();
                let questions: Vec<_> = questions
                    .map(|question| record.to_proto(&key, question))
                    .collect();
                let size = list_bytes(&questions);
                // The first session is always listed, so that every part reaches further than the one before it.
                if sessions == MAX_LISTED_SESSIONS || (sessions > 0 && size > free_bytes) {
                    break;
                }
                sessions += 1;
                free_bytes = free_bytes.saturating_sub(size);
                listed.extend(questions);
            }
            from = change.revision + 1;
            if only_ended {
                self.list_starts.set_first_revision(&prefix, from, now_ms);
            }
        }
        listed.sort_by_key(|question: &v1::EgressQuestion| question.asked_at_ms);
        Ok(QuestionList {
            questions: listed,
            next: (!is_end).then_some(from),
        })
    }
}

/// Bytes of questions in a message; each has a tag and a length of up to 4 bytes.
fn list_bytes(questions: &[v1::EgressQuestion]) -> usize {
    let sizes = questions.iter().map(|question| question.encoded_len() + 4);
    sizes.sum()
}

/// The questions in a record; empty for a record that cannot be read.
fn questions_of(value: &[u8]) -> SessionQuestions {
    serde_json::from_slice(value).unwrap_or_else(|error| {
        tracing::error!(%error, "a record of questions cannot be read");
        SessionQuestions::default()
    })
}
