//! Builds and sends a request.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_types::Secret;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Serialize;
use tokio::time::Instant;

use crate::client::HttpClient;
use crate::error::{FailureKind, HttpError, RequestProgress};
use crate::exact_length::announced_length_stream;
use crate::multipart::MultipartForm;
use crate::response::HttpResponse;
use crate::{ByteStream, Cause};

/// How often progress is reported and timeouts are checked.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The unreserved characters of RFC 3986 are kept; all others are escaped in forms and queries.
const ESCAPED_BYTES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A request under construction. [`RequestBuilder::send`] reports mistakes in it.
pub struct RequestBuilder {
    client: HttpClient,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Option<RequestBody>,
    response_within: Duration,
    mistake: Option<String>,
}

/// A body with its exact length and its content type.
struct RequestBody {
    size: u64,
    bytes: ByteStream,
    media_type: String,
    /// Whether the content type names the boundary of a form, without which the body cannot be read.
    is_multipart: bool,
}

impl RequestBuilder {
    pub(crate) fn new(client: HttpClient, method: Method, url: &str) -> Self {
        let response_within = client.limits.response;
        Self {
            client,
            method,
            url: url.to_owned(),
            headers: HeaderMap::new(),
            body: None,
            response_within,
            mistake: None,
        }
    }

    /// Adds a header, even if one of the same name exists. Characters outside ASCII are sent as UTF-8.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (
            HeaderName::try_from(name),
            HeaderValue::from_bytes(value.as_bytes()),
        ) {
            (Ok(name), Ok(value)) => {
                self.headers.append(name, value);
            }
            // The message has only the name, here and below: the value may be a secret.
            _ => self.mistake = Some(format!("header {name}")),
        }
        self
    }

    /// Adds a header whose value stays out of debug output.
    #[must_use]
    pub fn secret_header(mut self, name: &str, secret: &Secret) -> Self {
        match (
            HeaderName::try_from(name),
            HeaderValue::from_bytes(secret.expose().as_bytes()),
        ) {
            (Ok(name), Ok(mut value)) => {
                value.set_sensitive(true);
                self.headers.append(name, value);
            }
            _ => self.mistake = Some(format!("header {name}")),
        }
        self
    }

    /// `Authorization: <scheme> <secret>`, marked as sensitive.
    #[must_use]
    pub fn authorization(mut self, scheme: &str, secret: &Secret) -> Self {
        match HeaderValue::try_from(format!("{scheme} {}", secret.expose())) {
            Ok(mut value) => {
                value.set_sensitive(true);
                self.headers.insert(AUTHORIZATION, value);
            }
            Err(_) => self.mistake = Some("authorization".to_owned()),
        }
        self
    }

    /// Adds pairs to the query, escaped. A fragment of the URL is dropped; it is never sent (RFC 9110, 7.1).
    #[must_use]
    pub fn query(mut self, pairs: &[(&str, &str)]) -> Self {
        // All text after `#` is the fragment, including `?`, so pairs after it would not be sent.
        if let Some(fragment) = self.url.find('#') {
            self.url.truncate(fragment);
        }
        for (name, value) in pairs {
            self.url
                .push(if self.url.contains('?') { '&' } else { '?' });
            self.url.push_str(&encode_pair(name, value));
        }
        self
    }

    /// Sets the longest wait for the head of the response after the body was sent; for long polls.
    #[must_use]
    pub const fn response_within(mut self, wait: Duration) -> Self {
        self.response_within = wait;
        self
    }

    /// Sets a JSON body with its content type.
    #[must_use]
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.bytes("application/json", bytes.into()),
            Err(error) => {
                self.mistake = Some(error.to_string());
                self
            }
        }
    }

    /// Sets an `application/x-www-form-urlencoded` body.
    #[must_use]
    pub fn form(self, pairs: &[(&str, &str)]) -> Self {
        let all: Vec<_> = pairs
            .iter()
            .map(|(name, value)| encode_pair(name, value))
            .collect();
        self.bytes("application/x-www-form-urlencoded", all.join("&").into())
    }

    /// Sets a body that is in memory.
    #[must_use]
    pub fn bytes(self, media_type: &str, bytes: Bytes) -> Self {
        let size = bytes.len() as u64;
        self.stream(media_type, size, stream::iter([Ok(bytes)]).boxed())
    }

    /// A streamed body of exactly `size` bytes, sent with `Content-Length`. A content type that is set with
    /// [`Self::header`] replaces `media_type`.
    #[must_use]
    pub fn stream(mut self, media_type: &str, size: u64, body: ByteStream) -> Self {
        self.body = Some(RequestBody {
            size,
            bytes: announced_length_stream(size, body),
            media_type: media_type.to_owned(),
            is_multipart: false,
        });
        self
    }

    /// Sets a `multipart/form-data` body with its exact length. Its content type replaces one that is set with
    /// [`Self::header`].
    #[must_use]
    pub fn multipart(mut self, form: MultipartForm) -> Self {
        let (media_type, size, body) = form.finish();
        self.body = Some(RequestBody {
            size,
            bytes: body,
            media_type,
            is_multipart: true,
        });
        self
    }

    /// Adds the body's content type. A request has one content type, regardless of the order in which the caller set
    /// header and body.
    fn add_content_type(&mut self) {
        let Some(body) = &self.body else {
            return;
        };
        if !body.is_multipart && self.headers.contains_key(CONTENT_TYPE) {
            return;
        }
        match HeaderValue::from_bytes(body.media_type.as_bytes()) {
            Ok(media_type) => {
                self.headers.insert(CONTENT_TYPE, media_type);
            }
            Err(_) => self.mistake = Some("header content-type".to_owned()),
        }
    }

    /// Sends the request. `progress` gets the number of further sent bytes of the body.
    ///
    /// Any response of the peer is `Ok`, with any status, even one that arrived before the body was complete.
    ///
    /// # Errors
    ///
    /// See [`FailureKind`]; [`HttpError::sent`] shows whether the peer may have received the complete request.
    pub async fn send(
        mut self,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<HttpResponse, HttpError> {
        self.add_content_type();
        if let Some(mistake) = self.mistake {
            return Err(HttpError::before(FailureKind::Request(mistake)));
        }
        let url = reqwest::Url::parse(&self.url)
            .map_err(|error| HttpError::before(FailureKind::Request(error.to_string())))?;
        if let Some(guard) = &self.client.guard {
            // The addresses of a name are checked during resolution; a literal address is not resolved.
            guard
                .check_url(&url)
                .map_err(|cause| HttpError::before(FailureKind::Connect(cause)))?;
        }
        let gauge = Arc::new(BodyGauge::default());
        let mut request = self
            .client
            .inner
            .request(self.method, url)
            .headers(self.headers);
        if let Some(RequestBody { size, bytes, .. }) = self.body {
            request = request
                // The length is set by hand: a wrapped stream has no known length and would be sent in chunks.
                .header(CONTENT_LENGTH, size)
                .body(reqwest::Body::wrap_stream(gauge.clone().track(size, bytes)));
        } else {
            // Without a body the head is the complete request.
            gauge.complete.store(true, Ordering::Release);
        }
        let idle = self.client.limits.idle;
        let sending = request.send();
        tokio::pin!(sending);
        let mut watch = ProgressWatch::new(idle, self.response_within);
        // Limits by progress, which reqwest's timeouts do not support for a request body.
        loop {
            tokio::select! {
                response = &mut sending => {
                    // Reports the bytes since the last check before the response ends the call.
                    watch.check_progress(&gauge, progress);
                    return match response {
                        Ok(response) => Ok(HttpResponse::new(response, idle)),
                        Err(error) => Err(gauge.request_error(error)),
                    };
                }
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    if let Some(after) = watch.check_progress(&gauge, progress) {
                        return Err(HttpError { failure: FailureKind::Idle(after), sent: gauge.sent() });
                    }
                }
            }
        }
    }
}

