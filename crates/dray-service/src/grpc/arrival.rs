//! The time in which the message of a request must arrive.

use std::pin::pin;
use std::time::Duration;

use dray_types::{Fault, FaultCode};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

use super::status::status_of;
use crate::router::BoundCall;

/// Waits for the response, which may take any time once `arrived` is cancelled: then the whole message is here. If it is
/// not within `limit`, the caller gets a fault, and the request ends. Otherwise each open request could hold its memory
/// for as long as its connection lives.
pub(super) async fn answer_arrived(
    call: &BoundCall,
    limit: Duration,
    arrived: &CancellationToken,
    answer: impl Future<Output = http::Response<Body>>,
) -> http::Response<Body> {
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        response = &mut answer => return response,
        () = tokio::time::sleep(limit) => {}
    }
    if arrived.is_cancelled() {
        return answer.await;
    }
    call.refused_request("incomplete");
    let fault = Fault::new(
        FaultCode::Timeout,
        "The message of the request did not arrive in time.",
    )
    .detail("message_incomplete")
    .advice("Send the whole message immediately; put large content into a stored file.");
    status_of(&fault).into_http()
}
