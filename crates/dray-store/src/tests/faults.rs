//! The error that the caller gets for each failure.

use dray_types::{Fault, FaultCode};

use crate::{ConfirmError, PresignError, PutError, ReadError, RequestError};

fn check(error: impl Into<Fault>, code: FaultCode, detail: &str, retryable: bool) {
    let fault = error.into();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (code, detail),
        "{fault:?}"
    );
    assert_eq!(fault.is_retryable(), retryable, "{fault:?}");
    assert!(fault.message.ends_with('.'), "{fault:?}");
    for inside in [
        "s3",
        "http",
        "cas/",
        "bucket",
        "127.0.0.1",
        "XMinio",
        "secret-host",
    ] {
        let text = format!("{} {}", fault.message, fault.advice);
        assert!(
            !text.to_lowercase().contains(&inside.to_lowercase()),
            "{text}"
        );
    }
}

fn unreachable() -> RequestError {
    RequestError::Unreachable("connect to secret-host:9000 refused".into())
}

#[test]
fn failures_of_requests_have_a_code_a_detail_and_retry_advice() {
    let code = || "XMinioSomething".to_owned();
    check(
        unreachable(),
        FaultCode::Unavailable,
        "store_unreachable",
        true,
    );
    check(
        RequestError::TimedOut,
        FaultCode::Timeout,
        "store_timeout",
        true,
    );
    check(
        RequestError::Busy,
        FaultCode::RateLimited,
        "store_busy",
        true,
    );
    let server_error = RequestError::ServerError {
        status: 503,
        code: code(),
    };
    check(
        server_error,
        FaultCode::Unavailable,
        "store_unavailable",
        true,
    );
    check(
        RequestError::Full { code: code() },
        FaultCode::Unavailable,
        "store_full",
        true,
    );
    check(
        RequestError::Missing,
        FaultCode::NotFound,
        "claim_missing",
        false,
    );
    check(
        RequestError::Corrupted { code: code() },
        FaultCode::Unavailable,
        "store_corrupted",
        true,
    );
    let refused = RequestError::Refused {
        status: 403,
        code: code(),
    };
    check(refused, FaultCode::Internal, "store_refused", true);
}

#[test]
fn failures_to_store_say_whether_to_try_again() {
    check(
        PutError::TooLarge { limit: 5 },
        FaultCode::TooLarge,
        "too_large",
        false,
    );
    check(
        PutError::Conflict,
        FaultCode::Unavailable,
        "integrity_mismatch",
        false,
    );
    check(
        PutError::Corrupted,
        FaultCode::Unavailable,
        "store_corrupted",
        true,
    );
    check(
        PutError::EarlierWriteFailed,
        FaultCode::Internal,
        "writer_failed_before",
        true,
    );
    check(
        PutError::Request(unreachable()),
        FaultCode::Unavailable,
        "store_unreachable",
        true,
    );
}

#[test]
fn failures_to_read_are_final_unless_the_store_failed() {
    check(
        ReadError::ForeignTenant,
        FaultCode::Denied,
        "foreign_tenant",
        false,
    );
    check(
        ReadError::UnknownStore("x".to_owned()),
        FaultCode::InvalidArgument,
        "unknown_store",
        false,
    );
    check(
        ReadError::Missing,
        FaultCode::NotFound,
        "claim_missing",
        false,
    );
    check(
        ReadError::Mismatch("short"),
        FaultCode::Unavailable,
        "integrity_mismatch",
        false,
    );
    let too_large = ReadError::TooLarge { size: 9, limit: 5 };
    check(too_large, FaultCode::TooLarge, "too_large", false);
}

#[test]
fn a_link_to_a_file_from_the_web_is_denied() {
    check(
        PresignError::FromWeb {
            host: "a.example".to_owned(),
        },
        FaultCode::Denied,
        "file_from_web",
        false,
    );
    check(
        PresignError::Origin(unreachable()),
        FaultCode::Unavailable,
        "store_unreachable",
        true,
    );
}

#[test]
fn failures_of_links_and_uploads_name_the_cause() {
    check(
        PresignError::ForeignTenant,
        FaultCode::Denied,
        "foreign_tenant",
        false,
    );
    check(
        PresignError::ObjectEnds,
        FaultCode::NotFound,
        "claim_missing",
        false,
    );
    check(
        PresignError::CredentialsEnd,
        FaultCode::Unavailable,
        "credentials_ending",
        true,
    );
    check(
        PresignError::MediaType,
        FaultCode::InvalidArgument,
        "invalid_media_type",
        false,
    );
    check(
        PresignError::Signing(unreachable()),
        FaultCode::Internal,
        "signing_failed",
        true,
    );

    check(
        ConfirmError::NotUploaded,
        FaultCode::NotFound,
        "not_uploaded",
        false,
    );
    check(
        ConfirmError::Mismatch("size"),
        FaultCode::InvalidArgument,
        "upload_mismatch",
        false,
    );
    check(
        ConfirmError::Put(PutError::Conflict),
        FaultCode::Unavailable,
        "integrity_mismatch",
        false,
    );
}
