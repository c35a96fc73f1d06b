//! Limits of event streams. Each stream keeps a connection and wakes up for each batch, so their number is limited. The
//! limit of one login is lower, so that it cannot use up the streams of all people.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Streams that are open together.
const MAX_STREAMS: usize = 64;
/// Streams of one login. A browser has six connections to a server of HTTP/1.1, and hidden pages keep none.
pub(crate) const MAX_LOGIN_STREAMS: usize = 16;

/// The open streams of a console. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct OpenStreams(Arc<StreamCounts>);

#[derive(Debug)]
struct StreamCounts {
    permits: Arc<Semaphore>,
    /// Open streams by login; a login without one has no entry.
    by_login: Mutex<HashMap<String, usize>>,
}

/// The permission for one stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    counts: Arc<StreamCounts>,
    login: String,
    _permit: OwnedSemaphorePermit,
}

impl Default for OpenStreams {
    fn default() -> Self {
        Self(Arc::new(StreamCounts {
            permits: Arc::new(Semaphore::new(MAX_STREAMS)),
            by_login: Mutex::default(),
        }))
    }
}

impl OpenStreams {
    /// Permits a further stream of a login; `None` when it, or the console, has as many as it may.
    pub(crate) fn open(&self, login: &str) -> Option<StreamPermit> {
        let counts = &self.0;
        let mut by_login = counts.lock();
        let open = by_login.get(login).copied().unwrap_or_default();
        if open >= MAX_LOGIN_STREAMS {
            return None;
        }
        let permit = Arc::clone(&counts.permits).try_acquire_owned().ok()?;
        by_login.insert(login.to_owned(), open + 1);
        Some(StreamPermit {
            counts: Arc::clone(counts),
            login: login.to_owned(),
            _permit: permit,
        })
    }
}

impl StreamCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.by_login.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut by_login = self.counts.lock();
        let open = by_login.get(&self.login).copied().unwrap_or_default();
        if open <= 1 {
            by_login.remove(&self.login);
        } else {
            by_login.insert(self.login.clone(), open - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_stream_makes_room_for_the_next_one_of_its_login() {
        let streams = OpenStreams::default();
        let mut open: Vec<_> = (0..MAX_LOGIN_STREAMS)
            .map(|_| streams.open("one").unwrap())
            .collect();
        assert!(streams.open("one").is_none());
        assert!(streams.open("other").is_some());
        open.pop();
        open.push(streams.open("one").unwrap());
        assert!(streams.open("one").is_none());
        drop(open);
        assert!(streams.0.lock().is_empty());
    }

    #[test]
    fn all_logins_together_have_a_limit() {
        let streams = OpenStreams::default();
        let open: Vec<_> = (0..MAX_STREAMS)
            .map(|number| streams.open(&format!("login {number}")).unwrap())
            .collect();
        assert!(streams.open("further").is_none());
        drop(open);
        assert!(streams.open("further").is_some());
    }
}
