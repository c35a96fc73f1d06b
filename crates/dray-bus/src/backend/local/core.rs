//! Core messages in process: subjects, queue groups, inboxes.

use std::sync::{Arc, Weak};

use rand::seq::IndexedRandom;
use tokio::sync::mpsc;

use super::super::{Message, NO_RESPONDERS, Outgoing};
use super::{Local, World};
use crate::headers::Headers;
use crate::subject;

/// Messages that may wait in one subscription, as in the client's default.
const CAPACITY: usize = 65_536;

/// Who listens on what.
#[derive(Debug, Default)]
pub(super) struct Routes {
    listeners: Vec<Listener>,
    next_id: u64,
    closed: bool,
}

#[derive(Debug)]
struct Listener {
    id: u64,
    filter: String,
    group: Option<String>,
    sender: mpsc::Sender<Message>,
}

impl Routes {
    /// Hands the message to every plain listener and to one of each group. With a reply address and no
    /// listener, the sender is notified.
    pub(super) fn deliver(&mut self, reply: Option<&str>, message: &Outgoing, captured: bool) {
        let Outgoing {
            subject,
            headers,
            payload,
        } = message;
        let message = Message {
            subject: subject.clone(),
            reply: reply.map(str::to_owned),
            headers: headers.clone(),
            payload: payload.clone(),
            status: None,
        };
        let chosen = self.chosen(&message.subject);
        if chosen.is_empty()
            && !captured
            && let Some(reply) = reply
        {
            let notice = Message {
                subject: reply.to_owned(),
                reply: None,
                headers: Headers::new(),
                payload: bytes::Bytes::new(),
                status: Some(NO_RESPONDERS),
            };
            for listener in self.chosen(reply) {
                listener.offer(notice.clone());
            }
            return;
        }
        for listener in chosen {
            listener.offer(message.clone());
        }
    }

    fn chosen(&self, subject: &str) -> Vec<&Listener> {
        let mut plain = Vec::new();
        let mut groups: Vec<(&str, Vec<&Listener>)> = Vec::new();
        for listener in &self.listeners {
            if !subject::matches(&listener.filter, subject) {
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

    fn listen(&mut self, filter: &str, group: Option<&str>) -> (u64, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        self.next_id += 1;
        if !self.closed {
            self.listeners.push(Listener {
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

    /// Ends every subscription; what was delivered can still be read.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.listeners.clear();
    }
}

impl Listener {
    fn offer(&self, message: Message) {
        if self.sender.try_send(message).is_err() {
            tracing::error!(subject = %self.filter, "a subscription is full; the message is dropped");
        }
    }
}

/// A listener's end.
#[derive(Debug)]
pub(crate) struct Subscription {
    world: Weak<World>,
    id: u64,
    receiver: mpsc::Receiver<Message>,
}

impl Subscription {
    pub(crate) async fn next(&mut self) -> Option<Message> {
        self.receiver.recv().await
    }

    #[expect(clippy::unused_async, reason = "same shape as the other backend")]
    pub(crate) async fn drain(&mut self) {
        self.leave();
    }

    fn leave(&self) {
        if let Some(world) = self.world.upgrade() {
            world.lock().routes.leave(self.id);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An address for replies, gone when dropped.
#[derive(Debug)]
pub(crate) struct Inbox {
    address: String,
    subscription: Subscription,
}

impl Inbox {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn next(&mut self) -> Option<Message> {
        self.subscription.next().await
    }
}

impl Local {
    pub(crate) fn subscribe(&self, subject: &str, group: Option<&str>) -> Subscription {
        let (id, receiver) = self.world.lock().routes.listen(subject, group);
        Subscription {
            world: Arc::downgrade(&self.world),
            id,
            receiver,
        }
    }

    pub(crate) fn inbox(&self) -> Inbox {
        let address = format!("_INBOX.{:032x}", rand::random::<u128>());
        let subscription = self.subscribe(&address, None);
        Inbox {
            address,
            subscription,
        }
    }
}
