//! Conversions between platforms and [`dray_http`]: streams of stored bytes, and failed requests.

use dray_http::{FailureKind, RequestProgress};
use futures_util::StreamExt as _;
use url::Url;

use crate::delivery::ByteStream;
use crate::error::{ErrorKind, PlatformError};

/// Parses an option that is the base URL of a platform's API.
///
/// # Errors
/// [`ErrorKind::BadFormat`] with the name of the option, for a URL that breaks [`dray_http::BASE_URL_RULE`].
pub fn parse_base_url(option: &str, text: &str) -> Result<Url, PlatformError> {
    dray_http::parse_base_url(text).ok_or_else(|| {
        let rule = dray_http::BASE_URL_RULE;
        PlatformError::new(ErrorKind::BadFormat, format!("{option} {rule}"))
    })
}

/// The stream as a request body. Its error becomes [`ErrorKind::Source`].
pub fn request_body(stream: ByteStream) -> dray_http::ByteStream {
    stream
        .map(|chunk| chunk.map_err(|error| Box::new(error).into()))
        .boxed()
}

/// The body of a response as a stream. A broken connection becomes [`ErrorKind::Transient`].
pub fn response_stream(response: dray_http::HttpResponse) -> ByteStream {
    response
        .into_stream()
        .map(|chunk| {
            chunk.map_err(|cause| {
                PlatformError::new(ErrorKind::Transient, "the download broke").caused_by(cause)
            })
        })
        .boxed()
}

/// The same stream; it fails with [`ErrorKind::Transient`] when it has more or fewer bytes than `size`.
pub fn exact_length_stream(size: u64, body: ByteStream) -> ByteStream {
    dray_http::exact_length_stream(size, body, move |received| {
        let reason = if received > size {
            "the file is longer than reported"
        } else {
            "the file is shorter than reported"
        };
        PlatformError::new(ErrorKind::Transient, reason)
    })
}

/// Maps a request without a usable response. It is ambiguous if the complete request may have arrived.
impl From<dray_http::HttpError> for PlatformError {
    fn from(error: dray_http::HttpError) -> Self {
        let kind = match &error.failure {
            // The connection failed, not the request: another attempt may work.
            FailureKind::Connect(_) | FailureKind::Broken(_) | FailureKind::Idle(_) => {
                ErrorKind::Transient
            }
            // The body comes from this system's store, so the failure is not the peer's.
            FailureKind::Body(_) => ErrorKind::Source,
            // A response arrived that is not valid in the protocol, so the outcome is unknown.
            FailureKind::TooLong(_) | FailureKind::Malformed(_) => ErrorKind::Unknown,
            // The request could not be built, and never will be.
            FailureKind::Options(_) | FailureKind::Request(_) => ErrorKind::BadFormat,
        };
        let sent = error.sent;
        let failed = Self::new(kind, error.to_string()).caused_by(error);
        match sent {
            RequestProgress::Incomplete => failed,
            RequestProgress::Complete => failed.ambiguous(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::error::SendOutcome;

    #[test]
    fn a_base_url_that_requests_cannot_extend_is_refused_with_the_name_of_its_option() {
        assert_eq!(
            parse_base_url("base_url", "https://h/api").unwrap().path(),
            "/api"
        );
        let error = parse_base_url("base_url", "https://h/api?v=1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadFormat);
        assert!(error.to_string().contains("base_url must be"), "{error}");
    }

    #[test]
    fn the_sentence_of_a_failed_connection_says_why() {
        let sentence = |failure| {
            let sent = RequestProgress::Incomplete;
            PlatformError::from(dray_http::HttpError { failure, sent })
                .sentence()
                .into_owned()
        };
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(
            sentence(FailureKind::Connect(refused.into())),
            "The platform cannot be reached: nothing listens at its address."
        );
        assert_eq!(
            sentence(FailureKind::Broken("reset".into())),
            ErrorKind::Transient.sentence()
        );
    }

    #[test]
    fn a_send_that_may_have_arrived_is_ambiguous() {
        let check = |failure, sent, kind, outcome| {
            let error = PlatformError::from(dray_http::HttpError { failure, sent });
            assert_eq!((error.kind(), error.send_outcome()), (kind, outcome));
        };
        check(
            FailureKind::Connect("refused".into()),
            RequestProgress::Incomplete,
            ErrorKind::Transient,
            SendOutcome::NotSent,
        );
        check(
            FailureKind::Broken("reset".into()),
            RequestProgress::Complete,
            ErrorKind::Transient,
            SendOutcome::Ambiguous,
        );
        check(
            FailureKind::Malformed("html".to_owned()),
            RequestProgress::Complete,
            ErrorKind::Unknown,
            SendOutcome::Ambiguous,
        );
        check(
            FailureKind::Body("disk".into()),
            RequestProgress::Incomplete,
            ErrorKind::Source,
            SendOutcome::NotSent,
        );
    }

    #[tokio::test]
    async fn a_stream_of_another_length_than_declared_fails() {
        for (size, expected) in [(4, None), (3, Some(true)), (5, Some(true)), (0, Some(true))] {
            let chunks = [b"ab".as_slice(), b"cd"].map(|chunk| Ok(chunk.into()));
            let body: ByteStream = stream::iter(chunks).boxed();
            let ends: Vec<_> = exact_length_stream(size, body).collect().await;
            let failed = ends.last().and_then(|last| last.as_ref().err());
            let is_transient = failed.map(|error| error.kind() == ErrorKind::Transient);
            assert_eq!(is_transient, expected, "{size}");
        }
        let nothing: ByteStream = stream::iter([]).boxed();
        assert!(
            exact_length_stream(0, nothing)
                .collect::<Vec<_>>()
                .await
                .is_empty()
        );
    }

    #[tokio::test]
    async fn a_failing_source_fails_the_body() {
        let failing: ByteStream =
            stream::iter([Err(PlatformError::new(ErrorKind::Source, "gone"))]).boxed();
        let cause = request_body(failing).next().await.unwrap().unwrap_err();
        assert!(cause.to_string().contains("gone"));
    }
}
