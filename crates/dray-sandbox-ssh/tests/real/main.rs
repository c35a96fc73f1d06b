//! Tests of the backend with the real OpenSSH.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test"
)]

mod conformance;
mod engine;
mod fallbacks;
mod faults;
mod login;
mod names;
mod sharing;
mod space;

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use dray_sandbox::{
    Address, Backend as _, Body, Error, ErrorKind, Follow, Read, Sandbox, SandboxPath, Transport,
    Write,
};
use dray_sandbox_ssh::{Config, HostKeys, SshBackend};
use dray_testkit::sshd::{Sshd, SshdOptions};

/// A server, a directory on it, and a backend that may log in.
#[derive(Debug)]
struct SshFixture {
    server: Sshd,
    control: tempfile::TempDir,
    work: tempfile::TempDir,
}

impl SshFixture {
    fn start(options: &SshdOptions) -> Self {
        Self {
            server: Sshd::start(options),
            control: tempfile::tempdir_in("/tmp").unwrap(),
            work: tempfile::tempdir().unwrap(),
        }
    }

    fn config(&self) -> Config {
        Config {
            control_directory: Some(self.control()),
            host_keys: HostKeys::AcceptNew,
            config_file: Some("none".into()),
            identity_file: Some(self.server.key()),
            ..Config::default()
        }
    }

    fn control(&self) -> PathBuf {
        self.control.path().join("c")
    }

    fn backend(&self) -> SshBackend {
        SshBackend::new(self.config()).unwrap()
    }

    /// The directory of the session.
    fn session(&self) -> PathBuf {
        self.work.path().canonicalize().unwrap()
    }

    fn address(&self) -> Address {
        let (user, port) = (self.server.user(), self.server.port());
        format!("ssh:{user}@127.0.0.1:{port}{}", self.session().display())
            .parse()
            .unwrap()
    }

    /// The directory of the session, on the host.
    fn root(&self) -> SandboxPath {
        SandboxPath::new(self.session().as_os_str().as_bytes()).unwrap()
    }

    /// A path in the directory of the session.
    fn path(&self, name: impl AsRef<[u8]>) -> SandboxPath {
        self.root().join(name).unwrap()
    }

    async fn open(&self) -> Arc<dyn Sandbox> {
        open(&self.backend(), &self.address()).await
    }

    /// Number of logins.
    fn logins(&self) -> usize {
        self.server.log().matches("Accepted publickey").count()
    }

    /// Creates a file on the host without the backend.
    fn make(&self, name: &str, bytes: impl AsRef<[u8]>) -> SandboxPath {
        std::fs::write(self.session().join(name), bytes).unwrap();
        self.path(name)
    }
}

async fn open(backend: &SshBackend, address: &Address) -> Arc<dyn Sandbox> {
    let handle = backend.resolve(address).await.unwrap();
    backend.open(&handle).await.unwrap()
}

fn best_transport(sandbox: &dyn Sandbox, path: &SandboxPath) -> Transport {
    sandbox.transports(path).first().copied().unwrap()
}

async fn write(sandbox: &dyn Sandbox, path: &SandboxPath, bytes: &[u8]) -> Result<(), Error> {
    let write = Write {
        transport: best_transport(sandbox, path),
        path,
        size: bytes.len() as u64,
        offset: 0,
        mode: 0o644,
    };
    sandbox.write(write, Body::from_bytes(bytes.to_vec())).await
}

async fn begin_read(
    sandbox: &dyn Sandbox,
    path: &SandboxPath,
    transport: Transport,
) -> Result<Body, Error> {
    let file = sandbox.stat(path, Follow::Yes).await?;
    let read = Read {
        transport,
        file: &file,
        offset: 0,
    };
    sandbox.read(read).await
}

async fn read(sandbox: &dyn Sandbox, path: &SandboxPath) -> Result<Vec<u8>, Error> {
    let body = begin_read(sandbox, path, best_transport(sandbox, path)).await?;
    body.read_all(256 << 20).await
}

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("the operation must fail"),
        Err(error) => error.kind(),
    }
}
