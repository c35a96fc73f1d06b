//! Reads the subscription of one method and admits its requests; separate tasks handle them (messaging-reliability
//! C-5).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use dray_bus::{IncomingRequest, Responder};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::{BoundCall, stopping_fault};
use super::chunk_channel;
use super::metrics::CallTransport;
use super::stream::answer_stream;

/// Time between two heartbeats (C-8).
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Starts a task for every request. After `drain` is cancelled, the function handles the requests that the server had
/// already sent, then returns. Callers can cancel even after that. Tasks that still run when `kill` is cancelled
/// respond that the service is stopping.
pub(crate) async fn read_requests(
    mut responder: Responder,
    call: Arc<BoundCall>,
    handlers: TaskTracker,
    drain: CancellationToken,
    kill: CancellationToken,
) {
    loop {
        let incoming = tokio::select! {
            incoming = responder.next() => incoming,
            () = drain.cancelled() => break,
        };
        match incoming {
            Some(incoming) => spawn_handler(incoming, &call, &handlers, &kill),
            // The connection is closed and will not be opened again.
            None => return,
        }
    }
    // The server stops sending, but requests that it had already sent still arrive.
    responder.drain().await;
    while let Some(incoming) = responder.next().await {
        spawn_handler(incoming, &call, &handlers, &kill);
    }
    // The task is tracked with the handlers and not awaited: the drain ends here, and cancellations are read until the
    // last handler has ended. Each ends at the latest when `kill` is cancelled, and with it this task.
    handlers.spawn(responder.finish());
}

fn spawn_handler(
    incoming: IncomingRequest,
    call: &Arc<BoundCall>,
    handlers: &TaskTracker,
    kill: &CancellationToken,
) {
    let (sender, chunks) = if call.streams {
        let (sender, chunks) = chunk_channel();
        (Some(sender), Some(chunks))
    } else {
        (None, None)
    };
    let admitted = match incoming.meta() {
        Ok(meta) => call.admit(
            CallTransport::Bus,
            meta,
            incoming.payload().clone(),
            incoming.cancelled(),
            sender,
        ),
        Err(fault) => {
            call.refused_request("envelope");
            Err(fault)
        }
    };
    let kill = kill.clone();
    let remaining = incoming
        .meta()
        .map_or(Duration::ZERO, |meta| call.time_left(&meta));
    // Refusals are sent from a task too: sending may wait for the connection, and the reader must not wait.
    handlers.spawn(async move {
        if let Some(chunks) = chunks {
            return answer_stream(incoming, admitted, chunks, remaining, kill).await;
        }
        let outcome = match admitted {
            Ok(admitted) => tokio::select! {
                outcome = admitted => outcome,
                () = kill.cancelled() => Err(stopping_fault()),
                never = send_heartbeats(&incoming) => match never {},
            },
            Err(fault) => Err(fault),
        };
        incoming.answer(outcome.map(EncodedReply)).await;
    });
}

/// Sends heartbeats to a caller that requested them, while its request is queued or handled. Never returns.
async fn send_heartbeats(incoming: &IncomingRequest) -> Infallible {
    if !incoming.is_watched() {
        // A caller that did not request heartbeats would take one for the reply.
        return std::future::pending().await;
    }
    loop {
        incoming.send_heartbeat().await;
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

/// A reply that is already encoded, as a `prost` message.
#[derive(Clone, Debug, Default)]
pub(super) struct EncodedReply(pub(super) Bytes);

impl prost::Message for EncodedReply {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        // This type is never decoded; skipping the field satisfies the trait.
        prost::encoding::skip_field(wire_type, tag, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0 = Bytes::new();
    }
}

#[cfg(test)]
mod tests {
    use dray_bus::{Bus, Meta};
    use dray_proto::v1;
    use dray_types::{Clock, Deadline, TenantId};
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn heartbeats_keep_a_call_open_while_its_handler_runs_for_minutes() {
        let clock = Clock::system();
        let bus = Bus::in_process(clock.clone(), &crate::telemetry::no_meter());
        let deadline = Deadline::after(clock.now_ms(), Duration::from_mins(10));
        let meta = Meta::new(TenantId::default(), deadline);
        let subject = "dray.egress.v1.fetch";
        let mut responder = bus.respond_to(subject, "egress-fetcher").await.unwrap();
        let request = v1::FetchRequest::default();
        let serving = async {
            let incoming = responder.next().await.unwrap();
            tokio::select! {
                never = send_heartbeats(&incoming) => match never {},
                // paused clock
                () = tokio::time::sleep(Duration::from_mins(5)) => {}
            }
            incoming.answer(Ok(v1::FetchReply::default())).await;
            assert!(
                responder.next().now_or_never().is_none(),
                "the request was sent once"
            );
        };
        let (answered, ()) = tokio::join!(bus.call_watched(&meta, &request), serving);
        assert_eq!(answered.unwrap(), v1::FetchReply::default());
    }
}
