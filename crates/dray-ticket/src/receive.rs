//! Receives the body of an upload: stores bytes as segments, and records their number.

use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use dray_presentation::name::clean_name;
use dray_store::MAX_SEGMENT_BYTES;
use dray_types::{Sha256Digest, whole_millis};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};

use crate::TicketService;
use crate::active::ActiveGuard;
use crate::checksum::ChecksumHasher;
use crate::download::DOWNLOAD_METHODS;
use crate::fields;
use crate::problem::TicketProblem;
use crate::protocol::{UploadProtocol, UploadRequest, UploadStart};
use crate::record::{
    MAX_SEGMENTS, SegmentRecord, TicketDirection, TicketLease, TicketRecord, TicketState,
};
use crate::service::LoadedTicket;

/// Duration of a request's lease on a ticket without a renewal.
pub(crate) const LEASE_TIME: Duration = Duration::from_mins(1);
/// Interval between two renewals of the lease of a request whose bytes are not recorded by segments.
pub(crate) const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(15);
/// Longest time that bytes stay in memory only. With it, a slow sender fills at most 2,160 segments within the longest
/// lifetime of a ticket, which is below [`MAX_SEGMENTS`].
const MAX_BUFFER_TIME: Duration = Duration::from_secs(20);

/// How the body of a request ended.
#[derive(Debug)]
pub(crate) struct ReceivedBody {
    pub(crate) ticket: LoadedTicket,
    /// Whether the content is complete.
    pub(crate) complete: bool,
}

/// One request whose body is being received.
#[derive(Debug)]
struct BodyReceiver<'a> {
    service: &'a TicketService,
    ticket: LoadedTicket,
    request: UploadRequest,
    buffer: BytesMut,
    hasher: Sha256,
    checksum: Option<ChecksumHasher>,
    saved_ms: u64,
    /// The state of the ticket when the request began.
    first_segment: usize,
    first_byte: u64,
    /// Length and digest that earlier requests announced.
    earlier_announcement: (Option<u64>, Option<String>),
    /// Dropped last, when everything is recorded.
    active: ActiveGuard,
}

impl TicketService {
    /// Receives the body for a ticket. Bytes that arrived before a connection broke are kept. If the request violates a
    /// rule of the ticket, all of its bytes are removed.
    ///
    /// The future must not be dropped before it completes, so it runs in a separate task.
    pub(crate) async fn receive(
        &self,
        ticket: LoadedTicket,
        request: UploadRequest,
        body: Body,
    ) -> Result<ReceivedBody, TicketProblem> {
        check_request(&ticket.record, &request)?;
        let earlier_announcement = match request.start {
            UploadStart::Whole => (None, None),
            UploadStart::Offset(_) => {
                let record = &ticket.record;
                (record.announced, record.announced_sha256.clone())
            }
        };
        let active = self.inner.active.register(&ticket.key);
        let ticket = self.lease_upload(ticket, &request).await?;
        let mut receiver = BodyReceiver {
            service: self,
            first_segment: ticket.record.segments.len(),
            first_byte: ticket.record.moved,
            earlier_announcement,
            ticket,
            checksum: request.checksum.map(ChecksumHasher::new),
            request,
            buffer: BytesMut::new(),
            hasher: Sha256::new(),
            saved_ms: self.inner.clock.now_ms(),
            active,
        };
        let received = receiver.receive_body(body).await;
        receiver.active.end_receiving();
        match received {
            Ok(()) => receiver.close_body().await,
            Err(problem) => Err(receiver.fail(problem).await),
        }
    }

