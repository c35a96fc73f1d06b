//! Requests on the URL of an upload ticket.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::Body as _;
use serde_json::json;

use crate::TicketService;
use crate::checksum::CHECKSUM_ALGORITHMS;
use crate::fields;
use crate::form;
use crate::page;
use crate::problem::TicketProblem;
use crate::protocol::{TUS_VERSION, UploadProtocol, UploadRequest};
use crate::record::{TicketRecord, TicketState};
use crate::response::{content_response, empty_response, finished_response, json_response, set};
use crate::service::LoadedTicket;

/// The supported extensions of tus.
const TUS_EXTENSIONS: &str = "creation,creation-defer-length,termination,expiration,checksum";
/// Most bytes of a part in one request. Clients get this limit, because proxies in between often cut at 100 MB.
const MAX_PART_BYTES: u64 = 64 << 20;
/// Interval between checks of an upload that another request finishes.
const FINISH_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for the end of such an upload.
const FINISH_WAIT: Duration = Duration::from_secs(20);
/// Methods of the URL.
const UPLOAD_METHODS: &str = "GET, HEAD, OPTIONS, PUT, POST, PATCH, DELETE";

/// One request on an upload ticket.
#[derive(Debug)]
pub(crate) struct UploadCall<'a> {
    pub(crate) service: &'a TicketService,
    pub(crate) secret: &'a str,
    /// URL of the ticket, for `Location`.
    pub(crate) url: String,
}

