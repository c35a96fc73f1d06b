//! Servers that are known to begin with `initialize`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a server is assumed to begin with `initialize` before it is asked again.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Most servers that are remembered, because manifests of callers name their own.
const MAX_SERVERS: usize = 1000;

/// Addresses of servers that speak no version of MCP after 2025-11-25, so that a session with such a server begins
/// without a request for its versions. Kept for an hour, and until a session cannot begin. Cheap to clone; clones share
/// the entries.
#[derive(Clone, Debug, Default)]
pub struct LegacyServers(Arc<Mutex<HashMap<String, Instant>>>);

impl LegacyServers {
    pub(crate) fn contains(&self, address: &str) -> bool {
        let found = self.lock().get(address).copied();
        found.is_some_and(|recorded_at| recorded_at.elapsed() < MAX_AGE)
    }

    pub(crate) fn insert(&self, address: String) {
        let mut servers = self.lock();
        if servers.len() >= MAX_SERVERS && !servers.contains_key(&address) {
            servers.clear();
        }
        // The time of the first entry is kept; otherwise a server in use would never be asked again.
        let recorded_at = servers.entry(address).or_insert_with(Instant::now);
        if recorded_at.elapsed() >= MAX_AGE {
            *recorded_at = Instant::now();
        }
    }

    pub(crate) fn remove(&self, address: &str) {
        self.lock().remove(address);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_in_use_is_asked_again_after_an_hour() {
        let servers = LegacyServers::default();
        servers.insert("a".to_owned());
        tokio::time::advance(MAX_AGE / 2).await;
        servers.insert("a".to_owned());
        assert!(servers.contains("a") && !servers.contains("b"));
        tokio::time::advance(MAX_AGE / 2).await;
        assert!(!servers.contains("a"));
    }

    #[test]
    fn the_number_of_remembered_servers_is_limited() {
        let servers = LegacyServers::default();
        for server in 0..=MAX_SERVERS {
            servers.insert(server.to_string());
        }
        assert!(servers.lock().len() <= MAX_SERVERS);
        assert!(servers.contains(&MAX_SERVERS.to_string()));
    }
}
