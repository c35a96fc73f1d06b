//! The engine of one opened incarnation, with what it learnt about it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_sandbox::backend::{Follow, Sandbox};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::Handle;
use dray_sandbox::metadata::{FileKind, Listing, Metadata, Probe, Transport};
use dray_sandbox::path::SandboxPath;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::options::{EngineOptions, ListOptions};
use crate::policy::{Places, Policy, PolicyOptions, TransferDirection};
use crate::receipt::Skipped;

/// Moves files for one opened incarnation. Callers keep it as long as that: it remembers what the sandbox offers and
/// which transports failed, and it limits how many transfers run concurrently.
#[derive(Debug)]
pub struct Engine {
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) options: EngineOptions,
    gate: Semaphore,
    /// Views at work: apart from transfers, which must not wait for people.
    pub(super) views: Arc<Semaphore>,
    /// Tasks that remove what dropped transfers leave behind.
    pub(super) tasks: TaskTracker,
    probe: OnceCell<Probe>,
    memory: Mutex<TransferMemory>,
}

/// Knowledge from earlier transfers.
#[derive(Debug, Default)]
pub(super) struct TransferMemory {
    /// Transports that were given up, with the reason, by direction (`true` for out of the sandbox).
    pub(super) given_up: BTreeMap<(bool, Transport), ErrorKind>,
    /// Whether a file could be renamed at the last attempt; `None` before the first.
    pub(super) renames: Option<bool>,
    /// Directories in which temporary files of killed processes were searched.
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
            memory: Mutex::default(),
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

    /// What the sandbox offers; probed one time. `free` and `life_ms` are those of that time.
    ///
    /// # Errors
    ///
    /// The failure of the probe; the next call probes again.
    pub async fn probe(&self) -> Result<&Probe, Error> {
        self.probe
            .get_or_try_init(|| self.answer(self.sandbox.probe()))
            .await
    }

    /// What the sandbox offers now, with the present `free` and `life_ms`.
    ///
    /// # Errors
    ///
    /// The failure of the probe; [`ErrorKind::Timeout`] when the sandbox does not answer in time.
    pub async fn probe_again(&self) -> Result<Probe, Error> {
        self.answer(self.sandbox.probe()).await
    }

    /// The home and the working directory; a session may have its own working directory.
    ///
    /// # Errors
    ///
    /// As [`Self::probe`].
    pub async fn places(&self, working_directory: Option<SandboxPath>) -> Result<Places, Error> {
        Ok(Places::new(self.probe().await?, working_directory))
    }

    /// The policy for this sandbox: roots and home count as reported and as the sandbox resolves them, so that a home
    /// which is a link is still the home.
    ///
    /// # Errors
    ///
    /// As [`PolicyOptions::bind`] and [`Self::probe`].
    pub async fn policy(
        &self,
        options: &PolicyOptions,
        working_directory: Option<SandboxPath>,
    ) -> Result<Policy, Error> {
        let mut policy = options.bind(&self.places(working_directory).await?)?;
        // Both lists share paths, and each of them costs a request to the sandbox.
        let named: BTreeSet<_> = policy.roots.iter().chain(&policy.homes).cloned().collect();
        let looks = named.iter().map(|path| self.resolved(path));
        let resolved = futures_util::future::join_all(looks).await;
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

    /// Metadata of a path, when policy permits it.
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
        let metadata = self.answer(self.sandbox.stat(path, follow)).await?;
        // A link that was not followed stands where its directory leads; its target is not read.
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

    /// Text that differs once the file behind `metadata` was changed or replaced, also when its modification time was
    /// set back. The path must have passed [`Self::stat`]. Without a report of the sandbox it is device and inode, or
    /// empty.
    ///
    /// # Errors
    ///
    /// Failures of the sandbox.
    pub async fn change_marker(&self, metadata: &Metadata) -> Result<String, Error> {
        let marker = self
            .answer(self.sandbox.change_marker(&metadata.real_path))
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
    ) -> Result<Listing, Error> {
        let directory = self.stat(options.policy, path, Follow::Yes).await?;
        if directory.kind != FileKind::Directory {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "only a directory has a list",
            ));
        }
        let listing = self
            .sandbox
            .list(&directory.real_path, options.depth, options.limit);
        let mut listing = self.answer(listing).await?;
        listing.entries.retain(|entry| {
            options
                .policy
                .check(&entry.path, TransferDirection::Outbound)
                .is_ok()
        });
        Ok(listing)
    }

    /// Removes a file, a link itself, or with `recursive` a directory. A root is never removed. Not for models.
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
        // The last part stays as it is, because a link is removed and not its target.
        let resolved = self.in_resolved_parent(path).await?;
        policy.check(&resolved, TransferDirection::Inbound)?;
        if policy.roots.contains(&resolved) {
            return Err(Error::new(
                ErrorKind::OutsideRoot,
                "a root itself is not removed",
            ));
        }
        self.answer(self.sandbox.remove(&resolved, recursive)).await
    }

    /// The path with links resolved in all but its last part.
    pub(super) async fn in_resolved_parent(
        &self,
        path: &SandboxPath,
    ) -> Result<SandboxPath, Error> {
        let parent = path.parent();
        let parent = self.answer(self.sandbox.stat(&parent, Follow::Yes)).await?;
        parent.real_path.join(path.name())
    }

    /// The path with all links resolved; `None` when it leads nowhere or the sandbox fails.
    async fn resolved(&self, path: &SandboxPath) -> Option<SandboxPath> {
        let metadata = self.answer(self.sandbox.stat(path, Follow::Yes)).await;
        metadata.ok().map(|metadata| metadata.real_path)
    }

    /// Limits the wait for a response that is not a stream.
    pub(super) async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        timeout(self.options.response_timeout, asked)
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "no answer in time")))
    }

    /// Waits until one more transfer may run. The permit ends with its guard.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Error> {
        let closed = |_| Error::new(ErrorKind::SandboxGone, "closed");
        self.gate.acquire().await.map_err(closed)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, TransferMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses the best usable transport that was not given up. When all were given up earlier, they get another
    /// chance, since the cause may have passed. Records in `skipped` what was left out.
    pub(super) fn choose(
        &self,
        direction: TransferDirection,
        mut usable: Vec<Transport>,
        skipped: &mut Vec<Skipped>,
    ) -> Option<Transport> {
        // What this transfer gave up or passed over stays out, also when nothing else is left.
        usable.retain(|transport| {
            skipped
                .iter()
                .all(|skipped| skipped.transport != *transport)
        });
        let memory = self.memory();
        let given_up = |transport: Transport| {
            let reason = memory
                .given_up
                .get(&(direction == TransferDirection::Outbound, transport))
                .copied();
            reason.map(|reason| Skipped { transport, reason })
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
        let memory = self.memory();
        let is_given_up = |transport| memory.given_up.contains_key(&(true, transport));
        self.sandbox
            .read_transports(file)
            .into_iter()
            .find(|transport| self.sandbox.resumes(*transport) && !is_given_up(*transport))
    }

    /// Gives a transport up for this incarnation, in one direction.
    pub(super) fn give_up(&self, direction: TransferDirection, skipped: Skipped) {
        let key = (direction == TransferDirection::Outbound, skipped.transport);
        self.memory().given_up.insert(key, skipped.reason);
    }
}
