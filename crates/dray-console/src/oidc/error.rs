//! The reason why a login through the provider failed: a sentence for the person, and the cause for the log.

use dray_http::{FailureKind, HttpError};
use dray_jwt::TokenError;
use http::StatusCode;

/// A failed login. The texts contain no code, token, secret or address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcError {
    /// The browser has no open attempt with this `state`.
    #[error(
        "This login was not begun in this browser, was used before, or took longer than 10 minutes."
    )]
    NoAttempt,
    /// The response of the provider is malformed, or belongs to another attempt or issuer.
    #[error("The response of the identity provider was refused: {0}.")]
    Response(&'static str),
    /// The provider did not log the person in: the code of RFC 6749 section 4.1.2.1.
    #[error("The identity provider did not log you in: {0}.")]
    Refused(String),
    /// The provider cannot be reached, or is too slow.
    #[error("The identity provider cannot be reached right now.")]
    Unreachable(#[source] HttpError),
    /// A request to the provider took too long.
    #[error("The identity provider took too long to respond.")]
    TimedOut,
    /// The provider failed a few seconds ago, so no request was sent.
    #[error("The identity provider failed a moment ago. Try again in some seconds.")]
    FailedBefore,
    /// The provider is not the configured one, or does not follow the protocol.
    #[error("The identity provider cannot be used: {0}.")]
    Provider(&'static str),
    /// The provider responded with this status.
    #[error("The identity provider failed with status {0}.")]
    Status(u16),
    /// The provider refused the code (`invalid_grant`).
    #[error("The identity provider does not accept the code of this login any longer.")]
    CodeRefused,
    /// The provider refused the client id or its secret (`invalid_client`, `unauthorized_client`).
    #[error("The identity provider refused this console as a client.")]
    ClientRefused,
    /// The ID token was refused, for this reason.
    #[error("The token of the identity provider was refused: {0}.")]
    Token(&'static str),
    /// The keys of the provider are not available.
    #[error(
        "The keys of the identity provider are not available right now. Try again in a minute."
    )]
    KeysUnavailable,
}

impl OidcError {
    /// The refusal with the `error` code of the provider's response.
    pub(super) fn refused_by_provider(code: &str) -> Self {
        // The text is in a URL that anyone can write, so only the characters of a code are shown.
        let is_code = code.len() <= 64
            && code
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        Self::Refused(if is_code { code } else { "error" }.to_owned())
    }

    /// The status of the page.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoAttempt | Self::Response(_) | Self::CodeRefused => StatusCode::BAD_REQUEST,
            Self::Refused(_) | Self::Token(_) => StatusCode::FORBIDDEN,
            Self::Unreachable(_) | Self::TimedOut | Self::FailedBefore | Self::KeysUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Provider(_) | Self::Status(_) | Self::ClientRefused => StatusCode::BAD_GATEWAY,
        }
    }
}

impl From<HttpError> for OidcError {
    fn from(error: HttpError) -> Self {
        match error.failure {
            FailureKind::TooLong(_) => Self::Provider("its response is too long"),
            // A provider that pauses in the middle of its response is reachable, but too slow.
            FailureKind::Idle(_) => Self::TimedOut,
            _ => Self::Unreachable(error),
        }
    }
}

impl From<TokenError> for OidcError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Invalid(reason) => Self::Token(reason),
            TokenError::KeysUnavailable => Self::KeysUnavailable,
        }
    }
}
