//! The engine of one opened incarnation. It remembers what earlier transfers learned about the sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_sandbox::backend::{Follow, Sandbox};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::Handle;
use dray_sandbox::metadata::{Entry, FileKind, Metadata, Probe, Transport};
use dray_sandbox::path::SandboxPath;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::options::{EngineOptions, ListOptions};
use crate::policy::{Places, Policy, PolicyOptions, TransferDirection};
use crate::receipt::SkippedTransport;

/// Moves files for one opened incarnation. Callers keep one engine for its lifetime: the engine remembers what the
/// sandbox offers and which transports failed, and it limits how many transfers run concurrently.
#[derive(Debug)]
pub struct Engine {
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) options: EngineOptions,
    gate: Semaphore,
    /// Limits concurrent views of files. It is separate, so that transfers do not wait for views.
    pub(super) views: Arc<Semaphore>,
    /// Tasks that remove the temporary files of dropped transfers.
    pub(super) tasks: TaskTracker,
    probe: OnceCell<Probe>,
    history: Mutex<TransferHistory>,
}

/// The entries of a directory that policy permits, perhaps cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermittedListing {
    /// The entries in the order of their paths.
    pub entries: Vec<Entry>,
    /// Whether there are more entries than the limit allowed.
    pub truncated: bool,
    /// Entries within the limit that policy refuses. Callers report the number, so that a directory does not look
    /// complete or empty.
    pub denied: usize,
}

/// Facts about the sandbox that earlier transfers learned.
#[derive(Debug, Default)]
pub(super) struct TransferHistory {
    /// Transports that are no longer used, with the reason, by direction (`true` for out of the sandbox).
    pub(super) given_up: BTreeMap<(bool, Transport), ErrorKind>,
    /// Whether a file could be renamed at the last attempt; `None` before the first.
    pub(super) can_rename: Option<bool>,
    /// Directories that were already searched for temporary files of killed processes.
    pub(super) swept: BTreeSet<SandboxPath>,
}

impl Engine {
    /// Makes an engine for this incarnation. The number of concurrent transfers is that of the backend.
    pub fn new(sandbox: Arc<dyn Sandbox>, options: EngineOptions) -> Self {
        let parallel = sandbox.parallel().clamp(1, Semaphore::MAX_PERMITS);
        let gate = Semaphore::new(parallel);
        Self {
            sandbox,
            options,
            gate,
            views: Arc::new(Semaphore::new(parallel)),
            tasks: TaskTracker::new(),
            probe: OnceCell::new(),
            history: Mutex::default(),
        }
    }

    /// The incarnation to which the engine belongs.
    pub fn handle(&self) -> &Handle {
        self.sandbox.handle()
    }

