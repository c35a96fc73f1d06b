//! The kinds of sandboxes that are configured, and the incarnations that are open.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_sandbox::{Address, Backend, ErrorKind, Handle, Sandbox};
use dray_transfer_engine::{Engine, EngineOptions};

use crate::error::Error;

/// Incarnations that are kept open; the one that was used longest ago is closed for another.
const MAX_OPEN_SANDBOXES: usize = 256;

/// All configured backends, by name, with their open incarnations.
#[derive(Debug)]
pub struct Backends {
    kinds: BTreeMap<&'static str, Arc<dyn Backend>>,
    options: EngineOptions,
    open: Mutex<Open>,
}

/// The engines of open incarnations, with the number of their last use.
#[derive(Debug, Default)]
struct Open {
    engines: HashMap<Handle, (Arc<Engine>, u64)>,
    uses: u64,
}

impl Backends {
    /// Takes the backends, each with its own name, and the options for their engines.
    pub fn new(backends: Vec<Arc<dyn Backend>>, options: EngineOptions) -> Self {
        Self {
            kinds: backends
                .into_iter()
                .map(|backend| (backend.name(), backend))
                .collect(),
            options,
            open: Mutex::default(),
        }
    }

    /// Names of the backends, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.kinds.keys().copied().collect()
    }

    fn backend(&self, name: &str) -> Result<&Arc<dyn Backend>, Error> {
        self.kinds
            .get(name)
            .ok_or_else(|| Error::NoBackend(name.to_owned()))
    }

    /// Finds the incarnation that an address means now.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackend`], and failures of the backend.
    pub async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        Ok(self.backend(&address.backend)?.resolve(address).await?)
    }

    /// The engine of exactly this incarnation, opened when it is not open yet.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackend`], and failures of the backend.
    pub async fn engine(&self, handle: &Handle) -> Result<Arc<Engine>, Error> {
        {
            let mut open = self.lock();
            // A count of uses instead of a time: it needs no clock and never repeats.
            open.uses += 1;
            let now = open.uses;
            if let Some((engine, used)) = open.engines.get_mut(handle) {
                *used = now;
                return Ok(Arc::clone(engine));
            }
        }
        // Without the lock: opening takes seconds, and other incarnations are used meanwhile.
        let sandbox = self.backend(&handle.address.backend)?.open(handle).await?;
        Ok(self.keep(handle, sandbox))
    }

    /// Opens the incarnation that an address means now, and keeps it open.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackend`], and failures of the backend.
    pub async fn open_address(&self, address: &Address) -> Result<Handle, Error> {
        let backend = self.backend(&address.backend)?;
        let sandbox = backend.open_address(address).await?;
        let handle = sandbox.handle().clone();
        self.keep(&handle, sandbox);
        Ok(handle)
    }

    /// Keeps an incarnation open, unless another caller has just opened it.
    fn keep(&self, handle: &Handle, sandbox: Arc<dyn Sandbox>) -> Arc<Engine> {
        let engine = Arc::new(Engine::new(sandbox, self.options.clone()));
        let mut open = self.lock();
        if open.engines.len() >= MAX_OPEN_SANDBOXES
            && let Some(oldest) = open
                .engines
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(handle, _)| handle.clone())
        {
            open.engines.remove(&oldest);
        }
        let now = open.uses;
        // The engine that was first stays: it holds what transfers learnt, and the limit of concurrent ones.
        let (engine, _) = open.engines.entry(handle.clone()).or_insert((engine, now));
        Arc::clone(engine)
    }

    /// Closes an incarnation after a failure that means that it is not what it was.
    pub fn failed(&self, handle: &Handle, kind: ErrorKind) {
        if matches!(
            kind,
            ErrorKind::SandboxGone
                | ErrorKind::SandboxStopped
                | ErrorKind::SandboxPaused
                | ErrorKind::Auth
        ) {
            self.lock().engines.remove(handle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
