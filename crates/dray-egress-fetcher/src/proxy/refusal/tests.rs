//! Codes, responses and labels of refusals.

use super::*;

#[test]
fn a_response_ends_the_connection_and_names_only_the_code() {
    let refusal = ProxyRefusal::Guard(Code::SsrfBlocked, FetchPhase::Dns);
    let response = String::from_utf8(refusal.http_response()).unwrap();
    assert!(
        response.starts_with("HTTP/1.1 403 Forbidden\r\n"),
        "{response}"
    );
    assert!(response.contains("\r\nConnection: close\r\n"));
    assert!(response.contains(
        "\r\nProxy-Status: dray; error=destination_ip_prohibited; details=\"ssrf_blocked\"\r\n"
    ));
    assert!(response.ends_with("\r\n\r\nssrf_blocked\n"));
    let response =
        String::from_utf8(ProxyRefusal::Identity(IdentityError::Missing).http_response()).unwrap();
    assert!(response.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"));
    assert!(response.contains("\r\nProxy-Authenticate: Basic realm=\"egress\""));
}

#[test]
fn every_code_of_the_guard_has_a_reply_in_both_protocols() {
    for code in Code::ALL_REASONS {
        let refusal = ProxyRefusal::Guard(code, FetchPhase::Connect);
        assert!(refusal.status().as_u16() >= 400, "{code}");
        assert_ne!(refusal.socks_reply(), SocksReply::Succeeded, "{code}");
    }
    let blocked = ProxyRefusal::Guard(Code::SsrfBlocked, FetchPhase::Dns);
    assert_eq!(blocked.socks_reply(), SocksReply::NotAllowed);
}

#[test]
fn the_error_type_says_whether_the_request_was_forwarded() {
    let guard = ProxyRefusal::Guard;
    for (refusal, error) in [
        (
            guard(Code::PolicyDenied, FetchPhase::Policy),
            "http_request_denied",
        ),
        (
            guard(Code::Timeout, FetchPhase::Connect),
            "connection_timeout",
        ),
        (
            guard(Code::Timeout, FetchPhase::Head),
            "http_response_timeout",
        ),
        (guard(Code::TlsError, FetchPhase::Tls), "tls_protocol_error"),
        (ProxyRefusal::TargetCertificate, "tls_certificate_error"),
        (
            ProxyRefusal::of_limit(LimitReached::Down),
            "http_response_body_size",
        ),
        (
            ProxyRefusal::of_limit(LimitReached::Up),
            "http_request_error",
        ),
        (
            guard(Code::TooLarge, FetchPhase::Head),
            "http_response_body_size",
        ),
        (
            guard(Code::ConnectionClosed, FetchPhase::Head),
            "connection_terminated",
        ),
        (ProxyRefusal::Response, "http_protocol_error"),
    ] {
        let code = refusal.code();
        let expected = format!("dray; error={error}; details=\"{code}\"");
        assert_eq!(refusal.proxy_status(), expected);
    }
    // No type fits a response that is not passed on.
    let refused = guard(Code::MediaTypeNotAllowed, FetchPhase::Head);
    assert_eq!(
        refused.proxy_status(),
        "dray; details=\"media_type_not_allowed\""
    );
}

#[test]
fn own_codes_are_listed() {
    for refusal in [
        ProxyRefusal::Head(HeadError::TooLarge),
        ProxyRefusal::Head(HeadError::Framing),
        ProxyRefusal::Socks(SocksError::Malformed),
        ProxyRefusal::Socks(SocksError::NoPassword),
        ProxyRefusal::Socks(SocksError::Command),
        ProxyRefusal::Socks(SocksError::AddressType),
        ProxyRefusal::SlowRequest,
        ProxyRefusal::Identity(IdentityError::Missing),
        ProxyRefusal::Identity(IdentityError::Invalid),
        ProxyRefusal::Identity(IdentityError::Expired),
        ProxyRefusal::Identity(IdentityError::OtherTenant),
        ProxyRefusal::TooManyUnidentified,
        ProxyRefusal::TooManyStreams,
        ProxyRefusal::TooManyTenantStreams,
        ProxyRefusal::HostMismatch,
        ProxyRefusal::Hello(HelloError::NotTls),
        ProxyRefusal::Hello(HelloError::TooLong),
        ProxyRefusal::Hello(HelloError::Malformed),
        ProxyRefusal::NoHello,
        ProxyRefusal::ServerNameMissing,
        ProxyRefusal::ServerNameMismatch,
        ProxyRefusal::EncryptedName,
        ProxyRefusal::NoAuthority,
        ProxyRefusal::ClientTls,
        ProxyRefusal::NoHttp1,
        ProxyRefusal::WebSocket,
    ] {
        assert!(
            ProxyRefusal::OWN_CODES.contains(&refusal.code()),
            "{refusal}"
        );
        assert!(!refusal.rule().is_empty());
    }
}
