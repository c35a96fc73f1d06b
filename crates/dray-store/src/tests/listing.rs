//! Lists of the embedded endpoint.

use bytes::Bytes;
use dray_types::{OperationId, Sha256Digest, TenantId};

use super::TestStore;
use crate::ArtifactLabel;

/// All keys, read in pages.
async fn list(fixture: &TestStore, prefix: &str, page: i32) -> Vec<String> {
    let client = &fixture.store.inner.clients.inside;
    let mut pages = client
        .list_objects_v2()
        .bucket(&fixture.options.bucket)
        .prefix(prefix)
        .into_paginator()
        .page_size(page)
        .send();
    let mut keys = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.unwrap();
        keys.extend(
            page.contents()
                .iter()
                .map(|object| object.key().unwrap().to_owned()),
        );
    }
    keys
}

#[tokio::test]
async fn keys_are_listed_in_byte_order_for_every_page_size() {
    let fixture = TestStore::new().await;
    let mut keys = [
        "a", "a-b", "a/b", "a/b/c", "a/b-c", "a//b", "a.b", "b", "ab", "a/ä", "z/..", "z/.", "Z",
        "a@", "a/b@",
    ];
    for key in keys {
        fixture.overwrite(key, "x").await;
    }
    keys.sort_unstable();
    for page in [1, 2, 3, 1000] {
        assert_eq!(list(&fixture, "", page).await, keys, "{page}");
    }
    for prefix in ["a", "a/", "a/b", "z/.", "nothing"] {
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).collect();
        for page in [1, 1000] {
            let listed = list(&fixture, prefix, page).await;
            assert!(
                listed.iter().eq(expected.iter().copied()),
                "{prefix} {page}: {listed:?}"
            );
        }
    }
}

#[tokio::test]
async fn finished_content_is_listed_by_digest_in_pages_and_for_one_tenant_only() {
    let fixture = TestStore::new().await;
    let acme = TenantId::new("acme").unwrap();
    // The name `acme2` begins with that of the other tenant.
    let longer = TenantId::new("acme2").unwrap();
    let put = async |tenant: &TenantId, text: String| {
        let label = ArtifactLabel::new("text/plain", "a.txt");
        let operation = OperationId::mint();
        let put = fixture
            .store
            .put(tenant, &operation, Bytes::from(text), label);
        put.await.unwrap()
    };
    let mut expected: Vec<Sha256Digest> = Vec::new();
    for number in 0..5 {
        expected.push(put(&acme, format!("file {number}")).await.artifact.sha256);
        put(&longer, format!("another {number}")).await;
    }
    expected.sort_by_key(|digest| digest.to_hex());
    fixture.overwrite("cas/acme/zz/not-a-digest", "x").await;
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = fixture.store.finished(&acme, after, 2).await.unwrap();
        assert!(page.objects.len() <= 2, "{page:?}");
        for object in &page.objects {
            assert_eq!(object.bytes, 6);
            assert!(object.expires_at_ms > object.stored_at_ms, "{object:?}");
        }
        found.extend(page.objects.iter().map(|object| object.sha256));
        after = found.last().copied();
        if !page.truncated {
            break;
        }
    }
    assert_eq!(found, expected);
    let other = TenantId::new("acm").unwrap();
    let none = fixture.store.finished(&other, None, 10).await.unwrap();
    assert!(none.objects.is_empty(), "{none:?}");
}
