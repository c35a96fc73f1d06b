//! How an open connection ended, for its audit event and for metrics.

use dray_guard::Code;

/// The end of an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Both sides closed the connection.
    Closed,
    /// One side broke off.
    Broken,
    /// No byte for too long.
    Idle,
    /// The longest time of a connection, or its token, ran out.
    Expired,
    /// The target sent something that is not a response of HTTP with one reading, or that contains a credential.
    Malformed,
    /// The policy does not allow the media type of the response.
    MediaType,
    /// The body of the request names a method that the policy does not allow, or a person took back the answer that
    /// allowed the connection.
    Denied,
    /// A quota of the policy files is used up.
    QuotaExceeded,
    /// More bytes than allowed.
    TooLarge,
    /// The process stops, and its drain time is over.
    Stopped,
    /// The task was dropped.
    Cancelled,
}

impl ConnectionEnd {
    /// Every end, for labels.
    pub const ALL_ENDS: [Self; 11] = [
        Self::Closed,
        Self::Malformed,
        Self::MediaType,
        Self::Denied,
        Self::QuotaExceeded,
        Self::Broken,
        Self::Idle,
        Self::Expired,
        Self::TooLarge,
        Self::Stopped,
        Self::Cancelled,
    ];

    /// The end of a connection whose response, or request body, was refused.
    pub const fn of_response(code: Code) -> Self {
        match code {
            Code::MalformedResponse => Self::Malformed,
            Code::MediaTypeNotAllowed => Self::MediaType,
            Code::PolicyDenied => Self::Denied,
            Code::TooLarge => Self::TooLarge,
            _ => Self::Broken,
        }
    }

    /// The code in the audit event; empty for an orderly end.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Closed => "",
            Self::Broken => Code::ConnectionClosed.as_str(),
            Self::Idle => "idle_timeout",
            Self::Expired => Code::Timeout.as_str(),
            Self::Malformed => Code::MalformedResponse.as_str(),
            Self::MediaType => Code::MediaTypeNotAllowed.as_str(),
            Self::Denied => Code::PolicyDenied.as_str(),
            Self::QuotaExceeded => Code::QuotaExceeded.as_str(),
            Self::TooLarge => Code::TooLarge.as_str(),
            Self::Stopped => "stopping",
            Self::Cancelled => "cancelled",
        }
    }

    /// The value of the metric label `code`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "ok",
            other => other.code(),
        }
    }
}
