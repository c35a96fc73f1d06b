//! Reads the subscription of one call and does nothing but admit (messaging-reliability C-5).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use dray_bus::{Incoming, Responder};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::{Answering, stopping};
use super::metrics::Way;

/// Between two signs of life (C-8).
const SIGN: Duration = Duration::from_secs(5);

/// Hands every request to a task of its own until `drain`, then what was sent before, then ends. Tasks that still
/// run when `kill` is cancelled answer that the service is stopping.
pub(crate) async fn read(
    mut responder: Responder,
    call: Arc<Answering>,
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
            Some(incoming) => take(incoming, &call, &handlers, &kill),
            None => return,
        }
    }
    responder.drain().await;
    while let Some(incoming) = responder.next().await {
        take(incoming, &call, &handlers, &kill);
    }
}

fn take(
    incoming: Incoming,
    call: &Arc<Answering>,
    handlers: &TaskTracker,
    kill: &CancellationToken,
) {
    let admitted = match incoming.meta() {
        Ok(meta) => call.admit(
            Way::Bus,
            meta,
            incoming.payload().clone(),
            incoming.cancelled(),
        ),
        Err(fault) => {
            call.refused_envelope();
            Err(fault)
        }
    };
    let kill = kill.clone();
    // Even a refusal is sent from a task: sending may wait for the connection, and reading must not.
    handlers.spawn(async move {
        let outcome = match admitted {
            Ok(admitted) => tokio::select! {
                outcome = admitted => outcome,
                () = kill.cancelled() => Err(stopping()),
                never = signs_of_life(&incoming) => match never {},
            },
            Err(fault) => Err(fault),
        };
        incoming.answer(outcome.map(Encoded)).await;
    });
}

/// Tells a caller that watches, again and again, that its request is in hand: queued or at work.
async fn signs_of_life(incoming: &Incoming) -> Infallible {
    if !incoming.is_watched() {
        return std::future::pending().await;
    }
    loop {
        incoming.alive().await;
        tokio::time::sleep(SIGN).await;
    }
}

/// A reply that is encoded already.
#[derive(Clone, Debug, Default)]
struct Encoded(Bytes);

impl prost::Message for Encoded {
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
        // Never decoded; skipping keeps to the contract of the trait.
        prost::encoding::skip_field(wire_type, tag, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0 = Bytes::new();
    }
}
