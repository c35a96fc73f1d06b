//! Decides whether a fetch is tried again. No other part of the product repeats a fetch.
//!
//! An attempt is repeated after a failure that a later attempt may not have: no connection, a connection that ended
//! before a response, a server that names the time for a retry, or a body whose rest can be requested. Every attempt
//! begins with the URL of the command and is judged from the start.

use std::time::Duration;

use dray_guard::{CanonicalUrl, Code};
use http::HeaderValue;

use crate::body::{BodyCounts, BodyLimits, BodyTransfer};
use crate::coding::ContentCoding;
use crate::error::{FetchError, FetchPhase};
use crate::head::{BodyFraming, BodyPlan};
use crate::label::ResponseLabels;
use crate::resume::BodyResumption;
use crate::validator::is_strong_tag;

/// Most attempts after the first one.
const MAX_RETRIES: u32 = 2;
/// Wait before the first retry, unless the server names a time; each further one waits four times as long.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// Counts the retries of one fetch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryState {
    retries: u32,
}

impl RetryState {
    /// Returns the wait before the next attempt, or `None` when `failure` is final or the wait does not fit into
    /// `left`.
    pub(super) fn next(
        &mut self,
        failure: &FetchError,
        can_resume: bool,
        left: Duration,
    ) -> Option<Duration> {
        if self.retries >= MAX_RETRIES {
            return None;
        }
        let backoff = FIRST_DELAY * 4_u32.pow(self.retries);
        let delay = match (failure.code, failure.phase) {
            (Code::ConnectFailed, FetchPhase::Connect)
            | (Code::ConnectionClosed, FetchPhase::Tls | FetchPhase::Head) => backoff,
            // Only a server that sends `Retry-After` gets another request.
            (Code::HttpStatus(429 | 503), _) => failure.retry_after?,
            // Without a strong validator the body would start again, and the sink cannot rewind.
            (Code::Truncated, FetchPhase::Body) if can_resume => backoff,
            _ => return None,
        };
        if delay >= left {
            return None;
        }
        self.retries += 1;
        Some(delay)
    }
}

/// A partly received body, with the data for requesting its rest.
#[derive(Debug)]
pub(super) struct PartialBody {
    pub(super) transfer: BodyTransfer,
    /// Labels of the file in the first response.
    pub(super) labels: ResponseLabels,
    pub(super) coding: Option<ContentCoding>,
    /// Framing of the first response, which decides whether the length counts as verified.
    pub(super) framing: BodyFraming,
    /// Size of the whole body in bytes, if the first response names it.
    total: Option<u64>,
    /// Strong validator of the first response; `None` for a body that cannot be resumed.
    validator: Option<HeaderValue>,
    /// The URL that sends it. The validator says nothing about another resource, and no other server learns it.
    url: CanonicalUrl,
}

impl PartialBody {
    pub(super) fn new(plan: &BodyPlan, url: &CanonicalUrl, bounds: &BodyLimits) -> Self {
        Self {
            transfer: BodyTransfer::new(plan, bounds),
            labels: plan.labels.clone(),
            coding: plan.coding,
            framing: plan.framing,
            total: match plan.framing {
                BodyFraming::Length(length) => Some(length),
                BodyFraming::Empty
                | BodyFraming::Chunked
                | BodyFraming::Framed
                | BodyFraming::Close => plan.whole,
            },
            validator: plan.validator.clone(),
            url: url.clone(),
        }
    }

    pub(super) const fn can_resume(&self) -> bool {
        self.validator.is_some()
    }

    /// The data for requesting the rest, if `url` is the resource of the first response.
    pub(super) fn resume(&self, url: &CanonicalUrl, counts: &BodyCounts) -> Option<BodyResumption> {
        let validator = self.validator.clone()?;
        // An entity tag belongs to a resource (RFC 9110, section 8.8.3): two files may have the same tag, if it is made
        // of size and time. Signed URLs have another query after each redirect. Many files have the same date.
        let is_same = if is_strong_tag(&validator) {
            self.url.without_query() == url.without_query()
        } else {
            self.url.to_string() == url.to_string()
        };
        is_same.then_some(BodyResumption {
            received: counts.wire,
            total: self.total,
            coding: self.coding,
            validator,
        })
    }
}
