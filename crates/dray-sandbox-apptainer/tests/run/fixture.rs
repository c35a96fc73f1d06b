//! A running instance of the fake program, and the directories around it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, Sandbox, SandboxPath};
use dray_sandbox_apptainer::{ApptainerBackend, Config, Exchange};
use dray_sandbox_conformance::Fixture;
use tempfile::TempDir;

const FAKE_PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/apptainer.sh");

/// A running instance called `box`. Dropping the value stops it.
#[derive(Debug)]
pub(crate) struct InstanceFixture {
    root: TempDir,
    exchange: bool,
    /// Path of the exchange directory in the instance, if it differs from its path on this host.
    container: Option<PathBuf>,
}

impl InstanceFixture {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["box", "elsewhere", "state", "container"] {
            std::fs::create_dir(root.path().join(directory)).unwrap();
        }
        let fixture = Self {
            root,
            exchange: false,
            container: None,
        };
        fixture.apptainer(&["instance", "start", "/images/box.sif", "box"]);
        fixture
    }

    pub(crate) fn with_exchange(mut self) -> Self {
        self.exchange = true;
        self
    }

    /// Binds the exchange directory at another path; `None` if this host does not permit bind mounts.
    pub(crate) fn bound(mut self) -> Option<Self> {
        let container = self.root().join("container");
        let script = r#"mount --bind "$0" "$0""#;
        let bind = Command::new("unshare")
            .args(["-rm", "sh", "-c", script])
            .arg(&container)
            .output();
        self.container = Some(container);
        bind.is_ok_and(|output| output.status.success())
            .then_some(self)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    /// A path in the directory that the instance works in.
    pub(crate) fn path(&self, name: &str) -> SandboxPath {
        self.workspace().join(name).unwrap()
    }

    pub(crate) fn elsewhere(&self, name: &str) -> SandboxPath {
        let directory = self.root().join("elsewhere");
        SandboxPath::new(directory.to_str().unwrap())
            .unwrap()
            .join(name)
            .unwrap()
    }

    pub(crate) fn config(&self) -> Config {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let host = self.root().join("box");
        let container = self.container.as_ref().unwrap_or(&host);
        let mut environment = BTreeMap::from([
            (
                "APPTAINER_CONFIGDIR".to_owned(),
                text(&self.root().join("state")),
            ),
            ("HOME".to_owned(), text(&self.root())),
        ]);
        if let Some(container) = &self.container {
            let bind = format!("{}:{}", host.display(), container.display());
            environment.insert("BIND".to_owned(), bind);
        }
        Config {
            program: FAKE_PROGRAM.to_owned(),
            environment,
            working_directory: None,
            exchange: self.exchange.then(|| Exchange {
                host: self.root(),
                container: text(container),
            }),
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Sandbox> {
        let backend = self.backend();
        let handle = backend.resolve(&self.address()).await.unwrap();
        backend.open(&handle).await.unwrap()
    }

    pub(crate) fn restart(&self) {
        self.apptainer(&["instance", "stop", "box"]);
        self.apptainer(&["instance", "start", "/images/box.sif", "box"]);
    }

    fn apptainer(&self, words: &[&str]) {
        let output = Command::new(FAKE_PROGRAM)
            .args(words)
            .env("APPTAINER_CONFIGDIR", self.root().join("state"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

impl Drop for InstanceFixture {
    fn drop(&mut self) {
        let stopped = Command::new(FAKE_PROGRAM)
            .args(["instance", "stop", "box"])
            .env("APPTAINER_CONFIGDIR", self.root().join("state"))
            .output();
        assert!(stopped.is_ok() || std::thread::panicking());
    }
}

#[async_trait]
impl Fixture for InstanceFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(ApptainerBackend::new(self.config()))
    }

    fn address(&self) -> Address {
        "apptainer:box".parse().unwrap()
    }

    fn workspace(&self) -> SandboxPath {
        let directory = match &self.container {
            Some(container) => container.clone(),
            None => self.root().join("box"),
        };
        SandboxPath::new(directory.to_str().unwrap()).unwrap()
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let output = tokio::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(directory.to_text().unwrap())
            .output()
            .await
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn replace(&self) -> bool {
        std::fs::remove_dir_all(self.root().join("box")).unwrap();
        std::fs::create_dir(self.root().join("box")).unwrap();
        self.restart();
        true
    }
}
