//! The sandbox and the directory of one case.

use std::sync::Arc;

use bytes::Bytes;
use dray_conformance::CaseEnd;
use dray_sandbox::backend::{Follow, Read, Sandbox, Write};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Metadata, Transport};
use dray_sandbox::path::SandboxPath;
use futures_util::stream;

use crate::{Fixture, SandboxTraits};

/// The sandbox and the directory of one case.
#[derive(Debug)]
pub struct CaseContext<'f> {
    /// The fixture that provides the sandbox.
    pub fixture: &'f dyn Fixture,
    /// The sandbox, opened for this case.
    pub sandbox: Arc<dyn Sandbox>,
    /// The directory of this case, without links in it; empty.
    pub directory: SandboxPath,
    /// Capabilities of the sandbox.
    pub traits: SandboxTraits,
}

impl<'f> CaseContext<'f> {
    /// Resolves and opens the sandbox, and creates the directory of the case.
    ///
    /// # Errors
    ///
    /// The error of the backend in one of these steps.
    pub async fn open(fixture: &'f dyn Fixture, case: &str) -> Result<Self, CaseEnd> {
        let backend = fixture.backend();
        let handle = backend.resolve(&fixture.address()).await?;
        let sandbox = backend.open(&handle).await?;
        let workspace = sandbox.stat(&fixture.workspace(), Follow::Yes).await?;
        let directory = workspace.real_path.join(case)?;
        sandbox.make_directory(&directory).await?;
        Ok(Self {
            fixture,
            sandbox,
            directory,
            traits: fixture.traits(),
        })
    }

    /// A path in the directory of the case.
    pub(super) fn path(&self, name: impl AsRef<[u8]>) -> Result<SandboxPath, CaseEnd> {
        Ok(self.directory.join(name)?)
    }

    /// Runs a script in the directory; skips the case when no script can be run there.
    pub(super) async fn sh(&self, script: &str) -> Result<String, CaseEnd> {
        const DONE_MARKER: &str = "<<done>>";
        // The fixture does not return the exit status, so the marker after the last command means success.
        let whole = format!("set -e\n{script}\nprintf %s '{DONE_MARKER}'");
        let Some(output) = self.fixture.sh(&self.directory, &whole).await else {
            return Err(CaseEnd::Skip("no script can be run in this sandbox"));
        };
        match output.strip_suffix(DONE_MARKER) {
            Some(output) => Ok(output.to_owned()),
            None => Err(CaseEnd::fail(format_args!(
                "the script failed: {script}: {output}"
            ))),
        }
    }

    /// Skips the case unless the sandbox has this capability.
    pub(super) fn needs(&self, has: impl Fn(&SandboxTraits) -> bool) -> Result<(), CaseEnd> {
        if has(&self.traits) {
            return Ok(());
        }
        Err(CaseEnd::Skip("the sandbox does not have this capability"))
    }

    /// Writes a new file of the directory by the best transport.
    pub(super) async fn put(
        &self,
        name: impl AsRef<[u8]>,
        bytes: &[u8],
    ) -> Result<SandboxPath, CaseEnd> {
        let path = self.path(name)?;
        self.write(&path, bytes).await?;
        Ok(path)
    }

    /// The best transport for a path, as the backend orders them.
    pub(super) fn best(&self, path: &SandboxPath) -> Result<Transport, Error> {
        self.sandbox
            .transports(path)
            .first()
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no transport is offered"))
    }

    /// Writes a new file by the best transport.
    pub(super) async fn write(&self, path: &SandboxPath, bytes: &[u8]) -> Result<(), Error> {
        let write = new_file(self.best(path)?, path, bytes.len() as u64);
        self.sandbox.write(write, chunks(bytes)).await
    }

    /// Follows a path and reads the file there by the best transport.
    pub(super) async fn read(&self, path: &SandboxPath) -> Result<Vec<u8>, Error> {
        let file = self.sandbox.stat(path, Follow::Yes).await?;
        self.read_by(self.best(&file.real_path)?, &file).await
    }

    /// Reads a file with this metadata by this transport.
    pub(super) async fn read_by(
        &self,
        transport: Transport,
        file: &Metadata,
    ) -> Result<Vec<u8>, Error> {
        let read = Read {
            transport,
            file,
            offset: 0,
        };
        let body = self.sandbox.read(read).await?;
        body.read_all(32 << 20).await
    }
}

/// A request to write a new file of this size, with mode 0644.
pub(super) const fn new_file(transport: Transport, path: &SandboxPath, size: u64) -> Write<'_> {
    Write {
        transport,
        path,
        size,
        offset: 0,
        mode: 0o644,
    }
}

/// A body of these bytes in chunks of 64 KiB.
pub(super) fn chunks(bytes: &[u8]) -> Body {
    let chunks: Vec<_> = bytes
        .chunks(64 * 1024)
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    Body::new(stream::iter(chunks))
}

/// Bytes without a pattern, the same in every run. The generator is `SplitMix64`: in a debug build, a cryptographic one
/// would take longer than the transfers.
pub(super) fn random(size: usize) -> Vec<u8> {
    let mut state = size as u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
