//! Everything that a sandbox does with files, over nothing but running POSIX scripts.

use std::sync::Arc;

use super::channel::Exec;
use crate::backend::{Follow, Read, Write};
use crate::body::Body;
use crate::error::{Error, ErrorKind};
use crate::metadata::{Fingerprint, Listing, Metadata, Probe, Transport};
use crate::path::SandboxPath;

/// Files over [`Exec`]. A backend that can run commands delegates to it what it has no better way for; every method
/// keeps the contract of the method of [`crate::Sandbox`] of the same name.
#[derive(Debug)]
pub struct ExecFiles<E> {
    exec: Arc<E>,
}

impl<E> Clone for ExecFiles<E> {
    fn clone(&self) -> Self {
        Self {
            exec: Arc::clone(&self.exec),
        }
    }
}

impl<E: Exec + 'static> ExecFiles<E> {
    /// Over this channel.
    pub fn new(exec: E) -> Self {
        Self {
            exec: Arc::new(exec),
        }
    }

    /// The channel.
    pub fn exec(&self) -> &E {
        &self.exec
    }

    /// The transports that the channel allows, best first: [`Transport::ExecRaw`] where bytes pass unchanged,
    /// [`Transport::ExecBase64`] always.
    pub fn transports(&self) -> Vec<Transport> {
        let channel = self.exec.channel();
        if channel.binary_output || (channel.input && channel.binary_input) {
            vec![Transport::ExecRaw, Transport::ExecBase64]
        } else {
            vec![Transport::ExecBase64]
        }
    }

    /// Whether this transport can begin in the middle: both of ours can (sandbox-transfer R-10).
    pub fn resumes(&self, transport: Transport) -> bool {
        self.transports().contains(&transport)
    }

    /// See [`crate::Sandbox::probe`]. `transports` are those of [`Self::transports`].
    pub async fn probe(&self) -> Result<Probe, Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::stat`].
    pub async fn stat(&self, _path: &SandboxPath, _follow: Follow) -> Result<Metadata, Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::list`].
    pub async fn list(
        &self,
        _path: &SandboxPath,
        _depth: u32,
        _limit: usize,
    ) -> Result<Listing, Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::fingerprint`].
    pub async fn fingerprint(&self, _path: &SandboxPath) -> Result<Fingerprint, Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::read`]. Takes [`Transport::ExecRaw`] and [`Transport::ExecBase64`].
    pub async fn read(&self, _read: Read<'_>) -> Result<Body, Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::write`]. Takes [`Transport::ExecRaw`] and [`Transport::ExecBase64`].
    pub async fn write(&self, _write: Write<'_>, _body: Body) -> Result<(), Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::rename`].
    pub async fn rename(
        &self,
        _from: &SandboxPath,
        _to: &SandboxPath,
        _replace: bool,
    ) -> Result<bool, Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::make_directory`].
    pub async fn make_directory(&self, _path: &SandboxPath) -> Result<(), Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::remove`].
    pub async fn remove(&self, _path: &SandboxPath, _recursive: bool) -> Result<(), Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::read_tree`].
    pub async fn read_tree(&self, _path: &SandboxPath) -> Result<Body, Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }

    /// See [`crate::Sandbox::write_tree`].
    pub async fn write_tree(&self, _path: &SandboxPath, _tar: Body) -> Result<(), Error> {
        Err(Error::new(ErrorKind::ToolMissing, "no script"))
    }
}
