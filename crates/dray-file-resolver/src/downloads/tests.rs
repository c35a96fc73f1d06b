//! The index of one process.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use dray_types::Secret;

use super::*;

fn downloads(max_entries: usize) -> DownloadIndex {
    let limits = DownloadLimits {
        lifetime: Period::secs(60),
        max_entries,
    };
    DownloadIndex::new(Clock::system(), limits)
}

fn key(tenant: &str, url: &str, policy: Option<&v1::AppPolicy>) -> DownloadKey {
    DownloadKey::new(
        TenantId::new(tenant).unwrap(),
        DownloadScope::Request("r".to_owned()),
        LoadTarget::External(url.to_owned()),
        ByteSize::mib(1),
        (&CallerCredentials::default(), policy),
    )
}

fn loaded_file(bytes: &'static [u8]) -> LoadedFile {
    LoadedFile {
        content: ContentSource::Inline(Bytes::from_static(bytes)),
        size: bytes.len() as u64,
        sha256: Sha256Digest::of(bytes),
        media_type: String::new(),
    }
}

/// Loads under a key and returns the number of loads so far.
async fn load(downloads: &DownloadIndex, key: DownloadKey, count: &AtomicU32) {
    let load = async {
        tokio::task::yield_now().await;
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, ()>(loaded_file(b""))
    };
    downloads.get_or_load(key, load).await.unwrap();
}

#[tokio::test]
async fn concurrent_and_later_callers_share_one_load_of_an_empty_file() {
    let (downloads, count) = (downloads(9), AtomicU32::new(0));
    let same = || load(&downloads, key("a", "u", None), &count);
    tokio::join!(same(), same(), same());
    same().await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn another_tenant_url_policy_limit_or_credential_loads_by_itself() {
    let (downloads, count) = (downloads(99), AtomicU32::new(0));
    let denied = v1::AppPolicy {
        enabled: Some(false),
        ..v1::AppPolicy::default()
    };
    let dial = |secret: &str| {
        let credentials = CallerCredentials {
            api_key: Secret::new(secret),
            ..CallerCredentials::default()
        };
        let path = dray_dial::FileUrl::parse("files/b/a").unwrap();
        DownloadKey {
            limit: ByteSize::mib(2),
            ..DownloadKey::new(
                TenantId::new("a").unwrap(),
                DownloadScope::Request("r".to_owned()),
                LoadTarget::Dial(path),
                ByteSize::mib(1),
                (&credentials, None),
            )
        }
    };
    let keys = [
        key("a", "u", None),
        key("b", "u", None),
        key("a", "v", None),
        key("a", "u", Some(&denied)),
        DownloadKey {
            limit: ByteSize::mib(2),
            ..key("a", "u", None)
        },
        dial("one"),
        dial("two"),
    ];
    let expected = u32::try_from(keys.len()).unwrap();
    for _ in 0..2 {
        for key in keys.clone() {
            load(&downloads, key, &count).await;
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), expected);
}

#[tokio::test]
async fn a_failure_is_not_kept_and_the_next_caller_loads() {
    let (downloads, count) = (downloads(9), AtomicU32::new(0));
    let failed = downloads
        .get_or_load(key("a", "u", None), async { Err::<LoadedFile, _>("no") })
        .await;
    assert_eq!(failed, Err("no"));
    load(&downloads, key("a", "u", None), &count).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn loads_that_failed_or_were_dropped_leave_no_entry() {
    let downloads = downloads(9);
    let fail = |url: String| {
        let downloads = downloads.clone();
        async move {
            let load = async {
                tokio::task::yield_now().await;
                Err::<LoadedFile, _>("no")
            };
            let key = key("a", &url, None);
            downloads.get_or_load(key, load).await.unwrap_err();
        }
    };
    for number in 0..100 {
        let url = number.to_string();
        tokio::join!(fail(url.clone()), fail(url.clone()), fail(url));
    }
    let forever = std::future::pending::<Result<LoadedFile, ()>>();
    let dropped = downloads.get_or_load(key("a", "u", None), forever);
    tokio::select! {
        biased;
        _ = dropped => unreachable!("the load never ends"),
        () = std::future::ready(()) => {}
    }
    assert!(downloads.lock().entries.is_empty());
}

#[tokio::test]
async fn the_least_recently_used_load_goes_first_and_the_index_stays_bounded() {
    let (downloads, count) = (downloads(2), AtomicU32::new(0));
    for url in ["1", "2", "1", "3", "1"] {
        load(&downloads, key("a", url, None), &count).await;
    }
    assert_eq!(
        count.load(Ordering::SeqCst),
        3,
        "1 was used last and stayed"
    );
    load(&downloads, key("a", "2", None), &count).await;
    assert_eq!(count.load(Ordering::SeqCst), 4);
    assert_eq!(downloads.lock().entries.len(), 2);
}

#[tokio::test]
async fn a_load_ends_with_its_lifetime_or_when_it_is_forgotten() {
    let clock = Clock::manual(1_000);
    let limits = DownloadLimits {
        lifetime: Period::secs(60),
        max_entries: 9,
    };
    let (downloads, count) = (DownloadIndex::new(clock.clone(), limits), AtomicU32::new(0));
    load(&downloads, key("a", "u", None), &count).await;
    clock.advance(std::time::Duration::from_secs(59));
    load(&downloads, key("a", "u", None), &count).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    clock.advance(std::time::Duration::from_secs(1));
    load(&downloads, key("a", "u", None), &count).await;
    assert_eq!(count.load(Ordering::SeqCst), 2);
    downloads.forget(&key("a", "u", None)).await;
    load(&downloads, key("a", "u", None), &count).await;
    assert_eq!(count.load(Ordering::SeqCst), 3);
}
