//! One opened instance.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{
    Body, CommandRequest, Error, ErrorKind, FileState, Fingerprint, Follow, Handle, Listing,
    Metadata, Probe, Read, ReadDigest, Sandbox, SandboxCommand, SandboxPath, Transport, Write,
};
use dray_sandbox_exec::{ExecFiles, GuardedExec, IncarnationGuard, LocalExec};
use tokio::sync::oneshot;

use crate::exchange::BoundExchange;

/// Runs a command for each operation, but reads and writes files in the exchange directory on this host.
#[derive(Debug)]
pub(crate) struct ApptainerSandbox {
    handle: Handle,
    guard: Arc<dyn IncarnationGuard>,
    pub(crate) files: ExecFiles<GuardedExec<LocalExec>>,
    pub(crate) bound: Option<BoundExchange>,
    /// Whether the home directory is reported as working directory, because commands start in `/`.
    pub(crate) home_is_working_directory: bool,
}

impl ApptainerSandbox {
    pub(crate) fn new(
        handle: Handle,
        exec: GuardedExec<LocalExec>,
        guard: Arc<dyn IncarnationGuard>,
    ) -> Self {
        Self {
            handle,
            guard,
            files: ExecFiles::new(exec),
            bound: None,
            home_is_working_directory: false,
        }
    }

    /// The exchange directory that holds a path, and the path on this host.
    async fn direct(&self, path: &SandboxPath) -> Result<(&BoundExchange, SandboxPath), Error> {
        // The files on this host outlive the instance, so this checks that it still runs. Commands check that by
        // themselves.
        self.guard.check().await?;
        self.bound
            .as_ref()
            .and_then(|bound| Some((bound, bound.on_host(path)?)))
            .ok_or_else(|| Error::new(ErrorKind::ToolMissing, "not in the exchange directory"))
    }
}

#[async_trait]
impl Sandbox for ApptainerSandbox {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        let mut probe = self.files.probe().await?;
        if self.home_is_working_directory {
            probe.working_directory = probe.home.clone();
        }
        if self.bound.is_some() {
            // This transport comes first, because the list is in the order of preference.
            probe.transports.insert(0, Transport::Direct);
        }
        Ok(probe)
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        self.files.stat(path, follow).await
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        self.files.list(path, depth, limit).await
    }

    fn transports(&self, path: &SandboxPath) -> Vec<Transport> {
        let mut transports = self.files.transports();
        let bound = self.bound.as_ref();
        if bound.is_some_and(|bound| bound.on_host(path).is_some()) {
            transports.insert(0, Transport::Direct);
        }
        transports
    }

    fn resumes(&self, transport: Transport) -> bool {
        match (transport, &self.bound) {
            (Transport::Direct, Some(bound)) => bound.local.resumes(transport),
            _ => self.files.resumes(transport),
        }
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        if read.transport != Transport::Direct {
            return self.files.read(read).await;
        }
        let (bound, path) = self.direct(&read.file.real_path).await?;
        let file = Metadata {
            real_path: path,
            ..read.file.clone()
        };
        let read = Read {
            file: &file,
            ..read
        };
        bound.local.read(read).await
    }

    fn reads_with_digest(&self, read: &Read<'_>) -> bool {
        // Files of the exchange directory are read on this host, where no command computes a digest beside the copy.
        read.transport != Transport::Direct && self.files.reads_with_digest(read)
    }

    async fn read_with_digest(&self, read: Read<'_>) -> Result<(Body, ReadDigest), Error> {
        if read.transport != Transport::Direct {
            return self.files.read_with_digest(read).await;
        }
        // The dropped sender shows the caller that no digest was computed.
        let (_, none) = oneshot::channel();
        Ok((self.read(read).await?, none))
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        if write.transport != Transport::Direct {
            return self.files.write(write, body).await;
        }
        let (bound, path) = self.direct(write.path).await?;
        let write = Write {
            path: &path,
            ..write
        };
        bound.local.write(write, body).await
    }

    async fn write_with_digest(
        &self,
        write: Write<'_>,
        body: Body,
    ) -> Result<Option<Fingerprint>, Error> {
        if write.transport == Transport::Direct {
            return self.write(write, body).await.map(|()| None);
        }
        self.files.write_with_digest(write, body).await
    }

    async fn state(&self, path: &SandboxPath) -> Result<FileState, Error> {
        self.files.state(path).await
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        self.files.fingerprint(path).await
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        self.files.rename(from, to, replace).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.files.make_directory(path).await
    }

    async fn make_directories(&self, paths: &[SandboxPath]) -> Result<(), Error> {
        self.files.make_directories(paths).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        self.files.remove(path, recursive).await
    }

    async fn read_tree(&self, path: &SandboxPath) -> Result<(Body, Transport), Error> {
        self.files.read_tree(path).await
    }

    async fn write_tree(&self, path: &SandboxPath, tar: Body) -> Result<Transport, Error> {
        self.files.write_tree(path, tar).await
    }

    async fn execute(&self, request: CommandRequest) -> Result<SandboxCommand, Error> {
        self.files.execute(request).await
    }

    async fn settled(&self) {
        self.files.settled().await;
    }
}
