//! The order of the deliveries of a chat among all replicas, in the bucket `dray_platform` (platform-delivery 10.2).
//!
//! A delivery takes its place when it is requested, before its files are copied out of the sandbox. It is shown when no
//! earlier place is open, on any replica and for any duration of the copies. A place is open until the delivery ends or
//! waits for its platform, and no longer than the timeout, so that a delivery that hangs cannot block its chat
//! (head-of-line blocking). Places are written by compare-and-set; a later place always has a larger number, even if
//! the clocks of replicas differ.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};
use dray_types::{Clock, Sha256Digest, whole_millis};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Most open places of one chat, because a record of the bucket has at most 64 KiB. Deliveries beyond this limit are
/// ordered only once they have a record.
const MAX_PLACES: usize = 200;

/// Most attempts of one change while other replicas change the same record.
const MAX_ATTEMPTS: u32 = 32;

/// Upper bound of the delay between two attempts.
const MAX_DELAY: Duration = Duration::from_millis(20);

/// Locks that serialise the changes of one process, by chat.
const LOCK_SHARDS: usize = 64;

/// The places of all chats, as one process sees them.
#[derive(Clone, Debug)]
pub struct ChatOrder {
    keys: KeyValue,
    clock: Clock,
    timeout: Duration,
    shards: Arc<Vec<Mutex<()>>>,
}

/// A place that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// Unix milliseconds at which the delivery was requested, or a little more, so that no two numbers are equal.
    pub number: u64,
    /// Whether the delivery had no open place before.
    pub is_new: bool,
}

/// The order of one chat, as it is stored for all replicas.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ChatQueueRecord {
    /// The largest number so far.
    last: u64,
    open: Vec<OpenPosition>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OpenPosition {
    /// Key of the delivery's record.
    delivery: String,
    number: u64,
    until_ms: u64,
}

impl ChatQueueRecord {
    fn find(&mut self, delivery: &str) -> Option<&mut OpenPosition> {
        self.open.iter_mut().find(|open| open.delivery == delivery)
    }

    fn add(&mut self, delivery: &str, number: u64, until_ms: u64) {
        if self.open.len() < MAX_PLACES {
            self.open.push(OpenPosition {
                delivery: delivery.to_owned(),
                number,
                until_ms,
            });
        }
    }
}

impl ChatOrder {
    /// An order whose places block later ones for at most `timeout`.
    pub fn new(keys: KeyValue, clock: Clock, timeout: Duration) -> Self {
        let shards = std::iter::repeat_with(Mutex::default)
            .take(LOCK_SHARDS)
            .collect();
        Self {
            keys,
            clock,
            timeout,
            shards: Arc::new(shards),
        }
    }

    /// Takes a place for a delivery after all earlier places. A delivery with an open place keeps it.
    ///
    /// # Errors
    /// The bus failed.
    pub async fn take(&self, chat: &str, delivery: &str) -> Result<QueuePlace, KeyError> {
        let (now_ms, until_ms) = self.times();
        self.change(chat, |positions| {
            if let Some(open) = positions.find(delivery) {
                let number = open.number;
                return (
                    QueuePlace {
                        number,
                        is_new: false,
                    },
                    false,
                );
            }
            // Clocks of replicas differ, and two requests may share a millisecond: a new place always follows the last
            // one.
            let number = now_ms.max(positions.last + 1);
            positions.last = number;
            positions.add(delivery, number, until_ms);
            (
                QueuePlace {
                    number,
                    is_new: true,
                },
                true,
            )
        })
        .await
    }

    /// Opens the place of a delivery that continues, for the whole timeout.
    ///
    /// # Errors
    /// The bus failed.
    pub async fn hold(&self, chat: &str, delivery: &str, number: u64) -> Result<(), KeyError> {
        let (_, until_ms) = self.times();
        self.change(chat, |positions| {
            // The record may have expired since; a later place must still get a larger number.
            positions.last = positions.last.max(number);
            match positions.find(delivery) {
                Some(open) => open.until_ms = until_ms,
                None => positions.add(delivery, number, until_ms),
            }
            ((), true)
        })
        .await
    }

    /// Releases a place, because the delivery ended or its record says what it waits for.
    ///
    /// # Errors
    /// The bus failed. The place then ends with its lease.
    pub async fn release(&self, chat: &str, delivery: &str) -> Result<(), KeyError> {
        self.change(chat, |positions| {
            let before = positions.open.len();
            positions.open.retain(|open| open.delivery != delivery);
            // An expired place was removed already; then no record is written.
            ((), positions.open.len() < before)
        })
        .await
    }

    /// The first open place of a chat.
    ///
    /// # Errors
    /// The bus failed.
    pub async fn first(&self, chat: &str) -> Result<Option<u64>, KeyError> {
        let now_ms = self.clock.now_ms();
        let entry = self.keys.get(&chat_key(chat)).await?;
        let positions = entry
            .map(|entry| decode_record(&entry.value))
            .unwrap_or_default();
        // An expired place stays in the record until the next change, but blocks no delivery.
        let open = positions.open.iter().filter(|open| open.until_ms > now_ms);
        Ok(open.map(|open| open.number).min())
    }

    fn times(&self) -> (u64, u64) {
        let now_ms = self.clock.now_ms();
        let timeout = whole_millis(self.timeout);
        (now_ms, now_ms.saturating_add(timeout))
    }

