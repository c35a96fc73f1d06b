//! One opened incarnation and what is remembered of it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::options::{EngineOptions, ListOptions};
use crate::backend::{Follow, Sandbox};
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::metadata::{FileKind, Listing, Metadata, Probe, Transport};
use crate::path::SandboxPath;
use crate::policy::{Places, Policy, PolicyOptions, Way};
use crate::receipt::Skipped;

/// Moves files for one opened incarnation. Keep it as long as that: it remembers what the sandbox offers and which
/// transports failed, and lets only so many transfers run concurrently.
#[derive(Debug)]
pub struct Engine {
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) options: EngineOptions,
    gate: Semaphore,
    /// Removes what dropped transfers leave behind.
    pub(super) tasks: TaskTracker,
    probe: OnceCell<Probe>,
    memory: Mutex<Memory>,
}

/// What was learnt from transfers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Transports that are given up, by direction.
    pub(super) given_up: BTreeMap<(bool, Transport), ErrorKind>,
    /// Whether a file could be renamed when that was last tried.
    pub(super) renames: Option<bool>,
    /// Directories in which temp files of killed processes were looked for.
    pub(super) swept: BTreeSet<SandboxPath>,
}

impl Engine {
    /// For this incarnation.
    pub fn new(sandbox: Arc<dyn Sandbox>, options: EngineOptions) -> Self {
        let gate = Semaphore::new(sandbox.parallel().clamp(1, Semaphore::MAX_PERMITS));
        Self {
            sandbox,
            options,
            gate,
            tasks: TaskTracker::new(),
            probe: OnceCell::new(),
            memory: Mutex::default(),
        }
    }

    /// Which incarnation it is.
    pub fn handle(&self) -> &Handle {
        self.sandbox.handle()
    }

    /// The sandbox itself, for what needs no care.
    pub fn sandbox(&self) -> &Arc<dyn Sandbox> {
        &self.sandbox
    }

    /// What the sandbox offers; asked once. `free` and `life_ms` are as they were then.
    ///
    /// # Errors
    ///
    /// What probing fails with; the next call asks again.
    pub async fn probe(&self) -> Result<&Probe, Error> {
        self.probe
            .get_or_try_init(|| self.answer(self.sandbox.probe()))
            .await
    }

    /// Where home and working directory are; a session may have its own of the latter.
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
        // Both lists name some of the same paths, and each look is a question to the sandbox.
        let named: BTreeSet<_> = policy.roots.iter().chain(&policy.homes).cloned().collect();
        let looks = named.iter().map(|path| self.resolved(path));
        let resolved = futures_util::future::join_all(looks).await;
        let resolved: BTreeMap<_, _> = named.into_iter().zip(resolved).collect();
        for list in [&mut policy.roots, &mut policy.homes] {
            for path in list.clone() {
                if let Some(Some(path)) = resolved.get(&path)
                    && *path != SandboxPath::root()
                    && !list.contains(path)
                {
                    list.push(path.clone());
                }
            }
        }
        Ok(policy)
    }

    /// What a path is, when policy lets it be seen.
    ///
    /// # Errors
    ///
    /// Policy's refusals, and what the sandbox says.
    pub async fn stat(
        &self,
        policy: &Policy,
        path: &SandboxPath,
        follow: Follow,
    ) -> Result<Metadata, Error> {
        policy.check(path, Way::Out)?;
        let metadata = self.answer(self.sandbox.stat(path, follow)).await?;
        if follow == Follow::No && metadata.kind == FileKind::Symlink {
            policy.check(&self.in_resolved_parent(path).await?, Way::Out)?;
        } else {
            policy.check(&metadata.real_path, Way::Out)?;
        }
        Ok(metadata)
    }

    /// What lies in a directory, less what policy would refuse.
    ///
    /// # Errors
    ///
    /// Policy's refusals, [`ErrorKind::NotDirectory`], and what the sandbox says.
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
        listing
            .entries
            .retain(|entry| options.policy.check(&entry.path, Way::Out).is_ok());
        Ok(listing)
    }

    /// Removes a file, a link itself, or with `recursive` a directory. No root is removed. Not for models.
    ///
    /// # Errors
    ///
    /// Policy's refusals, and what the sandbox says.
    pub async fn remove(
        &self,
        policy: &Policy,
        path: &SandboxPath,
        recursive: bool,
    ) -> Result<(), Error> {
        policy.check(path, Way::In)?;
        let resolved = self.in_resolved_parent(path).await?;
        policy.check(&resolved, Way::In)?;
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

    /// Where a path leads; nothing when it leads nowhere.
    async fn resolved(&self, path: &SandboxPath) -> Option<SandboxPath> {
        let metadata = self.answer(self.sandbox.stat(path, Follow::Yes)).await;
        metadata.ok().map(|metadata| metadata.real_path)
    }

    /// Bounds the wait for an answer.
    pub(super) async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        timeout(self.options.answer, asked)
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "no answer in time")))
    }

    /// Waits until one more transfer may run.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Error> {
        let closed = |_| Error::new(ErrorKind::SandboxGone, "closed");
        self.gate.acquire().await.map_err(closed)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The best usable transport that was not given up. When all were given up earlier, they get another chance: what failed
    /// then need not fail now. Notes in `skipped` what was left out.
    pub(super) fn choose(
        &self,
        way: Way,
        mut usable: Vec<Transport>,
        skipped: &mut Vec<Skipped>,
    ) -> Option<Transport> {
        usable.retain(|transport| {
            skipped
                .iter()
                .all(|skipped| skipped.transport != *transport)
        });
        let memory = self.memory();
        let given_up = |transport: Transport| {
            let reason = memory.given_up.get(&(way == Way::Out, transport)).copied();
            reason.map(|reason| Skipped { transport, reason })
        };
        let best = usable
            .iter()
            .position(|transport| given_up(*transport).is_none());
        let before = usable.get(..best.unwrap_or(0)).unwrap_or_default();
        skipped.extend(before.iter().filter_map(|transport| given_up(*transport)));
        usable.get(best.unwrap_or(0)).copied()
    }

    /// The best transport that can begin reading in the middle of a file and was not given up.
    pub(super) fn resuming(&self, file: &Metadata) -> Option<Transport> {
        let memory = self.memory();
        let is_given_up = |transport| memory.given_up.contains_key(&(true, transport));
        self.sandbox
            .read_transports(file)
            .into_iter()
            .find(|transport| self.sandbox.resumes(*transport) && !is_given_up(*transport))
    }

    /// Gives a transport up for this incarnation.
    pub(super) fn give_up(&self, way: Way, skipped: Skipped) {
        let key = (way == Way::Out, skipped.transport);
        self.memory().given_up.insert(key, skipped.reason);
    }
}
