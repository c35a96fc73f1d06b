//! Leases: one holder at a time among all replicas, in the bucket `dray_platform`. A lease that is not renewed
//! expires.
//!
//! A lease keeps order and saves work. No effect that must never happen twice relies on it, because a holder that
//! stalls may continue after its lease has ended.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};
use dray_delivery_rules::chat_lease::{self, LeaseRecord};
use dray_types::{Clock, Sha256Digest};

/// Takes leases for one process.
#[derive(Clone, Debug)]
pub struct LeaseStore {
    keys: KeyValue,
    clock: Clock,
    holder: String,
}

/// A lease of this process. If it is dropped without [`Lease::release`], it expires.
#[derive(Debug)]
pub struct Lease {
    leases: LeaseStore,
    key: String,
    revision: u64,
}

impl LeaseStore {
    /// Takes leases for the process with this name.
    pub fn new(keys: KeyValue, clock: Clock, holder: String) -> Self {
        Self {
            keys,
            clock,
            holder,
        }
    }

    /// Takes the lease of this name for `lifetime`; `None` while another process has it. A process that already has it
    /// gets it again.
    ///
    /// # Errors
    /// The bus failed; whether the lease was taken is unknown.
    pub async fn take(&self, name: &str, lifetime: Duration) -> Result<Option<Lease>, KeyError> {
        let key = lease_key(name);
        let value = self.value(lifetime);
        let written = match self.keys.get(&key).await? {
            None => self.keys.create(&key, value).await,
            // The lease is updated at the revision that was read, so that only one of two replicas takes an expired
            // lease.
            Some(entry) if self.is_free(&entry.value) => {
                self.keys.update(&key, value, entry.revision).await
            }
            Some(_) => return Ok(None),
        };
        match written {
            Ok(revision) => Ok(Some(Lease {
                leases: self.clone(),
                key,
                revision,
            })),
            // Another replica was faster.
            Err(KeyError::Exists | KeyError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn value(&self, lifetime: Duration) -> Bytes {
        let record = LeaseRecord::lasting(&self.holder, self.clock.now_ms(), lifetime);
        record.encode().into()
    }

    fn is_free(&self, value: &[u8]) -> bool {
        chat_lease::is_free(value, &self.holder, self.clock.now_ms())
    }
}

impl Lease {
    /// Keeps the lease for `lifetime` from now; `false` when another process took it meanwhile.
    ///
    /// # Errors
    /// The bus failed; whether this process still has the lease is unknown.
    pub async fn renew(&mut self, lifetime: Duration) -> Result<bool, KeyError> {
        let value = self.leases.value(lifetime);
        match self
            .leases
            .keys
            .update(&self.key, value, self.revision)
            .await
        {
            Ok(revision) => {
                self.revision = revision;
                Ok(true)
            }
            Err(KeyError::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs the work, renews the lease every third of `lifetime` meanwhile, and then releases it. If the lease is lost,
    /// the work continues without it.
    pub async fn during<T>(mut self, lifetime: Duration, work: impl Future<Output = T>) -> T {
        let done = {
            let renewing = async {
                loop {
                    // Two renewals may fail before the lease ends.
                    tokio::time::sleep(lifetime / 3).await;
                    match self.renew(lifetime).await {
                        Ok(true) => {}
                        // This future is never ready, so that only the end of the work ends the `select`.
                        Ok(false) => return std::future::pending::<Infallible>().await,
                        Err(error) => tracing::debug!(
                            error = &error as &dyn std::error::Error,
                            "could not renew a lease"
                        ),
                    }
                }
            };
            tokio::select! {
                done = work => done,
                never = renewing => match never {},
            }
        };
        self.release().await;
        done
    }

    /// Releases the lease. A lease that cannot be released expires.
    pub async fn release(self) {
        match self.leases.keys.delete(&self.key, self.revision).await {
            // Stale: another process has it by now, and keeps it.
            Ok(()) | Err(KeyError::Stale) => {}
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "could not release a lease; it expires"
                );
            }
        }
    }
}

fn lease_key(name: &str) -> String {
    let hex = Sha256Digest::of(name.as_bytes()).to_hex();
    let token: String = hex.chars().take(32).collect();
    format!("lease.{token}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform_cache::PLATFORM_BUCKET;
    use crate::tests::fixture::in_process;

    const LEASE_LIFETIME: Duration = Duration::from_secs(10);

    async fn two_processes() -> (LeaseStore, LeaseStore, Clock) {
        let (bus, clock) = in_process().await;
        let store = |holder: &str| {
            LeaseStore::new(
                bus.key_value(PLATFORM_BUCKET),
                clock.clone(),
                holder.to_owned(),
            )
        };
        (store("one"), store("two"), clock)
    }

    #[tokio::test]
    async fn one_process_at_a_time_has_a_lease() {
        let (one, two, _) = two_processes().await;
        let lease = one.take("a", LEASE_LIFETIME).await.unwrap().unwrap();
        assert!(two.take("a", LEASE_LIFETIME).await.unwrap().is_none());
        assert!(
            two.take("b", LEASE_LIFETIME).await.unwrap().is_some(),
            "another lease"
        );
        lease.release().await;
        assert!(two.take("a", LEASE_LIFETIME).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_lease_that_is_not_renewed_expires() {
        let (one, two, clock) = two_processes().await;
        let mut lost = one.take("a", LEASE_LIFETIME).await.unwrap().unwrap();
        clock.advance(LEASE_LIFETIME / 2);
        assert!(lost.renew(LEASE_LIFETIME).await.unwrap());
        clock.advance(LEASE_LIFETIME / 2);
        assert!(
            two.take("a", LEASE_LIFETIME).await.unwrap().is_none(),
            "renewed"
        );
        clock.advance(LEASE_LIFETIME / 2);
        let lease = two.take("a", LEASE_LIFETIME).await.unwrap().unwrap();
        assert!(
            !lost.renew(LEASE_LIFETIME).await.unwrap(),
            "another process has the lease"
        );
        lost.release().await;
        assert!(
            one.take("a", LEASE_LIFETIME).await.unwrap().is_none(),
            "the lease of another process was not released"
        );
        lease.release().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_lasts_as_long_as_the_work_and_is_then_released() {
        let (one, two, clock) = two_processes().await;
        let lease = one.take("a", LEASE_LIFETIME).await.unwrap().unwrap();
        let work = async {
            for _ in 0..20 {
                // paused clock
                tokio::time::sleep(LEASE_LIFETIME / 4).await;
                clock.advance(LEASE_LIFETIME / 4);
                assert!(two.take("a", LEASE_LIFETIME).await.unwrap().is_none());
            }
        };
        lease.during(LEASE_LIFETIME, work).await;
        assert!(two.take("a", LEASE_LIFETIME).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn one_of_two_concurrent_processes_gets_a_lease() {
        let (one, two, _) = two_processes().await;
        let (first, second) =
            tokio::join!(one.take("a", LEASE_LIFETIME), two.take("a", LEASE_LIFETIME));
        let taken = [first.unwrap(), second.unwrap()];
        assert_eq!(taken.iter().flatten().count(), 1);
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_does_not_block_a_lease() {
        let (one, _, _) = two_processes().await;
        one.keys.create(&lease_key("a"), "?".into()).await.unwrap();
        assert!(one.take("a", LEASE_LIFETIME).await.unwrap().is_some());
    }
}
