//! The reasons why a fetch was refused or failed, with the message for the agent (section 17).
//!
//! A code is matched by value, never by its text. Messages hold no address, no resolver text and nothing
//! that a server sent; causes belong in the operator's log.

use std::fmt;
use std::time::Duration;

use dray_types::{Fault, FaultCode};

mod message;

pub use dray_types::RedactedUrl as ShownUrl;

/// Advice for a model when a policy refuses a URL (quickapps 34).
const POLICY_ADVICE: &str = "Upload the file to DIAL and pass `files/...` instead, or use a deployment that supports \
                             url_attachments.";

/// The reason of a refusal or failure. Logs, audit and metrics use [`Code::as_str`]; on the wire it is the detail of a
/// [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each variant is explained by its message below"
)]
pub enum Code {
    DisabledByAdmin,
    DisabledByApp,
    HostNotInAdminAllowlist,
    HostNotInAppAllowlist,
    PolicyInvalid,
    InvalidUrl,
    UnsupportedScheme,
    UrlCredentials,
    AmbiguousHost,
    PortNotAllowed,
    BlockedHost,
    SsrfBlocked,
    PolicyDenied,
    ApprovalRequired,
    MediaTypeNotAllowed,
    QuotaExceeded,
    /// The robots.txt of the host refuses the path by this line; 0 where the file could not be read.
    RobotsDenied(u32),
    RedirectLimit,
    RedirectDowngrade,
    RedirectInvalid,
    TooLarge,
    Timeout,
    DeadlineExpired,
    DnsNotFound,
    DnsFailure,
    ConnectFailed,
    TlsError,
    ConnectionClosed,
    MalformedResponse,
    /// The server answered this status, which is neither a success nor a redirect.
    HttpStatus(u16),
    UnexpectedPartial,
    Truncated,
    UnsupportedEncoding,
    DecodeError,
    Overloaded,
    SinkFailed,
    Internal,
}

/// How a host is named in a message: the agent's own first host, or not at all.
///
/// A hostile `Location` must not add text to a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownHost<'a> {
    /// The canonical host of the URL that the agent wrote.
    First(&'a str),
    /// A later hop, whose host a server chose.
    RedirectTarget,
}

impl<'a> ShownHost<'a> {
    /// The host of hop number `hop` (0 is the first).
    pub fn of_hop(hop: u32, host: &'a str) -> Self {
        if hop == 0 {
            Self::First(host)
        } else {
            Self::RedirectTarget
        }
    }
}