    /// Changes the record of a chat by compare-and-set. `change` returns whether anything has to be written.
    async fn change<T>(
        &self,
        chat: &str,
        change: impl Fn(&mut ChatQueueRecord) -> (T, bool),
    ) -> Result<T, KeyError> {
        let key = chat_key(chat);
        // Changes of the same chat in this process queue here instead of colliding in the bucket.
        let shard = usize::from(key.bytes().fold(0_u8, u8::wrapping_add)) % LOCK_SHARDS;
        let _guard = match self.shards.get(shard) {
            Some(shard) => Some(shard.lock().await),
            None => None,
        };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let entry = self.keys.get(&key).await?;
            // JetStream counts revisions from 1, so 0 stands for "no entry yet".
            let revision = entry.as_ref().map_or(0, |entry| entry.revision);
            let mut positions = entry
                .map(|entry| decode_record(&entry.value))
                .unwrap_or_default();
            let now_ms = self.clock.now_ms();
            // Each writer removes expired places, so the record stays small without a sweep.
            positions.open.retain(|open| open.until_ms > now_ms);
            let (result, is_changed) = change(&mut positions);
            if !is_changed {
                return Ok(result);
            }
            let value = Bytes::from(serde_json::to_vec(&positions).unwrap_or_default());
            let written = match revision {
                0 => self.keys.create(&key, value).await,
                revision => self.keys.update(&key, value, revision).await,
            };
            match written {
                Ok(_) => return Ok(result),
                Err(KeyError::Exists | KeyError::Stale) if attempts < MAX_ATTEMPTS => {
                    // Replicas that collided must not collide again.
                    tokio::time::sleep(rand::random_range(Duration::ZERO..=MAX_DELAY)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A record that cannot be read blocks no chat.
fn decode_record(value: &[u8]) -> ChatQueueRecord {
    serde_json::from_slice(value).unwrap_or_default()
}

fn chat_key(chat: &str) -> String {
    let hex = Sha256Digest::of(chat.as_bytes()).to_hex();
    // 128 bits: two chats do not collide, and the key is short. The id itself may contain characters that keys
    // cannot.
    let token: String = hex.chars().take(32).collect();
    format!("order.{token}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform_cache::PLATFORM_BUCKET;
    use crate::tests::fixture::in_process;

    const PLACE_TIMEOUT: Duration = Duration::from_mins(5);

    async fn two_replicas() -> (ChatOrder, ChatOrder, Clock) {
        let (bus, clock) = in_process().await;
        let replica =
            || ChatOrder::new(bus.key_value(PLATFORM_BUCKET), clock.clone(), PLACE_TIMEOUT);
        (replica(), replica(), clock)
    }

    #[tokio::test]
    async fn places_grow_in_the_order_in_which_they_are_taken_by_any_replica() {
        let (one, two, _) = two_replicas().await;
        let mut numbers = Vec::new();
        for (replica, delivery) in [(&one, "a"), (&two, "b"), (&one, "c"), (&two, "d")] {
            let place = replica.take("chat", delivery).await.unwrap();
            assert!(place.is_new);
            numbers.push(place.number);
        }
        assert!(
            numbers.is_sorted_by(|earlier, later| earlier < later),
            "{numbers:?}"
        );
        let repeated = two.take("chat", "a").await.unwrap();
        assert_eq!((repeated.number, repeated.is_new), (numbers[0], false));
        let other_chat = two.take("other", "e").await.unwrap();
        assert_eq!(other_chat.number, numbers[0], "chats are independent");
    }

    #[tokio::test]
    async fn places_taken_concurrently_by_two_replicas_are_never_equal() {
        let (one, two, _) = two_replicas().await;
        let takes = (0..20).map(|number| {
            let replica = if number % 2 == 0 { &one } else { &two };
            async move {
                replica
                    .take("chat", &number.to_string())
                    .await
                    .unwrap()
                    .number
            }
        });
        let mut numbers = futures_util::future::join_all(takes).await;
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 20);
    }

    #[tokio::test]
    async fn the_first_open_place_is_the_earliest_that_was_not_released() {
        let (one, two, _) = two_replicas().await;
        let first = one.take("chat", "a").await.unwrap().number;
        let second = two.take("chat", "b").await.unwrap().number;
        assert_eq!(two.first("chat").await.unwrap(), Some(first));
        one.release("chat", "a").await.unwrap();
        assert_eq!(two.first("chat").await.unwrap(), Some(second));
        one.hold("chat", "a", first).await.unwrap();
        assert_eq!(
            two.first("chat").await.unwrap(),
            Some(first),
            "the delivery continues"
        );
        one.release("chat", "a").await.unwrap();
        one.release("chat", "b").await.unwrap();
        assert_eq!(one.first("chat").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_place_blocks_later_ones_no_longer_than_the_timeout() {
        let (one, _, clock) = two_replicas().await;
        let first = one.take("chat", "a").await.unwrap().number;
        clock.advance(PLACE_TIMEOUT / 2);
        one.hold("chat", "a", first).await.unwrap();
        clock.advance(PLACE_TIMEOUT / 2);
        assert_eq!(
            one.first("chat").await.unwrap(),
            Some(first),
            "the place was held"
        );
        clock.advance(PLACE_TIMEOUT / 2);
        assert_eq!(one.first("chat").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_chat_with_too_many_open_places_still_gives_growing_numbers() {
        let (one, _, _) = two_replicas().await;
        let mut last = 0;
        for delivery in 0..MAX_PLACES + 5 {
            let number = one
                .take("chat", &delivery.to_string())
                .await
                .unwrap()
                .number;
            assert!(number > last);
            last = number;
        }
    }
}
