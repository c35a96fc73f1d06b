//! A model that follows a script: a server of chat completions that sends equal responses to equal requests, without a
//! network or a key.
//!
//! It supports `OpenAI`'s paths (`/v1/chat/completions`) and DIAL's (`/openai/deployments/{id}/chat/completions`), with
//! or without streaming, and injects the faults of its [`Script`]. It records every request and does not interpret
//! text.

mod answer;
mod script;
mod serve;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use serde_json::Value;

use crate::listen::{ConnectionServer, serve_http};

pub use script::{
    RuleCondition, Script, ScriptRule, ScriptedCall, ScriptedFailure, ScriptedReply, ScriptedStage,
    ScriptedUsage,
};

/// The server. It and its connections end when it is dropped.
#[derive(Debug)]
pub struct RehearsalServer {
    server: ConnectionServer,
    state: Arc<Mutex<RehearsalState>>,
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct RehearsedRequest {
    /// Path and query, undecoded.
    pub target: String,
    /// Headers as received, including the key.
    pub headers: HeaderMap,
    /// The body; `null` if it was not JSON.
    pub body: Value,
}

#[derive(Debug)]
struct RehearsalState {
    script: Script,
    /// How many times each rule was used.
    use_counts: Vec<u32>,
    requests: Vec<RehearsedRequest>,
}

impl RehearsalServer {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(script: Script) -> io::Result<Self> {
        Self::listen(script, (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Listens on `address`.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn listen(script: Script, address: SocketAddr) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(RehearsalState {
            use_counts: vec![0; script.rules.len()],
            script,
            requests: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let serve = move |stream| {
            let state = Arc::clone(&shared);
            serve_http(stream, move |request| {
                let state = Arc::clone(&state);
                async move { serve::answer_request(&state, request).await }
            })
        };
        let server = ConnectionServer::start(address, serve).await?;
        Ok(Self { server, state })
    }

    /// Base URL without a slash at the end; the paths of `OpenAI` and DIAL are below it.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Every request so far, in order of arrival.
    pub fn received_requests(&self) -> Vec<RehearsedRequest> {
        lock_state(&self.state).requests.clone()
    }

    /// Drops the recorded requests, so that they do not use memory during a long measurement.
    pub fn clear_requests(&self) {
        lock_state(&self.state).requests = Vec::new();
    }

    /// Replaces the script. Its rules are counted from zero.
    pub fn set_script(&self, script: Script) {
        let mut state = lock_state(&self.state);
        // Counts belong to the rules of one script.
        state.use_counts = vec![0; script.rules.len()];
        state.script = script;
    }
}

fn lock_state(state: &Mutex<RehearsalState>) -> MutexGuard<'_, RehearsalState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