impl UploadCall<'_> {
    /// Handles any method.
    pub(crate) async fn run(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, TicketProblem> {
        let protocol = UploadProtocol::of(headers);
        // A client of tus finds the version with `OPTIONS`, which needs none itself.
        if protocol == UploadProtocol::Tus
            && *method != Method::OPTIONS
            && fields::field(headers, "tus-resumable") != Some(TUS_VERSION)
        {
            return Err(TicketProblem::TusVersion);
        }
        match *method {
            Method::GET => self.show(headers).await,
            Method::OPTIONS => self.describe().await,
            Method::HEAD => self.report_offset(protocol).await,
            Method::DELETE => {
                self.service.revoke(self.secret).await?;
                Ok(empty_response(StatusCode::NO_CONTENT))
            }
            Method::POST if protocol == UploadProtocol::Tus => self.create_tus(headers, body).await,
            Method::PUT | Method::POST | Method::PATCH => self.upload(method, headers, body).await,
            _ => Err(TicketProblem::MethodNotAllowed {
                allowed: UPLOAD_METHODS,
            }),
        }
    }

    /// `OPTIONS`: the methods and protocols that the URL supports.
    async fn describe(&self) -> Result<Response, TicketProblem> {
        let ticket = self.service.find_usable(self.secret).await?;
        let mut response = empty_response(StatusCode::NO_CONTENT);
        let headers = response.headers_mut();
        set(headers, "allow", UPLOAD_METHODS);
        set(
            headers,
            "accept-patch",
            "application/partial-upload, application/offset+octet-stream",
        );
        set(headers, "tus-version", TUS_VERSION);
        set(headers, "tus-extension", TUS_EXTENSIONS);
        set(headers, "tus-checksum-algorithm", CHECKSUM_ALGORITHMS);
        set(
            headers,
            "tus-max-size",
            &ticket.record.max_bytes.to_string(),
        );
        self.set_limits(headers, &ticket.record);
        Ok(response)
    }

    /// `GET`: a page for people, the state of the upload for programs.
    async fn show(&self, headers: &HeaderMap) -> Result<Response, TicketProblem> {
        let record = self.service.find(self.secret).await?.record;
        if record.state != TicketState::Complete {
            self.service.check_usable(&record)?;
        } else if page::prefers_page(headers) {
            return Ok(page::result_page(StatusCode::OK, &record));
        }
        if page::prefers_page(headers) {
            let now_ms = self.service.inner.clock.now_ms();
            return Ok(page::drop_page(&record, now_ms));
        }
        let document = json!({
            "state": record.state,
            "received_bytes": record.moved,
            "max_bytes": record.max_bytes,
            "expires_at_ms": record.expires_at_ms,
            "content": record.content,
            "receipt": record.receipt,
        });
        Ok(json_response(StatusCode::OK, &document))
    }

    /// `HEAD`: how many bytes are stored.
    async fn report_offset(&self, protocol: UploadProtocol) -> Result<Response, TicketProblem> {
        let mut ticket = self.service.find(self.secret).await?;
        if ticket.record.lease.is_some() {
            // A request on a broken connection may still be storing bytes, which would make its offset obsolete
            // immediately.
            self.service.inner.active.settle(&ticket.key).await;
            ticket = self.service.find(self.secret).await?;
        }
        let record = match ticket.record.state {
            TicketState::Complete => ticket.record,
            _ => self.settled_record(protocol, ticket).await?,
        };
        let (status, complete) = (
            match protocol {
                UploadProtocol::Tus => StatusCode::OK,
                _ => StatusCode::NO_CONTENT,
            },
            record.state == TicketState::Complete,
        );
        let mut response = empty_response(status);
        let headers = response.headers_mut();
        set(headers, "upload-offset", &record.moved.to_string());
        if let Some(length) = record.length() {
            set(headers, "upload-length", &length.to_string());
        } else if protocol == UploadProtocol::Tus {
            set(headers, "upload-defer-length", "1");
        }
        if protocol != UploadProtocol::Tus {
            set(
                headers,
                "upload-complete",
                if complete { "?1" } else { "?0" },
            );
        }
        if protocol == UploadProtocol::Tus && !complete {
            set_expiry(headers, record.expires_at_ms);
        }
        self.set_limits(headers, &record);
        Ok(response)
    }

    /// Waits until an upload with all bytes is finished. A tus client treats an upload as complete when it has all
    /// bytes, so the response must come after the end.
    async fn settled_record(
        &self,
        protocol: UploadProtocol,
        ticket: LoadedTicket,
    ) -> Result<TicketRecord, TicketProblem> {
        self.service.check_usable(&ticket.record)?;
        let is_whole = ticket.record.length() == Some(ticket.record.moved);
        // tus clients request the offset after a lost response, and treat the full length as the end of the upload. So
        // the upload must have ended. The other protocols report completeness in a separate field.
        if protocol != UploadProtocol::Tus || !is_whole || ticket.record.state == TicketState::Open
        {
            return Ok(ticket.record);
        }
        let ticket = self.wait_while(ticket, TicketRecord::is_leased).await?;
        if ticket.record.state != TicketState::Complete {
            self.service.check_usable(&ticket.record)?;
            self.finish(ticket).await?;
        }
        Ok(self.service.find(self.secret).await?.record)
    }

    /// Waits while another request uses the ticket, for at most [`FINISH_WAIT`].
    async fn wait_while(
        &self,
        mut ticket: LoadedTicket,
        is_busy: impl Fn(&TicketRecord, u64) -> bool,
    ) -> Result<LoadedTicket, TicketProblem> {
        let mut waited = Duration::ZERO;
        while is_busy(&ticket.record, self.service.inner.clock.now_ms()) {
            if waited >= FINISH_WAIT {
                return Err(TicketProblem::InUse);
            }
            // Another process may be the one that finishes, so the record is polled.
            tokio::time::sleep(FINISH_POLL_INTERVAL).await;
            waited += FINISH_POLL_INTERVAL;
            ticket = self.service.find(self.secret).await?;
        }
        Ok(ticket)
    }

    /// tus `POST`: the ticket is the upload, so creating it announces the length.
    async fn create_tus(&self, headers: &HeaderMap, body: Body) -> Result<Response, TicketProblem> {
        // A client that sends several partial uploads at the same time announces here the length of one of them, which
        // must not be taken for the length of the file.
        if headers.contains_key("upload-concat") {
            return Err(TicketProblem::Invalid(
                "`Upload-Concat` is not supported: a ticket is one upload, which is not joined from others",
            ));
        }
        let mut request = UploadRequest::read(&Method::PUT, &with_part_type(headers))?;
        let deferred = headers.get("upload-defer-length");
        // Any other value is an error (tus 1.0, creation-defer-length).
        let is_deferred = deferred.is_some_and(|value| value == "1");
        if request.length.is_none() && !is_deferred {
            return Err(TicketProblem::Invalid("`Upload-Length` is missing"));
        }
        if request.length.is_some() && is_deferred {
            return Err(TicketProblem::Invalid(
                "`Upload-Length` and `Upload-Defer-Length` exclude each other",
            ));
        }
        // `creation` alone announces the upload; only the length decides when it is complete.
        request.completes = None;
        request.defers_length = is_deferred;
        let has_body = headers.contains_key(header::CONTENT_TYPE);
        let body = if has_body { body } else { Body::empty() };
        let ticket = self.service.find_usable(self.secret).await?;
        let expires_at_ms = ticket.record.expires_at_ms;
        let offset = self.receive(ticket, request, body).await?;
        let mut response = empty_response(StatusCode::CREATED);
        let headers = response.headers_mut();
        set(headers, "location", &self.url);
        set(headers, "upload-offset", &offset.0.to_string());
        if offset.1.is_none() {
            set_expiry(headers, expires_at_ms);
        }
        Ok(response)
    }

    /// `PUT`, `POST` and `PATCH` with bytes.
    async fn upload(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, TicketProblem> {
        let mut ticket = self.service.find(self.secret).await?;
        // Making a large artifact takes longer than some proxies keep a request open: the client repeats a request at
        // the end of the upload, until it gets the result.
        if is_part_at_end(&ticket.record, method, headers, &body)? {
            ticket = self.wait_while(ticket, TicketRecord::is_finishing).await?;
            if ticket.record.state == TicketState::Complete {
                return Ok(finished_response(
                    &ticket.record,
                    UploadProtocol::of(headers),
                ));
            }
        }
        self.service.check_usable(&ticket.record)?;
        if *method == Method::POST
            && let Some(boundary) = form::form_boundary(headers)
        {
            return self.take_form(ticket, boundary, headers, body).await;
        }
        if ticket.record.state == TicketState::Stored {
            return self.retry_destination(ticket, method, headers, body).await;
        }
        let request = UploadRequest::read(method, headers)?;
        let protocol = request.protocol;
        let now_ms = self.service.inner.clock.now_ms();
        // `POST` without a body tries a destination again, and must not store an empty file where none was sent.
        if *method == Method::POST
            && protocol == UploadProtocol::Plain
            && body.is_end_stream()
            && !ticket.record.is_leased(now_ms)
        {
            return Err(TicketProblem::Invalid(
                "the request has no body; `PUT` sends an empty file",
            ));
        }
        let record = ticket.record.clone();
        let (offset, finished) = self.receive(ticket, request, body).await?;
        let mut response = match (&finished, protocol) {
            (_, UploadProtocol::Tus) => empty_response(StatusCode::NO_CONTENT),
            (Some(finished), _) => content_response(finished),
            (None, _) if *method == Method::PATCH => empty_response(StatusCode::NO_CONTENT),
            (None, _) => {
                let mut response = empty_response(StatusCode::CREATED);
                set(response.headers_mut(), "location", &self.url);
                response
            }
        };
        let headers = response.headers_mut();
        set(headers, "upload-offset", &offset.to_string());
        if protocol == UploadProtocol::Resumable {
            let complete = if finished.is_some() { "?1" } else { "?0" };
            set(headers, "upload-complete", complete);
        }
        if finished.is_none() {
            if protocol == UploadProtocol::Tus {
                set_expiry(headers, record.expires_at_ms);
            }
            self.set_limits(headers, &record);
        }
        Ok(response)
    }

    /// A form of a page without script.
    async fn take_form(
        &self,
        ticket: LoadedTicket,
        boundary: String,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, TicketProblem> {
        fields::check_codings(headers)?;
        // Scripts that cut a file into forms name the range of each.
        fields::whole_range(headers)?;
        let idle_timeout = self.service.inner.limits.idle_timeout;
        let (request, file) = form::form_file(boundary, body, idle_timeout).await?;
        let (_, finished) = self.receive(ticket, request, file).await?;
        // A form always has the complete file, so an upload that is not finished here was interrupted.
        let record = finished.ok_or(TicketProblem::Interrupted)?;
        if page::prefers_page(headers) {
            return Ok(page::result_page(StatusCode::CREATED, &record));
        }
        Ok(content_response(&record))
    }

    /// Another attempt at the destination of stored content: a request without a body, or a part without bytes at the
    /// end of the upload.
    async fn retry_destination(
        &self,
        ticket: LoadedTicket,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, TicketProblem> {
        // A body would replace the stored content; only an empty request starts another attempt.
        if *method == Method::PUT || !body.is_end_stream() {
            return Err(TicketProblem::AlreadyStored);
        }
        let record = self.finish(ticket).await?;
        Ok(finished_response(&record, UploadProtocol::of(headers)))
    }

    /// Receives a body, and finishes the upload when it was the last one. Both continue when the client leaves.
    async fn receive(
        &self,
        ticket: LoadedTicket,
        request: UploadRequest,
        body: Body,
    ) -> Result<(u64, Option<TicketRecord>), TicketProblem> {
        let service = self.service.clone();
        let work = async move {
            let received = service.receive(ticket, request, body).await?;
            let offset = received.ticket.record.moved;
            if !received.complete {
                return Ok((offset, None));
            }
            let record = service.finish_upload(received.ticket).await?;
            Ok((offset, Some(record)))
        };
        // hyper drops the request when its connection breaks; a task stores the received bytes in any case.
        let task = self.service.inner.tasks.spawn(work);
        task.await.unwrap_or(Err(TicketProblem::Unavailable))
    }

    async fn finish(&self, ticket: LoadedTicket) -> Result<TicketRecord, TicketProblem> {
        let service = self.service.clone();
        let work = async move { service.finish_upload(ticket).await };
        let finished = self.service.inner.tasks.spawn(work).await;
        match finished.unwrap_or(Err(TicketProblem::Unavailable)) {
            // Another request finished the upload first.
            Err(TicketProblem::Superseded) => Ok(self.service.find(self.secret).await?.record),
            other => other,
        }
    }

    fn set_limits(&self, headers: &mut HeaderMap, record: &TicketRecord) {
        let now_ms = self.service.inner.clock.now_ms();
        // The seconds are rounded down: a client must not count on the last part of a second.
        let left_seconds = record.expires_at_ms.saturating_sub(now_ms) / 1000;
        let limits = format!(
            "max-size={}, max-append-size={MAX_PART_BYTES}, max-age={left_seconds}",
            record.max_bytes
        );
        set(headers, "upload-limit", &limits);
    }
}

/// Sets the time at which an unfinished upload ends (tus 1.0, expiration). The seconds are rounded down.
fn set_expiry(headers: &mut HeaderMap, expires_at_ms: u64) {
    let expiry = UNIX_EPOCH.checked_add(Duration::from_secs(expires_at_ms / 1000));
    if let Some(expiry) = expiry {
        set(headers, "upload-expires", &httpdate::fmt_http_date(expiry));
    }
}

/// Whether a request has no bytes and continues exactly at the end of the received bytes.
fn is_part_at_end(
    record: &TicketRecord,
    method: &Method,
    headers: &HeaderMap,
    body: &Body,
) -> Result<bool, TicketProblem> {
    Ok(*method == Method::PATCH
        && body.is_end_stream()
        && fields::number_field(headers, "upload-offset")? == Some(record.moved))
}

fn with_part_type(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    // A creation without content has no type, and one with content has that of a part.
    let part = HeaderValue::from_static("application/offset+octet-stream");
    headers.insert(header::CONTENT_TYPE, part);
    headers
}
