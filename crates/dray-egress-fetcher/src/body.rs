//! Receives a response body: counts, decodes and passes it on, chunk by chunk (egress-security 13).
//!
//! Every bound is checked at every chunk, not at the end (B-1, I-7). The [`ByteSink`] decides where the bytes go, and
//! computes their digest.

use std::time::Duration;

use bytes::Bytes;
use dray_guard::Code;
use tokio::time::Instant;

use crate::budget::TimeBudget;
use crate::coding::BodyDecoder;
use crate::error::{FetchError, FetchPhase};
use crate::head::{BodyFraming, BodyPlan};
use crate::hop::WireBody;
use crate::sink::ByteSink;

/// Decoded bytes that are kept to recognise the type of a file.
const SNIFF_BYTES: usize = 4096;
/// Size in bytes of the buffer for one chunk of decoded output.
const CHUNK_BYTES: usize = 64 * 1024;

/// The bounds of one body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Most bytes over the wire, and most bytes stored (B-2).
    pub limit: u64,
    /// Longest wait for the next chunk (B-8).
    pub idle: Duration,
    /// The slow-peer limit: least bytes per second over the whole body, once the grace is over; 0 for none (B-8).
    pub floor: u64,
    /// Time before the floor counts (B-8).
    pub grace: Duration,
}

/// The bytes that were received, even if the body did not reach its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyCounts {
    /// Body bytes that came over the wire, before decoding.
    pub wire: u64,
    /// Bytes that the sink took, after decoding.
    pub stored: u64,
}

/// The transfer of one body, over one or more connections: a resumed body continues the same transfer.
pub struct BodyTransfer {
    limit: u64,
    slow_peer: SlowPeerWatch,
    /// The first decoded bytes, by which the media type is recognised.
    first_bytes: Vec<u8>,
    decoder: Option<(BodyDecoder, Vec<u8>)>,
    /// Total body bytes over all connections, if a response names the total.
    expected_bytes: Option<u64>,
}

impl std::fmt::Debug for BodyTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyTransfer")
            .field("limit", &self.limit)
            .field("expected_bytes", &self.expected_bytes)
            .finish_non_exhaustive()
    }
}

impl BodyTransfer {
    /// Starts a transfer that has received no bytes.
    pub fn new(plan: &BodyPlan, bounds: &BodyLimits) -> Self {
        Self {
            limit: bounds.limit,
            slow_peer: SlowPeerWatch::new(bounds),
            first_bytes: Vec::new(),
            decoder: plan
                .coding
                .map(|coding| (BodyDecoder::new(coding), vec![0; CHUNK_BYTES])),
            expected_bytes: None,
        }
    }

    /// Receives the bytes of one response up to its end, and adds them to the body.
    ///
    /// # Errors
    ///
    /// `truncated` when the connection ended early; the transfer can continue on another one.
    pub async fn receive<S: ByteSink>(
        &mut self,
        mut wire: WireBody,
        plan: &BodyPlan,
        budget: &TimeBudget,
        sink: &mut S,
        counts: &mut BodyCounts,
    ) -> Result<(), FetchError> {
        self.expected_bytes = plan.whole;
        let mut store = BoundedSink {
            sink,
            budget,
            limit: self.limit,
            first_bytes: &mut self.first_bytes,
        };
        // Bytes after a 204 or 205 are not read.
        if plan.framing == BodyFraming::Empty {
            return Ok(());
        }
        while let Some(chunk) = self.slow_peer.next(&mut wire, budget, counts.wire).await? {
            counts.wire += chunk.len() as u64;
            // Compressed bytes have the same limit, before they are decoded (B-2).
            if counts.wire > self.limit {
                return Err(FetchError::new(Code::TooLarge, FetchPhase::Body));
            }
            match &mut self.decoder {
                None => store.put(chunk, counts).await?,
                Some((decoder, buffer)) => {
                    decode_chunk(decoder, &chunk, buffer, &mut store, counts).await?;
                }
            }
        }
        Ok(())
    }

