//! Runs work once for each name, even when several callers need it at the same time. Failures are not cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

/// Results of work that was done so far, by name.
#[derive(Debug)]
pub(super) struct OnceMap<T> {
    cells: Mutex<HashMap<String, Arc<OnceCell<T>>>>,
}

impl<T> Default for OnceMap<T> {
    fn default() -> Self {
        Self {
            cells: Mutex::default(),
        }
    }
}

impl<T: Clone> OnceMap<T> {
    /// The result of `work` under this name; concurrent callers wait for it (single-flight). After a failure the next
    /// caller runs its own `work`.
    pub(super) async fn get<E>(
        &self,
        name: String,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // The lock of the map is released before the work begins.
        let cell = {
            let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(cells.entry(name).or_default())
        };
        cell.get_or_try_init(|| work).await.cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_work_of_one_name_is_done_once() {
        let (map, runs) = (OnceMap::default(), AtomicU32::new(0));
        let get = async || {
            let work = async {
                tokio::task::yield_now().await;
                Ok::<_, ()>(runs.fetch_add(1, Ordering::SeqCst))
            };
            map.get("a".to_owned(), work).await
        };
        let results = tokio::join!(get(), get(), get());
        assert_eq!(results, (Ok(0), Ok(0), Ok(0)));
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_failure_is_not_remembered() {
        let once = OnceMap::default();
        let failed = once
            .get("a".to_owned(), async { Err::<u32, _>("no") })
            .await;
        assert_eq!(failed, Err("no"));
        let done = once.get("a".to_owned(), async { Ok::<_, &str>(7) }).await;
        assert_eq!(done, Ok(7));
    }
}
