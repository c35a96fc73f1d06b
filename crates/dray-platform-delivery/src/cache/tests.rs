//! The sweep of the cache, with a real store, bus and records.

use std::time::Duration;

use dray_bus::{Bus, test_bus};
use dray_platform::{DuplicateProtection, ErrorKind};
use dray_proto::v1;
use dray_service::ServiceContext;
use dray_store::{ArtifactLabel, Store, StoreOptions, cache_key};
use dray_testkit::s3::{FaultRule, FaultyS3, S3Fault};
use dray_types::{ByteSize, Claim, Clock, OperationId};
use tokio_util::sync::CancellationToken;

use super::{SweepError, SweepReport};
use crate::accounts::AccountRegistry;
use crate::config::Config;
use crate::delivery_service::DeliveryService;
use crate::error::DeliveryError;
use crate::record::{DeliveryStart, FileRecord, FileState};
use crate::records;
use crate::tests::fake::FakeAction;
use crate::tests::fixture::{DeliveryFixture, NOW_MS, chat, states, tenant};

const ONE_MINUTE: Duration = Duration::from_mins(1);

/// Adds a file to the cache, as sandbox-transfer does.
async fn add_cached(store: &Store, name: &str, bytes: &[u8]) -> Claim {
    let mut writer = store.writer(&tenant(), &OperationId::mint(), 1).cached();
    writer.write(bytes.to_vec().into()).await.unwrap();
    let label = ArtifactLabel::new("text/plain", name);
    writer.finish(label).await.unwrap()
}

/// A delivery of files in the cache.
fn work(id: &str, claims: &[&Claim]) -> DeliveryStart {
    DeliveryStart {
        delivery_id: id.to_owned(),
        session: "s".to_owned(),
        target: Some(chat("42")),
        files: claims
            .iter()
            .map(|claim| FileRecord::stored((*claim).clone().into()))
            .collect(),
        ..DeliveryStart::default()
    }
}

async fn remaining_keys(fixture: &DeliveryFixture) -> Vec<String> {
    let objects = fixture.store.cached().await.unwrap();
    objects.into_iter().map(|object| object.key).collect()
}

fn keys(claims: &[&Claim]) -> Vec<String> {
    let mut keys: Vec<_> = claims
        .iter()
        .map(|claim| cache_key(claim).unwrap())
        .collect();
    keys.sort();
    keys
}

/// Another replica on the same bus and store, with these options of the store.
async fn replica(
    fixture: &DeliveryFixture,
    directory: &std::path::Path,
    change: impl FnOnce(&mut StoreOptions),
) -> DeliveryService {
    let mut options = dray_store::embedded::serving_options(directory).unwrap();
    change(&mut options);
    let store = Store::open(&options, fixture.clock.clone()).await.unwrap();
    replica_over(&fixture.bus, store, &fixture.clock)
}

fn replica_over(bus: &Bus, store: Store, clock: &Clock) -> DeliveryService {
    let cx = ServiceContext::new(bus.clone(), store, clock.clone());
    DeliveryService::new(Config::default(), AccountRegistry::new([]), &cx)
}