    /// The sandbox itself, for operations that need no policy and no proof.
    pub fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.sandbox
    }

    /// Capabilities of the sandbox. Probed once, so `free` and `life_ms` are those of the first call.
    ///
    /// # Errors
    ///
    /// The failure of the probe; the next call probes again.
    pub async fn probe(&self) -> Result<&Probe, Error> {
        self.probe
            .get_or_try_init(|| self.with_response_timeout(self.sandbox.probe()))
            .await
    }

    /// Probes the capabilities of the sandbox again, with the present `free` and `life_ms`.
    ///
    /// # Errors
    ///
    /// The failure of the probe; [`ErrorKind::Timeout`] when the sandbox does not answer in time.
    pub async fn probe_again(&self) -> Result<Probe, Error> {
        self.with_response_timeout(self.sandbox.probe()).await
    }

    /// The home and the working directory. `working_directory` replaces the one that the sandbox reports.
    ///
    /// # Errors
    ///
    /// Those of [`Self::probe`].
    pub async fn places(&self, working_directory: Option<SandboxPath>) -> Result<Places, Error> {
        Ok(Places::new(self.probe().await?, working_directory))
    }

    /// The policy for this sandbox. It contains roots and homes both as reported and with links resolved, so that a
    /// home that is a link counts as home under both paths.
    ///
    /// # Errors
    ///
    /// Those of [`PolicyOptions::bind`] and [`Self::probe`].
    pub async fn policy(
        &self,
        options: &PolicyOptions,
        working_directory: Option<SandboxPath>,
    ) -> Result<Policy, Error> {
        let mut policy = options.bind(&self.places(working_directory).await?)?;
        // The two lists may share paths, and resolving a path costs a request to the sandbox.
        let named: BTreeSet<_> = policy.roots.iter().chain(&policy.homes).cloned().collect();
        let lookups = named.iter().map(|path| self.resolved(path));
        let resolved = futures_util::future::join_all(lookups).await;
        let resolved: BTreeMap<_, _> = named.into_iter().zip(resolved).collect();
        for list in [&mut policy.roots, &mut policy.homes] {
            for path in list.clone() {
                if let Some(Some(path)) = resolved.get(&path)
                    // A link to `/` would permit the whole file system under the name of a harmless root.
                    && *path != SandboxPath::root()
                    && !list.contains(path)
                {
                    list.push(path.clone());
                }
            }
        }
        Ok(policy)
    }

    /// Returns the metadata of a path that policy permits.
    ///
    /// # Errors
    ///
    /// Refusals of policy, and failures of the sandbox.
    pub async fn stat(
        &self,
        policy: &Policy,
        path: &SandboxPath,
        follow: Follow,
    ) -> Result<Metadata, Error> {
        policy.check(path, TransferDirection::Outbound)?;
        let metadata = self
            .with_response_timeout(self.sandbox.stat(path, follow))
            .await?;
        // A link that is not followed is checked by the resolved path of its directory; its target is not read.
        if follow == Follow::No && metadata.kind == FileKind::Symlink {
            policy.check(
                &self.in_resolved_parent(path).await?,
                TransferDirection::Outbound,
            )?;
        } else {
            policy.check(&metadata.real_path, TransferDirection::Outbound)?;
        }
        Ok(metadata)
    }

    /// Returns a text that changes when the file of `metadata` is changed or replaced, even when its modification time
    /// is set back. The path must have passed [`Self::stat`]. If the sandbox cannot report changes, the text is device
    /// and inode, or empty.
    ///
    /// # Errors
    ///
    /// Failures of the sandbox.
    pub async fn change_marker(&self, metadata: &Metadata) -> Result<String, Error> {
        let marker = self
            .with_response_timeout(self.sandbox.change_marker(&metadata.real_path))
            .await?;
        let identity = || {
            let (device, inode) = metadata.identity?;
            Some(format!("{device}:{inode}"))
        };
        Ok(marker.or_else(identity).unwrap_or_default())
    }

    /// Lists a directory, without the entries that policy would refuse.
    ///
    /// # Errors
    ///
    /// Refusals of policy, [`ErrorKind::NotDirectory`], and failures of the sandbox.
    pub async fn list(
        &self,
        path: &SandboxPath,
        options: &ListOptions<'_>,
    ) -> Result<PermittedListing, Error> {
        let directory = self.stat(options.policy, path, Follow::Yes).await?;
        if directory.kind != FileKind::Directory {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "only a directory can be listed",
            ));
        }
        let listing = self
            .sandbox
            .list(&directory.real_path, options.depth, options.limit);
        let listing = self.with_response_timeout(listing).await?;
        let mut entries = listing.entries;
        let listed = entries.len();
        entries.retain(|entry| {
            options
                .policy
                .check(&entry.path, TransferDirection::Outbound)
                .is_ok()
        });
        Ok(PermittedListing {
            denied: listed - entries.len(),
            entries,
            truncated: listing.truncated,
        })
    }

    /// Removes a file, a link (not its target), or with `recursive` a directory. A root is never removed. This
    /// operation is not offered to models.
    ///
    /// # Errors
    ///
    /// Refusals of policy, and failures of the sandbox.
    pub async fn remove(
        &self,
        policy: &Policy,
        path: &SandboxPath,
        recursive: bool,
    ) -> Result<(), Error> {
        policy.check(path, TransferDirection::Inbound)?;
        // The last component is not resolved, because a link is removed and not its target.
        let resolved = self.in_resolved_parent(path).await?;
        policy.check(&resolved, TransferDirection::Inbound)?;
        // A directory that contains a root would be removed with it.
        if policy.roots.iter().any(|root| root.is_beneath(&resolved)) {
            return Err(Error::new(
                ErrorKind::OutsideRoot,
                "a root of the policy cannot be removed",
            ));
        }
        self.with_response_timeout(self.sandbox.remove(&resolved, recursive))
            .await
    }

    /// The path with links resolved in all components but the last.
    pub(super) async fn in_resolved_parent(
        &self,
        path: &SandboxPath,
    ) -> Result<SandboxPath, Error> {
        let parent = path.parent();
        let parent = self
            .with_response_timeout(self.sandbox.stat(&parent, Follow::Yes))
            .await?;
        parent.real_path.join(path.name())
    }

    /// The path with all links resolved; `None` when it leads nowhere or the sandbox fails.
    async fn resolved(&self, path: &SandboxPath) -> Option<SandboxPath> {
        let metadata = self
            .with_response_timeout(self.sandbox.stat(path, Follow::Yes))
            .await;
        metadata.ok().map(|metadata| metadata.real_path)
    }

    /// Awaits a response that is not a stream, for at most [`EngineOptions::response_timeout`].
    pub(super) async fn with_response_timeout<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        timeout(self.options.response_timeout, call)
            .await
            .unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::Timeout,
                    "the sandbox did not respond in time",
                ))
            })
    }

    /// Waits until one more transfer may run. Dropping the permit lets another transfer run.
    pub(super) async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, Error> {
        let closed = |_| Error::new(ErrorKind::SandboxGone, "closed");
        self.gate.acquire().await.map_err(closed)
    }

    pub(super) fn history(&self) -> MutexGuard<'_, TransferHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses the best usable transport that was not given up. When all were given up by earlier transfers, chooses
    /// the best of them, because the cause may be gone. Adds the transports that were left out to `skipped`.
    pub(super) fn choose(
        &self,
        direction: TransferDirection,
        mut usable: Vec<Transport>,
        skipped: &mut Vec<SkippedTransport>,
    ) -> Option<Transport> {
        // A transport that this transfer skipped is not used again, even when no other transport is left.
        usable.retain(|transport| {
            skipped
                .iter()
                .all(|skipped| skipped.transport != *transport)
        });
        let history = self.history();
        let given_up = |transport: Transport| {
            let reason = history
                .given_up
                .get(&(direction == TransferDirection::Outbound, transport))
                .copied();
            reason.map(|reason| SkippedTransport { transport, reason })
        };
        let best = usable
            .iter()
            .position(|transport| given_up(*transport).is_none());
        let before = usable.get(..best.unwrap_or(0)).unwrap_or_default();
        skipped.extend(before.iter().filter_map(|transport| given_up(*transport)));
        usable.get(best.unwrap_or(0)).copied()
    }

    /// The best transport that can begin at an offset of the file and was not given up.
    pub(super) fn resuming(&self, file: &Metadata) -> Option<Transport> {
        let history = self.history();
        let is_given_up = |transport| history.given_up.contains_key(&(true, transport));
        self.sandbox
            .read_transports(file)
            .into_iter()
            .find(|transport| self.sandbox.resumes(*transport) && !is_given_up(*transport))
    }

    /// Gives a transport up for this incarnation, in one direction.
    pub(super) fn give_up(&self, direction: TransferDirection, skipped: SkippedTransport) {
        let key = (direction == TransferDirection::Outbound, skipped.transport);
        self.history().given_up.insert(key, skipped.reason);
    }
}
