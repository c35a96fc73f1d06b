//! A fake of the provider: both services, on loopback, with commands that really run.
//!
//! Paths in its sandboxes are paths of this host. The server itself implements the file tool, with real processes where
//! possible, so that they can be killed like any other. The tool runs as the user of the test.

mod command;
mod fault;
mod plane;
mod router;
mod serve;
mod tool;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};

use command::FakeCommand;
pub use fault::InjectedFault;

/// Id of the only token that the server accepts.
pub const TOKEN_ID: &str = "ak-fake";
/// Secret of the only token that the server accepts.
pub const TOKEN_SECRET: &str = "as-fake";

/// One incarnation of a sandbox.
#[derive(Debug)]
struct FakeTask {
    task_id: String,
    ended: CancellationToken,
}

/// State of the server.
#[derive(Debug)]
struct FakeState {
    root: PathBuf,
    url: String,
    sandboxes: Mutex<HashMap<String, FakeTask>>,
    commands: Mutex<HashMap<String, Arc<FakeCommand>>>,
    faults: Mutex<Vec<InjectedFault>>,
    calls: Mutex<Vec<String>>,
    /// Number of the credential that is accepted; older ones have expired.
    credential: AtomicU64,
    next_task: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fake server. Dropping it ends the server and all commands that it runs.
#[derive(Debug)]
pub struct FakeServer {
    state: Arc<FakeState>,
    _serving: JoinSet<()>,
}

impl FakeServer {
    /// Starts the server on a free loopback port. Commands run in `root`.
    ///
    /// # Errors
    ///
    /// The failure to listen.
    pub async fn start(root: impl Into<PathBuf>) -> io::Result<Self> {
        Self::listen(root.into(), None).await
    }

    /// Starts the server with TLS, as `localhost`, with this certificate and key (PEM).
    ///
    /// # Errors
    ///
    /// The failure to listen, or to use the certificate.
    pub async fn start_tls(
        root: impl Into<PathBuf>,
        certificate: &str,
        key: &str,
    ) -> io::Result<Self> {
        let identity = Identity::from_pem(certificate, key);
        let tls = ServerTlsConfig::new().identity(identity);
        Self::listen(root.into(), Some(tls)).await
    }

    async fn listen(root: PathBuf, tls: Option<ServerTlsConfig>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let state = Arc::new(FakeState {
            root,
            url: match &tls {
                // The URL has a name, because the certificate of the test names `localhost`.
                Some(_) => format!("https://localhost:{}", listener.local_addr()?.port()),
                None => format!("http://{}", listener.local_addr()?),
            },
            sandboxes: Mutex::default(),
            commands: Mutex::default(),
            faults: Mutex::default(),
            calls: Mutex::default(),
            credential: AtomicU64::new(1),
            next_task: AtomicU64::new(1),
        });
        let mut serving = JoinSet::new();
        let mut builder = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            builder = builder.tls_config(tls).map_err(io::Error::other)?;
        }
        let server = builder
            .add_service(plane::ControlPlane(Arc::clone(&state)))
            .add_service(router::RouterService(Arc::clone(&state)));
        serving.spawn(async move {
            // Without it each small response waits 40 ms for the client's acknowledgement (Nagle's algorithm).
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            if let Err(error) = server.serve_with_incoming(incoming).await {
                tracing::warn!(%error, "the fake server stopped");
            }
        });
        Ok(Self {
            state,
            _serving: serving,
        })
    }

    /// Base URL of both services.
    pub fn url(&self) -> &str {
        &self.state.url
    }

    /// Starts a sandbox, or replaces the task that runs it. Returns the id of the new task.
    pub fn run(&self, sandbox_id: &str) -> String {
        let number = self.state.next_task.fetch_add(1, Ordering::SeqCst);
        let task_id = format!("ta-fake{number:016}");
        let task = FakeTask {
            task_id: task_id.clone(),
            ended: CancellationToken::new(),
        };
        let old = lock(&self.state.sandboxes).insert(sandbox_id.to_owned(), task);
        if let Some(old) = old {
            // The commands of a sandbox end with it, as on a real worker.
            old.ended.cancel();
        }
        task_id
    }

    /// Ends a sandbox and all commands in it.
    pub fn terminate(&self, sandbox_id: &str) {
        if let Some(task) = lock(&self.state.sandboxes).get(sandbox_id) {
            task.ended.cancel();
        }
    }

    /// Adds a fault; it applies to the first matching call.
    pub fn arm(&self, fault: InjectedFault) {
        lock(&self.state.faults).push(fault);
    }

    /// Removes one planned refusal of a method. Returns whether there was one.
    pub fn take_refusal(&self, method: &str) -> bool {
        fault::refusal(&mut lock(&self.state.faults), method).is_some()
    }

    /// Expires all credentials that were issued until now, for routers and for the second version.
    pub fn expire(&self) {
        // Credentials carry the number, so all earlier ones differ from now on.
        self.state.credential.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of calls of a method, by its name without the service.
    pub fn calls(&self, method: &str) -> usize {
        let calls = lock(&self.state.calls);
        calls.iter().filter(|call| *call == method).count()
    }

    /// Number of commands that have not ended.
    pub fn running(&self) -> usize {
        let commands = lock(&self.state.commands);
        commands.values().filter(|command| command.runs()).count()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        for task in lock(&self.state.sandboxes).values() {
            task.ended.cancel();
        }
    }
}

impl FakeState {
    /// Records a call. Fails if a fault is injected for it.
    fn admit(&self, method: &str) -> Result<(), Status> {
        lock(&self.calls).push(method.to_owned());
        match fault::refusal(&mut lock(&self.faults), method) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    fn jwt(&self) -> String {
        format!("jwt-{}", self.credential.load(Ordering::SeqCst))
    }

    /// Fails unless the task still runs; returns the token that is cancelled when it ends.
    fn task(&self, task_id: &str) -> Result<CancellationToken, Status> {
        let sandboxes = lock(&self.sandboxes);
        let task = sandboxes.values().find(|task| task.task_id == task_id);
        match task {
            Some(task) if !task.ended.is_cancelled() => Ok(task.ended.clone()),
            _ => Err(Status::not_found("task not found or not running")),
        }
    }

    fn command(&self, task_id: &str, exec_id: &str) -> Result<Arc<FakeCommand>, Status> {
        self.task(task_id)?;
        let commands = lock(&self.commands);
        let command = commands.get(exec_id).map(Arc::clone);
        command.ok_or_else(|| Status::not_found("exec not found"))
    }
}

/// Value of a header; empty without one.
fn header<'m>(metadata: &'m MetadataMap, name: &str) -> &'m str {
    metadata
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
