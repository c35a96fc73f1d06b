//! The bus: one stream of work with a durable consumer for each queue, and buckets with compare-and-set.
//!
//! It behaves like nats-server 2.9: deduplication by message id, redelivery after `ack_wait`, and revisions that count
//! all writes of a bucket. `max_ack_pending` holds for all replicas of a queue together, and a consumer has at most 512
//! waiting pulls.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use crate::executor::{TaskId, VirtualTime};
use crate::operation::OperationHold;
use crate::options::BrokenRule;

/// Time after which a message without a heartbeat is delivered again, in microseconds: the value of the topology.
pub(crate) const ACK_WAIT: VirtualTime = 6_000_000;
/// Most messages of a queue that are handed out and not acknowledged, over all replicas: the value of the topology.
pub(crate) const MAX_ACK_PENDING: usize = 8_192;
/// Default of the server for the pulls that may wait at a consumer.
const MAX_WAITING_PULLS: usize = 512;
/// Time until the server writes a confirmed acknowledgement to its disk (messaging-reliability F-2b), in microseconds.
/// A crash before that loses the acknowledgement.
const ACK_SAVE_DELAY: VirtualTime = 100_000;

/// Sequence of a message in the stream.
pub(crate) type MessageId = u64;

/// A message of the modelled work stream, with its deliveries so far.
pub(crate) struct WorkMessage {
    pub(crate) hold: Rc<OperationHold>,
    pub(crate) round: u32,
    pub(crate) delivered: u64,
    queue: usize,
    /// Time of the next delivery; `None` before the first one.
    redeliver_at: Option<VirtualTime>,
    /// Whether a worker has the message.
    is_with_worker: bool,
}

/// A message that was delivered to a worker.
pub(crate) struct PulledWork {
    pub(crate) message: MessageId,
    pub(crate) hold: Rc<OperationHold>,
    pub(crate) round: u32,
    pub(crate) delivered: u64,
}

/// A pull that waits for a message.
pub(crate) struct WaitingPull {
    pub(crate) replica: u32,
    pub(crate) task: TaskId,
    pub(crate) until: VirtualTime,
    pub(crate) number: u64,
}

/// The acknowledgement of a message by its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkAck {
    /// The work has ended and is never delivered again.
    Final,
    /// The message is delivered again after this many microseconds.
    Again(VirtualTime),
    /// The work continues, so the time until a redelivery is restarted.
    Progress,
}

#[derive(Default)]
struct WorkQueue {
    new_messages: VecDeque<MessageId>,
    /// Messages that are handed out or returned, by the time of their redelivery.
    due: BTreeSet<(VirtualTime, MessageId)>,
    waiting: VecDeque<WaitingPull>,
    max_pending: usize,
}

/// The modelled work stream: its queues, its messages, and those that are not on disk yet.
#[derive(Default)]
pub(crate) struct WorkStream {
    messages: HashMap<MessageId, WorkMessage>,
    queues: Vec<WorkQueue>,
    last: MessageId,
    pulls: u64,
    unsaved: VecDeque<(VirtualTime, MessageId, WorkMessage)>,
    /// Pulls that were refused because too many waited.
    pub(crate) refused_pulls: u64,
    /// Pulls that got no message because their queue was at `max_ack_pending`.
    pub(crate) full_queues: u64,
    pub(crate) redeliveries: u64,
}

impl WorkStream {
    pub(crate) fn new(queues: usize) -> Self {
        Self {
            queues: (0..queues).map(|_| WorkQueue::default()).collect(),
            ..Self::default()
        }
    }

