//! Notes which deliveries are copying files out of sandboxes. A delivery with several files has no record before the
//! last copy is complete, so the cache must keep the files of all its copies until then.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};
use dray_types::{Clock, Sha256Digest, whole_millis};
use serde::{Deserialize, Serialize};

/// Number of keys over which deliveries are spread: enough that writers seldom conflict, and few enough to read them
/// all.
const NOTE_KEYS: u8 = 32;
/// Attempts to write one key that others change at the same time.
const MAX_WRITE_ATTEMPTS: u32 = 16;

/// The notes of all replicas, in the bucket `dray_platform`.
#[derive(Clone, Debug)]
pub(crate) struct GatheringNotes {
    keys: KeyValue,
    clock: Clock,
}

/// A delivery that gathers files, or whose process ended while it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct GatheringNote {
    since_ms: u64,
    until_ms: u64,
}

type NotesByDelivery = BTreeMap<String, GatheringNote>;

impl GatheringNotes {
    pub(crate) fn new(keys: KeyValue, clock: Clock) -> Self {
        Self { keys, clock }
    }

    /// Notes that files of this delivery are gathered from now on, for at most `lifetime`. A repeated call keeps the
    /// first start.
    ///
    /// # Errors
    /// The bus failed; whether the note is there is unknown.
    pub(crate) async fn begin(&self, delivery: &str, lifetime: Duration) -> Result<(), KeyError> {
        let now_ms = self.clock.now_ms();
        let lifetime = whole_millis(lifetime);
        self.change(delivery, |notes| {
            let since_ms = notes
                .get(delivery)
                .map_or(now_ms, |before| before.since_ms.min(now_ms));
            let until_ms = now_ms.saturating_add(lifetime);
            notes.insert(delivery.to_owned(), GatheringNote { since_ms, until_ms });
        })
        .await
    }

    /// Removes the note, because the files are in a record or no longer needed. A note that cannot be removed expires.
    pub(crate) async fn end(&self, delivery: &str) {
        let ended = self.change(delivery, |notes| {
            notes.remove(delivery);
        });
        if let Err(error) = ended.await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the end of a gathering was not noted"
            );
        }
    }

    /// Start of the earliest gathering that has not ended; [`u64::MAX`] if there is none.
    ///
    /// # Errors
    /// The bus failed, so no object may be removed.
    pub(crate) async fn since_ms(&self) -> Result<u64, KeyError> {
        let now_ms = self.clock.now_ms();
        let listing = self.keys.list("gathering", usize::from(NOTE_KEYS)).await?;
        let notes = listing
            .entries
            .iter()
            .flat_map(|(_, entry)| decode_notes(&entry.value));
        // An expired note belongs to a process that ended without removing it.
        Ok(notes
            .filter(|(_, gathering)| gathering.until_ms > now_ms)
            .map(|(_, gathering)| gathering.since_ms)
            .min()
            .unwrap_or(u64::MAX))
    }

    async fn change(
        &self,
        delivery: &str,
        change: impl Fn(&mut NotesByDelivery),
    ) -> Result<(), KeyError> {
        let key = note_key(delivery);
        let now_ms = self.clock.now_ms();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let entry = self.keys.get(&key).await?;
            let before = entry.as_ref().map(|entry| decode_notes(&entry.value));
            let mut after = before.clone().unwrap_or_default();
            // Every writer removes expired notes under its key, so that a process that ended leaves no note for long.
            after.retain(|_, gathering| gathering.until_ms > now_ms);
            change(&mut after);
            if before.as_ref() == Some(&after) {
                return Ok(());
            }
            let value = Bytes::from(serde_json::to_vec(&after).unwrap_or_default());
            let written = match entry {
                Some(entry) => self.keys.update(&key, value, entry.revision).await,
                None => self.keys.create(&key, value).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(KeyError::Stale | KeyError::Exists) if attempts < MAX_WRITE_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn decode_notes(value: &[u8]) -> NotesByDelivery {
    serde_json::from_slice(value).unwrap_or_default()
}

fn note_key(delivery: &str) -> String {
    let digest = Sha256Digest::of(delivery.as_bytes());
    let first = digest.as_bytes().first().copied().unwrap_or_default();
    format!("gathering.{}", first % NOTE_KEYS)
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::platform_cache::PLATFORM_BUCKET;
    use crate::tests::fixture::{NOW_MS, in_process};

    const NOTE_LIFETIME: Duration = Duration::from_mins(10);

    async fn gatherings() -> (GatheringNotes, Clock) {
        let (bus, clock) = in_process().await;
        (
            GatheringNotes::new(bus.key_value(PLATFORM_BUCKET), clock.clone()),
            clock,
        )
    }

    #[tokio::test]
    async fn the_earliest_gathering_that_has_not_ended_counts() {
        let (gatherings, clock) = gatherings().await;
        assert_eq!(gatherings.since_ms().await.unwrap(), u64::MAX);
        gatherings.begin("a", NOTE_LIFETIME).await.unwrap();
        clock.advance(NOTE_LIFETIME / 2);
        gatherings.begin("b", NOTE_LIFETIME).await.unwrap();
        gatherings.begin("a", NOTE_LIFETIME).await.unwrap();
        assert_eq!(gatherings.since_ms().await.unwrap(), NOW_MS);
        gatherings.end("a").await;
        assert_eq!(gatherings.since_ms().await.unwrap(), NOW_MS + 5 * 60_000);
        clock.advance(NOTE_LIFETIME);
        assert_eq!(
            gatherings.since_ms().await.unwrap(),
            u64::MAX,
            "the note expired"
        );
    }

    #[tokio::test]
    async fn concurrent_changes_lose_no_note() {
        let (gatherings, clock) = gatherings().await;
        let names: Vec<String> = (0..100).map(|number| format!("d-{number}")).collect();
        let results = join_all(
            names
                .iter()
                .map(|name| gatherings.begin(name, NOTE_LIFETIME)),
        )
        .await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        clock.advance(NOTE_LIFETIME / 2);
        for name in &names {
            assert_eq!(gatherings.since_ms().await.unwrap(), NOW_MS);
            gatherings.end(name).await;
        }
        assert_eq!(gatherings.since_ms().await.unwrap(), u64::MAX);
    }
}
