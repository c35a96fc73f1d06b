//! One request to every replica of a service, and all replies that arrive (scatter-gather).

use std::time::Duration;

use dray_proto::contract::{call_subject, schema_name};
use dray_proto::{Call, MAX_MESSAGE_BYTES};
use prost::Message as _;
use tokio::time::{Instant, timeout_at};

use super::{AttemptResult, read_reply};
use crate::backend::{CoreMessage, OutgoingMessage};
use crate::bus_core::Bus;
use crate::error::{CallError, ReplyError, TransportError};
use crate::headers;
use crate::meta::Meta;

/// Most replies that are collected: more replicas of one service than any deployment has.
const MAX_REPLIES: usize = 1024;

/// See [`Bus::call_each`].
pub(crate) async fn call_each<C: Call>(
    bus: &Bus,
    meta: &Meta,
    request: &C,
    quiet_time: Duration,
) -> Result<Vec<Result<C::Reply, CallError>>, CallError> {
    let message = OutgoingMessage {
        subject: call_subject::<C>(),
        headers: meta.headers(&schema_name::<C>()),
        payload: request.encode_to_vec().into(),
    };
    let size = message.size();
    if size > MAX_MESSAGE_BYTES {
        return Err(CallError::TooLarge {
            size,
            limit: MAX_MESSAGE_BYTES,
        });
    }
    let until = Instant::now() + meta.deadline.remaining(bus.now_ms());
    let mut inbox = bus.inner.backend.inbox();
    let address = inbox.address().to_owned();
    let subject = message.subject.clone();
    let sent = bus.inner.backend.publish(Some(&address), &message);
    match timeout_at(until, sent).await {
        Ok(sent) => sent.map_err(CallError::Transport)?,
        Err(_elapsed) => return Err(CallError::Timeout(subject)),
    }
    let refused = bus.inner.health.refusal_of(&message.subject);
    tokio::pin!(refused);
    let mut replies = Vec::new();
    // The first reply may take until the deadline, and each further one only `quiet_time`.
    let mut wait_until = until;
    while replies.len() < MAX_REPLIES {
        let reply = tokio::select! {
            reply = inbox.next() => reply.ok_or(CallError::Transport(TransportError::Disconnected))?,
            () = &mut refused => return Err(CallError::Transport(TransportError::Denied(subject))),
            () = tokio::time::sleep_until(wait_until) => break,
        };
        // Heartbeats are not requested; a service that sends some nevertheless is not finished.
        if reply.headers.get(headers::PROGRESS_HEADER).is_some() {
            continue;
        }
        match decode::<C>(reply, &subject) {
            // The server says that no replica listens, or the connection was lost: no reply follows.
            Err(CallError::NoResponder(subject)) if replies.is_empty() => {
                return Err(CallError::NoResponder(subject));
            }
            Err(CallError::NoResponder(_)) => break,
            reply => replies.push(reply),
        }
        wait_until = until.min(Instant::now() + quiet_time);
    }
    if replies.is_empty() {
        return Err(CallError::Timeout(subject));
    }
    Ok(replies)
}

fn decode<C: Call>(reply: CoreMessage, subject: &str) -> Result<C::Reply, CallError> {
    match read_reply(reply).map_err(CallError::Reply)? {
        AttemptResult::Payload(payload) => {
            C::Reply::decode(payload).map_err(|error| CallError::Reply(ReplyError::Decode(error)))
        }
        AttemptResult::Fault(fault) => Err(CallError::Fault(fault)),
        AttemptResult::NoResponders | AttemptResult::Silence => {
            Err(CallError::NoResponder(subject.to_owned()))
        }
    }
}
