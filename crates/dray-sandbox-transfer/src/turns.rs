//! One at a time for each session: a task that puts waiting uploads into a sandbox, because work came or because a
//! caller settles, does so alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// Turns by key. Unused ones are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Arc<Lock<()>>>>);

impl Turns {
    /// Waits for the turn of `key`; it ends when the guard is dropped.
    pub(crate) async fn take(&self, key: String) -> OwnedMutexGuard<()> {
        let lock = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