#[tokio::test]
async fn delivered_files_are_deleted_an_hour_after_their_last_use() {
    let fixture = DeliveryFixture::new().await;
    let claim = add_cached(&fixture.store, "a.txt", b"a").await;
    fixture.clock.advance(ONE_MINUTE * 30);
    let report = fixture.delivered(&work("d", &[&claim])).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    fixture.clock.advance(ONE_MINUTE * 59);
    let swept = fixture.replica.sweeper.sweep_cache().await.unwrap();
    assert_eq!((swept.expired, swept.objects, swept.bytes), (0, 1, 1));
    fixture.clock.advance(ONE_MINUTE);
    let swept = fixture.replica.sweeper.sweep_cache().await.unwrap();
    assert_eq!((swept.expired, swept.objects, swept.freed), (1, 0, 1));
    assert_eq!(remaining_keys(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn unused_content_is_deleted_after_an_hour_and_finished_content_never() {
    let fixture = DeliveryFixture::new().await;
    let finished = fixture.claim("kept.txt", b"kept").await;
    add_cached(&fixture.store, "a.txt", b"a").await;
    fixture.clock.advance(ONE_MINUTE * 64);
    assert_eq!(
        fixture.replica.sweeper.sweep_cache().await.unwrap().objects,
        1
    );
    fixture.clock.advance(ONE_MINUTE);
    assert_eq!(
        fixture.replica.sweeper.sweep_cache().await.unwrap().expired,
        1
    );
    fixture.clock.advance(ONE_MINUTE * 60 * 24 * 10);
    fixture.replica.sweeper.sweep_cache().await.unwrap();
    let found = fixture
        .store
        .find(&tenant(), finished.artifact.sha256)
        .await;
    assert_eq!(found.unwrap(), Some(4));
}

#[tokio::test]
async fn a_delivery_that_waits_keeps_its_files_and_sends_them_a_day_later() {
    let mut fixture = DeliveryFixture::new().await;
    let claim = add_cached(&fixture.store, "a.txt", b"a").await;
    fixture
        .fake
        .script([FakeAction::Wait(ONE_MINUTE * 60 * 20)]);
    fixture.deliver(&work("d", &[&claim])).await.unwrap();
    fixture.clock.advance(ONE_MINUTE * 60 * 20);
    fixture.restart();
    let swept = fixture.replica.sweeper.sweep_cache().await.unwrap();
    assert_eq!(
        (swept.expired, swept.held),
        (0, 1),
        "the record of the delivery needs the file"
    );
    fixture.resume("d").await.unwrap();
    assert_eq!(states(&fixture.record("d").await), [FileState::Delivered]);
    fixture.clock.advance(ONE_MINUTE * 60);
    assert_eq!(
        fixture.replica.sweeper.sweep_cache().await.unwrap().expired,
        1
    );
}

#[tokio::test]
async fn a_link_keeps_its_object_until_it_expires() {
    let fixture = DeliveryFixture::new().await;
    let claim = add_cached(&fixture.store, "a.txt", b"large").await;
    fixture.fake.limit(4);
    let report = fixture.delivered(&work("d", &[&claim])).await;
    assert_eq!(states(&report), [FileState::DeliveredAsLink]);
    assert_eq!(
        report.files[0].url_expires_at_ms,
        NOW_MS + 24 * 3_600_000,
        "the link promises a day, not the hour of the cache"
    );
    fixture.clock.advance(ONE_MINUTE * (60 * 24 - 1));
    let swept = fixture.replica.sweeper.sweep_cache().await.unwrap();
    assert_eq!((swept.objects, swept.held), (1, 5));
    fixture.clock.advance(ONE_MINUTE);
    assert_eq!(
        fixture.replica.sweeper.sweep_cache().await.unwrap().expired,
        1
    );
}

#[tokio::test]
async fn above_the_size_limit_the_oldest_unneeded_file_is_deleted_first() {
    let fixture = DeliveryFixture::new().await;
    let mut claims = Vec::new();
    for (name, action) in [
        ("waits", Some(FakeAction::Wait(ONE_MINUTE * 600))),
        ("old", None),
        ("newer", None),
    ] {
        let claim = add_cached(&fixture.store, name, name.as_bytes()).await;
        if let Some(action) = action {
            fixture.fake.script([action]);
            fixture.deliver(&work(name, &[&claim])).await.unwrap();
        }
        claims.push(claim);
        fixture.clock.advance(ONE_MINUTE * 10);
    }
    let fresh = add_cached(&fixture.store, "fresh", b"fresh").await;
    fixture.clock.advance(ONE_MINUTE * 10);
    let directory = fixture.directory().join("s3");
    let small = replica(&fixture, &directory, |options| {
        options.cache_size = ByteSize::bytes(15);
    })
    .await;
    let swept = small.sweeper.sweep_cache().await.unwrap();
    assert_eq!((swept.evicted, swept.freed), (1, 3), "{swept:?}");
    let expected = keys(&[&claims[0], &claims[2], &fresh]);
    assert_eq!(remaining_keys(&fixture).await, expected);
    let none = replica(&fixture, &directory, |options| {
        options.cache_size = ByteSize::bytes(0);
    })
    .await;
    let swept = none.sweeper.sweep_cache().await.unwrap();
    assert_eq!(swept.evicted, 1, "{swept:?}");
    assert_eq!(remaining_keys(&fixture).await, keys(&[&claims[0], &fresh]));
}

#[tokio::test]
async fn a_sweep_that_fails_half_way_is_finished_by_the_next_one() {
    let fixture = DeliveryFixture::new().await;
    for number in 0..5 {
        add_cached(&fixture.store, "a", format!("{number}").as_bytes()).await;
    }
    fixture.clock.advance(ONE_MINUTE * 90);
    let options = dray_store::embedded::serving_options(&fixture.directory().join("s3")).unwrap();
    let endpoint = options.endpoint.strip_prefix("http://").unwrap();
    let proxy = FaultyS3::start(endpoint.parse().unwrap()).await.unwrap();
    let proxied_options = StoreOptions {
        endpoint: proxy.endpoint(),
        ..options
    };
    let store = Store::open(&proxied_options, fixture.clock.clone())
        .await
        .unwrap();
    let replica_behind_proxy = replica_over(&fixture.bus, store, &fixture.clock);
    // The store fails at the third object, and for all later requests.
    let deletes = std::sync::atomic::AtomicU32::new(0);
    proxy.add(FaultRule::new(S3Fault::Down, move |parts| {
        let order = std::sync::atomic::Ordering::SeqCst;
        if parts.method == "DELETE" {
            deletes.fetch_add(1, order);
        }
        deletes.load(order) > 2
    }));
    assert!(matches!(
        replica_behind_proxy.sweeper.sweep_cache().await,
        Err(SweepError::Store(_))
    ));
    assert_eq!(remaining_keys(&fixture).await.len(), 3);
    assert!(matches!(
        replica_behind_proxy.sweeper.sweep_cache().await,
        Err(SweepError::Store(_))
    ));
    proxy.clear_faults();
    let swept = replica_behind_proxy.sweeper.sweep_cache().await.unwrap();
    assert_eq!((swept.expired, swept.objects), (3, 0));
}

#[tokio::test]
async fn two_replicas_that_sweep_concurrently_delete_the_same_as_one() {
    let fixture = DeliveryFixture::new().await;
    let old = add_cached(&fixture.store, "a", b"old").await;
    fixture.clock.advance(ONE_MINUTE * 90);
    let young = add_cached(&fixture.store, "a", b"young").await;
    let directory = fixture.directory().join("s3");
    let other = replica(&fixture, &directory, |_| {}).await;
    let (one, two) = tokio::join!(
        fixture.replica.sweeper.sweep_cache(),
        other.sweeper.sweep_cache()
    );
    for swept in [one.unwrap(), two.unwrap()] {
        assert_eq!((swept.objects, swept.bytes), (1, 5), "{swept:?}");
    }
    assert_eq!(remaining_keys(&fixture).await, keys(&[&young]));
    assert_ne!(cache_key(&old), cache_key(&young));
}

#[tokio::test]
async fn only_the_replica_with_the_lease_sweeps() {
    let fixture = DeliveryFixture::new().await;
    add_cached(&fixture.store, "a", b"a").await;
    fixture.clock.advance(ONE_MINUTE * 90);
    let other = replica(&fixture, &fixture.directory().join("s3"), |_| {}).await;
    let lease = other
        .sweeper
        .leases
        .take("cache", ONE_MINUTE)
        .await
        .unwrap()
        .unwrap();
    fixture.replica.sweeper.take_turn().await;
    assert_eq!(
        remaining_keys(&fixture).await.len(),
        1,
        "another replica has the lease"
    );
    lease.release().await;
    fixture.replica.sweeper.take_turn().await;
    assert_eq!(remaining_keys(&fixture).await.len(), 0);
}

#[tokio::test]
async fn several_files_that_are_gathered_stay_until_the_record_has_them() {
    let fixture = DeliveryFixture::new().await;
    let earlier = add_cached(&fixture.store, "early", b"e").await;
    fixture.clock.advance(ONE_MINUTE * 6);
    fixture
        .replica
        .sweeper
        .gatherings
        .begin("acme.d", ONE_MINUTE * 600)
        .await
        .unwrap();
    let first = add_cached(&fixture.store, "first", b"first").await;
    fixture.clock.advance(ONE_MINUTE * 120);
    let swept = fixture.replica.sweeper.sweep_cache().await.unwrap();
    assert_eq!((swept.expired, swept.held), (1, 5), "{swept:?}");
    assert_eq!(remaining_keys(&fixture).await, keys(&[&first]));
    assert_ne!(keys(&[&earlier]), keys(&[&first]));
    fixture.replica.sweeper.gatherings.end("acme.d").await;
    assert_eq!(
        fixture.replica.sweeper.sweep_cache().await.unwrap().expired,
        1
    );
}

#[tokio::test]
async fn a_gathering_of_several_paths_is_recorded_until_the_delivery_has_its_record() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    for name in ["a", "b"] {
        let claim = add_cached(&fixture.store, name, name.as_bytes()).await;
        fixture.sandbox.put(name, "file", Some(claim));
    }
    let request = v1::SendFileRequested {
        paths: vec![b"a".to_vec(), b"b".to_vec()],
        session: "s".to_owned(),
        ..v1::SendFileRequested::default()
    };
    let meta = fixture.meta("d");
    let cancel = CancellationToken::new();
    fixture
        .replica
        .gatherer
        .send(&meta, &request, 1, false, &cancel)
        .await
        .unwrap();
    assert_eq!(
        fixture.replica.sweeper.gatherings.since_ms().await.unwrap(),
        u64::MAX
    );
    fixture.clock.advance(ONE_MINUTE * 600);
    let swept = fixture.replica.sweeper.sweep_cache().await.unwrap();
    assert_eq!((swept.objects, swept.held), (2, 2), "the record needs them");
}

#[tokio::test]
async fn a_claim_in_a_request_is_kept_until_the_delivery_ends() {
    let fixture = DeliveryFixture::new().await;
    let claim = add_cached(&fixture.store, "a.txt", b"a").await;
    let request = v1::SendFileRequested {
        claims: vec![claim.clone().into()],
        target: Some(chat("42")),
        ..v1::SendFileRequested::default()
    };
    let kept = fixture
        .replica
        .intake
        .claims
        .with_kept_claims(&fixture.meta("d"), &request)
        .await
        .unwrap();
    let kept = Claim::try_from(kept.claims[0].clone()).unwrap();
    assert_eq!(
        (kept.artifact.clone(), cache_key(&kept)),
        (claim.artifact, None)
    );
    fixture.clock.advance(ONE_MINUTE * 60 * 20);
    assert_eq!(
        fixture.replica.sweeper.sweep_cache().await.unwrap().expired,
        1
    );
    let report = fixture.delivered(&work("d", &[&kept])).await;
    assert_eq!(states(&report), [FileState::Delivered]);
}

/// Delivers a cached file with this path, which the platform refuses.
async fn deliver_refused_file(fixture: &DeliveryFixture, path: &str) -> Claim {
    let claim = add_cached(&fixture.store, "a.txt", b"a").await;
    let mut work = work("d", &[&claim]);
    work.files[0].path = path.as_bytes().to_vec();
    fixture.fake.script([FakeAction::Refuse(ErrorKind::Auth)]);
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Failed]);
    claim
}

