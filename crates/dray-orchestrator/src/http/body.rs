//! Bodies of requests, within their limits.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use dray_agent::failure::RequestFailure;
use dray_http_server::BytePermit;
use dray_types::ByteSize;
use dray_types::json_values::JsonValueCounter;
use futures_util::StreamExt as _;
use serde_json::Value;
use serde_json::error::Category;

use super::permit::memory_failure;
use super::routes::HttpSurface;

/// How much of a body that is too long is still read, as a multiple of the limit: a client that is still writing would
/// not read the response.
const DRAIN_FACTOR: u64 = 4;

/// Memory of one value of a body beside its text: a member of an object with a key, in lists that grow by doubling.
const VALUE_BYTES: u64 = 256;
/// Memory for the values of a body before they are counted, as a multiple of its text.
const EXPECTED_VALUES_FACTOR: u64 = 16;
/// Least memory for them.
const MIN_EXPECTED_VALUES_BYTES: u64 = 16 << 10;
/// Most memory for them. Larger bodies are mostly files, which are long texts.
const MAX_EXPECTED_VALUES_BYTES: u64 = 1 << 20;

impl HttpSurface {
    /// Reads a JSON body of at most `limit` bytes. Returns its memory too, which is to be held as long as the value.
    ///
    /// # Errors
    ///
    /// 413 for a body that is too large, 503 when other requests use the memory for too long, and those of a body that
    /// is slow, broken or not JSON.
    pub(super) async fn read_json(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: ByteSize,
    ) -> Result<(Value, BytePermit), RequestFailure> {
        let options = &self.options;
        // The announced length is only a hint: a chunked body declares no length, so the bytes are counted either way.
        let announced: Option<u64> = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        // The memory is taken before the first byte is read: bodies that hold a part of theirs and wait for more would
        // block each other. A body that is too long is not kept.
        let expected = match announced {
            Some(bytes) if bytes > limit.as_u64() => 0,
            announced => with_expected_values(announced.unwrap_or(limit.as_u64())),
        };
        let memory = self.body_memory.acquire(expected, options.chat_wait).await;
        let Some(mut memory) = memory else {
            // The body is counted and dropped, because a client that is still writing would not read the response.
            let rest = read_body(body, Some(u64::MAX), limit.as_u64());
            drop(tokio::time::timeout(options.body_timeout, rest).await);
            return Err(memory_failure());
        };
        let read = read_body(body, announced, limit.as_u64());
        let bytes = match tokio::time::timeout(options.body_timeout, read).await {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => {
                return Err(too_large(format!(
                    "The request body is larger than {limit}"
                )));
            }
            Ok(Err(BodyError)) => {
                return Err(RequestFailure::new(400, "The request body broke off"));
            }
            Err(_elapsed) => {
                return Err(RequestFailure::new(408, "The request body took too long"));
            }
        };
        let values = JsonValueCounter::default().add(&bytes) as u64;
        let parsed_bytes = bytes.len() as u64 + values * VALUE_BYTES;
        if parsed_bytes > self.body_memory.max_bytes() {
            return Err(too_large(format!(
                "The request body has too many JSON values ({values})"
            )));
        }
        if !memory.resize(parsed_bytes) {
            return Err(memory_failure());
        }
        let value = serde_json::from_slice(&bytes);
        let value = value.map_err(|error| not_json("The request body", &error))?;
        Ok((value, memory))
    }
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

fn too_large(message: String) -> RequestFailure {
    RequestFailure::new(413, message).display(
        "The request payload is too large. Please reduce the size of your message or attachments.",
    )
}

/// The memory for a text of so many bytes and for the values that it usually has. Without these, most bodies would need
/// more once they are read, and be refused while others wait for all that is free.
fn with_expected_values(bytes: u64) -> u64 {
    let of_values = bytes.saturating_mul(EXPECTED_VALUES_FACTOR);
    bytes + of_values.clamp(MIN_EXPECTED_VALUES_BYTES, MAX_EXPECTED_VALUES_BYTES)
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
