//! Passes the replies of a streaming call, except the last one, from the handler to the caller.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::{CallerGone, IncomingRequest, ReplyStream};
use dray_proto::contract::StreamingCall;
use dray_types::Fault;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout_at};
use tokio_util::sync::CancellationToken;

use super::answer::stopping_fault;
use super::flight::CallOutcome;
use super::reader::{EncodedReply, HEARTBEAT_INTERVAL};
use super::{ErasedHandler, Request, undecodable_fault};

/// Replies that wait for the transport. More only delay the moment at which a slow caller is noticed.
const MAX_WAITING_CHUNKS: usize = 4;

/// Longest delay of a fault for replies that were sent before it. Shorter than the time that the
/// deadline reserves for replies.
const FAULT_DELAY: Duration = Duration::from_millis(150);

/// Sender of encoded replies to the transport.
pub(crate) type ChunkSender = mpsc::Sender<Bytes>;

/// A channel from a handler to its transport.
pub(crate) fn chunk_channel() -> (ChunkSender, mpsc::Receiver<Bytes>) {
    mpsc::channel(MAX_WAITING_CHUNKS)
}

/// Sends the replies of a streaming call before its last one.
#[derive(Debug)]
pub struct ReplyChunks<M> {
    sender: ChunkSender,
    message: PhantomData<fn(M)>,
}

impl<M: Message> ReplyChunks<M> {
    /// Replies that a test reads, encoded.
    pub fn channel() -> (Self, mpsc::Receiver<Bytes>) {
        let (sender, receiver) = chunk_channel();
        (Self::new(sender), receiver)
    }

    const fn new(sender: ChunkSender) -> Self {
        Self {
            sender,
            message: PhantomData,
        }
    }

    /// Sends a reply. Its size is not checked here: with its headers it must be at most
    /// [`dray_proto::MAX_MESSAGE_BYTES`], because a server may refuse more. Waits while the caller is slower than the
    /// handler. A dropped future has not sent it.
    ///
    /// # Errors
    ///
    /// The caller has disconnected; the handler is about to be cancelled.
    pub async fn send(&self, reply: &M) -> Result<(), CallerGone> {
        let sent = self.sender.send(reply.encode_to_vec().into()).await;
        sent.map_err(|_closed| CallerGone)
    }
}

pub(super) fn erase_streaming_handler<S, C, H, F, E>(handler: H) -> Arc<ErasedHandler<S>>
where
    S: Send + Sync + 'static,
    C: StreamingCall,
    H: Fn(Arc<S>, Request<C>, ReplyChunks<C::Reply>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<C::Reply, E>> + Send + 'static,
    E: Into<Fault> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |service, meta, payload, chunks| {
        // A clone for each request, because a request outlives this call.
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            // Both transports give a sender to such a call.
            let chunks = ReplyChunks::new(chunks.ok_or_else(Fault::internal)?);
            let body = C::decode(payload).map_err(|_| undecodable_fault())?;
            let reply = handler(service, Request::new(meta, body), chunks).await;
            reply
                .map(|reply| reply.encode_to_vec().into())
                .map_err(Into::into)
        })
    })
}

/// Handles a call over the bus with a stream of replies. The handler is dropped when its caller has disconnected.
/// `remaining` is the time until the deadline of the call.
pub(super) async fn answer_stream(
    incoming: IncomingRequest,
    admitted: Result<impl Future<Output = CallOutcome>, Fault>,
    mut chunks: mpsc::Receiver<Bytes>,
    remaining: Duration,
    kill: CancellationToken,
) {
    let until = Instant::now() + remaining;
    let cancelled = incoming.cancelled();
    let mut replies = incoming.into_stream();
    let outcome = match admitted {
        Ok(admitted) => {
            let ended = CancellationToken::new();
            // One future for all chunks: if it were dropped between two chunks, it would lose the chunk that it holds.
            let mut forwarding = pin!(forward_chunks(&mut replies, &mut chunks, &ended));
            let outcome = tokio::select! {
                outcome = admitted => outcome,
                () = kill.cancelled() => Err(stopping_fault()),
                // No reply can reach the caller now. Dropping the handler cancels its work.
                _gone = &mut forwarding => return,
            };
            ended.cancel();
            // Replies that the handler sent before a fault are still delivered, if the caller reads them immediately.
            let until = match outcome {
                Ok(_) => until,
                Err(_) => until.min(Instant::now() + FAULT_DELAY),
            };
            let sent = tokio::select! {
                sent = timeout_at(until, forwarding) => sent.unwrap_or(Err(CallerGone)),
                () = cancelled.cancelled() => Err(CallerGone),
                () = kill.cancelled(), if outcome.is_ok() => Err(CallerGone),
            };
            if sent.is_err() && outcome.is_ok() {
                return;
            }
            outcome
        }
        Err(fault) => Err(fault),
    };
    replies.finish(outcome.map(EncodedReply)).await;
}

/// Sends chunks, and heartbeats between them, until the handler has ended and all its chunks are sent.
async fn forward_chunks(
    replies: &mut ReplyStream,
    chunks: &mut mpsc::Receiver<Bytes>,
    ended: &CancellationToken,
) -> Result<(), CallerGone> {
    let mut heartbeat = interval(HEARTBEAT_INTERVAL);
    let mut is_open = true;
    loop {
        // The branches only receive, so that none loses anything when another one comes first.
        tokio::select! {
            chunk = chunks.recv(), if is_open => match chunk {
                Some(chunk) => replies.send(chunk).await?,
                None => is_open = false,
            },
            () = ended.cancelled(), if !is_open => return Ok(()),
            _ = heartbeat.tick() => replies.send_heartbeat().await?,
            () = replies.caller_gone() => return Err(CallerGone),
        }
    }
}
