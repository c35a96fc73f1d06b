//! One opened incarnation of a hosted sandbox.
//!
//! A command of the sandbox user creates the empty file, and an upload of the provider fills it. The command fails when
//! the name exists, is a link, or the user lacks permission.

use dray_types::whole_millis;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::{
    Body, CommandRequest, Error, ErrorKind, FileKind, Fingerprint, Follow, Handle, Listing,
    Metadata, Probe, Read, Sandbox, SandboxCommand, SandboxPath, Transport, Write,
};
use dray_sandbox_exec::ExecFiles;

use crate::files;
use crate::provider::Provider;

/// One opened incarnation of a hosted sandbox.
#[derive(Debug)]
pub struct HostedSandbox<P: Provider> {
    provider: Arc<P>,
    commands: ExecFiles<P::Commands>,
}

impl<P: Provider> HostedSandbox<P> {
    /// A sandbox whose files are transferred by `provider` and by `commands`.
    pub fn new(provider: Arc<P>, commands: P::Commands) -> Self {
        Self {
            commands: ExecFiles::new(commands),
            provider,
        }
    }

    /// Fails unless the path still leads to the file with this metadata.
    async fn check(&self, file: &Metadata) -> Result<(), Error> {
        let current = self.commands.stat(&file.real_path, Follow::No).await?;
        match current.kind {
            FileKind::File => {}
            FileKind::Directory => {
                return Err(Error::new(
                    ErrorKind::IsDirectory,
                    "the path is a directory",
                ));
            }
            FileKind::Symlink => {
                let context = "a link replaced the file";
                return Err(Error::new(ErrorKind::ChangedDuringTransfer, context));
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::NotRegular,
                    "the path is not a regular file",
                ));
            }
        }
        let known = file.identity.is_some();
        if current.real_path != file.real_path || (known && current.identity != file.identity) {
            let context = "another file replaced the file";
            return Err(Error::new(ErrorKind::ChangedDuringTransfer, context));
        }
        Ok(())
    }

    async fn download(&self, read: Read<'_>) -> Result<Body, Error> {
        // The file is checked before the download, because the provider would wait forever for a pipe, and again
        // afterwards.
        self.check(read.file).await?;
        if read.offset > 0 && read.offset >= read.file.size {
            return Ok(Body::from_bytes(Vec::new()).exactly(0));
        }
        let body = files::download(&self.provider, read).await?;
        self.check(read.file).await?;
        Ok(body)
    }

    async fn upload(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        // The API needs UTF-8 paths. Checked before the sandbox is changed.
        write.path.to_text()?;
        // Providers only write whole files, so a command continues an interrupted write.
        let by_commands = Write {
            transport: Transport::ExecBase64,
            ..write
        };
        if write.offset > 0 || write.size == 0 {
            return self.commands.write(by_commands, body).await;
        }
        // The upload would overwrite an existing file. So a command first creates an empty file exclusively.
        let claim = Write {
            size: 0,
            ..by_commands
        };
        self.commands
            .write(claim, Body::from_bytes(Vec::new()))
            .await?;
        files::upload(self.provider.as_ref(), write, body).await?;
        let written = self.commands.stat(write.path, Follow::No).await?;
        if written.kind != FileKind::File {
            let context = "the new file was replaced";
            return Err(Error::new(ErrorKind::ChangedDuringTransfer, context));
        }
        if written.size < write.size {
            let context = format!("the file has {} of {} bytes", written.size, write.size);
            return Err(Error::new(ErrorKind::Truncated, context));
        }
        if written.size > write.size {
            return Err(Error::new(
                ErrorKind::Corrupted,
                "the file has too many bytes",
            ));
        }
        Ok(())
    }
}

#[async_trait]
impl<P: Provider> Sandbox for HostedSandbox<P> {
    fn handle(&self) -> &Handle {
        self.provider.handle()
    }

    async fn probe(&self) -> Result<Probe, Error> {
        let remaining = self.provider.life_left().await?;
        let probe = self.commands.probe().await?;
        Ok(Probe {
            transports: self.transports(&probe.working_directory),
            life_ms: remaining.map(whole_millis),
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
        match transport {
            Transport::Files => P::HAS_RANGES,
            transport => transport == Transport::ExecBase64,
        }
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

    async fn change_marker(&self, path: &SandboxPath) -> Result<Option<String>, Error> {
        self.commands.change_marker(path).await
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
        if !replace {
            return self.commands.rename(from, to, replace).await;
        }
        match self.provider.replace(from.to_text()?, to.to_text()?).await {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // The provider is an old version, or the target is on another file system. A command can rename and reports
            // whether the rename was atomic.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ToolMissing | ErrorKind::Unavailable | ErrorKind::Protocol
                ) =>
            {
                tracing::debug!(%error, "the provider did not rename a file; a command does");
            }
            Err(error) => return Err(error),
        }
        self.commands.rename(from, to, replace).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.commands.make_directory(path).await
    }

    async fn make_directories(&self, paths: &[SandboxPath]) -> Result<(), Error> {
        self.commands.make_directories(paths).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        self.commands.remove(path, recursive).await
    }

    async fn read_tree(&self, path: &SandboxPath) -> Result<(Body, Transport), Error> {
        if P::HAS_LONG_OUTPUT {
            return self.commands.read_tree(path).await;
        }
        Err(Error::new(
            ErrorKind::ToolMissing,
            "this sandbox has no tar stream",
        ))
    }

    async fn execute(&self, request: CommandRequest) -> Result<SandboxCommand, Error> {
        self.commands.execute(request).await
    }

    async fn settled(&self) {
        self.commands.settled().await;
    }

    async fn ensure_lifetime(&self, needed: Duration) -> Result<(), Error> {
        self.provider.ensure_lifetime(needed).await
    }
}
