//! Conversions that were made before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_documents::formats::Converted;
use dray_reading::cache::{Cache, CacheKey};
use dray_reading::policy::Policy;
use dray_reading::record::Outcome;
use dray_reading::request::Request;

use crate::fixture::{ReaderFixture, read, unframe};

/// Keeps conversions in memory, and counts the stores and the hits.
#[derive(Default)]
struct CountingCache {
    conversions: Mutex<HashMap<CacheKey, Converted>>,
    puts: AtomicUsize,
    hits: AtomicUsize,
}

#[async_trait]
impl Cache for CountingCache {
    async fn get(&self, key: &CacheKey) -> Option<Converted> {
        let cached = self.conversions.lock().unwrap().get(key).cloned();
        self.hits
            .fetch_add(usize::from(cached.is_some()), Ordering::SeqCst);
        cached
    }

    async fn put(&self, key: &CacheKey, value: &Converted) {
        self.puts.fetch_add(1, Ordering::SeqCst);
        let mut conversions = self.conversions.lock().unwrap();
        conversions.insert(*key, value.clone());
    }
}

impl CountingCache {
    fn counts(&self) -> (usize, usize) {
        (
            self.puts.load(Ordering::SeqCst),
            self.hits.load(Ordering::SeqCst),
        )
    }
}

#[tokio::test]
async fn equal_content_is_converted_once_under_every_name() {
    let fixture = ReaderFixture::with(&[
        ("a.txt", b"same"),
        ("b.txt", b"same"),
        ("c.txt", b"other"),
        ("d.csv", b"same"),
    ]);
    let cache = Arc::new(CountingCache::default());
    let reader = fixture.reader(Policy::default()).with_cache(cache.clone());
    for (path, counts) in [
        ("a.txt", (1, 0)),
        ("a.txt", (1, 1)),
        ("b.txt", (1, 2)),
        ("c.txt", (2, 2)),
        ("d.csv", (3, 2)),
    ] {
        let record = read(&reader, &Request::of_path(path)).await;
        assert_eq!(record.outcome, Outcome::Inline);
        assert!(unframe(&record.output).0.contains(path));
        assert_eq!(cache.counts(), counts, "{path}");
    }
    let mut request = Request::of_path("a.txt");
    request.range = Some("lines 1".to_owned());
    read(&reader, &request).await;
    assert_eq!(
        cache.counts(),
        (3, 3),
        "lines are cut from the same conversion"
    );
}

#[tokio::test]
async fn concurrent_callers_share_one_conversion() {
    let fixture = ReaderFixture::with(&[("a.txt", b"shared")]);
    let cache = Arc::new(CountingCache::default());
    let reader = fixture.reader(Policy::default()).with_cache(cache.clone());
    let request = Request::of_path("a.txt");
    let (a, b, c) = tokio::join!(
        read(&reader, &request),
        read(&reader, &request),
        read(&reader, &request)
    );
    for record in [a, b, c] {
        assert_eq!(unframe(&record.output).1, "shared");
    }
    assert_eq!(cache.counts(), (1, 2));
}
