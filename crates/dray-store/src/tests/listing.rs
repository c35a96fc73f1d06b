//! Lists of the embedded endpoint.

use super::TestStore;

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
async fn keys_come_in_byte_order_for_every_page_size() {
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
