//! Joins concurrent equal requests (single-flight): the same operation sends the same request over the bus, over gRPC,
//! or again after an attempt timed out (messaging-reliability C-1, C-11). One of them runs, and the others get its
//! outcome. Outcomes are not stored.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dray_bus::Meta;
use dray_types::{AppId, Fault, OperationId, SessionId, TenantId};
use tokio::sync::watch;

/// The outcome of a call: an encoded reply, or a fault.
pub(crate) type CallOutcome = Result<Bytes, Fault>;

/// Most requests that wait for the outcome of another one; a caller makes at most three concurrent attempts (C-6).
const MAX_FOLLOWERS: usize = 8;

/// Key of equal requests. The body is part of it, because an operation may send several requests to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlightKey {
    subject: String,
    // The key has tenant, session and app, so that an operation id of one tenant never reaches the reply of another.
    tenant: TenantId,
    session: Option<SessionId>,
    app: Option<AppId>,
    operation: OperationId,
    payload: Bytes,
}

impl FlightKey {
    pub(crate) fn new(subject: &str, meta: &Meta, payload: &Bytes) -> Self {
        Self {
            subject: subject.to_owned(),
            tenant: meta.tenant.clone(),
            session: meta.session.clone(),
            app: meta.app.clone(),
            operation: meta.operation.clone(),
            payload: payload.clone(),
        }
    }
}

impl Hash for FlightKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The bytes of the body are left out: the operation distinguishes almost all requests, and a key is hashed
        // three times. Hashing 32 KiB would take longer than all else that the router does for a call.
        self.subject.hash(state);
        self.tenant.hash(state);
        self.operation.hash(state);
        self.payload.len().hash(state);
    }
}

/// Requests that are running now.
#[derive(Debug, Default)]
pub(crate) struct FlightTable {
    open: Mutex<HashMap<FlightKey, Flight>>,
}

#[derive(Debug)]
struct Flight {
    outcome: watch::Receiver<Option<CallOutcome>>,
    followers: usize,
}

/// The role of a request among equal requests.
#[derive(Debug)]
pub(crate) enum FlightRole {
    /// The request runs, and its outcome is for all.
    Lead(FlightLeader),
    /// The request waits for the outcome of the one that runs.
    Follow(watch::Receiver<Option<CallOutcome>>),
    /// Too many requests wait already.
    TooManyFollowers,
}

/// The request that runs. When it is dropped without an outcome, the requests that wait for it are notified.
#[derive(Debug)]
pub(crate) struct FlightLeader {
    flights: Arc<FlightTable>,
    key: FlightKey,
    outcome: watch::Sender<Option<CallOutcome>>,
}

impl FlightTable {
    pub(crate) fn join(self: &Arc<Self>, key: FlightKey) -> FlightRole {
        // One lock covers look-up and insertion: of two equal requests exactly one leads.
        let mut open = self.lock();
        if let Some(flight) = open.get_mut(&key) {
            if flight.followers >= MAX_FOLLOWERS {
                return FlightRole::TooManyFollowers;
            }
            flight.followers += 1;
            return FlightRole::Follow(flight.outcome.clone());
        }
        let (sender, outcome) = watch::channel(None);
        open.insert(
            key.clone(),
            Flight {
                outcome,
                followers: 0,
            },
        );
        FlightRole::Lead(FlightLeader {
            flights: Arc::clone(self),
            key,
            outcome: sender,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FlightKey, Flight>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlightLeader {
    /// Gives the outcome to all followers.
    pub(crate) fn finish(self, outcome: &CallOutcome) {
        self.outcome.send_replace(Some(outcome.clone()));
    }
}

impl Drop for FlightLeader {
    fn drop(&mut self) {
        // Drop removes the flight first; `outcome` closes after it, so a follower that tries again can lead.
        self.flights.lock().remove(&self.key);
    }
}

/// Waits for the outcome of the request that runs; `None` when the request ended without an outcome.
pub(crate) async fn follow_leader(
    mut outcome: watch::Receiver<Option<CallOutcome>>,
) -> Option<CallOutcome> {
    let answered = outcome.wait_for(Option::is_some).await.ok()?;
    answered.clone()
}

#[cfg(test)]
mod tests {
    use dray_types::Deadline;

    use super::*;

    fn key(operation: &str, tenant: &str, payload: &'static [u8]) -> FlightKey {
        let meta = Meta::new(TenantId::new(tenant).unwrap(), Deadline::from_unix_ms(1))
            .with_operation(OperationId::new(operation).unwrap());
        FlightKey::new("dray.test.v1.echo", &meta, &Bytes::from_static(payload))
    }

    fn lead(flights: &Arc<FlightTable>, key: FlightKey) -> FlightLeader {
        match flights.join(key) {
            FlightRole::Lead(lead) => lead,
            other => panic!("expected to lead, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn followers_get_the_outcome_of_the_leader() {
        let flights = Arc::new(FlightTable::default());
        let first = lead(&flights, key("o", "t", b"x"));
        let FlightRole::Follow(second) = flights.join(key("o", "t", b"x")) else {
            panic!("the same request must follow");
        };
        let answer: CallOutcome = Ok(Bytes::from_static(b"answer"));
        first.finish(&answer);
        assert_eq!(follow_leader(second).await, Some(answer));
        drop(lead(&flights, key("o", "t", b"x")));
    }

    #[tokio::test]
    async fn a_dropped_leader_gives_no_outcome_and_is_removed() {
        let flights = Arc::new(FlightTable::default());
        let first = lead(&flights, key("o", "t", b"x"));
        let FlightRole::Follow(second) = flights.join(key("o", "t", b"x")) else {
            panic!("the same request must follow");
        };
        drop(first);
        assert_eq!(follow_leader(second).await, None);
        assert!(flights.lock().is_empty());
    }

    #[test]
    fn another_tenant_operation_or_body_is_another_request() {
        let flights = Arc::new(FlightTable::default());
        let _held = [
            lead(&flights, key("o", "t", b"x")),
            lead(&flights, key("o", "u", b"x")),
            lead(&flights, key("p", "t", b"x")),
            lead(&flights, key("o", "t", b"y")),
        ];
    }

    #[test]
    fn followers_are_bounded() {
        let flights = Arc::new(FlightTable::default());
        let _lead = lead(&flights, key("o", "t", b"x"));
        let mut followers: Vec<FlightRole> = (0..=MAX_FOLLOWERS)
            .map(|_| flights.join(key("o", "t", b"x")))
            .collect();
        assert!(matches!(
            followers.pop(),
            Some(FlightRole::TooManyFollowers)
        ));
        assert!(
            followers
                .iter()
                .all(|part| matches!(part, FlightRole::Follow(_)))
        );
    }
}
