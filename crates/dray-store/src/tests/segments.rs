//! Segments: staged content is verified when it is read, and expires.

use bytes::Bytes;
use dray_types::{ByteSize, OperationId};

use super::{TestStore, noise};
use crate::{MAX_SEGMENT_BYTES, PutError, ReadError};

#[tokio::test]
async fn segments_are_read_back_until_they_are_removed() {
    let fixture = TestStore::new().await;
    let operation = OperationId::mint();
    let bytes = noise(MAX_SEGMENT_BYTES, 1);
    let segment = fixture
        .store
        .stage_segment(&operation, bytes.clone())
        .await
        .unwrap();
    let reader = fixture
        .store
        .read_segment(&operation, &segment, fixture.deadline())
        .await
        .unwrap();
    assert_eq!(reader.read_all(ByteSize::mib(8)).await.unwrap(), bytes);

    fixture
        .store
        .remove_segment(&operation, &segment)
        .await
        .unwrap();
    let gone = fixture
        .store
        .read_segment(&operation, &segment, fixture.deadline())
        .await;
    assert!(matches!(gone, Err(ReadError::Missing)));
    assert!(
        fixture
            .files()
            .iter()
            .all(|file| !file.contains("segments"))
    );
}

#[tokio::test]
async fn a_segment_with_other_bytes_is_not_read_to_its_end() {
    let fixture = TestStore::new().await;
    let operation = OperationId::mint();
    let segment = fixture
        .store
        .stage_segment(&operation, Bytes::from_static(b"abc"))
        .await
        .unwrap();
    let name = uuid::Uuid::from_bytes(segment.name).simple();
    let key = format!("stage/{operation}/segments/{name}");
    fixture.overwrite(&key, "abd").await;
    let reader = fixture
        .store
        .read_segment(&operation, &segment, fixture.deadline())
        .await
        .unwrap();
    let read = reader.read_all(ByteSize::mib(1)).await;
    assert!(matches!(read, Err(ReadError::Mismatch("digest"))));
}

#[tokio::test]
async fn a_segment_above_the_limit_is_refused() {
    let fixture = TestStore::new().await;
    let staged = fixture
        .store
        .stage_segment(&OperationId::mint(), noise(MAX_SEGMENT_BYTES + 1, 1))
        .await;
    assert!(matches!(staged, Err(PutError::TooLarge { .. })));
}
