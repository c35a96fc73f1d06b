//! Records of where content came from.

use std::time::Duration;

use dray_testkit::s3::{FaultRule, S3Fault};
use dray_types::Sha256Digest;

use super::{TestStore, tenant};
use crate::{MAX_ORIGINS, PresignError, Store, StoreOptions, WebLinkOutcome, WebOrigin};

const ONE_DAY: Duration = Duration::from_hours(24);

fn origin(hosts: &[&str], fetched_at_ms: u64) -> WebOrigin {
    WebOrigin {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        fetched_at_ms,
        policy_digest: "p".to_owned(),
        rules_digest: String::new(),
        media_type: "text/csv".to_owned(),
    }
}

#[tokio::test]
async fn every_chain_of_hosts_has_one_record_and_the_newest_fetch_is_first() {
    let TestStore { store, .. } = &TestStore::new().await;
    let (acme, digest) = (tenant("acme"), Sha256Digest::of(b"1;2"));
    let (direct, moved) = (&["b.example"][..], &["a.example", "b.example"][..]);
    for (hosts, time) in [(direct, 1), (moved, 2), (direct, 3)] {
        let record = origin(hosts, time);
        let recorded = store.record_origin(&acme, digest, &record, None);
        recorded.await.unwrap();
    }
    let found = store.origins(&acme, digest, None).await.unwrap();
    assert_eq!(found.fetches, [origin(direct, 3), origin(moved, 2)]);
    assert!(!found.is_cut);
    // The origins of other tenants and of other content do not count.
    for (tenant, digest) in [(tenant("acm"), digest), (acme, Sha256Digest::of(b"1;3"))] {
        let found = store.origins(&tenant, digest, None).await.unwrap();
        assert_eq!(found, crate::ContentOrigins::default());
    }
}

#[tokio::test]
async fn a_person_who_stores_the_same_bytes_does_not_remove_their_origin() {
    let fixture = TestStore::new().await;
    let acme = tenant("acme");
    let claim = fixture.put(&acme, "1;2").await;
    let digest = claim.artifact.sha256;
    let record = origin(&["a.example"], 1);
    let recorded = fixture.store.record_origin(&acme, digest, &record, None);
    recorded.await.unwrap();
    fixture.put(&acme, "1;2").await;
    let found = fixture.store.origins(&acme, digest, None).await.unwrap();
    assert_eq!(found.fetches, [record]);
}

#[tokio::test]
async fn records_that_are_too_many_or_cannot_be_read_are_reported() {
    let fixture = TestStore::new().await;
    let store = &fixture.store;
    let (acme, digest) = (tenant("acme"), Sha256Digest::of(b"1;2"));
    for number in 0..=MAX_ORIGINS {
        let record = origin(&[&format!("h{number}.example")], 1);
        let recorded = store.record_origin(&acme, digest, &record, None);
        recorded.await.unwrap();
    }
    let found = store.origins(&acme, digest, None).await.unwrap();
    assert_eq!((found.fetches.len(), found.is_cut), (MAX_ORIGINS, true));

    let other = Sha256Digest::of(b"other").to_hex();
    let key = format!("origin/acme/{}/{other}/x", &other[..2]);
    for body in ["not a record".to_owned(), "x".repeat(1 << 20)] {
        fixture.overwrite(&key, body).await;
        let digest = other.parse().unwrap();
        let found = store.origins(&acme, digest, None).await.unwrap();
        assert!(found.fetches.is_empty() && found.is_cut);
    }
}

#[tokio::test]
async fn a_record_outlives_the_content_and_a_new_fetch_renews_it() {
    let fixture = TestStore::new().await;
    let (store, clock) = fixture.at(fixture.clock.now_ms()).await;
    let (acme, digest) = (tenant("acme"), Sha256Digest::of(b"1;2"));
    let record = origin(&["a.example"], 1);
    let recorded = store.record_origin(&acme, digest, &record, None);
    recorded.await.unwrap();
    clock.advance(89 * ONE_DAY);
    assert_eq!(store.sweep().await.unwrap().origins, 0);
    clock.advance(2 * ONE_DAY);
    assert_eq!(store.sweep().await.unwrap().origins, 1);
    let found = store.origins(&acme, digest, None).await.unwrap();
    assert!(found.fetches.is_empty() && !found.is_cut);
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_and_never_an_unknown_origin() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    let (acme, digest) = (tenant("acme"), Sha256Digest::of(b"1;2"));
    let record = origin(&["a.example"], 1);
    let recorded = store.record_origin(&acme, digest, &record, None);
    recorded.await.unwrap();
    proxy.add(FaultRule::all(S3Fault::Status(503)));
    assert!(store.origins(&acme, digest, None).await.is_err());
    let recorded = store.record_origin(&acme, digest, &record, None);
    assert!(recorded.await.is_err());
}

#[tokio::test]
async fn links_to_content_from_the_web_are_made_only_where_they_are_allowed() {
    let lifetime = Duration::from_mins(10);
    for (outcome, is_made) in [
        (WebLinkOutcome::Allow, true),
        (WebLinkOutcome::Report, true),
        (WebLinkOutcome::Deny, false),
    ] {
        let fixture = TestStore::new().await;
        let options = StoreOptions {
            web_links: outcome,
            ..fixture.options.clone()
        };
        let store = Store::open(&options, fixture.clock.clone()).await.unwrap();
        let acme = tenant("acme");
        let (own, fetched) = (
            fixture.put(&acme, "own").await,
            fixture.put(&acme, "1;2").await,
        );
        let record = origin(&["a.example", "b.example"], 1);
        let recorded = store.record_origin(&acme, fetched.artifact.sha256, &record, None);
        recorded.await.unwrap();
        assert!(store.presign_get(&acme, &own, lifetime).await.is_ok());
        match store.presign_get(&acme, &fetched, lifetime).await {
            Ok(_) => assert!(is_made, "{outcome:?}"),
            Err(PresignError::FromWeb { host }) => {
                assert_eq!((host.as_str(), is_made), ("b.example", false));
            }
            Err(error) => panic!("{error}"),
        }
        // A delivery has separate rules.
        assert!(
            store
                .presign_judged(&acme, &fetched, lifetime)
                .await
                .is_ok()
        );
    }
}