async fn resend(fixture: &DeliveryFixture) -> Result<v1::DeliveryAccepted, DeliveryError> {
    let request = v1::ResendRequest {
        delivery_id: "d".to_owned(),
        ..v1::ResendRequest::default()
    };
    fixture
        .replica
        .receipts
        .resend(&fixture.meta("again"), &request)
        .await
}

#[tokio::test]
async fn failed_files_are_resent_from_the_store_and_later_from_their_path() {
    for (minutes, path, is_found) in [(50, "", true), (70, "/w/a.txt", true), (70, "", false)] {
        let fixture = DeliveryFixture::with(DuplicateProtection::Unknown, |config| {
            config.allow_targets = true;
        })
        .await;
        deliver_refused_file(&fixture, path).await;
        fixture.clock.advance(ONE_MINUTE * minutes);
        fixture.replica.sweeper.sweep_cache().await.unwrap();
        let accepted = resend(&fixture).await;
        if is_found {
            assert_eq!(accepted.unwrap().delivery_id, "again");
        } else {
            assert!(matches!(
                accepted,
                Err(DeliveryError::NotFound("stored file"))
            ));
        }
    }
}

#[tokio::test]
async fn r_16_no_name_of_a_sandbox_chooses_a_key() {
    let fixture = DeliveryFixture::new().await;
    let mut claims = Vec::new();
    for name in ["../../etc/passwd", "a/b", "cache/1/x", "\u{202e}gpj.exe"] {
        claims.push(add_cached(&fixture.store, name, b"same").await);
    }
    assert!(
        claims
            .iter()
            .all(|claim| cache_key(claim) == cache_key(&claims[0]))
    );
    assert_eq!(remaining_keys(&fixture).await, keys(&[&claims[0]]));
}

