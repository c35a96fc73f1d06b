//! Locks by key, so that one task at a time places an upload. Such a task handles arrived work, or a caller that settles
//! the uploads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// Locks by key. Unused ones are removed.
#[derive(Debug, Default)]
pub(crate) struct KeyedLocks(Mutex<HashMap<String, Arc<Lock<()>>>>);

impl KeyedLocks {
    /// Waits for the lock of `key`, which is released when the guard is dropped.
    pub(crate) async fn lock(&self, key: String) -> OwnedMutexGuard<()> {
        self.get(key).lock_owned().await
    }

    /// The lock of `key`, or `None` while another task holds it.
    pub(crate) fn try_lock(&self, key: String) -> Option<OwnedMutexGuard<()>> {
        self.get(key).try_lock_owned().ok()
    }

    fn get(&self, key: String) -> Arc<Lock<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A count of 1 means that only this map has the lock. Counting and cloning both happen under the map's own
        // lock.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_lock_waits_only_for_holders_of_the_same_key() {
        let locks = KeyedLocks::default();
        let first = locks.lock("a".to_owned()).await;
        assert!(locks.lock("a".to_owned()).now_or_never().is_none());
        assert!(locks.try_lock("a".to_owned()).is_none());
        assert!(locks.lock("b".to_owned()).now_or_never().is_some());
        drop(first);
        assert!(locks.lock("a".to_owned()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn released_locks_are_removed() {
        let locks = KeyedLocks::default();
        for number in 0..100 {
            drop(locks.lock(number.to_string()).await);
        }
        assert!(locks.0.lock().unwrap().len() <= 1);
    }
}
