//! A fake API server on loopback that runs commands (feature `fake-server`).
//!
//! It speaks the wire of `kubectl` and of the Python client: discovery, pods, and the exec endpoint over `WebSocket` in
//! the versions v5 and v4. A container is a directory of this host, a command is a process of this host, and a stream
//! that is closed ends no process, as on a real node.

mod exec;
mod fault;
mod objects;
mod serve;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_http::fake_server::{FakeServer, SharedState};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub use fault::InjectedFault;
pub use objects::{FakeContainer, FakePod};

use fault::PlannedStep;

/// Directories in which programs of a container with a shell are searched.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// State of the server.
#[derive(Debug)]
struct FakeState {
    pods: BTreeMap<String, FakePod>,
    planned: Vec<PlannedStep<InjectedFault>>,
    versions: Vec<String>,
    token: Option<String>,
    /// Rights that credentials do not have, such as `create pods/exec`.
    forbidden: Vec<String>,
    requests: Vec<String>,
    made: u64,
    changes: Vec<PlannedStep<PodChange>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// A change of a pod that a test planned.
struct PodChange(Box<dyn FnOnce(&mut FakePod) + Send>);

impl fmt::Debug for PodChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

/// The fake server. On drop it ends with all its commands.
#[derive(Debug)]
pub struct ApiServer {
    server: FakeServer<FakeState>,
    directory: TempDir,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Commands run in separate tasks, which the HTTP server does not end.
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }
}

impl ApiServer {
    /// Starts the server on a free loopback port, without pods.
    ///
    /// # Errors
    ///
    /// The failure to bind a port or to make a directory.
    pub async fn start() -> io::Result<Self> {
        let tasks = Arc::new(Mutex::new(JoinSet::new()));
        let state = FakeState {
            pods: BTreeMap::new(),
            planned: Vec::new(),
            versions: ["v5.channel.k8s.io", "v4.channel.k8s.io"]
                .map(str::to_owned)
                .to_vec(),
            token: None,
            forbidden: Vec::new(),
            requests: Vec::new(),
            made: 0,
            changes: Vec::new(),
            tasks: Arc::clone(&tasks),
        };
        Ok(Self {
            server: FakeServer::start(state, serve::answer).await?,
            directory: tempfile::tempdir()?,
            tasks,
        })
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.server.shared().lock()
    }

    /// Base URL of the server, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        SharedState::url(self.server.shared())
    }

    /// Directory for files of a test, which also holds the directories of the containers.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a kubeconfig for this server with this token, and returns its path.
    ///
    /// # Errors
    ///
    /// The failure to write the file.
    pub fn kubeconfig(&self, token: &str) -> io::Result<PathBuf> {
        let path = self.directory.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: fake\n\
             clusters:\n- name: fake\n  cluster:\n    server: {}\n\
             users:\n- name: agent\n  user:\n    token: {token}\n\
             contexts:\n- name: fake\n  context:\n    cluster: fake\n    user: agent\n    namespace: agents\n",
            self.url()
        );
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Creates a pod; it replaces one of the same name. Every container gets an empty directory.
    ///
    /// # Errors
    ///
    /// The failure to make a directory.
    pub fn create(
        &self,
        namespace: &str,
        name: &str,
        containers: Vec<FakeContainer>,
    ) -> io::Result<()> {
        let mut state = self.state();
        // A UID is never reused: a pod that takes over a name gets a new UID.
        state.made += 1;
        let made = state.made;
        let mut pod = FakePod::new(
            namespace,
            name,
            &format!("00000000-0000-4000-8000-{made:012x}"),
        );
        for (at, mut container) in containers.into_iter().enumerate() {
            container.id = format!("containerd://{made:032x}{at:032x}");
            if container.root.as_os_str().is_empty() {
                container.root = self
                    .directory
                    .path()
                    .join(format!("{made}-{}", container.name));
                std::fs::create_dir(&container.root)?;
            }
            pod.containers.push(container);
        }
        state.pods.insert(format!("{namespace}/{name}"), pod);
        Ok(())
    }

    /// Removes a pod; its running commands continue.
    pub fn delete(&self, namespace: &str, name: &str) {
        self.state().pods.remove(&format!("{namespace}/{name}"));
    }

    /// Changes a pod, if it exists.
    pub fn change(&self, namespace: &str, name: &str, change: impl FnOnce(&mut FakePod)) {
        if let Some(pod) = self.state().pods.get_mut(&format!("{namespace}/{name}")) {
            change(pod);
        }
    }

    /// Speaks only these versions, for instance `v4.channel.k8s.io`.
    pub fn speak(&self, versions: &[&str]) {
        self.state().versions = versions
            .iter()
            .map(|version| (*version).to_owned())
            .collect();
    }

    /// Refuses clients without this bearer token, with a 401.
    pub fn require(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Takes a right away, such as `create pods/exec`, from what access reviews report.
    pub fn forbid(&self, right: &str) {
        self.state().forbidden.push(right.to_owned());
    }

    /// Makes the next `times` requests fail whose method, path and decoded query contain `part`.
    pub fn fail(&self, part: &str, times: usize, fault: InjectedFault) {
        self.state().planned.push(PlannedStep {
            part: part.to_owned(),
            times,
            what: fault,
        });
    }

    /// Applies a change to a pod after the next request that contains `part`; that request still gets the old state.
    pub fn after(&self, part: &str, change: impl FnOnce(&mut FakePod) + Send + 'static) {
        self.state().changes.push(PlannedStep {
            part: part.to_owned(),
            times: 1,
            what: PodChange(Box::new(change)),
        });
    }

    /// Method, path and decoded query of every request so far.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }
}
