//! One incarnation.
//!
//! The toolbox follows links, makes missing parents and replaces what it finds, and moves no bytes from the middle.
//! Everything else is therefore done by commands of the sandbox user, who also make the file that an upload fills:
//! that is where an existing name, a link and missing rights show.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::exec::ExecFiles;
use dray_sandbox::{
    Body, Error, ErrorKind, FileKind, Fingerprint, Follow, Handle, Listing, Metadata, Probe, Read,
    Sandbox, SandboxPath, Transport, Write,
};

use crate::files;
use crate::link::Link;
use crate::process::Processes;

/// One opened incarnation.
#[derive(Debug)]
pub(crate) struct DaytonaSandbox {
    link: Arc<Link>,
    commands: ExecFiles<Processes>,
}

impl DaytonaSandbox {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self {
            commands: ExecFiles::new(Processes::new(Arc::clone(&link))),
            link,
        }
    }

    /// Whether a path still is the file that was looked at.
    async fn check(&self, file: &Metadata) -> Result<(), Error> {
        let now = self.commands.stat(&file.real_path, Follow::No).await?;
        match now.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::new(ErrorKind::IsDirectory, "a directory")),
            FileKind::Symlink => {
                let context = "a link took the place of the file";
                return Err(Error::new(ErrorKind::ChangedDuringTransfer, context));
            }
            _ => return Err(Error::new(ErrorKind::NotRegular, "not a regular file")),
        }
        let known = file.identity.is_some();
        if now.real_path != file.real_path || (known && now.identity != file.identity) {
            let context = "another file took the place of the file";
            return Err(Error::new(ErrorKind::ChangedDuringTransfer, context));
        }
        Ok(())
    }

    async fn download(&self, read: Read<'_>) -> Result<Body, Error> {
        // The toolbox would wait for a pipe for ever: look before it opens, and again at what it opened.
        self.check(read.file).await?;
        let body = files::download(&self.link, read.file).await?;
        self.check(read.file).await?;
        Ok(body)
    }

    async fn upload(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        write.path.to_text()?;
        let by_commands = Write {
            transport: Transport::ExecBase64,
            ..write
        };
        if write.size == 0 {
            return self.commands.write(by_commands, body).await;
        }
        let claim = Write {
            size: 0,
            ..by_commands
        };
        self.commands
            .write(claim, Body::from_bytes(Vec::new()))
            .await?;
        files::upload(&self.link, write, body).await?;
        let there = self.commands.stat(write.path, Follow::No).await?;
        if there.kind != FileKind::File {
            let context = "something else took the place of the new file";
            return Err(Error::new(ErrorKind::ChangedDuringTransfer, context));
        }
        if there.size < write.size {
            let context = format!("{} of {} bytes are there", there.size, write.size);
            return Err(Error::new(ErrorKind::Truncated, context));
        }
        if there.size > write.size {
            return Err(Error::new(ErrorKind::Corrupted, "too many bytes are there"));
        }
        Ok(())
    }
}

#[async_trait]
impl Sandbox for DaytonaSandbox {
    fn handle(&self) -> &Handle {
        &self.link.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        let control = &self.link.control;
        let info = control.usable(&self.link.handle.incarnation).await?;
        let probe = self.commands.probe().await?;
        let left = info.left(&control.clock).map(|left| left.as_millis());
        Ok(Probe {
            transports: self.transports(&probe.working_directory),
            life_ms: left.and_then(|left| u64::try_from(left).ok()),
            ..probe
        })
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        self.commands.stat(path, follow).await
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        self.commands.list(path, depth, limit).await
    }

    fn transports(&self, _path: &SandboxPath) -> Vec<Transport> {
        vec![Transport::Files, Transport::ExecBase64]
    }

    fn resumes(&self, transport: Transport) -> bool {
        transport == Transport::ExecBase64
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        match read.transport {
            Transport::Files => self.download(read).await,
            _ => self.commands.read(read).await,
        }
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        match write.transport {
            Transport::Files => self.upload(write, body).await,
            _ => self.commands.write(write, body).await,
        }
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        self.commands.fingerprint(path).await
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        self.commands.rename(from, to, replace).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.commands.make_directory(path).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        self.commands.remove(path, recursive).await
    }

    async fn ensure_life(&self, needed: Duration) -> Result<(), Error> {
        let control = &self.link.control;
        let info = control.usable(&self.link.handle.incarnation).await?;
        match info.left(&control.clock) {
            Some(left) if left < needed => {
                let context = format!("{left:?} of life are left and {needed:?} are needed");
                Err(Error::new(ErrorKind::SandboxGone, context))
            }
            _ => Ok(()),
        }
    }
}
