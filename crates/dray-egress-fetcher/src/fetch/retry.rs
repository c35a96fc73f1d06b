//! Decides whether a fetch is tried again. No other part of the product repeats a fetch.
//!
//! An attempt is repeated when its failure says that nothing was decided yet: no connection, a connection that ended
//! before a response, a server that names the time to come back, or a body of which the rest can be asked for. Every
//! attempt begins with the URL of the command and is judged from the start.

use std::time::Duration;

use dray_guard::{CanonicalUrl, Code};
use http::HeaderValue;

use crate::body::{BodyCounts, BodyLimits, BodyTransfer};
use crate::coding::ContentCoding;
use crate::error::{FetchError, FetchPhase};
use crate::head::{BodyFraming, BodyPlan};
use crate::label::ResponseLabels;
use crate::resume::BodyResumption;

/// Most attempts after the first one.
const MAX_RETRIES: u32 = 2;
/// Wait before the first retry, unless the server names a time; each further one waits four times as long.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// The retries of one fetch, by number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryState {
    made: u32,
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
        if self.made >= MAX_RETRIES {
            return None;
        }
        let backoff = FIRST_DELAY * 4_u32.pow(self.made);
        let delay = match (failure.code, failure.phase) {
            (Code::ConnectFailed, FetchPhase::Connect)
            | (Code::ConnectionClosed, FetchPhase::Tls | FetchPhase::Head) => backoff,
            // Only a server that names the time to come back is asked again.
            (Code::HttpStatus(429 | 503), _) => failure.retry_after?,
            // A body without a strong validator would have to begin again, and the sink cannot go back.
            (Code::Truncated, FetchPhase::Body) if can_resume => backoff,
            _ => return None,
        };
        if delay >= left {
            return None;
        }
        self.made += 1;
        Some(delay)
    }
}

/// A body that has begun to come, and how the rest of it can be asked for.
#[derive(Debug)]
pub(super) struct PartialBody {
    pub(super) transfer: BodyTransfer,
    /// What the first response says about the file.
    pub(super) labels: ResponseLabels,
    pub(super) coding: Option<ContentCoding>,
    /// Framing of the first response, which decides whether the length counts as verified.
    pub(super) framing: BodyFraming,
    total: Option<u64>,
    validator: Option<HeaderValue>,
    /// Scheme, host and port of the server that sends it: no other server learns the validator.
    origin: (bool, String, u16),
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
            origin: url_origin(url),
        }
    }

    pub(super) const fn can_resume(&self) -> bool {
        self.validator.is_some()
    }

    /// Builds the request for the rest, if `url` is where the body comes from.
    pub(super) fn resume(&self, url: &CanonicalUrl, counts: &BodyCounts) -> Option<BodyResumption> {
        let validator = self.validator.clone()?;
        (self.origin == url_origin(url)).then_some(BodyResumption {
            received: counts.wire,
            total: self.total,
            coding: self.coding,
            validator,
        })
    }
}

fn url_origin(url: &CanonicalUrl) -> (bool, String, u16) {
    (url.https(), url.host().to_string(), url.port())
}
