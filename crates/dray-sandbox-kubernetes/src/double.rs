//! An API server on loopback that runs commands (feature `double`).
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

use dray_http::double::{FakeServer, SharedState};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub use fault::Fault;
pub use objects::{Container, Pod};

use fault::Planned;

/// Where programs of a container with a shell are found.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the server knows.
#[derive(Debug)]
struct State {
    pods: BTreeMap<String, Pod>,
    planned: Vec<Planned<Fault>>,
    versions: Vec<String>,
    token: Option<String>,
    requests: Vec<String>,
    made: u64,
    changes: Vec<Planned<Change>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// What happens to a pod.
struct Change(Box<dyn FnOnce(&mut Pod) + Send>);

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

/// The server. Dropped, it ends with all its commands.
#[derive(Debug)]
pub struct ApiServer {
    server: FakeServer<State>,
    folder: TempDir,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }
}

impl ApiServer {
    /// Listens on a free loopback port. Pods do not exist yet.
    ///
    /// # Errors
    ///
    /// When no port can be bound or no directory be made.
    pub async fn start() -> io::Result<Self> {
        let tasks = Arc::new(Mutex::new(JoinSet::new()));
        let state = State {
            pods: BTreeMap::new(),
            planned: Vec::new(),
            versions: ["v5.channel.k8s.io", "v4.channel.k8s.io"]
                .map(str::to_owned)
                .to_vec(),
            token: None,
            requests: Vec::new(),
            made: 0,
            changes: Vec::new(),
            tasks: Arc::clone(&tasks),
        };
        Ok(Self {
            server: FakeServer::start(state, serve::answer).await?,
            folder: tempfile::tempdir()?,
            tasks,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.server.shared().lock()
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        SharedState::url(self.server.shared())
    }

    /// A directory for files of a test; containers have theirs in it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a kubeconfig for this server, with this token, and returns its path.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn kubeconfig(&self, token: &str) -> io::Result<PathBuf> {
        let path = self.folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: double\n\
             clusters:\n- name: double\n  cluster:\n    server: {}\n\
             users:\n- name: agent\n  user:\n    token: {token}\n\
             contexts:\n- name: double\n  context:\n    cluster: double\n    user: agent\n    namespace: agents\n",
            self.url()
        );
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Makes a pod, in the place of one of the same name. Every container gets an empty directory.
    ///
    /// # Errors
    ///
    /// When a directory cannot be made.
    pub fn create(
        &self,
        namespace: &str,
        name: &str,
        containers: Vec<Container>,
    ) -> io::Result<()> {
        let mut state = self.state();
        state.made += 1;
        let made = state.made;
        let mut pod = Pod::new(
            namespace,
            name,
            &format!("00000000-0000-4000-8000-{made:012x}"),
        );
        for (at, mut container) in containers.into_iter().enumerate() {
            container.id = format!("containerd://{made:032x}{at:032x}");
            if container.root.as_os_str().is_empty() {
                container.root = self
                    .folder
                    .path()
                    .join(format!("{made}-{}", container.name));
                std::fs::create_dir(&container.root)?;
            }
            pod.containers.push(container);
        }
        state.pods.insert(format!("{namespace}/{name}"), pod);
        Ok(())
    }

    /// Removes a pod.
    pub fn delete(&self, namespace: &str, name: &str) {
        self.state().pods.remove(&format!("{namespace}/{name}"));
    }

    /// Changes a pod.
    pub fn change(&self, namespace: &str, name: &str, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.state().pods.get_mut(&format!("{namespace}/{name}")) {
            change(pod);
        }
    }

    /// Speaks these versions only, for instance `v4.channel.k8s.io`.
    pub fn speak(&self, versions: &[&str]) {
        self.state().versions = versions
            .iter()
            .map(|version| (*version).to_owned())
            .collect();
    }

    /// Refuses clients without this token.
    pub fn require(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Lets the next `times` requests fail whose path, query decoded, contains `part`.
    pub fn fail(&self, part: &str, times: usize, fault: Fault) {
        self.state().planned.push(Planned {
            part: part.to_owned(),
            times,
            what: fault,
        });
    }

    /// Changes a pod right after the next request about it that contains `part` was understood.
    pub fn after(&self, part: &str, change: impl FnOnce(&mut Pod) + Send + 'static) {
        self.state().changes.push(Planned {
            part: part.to_owned(),
            times: 1,
            what: Change(Box::new(change)),
        });
    }

    /// Method and path of every request until now, queries decoded.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }
}
