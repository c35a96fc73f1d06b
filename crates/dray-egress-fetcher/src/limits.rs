//! How much may happen at once (egress-security 15).
//!
//! A fetch holds a place of its app for its whole life, and a place of its host and of the process for each hop. Places
//! are given in that order, so that fetches which wait for one slow host do not hold places of the process. A connection
//! holds a place of its address.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

mod breaker;

pub use breaker::Breaker;

/// How many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// In the whole process.
    pub global: usize,
    /// To one host.
    pub per_host: usize,
    /// To one resolved address.
    pub per_address: usize,
    /// For one app.
    pub per_app: usize,
    /// Waiting for any of these.
    pub queue: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            global: 64,
            per_host: 4,
            per_address: 8,
            per_app: 16,
            queue: 256,
        }
    }
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many fetches are waiting")]
pub struct QueueFull;

/// Places, and who has them. Clones share them.
#[derive(Clone, Debug)]
pub struct Limits {
    global: Pool<()>,
    hosts: Pool<String>,
    addresses: Pool<IpAddr>,
    apps: Pool<String>,
    waiting: Arc<AtomicUsize>,
    queue: usize,
    breaker: Breaker,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    // The order matters: the permit is given back before the slot looks whether anybody is left.
    _permit: Option<OwnedSemaphorePermit>,
    _slot: Box<dyn fmt::Debug + Send + Sync>,
}

/// The places of one hop.
#[derive(Debug)]
pub struct HopPermit {
    _global: Permit,
    _host: Permit,
}

impl Limits {
    /// All places free.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            global: Pool::new(sizes.global),
            hosts: Pool::new(sizes.per_host),
            addresses: Pool::new(sizes.per_address),
            apps: Pool::new(sizes.per_app),
            waiting: Arc::default(),
            queue: sizes.queue,
            breaker: Breaker::default(),
        }
    }

    /// A place for a fetch of `app`. Waits without deadline; the queue is bounded.
    pub async fn app(&self, app: &str) -> Result<Permit, QueueFull> {
        self.queued(&self.apps, app.to_owned()).await
    }

    /// A place for a hop to `host`. Waits without deadline; the queue is bounded.
    pub async fn hop(&self, host: &str) -> Result<HopPermit, QueueFull> {
        let host = self.queued(&self.hosts, host.to_owned()).await?;
        Ok(HopPermit {
            _global: self.queued(&self.global, ()).await?,
            _host: host,
        })
    }

    /// A place for a connection to `address`. Waits without deadline; whoever waits holds a place of the process, so
    /// that this queue is bounded too.
    pub async fn address(&self, address: IpAddr) -> Permit {
        self.addresses.slot(address).wait().await
    }

    /// Keeps dead hosts from occupying places.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// How many wait for a place.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    async fn queued<K: Key>(&self, pool: &Pool<K>, key: K) -> Result<Permit, QueueFull> {
        let slot = pool.slot(key);
        if let Ok(permit) = Arc::clone(&slot.places).try_acquire_owned() {
            return Ok(slot.permit(Some(permit)));
        }
        let _waiting = Waiting::enter(&self.waiting, self.queue)?;
        Ok(slot.wait().await)
    }
}

/// One who waits; leaves the queue when dropped, also by cancellation.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize, most: usize) -> Result<Self, QueueFull> {
        let entered = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(QueueFull);
        }
        Ok(entered)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

trait Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> Key for K {}

/// The same number of places for every key. Keys that nobody uses are forgotten.
#[derive(Clone, Debug)]
struct Pool<K> {
    size: usize,
    slots: Arc<Mutex<HashMap<K, Arc<Semaphore>>>>,
}

impl<K: Key> Pool<K> {
    fn new(size: usize) -> Self {
        Self {
            size,
            slots: Arc::default(),
        }
    }

    fn slot(&self, key: K) -> Slot<K> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let places = slots
            .entry(key.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(self.size)));
        Slot {
            places: Arc::clone(places),
            key,
            pool: self.clone(),
        }
    }
}

/// One user, present or future, of a key's places.
#[derive(Debug)]
struct Slot<K: Key> {
    places: Arc<Semaphore>,
    key: K,
    pool: Pool<K>,
}

impl<K: Key> Slot<K> {
    async fn wait(self) -> Permit {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.places).acquire_owned().await.ok();
        self.permit(permit)
    }

    fn permit(self, permit: Option<OwnedSemaphorePermit>) -> Permit {
        Permit {
            _permit: permit,
            _slot: Box::new(self),
        }
    }
}

impl<K: Key> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut slots = self
            .pool
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Let go under the lock, so that of two last users one sees that it is the last.
        self.places = Arc::new(Semaphore::new(0));
        let unused = |places: &Arc<Semaphore>| Arc::strong_count(places) == 1;
        if slots.get(&self.key).is_some_and(unused) {
            slots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
