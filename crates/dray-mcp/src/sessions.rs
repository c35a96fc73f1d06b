//! A bound on the sessions of each caller. Versions of the protocol before 2026-07-28 have sessions, the library keeps
//! each until it has been idle for five minutes, and a caller may begin thousands in a second.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderName;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager as _};

use crate::Caller;

/// Header with the id of a session of the protocol.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Most sessions of one caller. Each takes about 60 KiB.
const MAX_CALLER_SESSIONS: usize = 512;

/// The sessions of each caller.
#[derive(Debug)]
pub(crate) struct SessionLimit {
    manager: Arc<LocalSessionManager>,
    max_sessions: usize,
    /// Sessions by the subject of the caller, the oldest first. Some of them may have ended.
    by_subject: Mutex<HashMap<String, VecDeque<SessionId>>>,
}

impl SessionLimit {
    pub(crate) fn new(manager: Arc<LocalSessionManager>) -> Self {
        Self {
            manager,
            max_sessions: MAX_CALLER_SESSIONS,
            by_subject: Mutex::default(),
        }
    }

    /// Counts a new session. Above the limit, the oldest session of the same caller ends; its client begins another
    /// session when it gets 404.
    async fn add(&self, subject: String, id: SessionId) {
        let Some(oldest) = self.count(subject, id).await else {
            return;
        };
        tracing::warn!("a caller has too many MCP sessions, so its oldest one ends");
        if let Err(error) = self.manager.close_session(&oldest).await {
            tracing::debug!(%error, "an MCP session was not closed");
        }
    }

    /// Returns the session that has to end.
    async fn count(&self, subject: String, id: SessionId) -> Option<SessionId> {
        let open = self.manager.sessions.read().await;
        let mut by_subject = self
            .by_subject
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if matches!(by_subject.entry(subject.clone()), Entry::Vacant(_)) {
            // The map grows only here, so callers that have left are removed here.
            by_subject.retain(|_, ids| ids.iter().any(|id| open.contains_key(id)));
        }
        let ids = by_subject.entry(subject).or_default();
        ids.retain(|id| open.contains_key(id));
        ids.push_back(id);
        if ids.len() > self.max_sessions {
            return ids.pop_front();
        }
        None
    }
}

/// Counts the session that a request begins.
pub(crate) async fn limit_sessions(
    State(limit): State<Arc<SessionLimit>>,
    request: Request,
    next: Next,
) -> Response {
    let has_session = request.headers().contains_key(&SESSION_ID);
    let caller = request.extensions().get::<Arc<Caller>>();
    // Without tokens, all callers are the user of this machine.
    let subject = caller.map(|caller| caller.subject.clone());
    let response = next.run(request).await;
    let id = response.headers().get(&SESSION_ID);
    if let Some(id) = id.and_then(|id| id.to_str().ok())
        && !has_session
    {
        limit.add(subject.unwrap_or_default(), id.into()).await;
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_session_too_many_ends_the_oldest_one_of_the_same_caller() {
        let manager = Arc::new(LocalSessionManager::default());
        let mut limit = SessionLimit::new(Arc::clone(&manager));
        limit.max_sessions = 2;
        let mut begun = Vec::new();
        for subject in ["a", "b", "a", "a", "a"] {
            let (id, transport) = manager.create_session().await.unwrap();
            limit.add(subject.to_owned(), id.clone()).await;
            begun.push((id, transport));
        }
        let mut open = Vec::new();
        for (id, _) in &begun {
            open.push(manager.has_session(id).await.unwrap());
        }
        assert_eq!(open, [false, true, false, true, true]);
        // A session that its client ended does not count.
        manager.close_session(&begun[3].0).await.unwrap();
        let (id, _transport) = manager.create_session().await.unwrap();
        limit.add("a".to_owned(), id).await;
        assert!(manager.has_session(&begun[4].0).await.unwrap());
        // Callers without sessions are forgotten.
        manager.close_session(&begun[1].0).await.unwrap();
        let (id, _transport) = manager.create_session().await.unwrap();
        limit.add("c".to_owned(), id).await;
        assert_eq!(limit.by_subject.lock().unwrap().len(), 2);
    }
}
