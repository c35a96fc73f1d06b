//! An opened sandbox: one task of it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::{
    Body, CommandRequest, Error, ErrorKind, Fingerprint, Follow, Handle, Listing, Metadata, Probe,
    Read, Sandbox, SandboxCommand, SandboxPath, Transport, Write,
};
use dray_sandbox_exec::ExecFiles;
use futures_util::stream;

use crate::exec::ModalExec;
use crate::router::Router;
use crate::tools::{Tools, require_regular};

/// The owner's write permission: without it the tool cannot write to the claimed file.
const OWNER_WRITES: u32 = 0o200;

/// A sandbox that moves the bytes of files with the file tool and does everything else with a shell; without a shell,
/// it uses the tool for everything that the tool can do.
#[derive(Clone, Debug)]
pub(crate) struct ModalSandbox {
    handle: Handle,
    files: ExecFiles<ModalExec>,
    tools: Arc<Tools<ModalExec>>,
}

impl ModalSandbox {
    pub(crate) fn new(handle: Handle, router: Arc<Router>) -> Self {
        let exec = ModalExec::new(router);
        Self {
            handle,
            tools: Arc::new(Tools::new(Arc::new(exec.clone()))),
            files: ExecFiles::new(exec),
        }
    }

    /// Metadata of a path now, without following a link.
    async fn stat_path(&self, path: &SandboxPath) -> Result<Metadata, Error> {
        self.stat(path, Follow::No).await
    }

