//! One host and session directory, opened.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::{
    Body, CommandRequest, Error, ErrorKind, FileState, Fingerprint, Follow, Handle, Listing,
    Metadata, Probe, Read, ReadDigest, Sandbox, SandboxCommand, SandboxPath, Transport, Write,
};
use dray_sandbox_exec::ExecFiles;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::identity::{self, HostLookup};
use crate::link::HostLink;
use crate::sftp::{self, ChannelLease, Pool};
use crate::shell::Shell;

/// Largest file whose digests come from reading it again.
const MAX_READ_BACK_BYTES: u64 = 64 * 1024;
/// Age from which the probe of the examination is too old to be used.
const FRESH_PROBE_AGE: Duration = Duration::from_secs(1);

/// Files of one host, over SFTP where the host offers it, otherwise over commands.
#[derive(Debug)]
pub(crate) struct SshSandbox {
    handle: Handle,
    link: Arc<HostLink>,
    pool: Pool,
    exec: ExecFiles<Shell>,
    lookup: HostLookup,
    /// The probe that came with the examination, for the first request of a caller who opens and probes in one step.
    fresh_probe: StdMutex<Option<(Instant, Probe)>>,
    /// Session directory as configured.
    directory: Option<SandboxPath>,
    /// Generation of the link in which the incarnation was last checked.
    checked_generation: AtomicU64,
    check_lock: Mutex<()>,
    /// The task that closes the idle shell when another channel needs its place.
    _background: JoinSet<()>,
}

impl SshSandbox {
    /// Connects and examines the host. With `expected`, every other incarnation is refused.
    pub(crate) async fn open(
        link: Arc<HostLink>,
        directory: Option<SandboxPath>,
        name: dray_sandbox::Address,
        expected: Option<&str>,
    ) -> Result<Self, Error> {
        if let Some((fingerprint, _)) = expected.and_then(|expected| expected.split_once(',')) {
            // The key is set before the first connection: no request is sent to a host with another key.
            link.expect(fingerprint).await;
        }
        // The shell that examines the host stays open for the requests that follow.
        let exec = ExecFiles::new(Shell::new(Arc::clone(&link))).with_persistent_shell();
        let pool = Pool::new(Arc::clone(&link));
        let mut background = JoinSet::new();
        background.spawn(make_room(Arc::clone(&link), exec.clone()));
        let mut lookup = identity::examine_host(&link, &exec, &pool, directory.as_ref()).await?;
        let fresh_probe = lookup.probe.take().map(|probe| (Instant::now(), probe));
        if expected.is_some_and(|expected| expected != lookup.incarnation) {
            return Err(replaced_error());
        }
        Ok(Self {
            handle: Handle {
                address: name,
                incarnation: lookup.incarnation.clone(),
            },
            checked_generation: AtomicU64::new(link.generation()),
            link,
            pool,
            exec,
            lookup,
            // A handle may be old: its caller probes to learn whether the host is still the same.
            fresh_probe: StdMutex::new(fresh_probe.filter(|_| expected.is_none())),
            directory,
            check_lock: Mutex::new(()),
            _background: background,
        })
    }

    /// A channel to the incarnation that was opened, which is checked again after every new connection.
    async fn sftp(&self) -> Result<ChannelLease, Error> {
        // The lease comes first: it may connect and so raise the generation that the check compares.
        let lease = self.pool.lease().await?;
        self.check().await?;
        Ok(lease)
    }

    /// Commands in the incarnation that was opened, which is checked again after every new connection.
    async fn exec(&self) -> Result<&ExecFiles<Shell>, Error> {
        if !self.lookup.shell {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "the host runs no commands",
            ));
        }
        // Connects if nothing is connected, for the same reason as in `sftp`.
        self.link.fingerprint().await?;
        self.check().await?;
        Ok(&self.exec)
    }

    async fn check(&self) -> Result<(), Error> {
        if self.checked_generation.load(Ordering::Acquire) == self.link.generation() {
            return Ok(());
        }
        // One check for all tasks that find a new connection at the same time.
        let _one = self.check_lock.lock().await;
        // The generation is read before the check: a connection that is made during the check requires another check.
        let generation = self.link.generation();
        if self.checked_generation.load(Ordering::Acquire) == generation {
            return Ok(());
        }
        let directory = self.directory.as_ref();
        // The files use no persistent shell: an idle one may belong to the connection that was replaced.
        let fresh = ExecFiles::new(self.exec.exec().clone());
        let lookup = identity::examine_host(&self.link, &fresh, &self.pool, directory).await?;
        if lookup.incarnation != self.lookup.incarnation {
            // Its channels lead to another host, which replaced the first one.
            self.pool.clear();
            return Err(replaced_error());
        }
        self.checked_generation.store(generation, Ordering::Release);
        Ok(())
    }
}

