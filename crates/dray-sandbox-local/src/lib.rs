//! Sandboxes that are directories of this host (sandbox-transfer 3).
//!
//! `local:/srv/box` is the directory `/srv/box`, and paths in it are paths of the host: the path that the agent uses
//! (`/srv/box/report.pdf`) is the one that the operator sees. No file outside the directory is ever opened. Every path
//! is resolved from the directory's descriptor, one component at a time where it has links. The result is opened
//! beneath the directory, with all links refused, so no path can change between check and use.
//!
//! ```no_run
//! use dray_sandbox::Backend as _;
//! use dray_sandbox_local::{LocalBackend, LocalOptions};
//!
//! # async fn open() -> Result<(), dray_sandbox::Error> {
//! let backend = LocalBackend::new(LocalOptions { roots: vec!["/srv/box".into()] });
//! let handle = backend.resolve(&"local:/srv/box".parse()?).await?;
//! let sandbox = backend.open(&handle).await?;
//! # Ok(())
//! # }
//! ```
//!
//! It does not protect from processes that share the directory. Run the service as the user who owns it. A program that
//! is run in it is a process of this host and is not confined to the directory.

mod beneath;
mod blocking;
mod errno;
mod file_stat;
mod listing;
mod read;
mod remove;
mod rename;
mod root;
mod sandbox;
#[cfg(test)]
mod tests;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::backend::{Backend, BackendCheck, Sandbox};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::{Address, Handle};

use root::Root;
use sandbox::LocalSandbox;

/// Directories that an operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalOptions {
    /// Directories that are, or hold, local sandboxes. Entries that are not absolute are ignored; with an empty list
    /// no sandbox is allowed.
    pub roots: Vec<PathBuf>,
}

/// System calls that a kernel or a seccomp profile may refuse. Tests disable them to run the fallbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kernel {
    /// `openat2`, since Linux 5.6.
    openat2: bool,
    /// `renameat2`, since Linux 3.15, and not on every file system.
    renameat2: bool,
}

/// The backend `local`: opens directories of this host.
#[derive(Clone, Debug)]
pub struct LocalBackend {
    options: LocalOptions,
    kernel: Kernel,
}

impl LocalBackend {
    /// Makes a backend that opens only what `options` allow.
    pub const fn new(options: LocalOptions) -> Self {
        let kernel = Kernel {
            openat2: true,
            renameat2: true,
        };
        Self { options, kernel }
    }

    /// Finds the directory of an address, if it is one that the operator allows.
    fn find(&self, address: &Address) -> Result<Root, Error> {
        let written_path = Path::new(&address.name);
        if !written_path.is_absolute() {
            let context = "the directory of a local sandbox is absolute";
            return Err(Error::new(ErrorKind::InvalidName, context));
        }
        let outside = || Error::new(ErrorKind::OutsideRoot, "not beneath an allowed directory");
        // The text is checked first, so that a caller cannot probe what else exists on this host.
        if has_parent_parts(written_path) {
            return Err(outside());
        }
        let allowed = |path: &Path| {
            // An empty root would be a prefix of every path.
            let mut roots = self.options.roots.iter().filter(|root| root.is_absolute());
            roots.any(|root| {
                path.starts_with(root)
                    // A root may be a link itself; its real path counts as well.
                    || std::fs::canonicalize(root).is_ok_and(|root| path.starts_with(root))
            })
        };
        if !allowed(written_path) {
            return Err(outside());
        }
        let real = std::fs::canonicalize(written_path).map_err(|error| {
            Error::new(ErrorKind::SandboxGone, "the directory cannot be found").caused_by(error)
        })?;
        // The allowed name may be a link that leads out.
        if !allowed(&real) {
            return Err(outside());
        }
        Root::open_at(&real, written_path, self.kernel)
    }
}

fn has_parent_parts(path: &Path) -> bool {
    path.components()
        .any(|part| part == std::path::Component::ParentDir)
}

#[async_trait]
impl Backend for LocalBackend {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn check(&self) -> Result<BackendCheck, Error> {
        let roots = self.options.roots.clone();
        blocking::run(move |_| {
            // The roots are named by their place in the list: the paths of this host are not for callers.
            for (at, root) in roots.iter().enumerate() {
                std::fs::read_dir(root).map_err(|error| {
                    let what = format!("directory {} of `local.roots` cannot be read", at + 1);
                    Error::new(ErrorKind::Unavailable, what).caused_by(error)
                })?;
            }
            Ok(match roots.len() {
                0 => BackendCheck::Unverified("`local.roots` allows no directory".to_owned()),
                count => BackendCheck::Ready(format!("directories that can be read: {count}")),
            })
        })
        .await
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let (backend, address) = (self.clone(), address.clone());
        blocking::run(move |_| {
            let root = backend.find(&address)?;
            Ok(Handle {
                address,
                incarnation: root.incarnation(),
            })
        })
        .await
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let (backend, handle) = (self.clone(), handle.clone());
        blocking::run(move |_| {
            let root = backend.find(&handle.address)?;
            if root.incarnation() != handle.incarnation {
                let context = "the directory is another one now";
                return Err(Error::new(ErrorKind::SandboxGone, context));
            }
            Ok(Arc::new(LocalSandbox::new(handle, root)) as Arc<dyn Sandbox>)
        })
        .await
    }
}
