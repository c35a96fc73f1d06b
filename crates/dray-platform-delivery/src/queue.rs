//! One delivery at a time for each chat, in the order in which they were requested (platform-delivery 10.2, 10.4).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Most deliveries that may wait for one chat in this process. Others wait in their records, where they block no
/// worker.
pub const MAX_WAITING_DELIVERIES: usize = 2;

/// When a delivery was requested, and its id.
pub type Order = (u64, String);

/// The deliveries that wait for their turn, by chat. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ChatQueues {
    queues: Arc<Mutex<HashMap<String, ChatQueue>>>,
}

#[derive(Debug, Default)]
struct ChatQueue {
    waiting: BTreeMap<Order, oneshot::Sender<SendTurn>>,
}

/// The right to send to one chat. Dropping it passes the right to the next delivery.
#[derive(Debug)]
pub struct SendTurn {
    queue: ChatQueues,
    chat: String,
}

impl ChatQueues {
    /// Waits for the turn of a delivery, behind all that were requested earlier. Returns `None` immediately if too many
    /// wait.
    pub async fn enter(&self, chat: &str, order: Order) -> Option<SendTurn> {
        let receiver = {
            let mut queues = self.lock();
            match queues.get_mut(chat) {
                None => {
                    queues.insert(chat.to_owned(), ChatQueue::default());
                    return Some(self.turn(chat));
                }
                Some(queue) => {
                    queue.waiting.retain(|_, sender| !sender.is_closed());
                    if queue.waiting.len() >= MAX_WAITING_DELIVERIES {
                        return None;
                    }
                    let (sender, receiver) = oneshot::channel();
                    queue.waiting.insert(order, sender);
                    receiver
                }
            }
        };
        // The sender is dropped only when the same delivery entered again and replaced it.
        receiver.await.ok()
    }

    /// How many more deliveries may wait for the chat in this process.
    pub fn free_places(&self, chat: &str) -> usize {
        self.lock()
            .get(chat)
            .map_or(MAX_WAITING_DELIVERIES, |queue| {
                let waiting = queue.waiting.values().filter(|sender| !sender.is_closed());
                MAX_WAITING_DELIVERIES.saturating_sub(waiting.count())
            })
    }

    fn turn(&self, chat: &str) -> SendTurn {
        SendTurn {
            queue: self.clone(),
            chat: chat.to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ChatQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the first waiting delivery, or the queue if none waits.
    fn next(&self, chat: &str) -> Option<oneshot::Sender<SendTurn>> {
        let mut queues = self.lock();
        let next = queues.get_mut(chat)?.waiting.pop_first();
        if next.is_none() {
            queues.remove(chat);
        }
        next.map(|(_, sender)| sender)
    }
}

impl Drop for SendTurn {
    fn drop(&mut self) {
        let Some(next) = self.queue.next(&self.chat) else {
            return;
        };
        // If the receiver was dropped, the unsent turn is dropped here, which passes it to the next delivery.
        let _ = next.send(self.queue.turn(&self.chat));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn order(at: u64) -> Order {
        (at, at.to_string())
    }

    #[tokio::test]
    async fn the_earlier_request_goes_first_in_any_order_of_arrival() {
        let queue = ChatQueues::default();
        let first = queue.enter("c", order(1)).await.unwrap();
        let mut later = Box::pin(queue.enter("c", order(9)));
        assert!(later.as_mut().now_or_never().is_none());
        let mut earlier = Box::pin(queue.enter("c", order(5)));
        assert!(earlier.as_mut().now_or_never().is_none());
        drop(first);
        assert!(later.as_mut().now_or_never().is_none());
        let second = earlier.now_or_never().flatten().unwrap();
        drop(second);
        assert!(later.now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn chats_do_not_wait_for_each_other() {
        let queue = ChatQueues::default();
        let _first = queue.enter("a", order(1)).await.unwrap();
        assert!(
            queue
                .enter("b", order(2))
                .now_or_never()
                .flatten()
                .is_some()
        );
    }

    #[tokio::test]
    async fn a_waiting_delivery_that_was_dropped_is_skipped() {
        let queue = ChatQueues::default();
        let first = queue.enter("c", order(1)).await.unwrap();
        let mut dropped = Box::pin(queue.enter("c", order(2)));
        assert!(dropped.as_mut().now_or_never().is_none());
        let mut last = Box::pin(queue.enter("c", order(3)));
        assert!(last.as_mut().now_or_never().is_none());
        drop(dropped);
        drop(first);
        drop(last.now_or_never().flatten().unwrap());
        assert!(queue.lock().is_empty(), "an empty queue is removed");
    }

    #[tokio::test]
    async fn a_full_queue_accepts_no_delivery() {
        let queue = ChatQueues::default();
        let _first = queue.enter("c", order(1)).await.unwrap();
        let mut waiting = Vec::new();
        for at in 2..2 + MAX_WAITING_DELIVERIES as u64 {
            let mut next = Box::pin(queue.enter("c", order(at)));
            assert!(next.as_mut().now_or_never().is_none());
            waiting.push(next);
        }
        assert!(queue.enter("c", order(99)).await.is_none());
    }
}
