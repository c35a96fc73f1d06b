//! The cache: keys of its objects, validity of claims, and which objects may be removed.

use std::time::Duration;

use bytes::Bytes;
use dray_types::{Claim, Clock, Deadline, OperationId, TenantId};

use super::{TestStore, noise, tenant};
use crate::{ArtifactLabel, CachedObject, PART_BYTES, PresignError, ReadError, Store, cache_key};

const MINUTE_MS: u64 = 60_000;
/// The beginning of a slot.
const SLOT_START: u64 = 1_795_132_800_000;

async fn cache(store: &Store, tenant: &TenantId, bytes: impl Into<Bytes>, name: &str) -> Claim {
    let mut writer = store.writer(tenant, &OperationId::mint(), 1).cached();
    writer.write(bytes.into()).await.unwrap();
    let label = ArtifactLabel::new("text/plain", name);
    writer.finish(label).await.unwrap()
}

async fn read(store: &Store, clock: &Clock, claim: &Claim) -> Result<Bytes, ReadError> {
    let deadline = Deadline::after(clock.now_ms(), Duration::from_secs(30));
    let reader = store.read(&claim.artifact.tenant, claim, deadline).await?;
    reader.read_all(dray_types::ByteSize::mib(64)).await
}

fn deadline(clock: &Clock) -> Deadline {
    Deadline::after(clock.now_ms(), Duration::from_secs(30))
}

fn keys(objects: &[CachedObject]) -> Vec<&str> {
    objects.iter().map(|object| object.key.as_str()).collect()
}

#[tokio::test]
async fn r_16_the_key_of_cached_content_contains_slot_tenant_and_digest() {
    let fixture = TestStore::new().await;
    let (store, clock) = fixture.at(SLOT_START + MINUTE_MS).await;
    let acme = tenant("acme");
    let claim = cache(&store, &acme, "abc", "../../etc/passwd").await;
    let hex = claim.artifact.sha256.to_hex();
    let key = format!("cache/5983776/acme/ba/{hex}");
    let objects = store.cached().await.unwrap();
    assert_eq!(
        objects,
        [CachedObject {
            key: key.clone(),
            bytes: 3,
            closed_at_ms: SLOT_START + 5 * MINUTE_MS
        }]
    );
    assert_eq!(cache_key(&claim), Some(key));
    assert_eq!(claim.expires_at_ms, SLOT_START + 65 * MINUTE_MS);
    assert_eq!(read(&store, &clock, &claim).await.unwrap(), "abc");

    // The object is not visible as finished content, and not visible to other tenants.
    assert_eq!(
        store.find(&acme, claim.artifact.sha256).await.unwrap(),
        None
    );
    let other = tenant("other");
    let refused = store.read(&other, &claim, deadline(&clock)).await;
    assert!(matches!(refused, Err(ReadError::ForeignTenant)));
    cache(&store, &other, "abc", "").await;
    assert_eq!(
        store.cached().await.unwrap().len(),
        2,
        "each tenant has its own object"
    );
}

#[tokio::test]
async fn the_same_content_is_one_object_for_five_minutes_and_using_it_does_not_extend_its_lifetime()
{
    let fixture = TestStore::new().await;
    let (store, clock) = fixture.at(SLOT_START).await;
    let acme = tenant("acme");
    let first = cache(&store, &acme, "abc", "a").await;
    clock.advance(Duration::from_millis(5 * MINUTE_MS - 1));
    let repeated = cache(&store, &acme, "abc", "b").await;
    assert_eq!(cache_key(&first), cache_key(&repeated));
    assert_eq!(first.expires_at_ms, repeated.expires_at_ms);
    clock.advance(Duration::from_millis(1));
    let later = cache(&store, &acme, "abc", "c").await;
    assert_eq!(later.expires_at_ms, first.expires_at_ms + 5 * MINUTE_MS);
    let objects = store.cached().await.unwrap();
    assert_eq!(objects.len(), 2);

    store.evict(&objects[0]).await.unwrap();
    store.evict(&objects[0]).await.unwrap();
    let gone = read(&store, &clock, &first).await;
    assert!(matches!(gone, Err(ReadError::Missing)), "{gone:?}");
    assert_eq!(read(&store, &clock, &later).await.unwrap(), "abc");
}

