//! The interface that every backend implements.
//!
//! A backend moves bytes and queries the sandbox; it decides nothing. `dray-transfer-engine` does the rest once for all
//! backends: which paths may be read, limits, digests before and after, temporary names, retries, the choice of the
//! transport, and receipts.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::body::Body;
use crate::command::{CommandRequest, SandboxCommand};
use crate::error::{Error, ErrorKind};
use crate::handle::{Address, Handle};
use crate::metadata::{FileState, Fingerprint, Listing, Metadata, Probe, Transport};
use crate::path::SandboxPath;

/// The result of a backend check ([`Backend::check`]): whether hosts and credentials can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendCheck {
    /// The host or provider responded and accepted the credentials; the text names what responded.
    Ready(String),
    /// The host or provider responded, but the credentials lack a permission; the text names the permission.
    Refused(String),
    /// Only opening a sandbox can show whether it works; the text says why.
    Unverified(String),
}

/// A kind of sandbox: finds incarnations and opens them.
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// The word before the colon of an [`Address`].
    fn name(&self) -> &'static str;

    /// Finds the sandbox that an address means now and binds it to its incarnation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SandboxGone`] when the address names no sandbox, [`ErrorKind::InvalidName`] for a malformed name,
    /// and failures of the request to the provider.
    async fn resolve(&self, address: &Address) -> Result<Handle, Error>;

    /// Opens exactly this incarnation. Makes no more connections than it needs. Callers may keep the result for later
    /// calls.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SandboxGone`] when the address now means another incarnation.
    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error>;

    /// Asks the host or provider behind the backend whether it can be used, without opening a sandbox. The default is
    /// for backends that know their host or provider only from an address.
    ///
    /// # Errors
    ///
    /// Failures of the request; [`ErrorKind::Auth`] for refused credentials.
    async fn check(&self) -> Result<BackendCheck, Error> {
        Ok(BackendCheck::Unverified(
            "only opening a sandbox shows whether it works".to_owned(),
        ))
    }

    /// Opens the incarnation that an address means now. A backend whose `resolve` returns all that `open` needs
    /// overrides this, so that it sends one request to the provider instead of two.
    ///
    /// # Errors
    ///
    /// Those of [`Self::resolve`] and [`Self::open`].
    async fn open_address(&self, address: &Address) -> Result<Arc<dyn Sandbox>, Error> {
        let handle = self.resolve(address).await?;
        self.open(&handle).await
    }
}

/// Whether the last part of a path is followed when it is a link. Links before it always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// A link at the end is reported as a link.
    No,
    /// Links are resolved inside the sandbox; loops are [`ErrorKind::Loop`].
    Yes,
}

/// A request to read one file.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Transport that carries the bytes; one of [`Sandbox::read_transports`].
    pub transport: Transport,
    /// The regular file, as `stat` with [`Follow::Yes`] just reported it. The backend reads `real_path`. If it learns
    /// the identity of the file that it opened, it fails unless that identity equals the one here.
    pub file: &'a Metadata,
    /// Bytes to leave out at the beginning. Only where [`Sandbox::resumes`] says so; 0 otherwise.
    pub offset: u64,
}

/// The digest of a file that is computed while the file is read. It arrives before or after the end of the body, or the
/// sender is dropped. Dropping the receiver ends the computation.
pub type ReadDigest = oneshot::Receiver<Fingerprint>;

/// A request to write a new file of exactly `size` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Transport that carries the bytes; one of [`Sandbox::write_transports`].
    pub transport: Transport,
    /// The path of the new file. Created exclusively when `offset` is 0, never through a link; appended to when it is
    /// not.
    pub path: &'a SandboxPath,
    /// Bytes of the whole file.
    pub size: u64,
    /// Bytes that an interrupted write has left in the file; the body begins after them. Only where
    /// [`Sandbox::resumes`] says so; 0 otherwise.
    pub offset: u64,
    /// Mode bits, at most 0o777; never set-id.
    pub mode: u32,
}

/// One opened incarnation. All methods may be called concurrently; each future may be dropped at any time, and then
/// nothing keeps running in the sandbox for it.
#[async_trait]
pub trait Sandbox: Debug + Send + Sync {
    /// Handle of the incarnation that all methods work on.
    fn handle(&self) -> &Handle;

    /// Asks what the sandbox offers. The result is not cached here.
    async fn probe(&self) -> Result<Probe, Error>;

    /// Metadata of a path, with links before its last part resolved.
    async fn stat(&self, path: &SandboxPath, follow: Follow) -> Result<Metadata, Error>;

    /// Entries of a directory, down to `depth` levels (1 is the directory itself), at most `limit` of them.
    async fn list(&self, path: &SandboxPath, depth: u32, limit: usize) -> Result<Listing, Error>;

    /// Transports that can read or write this (resolved) path, best first. The result depends on the path because one
    /// transport may not see all paths: an archive API cannot see a tmpfs.
    fn transports(&self, path: &SandboxPath) -> Vec<Transport>;

    /// Transports that can read this file, best first: large files may take another one than small files.
    fn read_transports(&self, file: &Metadata) -> Vec<Transport> {
        self.transports(&file.real_path)
    }

    /// Transports that can write to this (resolved) path, best first.
    fn write_transports(&self, path: &SandboxPath) -> Vec<Transport> {
        self.transports(path)
    }

    /// Whether this transport can begin at an offset above 0.
    fn resumes(&self, _transport: Transport) -> bool {
        false
    }

    /// Whether this transport blocks the sandbox until its stream was read to the end, so that the stream must be
    /// drained to a local disk at full speed (sandbox-transfer R-7).
    fn must_drain(&self, _transport: Transport) -> bool {
        false
    }

