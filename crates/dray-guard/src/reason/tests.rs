//! Tests of section 17: every message is in one golden file, and no message reveals an address or a secret.

use std::fmt::Write as _;

use dray_types::{FaultCode, RetryAdvice};

use super::*;

/// Every code once, in the order of the table; statuses of each kind.
const CODE_TABLE: [Code; 51] = [
    Code::DisabledByAdmin,
    Code::DisabledByApp,
    Code::HostNotInAdminAllowlist,
    Code::HostNotInAppAllowlist,
    Code::PolicyInvalid,
    Code::InvalidUrl,
    Code::UnsupportedScheme,
    Code::UrlCredentials,
    Code::AmbiguousHost,
    Code::PortNotAllowed,
    Code::BlockedHost,
    Code::SsrfBlocked,
    Code::RedirectLimit,
    Code::RedirectDowngrade,
    Code::RedirectInvalid,
    Code::TooLarge,
    Code::Timeout,
    Code::DeadlineExpired,
    Code::DnsNotFound,
    Code::DnsFailure,
    Code::ConnectFailed,
    Code::TlsError,
    Code::ConnectionClosed,
    Code::MalformedResponse,
    Code::HttpStatus(404),
    Code::HttpStatus(410),
    Code::HttpStatus(401),
    Code::HttpStatus(403),
    Code::HttpStatus(407),
    Code::HttpStatus(451),
    Code::HttpStatus(429),
    Code::HttpStatus(408),
    Code::HttpStatus(425),
    Code::HttpStatus(500),
    Code::HttpStatus(501),
    Code::HttpStatus(503),
    Code::HttpStatus(505),
    Code::HttpStatus(300),
    Code::UnexpectedPartial,
    Code::Truncated,
    Code::UnsupportedEncoding,
    Code::DecodeError,
    Code::Overloaded,
    Code::SinkFailed,
    Code::Internal,
    Code::PolicyDenied,
    Code::ApprovalRequired,
    Code::MediaTypeNotAllowed,
    Code::QuotaExceeded,
    Code::RobotsDenied(12),
    Code::RobotsDenied(0),
];

fn url() -> ShownUrl {
    ShownUrl::from_text("https://user:secret@files.example.com:8443/a?token=secret#part")
}

