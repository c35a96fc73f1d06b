//! Requests on the URL of an upload ticket.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;

use crate::TicketService;
use crate::problem::TicketProblem;
use crate::protocol::{TUS_VERSION, UploadProtocol, UploadRequest};
use crate::record::{StoredContent, TicketRecord, TicketState};
use crate::service::LoadedTicket;

/// What tus clients may use beyond its core.
const TUS_EXTENSIONS: &str = "creation,creation-defer-length,termination,expiration";
/// Largest part in one request. Announced, because proxies in between often cut at 100 MB.
const MAX_PART_BYTES: u64 = 64 << 20;
/// Interval between two looks at an upload that another request finishes.
const FINISH_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for it.
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
    /// Handles any method but `GET`.
    pub(crate) async fn run(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, TicketProblem> {
        let protocol = UploadProtocol::of(headers);
        match *method {
            Method::OPTIONS => self.describe().await,
            Method::HEAD => self.report_offset(protocol).await,
            Method::DELETE => {
                self.service.revoke(self.secret).await?;
                Ok(empty_response(StatusCode::NO_CONTENT))
            }
            Method::POST if protocol == UploadProtocol::Tus => self.create_tus(headers, body).await,
            Method::PUT | Method::POST | Method::PATCH => self.take(method, headers, body).await,
            _ => Err(TicketProblem::MethodNotAllowed),
        }
    }

    /// `OPTIONS`: what the URL takes.
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
        set(
            headers,
            "tus-max-size",
            &ticket.record.max_bytes.to_string(),
        );
        self.set_limits(headers, &ticket.record);
        Ok(response)
    }

    /// `HEAD`: how many bytes are stored.
    async fn report_offset(&self, protocol: UploadProtocol) -> Result<Response, TicketProblem> {
        let ticket = self.service.find(self.secret).await?;
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
        self.set_limits(headers, &record);
        Ok(response)
    }

    /// A tus client takes an upload with all bytes for complete, so it must be finished before it hears of them.
    async fn settled_record(
        &self,
        protocol: UploadProtocol,
        ticket: LoadedTicket,
    ) -> Result<TicketRecord, TicketProblem> {
        self.service.check_usable(&ticket.record)?;
        let is_whole = ticket.record.length() == Some(ticket.record.moved);
        if protocol != UploadProtocol::Tus || !is_whole || ticket.record.state == TicketState::Open
        {
            return Ok(ticket.record);
        }
        let mut ticket = ticket;
        let mut waited = Duration::ZERO;
        while ticket.record.is_leased(self.service.inner.clock.now_ms()) {
            if waited >= FINISH_WAIT {
                return Err(TicketProblem::InUse);
            }
            tokio::time::sleep(FINISH_POLL_INTERVAL).await;
            waited += FINISH_POLL_INTERVAL;
            ticket = self.service.find(self.secret).await?;
        }
        if ticket.record.state != TicketState::Complete {
            self.service.check_usable(&ticket.record)?;
            self.finish(ticket).await?;
        }
        Ok(self.service.find(self.secret).await?.record)
    }

    /// tus `POST`: the ticket is the upload, so creating it announces the length.
    async fn create_tus(&self, headers: &HeaderMap, body: Body) -> Result<Response, TicketProblem> {
        let mut request = UploadRequest::read(&Method::PUT, &without_type(headers))?;
        if request.length.is_none() && !headers.contains_key("upload-defer-length") {
            return Err(TicketProblem::Invalid("`Upload-Length` is missing"));
        }
        request.completes = None;
        let has_body = headers.contains_key(header::CONTENT_TYPE);
        let body = if has_body { body } else { Body::empty() };
        let ticket = self.service.find_usable(self.secret).await?;
        let offset = self.receive(ticket, request, body).await?;
        let mut response = empty_response(StatusCode::CREATED);
        let headers = response.headers_mut();
        set(headers, "location", &self.url);
        set(headers, "upload-offset", &offset.0.to_string());
        Ok(response)
    }

    /// `PUT`, `POST` and `PATCH` with bytes.
    async fn take(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, TicketProblem> {
        let ticket = self.service.find_usable(self.secret).await?;
        let request = UploadRequest::read(method, headers)?;
        let protocol = request.protocol;
        let expires = ticket.record.clone();
        let (offset, content) = self.receive(ticket, request, body).await?;
        let mut response = match (&content, protocol) {
            (_, UploadProtocol::Tus) => empty_response(StatusCode::NO_CONTENT),
            (Some(content), _) => content_response(content),
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
            let complete = if content.is_some() { "?1" } else { "?0" };
            set(headers, "upload-complete", complete);
        }
        if content.is_none() {
            self.set_limits(headers, &expires);
        }
        Ok(response)
    }

    /// Takes a body, and finishes the upload when it was the last one. Both go on when the client leaves.
    async fn receive(
        &self,
        ticket: LoadedTicket,
        request: UploadRequest,
        body: Body,
    ) -> Result<(u64, Option<StoredContent>), TicketProblem> {
        let service = self.service.clone();
        let work = async move {
            let received = service.receive(ticket, request, body).await?;
            let offset = received.ticket.record.moved;
            if !received.complete {
                return Ok((offset, None));
            }
            let content = service.finish_upload(received.ticket).await?;
            Ok((offset, Some(content)))
        };
        // hyper drops the request when its connection breaks; what came has to be stored first.
        let task = self.service.inner.tasks.spawn(work);
        task.await.unwrap_or(Err(TicketProblem::Unavailable))
    }

    async fn finish(&self, ticket: LoadedTicket) -> Result<(), TicketProblem> {
        let service = self.service.clone();
        let work = async move { service.finish_upload(ticket).await };
        let finished = self.service.inner.tasks.spawn(work).await;
        match finished.unwrap_or(Err(TicketProblem::Unavailable)) {
            // Another request was faster; the next look shows its result.
            Ok(_) | Err(TicketProblem::Superseded) => Ok(()),
            Err(problem) => Err(problem),
        }
    }

    fn set_limits(&self, headers: &mut HeaderMap, record: &TicketRecord) {
        let now_ms = self.service.inner.clock.now_ms();
        let left_seconds = record.expires_at_ms.saturating_sub(now_ms) / 1000;
        let limits = format!(
            "max-size={}, max-append-size={MAX_PART_BYTES}, max-age={left_seconds}",
            record.max_bytes
        );
        set(headers, "upload-limit", &limits);
    }
}

fn without_type(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    // A creation without content has no type, and one with content has that of a part.
    let part = HeaderValue::from_static("application/offset+octet-stream");
    headers.insert(header::CONTENT_TYPE, part);
    headers
}

fn content_response(content: &StoredContent) -> Response {
    let document = json!({
        "artifact": format!("dray://artifact/{}", content.sha256),
        "sha256": content.sha256,
        "size": content.size,
        "media_type": content.media_type,
        "name": content.name,
    });
    let mut response = Response::new(Body::from(format!("{document}\n")));
    *response.status_mut() = StatusCode::CREATED;
    let headers = response.headers_mut();
    set(headers, "content-type", "application/json");
    response
}

pub(crate) fn empty_response(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Sets a header field; a value that cannot stand in one is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
