//! The DIAL client against scripted servers: origin, limits, and failures.

mod tls;

use std::time::Duration;

use dray_testkit::dial::{DialCore, InjectedFault};
use dray_types::{FaultCode, Period};

use super::*;
use crate::shown::DisplayName;
use dray_dial::origin::{LoadTarget, classify_reference};

const FILE_LIMIT: ByteSize = ByteSize::kib(64);

struct DialFixture {
    core: DialCore,
    client: DialClient,
}

impl DialFixture {
    /// A core with the file `b/a.txt` of 1000 bytes that key `k` may read.
    async fn new() -> Self {
        let core = DialCore::start().await.unwrap();
        core.add_key("k", "b");
        core.put("b/a.txt", vec![b'x'; 1000], "text/plain");
        let client = client(&core.url(), Duration::from_secs(10));
        Self { core, client }
    }

    async fn read(&self, named: &str, limit: ByteSize) -> Result<Vec<u8>, DialError> {
        let credentials = CallerCredentials {
            api_key: Secret::new("k"),
            authorization: Secret::new("Bearer t"),
        };
        read(&self.client, named, &credentials, limit).await
    }
}

fn client(url: &str, silence: Duration) -> DialClient {
    let config = Config {
        dial_read_timeout: Period::millis(u64::try_from(silence.as_millis()).unwrap()),
        ..Config::default()
    };
    dial_client(url, &config).unwrap()
}