#[test]
fn every_message_is_in_the_golden_file() {
    let mut table = String::new();
    for code in CODE_TABLE {
        let fault = code.fault(&url(), ShownHost::First("files.example.com"));
        let retry = match fault.retry {
            RetryAdvice::Never => "no".to_owned(),
            RetryAdvice::After(delay) => format!("after {delay:?}"),
        };
        writeln!(table, "{} · {} · retry {retry}", fault.detail, fault.code).unwrap();
        writeln!(table, "    {}", fault.message).unwrap();
        if !fault.advice.is_empty() {
            writeln!(table, "    → {}", fault.advice).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

/// Fails to compile when a code is added, and fails when it is not in the list above.
#[test]
fn the_golden_file_contains_every_code() {
    use std::collections::BTreeSet;
    let number = |code: Code| match code {
        Code::DisabledByAdmin => 0,
        Code::DisabledByApp => 1,
        Code::HostNotInAdminAllowlist => 2,
        Code::HostNotInAppAllowlist => 3,
        Code::PolicyInvalid => 4,
        Code::InvalidUrl => 5,
        Code::UnsupportedScheme => 6,
        Code::UrlCredentials => 7,
        Code::AmbiguousHost => 8,
        Code::PortNotAllowed => 9,
        Code::BlockedHost => 10,
        Code::SsrfBlocked => 11,
        Code::RedirectLimit => 12,
        Code::RedirectDowngrade => 13,
        Code::RedirectInvalid => 14,
        Code::TooLarge => 15,
        Code::Timeout => 16,
        Code::DeadlineExpired => 17,
        Code::DnsNotFound => 18,
        Code::DnsFailure => 19,
        Code::ConnectFailed => 20,
        Code::TlsError => 21,
        Code::ConnectionClosed => 22,
        Code::MalformedResponse => 23,
        Code::HttpStatus(_) => 24,
        Code::UnexpectedPartial => 25,
        Code::Truncated => 26,
        Code::UnsupportedEncoding => 27,
        Code::DecodeError => 28,
        Code::Overloaded => 29,
        Code::SinkFailed => 30,
        Code::Internal => 31,
        Code::PolicyDenied => 32,
        Code::MediaTypeNotAllowed => 33,
        Code::QuotaExceeded => 34,
        Code::ApprovalRequired => 35,
        Code::RobotsDenied(_) => 36,
    };
    let numbers: BTreeSet<i32> = CODE_TABLE.into_iter().map(number).collect();
    assert_eq!(numbers, (0..37).collect());
    let listed: BTreeSet<i32> = Code::ALL_REASONS.into_iter().map(number).collect();
    assert_eq!(listed, numbers);
    let names: BTreeSet<&str> = CODE_TABLE.into_iter().map(Code::as_str).collect();
    assert_eq!(names.len(), 37);
}

// I-8: only the URL that the agent wrote is in a message; S-5: and of that, no secret.
#[test]
fn i_8_messages_contain_no_secret_and_no_address() {
    for code in CODE_TABLE {
        let fault = code.fault(&url(), ShownHost::RedirectTarget);
        for word in ["secret", "token", "user:", "#part", "169.254", "127.0.0.1"] {
            assert!(!fault.message.contains(word), "{}", fault.message);
            assert!(!fault.advice.contains(word), "{}", fault.advice);
        }
    }
}

//
#[test]
fn x_6_later_hops_are_the_redirect_target() {
    let check = |hop, expected: &str| {
        let fault = Code::DnsNotFound.fault(&url(), ShownHost::of_hop(hop, "evil.example"));
        assert!(fault.message.ends_with(expected), "{}", fault.message);
    };
    check(
        0,
        "could not be fetched. could not resolve host evil.example.",
    );
    check(
        1,
        "could not be fetched. could not resolve host the redirect target.",
    );
}

/// The file-resolver adds its own advice to the policy sentences.
#[test]
fn policy_sentences_come_without_advice() {
    for code in &CODE_TABLE[..5] {
        let fault = code.fault(&url(), ShownHost::RedirectTarget);
        assert_eq!((fault.advice.as_str(), fault.code), ("", FaultCode::Denied));
    }
}

/// `{u}`: 200 characters of a URL, 80 of anything else, escaped.
#[test]
fn urls_in_messages_are_short_and_escaped() {
    let shown_url = |text: &str| ShownUrl::from_text(text).as_str().to_owned();
    let long = shown_url(&format!("https://example.com/{}?secret", "a".repeat(500)));
    assert_eq!(
        (long.chars().count(), long.contains("secret")),
        (200, false)
    );
    assert_eq!(shown_url(&"ü".repeat(500)).chars().count(), 80);
    assert_eq!(shown_url("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\u{a}b");
    assert_eq!(
        shown_url("http://example.com:8080/p?q#f"),
        "http://example.com:8080/p"
    );
    // The agent sees the spelling that it has to correct.
    assert_eq!(shown_url("http://0x7f.1/p?q"), "http://0x7f.1/p");
}

#[test]
fn a_fault_of_the_fetcher_leads_back_to_its_code_and_one_of_another_service_does_not() {
    for code in CODE_TABLE {
        let fault = code.fault(&url(), ShownHost::First("h.example"));
        let read_back = Code::of_fault(&fault).unwrap();
        assert_eq!(read_back.as_str(), code.as_str());
        assert_eq!(read_back.is_about_url(), code.is_about_url());
    }
    for detail in ["", "no_responder", "circuit_open", "not_found"] {
        let other = Fault::new(FaultCode::Unavailable, "m").detail(detail);
        assert_eq!(Code::of_fault(&other), None, "{detail}");
    }
}

#[test]
fn only_failures_of_the_fetcher_itself_are_not_about_the_url() {
    let own = CODE_TABLE.into_iter().filter(|code| !code.is_about_url());
    assert!(own.eq([
        Code::Overloaded,
        Code::SinkFailed,
        Code::Internal,
        Code::QuotaExceeded,
    ]));
}

#[test]
fn a_policy_refusal_comes_with_the_advice_of_section_34_and_any_other_sentence_as_it_is() {
    for code in CODE_TABLE {
        let sentence = "It is refused.";
        let expected = match code {
            Code::DisabledByAdmin
            | Code::DisabledByApp
            | Code::HostNotInAdminAllowlist
            | Code::HostNotInAppAllowlist
            | Code::PolicyDenied => {
                "It is refused. Upload the file to DIAL and pass `files/...` instead, or use a deployment that supports \
                 url_attachments. URL: https://h.example/a"
            }
            _ => sentence,
        };
        assert_eq!(
            code.model_message(sentence, &"https://h.example/a"),
            expected
        );
    }
}
