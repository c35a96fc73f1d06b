//! What a running service may use: values, not statics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use dray_bus::Bus;
use dray_store::Store;
use dray_types::Clock;
use opentelemetry::metrics::Meter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Handles that a service gets at start and may clone freely.
#[derive(Clone, Debug)]
pub struct ServiceContext {
    /// The bus that all services of this host share.
    pub bus: Bus,
    /// The artifact store.
    pub store: Store,
    /// The wall clock.
    pub clock: Clock,
    /// Where the service creates its instruments, once, at start.
    pub meter: Meter,
    /// Owner of background tasks: spawn on it and watch `stop`; the host waits for them when it stops.
    pub tasks: TaskTracker,
    /// Cancelled when the service must end its background tasks, after the last handler has returned.
    pub stop: CancellationToken,
    /// Name of this process or replica; owner of leases, part of staging paths.
    pub instance: String,
    /// What this process itself talks to, as URLs: bus, store, telemetry. Nothing that others choose may lead there.
    pub peers: Vec<String>,
    /// Where services of this host listen beside the host's own endpoints.
    pub doors: ListenAddresses,
}

/// Where services listen by themselves, by a name for people. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ListenAddresses(Arc<Mutex<BTreeMap<&'static str, SocketAddr>>>);

impl ListenAddresses {
    /// A service listens.
    pub fn open(&self, name: &'static str, address: SocketAddr) {
        let mut doors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doors.insert(name, address);
    }

    /// Where `name` listens.
    pub fn find(&self, name: &str) -> Option<SocketAddr> {
        let doors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        doors.get(name).copied()
    }
}

impl ServiceContext {
    /// A context of its own around a bus and a store: no metrics, a fresh instance name. For tests and for
    /// embedding a service without a host.
    pub fn new(bus: Bus, store: Store, clock: Clock) -> Self {
        Self {
            bus,
            store,
            clock,
            meter: crate::telemetry::no_meter(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            instance: format!("instance-{}", uuid::Uuid::new_v4().simple()),
            peers: Vec::new(),
            doors: ListenAddresses::default(),
        }
    }
}
