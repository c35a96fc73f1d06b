//! The difference between the clock of this machine and that of the store, by the `Date` field of a response.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use dray_types::Clock;

use crate::client::S3Clients;
use crate::credentials::SharedCredentials;
use crate::error::OpenError;
use crate::options::StoreOptions;

/// Most milliseconds that `Date` leaves out, because it has whole seconds (RFC 9110, section 5.6.7).
const DATE_RESOLUTION_MS: u64 = 999;

/// Keeps the `Date` field of the last response, even of one that is an error.
#[derive(Clone, Debug, Default)]
struct DateRecorder(Arc<Mutex<Option<String>>>);

impl Intercept for DateRecorder {
    fn name(&self) -> &'static str {
        "DateRecorder"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _settings: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").map(str::to_owned);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date;
        Ok(())
    }
}

/// Sends one request, and returns the difference of the clocks that its duration does not explain. `None` if no
/// response with a readable `Date` arrived; whether the store accepted the request does not matter, because a store
/// refuses signatures of a clock that differs by more than 15 minutes. Fails if the file with certificate authorities
/// cannot be read.
pub async fn clock_skew(
    options: &StoreOptions,
    clock: &Clock,
) -> Result<Option<Duration>, OpenError> {
    let credentials = SharedCredentials::new(options.into());
    let clients = S3Clients::new(options, &credentials)
        .await
        .map_err(OpenError::Authorities)?;
    let recorder = DateRecorder::default();
    let request = clients.inside.head_bucket().bucket(&options.bucket);
    let before_ms = clock.now_ms();
    let sent = Box::pin(request.customize().interceptor(recorder.clone()).send()).await;
    let after_ms = clock.now_ms();
    if let Err(error) = sent {
        tracing::debug!(%error, "the request for the time of the store failed");
    }
    let date = recorder
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let server_ms = date.as_deref().and_then(milliseconds_of);
    Ok(server_ms.map(|server_ms| skew(before_ms, server_ms, after_ms)))
}

/// Milliseconds since the epoch of a `Date` field.
fn milliseconds_of(date: &str) -> Option<u64> {
    let time = DateTime::from_str(date, DateTimeFormat::HttpDate).ok()?;
    u64::try_from(time.to_millis().ok()?).ok()
}

fn skew(before_ms: u64, server_ms: u64, after_ms: u64) -> Duration {
    let is_behind = before_ms.saturating_sub(server_ms.saturating_add(DATE_RESOLUTION_MS));
    Duration::from_millis(is_behind.max(server_ms.saturating_sub(after_ms)))
}

#[cfg(test)]
mod tests {
    use dray_types::Secret;

    use super::*;
    use crate::embedded::EmbeddedS3;

    #[test]
    fn only_what_the_request_and_whole_seconds_do_not_explain_is_a_difference() {
        for (server_ms, expected) in [
            (10_000, 0),
            (12_000, 0),
            (9_001, 0),
            (9_000, 1),
            (13_000, 500),
        ] {
            let found = skew(10_000, server_ms, 12_500);
            assert_eq!(found, Duration::from_millis(expected), "{server_ms}");
        }
        assert_eq!(
            milliseconds_of("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777_000)
        );
        assert_eq!(milliseconds_of("yesterday"), None);
    }

    #[tokio::test]
    async fn a_store_that_refuses_the_request_shows_its_clock_too() {
        let directory = tempfile::tempdir().unwrap();
        let (_store, mut options) = EmbeddedS3::start(directory.path()).await.unwrap();
        let clock = Clock::system();
        let secret_key = options.secret_key.clone();
        for key in [secret_key, Secret::new("another")] {
            options.secret_key = key;
            let found = clock_skew(&options, &clock).await.unwrap();
            assert_eq!(found, Some(Duration::ZERO));
        }
        options.endpoint = "http://127.0.0.1:1".to_owned();
        assert_eq!(clock_skew(&options, &clock).await.unwrap(), None);
    }
}
