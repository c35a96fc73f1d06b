//! An index of all deliveries in memory, filled from the changes of the bucket.
//!
//! The index can always be rebuilt from the records. It may lack their latest changes, so callers read the record
//! before they act.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dray_bus::KeyError;
use dray_proto::v1;
use dray_types::{Period, TenantId};

use crate::cache::{ObjectNeeds, ObjectUses};
use crate::chat_positions::chat_of;
use crate::queue::Order;
use crate::record::{DeliveryRecord, WaitingReason};
use crate::records::{RecordStore, RevisionedRecord, decode_record};

/// Number of entries above which the oldest finished deliveries are removed.
const MAX_FINISHED_DELIVERIES: usize = 50_000;

/// Most changes that one refresh reads.
const MAX_WATCH_BATCH: usize = 5_000;

/// The indexed fields of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Key of the delivery's record.
    pub key: String,
    /// Revision of the record from which the entry was made.
    pub revision: u64,
    /// Id of the delivery.
    pub delivery: String,
    /// Session of the agent that requested it.
    pub session: String,
    /// Platform, account and chat, as requested.
    pub target: v1::ChatTarget,
    /// Unix milliseconds of the request.
    pub begun_at_ms: u64,
    /// Whether the delivery is over.
    pub finished: bool,
    /// Whether lists of open deliveries show it: it is not finished, or one of its files did not arrive.
    pub open: bool,
    /// Unix milliseconds at which it continues; 0 while it does not wait. As in its record.
    pub due_at_ms: u64,
    /// The reason why it does not continue now; `None` while it is worked on.
    pub waiting: Option<WaitingReason>,
    /// Unix milliseconds after which it is given up.
    pub deadline_ms: u64,
}

/// A delivery of the same chat that was requested earlier and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingDelivery {
    /// Unix milliseconds at which that delivery continues.
    pub due_ms: u64,
    /// The reason for the wait.
    pub reason: WaitingReason,
}

/// The index of one process.
#[derive(Debug)]
pub struct DeliveryIndex {
    records: RecordStore,
    state: Mutex<IndexState>,
    /// One reader at a time.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct IndexState {
    next: u64,
    entries: BTreeMap<String, IndexEntry>,
    needs: ObjectNeeds,
}

impl DeliveryIndex {
    /// An empty index.
    pub fn new(records: RecordStore) -> Self {
        Self {
            records,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Reads the changes since the last call; `false` if more than `MAX_WATCH_BATCH` are left.
    ///
    /// # Errors
    /// The bus failed. The changes that were read until then are applied.
    pub async fn refresh(&self) -> Result<bool, KeyError> {
        // Two readers would read the same revisions and could apply them in the wrong order.
        let _reading = self.reading.lock().await;
        let mut is_all = false;
        // The loop is bounded, so that a large bucket does not block the first caller until all of it is read.
        for _ in 0..MAX_WATCH_BATCH {
            let from = self.lock().next;
            let Some(change) = self.records.keys().next("", from).await? else {
                is_all = true;
                break;
            };
            let mut state = self.lock();
            // The position advances before the record is decoded, so that a corrupt record is not read again forever.
            state.next = change.revision + 1;
            match change.value.map(decode_record) {
                Some(Ok(record)) => state.put(&change.key, change.revision, &record),
                Some(Err(error)) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        key = change.key,
                        "a delivery's record cannot be read"
                    );
                }
                None => {
                    state.entries.remove(&change.key);
                    state.needs.remove(&change.key);
                }
            }
        }
        // This happens once per refresh, because it sorts all finished entries.
        self.lock().forget();
        Ok(is_all)
    }

    /// The cached objects that deliveries need, as far as records were read.
    pub(crate) fn uses(&self, now_ms: u64, lifetime: Period) -> ObjectUses {
        self.lock().needs.uses(now_ms, lifetime)
    }

    /// Indexes a record that this process has just written.
    pub fn note(&self, key: &str, stored: &RevisionedRecord) {
        self.lock().put(key, stored.revision, &stored.record);
    }

    /// The first delivery of the chat that was requested before `order` and waits. `owner` is the only tenant of the
    /// chat's account, `None` if it serves all.
    pub fn waiting_before(
        &self,
        chat: &str,
        owner: Option<&TenantId>,
        order: &Order,
    ) -> Option<WaitingDelivery> {
        let state = self.lock();
        let mut earlier: Vec<&IndexEntry> = state
            .entries
            .values()
            .filter(|entry| entry.due_at_ms != 0 && entry.is_before(chat, owner, order))
            .collect();
        // The map is sorted by key, not by time.
        earlier.sort_by_key(|entry| entry.order());
        earlier.first().map(|entry| WaitingDelivery {
            due_ms: entry.due_at_ms,
            reason: entry.waiting.unwrap_or(WaitingReason::Queue),
        })
    }

