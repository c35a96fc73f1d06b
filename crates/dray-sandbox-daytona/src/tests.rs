//! Tests of the backend with its fake server.

mod conformance;
mod faults;

use std::path::Path;
use std::sync::Arc;

use dray_sandbox::{Address, Backend, Sandbox, SandboxPath};
use dray_sandbox_hosted::fake_server::ProviderFault;
use dray_sandbox_hosted::provider_suite::{ProviderFixture, open_sandbox, path_in_sandbox};
use dray_types::{Clock, Secret};
use tempfile::TempDir;

use crate::fake_server::FakeDaytona;
use crate::{Config, DaytonaBackend};

/// The sandbox of most tests.
const SANDBOX_ID: &str = "my-box";

/// A fake server with one sandbox.
#[derive(Debug)]
struct DaytonaFixture {
    fake_server: FakeDaytona,
    directory: TempDir,
    id: String,
    clock: Clock,
}

impl DaytonaFixture {
    async fn new() -> Self {
        let clock = Clock::manual(1_795_000_000_000);
        let fake_server = FakeDaytona::start(clock.clone()).await.unwrap();
        let directory = TempDir::new().unwrap();
        Self {
            id: fake_server.run(SANDBOX_ID, directory.path()),
            fake_server,
            directory,
            clock,
        }
    }

    fn config(&self) -> Config {
        Config {
            api_key: self.fake_server.key(),
            api_url: self.fake_server.url(),
            ..Config::default()
        }
    }

    fn backend(&self) -> DaytonaBackend {
        DaytonaBackend::new(&self.config(), self.clock.clone()).unwrap()
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        open_sandbox(self).await.unwrap()
    }

    fn path(&self, name: &str) -> SandboxPath {
        path_in_sandbox(self, name).unwrap()
    }
}

impl ProviderFixture for DaytonaFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(Self::backend(self))
    }

    fn backend_with_key(&self, key: &str) -> Arc<dyn Backend> {
        let config = Config {
            api_key: Secret::new(key),
            ..self.config()
        };
        Arc::new(DaytonaBackend::new(&config, self.clock.clone()).unwrap())
    }

    fn address(&self) -> Address {
        address()
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn restart_sandbox(&self) {
        self.fake_server.run(SANDBOX_ID, self.directory.path());
    }

    fn files_prefix(&self) -> &'static str {
        "files"
    }

    fn has_live_output(&self) -> bool {
        // The response to a command is one JSON text.
        false
    }

    fn inject_fault(&self, fault: ProviderFault) {
        self.fake_server.script(fault);
    }

    fn pending_faults(&self) -> Vec<ProviderFault> {
        self.fake_server.faults()
    }
}

fn address() -> Address {
    format!("daytona:{SANDBOX_ID}").parse().unwrap()
}
