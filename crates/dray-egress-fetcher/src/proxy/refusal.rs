//! The reason why a client of the proxy is refused or its connection ended: the code for audit and metrics, and what
//! the client gets in its own protocol.
//!
//! A client learns the code and nothing of the network (I-8): no address, no text of a resolver or peer.

use std::time::Duration;

use dray_guard::Code;
use dray_guard::proxy_token::IdentityError;
use http::StatusCode;

use super::head::HeadError;
use super::hello::HelloError;
use super::meter::LimitReached;
use super::socks::{SocksError, SocksReply};
use crate::error::FetchPhase;
use crate::fetch::QuestionId;

mod end;

pub use end::ConnectionEnd;

/// Seconds after which a client may try again while a person is asked.
const APPROVAL_RETRY_SECONDS: u64 = 30;
/// Seconds after which a client that found no free slot may try again.
const OVERLOAD_RETRY_SECONDS: u64 = 5;

/// A refusal, or the failure of a connection that was not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyRefusal {
    /// The request head has more than one reading.
    #[error("the request head was refused")]
    Head(#[source] HeadError),
    /// The messages of SOCKS5 are not valid or not supported.
    #[error("the SOCKS5 message was refused")]
    Socks(#[source] SocksError),
    /// The head or message did not arrive in time. Inside a tunnel, it did not arrive before the client closed either.
    #[error("the request did not come in time")]
    SlowRequest,
    /// The client is not identified.
    #[error("the client is not identified")]
    Identity(#[source] IdentityError),
    /// Too many clients of this address, or of all, are not identified yet.
    #[error("too many clients are not identified yet")]
    TooManyUnidentified,
    /// More streams of HTTP/2 than the process serves.
    #[error("too many streams of HTTP/2")]
    TooManyStreams,
    /// The tenant holds its share of the streams of HTTP/2.
    #[error("too many streams of HTTP/2 for one tenant")]
    TooManyTenantStreams,
    /// The `Host` field names another target.
    #[error("the Host field names another target")]
    HostMismatch,
    /// The guard refused the target, or it could not be reached.
    #[error("{0}")]
    Guard(Code, FetchPhase),
    /// A quota of the policy files is used up; it refills in this many seconds.
    #[error("a quota is used up")]
    Quota(u64),
    /// A person was asked and has not answered yet.
    #[error("a person has not answered yet")]
    Approval(QuestionId),
    /// The tunnel does not begin with a valid `ClientHello`.
    #[error("the first bytes of the tunnel were refused")]
    Hello(#[source] HelloError),
    /// The `ClientHello` did not come in time, or the client closed before it.
    #[error("the tunnel did not begin in time")]
    NoHello,
    /// The `ClientHello` has no server name, and the target is a name.
    #[error("the TLS handshake has no server name")]
    ServerNameMissing,
    /// The server name is not the target.
    #[error("the TLS handshake names another server than the tunnel")]
    ServerNameMismatch,
    /// The `ClientHello` has an encrypted name.
    #[error("the TLS handshake hides its server name")]
    EncryptedName,
    /// A rule requires interception of this tunnel, and no authority is configured.
    #[error("a rule requires interception of this tunnel, and no authority is configured")]
    NoAuthority,
    /// The client did not finish the TLS handshake with the proxy, or has no valid certificate where one is required.
    #[error("the TLS handshake of the client with the proxy failed")]
    ClientTls,
    /// The client offers no HTTP/1 in a tunnel that has to be intercepted.
    #[error("the client offers no HTTP/1 in an intercepted tunnel")]
    NoHttp1,
    /// WebSocket inside an intercepted tunnel.
    #[error("WebSocket is not passed through an intercepted tunnel")]
    WebSocket,
    /// The audit event could not be published, and the operator requires it.
    #[error("the connection could not be audited")]
    Unaudited,
    /// The certificate of the target is not valid for it.
    #[error("the certificate of the target is not valid for it")]
    TargetCertificate,
    /// The response of the target has no single reading.
    #[error("the response of the target was refused")]
    Response,
}

impl ProxyRefusal {
    /// A quota that refills after `delay`, or when a connection ends.
    pub fn quota(delay: Option<Duration>) -> Self {
        // The delay is rounded up: a second too early is refused again.
        Self::Quota(delay.map_or(1, |delay| delay.as_secs() + 1))
    }

    /// The refusal for a client without a response so far, whose connection a limit ends.
    pub fn of_limit(limit: LimitReached) -> Self {
        match limit {
            LimitReached::Quota(delay) => Self::quota(delay),
            LimitReached::Up => Self::Guard(Code::TooLarge, FetchPhase::Body),
            LimitReached::Down => Self::Guard(Code::TooLarge, FetchPhase::Head),
        }
    }

    /// Codes of this type that are not codes of the guard, for metrics that exist from the start.
    pub const OWN_CODES: [&'static str; 22] = [
        "malformed_request",
        "request_too_large",
        "request_timeout",
        "unsupported_command",
        "unidentified",
        "token_invalid",
        "token_expired",
        "tenant_mismatch",
        "too_many_unidentified",
        "too_many_streams",
        "too_many_tenant_streams",
        "host_mismatch",
        "not_tls",
        "malformed_client_hello",
        "client_hello_timeout",
        "server_name_missing",
        "server_name_mismatch",
        "encrypted_client_hello",
        "interception_unavailable",
        "client_tls_failed",
        "http1_not_offered",
        "websocket_refused",
    ];

    /// The name in audit events, metrics and responses. It is stable: dashboards use it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Head(HeadError::TooLarge) => "request_too_large",
            Self::Head(_) | Self::Socks(SocksError::Malformed) => "malformed_request",
            Self::Socks(SocksError::NoPassword) | Self::Identity(IdentityError::Missing) => {
                "unidentified"
            }
            Self::Socks(SocksError::Command | SocksError::AddressType) => "unsupported_command",
            Self::SlowRequest => "request_timeout",
            Self::Identity(IdentityError::Invalid) => "token_invalid",
            Self::Identity(IdentityError::Expired) => "token_expired",
            Self::Identity(IdentityError::OtherTenant) => "tenant_mismatch",
            Self::TooManyUnidentified => "too_many_unidentified",
            Self::TooManyStreams => "too_many_streams",
            Self::TooManyTenantStreams => "too_many_tenant_streams",
            Self::HostMismatch => "host_mismatch",
            Self::Guard(code, _) => code.as_str(),
            Self::Quota(_) => Code::QuotaExceeded.as_str(),
            Self::Approval(_) => Code::ApprovalRequired.as_str(),
            Self::Hello(HelloError::NotTls) => "not_tls",
            Self::Hello(HelloError::Malformed | HelloError::TooLong) => "malformed_client_hello",
            Self::NoHello => "client_hello_timeout",
            Self::ServerNameMissing => "server_name_missing",
            Self::ServerNameMismatch => "server_name_mismatch",
            Self::EncryptedName => "encrypted_client_hello",
            Self::NoAuthority => "interception_unavailable",
            Self::ClientTls => "client_tls_failed",
            Self::NoHttp1 => "http1_not_offered",
            Self::WebSocket => "websocket_refused",
            Self::Unaudited => Code::SinkFailed.as_str(),
            Self::TargetCertificate => Code::TlsError.as_str(),
            Self::Response => Code::MalformedResponse.as_str(),
        }
    }

    /// The rule that refused, for the audit event; empty where it is a step of the policy, or no rule.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Head(_) | Self::Socks(_) | Self::SlowRequest | Self::HostMismatch => "request",
            Self::Identity(_)
            | Self::TooManyUnidentified
            | Self::TooManyStreams
            | Self::TooManyTenantStreams => "identity",
            Self::Hello(_)
            | Self::NoHello
            | Self::ServerNameMissing
            | Self::ServerNameMismatch
            | Self::EncryptedName => "server_name",
            Self::NoAuthority | Self::ClientTls | Self::NoHttp1 | Self::WebSocket => "interception",
            Self::Quota(_) => "quota",
            Self::Unaudited => "audit",
            Self::Approval(_) => "policy_rules",
            Self::Guard(..) | Self::TargetCertificate | Self::Response => "",
        }
    }

    /// The phase in which it happened, as in the events of fetches.
    pub const fn phase(self) -> &'static str {
        match self {
            Self::Guard(_, phase) => phase.as_str(),
            Self::Hello(_)
            | Self::NoHello
            | Self::ServerNameMissing
            | Self::ServerNameMismatch
            | Self::EncryptedName
            | Self::ClientTls
            | Self::NoHttp1
            | Self::TargetCertificate => FetchPhase::Tls.as_str(),
            Self::Response => FetchPhase::Head.as_str(),
            Self::Unaudited => FetchPhase::Sink.as_str(),
            Self::Quota(_)
            | Self::Approval(_)
            | Self::Head(_)
            | Self::Socks(_)
            | Self::SlowRequest
            | Self::Identity(_)
            | Self::TooManyUnidentified
            | Self::TooManyStreams
            | Self::TooManyTenantStreams
            | Self::NoAuthority
            | Self::WebSocket
            | Self::HostMismatch => FetchPhase::Policy.as_str(),
        }
    }

    /// The status of the response over HTTP.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Head(HeadError::TooLarge) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Head(HeadError::Version) => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Head(HeadError::Coding) | Self::WebSocket => StatusCode::NOT_IMPLEMENTED,
            Self::Head(_) | Self::Socks(_) | Self::HostMismatch => StatusCode::BAD_REQUEST,
            Self::SlowRequest => StatusCode::REQUEST_TIMEOUT,
            Self::Identity(_) => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Self::TooManyUnidentified
            | Self::TooManyStreams
            | Self::TooManyTenantStreams
            | Self::Unaudited => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoAuthority => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Guard(code, _) => guard_status(code),
            Self::Quota(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Approval(_)
            | Self::Hello(_)
            | Self::NoHello
            | Self::ServerNameMissing
            | Self::ServerNameMismatch
            | Self::EncryptedName
            | Self::ClientTls
            | Self::NoHttp1 => StatusCode::FORBIDDEN,
            Self::TargetCertificate | Self::Response => StatusCode::BAD_GATEWAY,
        }
    }

    /// The error type of `Proxy-Status` (RFC 9209, section 2.3); `None` where no type fits.
    const fn proxy_error(self) -> Option<&'static str> {
        let error = match self {
            Self::Guard(code, phase) => return guard_proxy_error(code, phase),
            Self::TargetCertificate => "tls_certificate_error",
            Self::Response => "http_protocol_error",
            Self::Head(_) | Self::Socks(_) | Self::SlowRequest | Self::HostMismatch => {
                "http_request_error"
            }
            Self::Identity(_)
            | Self::Quota(_)
            | Self::Approval(_)
            | Self::Hello(_)
            | Self::NoHello
            | Self::ServerNameMissing
            | Self::ServerNameMismatch
            | Self::EncryptedName
            | Self::ClientTls
            | Self::NoHttp1
            | Self::WebSocket => "http_request_denied",
            Self::TooManyUnidentified | Self::TooManyStreams | Self::TooManyTenantStreams => {
                "connection_limit_reached"
            }
            Self::Unaudited => "proxy_internal_error",
            Self::NoAuthority => "proxy_configuration_error",
        };
        Some(error)
    }

    /// The value of `Proxy-Status`: the error type, where there is one, and the code.
    pub fn proxy_status(self) -> String {
        let code = self.code();
        match self.proxy_error() {
            Some(error) => format!("dray; error={error}; details=\"{code}\""),
            None => format!("dray; details=\"{code}\""),
        }
    }

    /// The whole response over HTTP/1.1, after which the connection closes. The scheme of the challenge is `Basic`, for
    /// clients that take user name and password from the URL of a proxy.
    pub fn http_response(self) -> Vec<u8> {
        let status = self.status();
        let reason = status.canonical_reason().unwrap_or_default();
        let challenge = match self {
            Self::Identity(_) => {
                "Proxy-Authenticate: Basic realm=\"egress\", charset=\"UTF-8\"\r\n"
            }
            _ => "",
        };
        let body = self.body();
        let retry = self
            .retry_after()
            .map_or_else(String::new, |seconds| format!("Retry-After: {seconds}\r\n"));
        format!(
            "HTTP/1.1 {} {reason}\r\n{challenge}{retry}Proxy-Status: {}\r\nContent-Type: text/plain\r\n\
             Content-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
            status.as_u16(),
            self.proxy_status(),
            body.len(),
        )
        .into_bytes()
    }

    /// Seconds after which the client may try again, where a later request may have another result.
    pub fn retry_after(self) -> Option<u64> {
        match self {
            Self::Approval(_) => Some(APPROVAL_RETRY_SECONDS),
            Self::Quota(seconds) => Some(seconds),
            _ if self.status() == StatusCode::SERVICE_UNAVAILABLE => Some(OVERLOAD_RETRY_SECONDS),
            _ => None,
        }
    }

    /// The body of the response: the code, and the question that waits for a person, if there is one.
    pub fn body(self) -> String {
        let code = self.code();
        match self {
            Self::Approval(id) => format!(
                "{code}\nQuestion {id} waits for a person to answer whether this session may reach the host. \
                 Try again after that; trying again does not repeat the question.\n"
            ),
            _ => format!("{code}\n"),
        }
    }

    /// The TLS alert for a tunnel that was granted and then refused (RFC 8446, section 6.2): fatal `access_denied`, or
    /// `no_application_protocol` (RFC 7301, section 3.2) where the client may try another protocol.
    pub const fn tls_alert(self) -> [u8; 7] {
        let description = match self {
            Self::NoHttp1 => 120,
            _ => 49,
        };
        [21, 3, 3, 0, 2, 2, description]
    }

    /// The reply over SOCKS5.
    pub const fn socks_reply(self) -> SocksReply {
        match self {
            Self::Socks(SocksError::Command) => SocksReply::Command,
            Self::Socks(SocksError::AddressType) => SocksReply::AddressType,
            Self::Guard(Code::DnsNotFound | Code::DnsFailure, _) => SocksReply::HostUnreachable,
            Self::Guard(Code::ConnectFailed, _) => SocksReply::Refused,
            Self::Guard(Code::Timeout, _) => SocksReply::Expired,
            Self::Quota(_) | Self::Approval(_) => SocksReply::NotAllowed,
            Self::Guard(code, _) if matches!(guard_status(code), StatusCode::FORBIDDEN) => {
                SocksReply::NotAllowed
            }
            _ => SocksReply::Failed,
        }
    }
}

