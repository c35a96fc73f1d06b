//! A response, whose body is read in chunks.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde::de::DeserializeOwned;

use crate::error::{FailureKind, HttpError};
use crate::{ByteStream, Cause};

/// Largest JSON or text response in bytes (4 MiB), because the peer chooses its length and it is kept in memory.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// The head of a response, whose body was not read yet.
pub struct HttpResponse {
    response: reqwest::Response,
    idle: Duration,
}

impl HttpResponse {
    pub(crate) const fn new(response: reqwest::Response, idle: Duration) -> Self {
        Self { response, idle }
    }

    /// The status code of the response, also one that is not in a registry.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        self.response.status().is_success()
    }

    /// A header; `None` when it is absent or not printable ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        // Header values are bytes (RFC 9110 5.5); text beyond ASCII has no agreed encoding.
        self.response.headers().get(name)?.to_str().ok()
    }

    /// `Retry-After` in seconds, fractions included; `None` for a date. At most a week.
    pub fn retry_after(&self) -> Option<Duration> {
        // RFC 9110 10.2.3 defines whole seconds; some platforms send fractions.
        let seconds: f64 = self.header("retry-after")?.trim().parse().ok()?;
        // `from_secs_f64` panics on other values, and the number comes from the peer.
        (seconds.is_finite() && seconds >= 0.0)
            .then(|| Duration::from_secs_f64(seconds.min(604_800.0)))
    }

    /// `Content-Length` as the peer announced it; the received body may be shorter.
    pub fn length(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// The next chunk of the body, of any size; `None` at the end. Cancel safe: a chunk is either returned or stays
    /// unread.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Broken`] and [`FailureKind::Idle`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        // The timeout is for each chunk and not for the whole body, because a large transfer may take long
        // (sandbox-transfer 1.6).
        match tokio::time::timeout(self.idle, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            // `without_url` is necessary, here and below: some platforms carry their token in the path.
            Ok(Err(error)) => Err(HttpError::after(FailureKind::Broken(
                error.without_url().into(),
            ))),
            Err(_) => Err(HttpError::after(FailureKind::Idle(self.idle))),
        }
    }

    /// The complete body, if it has at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`FailureKind::TooLong`], and the errors of [`HttpResponse::chunk`].
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, HttpError> {
        let mut all = Vec::new();
        // The bytes are counted, because `Content-Length` may be absent or wrong.
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
            if all.len() > limit {
                return Err(HttpError::after(FailureKind::TooLong(limit)));
            }
        }
        Ok(all.into())
    }

    /// The body as text of at most 4 MiB, lossily decoded.
    ///
    /// # Errors
    ///
    /// The errors of [`HttpResponse::bytes`].
    pub async fn text(self) -> Result<String, HttpError> {
        let bytes = self.bytes(MAX_RESPONSE_BYTES).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The body as JSON of at most 4 MiB.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`], and the errors of [`HttpResponse::bytes`].
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, HttpError> {
        let bytes = self.bytes(MAX_RESPONSE_BYTES).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| HttpError::after(FailureKind::Malformed(error.to_string())))
    }

    /// The upgraded connection after a response with status 101.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Broken`] when the peer did not switch.
    pub async fn into_upgrade(self) -> Result<reqwest::Upgraded, HttpError> {
        let upgraded = self.response.upgrade().await;
        upgraded.map_err(|error| HttpError::after(FailureKind::Broken(error.without_url().into())))
    }

    /// The body as a stream; each wait for a chunk is limited by the idle timeout.
    pub fn into_stream(self) -> ByteStream {
        stream::unfold(Some(self), |state| async move {
            let mut response = state?;
            match response.chunk().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(response))),
                Ok(None) => None,
                Err(error) => Some((Err(Cause::from(error)), None)),
            }
        })
        .boxed()
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
