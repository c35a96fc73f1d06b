//! The backend against its fake server.

mod conformance;
mod faults;
mod python;

use std::path::Path;
use std::sync::Arc;

use dray_sandbox::{Address, Backend, Sandbox, SandboxPath};
use dray_sandbox_hosted::fake_server::ProviderFault;
use dray_sandbox_hosted::provider_suite::{ProviderFixture, open_sandbox, path_in_sandbox};
use dray_types::{Clock, Secret};
use tempfile::TempDir;

use crate::fake_server::FakeE2b;
use crate::{Config, E2bBackend};

/// The sandbox of most tests.
const SANDBOX_ID: &str = "i3xy8zq0";

/// A fake server with one sandbox.
#[derive(Debug)]
struct E2bFixture {
    fake_server: FakeE2b,
    directory: TempDir,
    clock: Clock,
}

impl E2bFixture {
    async fn new() -> Self {
        let clock = Clock::manual(1_795_000_000_000);
        let fixture = Self {
            fake_server: FakeE2b::start(clock.clone()).await.unwrap(),
            directory: TempDir::new().unwrap(),
            clock,
        };
        fixture
            .fake_server
            .run(SANDBOX_ID, fixture.directory.path());
        fixture
    }

    fn config(&self) -> Config {
        Config {
            api_key: self.fake_server.key(),
            api_url: Some(self.fake_server.url()),
            envd_url: Some(self.fake_server.url()),
            ..Config::default()
        }
    }

    fn backend(&self) -> E2bBackend {
        E2bBackend::new(&self.config(), self.clock.clone()).unwrap()
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        open_sandbox(self).await.unwrap()
    }

    fn path(&self, name: &str) -> SandboxPath {
        path_in_sandbox(self, name).unwrap()
    }
}

impl ProviderFixture for E2bFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(Self::backend(self))
    }

    fn backend_with_key(&self, key: &str) -> Arc<dyn Backend> {
        let config = Config {
            api_key: Secret::new(key),
            ..self.config()
        };
        Arc::new(E2bBackend::new(&config, self.clock.clone()).unwrap())
    }

    fn address(&self) -> Address {
        address()
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn restart_sandbox(&self) {
        self.fake_server.kill(SANDBOX_ID);
        self.fake_server.run(SANDBOX_ID, self.directory.path());
    }

    fn files_prefix(&self) -> &'static str {
        "/files"
    }

    fn inject_fault(&self, fault: ProviderFault) {
        self.fake_server.script(fault);
    }

    fn pending_faults(&self) -> Vec<ProviderFault> {
        self.fake_server.faults()
    }
}

fn address() -> Address {
    format!("e2b:{SANDBOX_ID}").parse().unwrap()
}
