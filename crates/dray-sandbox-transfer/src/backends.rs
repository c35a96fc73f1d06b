//! The kinds of sandboxes that are configured, and the incarnations that are open.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_proto::v1;
use dray_sandbox::{Address, Backend, ErrorKind, Handle, Sandbox};
use dray_transfer_engine::{Engine, EngineOptions, SpoolUsage};

use crate::error::Error;

/// Incarnations of one backend that are kept open; the least recently used one is closed for another.
const MAX_OPEN_SANDBOXES: usize = 256;

/// Longest time that a backend may take to find or to open a sandbox, its own retries included. It is above every
/// default `connect_timeout` with a login and a resumed sandbox added. Without this limit, a provider that accepts the
/// connection and never responds would hold the request until the caller's deadline, and a direct transfer forever.
const OPEN_TIMEOUT: Duration = Duration::from_mins(2);

/// Result of the last check of a backend; `None` before the first.
pub(crate) type LastCheck = tokio::sync::Mutex<Option<v1::BackendCheck>>;

/// All configured backends, by name, with their open incarnations.
#[derive(Debug)]
pub struct Backends {
    kinds: BTreeMap<&'static str, Arc<OpenBackend>>,
    options: EngineOptions,
}

/// A backend with its open incarnations. After a change of other settings, the later [`Backends`] share it.
#[derive(Debug)]
struct OpenBackend {
    backend: Arc<dyn Backend>,
    options: EngineOptions,
    open: Mutex<Open>,
    /// Result of the last check; locked while a check runs.
    last_check: LastCheck,
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
        let kinds = backends.into_iter().map(|backend| {
            let opened = OpenBackend {
                backend: Arc::clone(&backend),
                options: options.clone(),
                open: Mutex::default(),
                last_check: LastCheck::default(),
            };
            (backend.name(), Arc::new(opened))
        });
        Self {
            kinds: kinds.collect(),
            options,
        }
    }

    /// Takes these backends of `earlier`, with their open incarnations. Those with other options for their engines get
    /// new engines.
    pub(crate) fn keep_from(&mut self, earlier: &Self, names: &[&'static str]) {
        for name in names {
            let Some(known) = earlier.kinds.get(name) else {
                continue;
            };
            let kept = if earlier.options == self.options {
                Arc::clone(known)
            } else {
                Arc::new(OpenBackend {
                    backend: Arc::clone(&known.backend),
                    options: self.options.clone(),
                    open: Mutex::default(),
                    last_check: LastCheck::default(),
                })
            };
            self.kinds.insert(name, kept);
        }
    }

    /// What all transfers have in the spool directory.
    pub(crate) fn spool_usage(&self) -> SpoolUsage {
        self.options.spool_usage.clone()
    }

    /// Names of the backends, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.kinds.keys().copied().collect()
    }

    /// The backend of a name with the place of its last check.
    pub(crate) fn checked(&self, name: &str) -> Option<(&Arc<dyn Backend>, &LastCheck)> {
        let opened = self.kinds.get(name)?;
        Some((&opened.backend, &opened.last_check))
    }

    fn backend(&self, name: &str) -> Result<&Arc<OpenBackend>, Error> {
        self.kinds
            .get(name)
            .ok_or_else(|| Error::NoBackend(name.to_owned()))
    }

    /// Finds the incarnation that an address means now.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackend`], and failures of the backend; [`ErrorKind::Timeout`] after two minutes.
    pub async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let backend = self.backend(&address.backend)?;
        let found = within_open_timeout("finding the sandbox", backend.backend.resolve(address));
        found.await.map_err(|error| address_error(address, error))
    }

    /// The engine of exactly this incarnation, opened when it is not open yet.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackend`], and failures of the backend; [`ErrorKind::Timeout`] after two minutes.
    pub async fn engine(&self, handle: &Handle) -> Result<Arc<Engine>, Error> {
        let opened = self.backend(&handle.address.backend)?;
        {
            let mut open = opened.lock();
            // A count of uses instead of a time: it needs no clock and never repeats.
            open.uses += 1;
            let now = open.uses;
            if let Some((engine, used)) = open.engines.get_mut(handle) {
                *used = now;
                return Ok(Arc::clone(engine));
            }
        }
        // The lock is not held here: opening takes seconds, and other incarnations are used meanwhile.
        let opening = opened.backend.open(handle);
        let sandbox = within_open_timeout("opening the sandbox", opening).await?;
        Ok(opened.keep(handle, sandbox))
    }

    /// Opens the incarnation that an address means now, and keeps it open.
    ///
    /// # Errors
    ///
    /// [`Error::NoBackend`], and failures of the backend; [`ErrorKind::Timeout`] after two minutes.
    pub async fn open_address(&self, address: &Address) -> Result<Handle, Error> {
        let opened = self.backend(&address.backend)?;
        let opening = opened.backend.open_address(address);
        let sandbox = within_open_timeout("opening the sandbox", opening).await;
        let sandbox = sandbox.map_err(|error| address_error(address, error))?;
        let handle = sandbox.handle().clone();
        opened.keep(&handle, sandbox);
        Ok(handle)
    }

    /// Closes an incarnation after a failure that means that it is gone or was replaced.
    pub fn failed(&self, handle: &Handle, kind: ErrorKind) {
        let is_closed = matches!(
            kind,
            ErrorKind::SandboxGone
                | ErrorKind::SandboxStopped
                | ErrorKind::SandboxPaused
                | ErrorKind::Auth
        );
        if is_closed && let Ok(opened) = self.backend(&handle.address.backend) {
            opened.lock().engines.remove(handle);
        }
    }
}

