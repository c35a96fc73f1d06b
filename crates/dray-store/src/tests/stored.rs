//! Tests that stored bytes are read back unchanged, for all sizes and ways of writing.

use std::sync::Arc;

use bytes::Bytes;
use dray_types::{ByteSize, OperationId, Sha256Digest};
use proptest::prelude::*;

use super::{TestStore, noise, tenant};
use crate::{ArtifactLabel, MAX_TRANSFER_BYTES, PART_BYTES};

/// Writes in chunks of the given sizes, repeatedly in this order.
async fn write(fixture: &TestStore, bytes: &Bytes, chunks: &[usize]) -> dray_types::Claim {
    let mut writer = fixture
        .store
        .writer(&tenant("acme"), &OperationId::mint(), 1);
    let mut rest = bytes.clone();
    for size in chunks.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let chunk = rest.split_to(rest.len().min(*size));
        writer.write(chunk).await.unwrap();
    }
    assert_eq!(writer.size(), bytes.len() as u64);
    writer
        .finish(ArtifactLabel::new("text/plain", "a.txt"))
        .await
        .unwrap()
}

#[tokio::test]
async fn every_size_around_the_limits_is_read_back() {
    let fixture = TestStore::new().await;
    let mib = 1 << 20;
    for size in [
        0,
        1,
        64 << 10,
        (64 << 10) + 1,
        PART_BYTES - 1,
        PART_BYTES,
        PART_BYTES + 1,
        MAX_TRANSFER_BYTES,
        2 * PART_BYTES,
        16 * mib - 1,
        16 * mib,
        16 * mib + 1,
    ] {
        let bytes = noise(size, size as u64);
        let written = write(&fixture, &bytes, &[100_000]).await;
        assert_eq!(written.artifact.size, size as u64);
        assert_eq!(written.artifact.sha256, Sha256Digest::of(&bytes), "{size}");
        let read = fixture.read(&tenant("acme"), &written).await.unwrap();
        assert!(read == bytes, "{size}");

        let put = fixture.put(&tenant("other"), bytes.clone()).await;
        assert_eq!(put.artifact.sha256, written.artifact.sha256);
        assert!(
            fixture.read(&tenant("other"), &put).await.unwrap() == bytes,
            "{size}"
        );
    }
    let files = fixture.files();
    assert_eq!(
        files.len(),
        24,
        "one file per artifact and nothing staged: {files:?}"
    );
    assert!(
        files
            .iter()
            .all(|file| file.starts_with("objects/drayage/cas/")),
        "{files:?}"
    );
}

#[tokio::test]
async fn the_same_bytes_are_one_object_with_the_labels_of_each_claim() {
    let fixture = TestStore::new().await;
    let acme = tenant("acme");
    let first = fixture.put(&acme, "same").await;
    let label = ArtifactLabel::new("text/csv", "other.csv");
    let second = fixture
        .store
        .put(&acme, &OperationId::mint(), "same".into(), label)
        .await
        .unwrap();
    assert_eq!(first.artifact.key(), second.artifact.key());
    assert_eq!(second.artifact.name, "other.csv");
    assert_eq!(fixture.files().len(), 1);
}

#[tokio::test]
async fn tenants_never_share_an_object() {
    let fixture = TestStore::new().await;
    let (acme, rival) = (tenant("acme"), tenant("rival"));
    let claim = fixture.put(&acme, "secret").await;

    let digest = claim.artifact.sha256;
    assert_eq!(fixture.store.find(&acme, digest).await.unwrap(), Some(6));
    assert_eq!(fixture.store.find(&rival, digest).await.unwrap(), None);

    let error = fixture.read(&rival, &claim).await.unwrap_err();
    assert!(matches!(error, crate::ReadError::ForeignTenant));
    let lifetime = std::time::Duration::from_mins(10);
    let error = fixture
        .store
        .presign_get(&rival, &claim, lifetime)
        .await
        .unwrap_err();
    assert!(matches!(error, crate::PresignError::ForeignTenant));

    // A claim rewritten to the rival tenant refers to that tenant's key, which has no object.
    let mut forged = claim;
    forged.artifact.tenant = rival.clone();
    forged.created_at_ms = 0;
    let error = fixture.read(&rival, &forged).await.unwrap_err();
    assert!(matches!(error, crate::ReadError::Missing));
}

