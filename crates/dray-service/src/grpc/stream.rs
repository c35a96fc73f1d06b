//! Calls with a stream of replies over gRPC.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use dray_types::TenantId;
use futures_util::{Stream, stream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{GrpcEndpoint, read_call, status_of};
use crate::router::{BoundCall, CallTransport, chunk_channel, stopping_fault};

type ReplyStream = Pin<Box<dyn Stream<Item = Result<Bytes, tonic::Status>> + Send>>;

/// The replies of one call, as the connection reads them.
struct OpenCall {
    chunks: mpsc::Receiver<Bytes>,
    outcome: oneshot::Receiver<Result<Bytes, tonic::Status>>,
    /// Cancels the handler when the caller disconnects.
    _cancel: DropGuard,
}

/// Starts the handler and returns its replies. The flow control of HTTP/2 slows the handler down to the speed of its
/// caller.
pub(super) fn answer_stream(
    call: &Arc<BoundCall>,
    endpoint: &GrpcEndpoint,
    known_tenant: Option<TenantId>,
    request: tonic::Request<Bytes>,
) -> Result<tonic::Response<ReplyStream>, tonic::Status> {
    let (meta, payload) = read_call(call, endpoint, known_tenant, request)?;
    let (sender, chunks) = chunk_channel();
    let cancel = CancellationToken::new();
    let admitted = call
        .admit(
            CallTransport::Grpc,
            meta,
            payload,
            cancel.clone(),
            Some(sender),
        )
        .map_err(|fault| status_of(&fault))?;
    let (result, outcome) = oneshot::channel();
    let kill = endpoint.kill.clone();
    // The handler runs in a separate task: a caller that does not read must not stop the clock of the handler, whose
    // deadline ends it.
    endpoint.handlers.spawn(async move {
        let outcome = tokio::select! {
            outcome = admitted => outcome,
            // The grace of a stop has run out; the caller still gets a response (C-4).
            () = kill.cancelled() => Err(stopping_fault()),
        };
        // A caller that has disconnected waits for no outcome.
        drop(result.send(outcome.map_err(|fault| status_of(&fault))));
    });
    let open = OpenCall {
        chunks,
        outcome,
        _cancel: cancel.drop_guard(),
    };
    let replies = stream::unfold(Some(open), async |open| {
        let mut open = open?;
        // The chunks end when the handler ends, which drops the sender.
        if let Some(chunk) = open.chunks.recv().await {
            return Some((Ok(chunk), Some(open)));
        }
        let outcome = (&mut open.outcome).await;
        let outcome = outcome.unwrap_or_else(|_lost| Err(status_of(&stopping_fault())));
        Some((outcome, None))
    });
    Ok(tonic::Response::new(Box::pin(replies)))
}
