//! The bus: one stream of work with a durable consumer for each queue, and buckets with compare-and-set.
//!
//! As nats-server 2.9 does it: deduplication by message id, redelivery after `ack_wait`, `max_ack_pending` for all replicas
//! of a queue together, at most 512 waiting pulls for each consumer, revisions that count all writes of a bucket.

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
/// How long a confirmed acknowledgement can be lost with the server (messaging-reliability F-2b), in microseconds.
const UNSAVED_ACKS: VirtualTime = 100_000;

/// Sequence of a message in the stream.
pub(crate) type MessageId = u64;

/// A message of work.
pub(crate) struct WorkMessage {
    pub(crate) hold: Rc<OperationHold>,
    pub(crate) round: u32,
    pub(crate) delivered: u64,
    queue: usize,
    /// When it is handed out again; `None` before the first time.
    again_at: Option<VirtualTime>,
    /// Still with a worker.
    is_out: bool,
}

/// A message as a worker gets it.
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

/// What a worker reports about a message that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkAck {
    /// The work is over: it is never delivered again.
    Final,
    /// Again after so many microseconds.
    Again(VirtualTime),
    /// The work continues: the time until a redelivery starts again.
    Progress,
}

#[derive(Default)]
struct WorkQueue {
    fresh: VecDeque<MessageId>,
    /// Messages that are handed out or returned, by the time of their redelivery.
    due: BTreeSet<(VirtualTime, MessageId)>,
    waiting: VecDeque<WaitingPull>,
    max_pending: usize,
}

/// The stream of work.
#[derive(Default)]
pub(crate) struct WorkStream {
    messages: HashMap<MessageId, WorkMessage>,
    queues: Vec<WorkQueue>,
    last: MessageId,
    pulls: u64,
    unsaved: VecDeque<(VirtualTime, MessageId, WorkMessage)>,
    /// Pulls that were refused because too many waited.
    pub(crate) refused_pulls: u64,
    /// Times at which a queue could not hand out because of `max_ack_pending`.
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
            again_at: None,
            is_out: false,
        };
        self.messages.insert(self.last, message);
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.fresh.push_back(self.last);
        }
    }

    /// Up to `count` messages that may be handed out now.
    pub(crate) fn pull(&mut self, at: usize, count: usize, now: VirtualTime) -> Vec<PulledWork> {
        let mut pulled = Vec::new();
        let Some(queue) = self.queues.get_mut(at) else {
            return pulled;
        };
        while pulled.len() < count {
            let due = queue.due.first().copied().filter(|(due, _)| *due <= now);
            let id = if let Some(due) = due {
                queue.due.remove(&due);
                self.redeliveries += 1;
                due.1
            // Returned messages count as well, as on the server.
            } else if queue.due.len() >= MAX_ACK_PENDING {
                self.full_queues += u64::from(!queue.fresh.is_empty());
                break;
            } else if let Some(id) = queue.fresh.pop_front() {
                id
            } else {
                break;
            };
            let Some(message) = self.messages.get_mut(&id) else {
                continue;
            };
            message.delivered += 1;
            message.is_out = true;
            message.again_at = Some(now + ACK_WAIT);
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

    /// Puts a pull at the end of those that wait; `None` when too many do.
    pub(crate) fn wait(
        &mut self,
        at: usize,
        replica: u32,
        task: TaskId,
        now: VirtualTime,
        until: VirtualTime,
    ) -> Option<u64> {
        let queue = self.queues.get_mut(at)?;
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

    /// The next waiting pull that has a message now, with the message.
    pub(crate) fn next_served(
        &mut self,
        at: usize,
        now: VirtualTime,
    ) -> Option<(WaitingPull, PulledWork)> {
        loop {
            let queue = self.queues.get_mut(at)?;
            let is_available = queue.due.first().is_some_and(|(due, _)| *due <= now)
                || (!queue.fresh.is_empty() && queue.due.len() < MAX_ACK_PENDING);
            if !is_available {
                return None;
            }
            let pull = queue.waiting.pop_front()?;
            if pull.until <= now {
                continue;
            }
            let message = self.pull(at, 1, now).pop()?;
            return Some((pull, message));
        }
    }

    /// Applies an acknowledgement. A message that is dropped by it is returned, so that the caller drops it outside.
    pub(crate) fn acknowledge(
        &mut self,
        id: MessageId,
        ack: WorkAck,
        now: VirtualTime,
    ) -> Vec<WorkMessage> {
        let mut dropped = self.forget_unsaved(now);
        let Some(message) = self.messages.get_mut(&id) else {
            return dropped;
        };
        let Some(queue) = self.queues.get_mut(message.queue) else {
            return dropped;
        };
        // A heartbeat after the return of a message must not change its delay.
        if ack == WorkAck::Progress && !message.is_out {
            return dropped;
        }
        if let Some(again_at) = message.again_at.take() {
            queue.due.remove(&(again_at, id));
        }
        let again_at = match ack {
            WorkAck::Final => {
                if let Some(message) = self.messages.remove(&id) {
                    self.unsaved.push_back((now, id, message));
                }
                dropped.extend(self.forget_unsaved(now));
                return dropped;
            }
            WorkAck::Again(delay) => {
                message.is_out = false;
                now + delay
            }
            WorkAck::Progress => now + ACK_WAIT,
        };
        message.again_at = Some(again_at);
        queue.due.insert((again_at, id));
        dropped
    }

    /// Acknowledgements that are on the server's disk by now.
    pub(crate) fn forget_unsaved(&mut self, now: VirtualTime) -> Vec<WorkMessage> {
        let mut dropped = Vec::new();
        while let Some((at, _, _)) = self.unsaved.front() {
            if at + UNSAVED_ACKS > now {
                break;
            }
            dropped.extend(self.unsaved.pop_front().map(|(_, _, message)| message));
        }
        dropped
    }

    /// The server dies: acknowledgements of the last 100 ms are lost with it, and waiting pulls too.
    pub(crate) fn crash(&mut self, now: VirtualTime) {
        for (_, id, mut message) in std::mem::take(&mut self.unsaved) {
            message.again_at = Some(now);
            message.is_out = false;
            if let Some(queue) = self.queues.get_mut(message.queue) {
                queue.due.insert((now, id));
            }
            self.messages.insert(id, message);
        }
        // Pulls are kept in the server's memory alone.
        for queue in &mut self.queues {
            queue.waiting.clear();
        }
    }

    /// Most messages that one queue had handed out together.
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
    pub(crate) fn new(broken: Option<BrokenRule>) -> Self {
        Self {
            entries: HashMap::new(),
            revision: 0,
            ignores_revisions: broken == Some(BrokenRule::IgnoreRevision),
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
        let found = self.entries.get(&key).map_or(0, |entry| entry.revision);
        if found != expected && !self.ignores_revisions {
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
