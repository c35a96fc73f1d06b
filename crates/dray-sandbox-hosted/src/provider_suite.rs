//! The tests that every provider passes against its fake server: faults of the provider and of the network, and the
//! suite of all backends on a sandbox that is a directory of this host.

mod faults;

use std::fmt::Debug;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use dray_conformance::{CaseFailures, ConformanceReport};
use dray_sandbox::{
    Address, Backend, Body, Error, Metadata, Read, Sandbox, SandboxPath, Transport, Write,
};
pub use dray_sandbox_conformance::LIVE_OUTPUT_CASES;
use dray_sandbox_conformance::{Fixture, SandboxTraits};

use crate::fake_server::ProviderFault;

/// A fake server with one sandbox: a directory of this host, whose path is the same in the sandbox.
pub trait ProviderFixture: Debug + Send + Sync {
    /// The backend, with the key that the fake server accepts.
    fn backend(&self) -> Arc<dyn Backend>;

    /// The same backend with another API key; empty for none.
    fn backend_with_key(&self, key: &str) -> Arc<dyn Backend>;

    /// The address of the sandbox.
    fn address(&self) -> Address;

    /// The directory of the sandbox.
    fn directory(&self) -> &Path;

    /// Starts another sandbox at the same address and in the same directory; the one before it has ended.
    fn restart_sandbox(&self);

    /// The prefix of the paths of requests for files, for [`ProviderFault::Refuse`].
    fn files_prefix(&self) -> &'static str;

    /// Whether the provider sends the output of a command while it runs.
    fn has_live_output(&self) -> bool {
        true
    }

    /// Injects a fault. It happens once.
    fn inject_fault(&self, fault: ProviderFault);

    /// Injected faults that have not happened yet.
    fn pending_faults(&self) -> Vec<ProviderFault>;
}

/// Runs the cases about faults, each with its own fixture.
///
/// # Errors
///
/// All cases that failed, by name, with the line and the reason.
pub async fn run_fault_cases<F: ProviderFixture, R: Future<Output = F>>(
    start: impl Fn() -> R,
) -> Result<ConformanceReport, CaseFailures> {
    let start = &start;
    dray_conformance::run_cases(faults::FAULT_CASES, |_, case| async move {
        let fixture = start().await;
        case(&fixture).await
    })
    .await
}

/// Runs the suite of all backends (sandbox-transfer R-17).
///
/// # Errors
///
/// All cases that failed, by name, with the line and the reason.
pub async fn run_conformance<F: ProviderFixture>(
    fixture: F,
) -> Result<ConformanceReport, CaseFailures> {
    let backend = fixture.backend();
    dray_sandbox_conformance::run_all(&ProviderSandbox { fixture, backend }).await
}

/// Opens the sandbox of a fixture.
///
/// # Errors
///
/// The errors of the backend.
pub async fn open_sandbox(fixture: &dyn ProviderFixture) -> Result<Arc<dyn Sandbox>, Error> {
    let backend = fixture.backend();
    let handle = backend.resolve(&fixture.address()).await?;
    backend.open(&handle).await
}

/// The path of an entry in the directory of a fixture's sandbox.
///
/// # Errors
///
/// The name is too long, or not a path.
pub fn path_in_sandbox(fixture: &dyn ProviderFixture, name: &str) -> Result<SandboxPath, Error> {
    let path = fixture.directory().join(name);
    SandboxPath::new(path.as_os_str().as_encoded_bytes())
}

/// Reads a file by the file call of the provider, from `offset` to its end.
///
/// # Errors
///
/// The errors of the sandbox.
pub async fn read_file(
    sandbox: &dyn Sandbox,
    file: &Metadata,
    offset: u64,
) -> Result<Vec<u8>, Error> {
    let read = Read {
        transport: Transport::Files,
        file,
        offset,
    };
    sandbox.read(read).await?.read_all(1 << 24).await
}

/// Writes a new file by the file call of the provider.
///
/// # Errors
///
/// The errors of the sandbox.
pub async fn write_file(
    sandbox: &dyn Sandbox,
    path: &SandboxPath,
    content: &[u8],
) -> Result<(), Error> {
    let write = Write {
        transport: Transport::Files,
        path,
        size: content.len() as u64,
        offset: 0,
        mode: 0o644,
    };
    let body = Body::from_bytes(content.to_vec());
    sandbox.write(write, body).await
}

/// The sandbox of a fixture for the suite of all backends.
#[derive(Debug)]
struct ProviderSandbox<F> {
    fixture: F,
    backend: Arc<dyn Backend>,
}

#[async_trait]
impl<F: ProviderFixture> Fixture for ProviderSandbox<F> {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    fn address(&self) -> Address {
        self.fixture.address()
    }

    fn workspace(&self) -> SandboxPath {
        let directory = self.fixture.directory().as_os_str().as_encoded_bytes();
        // The fallback to the root is never used: directories of tests have valid paths.
        SandboxPath::new(directory).unwrap_or_else(|_| SandboxPath::root())
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let output = tokio::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(directory.to_text().ok()?)
            .stderr(Stdio::inherit())
            .output()
            .await
            .ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn traits(&self) -> SandboxTraits {
        SandboxTraits {
            // JSON carries text only.
            byte_names: false,
            live_output: self.fixture.has_live_output(),
            ..SandboxTraits::default()
        }
    }

    async fn replace(&self) -> bool {
        self.fixture.restart_sandbox();
        true
    }
}
