//! A request on its way out.

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
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use tokio::time::Instant;

use crate::answer::HttpResponse;
use crate::client::HttpClient;
use crate::error::{FailureKind, HttpError, RequestProgress};
use crate::exactly::announced_length_stream;
use crate::multipart::MultipartForm;
use crate::{ByteStream, Cause};

/// How often progress is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What RFC 3986 leaves as it is; everything else is escaped in forms and queries.
const ESCAPED_BYTES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A request that is being put together. A mistake in it is reported by [`RequestBuilder::send`].
pub struct RequestBuilder {
    client: HttpClient,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Option<(u64, ByteStream)>,
    answer_within: Duration,
    wrong: Option<String>,
}

impl RequestBuilder {
    pub(crate) fn new(client: HttpClient, method: Method, url: &str) -> Self {
        let answer_within = client.limits.answer;
        Self {
            client,
            method,
            url: url.to_owned(),
            headers: HeaderMap::new(),
            body: None,
            answer_within,
            wrong: None,
        }
    }

    /// Adds a header. Characters outside ASCII are sent as UTF-8.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (
            HeaderName::try_from(name),
            HeaderValue::from_bytes(value.as_bytes()),
        ) {
            (Ok(name), Ok(value)) => {
                self.headers.append(name, value);
            }
            _ => self.wrong = Some(format!("header {name}")),
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
            Err(_) => self.wrong = Some("authorization".to_owned()),
        }
        self
    }

    /// Adds to the query.
    #[must_use]
    pub fn query(mut self, pairs: &[(&str, &str)]) -> Self {
        for (name, value) in pairs {
            self.url
                .push(if self.url.contains('?') { '&' } else { '?' });
            self.url.push_str(&encode_pair(name, value));
        }
        self
    }

    /// Longest wait for the head of the answer after the body left; for long polls.
    #[must_use]
    pub const fn answer_within(mut self, wait: Duration) -> Self {
        self.answer_within = wait;
        self
    }

    /// A JSON body.
    #[must_use]
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.bytes("application/json", bytes.into()),
            Err(error) => {
                self.wrong = Some(error.to_string());
                self
            }
        }
    }

    /// An `application/x-www-form-urlencoded` body.
    #[must_use]
    pub fn form(self, pairs: &[(&str, &str)]) -> Self {
        let all: Vec<_> = pairs
            .iter()
            .map(|(name, value)| encode_pair(name, value))
            .collect();
        self.bytes("application/x-www-form-urlencoded", all.join("&").into())
    }

    /// A body at hand.
    #[must_use]
    pub fn bytes(self, media_type: &str, bytes: Bytes) -> Self {
        let size = bytes.len() as u64;
        self.stream(media_type, size, stream::iter([Ok(bytes)]).boxed())
    }

    /// A streamed body of exactly `size` bytes, sent with `Content-Length`.
    #[must_use]
    pub fn stream(mut self, media_type: &str, size: u64, body: ByteStream) -> Self {
        self.body = Some((size, announced_length_stream(size, body)));
        if self.headers.contains_key(CONTENT_TYPE) {
            self
        } else {
            self.header("content-type", media_type)
        }
    }

    /// A form.
    #[must_use]
    pub fn multipart(mut self, form: MultipartForm) -> Self {
        let (media_type, size, body) = form.finish();
        self.body = Some((size, body));
        self.header("content-type", &media_type)
    }

    /// Sends it. `progress` gets the number of further bytes of the body that have left.
    ///
    /// Any answer of the peer is `Ok`, with any status, also one that came before the body was complete.
    ///
    /// # Errors
    ///
    /// See [`FailureKind`]; [`HttpError::sent`] says whether the peer may have got the whole request.
    pub async fn send(self, progress: &(dyn Fn(u64) + Sync)) -> Result<HttpResponse, HttpError> {
        if let Some(wrong) = self.wrong {
            return Err(HttpError::before(FailureKind::Request(wrong)));
        }
        let url = reqwest::Url::parse(&self.url)
            .map_err(|error| HttpError::before(FailureKind::Request(error.to_string())))?;
        if let Some(guard) = &self.client.guard {
            // What is behind a name is checked where it is resolved; a literal address is not resolved.
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
        if let Some((size, body)) = self.body {
            request = request
                .header(CONTENT_LENGTH, size)
                .body(reqwest::Body::wrap_stream(gauge.clone().watch(size, body)));
        } else {
            gauge.complete.store(true, Ordering::Release);
        }
        let idle = self.client.limits.idle;
        let sending = request.send();
        tokio::pin!(sending);
        let mut watch = ProgressWatch::new(idle, self.answer_within);
        loop {
            tokio::select! {
                answer = &mut sending => {
                    watch.look(&gauge, progress);
                    return match answer {
                        Ok(response) => Ok(HttpResponse::new(response, idle)),
                        Err(error) => Err(gauge.failed(error)),
                    };
                }
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    if let Some(after) = watch.look(&gauge, progress) {
                        return Err(HttpError { failure: FailureKind::Idle(after), sent: gauge.sent() });
                    }
                }
            }
        }
    }
}

fn encode_pair(name: &str, value: &str) -> String {
    format!(
        "{}={}",
        utf8_percent_encode(name, ESCAPED_BYTES),
        utf8_percent_encode(value, ESCAPED_BYTES)
    )
}

/// Looks at what moved.
struct ProgressWatch {
    idle: Duration,
    answer: Duration,
    told: u64,
    moved: Instant,
    done: bool,
}

impl ProgressWatch {
    fn new(idle: Duration, answer: Duration) -> Self {
        Self {
            idle,
            answer,
            told: 0,
            moved: Instant::now(),
            done: false,
        }
    }

    /// Reports progress; returns the limit that was passed, if any.
    fn look(&mut self, gauge: &BodyGauge, progress: &(dyn Fn(u64) + Sync)) -> Option<Duration> {
        let left = gauge.left.load(Ordering::Acquire);
        let done = gauge.complete.load(Ordering::Acquire);
        if left > self.told || done != self.done {
            if left > self.told {
                progress(left - self.told);
            }
            self.told = left;
            self.done = done;
            self.moved = Instant::now();
        }
        let limit = if done { self.answer } else { self.idle };
        (self.moved.elapsed() > limit).then_some(limit)
    }
}

/// What is known of a body that the HTTP stack reads.
#[derive(Default)]
struct BodyGauge {
    left: AtomicU64,
    complete: AtomicBool,
    failed: Mutex<Option<Cause>>,
}

impl BodyGauge {
    /// Counts what is taken; keeps the failure of the body for ourselves.
    fn watch(
        self: Arc<Self>,
        size: u64,
        body: ByteStream,
    ) -> impl futures_util::Stream<Item = Result<Bytes, Cause>> + Send + 'static {
        if size == 0 {
            self.complete.store(true, Ordering::Release);
        }
        body.map(move |piece| match piece {
            Ok(piece) => {
                let more = piece.len() as u64;
                if self.left.fetch_add(more, Ordering::AcqRel) + more >= size {
                    self.complete.store(true, Ordering::Release);
                }
                Ok(piece)
            }
            Err(cause) => {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
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

    fn failed(&self, error: reqwest::Error) -> HttpError {
        let body = self
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(cause) = body {
            return HttpError::before(FailureKind::Body(cause));
        }
        let error = error.without_url();
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
        f.debug_struct("Request")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