#[tokio::test]
async fn nothing_is_removed_while_the_needs_are_unknown() {
    let fixture = DeliveryFixture::new().await;
    let claim = add_cached(&fixture.store, "a.txt", b"a").await;
    fixture.fake.script([FakeAction::Wait(ONE_MINUTE * 600)]);
    fixture.deliver(&work("d", &[&claim])).await.unwrap();
    fixture.clock.advance(ONE_MINUTE * 90);
    // A bus without the records bucket.
    let empty_bus = test_bus::without_streams(&fixture.clock);
    let replica_without_records = replica_over(&empty_bus, fixture.store.clone(), &fixture.clock);
    let swept = replica_without_records.sweeper.sweep_cache().await;
    assert!(matches!(swept, Err(SweepError::Records(_))), "{swept:?}");
    assert_eq!(remaining_keys(&fixture).await, keys(&[&claim]));
    let swept = fixture.replica.sweeper.sweep_cache().await.unwrap();
    assert_eq!(
        swept,
        SweepReport {
            objects: 1,
            bytes: 1,
            held: 1,
            ..SweepReport::default()
        }
    );
    let key = records::record_key(&tenant(), &OperationId::new("d").unwrap());
    assert!(
        fixture
            .replica
            .receipts
            .log
            .records
            .read(&key)
            .await
            .unwrap()
            .is_some()
    );
}
