//! Tests of uploads in parts at the embedded endpoint, as other clients make them.

use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::{Bytes, BytesMut};

use super::{TestStore, noise};

const MIB_BYTES: usize = 1 << 20;
const OTHER_KEY: &str = "other/key";

struct TestParts {
    client: Client,
    bucket: String,
    id: String,
}

impl TestParts {
    async fn start(fixture: &TestStore) -> Self {
        let client = fixture.store.inner.clients.inside.clone();
        let bucket = fixture.options.bucket.clone();
        let answer = client
            .create_multipart_upload()
            .bucket(&bucket)
            .key(OTHER_KEY)
            .send()
            .await;
        let id = answer.unwrap().upload_id().unwrap().to_owned();
        Self { client, bucket, id }
    }

    async fn send(&self, number: i32, bytes: &Bytes) -> CompletedPart {
        let answer = self
            .client
            .upload_part()
            .bucket(&self.bucket)
            .key(OTHER_KEY)
            .upload_id(&self.id)
            .part_number(number)
            .body(bytes.clone().into())
            .send()
            .await
            .unwrap();
        CompletedPart::builder()
            .part_number(number)
            .e_tag(answer.e_tag().unwrap())
            .build()
    }

    /// The error code, when there is one.
    async fn complete(&self, parts: Vec<CompletedPart>) -> Result<(), String> {
        let parts = CompletedMultipartUpload::builder()
            .set_parts(Some(parts))
            .build();
        self.client
            .complete_multipart_upload()
            .bucket(&self.bucket)
            .key(OTHER_KEY)
            .upload_id(&self.id)
            .multipart_upload(parts)
            .send()
            .await
            .map(drop)
            .map_err(|error| error.code().unwrap_or_default().to_owned())
    }

    async fn read(&self) -> Bytes {
        let answer = self
            .client
            .get_object()
            .bucket(&self.bucket)
            .key(OTHER_KEY)
            .send()
            .await;
        answer.unwrap().body.collect().await.unwrap().into_bytes()
    }
}

/// Sends parts of these sizes in this order of numbers, completes with all of them, and compares.
async fn check(sizes: &[usize], order: &[usize]) {
    let fixture = TestStore::new().await;
    let upload = TestParts::start(&fixture).await;
    let mut whole = BytesMut::new();
    let mut bodies = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        let body = noise(*size, index as u64 + 1);
        whole.extend_from_slice(&body);
        bodies.push(body);
    }
    let mut sent = vec![None; sizes.len()];
    for index in order {
        let number = i32::try_from(index + 1).unwrap();
        sent[*index] = Some(upload.send(number, &bodies[*index]).await);
    }
    let sent = sent.into_iter().map(Option::unwrap).collect();
    upload.complete(sent).await.unwrap();
    assert!(upload.read().await == whole, "{sizes:?} {order:?}");
    assert_eq!(
        fixture.files(),
        ["objects/drayage/other/key@"],
        "{sizes:?} {order:?}"
    );
}

#[tokio::test]
async fn parts_of_any_sizes_in_any_order_become_the_object() {
    let (five, six) = (5 * MIB_BYTES, 6 * MIB_BYTES);
    check(&[1000], &[0]).await;
    check(&[0], &[0]).await;
    check(&[five, five, 1], &[0, 1, 2]).await;
    check(&[five, five, 1], &[2, 1, 0]).await;
    check(&[five, five, five], &[1, 2, 0]).await;
    check(&[six, five, 17], &[0, 1, 2]).await;
    check(&[five, six, 17], &[0, 1, 2]).await;
    check(&[five, five, six], &[0, 1, 2]).await;
}

#[tokio::test]
async fn a_part_that_is_uploaded_again_replaces_the_first() {
    let fixture = TestStore::new().await;
    let upload = TestParts::start(&fixture).await;
    let (old, new, last) = (
        noise(5 * MIB_BYTES, 1),
        noise(5 * MIB_BYTES, 2),
        noise(100, 3),
    );
    let stale = upload.send(1, &old).await;
    let second = upload.send(2, &last).await;
    let first = upload.send(1, &new).await;
    let error = upload
        .complete(vec![stale, second.clone()])
        .await
        .unwrap_err();
    assert_eq!(error, "InvalidPart");
    upload.complete(vec![first, second]).await.unwrap();
    assert!(upload.read().await == [new, last].concat());
}

#[tokio::test]
async fn parts_that_are_not_named_are_left_out() {
    let fixture = TestStore::new().await;
    let upload = TestParts::start(&fixture).await;
    let bodies = [
        noise(5 * MIB_BYTES, 1),
        noise(5 * MIB_BYTES, 2),
        noise(5 * MIB_BYTES, 3),
    ];
    let mut sent = Vec::new();
    for (number, body) in (1..).zip(&bodies) {
        sent.push(upload.send(number, body).await);
    }
    sent.remove(1);
    upload.complete(sent).await.unwrap();
    assert!(upload.read().await == [&bodies[0][..], &bodies[2][..]].concat());

    let upload = TestParts::start(&fixture).await;
    let first = upload.send(1, &bodies[0]).await;
    upload.send(2, &bodies[1]).await;
    upload.complete(vec![first]).await.unwrap();
    assert!(upload.read().await == bodies[0]);
}

#[tokio::test]
async fn invalid_completions_are_refused_and_the_upload_continues() {
    let fixture = TestStore::new().await;
    let upload = TestParts::start(&fixture).await;
    let small = upload.send(1, &noise(5 * MIB_BYTES - 1, 1)).await;
    let second = upload.send(2, &noise(1000, 2)).await;
    let never = CompletedPart::builder().part_number(3).e_tag("x").build();
    for (parts, code) in [
        (vec![small.clone(), second.clone()], "EntityTooSmall"),
        (vec![second.clone(), small.clone()], "InvalidPartOrder"),
        (vec![never], "InvalidPart"),
        (vec![], "InvalidPart"),
    ] {
        let error = upload.complete(parts).await.unwrap_err();
        assert!(
            error == code || error == "MalformedXML",
            "{error} instead of {code}"
        );
    }
    upload.complete(vec![second.clone()]).await.unwrap();
    assert_eq!(upload.read().await.len(), 1000);
    assert_eq!(
        upload.complete(vec![second]).await.unwrap_err(),
        "NoSuchUpload"
    );
}

#[tokio::test]
async fn quota_is_released_for_parts_that_are_replaced_aborted_or_left_out() {
    let fixture = TestStore::with_capacity(24 << 20).await;
    for _ in 0..4 {
        let upload = TestParts::start(&fixture).await;
        let first = upload.send(1, &noise(5 * MIB_BYTES, 1)).await;
        upload.send(2, &noise(5 * MIB_BYTES, 2)).await;
        upload.send(2, &noise(5 * MIB_BYTES, 3)).await;
        upload.complete(vec![first]).await.unwrap();
        let upload = TestParts::start(&fixture).await;
        upload.send(1, &noise(5 * MIB_BYTES, 4)).await;
        upload
            .client
            .abort_multipart_upload()
            .bucket(&upload.bucket)
            .key(OTHER_KEY)
            .upload_id(&upload.id)
            .send()
            .await
            .unwrap();
    }
    // Only one object remains, so there is space for this.
    fixture
        .put(&super::tenant("acme"), noise(16 * MIB_BYTES, 5))
        .await;
}
