//! One opened container.

mod access;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::ContainerInspectResponse;
use dray_sandbox::{
    Body, CommandRequest, Error, ErrorKind, FileKind, FileState, Fingerprint, Follow, Handle,
    Listing, Metadata, Probe, Read, ReadDigest, Sandbox, SandboxCommand, SandboxPath, Transport,
    Write,
};
use dray_sandbox_exec::ExecFiles;
use dray_types::Clock;
use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

use crate::client::Client;
use crate::exec::{DockerExec, NOT_STARTED, START_FAILED};
use crate::fault::{hung_shell, runs_no_commands, stopped};
use crate::hung::HungShell;
use crate::mounts::Mounts;
use crate::resolve::{ResolvedPath, resolve};
use crate::user::ContainerUser;
use crate::{list, read, user, write};

/// Smallest file that is read over the archive API although a command could read it. An archive costs the engine less
/// per byte than the output of a command; a command costs less to start.
const MIN_ARCHIVE_BYTES: u64 = 16 << 20;

/// A container, opened: the archive calls and the commands together.
#[derive(Debug)]
pub(crate) struct DockerSandbox {
    client: Arc<Client>,
    clock: Clock,
    handle: Handle,
    known: Box<ContainerInspectResponse>,
    mounts: Mounts,
    commands: ExecFiles<DockerExec>,
    user: OnceCell<ContainerUser>,
    /// Whether a command failed because the container has no shell. It will not get one later.
    shell_less: AtomicBool,
    /// Whether the engine reported that the container has no shell.
    no_shell_found: AtomicBool,
    /// Whether the container could not run commands at the last attempt.
    stopped: AtomicBool,
    /// Whether the archive calls were ever offered in place of commands.
    archive_offered: AtomicBool,
    hung: HungShell,
    shell_timeout: Duration,
}

impl DockerSandbox {
    pub(crate) async fn open(
        client: Arc<Client>,
        clock: Clock,
        handle: Handle,
        known: Box<ContainerInspectResponse>,
    ) -> Result<Self, Error> {
        let container = handle.incarnation.clone();
        let mut mounts = Mounts::of(&known);
        // The mounts are resolved once for each opening: the engine cannot add mounts to an existing container.
        mounts.resolve(&client, &container).await?;
        let exec = DockerExec::new(Arc::clone(&client), container);
        let shell_timeout = client.shell_timeout();
        Ok(Self {
            client,
            clock,
            handle,
            known,
            mounts,
            commands: ExecFiles::new(exec).with_persistent_shell(),
            user: OnceCell::new(),
            shell_less: AtomicBool::new(false),
            no_shell_found: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            archive_offered: AtomicBool::new(false),
            hung: HungShell::default(),
            shell_timeout,
        })
    }

    /// Whether the archive calls can be used for a resolved path. They lose names that are not UTF-8.
    fn archive_sees(&self, path: &SandboxPath) -> bool {
        self.mounts.sees(path) && str::from_utf8(path.name()).is_ok()
    }

    fn container(&self) -> &str {
        &self.handle.incarnation
    }

    async fn user(&self) -> Result<&ContainerUser, Error> {
        let find = || user::find(&self.client, self.container(), &self.known);
        self.user.get_or_try_init(find).await
    }

