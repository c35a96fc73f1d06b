//! Tests of the lifetimes of links (L-2), with the clock and with the endpoint.

use std::time::Duration;

use dray_types::{Claim, Clock, Fault};
use http::{Method, StatusCode};

use super::super::{TestStore, tenant};
use super::send;
use crate::{MAX_LIFETIME, MIN_LIFETIME, PresignError, PresignedLink, Store, StoreOptions};

const NOW_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Creates a link at [`NOW_MS`] for an object that expires after `object` and credentials that expire after
/// `credentials`.
async fn mint(
    fixture: &TestStore,
    wanted: Duration,
    object: u64,
    credentials: Option<u64>,
) -> Result<PresignedLink, PresignError> {
    let options = StoreOptions {
        credentials_expire_at_ms: credentials.map_or(0, |left| NOW_MS + left),
        ..fixture.options.clone()
    };
    let store = Store::open(&options, Clock::manual(NOW_MS)).await.unwrap();
    let claim = Claim {
        expires_at_ms: NOW_MS + object,
        ..fixture.put(&tenant("acme"), "bytes").await
    };
    store.presign_get(&tenant("acme"), &claim, wanted).await
}

#[tokio::test]
async fn lifetimes_are_clamped_and_returned() {
    let fixture = TestStore::new().await;
    let hour = Duration::from_hours(1);
    let week = 7 * DAY_MS;
    for (wanted, object, credentials, expected_ms) in [
        (Duration::ZERO, week, None, 300_000),
        (MIN_LIFETIME, week, None, 300_000),
        (Duration::from_millis(301_999), week, None, 301_000),
        (hour, week, None, 3_600_000),
        (MAX_LIFETIME, 30 * DAY_MS, None, week),
        (Duration::MAX, 30 * DAY_MS, None, week),
        // No longer than the object.
        (hour, 1_800_000, None, 1_800_000),
        (hour, 1000, None, 1000),
        // A minute less than the credentials.
        (hour, week, Some(3_660_000), 3_600_000),
        (hour, week, Some(3_659_000), 3_599_000),
        (hour, week, Some(61_000), 1000),
    ] {
        let link = mint(&fixture, wanted, object, credentials).await.unwrap();
        assert_eq!(
            link.expires_at_ms,
            NOW_MS + expected_ms,
            "{wanted:?} {object} {credentials:?}"
        );
        let signed = format!("X-Amz-Expires={}&", expected_ms / 1000);
        assert!(link.url.expose().contains(&signed), "{signed}");
    }
}

#[tokio::test]
async fn no_link_is_made_for_an_object_that_expires_soon() {
    let fixture = TestStore::new().await;
    let hour = Duration::from_hours(1);
    let error = mint(&fixture, hour, 999, None).await.unwrap_err();
    assert!(matches!(error, PresignError::ObjectEnds));
    assert_eq!(Fault::from(error).detail, "claim_missing");
    for left in [0, 1000, 60_999] {
        let error = mint(&fixture, hour, DAY_MS, Some(left)).await.unwrap_err();
        assert!(matches!(error, PresignError::CredentialsEnd), "{left}");
        assert!(Fault::from(error).is_retryable());
    }
}

#[tokio::test]
async fn a_link_works_until_it_expires_and_not_after() {
    let fixture = TestStore::new().await;
    let claim = fixture.put(&tenant("acme"), "bytes").await;
    let now = fixture.clock.now_ms();
    // Seconds between the creation and the use of the link; its lifetime is 300 s.
    for (age, status) in [
        (0, StatusCode::OK),
        (280, StatusCode::OK),
        (301, StatusCode::FORBIDDEN),
        (86_400, StatusCode::FORBIDDEN),
    ] {
        let (store, _) = fixture.at(now - age * 1000).await;
        let link = store
            .presign_get(&tenant("acme"), &claim, MIN_LIFETIME)
            .await
            .unwrap();
        let to = fixture.endpoint.address();
        let answer = send(to, Method::GET, link.url.expose(), &[], "").await;
        assert_eq!(answer.status, status, "{age}");
    }
    // A link from the distant future is not valid yet.
    let (store, _) = fixture.at(now + DAY_MS).await;
    let link = store
        .presign_get(&tenant("acme"), &claim, MIN_LIFETIME)
        .await
        .unwrap();
    let answer = send(
        fixture.endpoint.address(),
        Method::GET,
        link.url.expose(),
        &[],
        "",
    )
    .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}