    /// Stores a message; the caller has checked its id.
    pub(crate) fn append(&mut self, queue: usize, hold: Rc<OperationHold>, round: u32) {
        self.last += 1;
        let message = WorkMessage {
            hold,
            round,
            delivered: 0,
            queue,
            redeliver_at: None,
            is_with_worker: false,
        };
        self.messages.insert(self.last, message);
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.new_messages.push_back(self.last);
        }
    }

    /// Up to `count` messages that may be handed out now.
    pub(crate) fn pull(
        &mut self,
        queue_index: usize,
        count: usize,
        now: VirtualTime,
    ) -> Vec<PulledWork> {
        let mut pulled = Vec::new();
        let Some(queue) = self.queues.get_mut(queue_index) else {
            return pulled;
        };
        while pulled.len() < count {
            let due = queue.due.first().copied().filter(|(due, _)| *due <= now);
            let id = if let Some(due) = due {
                queue.due.remove(&due);
                self.redeliveries += 1;
                due.1
            // Messages that were returned count as well, as on the server.
            } else if queue.due.len() >= MAX_ACK_PENDING {
                self.full_queues += u64::from(!queue.new_messages.is_empty());
                break;
            } else if let Some(id) = queue.new_messages.pop_front() {
                id
            } else {
                break;
            };
            let Some(message) = self.messages.get_mut(&id) else {
                continue;
            };
            message.delivered += 1;
            message.is_with_worker = true;
            message.redeliver_at = Some(now + ACK_WAIT);
            queue.due.insert((now + ACK_WAIT, id));
            queue.max_pending = queue.max_pending.max(queue.due.len());
            pulled.push(PulledWork {
                message: id,
                hold: Rc::clone(&message.hold),
                round: message.round,
                delivered: message.delivered,
            });
        }
        pulled
    }

    /// Adds a pull to the end of the waiting ones; `None` if too many wait.
    pub(crate) fn wait(
        &mut self,
        queue_index: usize,
        replica: u32,
        task: TaskId,
        now: VirtualTime,
        until: VirtualTime,
    ) -> Option<u64> {
        let queue = self.queues.get_mut(queue_index)?;
        queue.waiting.retain(|pull| pull.until > now);
        if queue.waiting.len() >= MAX_WAITING_PULLS {
            self.refused_pulls += 1;
            return None;
        }
        self.pulls += 1;
        queue.waiting.push_back(WaitingPull {
            replica,
            task,
            until,
            number: self.pulls,
        });
        Some(self.pulls)
    }

    /// Removes the first waiting pull for which a message is available, and returns it with the message.
    pub(crate) fn next_served(
        &mut self,
        queue_index: usize,
        now: VirtualTime,
    ) -> Option<(WaitingPull, PulledWork)> {
        loop {
            let queue = self.queues.get_mut(queue_index)?;
            let is_available = queue.due.first().is_some_and(|(due, _)| *due <= now)
                || (!queue.new_messages.is_empty() && queue.due.len() < MAX_ACK_PENDING);
            if !is_available {
                return None;
            }
            let pull = queue.waiting.pop_front()?;
            if pull.until <= now {
                continue;
            }
            let message = self.pull(queue_index, 1, now).pop()?;
            return Some((pull, message));
        }
    }

    /// Applies an acknowledgement. Messages that it removes are returned, so that the caller drops them after the
    /// borrow of the stream has ended.
    pub(crate) fn acknowledge(
        &mut self,
        id: MessageId,
        ack: WorkAck,
        now: VirtualTime,
    ) -> Vec<WorkMessage> {
        let mut dropped = self.take_saved(now);
        let Some(message) = self.messages.get_mut(&id) else {
            return dropped;
        };
        let Some(queue) = self.queues.get_mut(message.queue) else {
            return dropped;
        };
        // A heartbeat after the return of a message must not change its delay.
        if ack == WorkAck::Progress && !message.is_with_worker {
            return dropped;
        }
        if let Some(redeliver_at) = message.redeliver_at.take() {
            queue.due.remove(&(redeliver_at, id));
        }
        let redeliver_at = match ack {
            WorkAck::Final => {
                if let Some(message) = self.messages.remove(&id) {
                    self.unsaved.push_back((now, id, message));
                }
                dropped.extend(self.take_saved(now));
                return dropped;
            }
            WorkAck::Again(delay) => {
                message.is_with_worker = false;
                now + delay
            }
            WorkAck::Progress => now + ACK_WAIT,
        };
        message.redeliver_at = Some(redeliver_at);
        queue.due.insert((redeliver_at, id));
        dropped
    }

    /// Returns the messages whose acknowledgement is on the server's disk now. They can no longer be delivered again.
    pub(crate) fn take_saved(&mut self, now: VirtualTime) -> Vec<WorkMessage> {
        let mut dropped = Vec::new();
        while let Some((acknowledged_at, _, _)) = self.unsaved.front() {
            if acknowledged_at + ACK_SAVE_DELAY > now {
                break;
            }
            dropped.extend(self.unsaved.pop_front().map(|(_, _, message)| message));
        }
        dropped
    }

    /// The server crashes. It loses the acknowledgements of the last 100 ms and all waiting pulls.
    pub(crate) fn crash(&mut self, now: VirtualTime) {
        for (_, id, mut message) in std::mem::take(&mut self.unsaved) {
            message.redeliver_at = Some(now);
            message.is_with_worker = false;
            if let Some(queue) = self.queues.get_mut(message.queue) {
                queue.due.insert((now, id));
            }
            self.messages.insert(id, message);
        }
        // The server keeps pulls only in memory.
        for queue in &mut self.queues {
            queue.waiting.clear();
        }
    }

    /// Most concurrent messages that one queue had handed out.
    pub(crate) fn max_pending(&self) -> usize {
        let queues = self.queues.iter();
        queues.map(|queue| queue.max_pending).max().unwrap_or(0)
    }
}

/// A value with its revision.
#[derive(Clone, Debug)]
pub(crate) struct BucketEntry<V> {
    pub(crate) value: V,
    pub(crate) revision: u64,
}

/// A bucket with compare-and-set.
pub(crate) struct KeyBucket<K, V> {
    entries: HashMap<K, BucketEntry<V>>,
    revision: u64,
    ignores_revisions: bool,
}

impl<K: Eq + Hash, V: Clone> KeyBucket<K, V> {
    pub(crate) fn new(broken_rule: Option<BrokenRule>) -> Self {
        Self {
            entries: HashMap::new(),
            revision: 0,
            ignores_revisions: broken_rule == Some(BrokenRule::IgnoreRevision),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<BucketEntry<V>> {
        self.entries.get(key).cloned()
    }

    pub(crate) fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Writes over revision `expected` (0: no entry); `None` when the entry has another revision.
    pub(crate) fn put(&mut self, key: K, value: V, expected: u64) -> Option<u64> {
        let current = self.entries.get(&key).map_or(0, |entry| entry.revision);
        if current != expected && !self.ignores_revisions {
            return None;
        }
        self.revision += 1;
        let entry = BucketEntry {
            value,
            revision: self.revision,
        };
        self.entries.insert(key, entry);
        Some(self.revision)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key).map(|entry| entry.value)
    }
}
