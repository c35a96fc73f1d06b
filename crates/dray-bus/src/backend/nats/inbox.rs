//! Reply addresses: one wildcard subscription for all calls of a connection.
//!
//! The requests of the NATS client get one reply each. Calls need several replies (progress), count late ones, and are
//! notified when the connection is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::super::{CONNECTION_LOST, CoreMessage};
use super::from_nats;
use crate::error::TransportError;
use crate::headers::MessageHeaders;
use crate::metrics::BusMetrics;

/// Replies that may wait in one inbox: the final one, the unacknowledged replies of a stream, and progress at its
/// highest rate for half a minute. Capacity that is not used takes no memory.
const INBOX_CAPACITY: usize = 256;

/// All open inboxes of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct InboxMux {
    shared: Arc<InboxTable>,
}

#[derive(Debug, Default)]
struct InboxTable {
    prefix: OnceLock<String>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, mpsc::Sender<CoreMessage>>>,
    /// Owns the task that hands out replies.
    tasks: TaskTracker,
    /// Ends that task when the last handle is dropped, so that the task does not keep the connection open.
    dispatcher: OnceLock<DropGuard>,
}

/// A weak reference to the inboxes.
#[derive(Clone, Debug)]
pub(super) struct WeakMux(Weak<InboxTable>);

impl InboxMux {
    /// Subscribes and hands out replies from now on.
    pub(super) async fn start(
        self,
        client: &async_nats::Client,
        metrics: &BusMetrics,
    ) -> Result<Self, TransportError> {
        // One wildcard subscription for all calls: a subscription for each call would cost two
        // more messages to the server.
        let prefix = self.shared.prefix.get_or_init(|| client.new_inbox());
        let mut replies = client
            .subscribe(format!("{prefix}.*"))
            .await
            .map_err(TransportError::other)?;
        // The server must have the subscription before the first request; otherwise it would drop the first reply.
        client.flush().await.map_err(TransportError::other)?;
        // Weak, because the task is owned by `shared` itself: a strong reference would keep both alive forever.
        let shared = Arc::downgrade(&self.shared);
        let late_replies = metrics.call_late_replies_total.clone();
        let dispatcher_stop = CancellationToken::new();
        let stop = dispatcher_stop.clone();
        // `start` runs once for a mux, so the cell is empty here.
        drop(self.shared.dispatcher.set(dispatcher_stop.drop_guard()));
        drop(self.shared.tasks.spawn(async move {
            loop {
                let reply = tokio::select! {
                    reply = replies.next() => reply,
                    () = stop.cancelled() => None,
                };
                let (Some(reply), Some(shared)) = (reply, shared.upgrade()) else {
                    break;
                };
                if !shared.hand_over(from_nats(reply)) {
                    // The caller has stopped waiting. A rising count means that deadlines are too short or a responder
                    // is too slow.
                    late_replies.add(1, &[]);
                }
            }
        }));
        Ok(self)
    }

    pub(super) fn open(&self) -> NatsInbox {
        let (sender, receiver) = mpsc::channel(INBOX_CAPACITY);
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.lock().insert(id, sender);
        let prefix = self.shared.prefix.get().map_or("", String::as_str);
        NatsInbox {
            address: format!("{prefix}.{id}"),
            id,
            receiver,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Returns when the task that reads replies has ended, which is the end of the connection.
    pub(super) async fn wait_until_ended(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    #[cfg(test)]
    pub(super) fn is_reading(&self) -> bool {
        !self.shared.tasks.is_empty()
    }

    pub(super) fn downgrade(&self) -> WeakMux {
        WeakMux(Arc::downgrade(&self.shared))
    }
}

impl WeakMux {
    /// Notifies all waiters that their request or its response may be lost.
    pub(super) fn connection_lost(&self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let notice = CoreMessage {
            subject: String::new(),
            reply: None,
            headers: MessageHeaders::new(),
            payload: bytes::Bytes::new(),
            status: Some(CONNECTION_LOST),
        };
        for sender in shared.lock().values() {
            // A full inbox has replies to read; its caller notices the loss by its deadline at the latest.
            drop(sender.try_send(notice.clone()));
        }
    }
}

impl InboxTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<CoreMessage>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a reply to the inbox of its caller; `false` if no caller waits for it.
    fn hand_over(&self, reply: CoreMessage) -> bool {
        // A consumer delivers messages of a stream with their own subjects. Those are not replies to calls.
        let prefix = self.prefix.get().map_or("", String::as_str);
        let id = reply
            .subject
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix('.'))
            .and_then(|id| id.parse::<u64>().ok());
        // The sender is cloned, so that the lock is released before the reply is sent.
        let sender = id.and_then(|id| self.lock().get(&id).cloned());
        // The reply is sent without waiting: a caller that does not read must not block the replies of all others.
        sender.is_some_and(|sender| sender.try_send(reply).is_ok())
    }
}

/// An address for replies; dropping it removes the subscription.
#[derive(Debug)]
pub(crate) struct NatsInbox {
    address: String,
    id: u64,
    receiver: mpsc::Receiver<CoreMessage>,
    shared: Arc<InboxTable>,
}

impl NatsInbox {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn next(&mut self) -> Option<CoreMessage> {
        self.receiver.recv().await
    }
}

impl Drop for NatsInbox {
    fn drop(&mut self) {
        self.shared.lock().remove(&self.id);
    }
}