fn encode_pair(name: &str, value: &str) -> String {
    format!("{}={}", percent_encode(name), percent_encode(value))
}

/// Escapes all but the unreserved characters.
pub(crate) fn percent_encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED_BYTES)
}

/// Compares the progress with the limits at each check.
struct ProgressWatch {
    idle: Duration,
    response: Duration,
    /// Bytes that were reported until now.
    reported: u64,
    last_progress: Instant,
    is_complete: bool,
}

impl ProgressWatch {
    fn new(idle: Duration, response: Duration) -> Self {
        Self {
            idle,
            response,
            reported: 0,
            last_progress: Instant::now(),
            is_complete: false,
        }
    }

    /// Reports progress. Returns the limit that was passed, if any.
    fn check_progress(
        &mut self,
        gauge: &BodyGauge,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Option<Duration> {
        let read_bytes = gauge.read_bytes.load(Ordering::Acquire);
        let is_complete = gauge.complete.load(Ordering::Acquire);
        if read_bytes > self.reported || is_complete != self.is_complete {
            if read_bytes > self.reported {
                progress(read_bytes - self.reported);
            }
            self.reported = read_bytes;
            self.is_complete = is_complete;
            self.last_progress = Instant::now();
        }
        // The idle timeout applies until all bytes are sent, then the response timeout.
        let limit = if is_complete {
            self.response
        } else {
            self.idle
        };
        (self.last_progress.elapsed() > limit).then_some(limit)
    }
}

/// The state of a body while the HTTP stack reads it.
#[derive(Default)]
struct BodyGauge {
    /// Bytes that the HTTP stack has read.
    read_bytes: AtomicU64,
    complete: AtomicBool,
    body_error: Mutex<Option<Cause>>,
}

impl BodyGauge {
    /// Counts the bytes that the stack reads, and stores a failure of the body for this crate's error.
    fn track(
        self: Arc<Self>,
        size: u64,
        body: ByteStream,
    ) -> impl futures_util::Stream<Item = Result<Bytes, Cause>> + Send + 'static {
        // An empty body has no chunk that could mark its end.
        if size == 0 {
            self.complete.store(true, Ordering::Release);
        }
        body.map(move |chunk| match chunk {
            Ok(chunk) => {
                let more = chunk.len() as u64;
                // The stack has read it but may not have sent it yet: `Complete` means "may have received".
                if self.read_bytes.fetch_add(more, Ordering::AcqRel) + more >= size {
                    self.complete.store(true, Ordering::Release);
                }
                Ok(chunk)
            }
            Err(cause) => {
                *self
                    .body_error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(cause);
                // The stack gets a placeholder, because it would wrap the cause as a broken connection.
                Err("the body failed".into())
            }
        })
    }

    fn sent(&self) -> RequestProgress {
        if self.complete.load(Ordering::Acquire) {
            RequestProgress::Complete
        } else {
            RequestProgress::Incomplete
        }
    }

    fn request_error(&self, error: reqwest::Error) -> HttpError {
        let body = self
            .body_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The body is checked first, because the HTTP stack also reports a failed body as a broken connection.
        if let Some(cause) = body {
            return HttpError::before(FailureKind::Body(cause));
        }
        let error = error.without_url();
        // A request is only written after the connection is made.
        if error.is_connect() {
            return HttpError::before(FailureKind::Connect(error.into()));
        }
        HttpError {
            failure: FailureKind::Broken(error.into()),
            sent: self.sent(),
        }
    }
}

impl fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBuilder")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
