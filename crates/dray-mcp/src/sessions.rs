//! The lifetime of sessions, and a bound on those of each caller. Versions of the protocol before 2026-07-28 have
//! sessions, the library keeps each until it has been idle for a while, and a caller may begin thousands in a second.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// How long a session lasts without a message. Longer than any call and any question to a person, because a session that
/// waits for either has no messages, and many clients do not begin another one after a pause of their user.
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_hours(1);

/// The manager of the sessions of one endpoint.
pub(crate) fn session_manager() -> LocalSessionManager {
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(SESSION_IDLE_TIMEOUT);
    manager
}

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
    use axum::body::Body;
    use http::header::{ACCEPT, CONTENT_TYPE, HOST};
    use http::{HeaderValue, Method, StatusCode};
    use rmcp::ServerHandler;
    use rmcp::transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::client::TRANSFER_TIMEOUT;

    /// A server without tools.
    struct EmptyServer;

    impl ServerHandler for EmptyServer {}

    /// The status of the response to a message, and the session that the response names.
    async fn post(
        service: &StreamableHttpService<EmptyServer, LocalSessionManager>,
        session: &str,
        message: &Value,
    ) -> (StatusCode, String) {
        let mut request = Request::new(Body::from(message.to_string()));
        *request.method_mut() = Method::POST;
        let headers = request.headers_mut();
        for (name, value) in [
            (HOST, "localhost"),
            (CONTENT_TYPE, "application/json"),
            (ACCEPT, "application/json, text/event-stream"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if !session.is_empty() {
            headers.insert(SESSION_ID, HeaderValue::from_str(session).unwrap());
        }
        let response = service.handle(request).await;
        let id = response.headers().get(&SESSION_ID);
        let id = id.map_or("", |id| id.to_str().unwrap());
        (response.status(), id.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_outlives_the_longest_call_and_ends_an_hour_after_its_last_message() {
        let manager = Arc::new(session_manager());
        let config = StreamableHttpServerConfig::default();
        let service = StreamableHttpService::new(|| Ok(EmptyServer), Arc::clone(&manager), config);
        let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}});
        let (status, id) = post(&service, "", &begin).await;
        assert_eq!(status, StatusCode::OK);
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let (status, _) = post(&service, &id, &begun).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        let id: SessionId = id.into();
        tokio::time::sleep(TRANSFER_TIMEOUT).await; // paused clock
        assert!(manager.has_session(&id).await.unwrap());
        tokio::time::sleep(SESSION_IDLE_TIMEOUT).await; // paused clock
        assert!(!manager.has_session(&id).await.unwrap());
    }

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