    /// Fails unless the file is still the one with this metadata.
    async fn check_unchanged(&self, file: &Metadata) -> Result<(), Error> {
        let changed = |reason: &str| Err(Error::new(ErrorKind::ChangedDuringTransfer, reason));
        let current = match self.stat_path(&file.real_path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return changed("the file no longer exists");
            }
            // Other failures say nothing about the file.
            current => current?,
        };
        if current.real_path != file.real_path {
            return changed("the path contains a link now");
        }
        if current.link_target.is_some() {
            return changed("a link is there now");
        }
        require_regular(&current)?;
        if current.size != file.size {
            return changed("it has another size");
        }
        match (current.identity, file.identity) {
            (Some(current), Some(before)) if current != before => changed("another file is there"),
            _ => Ok(()),
        }
    }

    /// Reads with the tool. It reports no inode, so the path is examined before and after.
    async fn read_by_tool(&self, read: Read<'_>) -> Result<Body, Error> {
        if read.offset != 0 {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the file tool cannot begin at an offset",
            ));
        }
        require_regular(read.file)?;
        self.check_unchanged(read.file).await?;
        // The comparison after the read needs the identity before the read.
        let before = self.stat_path(&read.file.real_path).await?;
        let body = self.tools.read(&before.real_path, before.size).await?;
        let state = Some((body, self.clone(), before));
        Ok(Body::new(stream::unfold(state, async |state| {
            let (mut body, sandbox, before) = state?;
            match body.next().await {
                Some(Ok(chunk)) => Some((Ok(chunk), Some((body, sandbox, before)))),
                Some(Err(error)) => Some((Err(error), None)),
                // The identity is compared after the last byte: only then a replacement during the read is visible.
                None => {
                    let failed = sandbox.check_unchanged(&before).await.err()?;
                    Some((Err(failed), None))
                }
            }
        })))
    }

    /// Writes with the tool. The tool overwrites files and follows links, so the name is claimed first.
    async fn write_by_tool(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        if write.offset != 0 {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the file tool cannot append",
            ));
        }
        if write.mode & OWNER_WRITES == 0 {
            let closed = "the file tool cannot write to a file without write permission";
            return Err(Error::new(ErrorKind::ToolMissing, closed));
        }
        // The tool takes text, so a name that is not UTF-8 fails before anything is created.
        write.path.to_text()?;
        self.claim(write).await?;
        let body = body.exactly(write.size);
        // An empty file is complete with the claim; the body must be empty as well.
        if write.size == 0 {
            return body.read_all(0).await.map(drop);
        }
        // The status of the tool does not prove the write.
        self.tools.write(write.path, body).await?;
        let found = self.stat_path(write.path).await?;
        require_regular(&found)?;
        if found.size != write.size {
            let kind = if found.size < write.size {
                ErrorKind::Truncated
            } else {
                ErrorKind::Corrupted
            };
            let context = format!("{} of {} bytes were written", found.size, write.size);
            return Err(Error::new(kind, context));
        }
        Ok(())
    }

    /// Creates an empty file with the right mode, unless the name exists.
    async fn claim(&self, write: Write<'_>) -> Result<(), Error> {
        let empty_write = Write {
            transport: Transport::ExecRaw,
            size: 0,
            ..write
        };
        let claimed = self
            .files
            .write(empty_write, Body::from_bytes(Bytes::new()))
            .await;
        if !lacks_tool(&claimed) {
            return claimed;
        }
        // Without a shell only `stat` checks the name; another writer may create the file in between.
        match self.tools.stat(write.path, Follow::No).await {
            Ok(_) => Err(Error::new(ErrorKind::Exists, "the path exists")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let parent = self.tools.stat(&write.path.parent(), Follow::Yes).await?;
                match parent.kind {
                    dray_sandbox::FileKind::Directory if write.size == 0 => {
                        let empty = Body::from_bytes(Bytes::new());
                        self.tools.write(write.path, empty).await
                    }
                    dray_sandbox::FileKind::Directory => Ok(()),
                    _ => Err(Error::new(ErrorKind::NotDirectory, "the parent is a file")),
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the shell is missing, or lacks a program.
fn lacks_tool<T>(result: &Result<T, Error>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::ToolMissing)
}

#[async_trait]
impl Sandbox for ModalSandbox {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        let transports = self.transports(&SandboxPath::root());
        let probe = self.files.probe().await;
        if !lacks_tool(&probe) {
            return Ok(Probe {
                transports,
                ..probe?
            });
        }
        // Fails when the tool is missing as well. The tool runs as root.
        self.tools.stat(&SandboxPath::root(), Follow::No).await?;
        Ok(Probe {
            home: SandboxPath::root(),
            working_directory: SandboxPath::root(),
            uid: 0,
            gid: 0,
            free: None,
            transports,
            tools: Vec::new(),
            life_ms: None,
        })
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let found = self.files.stat(path, follow).await;
        if lacks_tool(&found) {
            return self.tools.stat(path, follow).await;
        }
        found
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        let found = self.files.list(path, depth, limit).await;
        if lacks_tool(&found) {
            return self.tools.list(path, depth, limit).await;
        }
        found
    }

    fn transports(&self, _path: &SandboxPath) -> Vec<Transport> {
        // The order of sandbox-transfer 2.
        let mut transports = vec![Transport::Files];
        transports.extend(self.files.transports());
        transports
    }

    fn resumes(&self, transport: Transport) -> bool {
        self.files.resumes(transport)
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        match read.transport {
            Transport::Files => self.read_by_tool(read).await,
            _ => self.files.read(read).await,
        }
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        match write.transport {
            Transport::Files => self.write_by_tool(write, body).await,
            _ => self.files.write(write, body).await,
        }
    }

    async fn change_marker(&self, path: &SandboxPath) -> Result<Option<String>, Error> {
        self.files.change_marker(path).await
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        let found = self.files.fingerprint(path).await;
        if lacks_tool(&found) {
            return self.tools.fingerprint(path).await;
        }
        found
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
        let result = self.files.make_directory(path).await;
        if lacks_tool(&result) {
            return self.tools.make_directory(path).await;
        }
        result
    }

    async fn make_directories(&self, paths: &[SandboxPath]) -> Result<(), Error> {
        let result = self.files.make_directories(paths).await;
        if lacks_tool(&result) {
            for path in paths {
                self.tools.make_directory(path).await?;
            }
            return Ok(());
        }
        result
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        let removed = self.files.remove(path, recursive).await;
        if lacks_tool(&removed) {
            return self.tools.remove(path, recursive).await;
        }
        removed
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
