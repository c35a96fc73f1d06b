//! Values that a running service may use: bus, store, clock, meter, tasks. None of them is a static.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use dray_bus::Bus;
use dray_store::Store;
use dray_types::Clock;
use opentelemetry::metrics::Meter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{SectionReader, ValueOrigins};

/// Handles that a service gets at start and may clone freely.
#[derive(Clone, Debug)]
pub struct ServiceContext {
    /// The bus that all services of this host share.
    pub bus: Bus,
    /// The artifact store of this host, which its services share.
    pub store: Store,
    /// The clock of deadlines and leases; a fake one in tests.
    pub clock: Clock,
    /// Meter on which the service creates its instruments, once, at start.
    pub meter: Meter,
    /// Owner of background tasks: spawn on it and watch `stop`; the host waits for them when it stops.
    pub tasks: TaskTracker,
    /// Cancelled when the service must end its background tasks, after the last handler has returned.
    pub stop: CancellationToken,
    /// Listeners for requests from outside of the bus, such as HTTP; all services of the host share them.
    pub listeners: ListenerTasks,
    /// Name of this process or replica; owner of leases, part of staging paths.
    pub instance: String,
    /// Endpoints of this process as URLs: bus, store, telemetry. Addresses from outside must not resolve to them.
    pub peers: Vec<String>,
    /// Addresses on which services of this host listen, in addition to the host's own endpoints.
    pub listen_addresses: ListenAddresses,
    /// The sources of the values in the service's own section.
    pub origins: ValueOrigins,
    /// Reads the service's own section again.
    pub section: SectionReader,
}

/// Listeners of services for requests that do not come over the bus, and the tasks of these requests.
///
/// The tasks end first: the bus and all services of the host still respond to calls while the last requests run, which
/// take at most seven eighths of `shutdown.grace`. New work is left to other processes.
#[derive(Clone, Debug, Default)]
pub struct ListenerTasks {
    /// Owner of the tasks. Each ends by itself after `stop`, once its requests have ended.
    pub tasks: TaskTracker,
    /// Cancelled when no further request may be accepted.
    pub stop: CancellationToken,
    /// Cancelled when the time of the last requests is over.
    pub(crate) kill: CancellationToken,
}

impl ListenerTasks {
    /// Spawns a listener, which is cancelled when the time for its last requests is over.
    pub fn spawn(&self, serving: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.tasks.spawn(async move {
            kill.run_until_cancelled(serving).await;
        });
    }
}

/// Addresses on which services listen by themselves, by a name for people. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ListenAddresses(Arc<Mutex<BTreeMap<&'static str, SocketAddr>>>);

impl ListenAddresses {
    /// Records that a service listens on `address`. It replaces an earlier address of the same name.
    pub fn open(&self, name: &'static str, address: SocketAddr) {
        // An insertion is atomic, so a poisoned map is still consistent.
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.insert(name, address);
    }

    /// Returns the address on which `name` listens.
    pub fn find(&self, name: &str) -> Option<SocketAddr> {
        let addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.get(name).copied()
    }
}

impl ServiceContext {
    /// A context for a bus and a store, with a new instance name and without metrics. For tests and for embedding a
    /// service without a host.
    pub fn new(bus: Bus, store: Store, clock: Clock) -> Self {
        Self {
            bus,
            store,
            clock,
            meter: crate::telemetry::no_meter(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            listeners: ListenerTasks::default(),
            instance: format!("instance-{}", uuid::Uuid::new_v4().simple()),
            peers: Vec::new(),
            listen_addresses: ListenAddresses::default(),
            origins: ValueOrigins::default(),
            section: SectionReader::default(),
        }
    }
}
