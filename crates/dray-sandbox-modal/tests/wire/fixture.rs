//! A sandbox on a fake server.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, Sandbox, SandboxPath};
use dray_sandbox_conformance::{Fixture, SandboxTraits};
use dray_sandbox_modal::fake_server::{FakeServer, TOKEN_ID, TOKEN_SECRET};
use dray_sandbox_modal::{Config, ModalBackend};
use dray_types::{Clock, Secret};

/// An id of the first version.
pub(crate) const SANDBOX_ID: &str = "sb-0123456789abcdefghijKL";

#[derive(Debug)]
pub(crate) struct ModalFixture {
    pub(crate) server: FakeServer,
    directory: tempfile::TempDir,
    backend: Arc<ModalBackend>,
}

impl ModalFixture {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = FakeServer::start(directory.path().canonicalize().unwrap())
            .await
            .unwrap();
        server.run(SANDBOX_ID);
        let backend = ModalBackend::new(&config(server.url()), Clock::system()).unwrap();
        Self {
            server,
            directory,
            backend: Arc::new(backend),
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> SandboxPath {
        let path = self.root().join(name);
        SandboxPath::new(path.as_os_str().as_encoded_bytes()).unwrap()
    }

    pub(crate) async fn open(&self) -> Arc<dyn Sandbox> {
        let handle = self.backend.resolve(&self.address()).await.unwrap();
        self.backend.open(&handle).await.unwrap()
    }
}

pub(crate) fn address_of(name: &str) -> Address {
    Address {
        backend: "modal".to_owned(),
        name: name.to_owned(),
    }
}

pub(crate) fn config(url: &str) -> Config {
    Config {
        token_id: TOKEN_ID.to_owned(),
        token_secret: Secret::new(TOKEN_SECRET),
        server_url: url.to_owned(),
        ..Config::default()
    }
}

#[async_trait]
impl Fixture for ModalFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend) as Arc<dyn Backend>
    }

    fn address(&self) -> Address {
        address_of(SANDBOX_ID)
    }

    fn workspace(&self) -> SandboxPath {
        self.path(".")
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(directory.to_text().ok()?)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            said.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        Some(said)
    }

    fn traits(&self) -> SandboxTraits {
        SandboxTraits {
            // Arguments are text.
            byte_names: false,
            ..SandboxTraits::default()
        }
    }

    async fn replace(&self) -> bool {
        self.server.run(SANDBOX_ID);
        for entry in std::fs::read_dir(self.root()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
        true
    }
}
