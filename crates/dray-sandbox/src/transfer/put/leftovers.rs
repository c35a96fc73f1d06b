//! Temp files that must not stay: of this put, when it fails or is dropped, and of processes that were killed.

use std::sync::Arc;

use tokio::time::timeout;

use super::{Placed, Putting};
use crate::error::{Error, ErrorKind};
use crate::path::SandboxPath;
use crate::transfer::engine::Engine;
use crate::transfer::place::{KEPT_EPOCH, temp_epoch};

/// Age from which a temp file counts as abandoned: a live writer gives up after 30 s without a byte, and the digest of
/// a written file takes minutes at most.
const ABANDONED_NS: i128 = 10 * 60 * 1_000_000_000;
/// The same of a temp file that stays for a later put to continue.
const KEPT_NS: i128 = 24 * 60 * 60 * 1_000_000_000;
/// Entries of a directory that are looked through.
const MAX_LISTED: usize = 10_000;

/// Files of this put that may exist and are to be removed. Dropping it lets a task of the engine remove them.
pub(super) struct Leftovers<'a> {
    engine: &'a Engine,
    paths: Vec<SandboxPath>,
}

impl<'a> Leftovers<'a> {
    pub(super) const fn new(engine: &'a Engine) -> Self {
        Self {
            engine,
            paths: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, path: &SandboxPath) {
        if !self.paths.contains(path) {
            self.paths.push(path.clone());
        }
    }

    /// It is in its place, or not ours, or gone.
    pub(super) fn forget(&mut self, path: &SandboxPath) {
        self.paths.retain(|ours| ours != path);
    }
}

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        if self.paths.is_empty() {
            return;
        }
        // Outside a runtime only the next put into the directory can clean up.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let paths = std::mem::take(&mut self.paths);
        let sandbox = Arc::clone(&self.engine.sandbox);
        let longest = self.engine.options.answer;
        let removing = async move {
            for path in paths {
                match timeout(longest, sandbox.remove(&path, false)).await {
                    Ok(Err(error)) if error.kind() != ErrorKind::NotFound => {
                        tracing::warn!(%path, %error, "a temp file is left behind");
                    }
                    Ok(_) => {}
                    Err(_) => {
                        tracing::warn!(%path, "a temp file is left behind: no answer in time")
                    }
                }
            }
        };
        self.engine.tasks.spawn_on(removing, &runtime);
    }
}

impl Putting<'_> {
    /// Removes a file of our own; it need not exist.
    pub(super) async fn discard(&self, path: &SandboxPath) -> Result<(), Error> {
        let engine = self.engine;
        match engine.answer(engine.sandbox.remove(path, false)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The same, with another chance at the end.
    pub(super) async fn try_discard(&mut self, path: &SandboxPath) {
        if self.discard(path).await.is_ok() {
            self.ours.forget(path);
        }
    }

    /// Leaves the temp file that a later put can continue where it is. Returns whether there is one.
    pub(super) fn keep(&mut self) -> bool {
        let ours = &self.ours.paths;
        let Some(kept) = self.kept.take_if(|kept| ours.contains(kept)) else {
            return false;
        };
        self.ours.forget(&kept);
        true
    }

    /// Removes all that is ours and not in its place, and names what stays. With the sandbox its files are gone.
    pub(super) async fn clean(&mut self) -> Vec<SandboxPath> {
        let mut left = Vec::new();
        while let Some(path) = self.ours.paths.last().cloned() {
            match self.discard(&path).await {
                Err(error) if error.kind() != ErrorKind::SandboxGone => {
                    tracing::warn!(%path, %error, "a temp file is left behind");
                    left.push(path.clone());
                }
                _ => {}
            }
            self.ours.forget(&path);
        }
        left
    }

    /// Removes temp files that killed processes left in the directory, once for each engine. The file that was just
    /// written shows the time of the sandbox. Best effort: nothing of this fails the put.
    pub(super) async fn sweep(&self, directory: &SandboxPath, placed: &Placed) {
        let engine = self.engine;
        if placed.existed || !engine.memory().swept.insert(directory.clone()) {
            return;
        }
        let listing = engine.sandbox.list(directory, 1, MAX_LISTED);
        let listing = match engine.answer(listing).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::debug!(%error, "abandoned temp files were not looked for");
                return;
            }
        };
        let name = |path: &SandboxPath| path.name().to_vec();
        let written = listing
            .entries
            .iter()
            .find(|entry| name(&entry.path) == placed.path.name());
        let Some(now) = written.and_then(|entry| entry.mtime_ns) else {
            return;
        };
        for entry in listing.entries {
            let Some(epoch) = temp_epoch(entry.path.name()) else {
                continue;
            };
            let age = if epoch == KEPT_EPOCH {
                KEPT_NS
            } else {
                ABANDONED_NS
            };
            if entry.mtime_ns.is_some_and(|mtime| mtime < now - age) {
                let path = entry.path;
                match self.discard(&path).await {
                    Ok(()) => tracing::info!(%path, "removed an abandoned temp file"),
                    Err(error) => tracing::debug!(%path, %error, "an abandoned temp file stays"),
                }
            }
        }
    }
}