    /// Whether a delivery of the chat that was requested before `order` is neither finished nor waiting, so that a
    /// worker has it.
    pub fn has_active_before(&self, chat: &str, owner: Option<&TenantId>, order: &Order) -> bool {
        let state = self.lock();
        let mut entries = state.entries.values();
        entries.any(|entry| entry.due_at_ms == 0 && entry.is_before(chat, owner, order))
    }

    /// Whether a delivery of the chat waits in its record. It may be one of another account of the platform.
    pub fn has_waiting_in(&self, chat: &str) -> bool {
        let state = self.lock();
        let mut entries = state.entries.values();
        entries.any(|entry| !entry.finished && entry.due_at_ms != 0 && entry.is_in(chat, None))
    }

    /// Deliveries that are not over, in the order in which they were requested.
    pub fn unfinished(&self) -> Vec<IndexEntry> {
        let state = self.lock();
        let mut entries: Vec<IndexEntry> = state
            .entries
            .values()
            .filter(|entry| !entry.finished)
            .cloned()
            .collect();
        entries.sort_by_key(IndexEntry::order);
        entries
    }

    /// Keys of deliveries that are over, and whose end was to be published at or before this time.
    pub fn unpublished_ends(&self, before_ms: u64) -> Vec<String> {
        let state = self.lock();
        let unpublished = state.entries.values().filter(|entry| {
            // A delivery that is over waits for nothing else.
            entry.finished && entry.due_at_ms != 0 && entry.due_at_ms <= before_ms
        });
        unpublished.map(|entry| entry.key.clone()).collect()
    }

    /// Deliveries of a tenant, newest first; keys begin with its token.
    pub fn of_tenant(&self, tenant: &str, session: &str, open_only: bool) -> Vec<IndexEntry> {
        let prefix = format!("{tenant}.");
        let state = self.lock();
        let mut entries: Vec<IndexEntry> = state
            .entries
            // Keys are sorted, so this reads the entries of one tenant and not those of all.
            .range(prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, entry)| entry)
            .filter(|entry| session.is_empty() || entry.session == session)
            .filter(|entry| !open_only || entry.open)
            .cloned()
            .collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.order()));
        entries
    }

    fn lock(&self) -> MutexGuard<'_, IndexState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IndexEntry {
    /// The delivery's place among the deliveries of its chat.
    pub fn order(&self) -> Order {
        (self.begun_at_ms, self.delivery.clone())
    }

    /// Whether the delivery is for this chat, has not ended, and was requested before `order`.
    fn is_before(&self, chat: &str, owner: Option<&TenantId>, order: &Order) -> bool {
        !self.finished && self.order() < *order && self.is_in(chat, owner)
    }

    /// Whether the delivery is for this chat, given by platform, account and id as from [`chat_of`], and by the only
    /// tenant of the account, if it has one.
    pub(crate) fn is_in(&self, chat: &str, owner: Option<&TenantId>) -> bool {
        let v1::ChatTarget {
            platform, account, ..
        } = &self.target;
        if account.is_empty() {
            // The target does not show which account serves it: the only one of the platform that serves its tenant.
            return owner
                .is_none_or(|tenant| self.key.starts_with(&format!("{}.", tenant.token())))
                && chat.starts_with(&format!("{platform}/"))
                && chat.ends_with(&chat_of("", &self.target));
        }
        // Two accounts may have chats with the same id: in Telegram, the id of a chat is that of the user.
        chat == chat_of(&format!("{platform}/{account}"), &self.target)
    }
}

impl IndexState {
    fn put(&mut self, key: &str, revision: u64, record: &DeliveryRecord) {
        if self
            .entries
            .get(key)
            // `note` may have put a newer revision here before the watch delivers the older one.
            .is_some_and(|entry| entry.revision >= revision)
        {
            return;
        }
        let entry = IndexEntry {
            key: key.to_owned(),
            revision,
            delivery: record.delivery_id.clone(),
            session: record.session.clone(),
            target: record.target.clone().unwrap_or_default(),
            begun_at_ms: record.begun_at_ms,
            finished: record.finished,
            // A finished delivery with a missing file stays in lists of open ones, so that a person can send it
            // again.
            open: !record.finished || record.files.iter().any(|file| !file.state.is_shown()),
            due_at_ms: record.due_at_ms,
            waiting: record.waiting,
            deadline_ms: record.deadline_ms,
        };
        self.entries.insert(key.to_owned(), entry);
        self.needs.put(key, record);
    }

