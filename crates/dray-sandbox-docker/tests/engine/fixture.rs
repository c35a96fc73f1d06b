//! The fixture of the tests: one opened container.

use std::sync::Arc;

use bytes::Bytes;
use dray_sandbox::{
    Address, Backend, Body, Error, ErrorKind, Follow, Metadata, Read, Sandbox, SandboxPath,
    Transport, Write,
};
use dray_sandbox_docker::{Config, DockerBackend};
use dray_testkit::docker::{Container, ContainerOptions, DockerEngine};
use dray_types::Clock;

/// The fixed time of the tests, in seconds since the epoch.
pub(crate) const NOW_S: u64 = 1_700_000_000;

pub(crate) fn backend(endpoint: String) -> Arc<DockerBackend> {
    let config = Config {
        endpoint,
        ..Config::default()
    };
    let clock = Clock::manual(NOW_S * 1000);
    Arc::new(DockerBackend::new(&config, clock).unwrap())
}

pub(crate) fn endpoint(engine: &DockerEngine) -> String {
    format!("unix://{}", engine.socket().display())
}

pub(crate) fn address(name: &str) -> Address {
    Address {
        backend: "docker".into(),
        name: name.to_owned(),
    }
}

pub(crate) fn path(path: impl AsRef<[u8]>) -> SandboxPath {
    SandboxPath::new(path).unwrap()
}

#[track_caller]
pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// A container, and the sandbox that the backend opened for it.
pub(crate) struct ContainerFixture {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) container: Container,
    pub(crate) backend: Arc<DockerBackend>,
    pub(crate) engine: DockerEngine,
}

impl ContainerFixture {
    /// Runs a container as `agent`.
    pub(crate) async fn agent() -> Self {
        Self::of(ContainerOptions {
            user: "agent".into(),
            ..ContainerOptions::default()
        })
        .await
    }

    pub(crate) async fn of(options: ContainerOptions) -> Self {
        Self::on(DockerEngine::shared(), options).await
    }

    pub(crate) async fn on(engine: DockerEngine, options: ContainerOptions) -> Self {
        let container = engine.container(options);
        let backend = backend(endpoint(&engine));
        let handle = backend.resolve(&address(container.name())).await.unwrap();
        assert_eq!(handle.incarnation, container.id());
        let sandbox = backend.open(&handle).await.unwrap();
        Self {
            sandbox,
            container,
            backend,
            engine,
        }
    }

    pub(crate) async fn stat(&self, at: &str) -> Result<Metadata, Error> {
        self.sandbox.stat(&path(at), Follow::Yes).await
    }

    /// Looks at a file and begins to read it through the archive calls.
    pub(crate) async fn open(&self, at: &str) -> Result<Body, Error> {
        let file = self.stat(at).await?;
        self.open_as(&file).await
    }

    pub(crate) async fn open_as(&self, file: &Metadata) -> Result<Body, Error> {
        let read = Read {
            transport: Transport::Archive,
            file,
            offset: 0,
        };
        self.sandbox.read(read).await
    }

    pub(crate) async fn read(&self, at: &str) -> Result<Vec<u8>, Error> {
        self.open(at).await?.read_all(512 << 20).await
    }

    /// Writes a new file through the archive calls.
    pub(crate) async fn write(&self, at: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write_by(Transport::Archive, at, bytes).await
    }

    pub(crate) async fn write_by(
        &self,
        transport: Transport,
        at: &str,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let at = path(at);
        let write = Write {
            transport,
            path: &at,
            size: bytes.len() as u64,
            offset: 0,
            mode: 0o644,
        };
        let chunks: Vec<_> = bytes
            .chunks(64 << 10)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        let body = Body::new(futures_util::stream::iter(chunks));
        self.sandbox.write(write, body).await
    }

    /// The content of a file as a process in the container reads it.
    pub(crate) fn cat(&self, at: &str) -> Vec<u8> {
        self.container.exec("0", &["cat", at]).stdout
    }
}
