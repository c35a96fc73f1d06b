//! Keys with compare-and-set. There is no listing and no watching: services may not create the consumers that
//! those need (messaging-reliability A-4).

use bytes::Bytes;

use crate::bus::Bus;
use crate::error::TransportError;

/// The keys of one bucket.
#[derive(Clone, Debug)]
pub struct KeyValue {
    bus: Bus,
    bucket: String,
}

/// A value and the revision to change it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Bytes,
    /// Revision for [`KeyValue::update`] and [`KeyValue::delete`].
    pub revision: u64,
    /// Unix milliseconds at which the server took it.
    pub time_ms: u64,
}

/// Why a key was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Letters, digits and `-_=/.` only, no empty parts.
    #[error("`{0}` is not a key")]
    InvalidKey(String),
    /// The key to create has a value.
    #[error("the key exists")]
    Exists,
    /// Somebody changed the key since: read again and decide.
    #[error("the key has moved on")]
    Stale,
    /// The bus failed; a write may have happened or not.
    #[error("the key could not be reached")]
    Transport(#[source] TransportError),
}

impl From<KeyError> for dray_types::Fault {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Transport(transport) => transport.into(),
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

    /// The current value; `None` when there is none or it was deleted.
    ///
    /// # Errors
    /// An invalid key, or the bus.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>, KeyError> {
        check(key)?;
        let entry = self
            .bus
            .inner
            .backend
            .key_get(&self.bucket, key)
            .await
            .map_err(KeyError::Transport)?;
        Ok(entry.filter(|entry| !entry.deleted).map(|entry| Entry {
            value: entry.value,
            revision: entry.revision,
            time_ms: entry.time_ms,
        }))
    }

    /// Writes a key that has no value, and gives its revision.
    ///
    /// # Errors
    /// [`KeyError::Exists`], an invalid key, or the bus.
    pub async fn create(&self, key: &str, value: Bytes) -> Result<u64, KeyError> {
        check(key)?;
        match self.put(key, Some(value.clone()), 0).await {
            Err(KeyError::Stale) => {}
            other => return other,
        }
        let last = self
            .bus
            .inner
            .backend
            .key_get(&self.bucket, key)
            .await
            .map_err(KeyError::Transport)?;
        match last {
            Some(entry) if entry.deleted => {
                match self.put(key, Some(value), entry.revision).await {
                    Err(KeyError::Stale) => Err(KeyError::Exists),
                    other => other,
                }
            }
            _ => Err(KeyError::Exists),
        }
    }

    /// Replaces the value of exactly this revision, and gives the new one.
    ///
    /// # Errors
    /// [`KeyError::Stale`], an invalid key, or the bus.
    pub async fn update(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, KeyError> {
        check(key)?;
        self.put(key, Some(value), revision).await
    }

    /// Deletes the value of exactly this revision.
    ///
    /// # Errors
    /// [`KeyError::Stale`], an invalid key, or the bus.
    pub async fn delete(&self, key: &str, revision: u64) -> Result<(), KeyError> {
        check(key)?;
        self.put(key, None, revision).await.map(|_| ())
    }

    async fn put(&self, key: &str, value: Option<Bytes>, expected: u64) -> Result<u64, KeyError> {
        self.bus
            .inner
            .backend
            .key_put(&self.bucket, key, value, expected)
            .await
            .map_err(|error| match error {
                TransportError::WrongRevision => KeyError::Stale,
                other => KeyError::Transport(other),
            })
    }
}

fn check(key: &str) -> Result<(), KeyError> {
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
            assert!(check(good).is_ok(), "{good}");
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
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
