//! The backend against the real OpenSSH.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test"
)]

mod conformance;

use std::sync::Arc;

use dray_sandbox::{Address, Backend as _, Sandbox, SandboxPath};
use dray_sandbox_ssh::{Config, HostKeys, SshBackend};
use dray_testkit::sshd::{Options, Sshd};

/// A server, a directory on it, and a backend that may log in.
#[derive(Debug)]
struct Host {
    server: Sshd,
    control: tempfile::TempDir,
    work: tempfile::TempDir,
}

impl Host {
    fn start(options: &Options) -> Self {
        Self {
            server: Sshd::start(options),
            control: tempfile::tempdir_in("/tmp").unwrap(),
            work: tempfile::tempdir().unwrap(),
        }
    }

    fn config(&self) -> Config {
        Config {
            control_directory: Some(self.control.path().join("c")),
            host_keys: HostKeys::AcceptNew,
            config_file: Some("none".into()),
            identity_file: Some(self.server.key()),
            ..Config::default()
        }
    }

    fn backend(&self) -> SshBackend {
        SshBackend::new(self.config()).unwrap()
    }

    /// The directory of the session.
    fn session(&self) -> std::path::PathBuf {
        self.work.path().canonicalize().unwrap()
    }

    fn address(&self) -> Address {
        let (user, port) = (self.server.user(), self.server.port());
        format!("ssh:{user}@127.0.0.1:{port}{}", self.session().display())
            .parse()
            .unwrap()
    }

    /// A path in the directory of the session.
    fn path(&self, name: impl AsRef<[u8]>) -> SandboxPath {
        use std::os::unix::ffi::OsStrExt as _;
        let session = SandboxPath::new(self.session().as_os_str().as_bytes()).unwrap();
        session.join(name).unwrap()
    }

    async fn open(&self) -> Arc<dyn Sandbox> {
        open(&self.backend(), &self.address()).await
    }
}

async fn open(backend: &SshBackend, address: &Address) -> Arc<dyn Sandbox> {
    let handle = backend.resolve(address).await.unwrap();
    backend.open(&handle).await.unwrap()
}
