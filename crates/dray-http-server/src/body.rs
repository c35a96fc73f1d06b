//! A request body whose chunks must arrive in time. Each wait is limited, not the complete body, so a large upload over
//! a slow connection succeeds as long as it makes progress.

use std::error::Error;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use http_body_util::LengthLimitError;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

/// The reason why the body of a request cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The peer sent nothing for [`crate::ConnectionLimits::body_idle_timeout`].
    #[error("the request body stalled for {} s", .0.as_secs())]
    Stalled(Duration),
    /// The connection broke, or the framing of the body is wrong.
    #[error("the request body broke off")]
    Broken(#[source] hyper::Error),
}

/// The status for a request whose body cannot be read, by the first cause that determines it (RFC 9110 section 15.5):
/// 413 if a byte limit ended the read, 408 if the peer stalled, otherwise 400.
pub fn body_failure_status(error: &(dyn Error + 'static)) -> StatusCode {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return StatusCode::PAYLOAD_TOO_LARGE;
        }
        if let Some(BodyError::Stalled(_)) = error.downcast_ref() {
            return StatusCode::REQUEST_TIMEOUT;
        }
        cause = error.source();
    }
    StatusCode::BAD_REQUEST
}

/// The body of a request. Reading it fails with [`BodyError::Stalled`] when the peer pauses for too long.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    idle: Option<IdleTimer>,
    end: BodyEnd,
}

/// Whether a body has been read to its end. A clone says the same.
#[derive(Clone, Debug)]
pub(crate) struct BodyEnd(Arc<AtomicBool>);

impl BodyEnd {
    pub(crate) fn is_reached(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
struct IdleTimer {
    timeout: Duration,
    /// One timer for all waits, because a body has thousands of them.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether the current wait has started. It starts when a reader waits, so that a slow handler does not use up the
    /// time of the peer.
    is_waiting: bool,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, idle_timeout: Option<Duration>) -> Self {
        Self {
            end: BodyEnd(Arc::new(AtomicBool::new(incoming.is_end_stream()))),
            incoming,
            idle: idle_timeout.map(|timeout| IdleTimer {
                timeout,
                sleep: None,
                is_waiting: false,
            }),
        }
    }

    /// Tells whether this body was read to its end, also after it is dropped.
    pub(crate) fn end(&self) -> BodyEnd {
        self.end.clone()
    }
}

impl IdleTimer {
    /// Ready when the current wait has lasted too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let end = Instant::now() + self.timeout;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            sleep.as_mut().reset(end);
        }
        sleep.as_mut().poll(cx).map(|()| self.timeout)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(cx) {
            if let Some(idle) = &mut this.idle {
                idle.is_waiting = false;
            }
            if frame.is_none() || this.incoming.is_end_stream() {
                this.end.0.store(true, Ordering::Release);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)));
        }
        match &mut this.idle {
            Some(idle) => idle
                .poll_stalled(cx)
                .map(|timeout| Some(Err(BodyError::Stalled(timeout)))),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