    /// Marks the ticket as used by this request.
    async fn lease_upload(
        &self,
        mut ticket: LoadedTicket,
        request: &UploadRequest,
    ) -> Result<LoadedTicket, TicketProblem> {
        let now_ms = self.inner.clock.now_ms();
        let record = &mut ticket.record;
        // All bytes have arrived: another attempt to make the artifact would only repeat the work.
        if record.is_finishing(now_ms) {
            return Err(TicketProblem::InUse);
        }
        let dropped = match request.start {
            // A second sender of the complete content is refused. A sender that continues has the offset and takes
            // over.
            UploadStart::Whole if record.is_leased(now_ms) => return Err(TicketProblem::InUse),
            UploadStart::Whole => {
                record.moved = 0;
                record.announced = None;
                record.announced_sha256 = None;
                record.length_deferred = request.defers_length;
                if std::mem::take(&mut record.named_by_sender) {
                    record.name.clear();
                }
                std::mem::take(&mut record.segments)
            }
            UploadStart::Offset(provided) if provided != record.moved => {
                return Err(TicketProblem::OffsetMismatch {
                    expected: record.moved,
                    provided,
                });
            }
            UploadStart::Offset(_) => Vec::new(),
        };
        record.state = TicketState::Active;
        if record.name.is_empty() && !request.sender_name.is_empty() {
            record.name = clean_name(&request.sender_name);
            record.named_by_sender = true;
        }
        record.announced = request.length.or(record.announced);
        let announced = request.whole_sha256.map(Sha256Digest::to_hex);
        record.announced_sha256 = announced.or(record.announced_sha256.take());
        record.lease = Some(new_lease(now_ms));
        match self.save(&mut ticket).await {
            // Another request began at the same time and took the lease first.
            Err(TicketProblem::Superseded) => return Err(TicketProblem::InUse),
            other => other?,
        }
        self.remove_segments(&ticket.record, &dropped).await;
        Ok(ticket)
    }
}

