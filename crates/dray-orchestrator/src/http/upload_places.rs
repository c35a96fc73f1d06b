//! Places for concurrent uploads, of which one caller holds only a part.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most concurrent uploads; each holds at most [`dray_store::MAX_TRANSFER_BYTES`].
const MAX_UPLOADS: usize = 16;
/// Most concurrent uploads of one caller. An upload may be slow for any time, so those of one caller would otherwise
/// keep all others waiting.
const MAX_UPLOADS_OF_CALLER: usize = 12;

/// The places of all uploads.
#[derive(Debug)]
pub(super) struct UploadPlaces {
    all: Arc<Semaphore>,
    /// The places of callers that upload now, or wait for a place.
    callers: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// The place of one upload. It is given back on drop.
#[derive(Debug)]
pub(super) struct UploadPlace {
    _of_caller: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for UploadPlaces {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_UPLOADS)),
            callers: Mutex::default(),
        }
    }
}

impl UploadPlaces {
    /// Waits until an upload of this caller may begin. `None` never comes, because no semaphore is closed.
    pub(super) async fn acquire(&self, caller: &str) -> Option<UploadPlace> {
        let of_caller = self.places_of(caller).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(UploadPlace {
            _of_caller: of_caller,
            _of_all: of_all,
        })
    }

    fn places_of(&self, caller: &str) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = callers.get(caller).and_then(Weak::upgrade) {
            return places;
        }
        // The list is as long as callers upload.
        callers.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(MAX_UPLOADS_OF_CALLER));
        callers.insert(caller.to_owned(), Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn one_caller_leaves_places_to_others_and_gets_its_own_back() {
        let places = UploadPlaces::default();
        let acquire = |caller: &str| places.acquire(caller).now_or_never().flatten();
        let mut first: Vec<_> = std::iter::from_fn(|| acquire("first")).collect();
        assert_eq!(first.len(), MAX_UPLOADS_OF_CALLER);
        let second: Vec<_> = std::iter::from_fn(|| acquire("second")).collect();
        assert_eq!(second.len(), MAX_UPLOADS - MAX_UPLOADS_OF_CALLER);
        first.pop();
        assert!(acquire("first").is_some());
        drop((first, second));
        assert!(acquire("third").is_some());
        assert_eq!(places.callers.lock().unwrap().len(), 1);
    }
}
