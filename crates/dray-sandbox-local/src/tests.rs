//! Tests of the local backend: the conformance suite, and what is special to directories of this host.

mod beneath;
mod faults;
mod wrong;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::backend::{Backend, Sandbox};
use dray_sandbox::handle::Address;
use dray_sandbox::path::SandboxPath;
use dray_sandbox_conformance::{Fixture, run_all};
use tempfile::TempDir;

use super::{Kernel, LocalBackend, LocalOptions};

/// A directory, and the directory above it that is allowed.
#[derive(Debug)]
pub(super) struct DirectoryFixture {
    parent: TempDir,
    kernel: Kernel,
}

pub(super) const NEW_KERNEL: Kernel = Kernel {
    openat2: true,
    renameat2: true,
};
pub(super) const OLD_KERNEL: Kernel = Kernel {
    openat2: false,
    renameat2: false,
};

impl DirectoryFixture {
    pub(super) fn new(kernel: Kernel) -> Self {
        let parent = tempfile::tempdir().unwrap();
        std::fs::create_dir(parent.path().join("box")).unwrap();
        Self { parent, kernel }
    }

    /// The directory that contains [`Self::root`]; its other entries are out of bounds.
    pub(super) fn outside(&self) -> &Path {
        self.parent.path()
    }

    pub(super) fn root(&self) -> PathBuf {
        self.parent.path().canonicalize().unwrap().join("box")
    }

    pub(super) fn path(&self, name: &str) -> SandboxPath {
        SandboxPath::new(format!("{}/{name}", self.root().display())).unwrap()
    }

    pub(super) fn address_name(&self) -> String {
        self.address().name
    }

    pub(super) async fn open(&self) -> Arc<dyn Sandbox> {
        let backend = self.backend();
        let handle = backend.resolve(&self.address()).await.unwrap();
        backend.open(&handle).await.unwrap()
    }
}

#[async_trait]
impl Fixture for DirectoryFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(LocalBackend {
            options: LocalOptions {
                roots: vec![self.parent.path().to_owned()],
            },
            kernel: self.kernel,
        })
    }

    fn address(&self) -> Address {
        Address {
            backend: "local".to_owned(),
            name: self.parent.path().join("box").to_str().unwrap().to_owned(),
        }
    }

    fn workspace(&self) -> SandboxPath {
        SandboxPath::new(self.address().name).unwrap()
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let output = tokio::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(directory.to_text().unwrap())
            .output()
            .await
            .unwrap();
        Some(String::from_utf8(output.stdout).unwrap())
    }

    async fn replace(&self) -> bool {
        std::fs::remove_dir_all(self.root()).unwrap();
        std::fs::create_dir(self.root()).unwrap();
        true
    }
}

async fn conforms(kernel: Kernel) {
    let report = run_all(&DirectoryFixture::new(kernel)).await.unwrap();
    let root = rustix::process::geteuid().is_root();
    let skipped: &[&str] = if root {
        &["access_without_permission_is_refused"]
    } else {
        &[]
    };
    assert_eq!(report.skipped, skipped);
}

#[tokio::test]
async fn r_17_a_directory_passes_the_conformance_suite() {
    conforms(NEW_KERNEL).await;
}

#[tokio::test]
async fn r_17_a_directory_on_an_old_kernel_passes_the_conformance_suite() {
    conforms(OLD_KERNEL).await;
}