impl OpenBackend {
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
        // The first engine stays: it remembers what earlier transfers learned, and it limits the concurrent ones.
        let (engine, _) = open.engines.entry(handle.clone()).or_insert((engine, now));
        Arc::clone(engine)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of an address that could not be found or opened. A name that is refused here is that of the sandbox, not of
/// a file in it.
fn address_error(address: &Address, error: Error) -> Error {
    match error {
        Error::Sandbox(source) if source.kind() == ErrorKind::InvalidName => {
            Error::InvalidAddress {
                kind: address.backend.clone(),
                source,
            }
        }
        error => error,
    }
}

/// Waits for a backend for at most [`OPEN_TIMEOUT`]. After that the future is dropped, which closes its connections.
async fn within_open_timeout<T>(
    action: &str,
    opening: impl Future<Output = Result<T, dray_sandbox::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(OPEN_TIMEOUT, opening).await {
        Ok(opened) => Ok(opened?),
        Err(_elapsed) => {
            let context = format!("{action} took more than {} s", OPEN_TIMEOUT.as_secs());
            Err(dray_sandbox::Error::new(ErrorKind::Timeout, context).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use async_trait::async_trait;

    use super::*;

    /// A backend whose provider accepts connections and never responds.
    #[derive(Debug)]
    struct SilentBackend;

    #[async_trait]
    impl Backend for SilentBackend {
        fn name(&self) -> &'static str {
            "silent"
        }

        async fn resolve(&self, _: &Address) -> Result<Handle, dray_sandbox::Error> {
            pending().await
        }

        async fn open(&self, _: &Handle) -> Result<Arc<dyn Sandbox>, dray_sandbox::Error> {
            pending().await
        }
    }

    fn timed_out<T>(result: Result<T, Error>) -> bool {
        matches!(result, Err(Error::Sandbox(error)) if error.kind() == ErrorKind::Timeout)
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_never_responds_does_not_hold_the_request() {
        let backends = Backends::new(vec![Arc::new(SilentBackend)], EngineOptions::default());
        let address: Address = "silent:box".parse().unwrap();
        let handle = Handle {
            address: address.clone(),
            incarnation: "1".to_owned(),
        };
        assert!(timed_out(backends.resolve(&address).await));
        assert!(timed_out(backends.open_address(&address).await));
        assert!(timed_out(backends.engine(&handle).await));
    }
    #[test]
    fn open_incarnations_stay_while_the_options_of_their_engines_do() {
        let silent: Arc<dyn Backend> = Arc::new(SilentBackend);
        let options = EngineOptions::default();
        let first = Backends::new(vec![silent], options.clone());
        let later = |options: EngineOptions| {
            let mut later = Backends::new(Vec::new(), options);
            later.keep_from(&first, &["silent", "unknown"]);
            assert_eq!(later.names(), ["silent"]);
            Arc::ptr_eq(&first.kinds["silent"], &later.kinds["silent"])
        };
        assert!(later(options.clone()));
        assert!(!later(EngineOptions {
            idle: Duration::from_secs(7),
            ..options
        }));
    }
}