    /// Transfers that may run at the same time.
    fn parallel(&self) -> usize {
        2
    }

    /// The bytes of a regular file from `offset`. The body fails with [`ErrorKind::Truncated`] on a short end.
    async fn read(&self, read: Read<'_>) -> Result<Body, Error>;

    /// Whether [`Self::read_with_digest`] suits this read better than a read with a [`Self::fingerprint`] beside it.
    fn reads_with_digest(&self, _read: &Read<'_>) -> bool {
        false
    }

    /// Reads a file with a command that computes its SHA-256 at the same time.
    async fn read_with_digest(&self, read: Read<'_>) -> Result<(Body, ReadDigest), Error> {
        // The dropped sender shows the caller that no digest is computed.
        let (_, none) = oneshot::channel();
        Ok((self.read(read).await?, none))
    }

    /// Writes a new file. On failure the caller removes a part that may be left.
    async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error>;

    /// Writes as [`Self::write`] does. Returns the SHA-256 of the bytes that were written, if the sandbox computes it
    /// during the write, and else `None`. An implementation that returns a digest has checked the size of the file.
    async fn write_with_digest(
        &self,
        write: Write<'_>,
        body: Body,
    ) -> Result<Option<Fingerprint>, Error> {
        self.write(write, body).await.map(|()| None)
    }

    /// Digest of a regular file, computed inside the sandbox.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] where no program in the sandbox can compute one.
    async fn fingerprint(&self, path: &SandboxPath) -> Result<Fingerprint, Error>;

    /// A value that changes whenever a regular file changes. It is cheap, because the file is not read; callers compare
    /// it before and after a copy.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`]: the sandbox cannot report the state, or not all fields of [`FileState`]; then
    /// digests decide. [`ErrorKind::PermissionDenied`] when the sandbox user may not read the file.
    async fn state(&self, _path: &SandboxPath) -> Result<FileState, Error> {
        Err(Error::new(
            ErrorKind::ToolMissing,
            "the sandbox cannot report the state of a file",
        ))
    }

    /// Returns text that differs after a regular file was written, replaced or given other attributes, even if its
    /// modification time was set back. `None` if the sandbox reports neither `ctime` nor inode. Texts are only compared
    /// with those of the same incarnation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::PermissionDenied`] when the sandbox user may not read the file.
    async fn change_marker(&self, path: &SandboxPath) -> Result<Option<String>, Error> {
        FileState::change_marker(self.state(path).await)
    }

    /// Renames within one directory. Without `replace` the check for an existing target and the rename are one atomic
    /// step. Returns whether no reader could see a partial file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Exists`] without `replace`; [`ErrorKind::ToolMissing`], [`ErrorKind::SandboxStopped`] or
    /// [`ErrorKind::SandboxPaused`] if renames are not possible now.
    async fn rename(
        &self,
        from: &SandboxPath,
        to: &SandboxPath,
        replace: bool,
    ) -> Result<bool, Error>;

    /// Makes a directory and its missing parents, mode 0755, owned by the sandbox user. An existing directory is not an
    /// error.
    async fn make_directory(&self, path: &SandboxPath) -> Result<(), Error>;

    /// Makes several directories and their missing parents, as [`Self::make_directory`] does. A backend that runs
    /// commands needs one request for many of them. On failure some may have been made.
    async fn make_directories(&self, paths: &[SandboxPath]) -> Result<(), Error> {
        for path in paths {
            self.make_directory(path).await?;
        }
        Ok(())
    }

    /// Removes a file, or with `recursive` a directory and what is in it. A link is removed, not followed.
    async fn remove(&self, path: &SandboxPath, recursive: bool) -> Result<(), Error>;

    /// Reads a directory as a tar stream that is made in the sandbox, over the returned transport. Its content is
    /// untrusted (sandbox-transfer 13).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] where no program can make one; the caller then walks the directory.
    async fn read_tree(&self, _path: &SandboxPath) -> Result<(Body, Transport), Error> {
        Err(Error::new(
            ErrorKind::ToolMissing,
            "this sandbox has no tar stream",
        ))
    }

    /// Unpacks a plain tar that `dray-sandbox-tree` made (regular files and directories only) into an existing
    /// directory, and returns the transport that carried it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] where no program can unpack; the caller then puts file by file.
    async fn write_tree(&self, _path: &SandboxPath, _tar: Body) -> Result<Transport, Error> {
        Err(Error::new(
            ErrorKind::ToolMissing,
            "this sandbox has no tar stream",
        ))
    }

    /// Runs a program as the sandbox user.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`]: no program can be run, or a tool that supervises programs is missing.
    /// [`ErrorKind::NotFound`]: the program does not exist. [`ErrorKind::PermissionDenied`]: the program may not be
    /// executed. [`ErrorKind::NotDirectory`] and [`ErrorKind::ChangedDuringTransfer`]: the working directory is
    /// unusable. [`ErrorKind::TooLarge`]: the arguments or the input exceed what the channel carries.
    async fn execute(&self, _request: CommandRequest) -> Result<SandboxCommand, Error> {
        Err(Error::new(
            ErrorKind::ToolMissing,
            "this sandbox runs no programs",
        ))
    }

    /// Waits, for at most ten seconds, until dropped programs have ended: those whose [`Self::execute`] future or
    /// [`SandboxCommand`] was dropped before this future is first polled.
    async fn settled(&self) {}

    /// Makes sure that the sandbox exists for at least `needed` from now, and extends its lifetime where the provider
    /// allows that (sandbox-transfer R-11).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SandboxGone`] when the sandbox will end earlier.
    async fn ensure_lifetime(&self, _needed: Duration) -> Result<(), Error> {
        Ok(())
    }
}