    /// Checks that the body is complete, and returns the media type found by magic bytes (empty for none).
    ///
    /// # Errors
    ///
    /// `unexpected_partial` or `decode_error` when bytes are missing or left over.
    pub fn finish(&self, counts: &BodyCounts) -> Result<&'static str, FetchError> {
        if self
            .expected_bytes
            .is_some_and(|expected| expected != counts.wire)
        {
            return Err(FetchError::new(Code::UnexpectedPartial, FetchPhase::Body));
        }
        if let Some((decoder, _)) = &self.decoder {
            decoder.finish().map_err(decode_failure)?;
        }
        Ok(infer::get(&self.first_bytes).map_or("", |kind| kind.mime_type()))
    }
}

fn decode_failure(error: crate::coding::DecodeError) -> FetchError {
    FetchError::new(Code::DecodeError, FetchPhase::Body).because(error)
}

async fn decode_chunk<S: ByteSink>(
    decoder: &mut BodyDecoder,
    mut input: &[u8],
    buffer: &mut [u8],
    store: &mut BoundedSink<'_, S>,
    counts: &mut BodyCounts,
) -> Result<(), FetchError> {
    loop {
        // A step without output costs time too, so every step counts.
        tokio::task::coop::consume_budget().await;
        let progress = decoder.step(input, buffer).map_err(decode_failure)?;
        input = input.get(progress.read..).unwrap_or_default();
        let output = buffer.get(..progress.written).unwrap_or_default();
        // The bytes are copied: the buffer is reused while the sink may still hold the chunk.
        store.put(Bytes::copy_from_slice(output), counts).await?;
        // The decoder leaves room in the buffer only when the input is used up.
        if progress.written < buffer.len() {
            return Ok(());
        }
    }
}

/// The sink, with the bounds that every chunk has to pass.
struct BoundedSink<'a, S> {
    sink: &'a mut S,
    budget: &'a TimeBudget,
    limit: u64,
    first_bytes: &'a mut Vec<u8>,
}

impl<S: ByteSink> BoundedSink<'_, S> {
    async fn put(&mut self, chunk: Bytes, counts: &mut BodyCounts) -> Result<(), FetchError> {
        if chunk.is_empty() {
            return Ok(());
        }
        let size = chunk.len() as u64;
        if counts.stored + size > self.limit {
            return Err(FetchError::new(Code::TooLarge, FetchPhase::Body));
        }
        // Decoded bytes: the magic bytes of the file count, not those of its coding.
        let missing = SNIFF_BYTES.saturating_sub(self.first_bytes.len());
        self.first_bytes.extend(chunk.iter().take(missing));
        // The sink's time counts for the whole fetch, not as silence of the peer.
        self.budget
            .within_total(self.sink.write(chunk))
            .await?
            .map_err(|error| FetchError::new(Code::SinkFailed, FetchPhase::Sink).because(error))?;
        counts.stored += size;
        Ok(())
    }
}

/// Watches a slow peer (B-8). Only waiting for the peer counts, not the time that the sink takes.
struct SlowPeerWatch {
    idle: Duration,
    floor: u64,
    grace: Duration,
    /// Time that all reads of this body have waited for the peer.
    waited: Duration,
}

impl SlowPeerWatch {
    fn new(bounds: &BodyLimits) -> Self {
        Self {
            idle: bounds.idle,
            floor: bounds.floor,
            grace: bounds.grace,
            waited: Duration::ZERO,
        }
    }

    async fn next(
        &mut self,
        wire: &mut WireBody,
        budget: &TimeBudget,
        received: u64,
    ) -> Result<Option<Bytes>, FetchError> {
        let started = Instant::now();
        let timeout = self.read_timeout(received);
        let chunk = budget
            .within(FetchPhase::Body, timeout, wire.next())
            .await?;
        self.waited += started.elapsed();
        chunk.map_err(|error| FetchError::new(error.code(), FetchPhase::Body).because(error))
    }

    /// How long the next chunk may take: the idle limit, or until the average falls below the floor.
    fn read_timeout(&self, received: u64) -> Duration {
        // A floor of 0 has no quotient: only the idle limit holds.
        match received.checked_div(self.floor) {
            None => self.idle,
            Some(earned) => {
                let allowed = self.grace.max(Duration::from_secs(earned));
                self.idle.min(allowed.saturating_sub(self.waited))
            }
        }
    }
}

#[cfg(test)]
mod tests;