#[tokio::test]
async fn content_of_several_parts_is_cached_too() {
    let fixture = TestStore::new().await;
    let (store, clock) = fixture.at(SLOT_START).await;
    let bytes = noise(2 * PART_BYTES + 7, 3);
    let claim = cache(&store, &tenant("acme"), bytes.clone(), "big").await;
    assert_eq!(read(&store, &clock, &claim).await.unwrap(), bytes);
    let staged = fixture
        .files()
        .into_iter()
        .filter(|file| !file.contains("cache/"));
    assert_eq!(staged.collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test]
async fn only_objects_of_the_cache_can_be_evicted() {
    let fixture = TestStore::new().await;
    let kept = fixture.put(&tenant("acme"), "kept").await;
    let object = CachedObject {
        key: kept.artifact.key(),
        bytes: 4,
        closed_at_ms: 0,
    };
    fixture.store.evict(&object).await.unwrap();
    assert_eq!(fixture.read(&tenant("acme"), &kept).await.unwrap(), "kept");
    // An object that another program stored there does not belong to the cache.
    fixture.overwrite("cache/notes.txt", "x").await;
    fixture.overwrite("cache/007/acme/ab/cd", "x").await;
    assert_eq!(fixture.store.cached().await.unwrap(), []);
}

#[tokio::test]
async fn kept_content_can_be_read_after_its_object_is_evicted_from_the_cache() {
    let fixture = TestStore::new().await;
    let (store, clock) = fixture.at(SLOT_START).await;
    let acme = tenant("acme");
    let claim = cache(&store, &acme, "abc", "a.txt").await;
    let result = store.keep(&acme, &claim, deadline(&clock)).await.unwrap();
    assert_eq!(result.artifact, claim.artifact);
    assert_eq!(result.store, "main");
    assert!(result.expires_at_ms >= SLOT_START + 14 * 24 * 60 * MINUTE_MS);
    let repeated = store.keep(&acme, &result, deadline(&clock)).await.unwrap();
    assert_eq!(repeated, result, "kept already");

    let objects = store.cached().await.unwrap();
    store.evict(&objects[0]).await.unwrap();
    assert_eq!(read(&store, &clock, &result).await.unwrap(), "abc");
    let gone = store.keep(&acme, &claim, deadline(&clock)).await;
    assert!(matches!(gone, Err(ReadError::Missing)), "{gone:?}");
    let foreign = store.keep(&tenant("other"), &claim, deadline(&clock)).await;
    assert!(matches!(foreign, Err(ReadError::ForeignTenant)));
}

#[tokio::test]
async fn a_claim_with_a_false_size_is_not_kept() {
    let fixture = TestStore::new().await;
    let (store, clock) = fixture.at(SLOT_START).await;
    let acme = tenant("acme");
    let mut claim = cache(&store, &acme, "abc", "a.txt").await;
    claim.artifact.size = 4;
    let refused = store.keep(&acme, &claim, deadline(&clock)).await;
    assert!(
        matches!(refused, Err(ReadError::Mismatch(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_claim_with_an_invalid_slot_is_refused_as_of_an_unknown_store() {
    let fixture = TestStore::new().await;
    let (store, clock) = fixture.at(SLOT_START).await;
    let claim = cache(&store, &tenant("acme"), "abc", "").await;
    assert_eq!(claim.store, "main.cache-5983776");
    for name in [
        "main.cache-",
        "main.cache-05983776",
        "main.cache-+5983776",
        "main.cache-../cas",
        "main.cache-5983776/x",
        "main.cache",
        "mai.cache-5983776",
        "",
    ] {
        let mut other = claim.clone();
        other.store = name.to_owned();
        let refused = read(&store, &clock, &other).await;
        assert!(matches!(refused, Err(ReadError::UnknownStore(_))), "{name}");
        if !name.contains("mai.") {
            assert_eq!(cache_key(&other), None, "{name}");
        }
    }
}

#[tokio::test]
async fn a_link_to_cached_content_ends_with_the_claim() {
    let fixture = TestStore::new().await;
    let (store, _) = fixture.at(SLOT_START).await;
    let acme = tenant("acme");
    let mut claim = cache(&store, &acme, "abc", "a.txt").await;
    let day = Duration::from_hours(24);
    let link = store.presign_get(&acme, &claim, day).await.unwrap();
    assert_eq!(link.expires_at_ms, claim.expires_at_ms);
    // When the claim ends later, the link ends after its own lifetime.
    claim.expires_at_ms = u64::MAX;
    let link = store.presign_get(&acme, &claim, day).await.unwrap();
    assert_eq!(link.expires_at_ms, SLOT_START + 24 * 60 * MINUTE_MS);
    assert!(link.url.expose().contains("/cache/5983776/acme/ba/"));
    claim.store = "main.cache-x".to_owned();
    let refused = store.presign_get(&acme, &claim, day).await;
    assert!(matches!(refused, Err(PresignError::UnknownStore(_))));
}

#[tokio::test]
async fn a_store_that_does_not_respond_leaves_the_cache_unknown() {
    let fixture = TestStore::new().await;
    cache(&fixture.store, &tenant("acme"), "abc", "").await;
    let (store, proxy) = fixture.behind().await;
    proxy.add(dray_testkit::s3::FaultRule::new(
        dray_testkit::s3::S3Fault::Status(503),
        |parts| parts.method == "GET",
    ));
    assert!(store.cached().await.is_err());
    proxy.clear_faults();
    assert_eq!(keys(&store.cached().await.unwrap()).len(), 1);
}
