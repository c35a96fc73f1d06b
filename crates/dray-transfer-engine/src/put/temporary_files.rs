//! Temporary files that must not stay: those of a put that fails or is dropped, and those of killed processes.

use std::sync::Arc;

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;
use tokio::time::timeout;

use super::{PlacedFile, PutOperation, PutOptions};
use crate::engine::Engine;
use crate::place::{FIRST_TIME_EPOCH, KEPT_EPOCH, temp_epoch, temp_path, worker_epoch};

/// Age from which a temporary file counts as abandoned: a running writer fails after 30 s without a byte, and the
/// digest of a written file takes minutes at most.
const ABANDONED_NS: i128 = 10 * 60 * 1_000_000_000;
/// Age from which a temporary file that was kept for a later put counts as abandoned.
const KEPT_NS: i128 = 24 * 60 * 60 * 1_000_000_000;
/// Earlier workers on the same operation whose first temporary files are removed without a listing.
const MAX_PREDECESSORS: u64 = 4;
/// Entries of a directory that are examined.
const MAX_LISTED: usize = 10_000;

/// Files of this put that may exist and have to be removed. On drop a task of the engine removes them.
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

    /// Removes a file from the list: it is published, belongs to another process, or is gone.
    pub(super) fn forget(&mut self, path: &SandboxPath) {
        self.paths.retain(|leftover| leftover != path);
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
        // The task outlives the borrow of the engine, so it holds the sandbox itself.
        let sandbox = Arc::clone(&self.engine.sandbox);
        let longest = self.engine.options.response_timeout;
        let removing = async move {
            for path in paths {
                match timeout(longest, sandbox.remove(&path, false)).await {
                    Ok(Err(error)) if error.kind() != ErrorKind::NotFound => {
                        tracing::warn!(%path, %error, "a temp file is left behind");
                    }
                    Ok(_) => {}
                    Err(_) => {
                        tracing::warn!(%path, "a temp file is left behind: no response in time");
                    }
                }
            }
        };
        self.engine.tasks.spawn_on(removing, &runtime);
    }
}

impl PutOperation<'_> {
    /// Removes one of our files; a missing one counts as removed.
    pub(super) async fn discard(&self, path: &SandboxPath) -> Result<(), Error> {
        let engine = self.engine;
        match engine
            .with_response_timeout(engine.sandbox.remove(path, false))
            .await
        {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes a file now if possible; else it stays on the list for the end.
    pub(super) async fn try_discard(&mut self, path: &SandboxPath) {
        if self.discard(path).await.is_ok() {
            self.leftovers.forget(path);
        }
    }

    /// Leaves the temporary file that a later put can continue. Returns whether there is one.
    pub(super) fn keep(&mut self) -> bool {
        let leftovers = &self.leftovers.paths;
        let Some(kept) = self.kept.take_if(|kept| leftovers.contains(kept)) else {
            return false;
        };
        self.leftovers.forget(&kept);
        true
    }

    /// Removes all files of this put that were not published, and returns those that could not be removed. If the
    /// sandbox is gone, no file is left.
    pub(super) async fn clean(&mut self) -> Vec<SandboxPath> {
        let mut left = Vec::new();
        while let Some(path) = self.leftovers.paths.last().cloned() {
            match self.discard(&path).await {
                Err(error) if error.kind() != ErrorKind::SandboxGone => {
                    tracing::warn!(%path, %error, "a temp file is left behind");
                    left.push(path.clone());
                }
                _ => {}
            }
            // The path is forgotten after a failure too, so that the drop does not try again.
            self.leftovers.forget(&path);
        }
        left
    }

    /// Removes the temporary files of earlier workers on this operation: the names of their first attempts, and what a
    /// listing of the directory shows of later attempts. A listing that fails or is cut leaves the latter in place.
    pub(super) async fn forget_predecessors(
        &mut self,
        directory: &SandboxPath,
    ) -> Result<(), Error> {
        let PutOptions {
            operation, epoch, ..
        } = *self.options;
        if epoch >= FIRST_TIME_EPOCH {
            return Ok(());
        }
        let earlier = epoch.saturating_sub(MAX_PREDECESSORS).max(1)..epoch;
        if earlier.is_empty() {
            return Ok(());
        }
        let mut paths = Vec::new();
        for epoch in earlier {
            paths.push(temp_path(directory, self.name, operation, epoch, 1)?);
        }
        let listing = self.engine.sandbox.list(directory, 1, MAX_LISTED);
        let listing = self.engine.with_response_timeout(listing).await;
        for entry in listing.map_or_else(|_| Vec::new(), |listing| listing.entries) {
            let of_worker = worker_epoch(entry.path.name(), operation);
            if of_worker.is_some_and(|of_worker| of_worker < epoch) && !paths.contains(&entry.path)
            {
                paths.push(entry.path);
            }
        }
        for path in paths {
            self.leftovers.add(&path);
            self.try_discard(&path).await;
        }
        Ok(())
    }

    /// Removes temporary files that killed processes left in the directory, once for each engine. The file that was
    /// just written shows the sandbox's time. Best effort: failures do not fail the put.
    pub(super) async fn sweep(&self, directory: &SandboxPath, placed: &PlacedFile) {
        let engine = self.engine;
        if placed.existed || !engine.history().swept.insert(directory.clone()) {
            return;
        }
        let listing = engine.sandbox.list(directory, 1, MAX_LISTED);
        let listing = match engine.with_response_timeout(listing).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::debug!(%error, "could not look for abandoned temporary files");
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
            // Only names with an epoch in milliseconds count; names with a count of workers are removed by the next
            // worker.
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
                    Ok(()) => tracing::info!(%path, "removed an abandoned temporary file"),
                    Err(error) => {
                        tracing::debug!(%path, %error, "could not remove an abandoned temporary file");
                    }
                }
            }
        }
    }
}
