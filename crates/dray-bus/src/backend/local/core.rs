//! Core messages in process: subjects, queue groups, inboxes.

use std::sync::{Arc, Weak};

use rand::seq::IndexedRandom;
use tokio::sync::mpsc;

use super::super::{CoreMessage, NO_RESPONDERS, OutgoingMessage};
use super::{LocalBackend, LocalServer};
use crate::headers::MessageHeaders;
use crate::subject;

/// Messages that may wait in one subscription, as in the client's default.
const SUBSCRIPTION_CAPACITY: usize = 65_536;

/// All subscriptions with their subject filters and queue groups.
#[derive(Debug, Default)]
pub(super) struct SubjectRoutes {
    listeners: Vec<SubjectListener>,
    next_id: u64,
    closed: bool,
}

#[derive(Debug)]
struct SubjectListener {
    id: u64,
    filter: String,
    group: Option<String>,
    sender: mpsc::Sender<CoreMessage>,
}

impl SubjectRoutes {
    /// Hands the message to every plain listener and to one of each group. If the message has a reply address and no
    /// listener, that address gets a 503 notice.
    pub(super) fn deliver(
        &mut self,
        reply: Option<&str>,
        message: &OutgoingMessage,
        captured: bool,
    ) {
        let OutgoingMessage {
            subject,
            headers,
            payload,
        } = message;
        let message = CoreMessage {
            subject: subject.clone(),
            reply: reply.map(str::to_owned),
            headers: headers.clone(),
            payload: payload.clone(),
            status: None,
        };
        let chosen = self.choose_listeners(&message.subject);
        // The server's 503 notice. Only a request has a reply address to send it to.
        if chosen.is_empty()
            && !captured
            && let Some(reply) = reply
        {
            let notice = CoreMessage {
                subject: reply.to_owned(),
                reply: None,
                headers: MessageHeaders::new(),
                payload: bytes::Bytes::new(),
                status: Some(NO_RESPONDERS),
            };
            for listener in self.choose_listeners(reply) {
                listener.offer(notice.clone());
            }
            return;
        }
        for listener in chosen {
            listener.offer(message.clone());
        }
    }

    fn choose_listeners(&self, subject: &str) -> Vec<&SubjectListener> {
        let mut plain = Vec::new();
        let mut groups: Vec<(&str, Vec<&SubjectListener>)> = Vec::new();
        for listener in &self.listeners {
            if !subject::matches_filter(&listener.filter, subject) {
                continue;
            }
            match &listener.group {
                None => plain.push(listener),
                Some(group) => match groups.iter_mut().find(|(known, _)| known == group) {
                    Some((_, members)) => members.push(listener),
                    None => groups.push((group, vec![listener])),
                },
            }
        }
        let mut random = rand::rng();
        plain.extend(
            groups
                .iter()
                .filter_map(|(_, members)| members.choose(&mut random).copied()),
        );
        plain
    }

    fn listen(&mut self, filter: &str, group: Option<&str>) -> (u64, mpsc::Receiver<CoreMessage>) {
        let (sender, receiver) = mpsc::channel(SUBSCRIPTION_CAPACITY);
        self.next_id += 1;
        // After a close the receiver ends immediately, because its sender is dropped with this call.
        if !self.closed {
            self.listeners.push(SubjectListener {
                id: self.next_id,
                filter: filter.to_owned(),
                group: group.map(str::to_owned),
                sender,
            });
        }
        (self.next_id, receiver)
    }

    fn leave(&mut self, id: u64) {
        self.listeners.retain(|listener| listener.id != id);
    }

    /// Ends every subscription; delivered messages can still be read.
    pub(super) fn close(&mut self) {
        self.closed = true;
        // Dropping the senders ends the receivers after their buffered messages, as after a drain.
        self.listeners.clear();
    }
}

impl SubjectListener {
    fn offer(&self, message: CoreMessage) {
        // Nothing is awaited under the lock of the server, so a full subscription loses the message. A client of NATS
        // drops messages of a full subscription in the same way.
        if self.sender.try_send(message).is_err() {
            tracing::error!(subject = %self.filter, "a subscription is full; the message is dropped");
        }
    }
}

/// The receiving end of a listener; dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct LocalSubscription {
    // Weak: a forgotten subscription does not keep the server alive.
    server: Weak<LocalServer>,
    id: u64,
    receiver: mpsc::Receiver<CoreMessage>,
}

impl LocalSubscription {
    pub(crate) async fn next(&mut self) -> Option<CoreMessage> {
        self.receiver.recv().await
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn drain(&mut self) {
        self.leave();
    }

    fn leave(&self) {
        if let Some(server) = self.server.upgrade() {
            server.lock().routes.leave(self.id);
        }
    }
}

impl Drop for LocalSubscription {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An address for replies; dropping it removes the subscription.
#[derive(Debug)]
pub(crate) struct LocalInbox {
    address: String,
    subscription: LocalSubscription,
}

impl LocalInbox {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn next(&mut self) -> Option<CoreMessage> {
        self.subscription.next().await
    }
}

impl LocalBackend {
    pub(crate) fn subscribe(&self, subject: &str, group: Option<&str>) -> LocalSubscription {
        let (id, receiver) = self.server.lock().routes.listen(subject, group);
        LocalSubscription {
            server: Arc::downgrade(&self.server),
            id,
            receiver,
        }
    }

    pub(crate) fn inbox(&self) -> LocalInbox {
        let address = format!("_INBOX.{:032x}", rand::random::<u128>());
        let subscription = self.subscribe(&address, None);
        LocalInbox {
            address,
            subscription,
        }
    }
}