/// Ends the shell that waits for its next request whenever another channel finds no room on the host's connections.
async fn make_room(link: Arc<HostLink>, exec: ExecFiles<Shell>) {
    loop {
        link.wait_until_out_of_channels().await;
        exec.release_shell().await;
    }
}

fn replaced_error() -> Error {
    Error::new(
        ErrorKind::SandboxGone,
        "the address now means another host or session directory",
    )
}

#[async_trait]
impl Sandbox for SshSandbox {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        let probe = if let Some(probe) = self.take_fresh_probe() {
            probe
        } else if self.lookup.shell {
            self.exec().await?.probe().await?
        } else {
            self.probe_files().await?
        };
        Ok(Probe {
            working_directory: self.lookup.directory.clone(),
            transports: self.transports(&self.lookup.directory),
            ..probe
        })
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        if self.lookup.sftp {
            return sftp::stat(&mut *self.sftp().await?, path, follow).await;
        }
        self.exec().await?.stat(path, follow).await
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        if self.lookup.sftp {
            return sftp::list(&mut *self.sftp().await?, path, depth, limit).await;
        }
        self.exec().await?.list(path, depth, limit).await
    }

    fn transports(&self, _path: &SandboxPath) -> Vec<Transport> {
        let mut transports = Vec::new();
        if self.lookup.sftp {
            transports.push(Transport::Sftp);
        }
        if self.lookup.shell {
            transports.extend(self.exec.transports());
        }
        transports
    }

    fn resumes(&self, transport: Transport) -> bool {
        match transport {
            Transport::Sftp => self.lookup.sftp,
            other => self.lookup.shell && self.exec.resumes(other),
        }
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        if read.transport == Transport::Sftp {
            return self.download(read.file, read.offset).await;
        }
        self.exec().await?.read(read).await
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        // A dropped upload may still be writing on the host, and would overwrite the new file.
        self.link.background_work().settle().await;
        if write.transport == Transport::Sftp {
            let upload = sftp::UploadTarget {
                path: write.path,
                size: write.size,
                offset: write.offset,
                mode: write.mode,
            };
            return sftp::upload(&mut *self.sftp().await?, upload, body).await;
        }
        self.exec().await?.write(write, body).await
    }

    fn reads_with_digest(&self, read: &Read<'_>) -> bool {
        read.transport == Transport::Sftp && read.offset == 0 && self.reads_back(read.file.size)
    }

    /// Reads a small file completely, and then again for the digest, over one channel.
    async fn read_with_digest(&self, read: Read<'_>) -> Result<(Body, ReadDigest), Error> {
        let (sender, receiver) = oneshot::channel();
        if !self.reads_with_digest(&read) {
            return Ok((self.read(read).await?, receiver));
        }
        let body = self.read(read).await?;
        let limit = usize::try_from(MAX_READ_BACK_BYTES).unwrap_or(usize::MAX);
        let bytes = body.read_all(limit).await?;
        // Without a digest from here, the one that is computed after the copy decides.
        if let Ok(digest) = self.read_back(read.file).await {
            let _ = sender.send(digest);
        }
        Ok((Body::from_bytes(bytes), receiver))
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        if self.lookup.shell && !self.reads_back(0) {
            return self.fingerprint_by_shell(path).await;
        }
        // Reading it back proves as much as a digest computed on the host.
        let file = self.stat(path, Follow::Yes).await?;
        if self.lookup.shell && !self.reads_back(file.size) {
            return self.fingerprint_by_shell(path).await;
        }
        self.read_back(&file).await
    }

    async fn state(&self, path: &SandboxPath) -> Result<FileState, Error> {
        self.exec().await?.state(path).await
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        self.link.background_work().settle().await;
        if self.lookup.sftp {
            return sftp::rename(&mut *self.sftp().await?, from, to, replace).await;
        }
        self.exec().await?.rename(from, to, replace).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.link.background_work().settle().await;
        if self.lookup.sftp {
            return sftp::make_directory(&mut *self.sftp().await?, path).await;
        }
        self.exec().await?.make_directory(path).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        self.link.background_work().settle().await;
        if self.lookup.sftp {
            return sftp::remove(&mut *self.sftp().await?, path, recursive).await;
        }
        self.exec().await?.remove(path, recursive).await
    }

    async fn read_tree(&self, path: &SandboxPath) -> Result<(Body, Transport), Error> {
        self.exec().await?.read_tree(path).await
    }

    async fn write_tree(&self, path: &SandboxPath, tar: Body) -> Result<Transport, Error> {
        self.link.background_work().settle().await;
        let exec = self.exec().await?;
        let home = exec.probe().await?.home;
        let target = self.stat(path, Follow::Yes).await?.real_path;
        let home = self.stat(&home, Follow::Yes).await?.real_path;
        // A tar that changed the mode of the home directory would lock the user out (sshd's StrictModes).
        if home.is_beneath(&target) {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "no tar is unpacked into a home directory",
            ));
        }
        exec.write_tree(path, tar).await
    }

    async fn execute(&self, request: CommandRequest) -> Result<SandboxCommand, Error> {
        self.exec().await?.execute(request).await
    }

    async fn settled(&self) {
        self.exec.settled().await;
    }
}

