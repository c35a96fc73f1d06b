//! Keys with optimistic concurrency: a write names the revision that it replaces (compare-and-set).
//!
//! Listing reads one entry after the other, in the order of revisions, because services may not create consumers
//! (messaging-reliability A-4). For the same reason a watch is a subscription to the writes of one key, and not to its
//! values.

use bytes::Bytes;

use crate::backend::{KeyEntry, Subscription};
use crate::bus_core::Bus;
use crate::error::TransportError;

/// The keys of one bucket.
#[derive(Clone, Debug)]
pub struct KeyValue {
    bus: Bus,
    bucket: String,
}

/// A value and the revision to change it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValueEntry {
    /// Bytes as they were written.
    pub value: Bytes,
    /// Revision for [`KeyValue::update`] and [`KeyValue::delete`].
    pub revision: u64,
    /// Unix milliseconds at which the server stored it.
    pub time_ms: u64,
}

/// A key and its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValueChange {
    /// Key without the bucket, such as `toolcall.resolve.acme.op`.
    pub key: String,
    /// The current value; `None` if the key was deleted.
    pub value: Option<Bytes>,
    /// Revision of the change. Every later change of any key has a higher one.
    pub revision: u64,
    /// Unix milliseconds at which the server stored it.
    pub time_ms: u64,
}

/// Keys of one prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyListing {
    /// Keys and their values, longest unchanged first.
    pub entries: Vec<(String, KeyValueEntry)>,
    /// Whether more keys match than were returned.
    pub truncated: bool,
}

/// Notices of the writes of one key. Dropping it ends them.
#[derive(Debug)]
pub struct KeyWatch {
    subscription: Subscription,
}

impl KeyWatch {
    /// Waits for the next write of the key. Returns `false` once there are no more notices.
    ///
    /// A notice is only a hint to read the key: a read may be faster than the write, a write may be refused, and
    /// notices of an outage of the bus are lost. Written values are buffered between calls, so call it again soon. It
    /// is cancellation safe.
    pub async fn changed(&mut self) -> bool {
        self.subscription.next().await.is_some()
    }
}

/// The reason why a key was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Letters, digits and `-_=/.` only, no empty parts.
    #[error("`{0}` is not a key")]
    InvalidKey(String),
    /// The key to create has a value.
    #[error("the key exists")]
    Exists,
    /// The key has another revision: read it again and decide.
    #[error("the key was changed meanwhile")]
    Stale,
    /// The key holds a message that was not written as a key. The value is not known: the message may have replaced it.
    #[error("`{key}` holds a message that was not written as a key")]
    Foreign {
        /// The key.
        key: String,
        /// Revision of the message.
        revision: u64,
        /// Unix milliseconds at which the server stored it.
        time_ms: u64,
    },
    /// The bus failed; a write may have happened or not.
    #[error("the key could not be reached")]
    Transport(#[source] TransportError),
}

impl From<KeyError> for dray_types::Fault {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Transport(transport) => transport.into(),
            KeyError::Foreign { .. } => Self::new(
                dray_types::FaultCode::Internal,
                "A stored record was overwritten and cannot be used.",
            )
            .detail("foreign_record")
            .advice("Report the trace id to the operator."),
            KeyError::InvalidKey(_) | KeyError::Exists | KeyError::Stale => Self::internal(),
        }
    }
}

impl KeyValue {
    pub(crate) fn new(bus: &Bus, bucket: &str) -> Self {
        Self {
            bus: bus.clone(),
            bucket: bucket.to_owned(),
        }
    }

    /// The current value; `None` if the key has no value or was deleted.
    ///
    /// # Errors
    /// [`KeyError::Foreign`], an invalid key, or the bus.
    pub async fn get(&self, key: &str) -> Result<Option<KeyValueEntry>, KeyError> {
        check_key(key)?;
        let entry = self.last_change(key).await?;
        Ok(entry
            .filter(|entry| !entry.deleted)
            .map(|entry| KeyValueEntry {
                value: entry.value,
                revision: entry.revision,
                time_ms: entry.time_ms,
            }))
    }

