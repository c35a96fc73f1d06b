//! Wakes the readers of a response's events. In the process that records them no notice of the bus is needed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

/// The responses whose events are read, by id. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedEvents(Arc<Mutex<HashMap<String, Weak<Notify>>>>);

impl RecordedEvents {
    /// The signal of a response, for a reader: it notifies those that wait when events were recorded, and keeps nothing
    /// for later. A response is forgotten with its last reader.
    pub(crate) fn signal(&self, id: &str) -> Arc<Notify> {
        let mut readers = self.readers();
        if let Some(signal) = readers.get(id).and_then(Weak::upgrade) {
            return signal;
        }
        readers.retain(|_, signal| signal.strong_count() > 0);
        let signal = Arc::new(Notify::new());
        readers.insert(id.to_owned(), Arc::downgrade(&signal));
        signal
    }

    /// Wakes the readers of a response.
    pub(super) fn announce(&self, id: &str) {
        if let Entry::Occupied(reader) = self.readers().entry(id.to_owned()) {
            match reader.get().upgrade() {
                Some(signal) => signal.notify_waiters(),
                None => {
                    reader.remove();
                }
            }
        }
    }

    fn readers(&self) -> MutexGuard<'_, HashMap<String, Weak<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn readers_of_a_response_are_woken_and_forgotten_with_the_last_one() {
        let events = RecordedEvents::default();
        let (first, second, other) = (events.signal("a"), events.signal("a"), events.signal("b"));
        let mut waits: Vec<_> = [&first, &second, &other]
            .map(|signal| Box::pin(signal.notified()))
            .into();
        for wait in &mut waits {
            assert_eq!(wait.as_mut().now_or_never(), None);
        }
        events.announce("a");
        let woken: Vec<_> = waits
            .iter_mut()
            .map(|wait| wait.as_mut().now_or_never().is_some())
            .collect();
        assert_eq!(woken, [true, true, false]);
        drop(waits);
        drop((first, second));
        let _again = events.signal("c");
        assert_eq!(events.readers().len(), 2);
        drop(other);
        events.announce("b");
        assert_eq!(events.readers().len(), 1);
    }
}