impl SshSandbox {
    /// A digest from a program of the host, or from reading the file back if the host has no such program.
    async fn fingerprint_by_shell(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        match self.exec().await?.fingerprint(path).await {
            Err(error) if error.kind() == ErrorKind::ToolMissing && self.lookup.sftp => {
                self.read_back(&self.stat(path, Follow::Yes).await?).await
            }
            found => found,
        }
    }

    fn take_fresh_probe(&self) -> Option<Probe> {
        let taken = self.fresh_probe.lock();
        let (since, probe) = taken.unwrap_or_else(PoisonError::into_inner).take()?;
        let is_same = self.checked_generation.load(Ordering::Acquire) == self.link.generation();
        (is_same && since.elapsed() < FRESH_PROBE_AGE).then_some(probe)
    }

    /// Whether reading a file again over SFTP costs less than a digest program: on a host whose responses take less
    /// time than starting a process there.
    fn reads_back(&self, size: u64) -> bool {
        self.lookup.sftp && size <= MAX_READ_BACK_BYTES && self.pool.is_near()
    }

    /// Reads a file over SFTP. When opening it takes too long, the server process is released.
    async fn download(&self, file: &Metadata, offset: u64) -> Result<Body, Error> {
        let body = sftp::download(self.sftp().await?, file, offset).await;
        if body
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Timeout)
        {
            // Best effort: a server process that hangs while it opens a FIFO would stay forever. The transfer has
            // failed in any case.
            let _ = sftp::release(&mut *self.sftp().await?, &file.real_path).await;
        }
        body
    }

    /// The digest of a file that is read over SFTP.
    async fn read_back(&self, file: &Metadata) -> Result<Fingerprint, Error> {
        let body = self.download(file, 0).await?;
        let (digest, size) = sftp::digest(body).await?;
        Ok(Fingerprint::Sha256(digest, size))
    }

    /// The probe of a host that runs no commands.
    async fn probe_files(&self) -> Result<Probe, Error> {
        let mut channel = self.sftp().await?;
        let home = sftp::real_path(&mut channel, b".").await?;
        let found = sftp::stat(&mut channel, &home, Follow::Yes).await?;
        let free = sftp::free_bytes(&mut channel, &self.lookup.directory).await?;
        Ok(Probe {
            home,
            working_directory: self.lookup.directory.clone(),
            // The user who logs in owns the home directory.
            uid: found.uid.unwrap_or(0),
            gid: found.gid.unwrap_or(0),
            free,
            transports: Vec::new(),
            tools: Vec::new(),
            life_ms: None,
        })
    }
}