    /// Removes the oldest finished entries above the limit of memory.
    fn forget(&mut self) {
        // The needs of the cache stay: they are removed when the record is.
        let excess = self.entries.len().saturating_sub(MAX_FINISHED_DELIVERIES);
        if excess == 0 {
            return;
        }
        let mut finished: Vec<(u64, String)> = self
            .entries
            .values()
            .filter(|entry| entry.finished)
            .map(|entry| (entry.begun_at_ms, entry.key.clone()))
            .collect();
        finished.sort();
        for (_, key) in finished.into_iter().take(excess) {
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::in_process;

    fn record(id: &str, chat: &str, begun: u64, due: u64) -> DeliveryRecord {
        DeliveryRecord {
            delivery_id: id.to_owned(),
            session: "s".to_owned(),
            begun_at_ms: begun,
            due_at_ms: due,
            target: Some(v1::ChatTarget {
                platform: "fake".to_owned(),
                chat: chat.to_owned(),
                ..v1::ChatTarget::default()
            }),
            ..DeliveryRecord::default()
        }
    }

    #[tokio::test]
    async fn the_index_follows_the_records_and_finds_waiting_deliveries() {
        let (bus, _) = in_process().await;
        let records = RecordStore::new(&bus);
        let index = DeliveryIndex::new(records.clone());
        let stored = records
            .write("acme.a", record("a", "1", 10, 99), 0)
            .await
            .unwrap();
        records
            .write("acme.b", record("b", "2", 20, 0), 0)
            .await
            .unwrap();
        records
            .write("other.c", record("c", "1", 5, 0), 0)
            .await
            .unwrap();
        index.refresh().await.unwrap();
        let before = |chat: &str, at: u64| {
            let chat = format!("fake/one\0{chat}");
            index.waiting_before(&chat, None, &(at, "x".to_owned()))
        };
        assert_eq!(before("1", 11).map(|waiting| waiting.due_ms), Some(99));
        assert_eq!(before("1", 9), None, "was requested later");
        assert_eq!(before("2", 99), None, "does not wait");
        let has_active = |chat: &str, at: u64| {
            let chat = format!("fake/one\0{chat}");
            index.has_active_before(&chat, None, &(at, "x".to_owned()))
        };
        assert!(has_active("2", 21) && !has_active("2", 19) && !has_active("3", 99));
        assert!(!has_active("1", 4), "nothing that early");
        let ids = |entries: Vec<IndexEntry>| -> Vec<String> {
            entries.into_iter().map(|entry| entry.delivery).collect()
        };
        assert_eq!(ids(index.of_tenant("acme", "", false)), ["b", "a"]);
        assert_eq!(ids(index.of_tenant("acme", "t", false)), [""; 0]);
        assert_eq!(ids(index.unfinished()), ["c", "a", "b"]);
        let mut finished_record = record("a", "1", 10, 0);
        finished_record.finished = true;
        records
            .write("acme.a", finished_record, stored.revision)
            .await
            .unwrap();
        index.refresh().await.unwrap();
        assert_eq!(before("1", 11), None);
        assert_eq!(ids(index.of_tenant("acme", "", true)), ["b"]);
        assert_eq!(ids(index.of_tenant("acme", "", false)), ["b", "a"]);
    }

    #[tokio::test]
    async fn a_delivery_of_another_account_to_an_equal_chat_id_does_not_block() {
        let (bus, _) = in_process().await;
        let index = DeliveryIndex::new(RecordStore::new(&bus));
        let mut waiting = record("a", "c", 10, u64::MAX);
        waiting.target.as_mut().unwrap().account = "one".to_owned();
        let stored = RevisionedRecord {
            record: waiting,
            revision: 7,
        };
        index.note("acme.a", &stored);
        let is_blocked = |account: &str| {
            let chat = format!("fake/{account}\0c");
            let order = (20, "x".to_owned());
            index.waiting_before(&chat, None, &order).is_some()
        };
        assert!(is_blocked("one"));
        assert!(!is_blocked("two"));
    }

    #[tokio::test]
    async fn a_delivery_without_an_account_does_not_block_the_account_of_another_tenant() {
        let (bus, _) = in_process().await;
        let index = DeliveryIndex::new(RecordStore::new(&bus));
        let stored = RevisionedRecord {
            record: record("a", "c", 10, u64::MAX),
            revision: 7,
        };
        index.note("acme.a", &stored);
        let is_blocked = |owner: Option<&str>| {
            let owner = owner.map(|name| TenantId::new(name).unwrap());
            let order = (20, "x".to_owned());
            let waiting = index.waiting_before("fake/one\0c", owner.as_ref(), &order);
            waiting.is_some()
        };
        assert!(is_blocked(Some("acme")));
        assert!(is_blocked(None), "the account serves all tenants");
        assert!(!is_blocked(Some("other")));
    }

    #[tokio::test]
    async fn an_older_revision_does_not_replace_a_newer_one() {
        let (bus, _) = in_process().await;
        let index = DeliveryIndex::new(RecordStore::new(&bus));
        let stored = |due, revision| RevisionedRecord {
            record: record("a", "1", 10, due),
            revision,
        };
        index.note("acme.a", &stored(0, 7));
        index.note("acme.a", &stored(99, 5));
        assert_eq!(index.unfinished()[0].due_at_ms, 0);
    }
}