const fn guard_status(code: Code) -> StatusCode {
    match code {
        Code::InvalidUrl | Code::UrlCredentials | Code::AmbiguousHost => StatusCode::BAD_REQUEST,
        Code::UnsupportedScheme => StatusCode::NOT_IMPLEMENTED,
        Code::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        Code::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        Code::Timeout | Code::DeadlineExpired => StatusCode::GATEWAY_TIMEOUT,
        Code::Internal | Code::SinkFailed => StatusCode::INTERNAL_SERVER_ERROR,
        Code::DnsNotFound
        | Code::DnsFailure
        | Code::ConnectFailed
        | Code::TlsError
        | Code::ConnectionClosed
        | Code::MalformedResponse
        | Code::HttpStatus(_)
        | Code::UnexpectedPartial
        | Code::Truncated
        | Code::UnsupportedEncoding
        | Code::DecodeError => StatusCode::BAD_GATEWAY,
        Code::DisabledByAdmin
        | Code::DisabledByApp
        | Code::HostNotInAdminAllowlist
        | Code::HostNotInAppAllowlist
        | Code::PolicyInvalid
        | Code::PortNotAllowed
        | Code::BlockedHost
        | Code::SsrfBlocked
        | Code::PolicyDenied
        | Code::ApprovalRequired
        | Code::MediaTypeNotAllowed
        | Code::RobotsDenied(_)
        | Code::RedirectLimit
        | Code::RedirectDowngrade
        | Code::RedirectInvalid
        | Code::TooLarge => StatusCode::FORBIDDEN,
    }
}