impl fmt::Display for ShownHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(host) => f.write_str(host),
            Self::RedirectTarget => f.write_str("the redirect target"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Code {}

impl Code {
    /// Every reason, with one status and one line for all others.
    pub const ALL_REASONS: [Self; 37] = [
        Self::DisabledByAdmin,
        Self::DisabledByApp,
        Self::HostNotInAdminAllowlist,
        Self::HostNotInAppAllowlist,
        Self::PolicyInvalid,
        Self::InvalidUrl,
        Self::UnsupportedScheme,
        Self::UrlCredentials,
        Self::AmbiguousHost,
        Self::PortNotAllowed,
        Self::BlockedHost,
        Self::SsrfBlocked,
        Self::PolicyDenied,
        Self::ApprovalRequired,
        Self::MediaTypeNotAllowed,
        Self::QuotaExceeded,
        Self::RobotsDenied(1),
        Self::RedirectLimit,
        Self::RedirectDowngrade,
        Self::RedirectInvalid,
        Self::TooLarge,
        Self::Timeout,
        Self::DeadlineExpired,
        Self::DnsNotFound,
        Self::DnsFailure,
        Self::ConnectFailed,
        Self::TlsError,
        Self::ConnectionClosed,
        Self::MalformedResponse,
        Self::HttpStatus(503),
        Self::UnexpectedPartial,
        Self::Truncated,
        Self::UnsupportedEncoding,
        Self::DecodeError,
        Self::Overloaded,
        Self::SinkFailed,
        Self::Internal,
    ];

    /// The name used in logs, audit and metrics, and as the detail of the fault.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DisabledByAdmin => "disabled_by_admin",
            Self::DisabledByApp => "disabled_by_app",
            Self::HostNotInAdminAllowlist => "host_not_in_admin_allowlist",
            Self::HostNotInAppAllowlist => "host_not_in_app_allowlist",
            Self::PolicyInvalid => "policy_invalid",
            Self::InvalidUrl => "invalid_url",
            Self::UnsupportedScheme => "unsupported_scheme",
            Self::UrlCredentials => "url_credentials",
            Self::AmbiguousHost => "ambiguous_host",
            Self::PortNotAllowed => "port_not_allowed",
            Self::BlockedHost => "blocked_host",
            Self::SsrfBlocked => "ssrf_blocked",
            Self::PolicyDenied => "policy_denied",
            Self::ApprovalRequired => "approval_required",
            Self::MediaTypeNotAllowed => "media_type_not_allowed",
            Self::QuotaExceeded => "quota_exceeded",
            Self::RobotsDenied(_) => "robots_denied",
            Self::RedirectLimit => "redirect_limit",
            Self::RedirectDowngrade => "redirect_downgrade",
            Self::RedirectInvalid => "redirect_invalid",
            Self::TooLarge => "too_large",
            Self::Timeout => "timeout",
            Self::DeadlineExpired => "deadline_expired",
            Self::DnsNotFound => "dns_not_found",
            Self::DnsFailure => "dns_failure",
            Self::ConnectFailed => "connect_failed",
            Self::TlsError => "tls_error",
            Self::ConnectionClosed => "connection_closed",
            Self::MalformedResponse => "malformed_response",
            Self::HttpStatus(_) => "http_status",
            Self::UnexpectedPartial => "unexpected_partial",
            Self::Truncated => "truncated",
            Self::UnsupportedEncoding => "unsupported_encoding",
            Self::DecodeError => "decode_error",
            Self::Overloaded => "overloaded",
            Self::SinkFailed => "sink_failed",
            Self::Internal => "internal",
        }
    }

    /// The reason that a fault of the fetcher names as its detail; `None` for a detail of another service.
    ///
    /// The detail does not contain the status of [`Code::HttpStatus`] and the line of [`Code::RobotsDenied`], so the
    /// returned ones are arbitrary.
    pub fn of_fault(fault: &Fault) -> Option<Self> {
        let mut codes = Self::ALL_REASONS.into_iter();
        codes.find(|code| code.as_str() == fault.detail)
    }

    /// Whether the failure is about the URL: a decision on it, or what its server did. The agent that chose the URL can
    /// choose another. Every other failure is about the fetcher or the store.
    pub const fn is_about_url(self) -> bool {
        !matches!(
            self,
            Self::Overloaded | Self::QuotaExceeded | Self::SinkFailed | Self::Internal
        )
    }

    /// Whether the request failed: it was not refused, but did not end well. Every other code is the refusal by a
    /// policy, the guard, a quota or a limit.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::DeadlineExpired
                | Self::DnsNotFound
                | Self::DnsFailure
                | Self::ConnectFailed
                | Self::TlsError
                | Self::ConnectionClosed
                | Self::MalformedResponse
                | Self::HttpStatus(_)
                | Self::UnexpectedPartial
                | Self::Truncated
                | Self::UnsupportedEncoding
                | Self::DecodeError
                | Self::SinkFailed
                | Self::Internal
        )
    }

    /// The fetcher's sentence as a model reads it: with advice where a policy refuses fetching or the host (quickapps
    /// 34). `url` is shown, so it must contain no credential and no query.
    pub fn model_message(self, sentence: &str, url: &dyn fmt::Display) -> String {
        match self {
            Self::DisabledByAdmin
            | Self::DisabledByApp
            | Self::HostNotInAdminAllowlist
            | Self::HostNotInAppAllowlist
            | Self::PolicyDenied => format!("{sentence} {POLICY_ADVICE} URL: {url}"),
            _ => sentence.to_owned(),
        }
    }

    /// The fault for the agent: message, code and retry of section 17.
    ///
    /// `original` is the URL the agent wrote, `host` the host of the hop that failed.
    pub fn fault(self, original: &ShownUrl, host: ShownHost<'_>) -> Fault {
        let fault = Fault::new(self.fault_code(), self.message(original, host))
            .detail(self.as_str())
            .advice(self.advice());
        match self.retry_after() {
            Some(delay) => fault.retry_after(delay),
            None => fault,
        }
    }

    /// The code of the closed set of faults, as it travels on the wire.
    pub const fn fault_code(self) -> FaultCode {
        match self {
            Self::DisabledByAdmin
            | Self::DisabledByApp
            | Self::HostNotInAdminAllowlist
            | Self::HostNotInAppAllowlist
            | Self::PolicyInvalid
            | Self::PortNotAllowed
            | Self::BlockedHost
            | Self::SsrfBlocked
            | Self::PolicyDenied
            | Self::ApprovalRequired
            | Self::MediaTypeNotAllowed
            | Self::RobotsDenied(_)
            | Self::RedirectLimit
            | Self::RedirectDowngrade
            | Self::HttpStatus(401 | 403 | 407 | 451) => FaultCode::Denied,
            Self::InvalidUrl | Self::UrlCredentials | Self::AmbiguousHost => {
                FaultCode::InvalidArgument
            }
            Self::UnsupportedScheme | Self::UnsupportedEncoding => FaultCode::Unsupported,
            Self::TooLarge => FaultCode::TooLarge,
            Self::Timeout | Self::DeadlineExpired => FaultCode::Timeout,
            Self::DnsNotFound | Self::HttpStatus(404 | 410) => FaultCode::NotFound,
            Self::Overloaded | Self::QuotaExceeded | Self::HttpStatus(429) => {
                FaultCode::RateLimited
            }
            Self::RedirectInvalid
            | Self::DnsFailure
            | Self::ConnectFailed
            | Self::TlsError
            | Self::ConnectionClosed
            | Self::MalformedResponse
            | Self::HttpStatus(_)
            | Self::UnexpectedPartial
            | Self::Truncated
            | Self::DecodeError
            | Self::SinkFailed => FaultCode::Unavailable,
            Self::Internal => FaultCode::Internal,
        }
    }

    /// Whether the same command may succeed later (column R of section 17).
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::DnsFailure
                | Self::ConnectFailed
                | Self::ConnectionClosed
                // 501 and 505 are left out: the server will lack the feature the next time too.
                | Self::HttpStatus(408 | 425 | 429 | 500 | 502..=504)
                | Self::Truncated
                | Self::Overloaded
                | Self::ApprovalRequired
                | Self::QuotaExceeded
                | Self::SinkFailed
                | Self::Internal
        )
    }

    /// Least delay before a repetition: longer where the service is busy than where one connection failed.
    const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Overloaded | Self::HttpStatus(429) => Some(Duration::from_secs(5)),
            // A person needs some time to answer.
            Self::ApprovalRequired => Some(Duration::from_secs(30)),
            _ if self.is_retryable() => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
