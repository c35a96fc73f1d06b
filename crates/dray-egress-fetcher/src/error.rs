//! The reason, phase and cause of a fetch that did not succeed.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use dray_guard::Code;

/// The part of a fetch that was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchPhase {
    /// Switches, allowlists and load limits, before any network activity.
    Policy,
    /// Reading the URL or a `Location`.
    Url,
    /// Resolving the name and judging its addresses.
    Dns,
    /// TCP to the pinned addresses, and the check of the peer (T-2).
    Connect,
    /// The TLS handshake, certificate included.
    Tls,
    /// Waiting for the final response head.
    Head,
    /// Receiving and decoding the body.
    Body,
    /// Handing bytes to the sink, or committing them.
    Sink,
    /// The whole fetch ran out of time, in any phase.
    Total,
}

impl FetchPhase {
    /// The name in audit events, metrics and logs. It is stable: dashboards use it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Url => "url",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Head => "head",
            Self::Body => "body",
            Self::Sink => "sink",
            Self::Total => "total",
        }
    }
}

impl fmt::Display for FetchPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refused or failed fetch: the reason, the phase, and the cause for the operator's log.
///
/// The cause may contain addresses and text of a peer; it is never part of a reply (I-8).
#[derive(Debug)]
pub struct FetchError {
    /// The reason, which decides the agent's message and the fault.
    pub code: Code,
    /// The phase that failed.
    pub phase: FetchPhase,
    /// The delay that the server requests: `Retry-After` of a 429 or 503.
    pub retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl FetchError {
    /// A failure without a further cause.
    pub const fn new(code: Code, phase: FetchPhase) -> Self {
        Self {
            code,
            phase,
            retry_after: None,
            source: None,
        }
    }

    /// A phase or the whole fetch ran out of time.
    pub const fn timeout(phase: FetchPhase) -> Self {
        Self::new(Code::Timeout, phase)
    }

    /// Adds the delay that the server requests.
    #[must_use]
    pub const fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Adds the cause, for the operator's log alone.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(cause.into());
        self
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in phase {}", self.code, self.phase)
    }
}

impl StdError for FetchError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