/// The error type of a code. `http_request_denied` says that the request was not forwarded, so that a client may send it
/// again: it does not fit what happened after that.
const fn guard_proxy_error(code: Code, phase: FetchPhase) -> Option<&'static str> {
    let error = match (code, phase) {
        (Code::TooLarge, FetchPhase::Head) => "http_response_body_size",
        (Code::InvalidUrl | Code::UrlCredentials | Code::AmbiguousHost | Code::TooLarge, _) => {
            "http_request_error"
        }
        (Code::SsrfBlocked, _) => "destination_ip_prohibited",
        (Code::DnsNotFound, _) => "destination_not_found",
        (Code::DnsFailure, _) => "dns_error",
        (Code::Timeout, FetchPhase::Dns) => "dns_timeout",
        (Code::Timeout, FetchPhase::Head | FetchPhase::Body) => "http_response_timeout",
        (Code::Timeout | Code::DeadlineExpired, _) => "connection_timeout",
        (Code::ConnectFailed, _) => "connection_refused",
        (Code::ConnectionClosed, _) => "connection_terminated",
        (Code::TlsError, _) => "tls_protocol_error",
        (Code::MalformedResponse, _) => "http_protocol_error",
        (Code::Overloaded, _) => "connection_limit_reached",
        (Code::Internal | Code::SinkFailed, _) => "proxy_internal_error",
        (Code::MediaTypeNotAllowed, _) => return None,
        _ => "http_request_denied",
    };
    Some(error)
}

#[cfg(test)]
mod tests;
