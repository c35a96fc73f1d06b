//! Handles requests to the URL of a download ticket.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use dray_http_server::attachment_disposition;
use dray_service::web::{ByteRange, byte_range, field_has_etag, text_field};
use dray_store::{ArtifactLabel, ArtifactReader};
use dray_types::{Deadline, Sha256Digest, whole_millis};
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode, header};

use crate::TicketService;
use crate::fields;
use crate::problem::TicketProblem;
use crate::receive;
use crate::record::{StoredContent, TicketState};
use crate::response::{empty_response, set};
use crate::service::LoadedTicket;

/// Methods of the URL.
pub(crate) const DOWNLOAD_METHODS: &str = "GET, HEAD";
/// Longest time of one response.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_hours(6);
/// How often a ticket may send its content. Responses that broke are repeated, but a client that never reads the last
/// byte must not use one ticket without end.
const MAX_SENT_TIMES: u64 = 4;

/// The body of one response. Dropping it records how many bytes were sent.
#[derive(Debug)]
struct DownloadBody {
    service: TicketService,
    /// `None` after the end was recorded.
    ticket: Option<LoadedTicket>,
    reader: ArtifactReader,
    /// The latest chunk, which is sent only after the next one was read. So the last chunk is sent only after the
    /// digest of the complete content was checked.
    pending: Option<Bytes>,
    /// Position of the reader in the content.
    position: u64,
    /// Offset in the content up to which bytes were sent to the client.
    sent: u64,
    range: ByteRange,
    renewed_ms: u64,
}

impl TicketService {
    /// Handles `GET` and `HEAD` of a download ticket.
    pub(crate) async fn download(
        &self,
        ticket: LoadedTicket,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Response, TicketProblem> {
        self.check_usable(&ticket.record)?;
        let content = ticket.record.content.clone();
        let content = content.ok_or(TicketProblem::Unavailable)?;
        let sha256: Sha256Digest = content
            .sha256
            .parse()
            .map_err(|_| TicketProblem::Unavailable)?;
        let etag = format!("\"{sha256}\"");
        let tenant = ticket.record.tenant().ok_or(TicketProblem::Unavailable)?;
        // The origin is checked again: a fetch may have brought the same bytes since the ticket was made.
        self.check_origin(&tenant, &content, ticket.record.pinned.is_some())
            .await?;
        if field_has_etag(headers, header::IF_MATCH, &etag, false) == Some(false) {
            return Err(TicketProblem::PreconditionFailed);
        }
        if field_has_etag(headers, header::IF_NONE_MATCH, &etag, true) == Some(true) {
            let mut response = empty_response(StatusCode::NOT_MODIFIED);
            set(response.headers_mut(), "etag", &etag);
            return Ok(response);
        }
        // The client has a part of other content, so it gets the complete content, to avoid a mix of both.
        let is_same_content = text_field(headers, "if-range").is_none_or(|tag| tag == etag);
        let range = if is_same_content {
            byte_range(headers, content.size)
                .map_err(|beyond| TicketProblem::RangeNotSatisfiable { size: beyond.size })?
        } else {
            None
        };
        // A range must begin within the bytes that were already sent. Otherwise `moved` would not grow, and one ticket
        // could be used without end. Not 416: `wget -c` and `curl -C -` end with success on it and keep a part.
        let range = range.filter(|range| range.start <= ticket.record.moved);
        let whole = ByteRange {
            start: 0,
            end: content.size,
        };
        if matches!(*method, Method::GET | Method::HEAD) {
            self.check_source(&ticket.record).await?;
        }
        let body = match *method {
            Method::HEAD => Body::empty(),
            Method::GET => {
                self.open_body(ticket, sha256, range.unwrap_or(whole))
                    .await?
            }
            _ => {
                return Err(TicketProblem::MethodNotAllowed {
                    allowed: DOWNLOAD_METHODS,
                });
            }
        };
        Ok(download_response(&content, sha256, range, body))
    }

    async fn open_body(
        &self,
        mut ticket: LoadedTicket,
        sha256: Sha256Digest,
        range: ByteRange,
    ) -> Result<Body, TicketProblem> {
        let inner = &self.inner;
        let now_ms = inner.clock.now_ms();
        if ticket.record.is_leased(now_ms) {
            return Err(TicketProblem::InUse);
        }
        let (Some(tenant), Some(content)) = (ticket.record.tenant(), &ticket.record.content) else {
            return Err(TicketProblem::Unavailable);
        };
        let label = ArtifactLabel::new(content.media_type.as_str(), content.name.as_str());
        let claim = inner.store.claim(&tenant, sha256, label).await;
        let claim = claim.map_err(|error| {
            tracing::warn!(%error, %sha256, "could not look up the content of a ticket");
            TicketProblem::Unavailable
        })?;
        let size = content.size;
        let claim = claim.filter(|claim| claim.artifact.size == size);
        let claim = claim.ok_or(TicketProblem::ContentGone)?;
        let deadline = Deadline::after(now_ms, DOWNLOAD_TIMEOUT);
        let reader = inner.store.read(&tenant, &claim, deadline).await?;
        ticket.record.state = TicketState::Active;
        ticket.record.lease = Some(receive::new_lease(now_ms));
        match self.save(&mut ticket).await {
            // Another request began at the same time and took the lease first.
            Err(TicketProblem::Superseded) => return Err(TicketProblem::InUse),
            other => other?,
        }
        let body = DownloadBody {
            service: self.clone(),
            ticket: Some(ticket),
            reader,
            pending: None,
            position: 0,
            sent: range.start,
            range,
            renewed_ms: now_ms,
        };
        Ok(Body::from_stream(stream::try_unfold(
            body,
            |mut body| async move {
                let bytes = body.next().await?;
                Ok::<_, TicketProblem>(bytes.map(|bytes| (bytes, body)))
            },
        )))
    }
}

impl DownloadBody {
    /// Returns the next bytes of the range. An error breaks the connection, so that the client notices that the content
    /// is incomplete.
    async fn next(&mut self) -> Result<Option<Bytes>, TicketProblem> {
        loop {
            // The reader returns `None` only after it has checked size and digest of the complete content, even for a
            // range.
            let Some(bytes) = self.reader.next().await? else {
                // The last bytes are sent only if the source file in the sandbox has not changed and the ticket was not
                // revoked.
                if let Some(ticket) = &self.ticket {
                    self.service.check_source(&ticket.record).await?;
                }
                if self.pending.is_some() {
                    self.renew().await?;
                }
                let last = self.pending.take();
                return Ok(last.map(|bytes| self.count(bytes)));
            };
            let position = self.position;
            self.position += bytes.len() as u64;
            // The lease is renewed for bytes outside the range too: reading them to check the digest may take longer
            // than the lease.
            let now_ms = self.service.inner.clock.now_ms();
            let unrenewed_ms = now_ms.saturating_sub(self.renewed_ms);
            if unrenewed_ms >= whole_millis(receive::LEASE_RENEWAL_INTERVAL) {
                self.renew().await?;
            }
            let in_range = bytes_in_range(&bytes, position, self.range);
            if in_range.is_empty() {
                continue;
            }
            if let Some(ready) = self.pending.replace(in_range) {
                return Ok(Some(self.count(ready)));
            }
        }
    }