#[tokio::test]
async fn a_claim_of_another_store_is_refused() {
    let fixture = TestStore::new().await;
    let acme = tenant("acme");
    let mut claim = fixture.put(&acme, "bytes").await;
    claim.store = "elsewhere".to_owned();
    let error = fixture.read(&acme, &claim).await.unwrap_err();
    assert!(matches!(error, crate::ReadError::UnknownStore(alias) if alias == "elsewhere"));
}

#[tokio::test]
async fn read_head_reads_no_more_than_its_limit() {
    let fixture = TestStore::new().await;
    let acme = tenant("acme");
    let content = noise(1000, 1);
    let claim = fixture.put(&acme, content.clone()).await;
    for (max_bytes, expected) in [(0, 0), (1, 1), (999, 999), (1000, 1000), (2000, 1000)] {
        let reader = fixture.store.read(&acme, &claim, fixture.deadline()).await;
        let head = reader.unwrap().read_head(max_bytes).await.unwrap();
        assert_eq!(head, content[..expected], "{max_bytes}");
    }
}

#[tokio::test]
async fn read_all_reads_no_more_than_its_limit() {
    let fixture = TestStore::new().await;
    let acme = tenant("acme");
    let claim = fixture.put(&acme, noise(1000, 1)).await;
    let open = async || {
        fixture
            .store
            .read(&acme, &claim, fixture.deadline())
            .await
            .unwrap()
    };
    let error = open()
        .await
        .read_all(ByteSize::bytes(999))
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        crate::ReadError::TooLarge {
            size: 1000,
            limit: 999
        }
    ));
    assert_eq!(
        open()
            .await
            .read_all(ByteSize::bytes(1000))
            .await
            .unwrap()
            .len(),
        1000
    );
}

#[tokio::test]
async fn an_aborted_or_dropped_writer_leaves_nothing() {
    let fixture = TestStore::new().await;
    for dropped in [false, true] {
        let mut writer = fixture
            .store
            .writer(&tenant("acme"), &OperationId::mint(), 1);
        writer.write(noise(3 * PART_BYTES, 7)).await.unwrap();
        if dropped {
            drop(writer);
        } else {
            writer.abort().await;
        }
        fixture.store.settle().await;
        assert_eq!(fixture.files(), Vec::<String>::new(), "dropped: {dropped}");
    }
}

#[test]
fn any_chunking_gives_the_same_artifact() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fixture = Arc::new(runtime.block_on(TestStore::new()));
    let bytes = noise(PART_BYTES + PART_BYTES / 2, 9);
    let digest = Sha256Digest::of(&bytes);
    let sizes = prop_oneof![
        1_usize..3000,
        10_000_usize..40_000,
        500_000_usize..7_000_000
    ];
    let config = ProptestConfig::with_cases(12);
    proptest!(config, |(chunks in proptest::collection::vec(sizes, 1..6), cut in 0..PART_BYTES)| {
        // Only small chunks would make thousands of them.
        let mut chunks = chunks;
        chunks.push(1 << 20);
        let part = bytes.slice(cut..);
        let claim = runtime.block_on(write(&fixture, &part, &chunks));
        prop_assert_eq!(claim.artifact.sha256, Sha256Digest::of(&part));
        let read = runtime.block_on(fixture.read(&tenant("acme"), &claim)).unwrap();
        prop_assert!(read == part);
    });
    let whole = runtime.block_on(write(&fixture, &bytes, &[333_333]));
    assert_eq!(whole.artifact.sha256, digest);
}
