//! A sandbox that can only run commands.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::backend::{Follow, Read, ReadDigest, Sandbox, Write};
use dray_sandbox::body::Body;
use dray_sandbox::command::{CommandRequest, SandboxCommand};
use dray_sandbox::error::Error;
use dray_sandbox::handle::Handle;
use dray_sandbox::metadata::{FileState, Fingerprint, Listing, Metadata, Probe, Transport};
use dray_sandbox::path::SandboxPath;

use super::channel::{Channel, Exec, RunningCommand};
use super::files::ExecFiles;

/// Checks that the incarnation that was opened is still the one that commands reach.
#[async_trait]
pub trait IncarnationGuard: Debug + Send + Sync {
    /// Called before every command.
    ///
    /// # Errors
    ///
    /// [`dray_sandbox::ErrorKind::SandboxGone`] when the name belongs to another incarnation now.
    async fn check(&self) -> Result<(), Error>;
}

/// Runs commands only while the incarnation is the one that was opened (sandbox-transfer R-1).
#[derive(Clone, Debug)]
pub struct GuardedExec<E> {
    exec: E,
    guard: Arc<dyn IncarnationGuard>,
}

impl<E> GuardedExec<E> {
    /// Runs the commands of `exec`, each after a check of `guard`.
    pub fn new(exec: E, guard: Arc<dyn IncarnationGuard>) -> Self {
        Self { exec, guard }
    }
}

#[async_trait]
impl<E: Exec> Exec for GuardedExec<E> {
    fn channel(&self) -> Channel {
        self.exec.channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        self.guard.check().await?;
        self.exec.run(argv, stdin).await
    }

    async fn run_shell(&self, input: Body) -> Result<RunningCommand, Error> {
        self.guard.check().await?;
        self.exec.run_shell(input).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.guard.check().await?;
        self.exec.ready().await
    }
}

/// A [`Sandbox`] that does everything with [`ExecFiles`].
#[derive(Debug)]
pub struct ExecSandbox<E> {
    handle: Handle,
    files: ExecFiles<E>,
}

impl<E: Exec + 'static> ExecSandbox<E> {
    /// Makes a sandbox of an incarnation; `exec` runs commands in it.
    pub fn new(handle: Handle, exec: E) -> Self {
        Self {
            handle,
            files: ExecFiles::new(exec),
        }
    }

    /// Keeps one shell for its requests: see [`ExecFiles::with_persistent_shell`].
    #[must_use]
    pub fn with_persistent_shell(mut self) -> Self {
        self.files = self.files.with_persistent_shell();
        self
    }

    /// Keeps one shell for its short requests: see [`ExecFiles::with_request_shell`].
    #[must_use]
    pub fn with_request_shell(mut self) -> Self {
        self.files = self.files.with_request_shell();
        self
    }

    /// The files of the sandbox, for operations beyond [`Sandbox`].
    pub fn files(&self) -> &ExecFiles<E> {
        &self.files
    }
}

#[async_trait]
impl<E: Exec + 'static> Sandbox for ExecSandbox<E> {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        self.files.probe().await
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        self.files.stat(path, follow).await
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        self.files.list(path, depth, limit).await
    }

    fn transports(&self, _path: &SandboxPath) -> Vec<Transport> {
        self.files.transports()
    }

    fn resumes(&self, transport: Transport) -> bool {
        self.files.resumes(transport)
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        self.files.read(read).await
    }

    fn reads_with_digest(&self, read: &Read<'_>) -> bool {
        self.files.reads_with_digest(read)
    }

    async fn read_with_digest(&self, read: Read<'_>) -> Result<(Body, ReadDigest), Error> {
        self.files.read_with_digest(read).await
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        self.files.write(write, body).await
    }

    async fn write_with_digest(
        &self,
        write: Write<'_>,
        body: Body,
    ) -> Result<Option<Fingerprint>, Error> {
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
