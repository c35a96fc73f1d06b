//! Copies of objects that are too large for one request, with ranges of a size that a test can copy.

use bytes::Bytes;

use super::{TestStore, noise};
use crate::checksum::{Crc64, ObjectChecksum};
use crate::object::{self, ObjectCopy};
use crate::request::RequestError;
use crate::upload::copy::{LargeCopy, copy_in_parts};

const SOURCE_KEY: &str = "stage/copy/source";
const TARGET_KEY: &str = "cas/copy/target";
const PART_BYTES: u64 = 5 << 20;

async fn put(fixture: &TestStore, bytes: &Bytes) -> Option<String> {
    let sum = ObjectChecksum::Crc64(Crc64::of(std::slice::from_ref(bytes)));
    object::put_object(
        &fixture.store.inner,
        SOURCE_KEY,
        vec![bytes.clone()],
        sum,
        None,
    )
    .await
    .unwrap();
    head(fixture, SOURCE_KEY).await.unwrap().tag
}

async fn head(fixture: &TestStore, key: &str) -> Option<object::ObjectHead> {
    object::head_object(&fixture.store.inner, key, None)
        .await
        .unwrap()
}

fn copy(bytes: &Bytes, tag: Option<String>) -> LargeCopy<'static> {
    LargeCopy {
        copy: ObjectCopy {
            from: SOURCE_KEY,
            to: TARGET_KEY,
            tag,
            create: true,
        },
        size: bytes.len() as u64,
        crc64: Some(Crc64::of(std::slice::from_ref(bytes))),
        part_bytes: PART_BYTES,
    }
}

#[tokio::test]
async fn a_copy_in_parts_equals_the_object_and_is_made_once() {
    let fixture = TestStore::new().await;
    let bytes = noise((11 << 20) + 7, 1);
    let tag = put(&fixture, &bytes).await;
    let inner = &fixture.store.inner;
    copy_in_parts(inner, &copy(&bytes, tag.clone()), None)
        .await
        .unwrap();
    let copied = head(&fixture, TARGET_KEY).await.unwrap();
    assert_eq!(copied.size, bytes.len() as u64);
    assert_eq!(copied.crc64, Some(Crc64::of(std::slice::from_ref(&bytes))));
    let digest = object::read_digest(inner, TARGET_KEY, &copied, None)
        .await
        .unwrap();
    assert_eq!(digest, dray_types::Sha256Digest::of(&bytes));
    let repeated = copy_in_parts(inner, &copy(&bytes, tag), None).await;
    assert!(
        matches!(repeated, Err(RequestError::Exists)),
        "{repeated:?}"
    );
    // The parts of the second attempt were removed.
    assert!(
        !fixture.files().iter().any(|file| file.contains("uploads/")),
        "{:?}",
        fixture.files()
    );
}

#[tokio::test]
async fn a_copy_of_another_object_than_was_checked_is_not_visible() {
    let fixture = TestStore::new().await;
    let bytes = noise(6 << 20, 1);
    put(&fixture, &bytes).await;
    let inner = &fixture.store.inner;
    let other = copy_in_parts(inner, &copy(&bytes, Some("\"other\"".to_owned())), None).await;
    assert!(matches!(other, Err(RequestError::Exists)), "{other:?}");
    let missing = LargeCopy {
        copy: ObjectCopy {
            from: "stage/copy/missing",
            ..copy(&bytes, None).copy
        },
        ..copy(&bytes, None)
    };
    let missing = copy_in_parts(inner, &missing, None).await;
    assert!(matches!(missing, Err(RequestError::Missing)), "{missing:?}");
    let longer = LargeCopy {
        size: bytes.len() as u64 + 1,
        ..copy(&bytes, None)
    };
    assert!(copy_in_parts(inner, &longer, None).await.is_err());
    assert!(head(&fixture, TARGET_KEY).await.is_none());
    assert!(
        !fixture.files().iter().any(|file| file.contains("uploads/")),
        "{:?}",
        fixture.files()
    );
}
