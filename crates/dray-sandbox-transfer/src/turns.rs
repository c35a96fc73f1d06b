//! Locks by key, so that one task at a time places the waiting uploads of a session: for work that arrived, or for a
//! caller that settles them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// Locks by key. Unused ones are removed.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Arc<Lock<()>>>>);

impl Turns {
    /// Waits for the lock of `key`, which is released when the guard is dropped.
    pub(crate) async fn take(&self, key: String) -> OwnedMutexGuard<()> {
        let lock = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A count of 1 means that only this map has the lock. Counting and cloning both happen under the map's own
            // lock.
            turns.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(turns.entry(key).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_waits_for_the_other_of_its_key_alone() {
        let turns = Turns::default();
        let first = turns.take("a".to_owned()).await;
        assert!(turns.take("a".to_owned()).now_or_never().is_none());
        assert!(turns.take("b".to_owned()).now_or_never().is_some());
        drop(first);
        assert!(turns.take("a".to_owned()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_is_over_is_forgotten() {
        let turns = Turns::default();
        for number in 0..100 {
            drop(turns.take(number.to_string()).await);
        }
        assert!(turns.0.lock().unwrap().len() <= 1);
    }
}