async fn read(
    client: &DialClient,
    named: &str,
    credentials: &CallerCredentials,
    limit: ByteSize,
) -> Result<Vec<u8>, DialError> {
    let Ok(LoadTarget::Dial(path)) = classify_reference(named, Some(client.origin())) else {
        panic!("{named} is not a DIAL file");
    };
    let mut file = DialFile::open(client, &path, credentials, limit).await?;
    let mut content = Vec::new();
    while let Some(chunk) = file.next().await? {
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}

/// Checks the failure for `b/a.txt`: code, whether the model can correct it, whether it may be retried, and the
/// message.
async fn check(
    trouble: InjectedFault,
    code: FaultCode,
    is_correctable: bool,
    retryable: bool,
    sentence: &str,
) {
    let fixture = DialFixture::new().await;
    fixture.core.inject_file_fault("b/a.txt", trouble.clone());
    let error = fixture.read("files/b/a.txt", FILE_LIMIT).await.unwrap_err();
    let fault = error.fault(&DisplayName::url("files/b/a.txt"));
    assert_eq!(
        (
            fault.code,
            error.is_correctable(),
            fault.is_retryable(),
            fault.message.as_str()
        ),
        (code, is_correctable, retryable, sentence),
        "{trouble:?} {error:?}"
    );
}

#[tokio::test]
async fn metadata_is_requested_first_and_both_requests_have_the_credentials() {
    let fixture = DialFixture::new().await;
    assert_eq!(
        fixture.read("files/b/a.txt", FILE_LIMIT).await.unwrap(),
        vec![b'x'; 1000]
    );
    assert_eq!(
        fixture.core.requests(),
        ["GET /v1/metadata/files/b/a.txt", "GET /v1/files/b/a.txt"]
    );
    for seen in fixture.core.received_requests() {
        assert_eq!(seen.header("api-key"), "k");
        assert_eq!(seen.header("authorization"), "Bearer t");
        assert_eq!(seen.header("referer"), "");
    }
}

#[tokio::test]
async fn paths_are_sent_percent_encoded_once() {
    let fixture = DialFixture::new().await;
    fixture.core.put("b/ä ö+#?.txt", "umlaut", "text/plain");
    assert_eq!(
        fixture
            .read("//files/b/%C3%A4 %C3%B6+%23%3f.txt", FILE_LIMIT)
            .await
            .unwrap(),
        b"umlaut"
    );
    assert_eq!(
        fixture.core.requests()[1],
        "GET /v1/files/b/%C3%A4%20%C3%B6%2B%23%3F.txt"
    );
}

#[tokio::test]
async fn a_media_type_that_is_too_long_becomes_empty() {
    let fixture = DialFixture::new().await;
    let endless = format!("text/{}", "x".repeat(200));
    for (sent, expected) in [
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        (&endless, ""),
    ] {
        fixture.core.put("b/a.txt", "text", sent);
        let Ok(LoadTarget::Dial(path)) = classify_reference("files/b/a.txt", None) else {
            panic!("the reference must be a file of DIAL");
        };
        let credentials = CallerCredentials {
            api_key: Secret::new("k"),
            authorization: Secret::default(),
        };
        let file = DialFile::open(&fixture.client, &path, &credentials, FILE_LIMIT)
            .await
            .unwrap();
        assert_eq!(file.media_type(), expected);
    }
}

#[tokio::test]
async fn empty_credentials_are_not_sent() {
    let fixture = DialFixture::new().await;
    let read = read(
        &fixture.client,
        "files/b/a.txt",
        &CallerCredentials::default(),
        FILE_LIMIT,
    )
    .await;
    assert!(matches!(read, Err(DialError::Unauthorized)), "{read:?}");
    let requests = fixture.core.received_requests();
    assert!(
        !requests[0].headers.contains_key("api-key")
            && !requests[0].headers.contains_key("authorization")
    );
}

#[tokio::test]
async fn credentials_that_break_headers_are_refused_before_anything_is_sent() {
    let fixture = DialFixture::new().await;
    let credentials = CallerCredentials {
        api_key: Secret::new("k\r\nX: y"),
        authorization: Secret::default(),
    };
    let read = read(&fixture.client, "files/b/a.txt", &credentials, FILE_LIMIT).await;
    assert!(
        matches!(read, Err(DialError::InvalidCredential)),
        "{read:?}"
    );
    assert_eq!(fixture.core.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn refusals_of_dial_have_their_codes_and_sentences() {
    let fixture = DialFixture::new().await;
    for (named, sentence) in [
        (
            "files/other/a.txt",
            "File files/other/a.txt could not be loaded: access is denied.",
        ),
        (
            "files/b/none.txt",
            "File files/b/none.txt could not be loaded: it does not exist.",
        ),
    ] {
        let error = fixture.read(named, FILE_LIMIT).await.unwrap_err();
        assert!(error.is_correctable());
        assert_eq!(error.fault(&DisplayName::url(named)).message, sentence);
    }
    check(
        InjectedFault::Status(401),
        FaultCode::Denied,
        false,
        false,
        "File files/b/a.txt could not be loaded: DIAL does not accept the credentials.",
    )
    .await;
    check(
        InjectedFault::Status(400),
        FaultCode::Unavailable,
        true,
        false,
        "File files/b/a.txt could not be loaded: DIAL answered HTTP status 400.",
    )
    .await;
    check(
        InjectedFault::ContentStatus(404),
        FaultCode::NotFound,
        true,
        false,
        "File files/b/a.txt could not be loaded: it does not exist.",
    )
    .await;
}

#[tokio::test]
async fn temporary_failures_may_be_retried() {
    for status in [500, 502, 503, 504] {
        check(
            InjectedFault::Status(status),
            FaultCode::Unavailable,
            false,
            true,
            "File files/b/a.txt could not be loaded: DIAL failed to answer.",
        )
        .await;
    }
    check(
        InjectedFault::Status(429),
        FaultCode::RateLimited,
        false,
        true,
        "File files/b/a.txt could not be loaded: DIAL is busy.",
    )
    .await;
}

#[tokio::test]
async fn retry_after_is_passed_on_and_capped() {
    for (seconds, expected) in [(7, 7), (86_400, 600)] {
        let fixture = DialFixture::new().await;
        fixture
            .core
            .inject_file_fault("b/a.txt", InjectedFault::Busy(503, seconds));
        let error = fixture.read("files/b/a.txt", FILE_LIMIT).await.unwrap_err();
        let fault = error.fault(&DisplayName::url("files/b/a.txt"));
        assert_eq!(
            fault.retry,
            dray_types::RetryAdvice::After(Duration::from_secs(expected))
        );
    }
}

#[tokio::test]
async fn r2_redirects_are_not_followed() {
    let fixture = DialFixture::new().await;
    let other = DialCore::start().await.unwrap();
    let url = format!("{}/v1/files/b/a.txt", other.url());
    fixture
        .core
        .inject_file_fault("b/a.txt", InjectedFault::Redirect(url));
    let error = fixture.read("files/b/a.txt", FILE_LIMIT).await.unwrap_err();
    assert!(
        matches!(error, DialError::Refused(status) if status == 302),
        "{error:?}"
    );
    assert_eq!(other.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn r3_a_size_equal_to_the_limit_is_allowed() {
    let fixture = DialFixture::new().await;
    let content = fixture.read("files/b/a.txt", ByteSize::bytes(1000)).await;
    assert_eq!(content.unwrap().len(), 1000);
}

#[tokio::test]
async fn r3_a_stated_size_above_the_limit_is_refused_before_the_content() {
    let fixture = DialFixture::new().await;
    let error = fixture
        .read("files/b/a.txt", ByteSize::bytes(999))
        .await
        .unwrap_err();
    let fault = error.fault(&DisplayName::url("files/b/a.txt"));
    assert_eq!(
        fault.message,
        "File size 1000 exceeds the limit of 999 bytes."
    );
    assert_eq!(fault.code, FaultCode::TooLarge);
    assert!(error.is_correctable());
    assert_eq!(fixture.core.requests(), ["GET /v1/metadata/files/b/a.txt"]);
}

#[tokio::test]
async fn r3_a_missing_or_wrong_length_does_not_bypass_the_limit() {
    for trouble in [
        InjectedFault::NoLength,
        InjectedFault::MetadataLength(10),
        InjectedFault::Endless,
    ] {
        let fixture = DialFixture::new().await;
        fixture.core.inject_file_fault("b/a.txt", trouble.clone());
        let error = fixture
            .read("files/b/a.txt", ByteSize::bytes(100))
            .await
            .unwrap_err();
        let fault = error.fault(&DisplayName::url("files/b/a.txt"));
        assert_eq!(
            fault.message, "File size 101 exceeds the limit of 100 bytes.",
            "{trouble:?}"
        );
    }
}

#[tokio::test]
async fn r3_a_content_length_above_the_limit_is_refused_before_the_content() {
    let fixture = DialFixture::new().await;
    fixture
        .core
        .inject_file_fault("b/a.txt", InjectedFault::WrongMetadataLength(10));
    let read = fixture.read("files/b/a.txt", ByteSize::bytes(100)).await;
    assert!(
        matches!(read, Err(DialError::TooLarge { size: 1000, .. })),
        "{read:?}"
    );
}

#[tokio::test]
async fn r3_a_missing_length_within_the_limit_is_accepted() {
    let fixture = DialFixture::new().await;
    fixture
        .core
        .inject_file_fault("b/a.txt", InjectedFault::NoLength);
    assert_eq!(
        fixture
            .read("files/b/a.txt", FILE_LIMIT)
            .await
            .unwrap()
            .len(),
        1000
    );
}

#[tokio::test]
async fn responses_that_contradict_themselves_are_refused() {
    let length = "File files/b/a.txt could not be loaded: its length is not the stated one.";
    for stated in [10, 5000] {
        let code = FaultCode::Unavailable;
        check(
            InjectedFault::MetadataLength(stated),
            code,
            false,
            true,
            length,
        )
        .await;
    }
    let unusable =
        "File files/b/a.txt could not be loaded: DIAL sent a response that cannot be used.";
    for trouble in [InjectedFault::GarbledMetadata, InjectedFault::Encoded] {
        check(trouble, FaultCode::Unavailable, false, true, unusable).await;
    }
    check(
        InjectedFault::Truncated,
        FaultCode::Unavailable,
        false,
        true,
        "File files/b/a.txt could not be loaded: the transfer ended before the file was complete.",
    )
    .await;
}

#[tokio::test]
async fn silence_and_stalls_end_in_a_timeout() {
    for trouble in [InjectedFault::Silent, InjectedFault::Stalled] {
        let fixture = DialFixture::new().await;
        fixture.core.inject_file_fault("b/a.txt", trouble.clone());
        let client = client(&fixture.core.url(), Duration::from_millis(100));
        let credentials = CallerCredentials {
            api_key: Secret::new("k"),
            authorization: Secret::default(),
        };
        let error = read(&client, "files/b/a.txt", &credentials, FILE_LIMIT)
            .await
            .unwrap_err();
        let fault = error.fault(&DisplayName::url("files/b/a.txt"));
        assert_eq!(
            (fault.code, fault.is_retryable()),
            (FaultCode::Timeout, true),
            "{trouble:?} {error:?}"
        );
    }
}

#[tokio::test]
async fn an_origin_that_does_not_listen_is_unreachable() {
    let address = dray_testkit::port::unassigned_address();
    let client = client(&format!("http://{address}"), Duration::from_secs(1));
    let error = read(
        &client,
        "files/b/a.txt",
        &CallerCredentials::default(),
        FILE_LIMIT,
    )
    .await
    .unwrap_err();
    assert!(matches!(error, DialError::Unreachable(_)), "{error:?}");
    let shown = format!("{error:?} {error}");
    assert!(
        !shown.contains("files/b"),
        "the operator's log gets no path: {shown}"
    );
}