    fn count(&mut self, bytes: Bytes) -> Bytes {
        self.sent += bytes.len() as u64;
        if let Some(ticket) = &mut self.ticket {
            ticket.record.sent_bytes += bytes.len() as u64;
        }
        bytes
    }

    /// Renews the lease.
    ///
    /// # Errors
    ///
    /// [`TicketProblem::Superseded`] after the ticket was revoked, or another request took the lease that had ended;
    /// those of [`TicketService::load`] when the changed record cannot be read.
    async fn renew(&mut self) -> Result<(), TicketProblem> {
        let now_ms = self.service.inner.clock.now_ms();
        let Some(ticket) = &mut self.ticket else {
            return Ok(());
        };
        self.renewed_ms = now_ms;
        receive::renew_lease(&mut ticket.record, now_ms);
        let problem = match self.service.save(ticket).await {
            Ok(()) => return Ok(()),
            Err(problem) => problem,
        };
        if problem == TicketProblem::Superseded {
            // The last bytes are sent only to a holder that is known to still have the lease.
            let stored = self.service.load(&ticket.key).await?;
            if stored.record.holder() != ticket.record.holder() {
                return Err(problem);
            }
            // An earlier renewal was written although it failed.
            ticket.revision = stored.revision;
        }
        tracing::warn!(%problem, "could not renew the lease of a download");
        Ok(())
    }
}

impl Drop for DownloadBody {
    fn drop(&mut self) {
        let Some(mut ticket) = self.ticket.take() else {
            return;
        };
        let record = &mut ticket.record;
        record.lease = None;
        // Only bytes that continue the bytes sent before are counted.
        if self.range.start <= record.moved {
            record.moved = record.moved.max(self.sent);
        }
        let service = self.service.clone();
        let most_bytes = record.max_bytes.saturating_mul(MAX_SENT_TIMES);
        let complete = record.moved == record.max_bytes || record.sent_bytes >= most_bytes;
        let work = async move {
            let recorded = if complete {
                let ended = service.end(ticket.clone(), TicketState::Complete).await;
                ended.map(|_| ())
            } else {
                service.save(&mut ticket).await
            };
            // The end of a complete download counts its bytes, unless the ticket was revoked before.
            if !complete || recorded.is_err() {
                service.count_sent(&ticket).await;
            }
            if let Err(problem) = recorded {
                tracing::warn!(%problem, "could not record the end of a download");
            }
        };
        // The connection drops the response inside the runtime.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.service.inner.tasks.spawn_on(work, &runtime);
        }
    }
}

/// Returns the part of `bytes` that is inside the range. The first byte of `bytes` is at `position` of the content.
fn bytes_in_range(bytes: &Bytes, position: u64, range: ByteRange) -> Bytes {
    let length = bytes.len() as u64;
    let start = range.start.saturating_sub(position).min(length);
    let end = range.end.saturating_sub(position).min(length);
    let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    if start >= end {
        return Bytes::new();
    }
    bytes.slice(index(start)..index(end))
}

fn download_response(
    content: &StoredContent,
    sha256: Sha256Digest,
    range: Option<ByteRange>,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    let (start, end) = range.map_or((0, content.size), |range| (range.start, range.end));
    if range.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let headers = response.headers_mut();
    if range.is_some() {
        let last = end.saturating_sub(1);
        let value = format!("bytes {start}-{last}/{}", content.size);
        set(headers, "content-range", &value);
    } else {
        set(headers, "content-digest", &fields::digest_value(sha256));
    }
    set(headers, "repr-digest", &fields::digest_value(sha256));
    set(headers, "etag", &format!("\"{sha256}\""));
    set(headers, "accept-ranges", "bytes");
    set(headers, "content-length", &(end - start).to_string());
    set(
        headers,
        "content-disposition",
        &attachment_disposition(&content.name),
    );
    // Browsers must not execute the content. Every response also has `nosniff` and a sandbox policy.
    set(headers, "content-type", &content.media_type);
    response
}
