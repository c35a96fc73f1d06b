//! A model that follows a script: a server of chat completions that always answers the same to the same, without a
//! network or a key.
//!
//! It speaks `OpenAI`'s paths (`/v1/chat/completions`) and DIAL's (`/openai/deployments/{id}/chat/completions`),
//! streams or not, and misbehaves where its [`Script`] says so. It remembers every request and knows nothing of
//! language.

mod answer;
mod script;
mod serve;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use script::{Call, Fail, Reply, Rule, Script, Stage, Usage, When};

/// The server. Ends, connections included, when it is dropped.
#[derive(Debug)]
pub struct RehearsalServer {
    address: SocketAddr,
    state: Arc<Mutex<RehearsalState>>,
    _tasks: JoinSet<()>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct RehearsedRequest {
    /// Path and query, undecoded.
    pub target: String,
    /// Headers.
    pub headers: HeaderMap,
    /// The body; `null` if it was not JSON.
    pub body: Value,
}

#[derive(Debug)]
struct RehearsalState {
    script: Script,
    /// How many times each rule answered.
    used: Vec<u32>,
    asked: Vec<RehearsedRequest>,
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
    /// When it cannot be bound.
    pub async fn listen(script: Script, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(RehearsalState {
            used: vec![0; script.rules.len()],
            script,
            asked: Vec::new(),
        }));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_connections(listener, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            _tasks: tasks,
        })
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, in order of arrival.
    pub fn asked(&self) -> Vec<RehearsedRequest> {
        lock_state(&self.state).asked.clone()
    }

    /// Forgets the requests so far, so that a long measurement does not grow by them.
    pub fn forget(&self) {
        lock_state(&self.state).asked = Vec::new();
    }

    /// Goes on with another script.
    pub fn follow(&self, script: Script) {
        let mut state = lock_state(&self.state);
        state.used = vec![0; script.rules.len()];
        state.script = script;
    }
}

fn lock_state(state: &Mutex<RehearsalState>) -> MutexGuard<'_, RehearsalState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept_connections(listener: TcpListener, state: Arc<Mutex<RehearsalState>>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        // Pieces of a stream leave as they are made.
        let _ = socket.set_nodelay(true);
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { serve::answer_request(&state, request).await }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a rehearsed connection ended early");
            }
        });
    }
}
