//! Joins concurrent requests for the robots.txt of a host (single-flight): one fetch makes the request, and the others
//! wait until it ended.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::FlightKey;

/// The hosts whose files are requested now.
#[derive(Debug, Default)]
pub(super) struct FlightTable(Mutex<HashMap<FlightKey, watch::Receiver<()>>>);

/// The role of a fetch among those that need the same file.
pub(super) enum FlightRole<'a> {
    /// The fetch makes the request.
    Lead(FlightLeader<'a>),
    /// The fetch waits for the end of the request, when the channel closes.
    Follow(watch::Receiver<()>),
}

/// The fetch that makes the request. When it is dropped, even without a result, the others are notified.
pub(super) struct FlightLeader<'a> {
    flights: &'a FlightTable,
    key: FlightKey,
    _ended: watch::Sender<()>,
}

impl FlightTable {
    pub(super) fn join(&self, key: &FlightKey) -> FlightRole<'_> {
        let mut open = self.lock();
        if let Some(ended) = open.get(key) {
            return FlightRole::Follow(ended.clone());
        }
        let (sender, ended) = watch::channel(());
        open.insert(key.clone(), ended);
        FlightRole::Lead(FlightLeader {
            flights: self,
            key: key.clone(),
            _ended: sender,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FlightKey, watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FlightLeader<'_> {
    fn drop(&mut self) {
        // The channel closes after it.
        self.flights.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str, app: &str) -> FlightKey {
        let host = "files.example.org".to_owned();
        (app.to_owned(), (tenant.to_owned(), true, host, 443))
    }

    #[tokio::test]
    async fn one_fetch_leads_until_it_is_dropped_and_the_others_of_its_app_follow() {
        let flights = FlightTable::default();
        let FlightRole::Lead(leader) = flights.join(&key("acme", "app")) else {
            panic!("the first fetch must lead");
        };
        let FlightRole::Follow(mut ended) = flights.join(&key("acme", "app")) else {
            panic!("only one fetch must lead");
        };
        for (tenant, app) in [("other", "app"), ("acme", "other")] {
            let role = flights.join(&key(tenant, app));
            assert!(matches!(role, FlightRole::Lead(_)));
        }
        drop(leader);
        assert!(ended.changed().await.is_err());
        assert!(matches!(
            flights.join(&key("acme", "app")),
            FlightRole::Lead(_)
        ));
    }
}
