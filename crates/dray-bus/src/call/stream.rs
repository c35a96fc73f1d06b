//! The caller's side of a streaming call: numbers are checked, chunks are passed on and acknowledged.

use std::pin::pin;

use bytes::Bytes;
use dray_proto::StreamingCall;
use dray_proto::contract::call_subject;
use futures_util::future::{Either, select};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::{CallMode, call_with_retries};
use crate::backend::{CONNECTION_LOST, CoreMessage, OutgoingMessage};
use crate::bus_core::Bus;
use crate::error::{CallError, ReplyError, TransportError};
use crate::headers::{self, MessageHeaders};
use crate::meta::Meta;
use crate::subject;

/// The chunks of one call so far.
#[derive(Debug)]
pub(crate) struct ReceivedChunks {
    /// Takes the chunks one by one. A consumer that does not read delays the acknowledgement, and so slows down the
    /// responder.
    consumer: mpsc::Sender<Bytes>,
    count: u64,
}

impl ReceivedChunks {
    pub(super) const fn has_begun(&self) -> bool {
        self.count > 0
    }

    /// Passes a chunk on and acknowledges it. Returns `false` if the consumer has not taken it by `until`.
    pub(super) async fn accept(
        &mut self,
        bus: &Bus,
        reply: &CoreMessage,
        until: Instant,
    ) -> Result<bool, CallError> {
        let Some(number) = chunk_number(reply) else {
            // A heartbeat.
            return Ok(true);
        };
        if number != self.count + 1 {
            return Err(CallError::Reply(ReplyError::Missing));
        }
        // The acknowledgement is published with the caller's permissions and beyond them (`allow_responses`).
        let is_foreign = |subject: &String| !subject::is_inbox(subject);
        if reply.reply.as_ref().is_some_and(is_foreign) {
            return Err(CallError::Reply(ReplyError::Acknowledgement));
        }
        self.count = number;
        let passed_on = timeout_at(until, self.consumer.send(reply.payload.clone()));
        match passed_on.await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Err(CallError::Reply(ReplyError::Unread)),
            Err(_elapsed) => return Ok(false),
        }
        if let Some(subject) = reply.reply.clone() {
            let mut headers = MessageHeaders::new();
            headers.set(headers::CHUNK_HEADER, number.to_string());
            let message = OutgoingMessage {
                subject,
                headers,
                payload: Bytes::new(),
            };
            let sent = bus.inner.backend.publish(None, &message).await;
            sent.map_err(CallError::Transport)?;
        }
        Ok(true)
    }

    /// Checks that every chunk before the final reply has arrived.
    pub(super) fn check_end(&self, reply: &CoreMessage) -> Result<(), CallError> {
        if reply.status == Some(CONNECTION_LOST) && self.has_begun() {
            // The rest may be lost, and another attempt would run the program a second time.
            return Err(CallError::Transport(TransportError::Disconnected));
        }
        let is_fault = reply.headers.get(headers::OUTCOME_HEADER) == Some("fault");
        match chunk_number(reply) {
            // A fault explains why chunks are missing, so it is returned instead of `Missing`.
            Some(sent) if !is_fault && sent != self.count => {
                Err(CallError::Reply(ReplyError::Missing))
            }
            _ => Ok(()),
        }
    }
}

fn chunk_number(reply: &CoreMessage) -> Option<u64> {
    reply.headers.get(headers::CHUNK_HEADER)?.parse().ok()
}

/// Makes a call whose replies before the final one go to `chunks`.
pub(crate) async fn call_streaming<C: StreamingCall>(
    bus: &Bus,
    meta: &Meta,
    request: &C,
    chunks: mpsc::Sender<C::Reply>,
) -> Result<C::Reply, CallError> {
    let (consumer, mut payloads) = mpsc::channel(1);
    let mode = CallMode {
        chunks: Some(ReceivedChunks { consumer, count: 0 }),
        ..CallMode::once()
    };
    let decoding = async {
        while let Some(payload) = payloads.recv().await {
            let chunk = C::Reply::decode(payload)
                .map_err(|error| CallError::Reply(ReplyError::Decode(error)))?;
            let sent = chunks.send(chunk).await;
            sent.map_err(|_closed| CallError::Reply(ReplyError::Unread))?;
        }
        Ok(())
    };
    let until = Instant::now() + meta.deadline.remaining(bus.now_ms());
    let (call, decoding) = (call_with_retries(bus, meta, request, mode), pin!(decoding));
    match select(pin!(call), decoding).await {
        // The rest is awaited after a fault too: the receiver still gets the chunks before it.
        Either::Left((reply, rest)) => match timeout_at(until, rest).await {
            Ok(decoded) => decoded.and(reply),
            Err(_elapsed) => Err(reply
                .err()
                .unwrap_or(CallError::Timeout(call_subject::<C>()))),
        },
        Either::Right((Ok(()), call)) => call.await,
        // The receiver is gone. Dropping the call cancels it.
        Either::Right((Err(error), _call)) => Err(error),
    }
}
