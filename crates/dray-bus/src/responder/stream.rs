//! The replies of a streaming call: numbered and acknowledged, so that none is lost unnoticed and a slow caller slows
//! the responder down.
//!
//! Core NATS drops what a full inbox cannot take. Therefore at most [`MAX_UNACKNOWLEDGED`] replies are in transit. The
//! caller acknowledges each at the reply address of the message. When the process of the caller has ended, its inbox
//! has no listener, and the server reports that.

use bytes::Bytes;
use dray_types::Fault;

use super::{IncomingRequest, REPLY_WAIT, outcome_reply, send_reply};
use crate::backend::{CONNECTION_LOST, Inbox, NO_RESPONDERS, OutgoingMessage};
use crate::headers::{self, MessageHeaders};

/// Most replies that the caller has not acknowledged. An inbox can hold many times as many.
const MAX_UNACKNOWLEDGED: u64 = 16;

/// The caller of a stream no longer listens, or replies were lost together with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the caller of the stream is gone")]
pub struct CallerGone;

/// The replies to one request of a streaming call. If it is dropped before [`ReplyStream::finish`], the caller gets an
/// internal fault.
#[derive(Debug)]
pub struct ReplyStream {
    request: IncomingRequest,
    acknowledgements: Inbox,
    sent: u64,
    acknowledged: u64,
}

impl ReplyStream {
    pub(super) fn new(request: IncomingRequest) -> Self {
        let acknowledgements = request.bus.inner.backend.inbox();
        Self {
            request,
            acknowledgements,
            sent: 0,
            acknowledged: 0,
        }
    }

    /// Sends the next reply, which is not the last one. Waits while the caller has too many to read. Not cancellation
    /// safe: a dropped future may or may not have sent it.
    ///
    /// # Errors
    /// The caller has disconnected.
    pub async fn send(&mut self, reply: Bytes) -> Result<(), CallerGone> {
        while self.sent - self.acknowledged >= MAX_UNACKNOWLEDGED {
            self.read_acknowledgement().await?;
        }
        self.sent += 1;
        let mut headers = progress_headers();
        headers.set(headers::CHUNK_HEADER, self.sent.to_string());
        self.publish(headers, reply).await
    }

    /// Sends a heartbeat, unless replies are in transit, which serve as heartbeats. An inbox that is not read must not
    /// be filled with heartbeats (C-8).
    ///
    /// # Errors
    /// The caller has disconnected.
    pub async fn send_heartbeat(&self) -> Result<(), CallerGone> {
        if self.acknowledged < self.sent {
            return Ok(());
        }
        self.publish(progress_headers(), Bytes::new()).await
    }

    /// Returns when the caller has disconnected. Cancellation safe.
    pub async fn caller_gone(&mut self) {
        while self.read_acknowledgement().await.is_ok() {}
    }

    /// Sends the final reply with the number of all before it.
    pub async fn finish<M: prost::Message>(mut self, result: Result<M, Fault>) {
        let mut message = outcome_reply(result);
        message
            .headers
            .set(headers::CHUNK_HEADER, self.sent.to_string());
        // The reply address is taken, so that dropping the request afterwards sends nothing.
        if let Some(reply) = self.request.reply.take() {
            send_reply(&self.request.bus, &reply, message).await;
        }
    }

    async fn publish(&self, headers: MessageHeaders, payload: Bytes) -> Result<(), CallerGone> {
        let Some(subject) = self.request.reply.clone() else {
            return Err(CallerGone);
        };
        let message = OutgoingMessage {
            subject,
            headers,
            payload,
        };
        let backend = &self.request.bus.inner.backend;
        let sent = backend.publish(Some(self.acknowledgements.address()), &message);
        match tokio::time::timeout(REPLY_WAIT, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a reply of a stream was not sent"
                );
                Err(CallerGone)
            }
            Err(_elapsed) => Err(CallerGone),
        }
    }

    async fn read_acknowledgement(&mut self) -> Result<(), CallerGone> {
        let message = self.acknowledgements.next().await.ok_or(CallerGone)?;
        if matches!(message.status, Some(NO_RESPONDERS | CONNECTION_LOST)) {
            return Err(CallerGone);
        }
        let number = message.headers.get(headers::CHUNK_HEADER);
        let number = number.and_then(|number| number.parse::<u64>().ok());
        // A caller cannot acknowledge what was not sent; otherwise any number of replies could be in transit.
        let number = number.unwrap_or_default().min(self.sent);
        self.acknowledged = self.acknowledged.max(number);
        Ok(())
    }
}

fn progress_headers() -> MessageHeaders {
    [
        (headers::PROGRESS_HEADER, "1"),
        (headers::CONTENT_TYPE, headers::PROTOBUF_CONTENT_TYPE),
    ]
    .into_iter()
    .collect()
}
