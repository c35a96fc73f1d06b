//! The backend against its double.

mod conformance;
mod faults;

use std::sync::Arc;

use dray_sandbox::{Address, Backend, Sandbox, SandboxPath};
use dray_types::Clock;
use tempfile::TempDir;

use crate::double::Double;
use crate::{Config, DaytonaBackend};

/// The sandbox of most tests.
const ID: &str = "my-box";

/// A double with one sandbox.
#[derive(Debug)]
struct World {
    double: Double,
    folder: TempDir,
    id: String,
    clock: Clock,
}

impl World {
    async fn new() -> Self {
        let clock = Clock::manual(1_795_000_000_000);
        let double = Double::start(clock.clone()).await.unwrap();
        let folder = TempDir::new().unwrap();
        Self {
            id: double.run(ID, folder.path()),
            double,
            folder,
            clock,
        }
    }

    fn config(&self) -> Config {
        Config {
            api_key: self.double.key(),
            api_url: self.double.url(),
            ..Config::default()
        }
    }

    fn backend(&self) -> DaytonaBackend {
        DaytonaBackend::new(&self.config(), self.clock.clone()).unwrap()
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        let backend = self.backend();
        let handle = backend.resolve(&address()).await.unwrap();
        backend.open(&handle).await.unwrap()
    }

    fn path(&self, name: &str) -> SandboxPath {
        let path = self.folder.path().join(name);
        SandboxPath::new(path.to_str().unwrap()).unwrap()
    }
}

fn address() -> Address {
    format!("daytona:{ID}").parse().unwrap()
}
