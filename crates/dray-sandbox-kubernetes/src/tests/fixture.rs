//! A cluster with one pod.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{
    Address, Backend, Error, ErrorKind, Follow, Handle, Read, Sandbox, SandboxPath,
};
use dray_sandbox_conformance::{Fixture, SandboxTraits};
use dray_types::Period;

use crate::fake_server::{ApiServer, FakeContainer};
use crate::{Config, KubernetesBackend};

/// A server with the pod `agents/box`, container `shell`, and a backend for it.
#[derive(Debug)]
pub(super) struct PodFixture {
    pub(super) server: ApiServer,
    pub(super) backend: Arc<KubernetesBackend>,
    workspace: PathBuf,
    /// User of the sandbox; `None` for the user who runs the tests.
    user: Option<u32>,
}

impl PodFixture {
    pub(super) async fn new() -> Self {
        Self::with(ApiServer::start().await.unwrap(), |_| {}, None)
    }

    pub(super) async fn configured(change: impl FnOnce(&mut Config)) -> Self {
        Self::with(ApiServer::start().await.unwrap(), change, None)
    }

    pub(super) async fn of_user(user: u32) -> Self {
        let server = ApiServer::start().await.unwrap();
        Self::with(server, |_| {}, Some(user))
    }

    fn with(server: ApiServer, change: impl FnOnce(&mut Config), user: Option<u32>) -> Self {
        let mut config = Config {
            kubeconfig: Some(server.kubeconfig("first").unwrap()),
            response_timeout: Period::secs(20),
            ..Config::default()
        };
        change(&mut config);
        let workspace = server.directory().canonicalize().unwrap().join("work");
        let fixture = Self {
            backend: Arc::new(KubernetesBackend::new(config).unwrap()),
            server,
            workspace,
            user,
        };
        fixture.start();
        fixture
    }

    fn start(&self) {
        std::fs::create_dir(&self.workspace).unwrap();
        let mut container = FakeContainer::new("shell");
        container.root = self.workspace.clone();
        if let Some(user) = self.user {
            use std::os::unix::fs::{PermissionsExt as _, chown};
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(self.server.directory(), open).unwrap();
            chown(&self.workspace, Some(user), Some(user)).unwrap();
            container.prefix = self.as_user();
        }
        self.server
            .create("agents", "box", vec![container])
            .unwrap();
    }

    fn as_user(&self) -> Vec<String> {
        let Some(user) = self.user else {
            return Vec::new();
        };
        let words = [
            "setpriv",
            &format!("--reuid={user}"),
            &format!("--regid={user}"),
            "--clear-groups",
        ];
        words.map(str::to_owned).to_vec()
    }

    pub(super) fn work(&self) -> &PathBuf {
        &self.workspace
    }

    pub(super) fn path(&self, name: &str) -> SandboxPath {
        SandboxPath::new(self.workspace.join(name).to_str().unwrap()).unwrap()
    }

    /// Writes a file of the sandbox without the backend.
    pub(super) fn file(&self, name: &str, bytes: &[u8]) -> SandboxPath {
        std::fs::write(self.workspace.join(name), bytes).unwrap();
        self.path(name)
    }

    pub(super) async fn handle(&self) -> Result<Handle, Error> {
        self.backend.resolve(&self.address()).await
    }

    pub(super) async fn open(&self) -> Result<Arc<dyn Sandbox>, Error> {
        self.backend.open(&self.handle().await?).await
    }

    /// Replaces the pod by another one of the same name, with an empty workspace.
    pub(super) fn renew(&self) {
        self.start();
    }

    /// Number of requests that contain this text.
    pub(super) fn count_requests(&self, part: &str) -> usize {
        let requests = self.server.requests();
        requests
            .iter()
            .filter(|request| request.contains(part))
            .count()
    }
}

/// Reads with the best transport.
pub(super) async fn read(sandbox: &dyn Sandbox, path: &SandboxPath) -> Result<Vec<u8>, Error> {
    let file = sandbox.stat(path, Follow::Yes).await?;
    let transports = sandbox.transports(&file.real_path);
    let read = Read {
        transport: *transports.first().unwrap(),
        file: &file,
        offset: 0,
    };
    sandbox.read(read).await?.read_all(64 << 20).await
}

pub(super) fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("the operation must fail"),
        Err(error) => error.kind(),
    }
}

#[async_trait]
impl Fixture for PodFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend) as Arc<dyn Backend>
    }

    fn address(&self) -> Address {
        "kubernetes:agents/box".parse().unwrap()
    }

    fn workspace(&self) -> SandboxPath {
        SandboxPath::new(self.workspace.to_str().unwrap()).unwrap()
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let mut words = self.as_user();
        words.extend(["sh", "-c", script].map(str::to_owned));
        let (program, arguments) = words.split_first().unwrap();
        let output = tokio::process::Command::new(program)
            .args(arguments)
            .current_dir(directory.to_text().unwrap())
            .output()
            .await
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn traits(&self) -> SandboxTraits {
        SandboxTraits::default()
    }

    async fn replace(&self) -> bool {
        std::fs::remove_dir_all(&self.workspace).unwrap();
        self.start();
        true
    }
}
