//! Bodies of requests, within their limits.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use dray_agent::failure::RequestFailure;
use dray_types::ByteSize;
use futures_util::StreamExt as _;
use serde_json::Value;
use serde_json::error::Category;

/// How much of a body that is too long is still read, as a multiple of the limit: a client that is still writing would
/// not read the response.
const DRAIN_FACTOR: u64 = 4;

/// Reads a JSON body of at most `limit` bytes within `time`.
pub(super) async fn read_json(
    headers: &HeaderMap,
    body: Body,
    limit: ByteSize,
    time: Duration,
) -> Result<Value, RequestFailure> {
    // The announced length is only a hint: a chunked body declares no length, so the bytes are counted either way.
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    let read = read_body(body, announced, limit.as_u64());
    let bytes = match tokio::time::timeout(time, read).await {
        Ok(Ok(Some(bytes))) => bytes,
        Ok(Ok(None)) => return Err(too_large(limit)),
        Ok(Err(BodyError)) => return Err(RequestFailure::new(400, "The request body broke off")),
        Err(_elapsed) => return Err(RequestFailure::new(408, "The request body took too long")),
    };
    serde_json::from_slice(&bytes).map_err(|error| not_json("The request body", &error))
}

/// The error for text that is not JSON, with the line and column of the fault.
pub(super) fn not_json(description: &str, error: &serde_json::Error) -> RequestFailure {
    let (line, column) = (error.line(), error.column());
    let reason = match error.classify() {
        Category::Eof => "it ends too early,",
        _ => "it cannot be read",
    };
    RequestFailure::new(
        400,
        format!("{description} isn't valid JSON: {reason} at line {line} column {column}"),
    )
}

fn too_large(limit: ByteSize) -> RequestFailure {
    RequestFailure::new(413, format!("The request body is larger than {limit}")).display(
        "The request payload is too large. Please reduce the size of your message or attachments.",
    )
}

/// The connection ended inside the body.
struct BodyError;

/// The body; `None` when it is longer than `limit`.
async fn read_body(
    body: Body,
    announced: Option<u64>,
    limit: u64,
) -> Result<Option<Vec<u8>>, BodyError> {
    let mut fits = announced.is_none_or(|announced| announced <= limit);
    let mut received_bytes = 0_u64;
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            // A client that stops sending because the body is too long still gets status 413.
            return if fits { Err(BodyError) } else { Ok(None) };
        };
        received_bytes = received_bytes.saturating_add(chunk.len() as u64);
        fits &= received_bytes <= limit;
        if fits {
            bytes.extend_from_slice(&chunk);
        } else {
            // Frees what was read. The rest is counted and dropped.
            bytes = Vec::new();
            if received_bytes > limit.saturating_mul(DRAIN_FACTOR) {
                break;
            }
        }
    }
    Ok(fits.then_some(bytes))
}
