//! A local directory as a sandbox.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::backend::{Follow, Read, Sandbox, Write};
use dray_sandbox::body::Body;
use dray_sandbox::command::{CommandRequest, SandboxCommand};
use dray_sandbox::error::Error;
use dray_sandbox::handle::Handle;
use dray_sandbox::metadata::{FileKind, Fingerprint, Listing, Metadata, Probe, Transport};
use dray_sandbox::path::SandboxPath;
use dray_sandbox_exec::{ExecFiles, LocalExec};

use super::beneath::link_target;
use super::blocking::{self, AbandonedFlag};
use super::root::Root;
use super::write::free;

#[derive(Debug)]
pub(super) struct LocalSandbox {
    handle: Handle,
    root: Arc<Root>,
    /// Programs that a caller runs: processes of this host, as the user of the service.
    commands: ExecFiles<LocalExec>,
}

impl LocalSandbox {
    pub(super) fn new(handle: Handle, root: Root) -> Self {
        let home = OsString::from_vec(root.real.as_bytes().to_vec());
        let none: [&str; 0] = [];
        let exec = LocalExec::new(none)
            .with_environment([("HOME", home.clone())])
            .with_directory(home);
        Self {
            handle,
            root: Arc::new(root),
            commands: ExecFiles::new(exec),
        }
    }

    /// Runs `work` on a blocking thread, if the directory is still the one that was opened.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root, &AbandonedFlag) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let root = Arc::clone(&self.root);
        blocking::run(move |abandoned| {
            root.check_not_replaced()?;
            work(&root, abandoned)
        })
        .await
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        self.run(|root, _| {
            Ok(Probe {
                home: root.real.clone(),
                working_directory: root.real.clone(),
                uid: root.stat.uid,
                gid: root.stat.gid,
                free: Some(free(&root.descriptor)?),
                transports: vec![Transport::Direct],
                tools: Vec::new(),
                life_ms: None,
            })
        })
        .await
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let path = path.clone();
        self.run(move |root, _| {
            let found = root.resolve(&path, follow)?;
            let target = match found.stat.kind {
                FileKind::Symlink => Some(link_target(&found.descriptor)?),
                _ => None,
            };
            let real = match target {
                // A link that was not followed keeps the path that was requested.
                Some(_) => path.clone(),
                None => root.path(&found.names)?,
            };
            Ok(found.stat.describe(path, real, target))
        })
        .await
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        let path = path.clone();
        self.run(move |root, abandoned| root.list(&path, depth, limit, abandoned))
            .await
    }

    fn transports(&self, _path: &SandboxPath) -> Vec<Transport> {
        vec![Transport::Direct]
    }

    fn resumes(&self, _transport: Transport) -> bool {
        true
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        let (path, identity) = (read.file.real_path.clone(), read.file.identity);
        let (size, offset) = (read.file.size, read.offset);
        self.run(move |root, _| {
            let source = root.open_source(&path, identity)?;
            source.check_size(size)?;
            Ok(source.into_body(offset))
        })
        .await
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        let (path, size, offset) = (write.path.clone(), write.size, write.offset);
        let target = self
            .run(move |root, _| {
                if offset == 0 {
                    root.create(&path, size)
                } else {
                    root.resume(&path, offset, size)
                }
            })
            .await?;
        let body = body.exactly(size.saturating_sub(offset));
        target.fill(offset, write.mode, body).await
    }

    async fn change_marker(&self, path: &SandboxPath) -> Result<Option<String>, Error> {
        let path = path.clone();
        self.run(move |root, _| {
            let stat = root.resolve(&path, Follow::Yes)?.stat;
            let (device, inode) = stat.identity;
            Ok(Some(format!("{device}:{inode} {}", stat.ctime_ns)))
        })
        .await
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        let path = path.clone();
        self.run(move |root, abandoned| root.open_source(&path, None)?.fingerprint(abandoned))
            .await
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        let (from, to) = (from.clone(), to.clone());
        self.run(move |root, _| root.rename(&from, &to, replace).map(|()| true))
            .await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        let path = path.clone();
        self.run(move |root, _| root.make_directory(&path)).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        let path = path.clone();
        self.run(move |root, abandoned| root.remove(&path, recursive, abandoned))
            .await
    }

    /// The directory confines files, not programs: a program may do what the user of the service may do.
    async fn execute(&self, request: CommandRequest) -> Result<SandboxCommand, Error> {
        let directory = request.directory.clone();
        self.run(move |root, _| root.resolve(&directory, Follow::Yes).map(drop))
            .await?;
        self.commands.execute(request).await
    }

    async fn settled(&self) {
        self.commands.settled().await;
    }
}