    /// Runs a request to the container's shell, within the time limit for short responses. A shell that hangs is not
    /// used for a while; meanwhile the archive calls are used, if the container's user is root.
    async fn request<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.check_shell()?;
        if let Ok(answered) = timeout(self.shell_timeout, call).await {
            self.record_outcome(answered)
        } else {
            // Every following request would wait for the whole time limit as well.
            self.hung.set();
            Err(hung_shell())
        }
    }

    fn check_shell(&self) -> Result<(), Error> {
        if self.hung.is_set() {
            Err(hung_shell())
        } else {
            Ok(())
        }
    }

    /// Records whether commands can be run here.
    fn record_outcome<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        match &result {
            Ok(_) => self.stopped.store(false, Ordering::Relaxed),
            Err(error) if stopped(error) => self.stopped.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
        // A tool that is missing inside a shell gives the same kind, but says nothing about the shell.
        match &result {
            Err(error) if error.context() == NOT_STARTED => {
                self.shell_less.store(true, Ordering::Relaxed);
            }
            Err(error) if error.context() == START_FAILED => self.hung.set(),
            _ => {}
        }
        result
    }

    /// The result of reading with a command. Where commands cannot run now, another transport can still read, except
    /// names that are not UTF-8; other files of the container can still be copied then.
    fn readable<T>(&self, at: &SandboxPath, read: Result<T, Error>) -> Result<T, Error> {
        match read {
            Err(error) if stopped(&error) && self.mounts.sees(at) => {
                // `ToolMissing` makes the transfer engine choose the archive API, which works on stopped containers too.
                let kind = if self.archive_sees(at) {
                    ErrorKind::ToolMissing
                } else {
                    ErrorKind::InvalidName
                };
                let mute = "the container runs no commands now";
                Err(Error::new(kind, mute).caused_by(error))
            }
            read => read,
        }
    }

    /// The directory with its links resolved, if the archive calls see it.
    async fn seen_directory(&self, path: &SandboxPath) -> Result<Option<SandboxPath>, Error> {
        let mounts = Some(&self.mounts);
        let found = resolve(&self.client, self.container(), mounts, path, Follow::Yes).await?;
        match found {
            ResolvedPath::Seen {
                real_path, stat, ..
            } if stat.kind == FileKind::Directory => Ok(Some(real_path)),
            ResolvedPath::Seen { .. } => {
                Err(Error::new(ErrorKind::NotDirectory, "opening a directory"))
            }
            ResolvedPath::Hidden(_) => Ok(None),
        }
    }

    /// Reads a file over the archive API while a command computes its digest. The command starts first: the engine
    /// starts none in a container while it sends an archive of it.
    async fn read_archive_with_digest(&self, read: Read<'_>) -> Result<(Body, ReadDigest), Error> {
        let started = self.request(self.commands.start_fingerprint(&read.file.real_path));
        let started = started.await;
        let body = self.read(read).await?;
        let (mut sender, receiver) = oneshot::channel();
        match started {
            Ok(digest) => {
                self.client.tasks().spawn(async move {
                    tokio::select! {
                        computed = digest => match computed {
                            Ok(computed) => drop(sender.send(computed)),
                            Err(error) => tracing::debug!(%error, "the sandbox computed no digest of the archive"),
                        },
                        () = sender.closed() => {}
                    }
                });
            }
            Err(error) => tracing::debug!(%error, "the sandbox computed no digest of the archive"),
        }
        Ok((body, receiver))
    }

    /// Downloads the contents of a directory, with names relative to it.
    async fn download(&self, directory: &SandboxPath) -> Result<(Body, Transport), Error> {
        let inside = [directory.as_bytes(), b"/."].concat();
        let (_, tar) = self.client.download(self.container(), &inside).await?;
        Ok((tar, Transport::Archive))
    }

    /// The probe of a container in which no command can be run.
    async fn probe_from_outside(&self) -> Result<Probe, Error> {
        let user = self.user().await?;
        let directory = self.known.config.as_ref();
        let directory = directory.and_then(|config| config.working_dir.as_deref());
        let directory = directory.and_then(|path| SandboxPath::new(path).ok());
        Ok(Probe {
            home: user.home.clone(),
            working_directory: directory.unwrap_or_else(SandboxPath::root),
            uid: user.uid,
            gid: user.gid,
            free: None,
            transports: vec![Transport::Archive],
            tools: Vec::new(),
            life_ms: None,
        })
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn probe(&self) -> Result<Probe, Error> {
        match self.request(self.commands.probe()).await {
            Ok(mut probe) => {
                probe.transports.insert(0, Transport::Archive);
                Ok(probe)
            }
            Err(error) if runs_no_commands(&error) => self.probe_from_outside().await,
            Err(error) => Err(error),
        }
    }

    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error> {
        let mounts = Some(&self.mounts);
        let found = resolve(&self.client, self.container(), mounts, path, follow).await?;
        match found {
            ResolvedPath::Seen {
                real_path,
                stat,
                target,
            } => Ok(Metadata {
                path: path.clone(),
                real_path,
                kind: stat.kind,
                size: stat.size,
                mode: stat.mode,
                uid: None,
                gid: None,
                mtime_ns: stat.mtime_ns,
                link_target: target,
                links: None,
                identity: None,
            }),
            ResolvedPath::Hidden(rest) => {
                let reply = self.request(self.commands.stat(&rest, follow)).await?;
                Ok(Metadata {
                    path: path.clone(),
                    ..reply
                })
            }
        }
    }

    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error> {
        let listed = match self.check_shell() {
            Ok(()) => self.record_outcome(self.commands.list(path, depth, limit).await),
            Err(error) => Err(error),
        };
        let error = match listed {
            Err(error) if runs_no_commands(&error) => error,
            listed => return listed,
        };
        // The shell lacks a program. The archive calls would also list directories that only root may read.
        let has_shell = !self.shell_less.load(Ordering::Relaxed) && !self.hung.is_set();
        if !self.is_root() && !stopped(&error) && has_shell {
            return Err(error);
        }
        self.check_archive().await?;
        let Some(directory) = self.seen_directory(path).await? else {
            return Err(error);
        };
        let (tar, _) = self.download(&directory).await?;
        let listing = list::list(tar, &directory, depth, limit).await?;
        let listing = listing.with_sizes(&self.client, self.container()).await?;
        list::under(path, &directory, listing)
    }

    /// Commands come first: they block no other request, their user is that of the container, and the digest comes with
    /// the bytes. The archive calls, which read and write as root, are for containers that run no commands.
    fn transports(&self, path: &SandboxPath) -> Vec<Transport> {
        let mut transports = Vec::new();
        if !self.shell_less.load(Ordering::Relaxed) && !self.hung.is_set() {
            transports.append(&mut self.commands.transports());
        }
        if self.archive_sees(path) {
            let stopped = self.stopped.load(Ordering::Relaxed);
            let place = usize::from(!stopped && !transports.is_empty());
            if place == 0 {
                self.archive_offered.store(true, Ordering::Relaxed);
            }
            transports.insert(place, Transport::Archive);
        }
        transports
    }

    /// A large file that the user may read comes over the archive calls, while a command computes its digest.
    fn read_transports(&self, file: &Metadata) -> Vec<Transport> {
        let mut transports = self.transports(&file.real_path);
        if !self.suits_archive(file) {
            return self.with_rights_of_user(transports);
        }
        transports.sort_by_key(|transport| *transport != Transport::Archive);
        transports
    }

    /// A directory that is swapped for a link must not lead the archive calls to a place where only root may write.
    fn write_transports(&self, path: &SandboxPath) -> Vec<Transport> {
        self.with_rights_of_user(self.transports(path))
    }

    fn resumes(&self, transport: Transport) -> bool {
        transport != Transport::Archive && self.commands.resumes(transport)
    }

    fn must_drain(&self, transport: Transport) -> bool {
        transport == Transport::Archive
    }

    /// One transfer: a download blocks every other request about its container (sandbox-transfer 4.6).
    fn parallel(&self) -> usize {
        1
    }

    async fn read(&self, read: Read<'_>) -> Result<Body, Error> {
        if read.transport != Transport::Archive {
            let at = &read.file.real_path;
            return self.readable(at, self.request(self.commands.read(read)).await);
        }
        read::check_no_offset(read.offset)?;
        self.check_transfer(self.suits_archive(read.file)).await?;
        if !self.archive_sees(&read.file.real_path) {
            let unseen = "the archive calls do not see this path";
            return Err(Error::new(ErrorKind::ToolMissing, unseen));
        }
        let container = self.container().to_owned();
        read::read(Arc::clone(&self.client), container, read.file).await
    }

    fn reads_with_digest(&self, read: &Read<'_>) -> bool {
        if read.transport == Transport::Archive {
            return !self.shell_less.load(Ordering::Relaxed) && !self.hung.is_set();
        }
        self.commands.reads_with_digest(read)
    }

    async fn read_with_digest(&self, read: Read<'_>) -> Result<(Body, ReadDigest), Error> {
        let at = &read.file.real_path;
        if read.transport == Transport::Archive {
            return self.read_archive_with_digest(read).await;
        }
        self.readable(at, self.request(self.commands.read_with_digest(read)).await)
    }

    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        if write.transport != Transport::Archive {
            return self.record_outcome(self.commands.write(write, body).await);
        }
        read::check_no_offset(write.offset)?;
        self.check_transfer(false).await?;
        if !self.archive_sees(write.path) {
            // Beneath a mount the container would not find it.
            let unseen = "the archive calls do not see this path";
            return Err(Error::new(ErrorKind::ToolMissing, unseen));
        }
        let user = self.user().await?;
        let now_s = self.clock.now_ms() / 1000;
        write::write(&self.client, self.container(), user, now_s, write, body).await?;
        write::check_parent(&self.client, self.container(), &self.mounts, write.path).await
    }

    async fn write_with_digest(
        &self,
        write: Write<'_>,
        body: Body,
    ) -> Result<Option<Fingerprint>, Error> {
        if write.transport == Transport::Archive {
            return self.write(write, body).await.map(|()| None);
        }
        self.record_outcome(self.commands.write_with_digest(write, body).await)
    }

    async fn execute(&self, request: CommandRequest) -> Result<SandboxCommand, Error> {
        self.check_shell()?;
        self.record_outcome(self.commands.execute(request).await)
    }

    async fn settled(&self) {
        self.commands.settled().await;
    }

    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error> {
        self.check_shell()?;
        self.record_outcome(self.commands.fingerprint(path).await)
    }

    async fn state(&self, path: &SandboxPath) -> Result<FileState, Error> {
        self.request(self.commands.state(path)).await
    }

    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error> {
        self.request(self.commands.rename(from, to, replace)).await
    }

    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error> {
        self.request(self.commands.make_directory(path)).await
    }

    async fn make_directories(&self, paths: &[SandboxPath]) -> Result<(), Error> {
        self.request(self.commands.make_directories(paths)).await
    }

    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error> {
        // A dropped upload may still be running; the engine responds to the requests below only after the upload has
        // ended.
        self.commands.exec().settle().await;
        let mounts = Some(&self.mounts);
        let found = resolve(&self.client, self.container(), mounts, path, Follow::No).await;
        if let Err(error) = found
            && error.kind() == ErrorKind::NotFound
            && str::from_utf8(path.as_bytes()).is_ok()
        {
            // A missing path needs no command.
            return Err(error);
        }
        if recursive {
            return self.record_outcome(self.commands.remove(path, recursive).await);
        }
        self.request(self.commands.remove(path, recursive)).await
    }

    /// The archive calls read as root, so they are used only where commands run as root too, or none run.
    async fn read_tree(&self, path: &SandboxPath) -> Result<(Body, Transport), Error> {
        let directory = self.seen_directory(path).await?;
        let seen = directory.filter(|directory| self.mounts.sees_all(directory));
        match seen {
            Some(directory) if self.is_root() || !self.runs_commands().await? => {
                self.check_archive().await?;
                self.download(&directory).await
            }
            _ => {
                let tar = self.record_outcome(self.commands.read_tree(path).await);
                // A stopped container is walked, and its memory file systems are named.
                self.readable(path, tar)
            }
        }
    }

    /// Unpacks with a command where the container can run one. An upload through the archive calls blocks the container
    /// until the last byte, and the source of a tree may be slow, or be the same container.
    async fn write_tree(&self, path: &SandboxPath, tar: Body) -> Result<Transport, Error> {
        let directory = self.seen_directory(path).await?;
        let seen = directory.filter(|directory| self.mounts.sees_all(directory));
        match seen {
            Some(directory) if !self.runs_commands().await? => {
                self.check_archive().await?;
                write::send(&self.client, self.container(), directory.as_bytes(), tar).await?;
                Ok(Transport::Archive)
            }
            _ => self.record_outcome(self.commands.write_tree(path, tar).await),
        }
    }
}
