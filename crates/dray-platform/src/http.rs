//! Between platforms and [`dray_http`]: streams of stored bytes, and failures of requests.

use dray_http::{FailureKind, RequestProgress};
use futures_util::StreamExt as _;

use crate::delivery::ByteStream;
use crate::error::{ErrorKind, PlatformError};

/// The stream as a request body. Its failure comes back as [`ErrorKind::Source`].
pub fn request_body(stream: ByteStream) -> dray_http::ByteStream {
    stream
        .map(|piece| piece.map_err(|error| Box::new(error).into()))
        .boxed()
}

/// The body of an answer as a stream.
pub fn response_stream(answer: dray_http::HttpResponse) -> ByteStream {
    answer
        .into_stream()
        .map(|piece| {
            piece.map_err(|cause| {
                PlatformError::new(ErrorKind::Transient, "the download broke").caused_by(cause)
            })
        })
        .boxed()
}

/// The same stream, which fails with [`ErrorKind::Transient`] when it has more or fewer bytes than `size`.
pub fn exact_length_stream(size: u64, body: ByteStream) -> ByteStream {
    dray_http::exact_length_stream(size, body, move |seen| {
        let why = if seen > size {
            "the file is longer than was told"
        } else {
            "the file is shorter than was told"
        };
        PlatformError::new(ErrorKind::Transient, why)
    })
}

/// A SHA-256 signature as headers write it: 64 hexadecimal digits; `None` for anything else.
pub fn decode_signature(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

/// A request that got no usable answer: worth another try, and ambiguous when all of it may have arrived.
impl From<dray_http::HttpError> for PlatformError {
    fn from(error: dray_http::HttpError) -> Self {
        let kind = match &error.failure {
            FailureKind::Connect(_) | FailureKind::Broken(_) | FailureKind::Idle(_) => {
                ErrorKind::Transient
            }
            FailureKind::Body(_) => ErrorKind::Source,
            FailureKind::TooLong(_) | FailureKind::Malformed(_) => ErrorKind::Unknown,
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
    fn what_may_have_arrived_is_ambiguous() {
        let check = |failure, sent, kind, moment| {
            let error = PlatformError::from(dray_http::HttpError { failure, sent });
            assert_eq!((error.kind(), error.moment()), (kind, moment));
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
    async fn a_stream_of_another_length_than_was_told_fails() {
        for (size, expected) in [(4, None), (3, Some(true)), (5, Some(true)), (0, Some(true))] {
            let pieces = [b"ab".as_slice(), b"cd"].map(|piece| Ok(piece.into()));
            let body: ByteStream = stream::iter(pieces).boxed();
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