    /// Writes a key that has no value, and returns its revision.
    ///
    /// # Errors
    /// [`KeyError::Exists`], [`KeyError::Foreign`], an invalid key, or the bus.
    pub async fn create(&self, key: &str, value: Bytes) -> Result<u64, KeyError> {
        check_key(key)?;
        // Usually the key was never written, and one request is enough.
        match self.put(key, Some(value.clone()), 0, None).await {
            Err(KeyError::Stale) => {}
            other => return other,
        }
        match self.last_change(key).await? {
            // The mark of a deletion is the last message on the key's subject, so revision 0 is refused for it too.
            Some(entry) if entry.deleted => {
                match self.put(key, Some(value), entry.revision, None).await {
                    // Another caller created the key between the read and this write.
                    Err(KeyError::Stale) => Err(KeyError::Exists),
                    other => other,
                }
            }
            _ => Err(KeyError::Exists),
        }
    }

    /// Replaces the value if it has exactly this revision, and returns the new revision.
    ///
    /// # Errors
    /// [`KeyError::Stale`], an invalid key, or the bus.
    pub async fn update(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, KeyError> {
        check_key(key)?;
        self.put(key, Some(value), revision, None).await
    }

    /// Writes a key whether or not it has a value. Of concurrent writers one wins; a later `get` returns its value.
    ///
    /// # Errors
    /// [`KeyError::Stale`] when another writer changed the key meanwhile, an invalid key, or the bus.
    pub async fn create_or_update(&self, key: &str, value: Bytes) -> Result<u64, KeyError> {
        match self.create(key, value.clone()).await {
            Err(KeyError::Exists) => match self.get(key).await? {
                Some(entry) => self.update(key, value, entry.revision).await,
                // Another writer deleted it after `create` found it.
                None => Err(KeyError::Stale),
            },
            other => other,
        }
    }

    /// Deletes the value of exactly this revision.
    ///
    /// # Errors
    /// [`KeyError::Stale`], an invalid key, or the bus.
    pub async fn delete(&self, key: &str, revision: u64) -> Result<(), KeyError> {
        check_key(key)?;
        self.put(key, None, revision, None).await.map(|_| ())
    }

    /// Writes a key, or deletes it (`None`), if it has exactly this revision (0: it has none) and no key of the bucket
    /// was changed after `bucket_revision`. Returns the new revision, which is that of the bucket too. A server before
    /// 2.11 does not compare a bucket revision of 0.
    ///
    /// # Errors
    /// [`KeyError::Stale`], an invalid key, or the bus.
    pub async fn write_in_order(
        &self,
        key: &str,
        value: Option<Bytes>,
        revision: u64,
        bucket_revision: u64,
    ) -> Result<u64, KeyError> {
        check_key(key)?;
        self.put(key, value, revision, Some(bucket_revision)).await
    }

    /// The first key, in the order of the last changes, that begins with `prefix` and was changed at revision `from` or
    /// later; `None` without such a key. An empty prefix matches all keys. Any other prefix matches complete parts: `a`
    /// matches `a.b` and not `ab`. It takes one request to the server.
    ///
    /// # Errors
    /// [`KeyError::Foreign`] with the revision after which to continue, an invalid prefix, or the bus.
    pub async fn next(&self, prefix: &str, from: u64) -> Result<Option<KeyValueChange>, KeyError> {
        if !prefix.is_empty() {
            check_key(prefix)?;
        }
        let found = self
            .bus
            .inner
            .backend
            .key_next(&self.bucket, prefix, from.max(1))
            .await
            .map_err(KeyError::Transport)?;
        let Some((key, entry)) = found else {
            return Ok(None);
        };
        self.check_writer(&key, &entry)?;
        Ok(Some(KeyValueChange {
            key,
            value: (!entry.deleted).then_some(entry.value),
            revision: entry.revision,
            time_ms: entry.time_ms,
        }))
    }

    /// Up to `limit` keys that begin with `prefix`; see [`KeyValue::next`]. It sends one request for each key, deleted
    /// ones included, so it is for small buckets and rare use. A key that changes during the call may appear twice,
    /// with its newest value last. Keys that hold a message that was not written as a key are left out.
    ///
    /// # Errors
    /// An invalid prefix, or the bus.
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<KeyListing, KeyError> {
        let mut listing = KeyListing::default();
        let mut from = 1;
        loop {
            let change = match self.next(prefix, from).await {
                Ok(Some(change)) => change,
                Ok(None) => break,
                // One overwritten key must not hide the others.
                Err(KeyError::Foreign { revision, .. }) => {
                    from = revision + 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // The stream keeps one message per key, in the order of revisions, so this visits each key once.
            from = change.revision + 1;
            let Some(value) = change.value else {
                continue;
            };
            if listing.entries.len() >= limit {
                listing.truncated = true;
                break;
            }
            let entry = KeyValueEntry {
                value,
                revision: change.revision,
                time_ms: change.time_ms,
            };
            listing.entries.push((change.key, entry));
        }
        Ok(listing)
    }

    /// Begins to watch a key. Needs the permission [`Permissions::watches_keys`](crate::Permissions::watches_keys).
    ///
    /// # Errors
    /// An invalid key, or the bus.
    pub async fn watch(&self, key: &str) -> Result<KeyWatch, KeyError> {
        check_key(key)?;
        let watching = self.bus.inner.backend.key_watch(&self.bucket, key);
        let subscription = watching.await.map_err(KeyError::Transport)?;
        Ok(KeyWatch { subscription })
    }

    async fn last_change(&self, key: &str) -> Result<Option<KeyEntry>, KeyError> {
        let backend = &self.bus.inner.backend;
        let entry = backend.key_get(&self.bucket, key).await;
        let entry = entry.map_err(KeyError::Transport)?;
        if let Some(entry) = &entry {
            self.check_writer(key, entry)?;
        }
        Ok(entry)
    }

    fn check_writer(&self, key: &str, entry: &KeyEntry) -> Result<(), KeyError> {
        if !entry.is_foreign {
            return Ok(());
        }
        // An identity of the bus wrote it with a reply subject, so this is not an error of one record.
        self.bus.inner.metrics.foreign_entries_total.add(1, &[]);
        tracing::error!(
            bucket = self.bucket,
            key,
            revision = entry.revision,
            "a key holds a message that was not written as a key, and its value is lost"
        );
        Err(KeyError::Foreign {
            key: key.to_owned(),
            revision: entry.revision,
            time_ms: entry.time_ms,
        })
    }

    async fn put(
        &self,
        key: &str,
        value: Option<Bytes>,
        expected: u64,
        expected_bucket: Option<u64>,
    ) -> Result<u64, KeyError> {
        let inner = &self.bus.inner;
        let written = inner
            .backend
            .key_put(&self.bucket, key, value, expected, expected_bucket)
            .await;
        let label = match &written {
            Ok(_) => "ok",
            Err(TransportError::WrongRevision) => "stale",
            Err(TransportError::Full) => "full",
            Err(TransportError::TimedOut) => "timeout",
            Err(_) => "error",
        };
        inner.metrics.key_written(&self.bucket, label);
        written.map_err(|error| match error {
            TransportError::WrongRevision => KeyError::Stale,
            other => KeyError::Transport(other),
        })
    }
}

fn check_key(key: &str) -> Result<(), KeyError> {
    // The alphabet of NATS (ADR-8), without wildcards: a key becomes a part of a subject.
    let is_token = |token: &str| {
        !token.is_empty()
            && token.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=' | b'/')
            })
    };
    if key.len() <= 512 && key.split('.').all(is_token) {
        Ok(())
    } else {
        Err(KeyError::InvalidKey(key.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_never_hold_wildcards_or_empty_parts() {
        for good in ["a", "toolcall.resolve.acme.0198-AB_c"] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        for wrong in [
            "",
            ".",
            "a.",
            "a..b",
            "*",
            "a.>",
            "a b",
            "ü",
            &"x".repeat(513),
        ] {
            assert!(check_key(wrong).is_err(), "{wrong}");
        }
    }
}