impl BodyReceiver<'_> {
    async fn receive_body(&mut self, mut body: Body) -> Result<(), TicketProblem> {
        let idle_timeout = self.service.inner.limits.idle_timeout;
        loop {
            let frame = tokio::select! {
                biased;
                frame = tokio::time::timeout(idle_timeout, body.frame()) => frame,
                () = self.active.wait_for_handover() => return Err(TicketProblem::Interrupted),
            };
            let frame = frame.map_err(|_| TicketProblem::Interrupted)?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| body_problem(&error))?;
            match frame.into_data() {
                Ok(bytes) => self.add_bytes(&bytes).await?,
                Err(frame) => self.read_trailers(frame.trailers_ref())?,
            }
        }
        if let Some(expected) = self.request.body_sha256
            && expected.as_bytes().as_slice() != self.hasher.clone().finalize().as_slice()
        {
            return Err(TicketProblem::WrongDigest);
        }
        if self
            .checksum
            .as_ref()
            .is_some_and(|checksum| !checksum.is_match())
        {
            return Err(TicketProblem::WrongChecksum);
        }
        Ok(())
    }

    /// Digests may follow the body (RFC 9530 section 6.1), for senders that compute them while they send.
    fn read_trailers(&mut self, trailers: Option<&HeaderMap>) -> Result<(), TicketProblem> {
        let Some(trailers) = trailers else {
            return Ok(());
        };
        // Without a hash of the body nothing can be compared, and a digest may be ignored (RFC 9530 section 2).
        if let Some(sha256) = fields::digest_field(trailers, "content-digest")?
            && self.is_hashed()
        {
            self.request.body_sha256 = Some(sha256);
        }
        if let Some(sha256) = fields::digest_field(trailers, "repr-digest")? {
            self.ticket.record.announced_sha256 = Some(sha256.to_hex());
        }
        Ok(())
    }

    fn is_hashed(&self) -> bool {
        self.request.body_sha256.is_some() || self.request.has_trailers
    }

    async fn add_bytes(&mut self, bytes: &[u8]) -> Result<(), TicketProblem> {
        let total = self.received_bytes() + bytes.len() as u64;
        let record = &self.ticket.record;
        if record.size.is_none() && total > record.max_bytes {
            return Err(TicketProblem::TooLarge {
                limit: record.max_bytes,
            });
        }
        if record.length().is_some_and(|length| total > length) {
            return Err(TicketProblem::InconsistentLength);
        }
        if self.is_hashed() {
            self.hasher.update(bytes);
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.update(bytes);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.buffer.is_empty() {
                self.buffer.reserve(self.segment_capacity());
            }
            let room = MAX_SEGMENT_BYTES - self.buffer.len();
            let (fitting, remaining) = rest.split_at(rest.len().min(room));
            self.buffer.extend_from_slice(fitting);
            rest = remaining;
            if self.buffer.len() == MAX_SEGMENT_BYTES {
                self.store_buffer().await?;
            }
        }
        let waited_ms = self
            .service
            .inner
            .clock
            .now_ms()
            .saturating_sub(self.saved_ms);
        // A slow sender must not lose minutes of work, nor the lease.
        if waited_ms >= whole_millis(MAX_BUFFER_TIME) {
            self.store_buffer().await?;
        }
        Ok(())
    }

    /// Bytes of the next segment. Reserved in one step. A buffer that grows by doubling is copied at each step, so its
    /// old and its new memory are both in use, and chunks of the old sizes stay with the allocator.
    fn segment_capacity(&self) -> usize {
        let record = &self.ticket.record;
        let length = record.length().unwrap_or(record.max_bytes);
        let rest = usize::try_from(length.saturating_sub(record.moved)).unwrap_or(usize::MAX);
        rest.min(MAX_SEGMENT_BYTES)
    }

    /// Bytes that are stored or in memory.
    fn received_bytes(&self) -> u64 {
        self.ticket.record.moved + self.buffer.len() as u64
    }

    /// Stores the buffered bytes as one segment.
    async fn store_buffer(&mut self) -> Result<(), TicketProblem> {
        // A body that began before the expiry must not keep the ticket open without end.
        if self
            .ticket
            .record
            .is_expired(self.service.inner.clock.now_ms())
        {
            return Err(TicketProblem::Expired);
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.ticket.record.segments.len() >= MAX_SEGMENTS {
            return Err(TicketProblem::TooManyParts);
        }
        let operation = self.ticket.record.operation();
        let operation = operation.ok_or(TicketProblem::Unavailable)?;
        let bytes: Bytes = std::mem::take(&mut self.buffer).freeze();
        let store = &self.service.inner.store;
        let segment = store.stage_segment(&operation, bytes.clone()).await?;
        // The next segment goes into the same memory: thousands of blocks that come and go would leave gaps in the
        // heap, which the process keeps.
        if let Ok(mut buffer) = bytes.try_into_mut() {
            buffer.clear();
            self.buffer = buffer;
        }
        let now_ms = self.service.inner.clock.now_ms();
        let record = &mut self.ticket.record;
        record.moved += segment.size;
        record.segments.push(SegmentRecord::new(&segment));
        renew_lease(record, now_ms);
        self.saved_ms = now_ms;
        let saved = self.service.save(&mut self.ticket).await;
        if saved.is_err() {
            // The bytes are not counted: another request continued, or the records failed. The next request finds the
            // offset.
            let record = &mut self.ticket.record;
            record.moved -= segment.size;
            let unrecorded: Vec<SegmentRecord> = record.segments.pop().into_iter().collect();
            // A write that failed otherwise may have happened, and then the record has the segment. If it has not, the
            // segment is swept with the staging area.
            if saved == Err(TicketProblem::Superseded) {
                self.service
                    .remove_segments(&self.ticket.record, &unrecorded)
                    .await;
            }
        }
        saved
    }

    /// Stores the rest of a body that ended without an error.
    async fn close_body(mut self) -> Result<ReceivedBody, TicketProblem> {
        if let Err(problem) = self.store_buffer().await {
            return Err(self.fail(problem).await);
        }
        let record = &self.ticket.record;
        let complete = match self.request.completes {
            Some(complete) => complete,
            None => record.length() == Some(record.moved),
        };
        if complete
            && record
                .announced
                .is_some_and(|length| length != record.moved)
        {
            return Err(self.fail(TicketProblem::InconsistentLength).await);
        }
        if !complete {
            self.release().await?;
        }
        Ok(ReceivedBody {
            ticket: self.ticket,
            complete,
        })
    }

    /// Ends a failed request, and returns the problem to report.
    async fn fail(&mut self, problem: TicketProblem) -> TicketProblem {
        let stored = match &problem {
            // The record belongs to another request now, or the ticket has ended.
            TicketProblem::Superseded => return self.superseded_problem().await,
            TicketProblem::Interrupted => self.store_buffer().await,
            TicketProblem::StorageFull | TicketProblem::Unavailable => Ok(()),
            _ => {
                self.roll_back();
                Ok(())
            }
        };
        let dropped = self.cut_segments();
        let released = self.release().await;
        if let Err(error) = stored.and(released) {
            tracing::warn!(%error, "could not record the end of an upload request");
        } else {
            let record = &self.ticket.record;
            self.service.remove_segments(record, &dropped).await;
        }
        problem
    }

    /// The reason why this request lost the ticket: it was revoked or has expired meanwhile, or another request
    /// continues the upload.
    async fn superseded_problem(&self) -> TicketProblem {
        let stored = self.service.load(&self.ticket.key).await;
        let usable = stored.and_then(|stored| self.service.check_usable(&stored.record));
        match usable {
            Err(ended @ (TicketProblem::Revoked | TicketProblem::Expired)) => ended,
            _ => TicketProblem::Superseded,
        }
    }

    /// Discards the bytes and the announcements of this request.
    fn roll_back(&mut self) {
        let record = &mut self.ticket.record;
        record.moved = self.first_byte;
        (record.announced, record.announced_sha256) =
            std::mem::take(&mut self.earlier_announcement);
        if self.first_byte == 0 {
            record.state = TicketState::Open;
        }
    }

    /// Removes the segments that do not count from the record, and returns them.
    fn cut_segments(&mut self) -> Vec<SegmentRecord> {
        let record = &mut self.ticket.record;
        if record.moved == self.first_byte && record.segments.len() > self.first_segment {
            return record.segments.split_off(self.first_segment);
        }
        Vec::new()
    }

    async fn release(&mut self) -> Result<(), TicketProblem> {
        self.ticket.record.lease = None;
        self.service.save(&mut self.ticket).await
    }
}

