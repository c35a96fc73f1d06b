//! Selects the open questions whose outcome a replica requests from the orchestrator. Questions can end before their
//! expiry without a press: the caller answers, withdraws the call, or disconnects. This module sends no request itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Milliseconds between two requests for the outcome of a question.
const CHECK_INTERVAL_MS: u64 = 10_000;
/// Most requests for one chat in one round.
const MAX_CHECKS: usize = 8;

/// The open questions of all chats, by chat and id.
#[derive(Debug, Default)]
pub(crate) struct OutcomeWatch {
    chats: Mutex<HashMap<String, HashMap<String, WatchedQuestion>>>,
}

#[derive(Clone, Copy, Debug)]
struct WatchedQuestion {
    /// Unix milliseconds of the next request.
    next_ms: u64,
    /// Whether the last request found an outcome.
    has_ended: bool,
}

impl OutcomeWatch {
    /// Returns the open questions of a chat whose outcome is due, the longest waiting first. Forgets questions that
    /// are no longer open.
    pub(super) fn due_questions(&self, chat: &str, open: &[String], now_ms: u64) -> Vec<String> {
        let mut chats = self.chats.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = chats.entry(chat.to_owned()).or_default();
        watched.retain(|id, _| open.contains(id));
        let mut due = Vec::new();
        for id in open {
            let question = watched.entry(id.clone()).or_insert(WatchedQuestion {
                next_ms: now_ms.saturating_add(CHECK_INTERVAL_MS),
                has_ended: false,
            });
            if question.next_ms <= now_ms {
                due.push((question.next_ms, id.clone()));
            }
        }
        due.sort();
        let due = due.into_iter().take(MAX_CHECKS);
        due.map(|(_, id)| id).collect()
    }

    /// Notes whether a question has an outcome. Returns whether it had one before, too.
    pub(super) fn note_outcome(&self, chat: &str, id: &str, has_ended: bool, now_ms: u64) -> bool {
        let mut chats = self.chats.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = chats.get_mut(chat);
        let Some(question) = watched.and_then(|watched| watched.get_mut(id)) else {
            return false;
        };
        // The outcome is read twice: the process of a press may be about to show the first one.
        let is_confirmed = has_ended && question.has_ended;
        question.has_ended = has_ended;
        question.next_ms = now_ms.saturating_add(CHECK_INTERVAL_MS);
        is_confirmed
    }
}
