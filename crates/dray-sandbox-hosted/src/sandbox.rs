//! One incarnation.
//!
//! Commands of the sandbox user make the file that an upload fills: that is where an existing name, a link and missing
//! rights show.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::{
    Body, Error, ErrorKind, FileKind, Fingerprint, Follow, Handle, Listing, Metadata, Probe, Read,
    Sandbox, SandboxPath, Transport, Write,
};
use dray_sandbox_exec::ExecFiles;

use crate::files;
use crate::provider::Provider;

/// One opened incarnation.
#[derive(Debug)]
pub struct HostedSandbox<P: Provider> {
    provider: Arc<P>,
    commands: ExecFiles<P::Commands>,
}

impl<P: Provider> HostedSandbox<P> {
    /// Files by the calls of `provider` and by `commands`.
    pub fn new(provider: Arc<P>, commands: P::Commands) -> Self {
        Self {
            commands: ExecFiles::new(commands),
            provider,
        }
    }

    /// Fails unless the path still leads to the file that was looked at.
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
        // The provider would wait for a pipe for ever: look before it opens, and again at what it opened.
        self.check(read.file).await?;
        if read.offset > 0 && read.offset >= read.file.size {
            return Ok(Body::from_bytes(Vec::new()).exactly(0));
        }
        let body = files::download(&self.provider, read).await?;
        self.check(read.file).await?;
        Ok(body)
    }

    async fn upload(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        // Before anything is made in the sandbox: JSON and queries carry UTF-8 only.
        write.path.to_text()?;
        // Commands continue what was cut: providers only write whole files.
        let by_commands = Write {
            transport: Transport::ExecBase64,
            ..write
        };
        if write.offset > 0 || write.size == 0 {
            return self.commands.write(by_commands, body).await;
        }
        // The upload overwrites what it finds. An empty file that a command made exclusively claims the name first.
        let claim = Write {
            size: 0,
            ..by_commands
        };
        self.commands
            .write(claim, Body::from_bytes(Vec::new()))
            .await?;
        files::upload(self.provider.as_ref(), write, body).await?;
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
impl<P: Provider> Sandbox for HostedSandbox<P> {
    fn handle(&self) -> &Handle {
        self.provider.handle()
    }

    async fn probe(&self) -> Result<Probe, Error> {
        let left = self.provider.life_left().await?;
        let probe = self.commands.probe().await?;
        Ok(Probe {
            transports: self.transports(&probe.working_directory),
            life_ms: left.and_then(|left| u64::try_from(left.as_millis()).ok()),
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
            // An old version, or a target on another file system: commands can do that, and say whether it was atomic.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ToolMissing | ErrorKind::Unavailable | ErrorKind::Protocol
                ) =>
            {
                tracing::debug!(%error, "renamed by a command");
            }
            Err(error) => return Err(error),
        }
        self.commands.rename(from, to, replace).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.commands.make_directory(path).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        self.commands.remove(path, recursive).await
    }

    async fn read_tree(&self, path: &SandboxPath) -> Result<Body, Error> {
        if P::HAS_LONG_OUTPUT {
            return self.commands.read_tree(path).await;
        }
        Err(Error::new(ErrorKind::ToolMissing, "no tar stream here"))
    }

    async fn ensure_life(&self, needed: Duration) -> Result<(), Error> {
        self.provider.ensure_life(needed).await
    }
}