/// Extends the lease of a ticket that is in use; the caller saves the record.
pub(crate) fn renew_lease(record: &mut TicketRecord, now_ms: u64) {
    if let Some(lease) = &mut record.lease {
        lease.until_ms = lease_end(now_ms);
    }
}

fn lease_end(now_ms: u64) -> u64 {
    let lease_ms = whole_millis(LEASE_TIME);
    now_ms.saturating_add(lease_ms)
}

pub(crate) fn new_lease(now_ms: u64) -> TicketLease {
    TicketLease {
        holder: format!("{:016x}", rand::random::<u64>()),
        until_ms: lease_end(now_ms),
        finishing: false,
    }
}

/// Checks the values in the header fields, before a byte of the body is read.
fn check_request(record: &TicketRecord, request: &UploadRequest) -> Result<(), TicketProblem> {
    if record.direction != TicketDirection::Upload {
        return Err(TicketProblem::MethodNotAllowed {
            allowed: DOWNLOAD_METHODS,
        });
    }
    if record.state == TicketState::Stored {
        return Err(TicketProblem::AlreadyStored);
    }
    if record.direct.is_some() {
        return Err(TicketProblem::Invalid(
            "the upload goes to the store in parts",
        ));
    }
    if let (Some(expected), Some(found)) = (&record.media_type, &request.media_type)
        && !dray_media_type::matches_pattern(Some(found), expected)
    {
        return Err(TicketProblem::WrongType {
            expected: expected.clone(),
            found: found.clone(),
        });
    }
    // Without a creation the bytes may follow those of another sender, and no part would ever complete the upload.
    if request.protocol == UploadProtocol::Tus
        && request.start != UploadStart::Whole
        && request.length.or(record.length()).is_none()
        && !record.length_deferred
    {
        return Err(TicketProblem::Invalid(
            "`Upload-Length` is missing: create the upload with `POST` first, or send its length with the part",
        ));
    }
    if let Some(length) = request.length {
        if length > record.max_bytes {
            return Err(TicketProblem::TooLarge {
                limit: record.max_bytes,
            });
        }
        if let Some(expected) = record.size.filter(|size| *size != length) {
            return Err(TicketProblem::WrongSize {
                expected,
                actual: length,
            });
        }
        let continues = request.start != UploadStart::Whole;
        let differs = record.announced.is_some_and(|before| before != length);
        // A length below the received bytes is one that the upload can never have.
        if continues && (differs || length < record.moved) {
            return Err(TicketProblem::InconsistentLength);
        }
    }
    if let Some(whole) = request.whole_sha256
        && record
            .sha256
            .as_ref()
            .is_some_and(|sha256| *sha256 != whole.to_hex())
    {
        return Err(TicketProblem::WrongDigest);
    }
    Ok(())
}

/// The reason why a body ended: its form is refused, or the connection broke.
fn body_problem(error: &axum::Error) -> TicketProblem {
    // `Body` wraps the error of its stream, and a body that is made of a stream does so once more.
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(source) = cause {
        if let Some(problem) = source.downcast_ref::<TicketProblem>() {
            return problem.clone();
        }
        cause = source.source();
    }
    TicketProblem::Interrupted
}
