//! Chat platforms. They confirm, refuse, require a delay, lose responses and stall. Some make one message of two
//! requests with the same key.

use std::time::Duration;

use dray_platform::{DuplicateProtection, ErrorKind, RateLimits, SendOutcome};
use rand::Rng;

use crate::executor::VirtualTime;

/// A platform with one kind of protection against duplicates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlatformModel {
    pub(crate) name: &'static str,
    pub(crate) protection: DuplicateProtection,
    /// How long the platform makes one message of two requests with the same key.
    pub(crate) dedup_window: Duration,
}

/// The four kinds of the product's platforms. Their accounts have no rate limit here: with one account for the whole
/// cluster, that limit would hide all others.
pub(crate) const PLATFORMS: [PlatformModel; 4] = [
    PlatformModel {
        name: "without protection",
        protection: DuplicateProtection::Unknown,
        dedup_window: Duration::ZERO,
    },
    PlatformModel {
        name: "key for some minutes",
        protection: DuplicateProtection::Resend(Duration::from_mins(2)),
        dedup_window: Duration::from_mins(5),
    },
    PlatformModel {
        name: "key for ever",
        protection: DuplicateProtection::ResendAlways,
        dedup_window: Duration::MAX,
    },
    PlatformModel {
        name: "can be asked",
        protection: DuplicateProtection::Reconcile,
        dedup_window: Duration::ZERO,
    },
];

/// Rates of a chat, as the adapters report them.
pub(crate) const CHAT_RATES: RateLimits = RateLimits {
    account_per_minute: 1_000_000,
    chat_per_minute: 60,
};

/// Longest wait of a client for a response, from the last byte of the request on: the value of `dray-http`.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);

/// The fate of one visible request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFate {
    /// When the platform carries it out, after the send; `None` for never.
    pub(crate) shown_after: Option<VirtualTime>,
    /// When the client learns the result.
    pub(crate) response_after: VirtualTime,
    /// The client's view of a failure; `None` for a confirmation.
    pub(crate) failure: Option<PlatformFailure>,
}

/// A failed request, as an adapter reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlatformFailure {
    pub(crate) kind: ErrorKind,
    pub(crate) outcome: SendOutcome,
    pub(crate) retry_after: Option<Duration>,
}

impl PlatformFailure {
    const fn new(kind: ErrorKind, outcome: SendOutcome) -> Self {
        Self {
            kind,
            outcome,
            retry_after: None,
        }
    }
}

/// Draws what happens to a request; each fault has the probability `fault`.
pub(crate) fn draw_fate(random: &mut impl Rng, fault: f64) -> RequestFate {
    let latency = random.random_range(50_000..500_000);
    let confirmed = RequestFate {
        shown_after: Some(latency / 2),
        response_after: latency,
        failure: None,
    };
    let failed = |shown_after, response_after, failure| RequestFate {
        shown_after,
        response_after,
        failure: Some(failure),
    };
    let ambiguous = PlatformFailure::new(ErrorKind::Transient, SendOutcome::Ambiguous);
    let timeout = u64::try_from(RESPONSE_TIMEOUT.as_micros()).unwrap_or(u64::MAX);
    let drawn: f64 = random.random_range(0.0..1.0);
    if drawn >= 8.0 * fault {
        return confirmed;
    }
    // The branches have equal shares.
    let choice = random.random_range(0..8);
    match choice {
        // The response is lost: the connection breaks after the request was carried out, or before.
        0 => failed(Some(latency / 2), latency, ambiguous),
        1 => failed(None, latency, ambiguous),
        // The request was not sent.
        2 => failed(
            None,
            latency,
            PlatformFailure::new(ErrorKind::Transient, SendOutcome::NotSent),
        ),
        // The platform responds with 429 and a delay.
        3 => {
            let delay = Duration::from_secs(random.random_range(1..120));
            let limited = PlatformFailure {
                retry_after: Some(delay),
                ..PlatformFailure::new(ErrorKind::RateLimited, SendOutcome::NotSent)
            };
            failed(None, latency, limited)
        }
        // The platform responds with 5xx after the body: the request was carried out or not.
        4 => failed(Some(latency), latency, ambiguous),
        // The platform refuses it permanently.
        5 => failed(
            None,
            latency,
            PlatformFailure::new(ErrorKind::Forbidden, SendOutcome::NotSent),
        ),
        // The platform stalls, and confirms in the end.
        6 => {
            let stall = random.random_range(2_000_000..100_000_000);
            RequestFate {
                shown_after: Some(stall),
                response_after: stall + latency,
                failure: None,
            }
        }
        // The platform stalls longer than the client waits, and carries the request out late or never.
        _ => {
            let shown = random
                .random_bool(0.5)
                .then(|| random.random_range(5_000_000..timeout));
            failed(shown, timeout, ambiguous)
        }
    }
}
