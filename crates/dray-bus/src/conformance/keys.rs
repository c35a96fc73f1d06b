//! Keys with compare-and-set.

use std::time::Duration;

use futures_util::FutureExt as _;

use super::{BusFixture, on_both, outgoing_message, wait_soon};
use crate::{KeyError, TransportError};

on_both!(
    a_key_is_created_once,
    a_key_is_written_with_and_without_an_existing_value,
    a_key_is_changed_only_at_its_revision,
    a_deleted_key_is_gone_and_can_be_created_again,
    an_unknown_bucket_is_an_error,
    keys_of_one_bucket_do_not_affect_each_other,
    a_listing_of_a_prefix_omits_deleted_keys,
    changes_are_read_in_order_from_a_revision,
    a_watch_gets_a_notice_of_each_write_of_its_key,
    a_key_is_written_in_order_while_no_other_key_changes,
    a_message_that_was_not_written_as_a_key_is_not_a_value,
    an_entry_of_an_earlier_version_is_a_value,
);

async fn test_bucket(fixture: &BusFixture) -> crate::KeyValue {
    fixture.provision(Duration::from_secs(30)).await;
    fixture.bus.key_value("dray_ledger")
}

async fn a_key_is_created_once(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    assert_eq!(keys.get("a.b").await.unwrap(), None);
    let revision = keys.create("a.b", "one".into()).await.unwrap();
    let entry = keys.get("a.b").await.unwrap().unwrap();
    assert_eq!(
        (entry.value.as_ref(), entry.revision),
        (&b"one"[..], revision)
    );
    assert!(entry.time_ms.abs_diff(fixture.clock.now_ms()) < 60_000);
    assert!(matches!(
        keys.create("a.b", "two".into()).await,
        Err(KeyError::Exists)
    ));
}

async fn a_key_is_written_with_and_without_an_existing_value(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    for value in ["one", "two"] {
        let revision = keys.create_or_update("a.b", value.into()).await.unwrap();
        let entry = keys.get("a.b").await.unwrap().unwrap();
        assert_eq!(
            (entry.value.as_ref(), entry.revision),
            (value.as_bytes(), revision)
        );
    }
    let entry = keys.get("a.b").await.unwrap().unwrap();
    keys.delete("a.b", entry.revision).await.unwrap();
    keys.create_or_update("a.b", "three".into()).await.unwrap();
    let entry = keys.get("a.b").await.unwrap().unwrap();
    assert_eq!(entry.value.as_ref(), b"three");
}

async fn a_key_is_changed_only_at_its_revision(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let first = keys.create("a", "one".into()).await.unwrap();
    let second = keys.update("a", "two".into(), first).await.unwrap();
    assert!(second > first);
    assert!(matches!(
        keys.update("a", "three".into(), first).await,
        Err(KeyError::Stale)
    ));
    assert!(matches!(
        keys.update("never", "three".into(), first).await,
        Err(KeyError::Stale)
    ));
    assert_eq!(keys.get("a").await.unwrap().unwrap().value, "two");
}

async fn a_deleted_key_is_gone_and_can_be_created_again(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let revision = keys.create("a", "one".into()).await.unwrap();
    assert!(matches!(
        keys.delete("a", revision + 7).await,
        Err(KeyError::Stale)
    ));
    keys.delete("a", revision).await.unwrap();
    assert_eq!(keys.get("a").await.unwrap(), None);
    let repeated = keys.create("a", "two".into()).await.unwrap();
    assert!(repeated > revision);
    assert!(matches!(
        keys.create("a", "x".into()).await,
        Err(KeyError::Exists)
    ));
}

async fn an_unknown_bucket_is_an_error(fixture: BusFixture) {
    let keys = fixture.bus.key_value("nowhere");
    let read = keys.get("a").await;
    // A server of the floor version leaves this unanswered.
    assert!(matches!(read, Err(KeyError::Transport(_))), "{read:?}");
    assert!(matches!(
        keys.create("a", "x".into()).await,
        Err(KeyError::Transport(TransportError::NotProvisioned(_)))
    ));
}

async fn keys_of_one_bucket_do_not_affect_each_other(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let first = keys.create("a", "1".into()).await.unwrap();
    keys.create("a.b", "2".into()).await.unwrap();
    keys.update("a", "3".into(), first).await.unwrap();
    assert_eq!(keys.get("a.b").await.unwrap().unwrap().value, "2");
}

async fn a_listing_of_a_prefix_omits_deleted_keys(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let names = |listing: &crate::KeyListing| {
        let names: Vec<_> = listing.entries.iter().map(|(key, _)| key.clone()).collect();
        (names.join(" "), listing.truncated)
    };
    assert_eq!(
        keys.list("a", 9).await.unwrap(),
        crate::KeyListing::default()
    );
    let first = keys.create("a.1", "one".into()).await.unwrap();
    keys.create("ab.1", "other".into()).await.unwrap();
    let second = keys.create("a.2", "two".into()).await.unwrap();
    keys.create("a.b.3", "three".into()).await.unwrap();
    keys.update("a.1", "four".into(), first).await.unwrap();
    let listing = keys.list("a", 9).await.unwrap();
    assert_eq!(names(&listing), ("a.2 a.b.3 a.1".to_owned(), false));
    assert_eq!(listing.entries[2].1.value, "four");
    keys.delete("a.2", second).await.unwrap();
    assert_eq!(
        names(&keys.list("a", 1).await.unwrap()),
        ("a.b.3".to_owned(), true)
    );
    assert_eq!(
        names(&keys.list("a", 2).await.unwrap()),
        ("a.b.3 a.1".to_owned(), false)
    );
    assert_eq!(keys.list("", 9).await.unwrap().entries.len(), 3);
    assert!(matches!(
        keys.list("a.*", 9).await,
        Err(KeyError::InvalidKey(_))
    ));
}

async fn changes_are_read_in_order_from_a_revision(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    assert_eq!(keys.next("", 0).await.unwrap(), None);
    let first = keys.create("a.1", "one".into()).await.unwrap();
    let second = keys.create("b.1", "two".into()).await.unwrap();
    let change = keys.next("", 0).await.unwrap().unwrap();
    assert_eq!((change.key.as_str(), change.revision), ("a.1", first));
    assert_eq!(change.value.as_deref(), Some(&b"one"[..]));
    let change = keys.next("", first + 1).await.unwrap().unwrap();
    assert_eq!((change.key.as_str(), change.revision), ("b.1", second));
    keys.delete("a.1", first).await.unwrap();
    let change = keys.next("a", first + 1).await.unwrap().unwrap();
    assert_eq!((change.key.as_str(), change.value), ("a.1", None));
    assert_eq!(keys.next("a", change.revision + 1).await.unwrap(), None);
}

async fn a_watch_gets_a_notice_of_each_write_of_its_key(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let other = fixture.another().await.key_value("dray_ledger");
    let mut watch = other.watch("a.b").await.unwrap();
    keys.create("a.c", "other".into()).await.unwrap();
    keys.create("a", "other".into()).await.unwrap();
    let revision = keys.create("a.b", "one".into()).await.unwrap();
    assert!(watch.changed().await);
    assert_eq!(watch.changed().now_or_never(), None, "of other keys");
    assert_eq!(keys.get("a.b").await.unwrap().unwrap().revision, revision);
    keys.update("a.b", "two".into(), revision).await.unwrap();
    assert!(watch.changed().await);
    let entry = keys.get("a.b").await.unwrap().unwrap();
    keys.delete("a.b", entry.revision).await.unwrap();
    assert!(watch.changed().await);
    assert!(matches!(
        other.watch("a.*").await,
        Err(KeyError::InvalidKey(_))
    ));
}

async fn a_key_is_written_in_order_while_no_other_key_changes(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let first = keys.create("a", "one".into()).await.unwrap();
    let second = keys
        .write_in_order("b", Some("two".into()), 0, first)
        .await
        .unwrap();
    assert_eq!(second, first + 1);
    for (key, revision, bucket) in [("a", first, first), ("c", 0, first), ("b", first, second)] {
        let written = keys
            .write_in_order(key, Some("late".into()), revision, bucket)
            .await;
        assert!(matches!(written, Err(KeyError::Stale)), "{key}");
    }
    let third = keys.write_in_order("a", None, first, second).await.unwrap();
    assert_eq!(keys.get("a").await.unwrap(), None);
    keys.write_in_order("a", Some("again".into()), third, third)
        .await
        .unwrap();
    assert_eq!(keys.get("a").await.unwrap().unwrap().value, "again");
}

/// The revision at which a key holds a message that was not written as a key.
async fn foreign_revision(keys: &crate::KeyValue, key: &str) -> u64 {
    match keys.get(key).await {
        Err(KeyError::Foreign {
            key: found,
            revision,
            ..
        }) if found == key => revision,
        other => panic!("{other:?}"),
    }
}

async fn a_message_that_was_not_written_as_a_key_is_not_a_value(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let old = keys.create("a.1", "one".into()).await.unwrap();
    let kept = keys.create("a.2", "two".into()).await.unwrap();
    for header in [None, Some(("Dray-Key", "$KV.dray_ledger.a.2"))] {
        let mut message = outgoing_message("$KV.dray_ledger.a.1", "", "{}");
        if let Some((name, value)) = header {
            message.headers.append(name, value);
        }
        let stored = fixture.backend().store(&message, Duration::from_secs(5));
        let revision = stored.await.unwrap().sequence;
        assert_eq!(foreign_revision(&keys, "a.1").await, revision);
        let next = keys.next("a", kept + 1).await;
        assert!(
            matches!(&next, Err(KeyError::Foreign { revision: found, .. }) if *found == revision),
            "{next:?}"
        );
    }
    let listing = keys.list("a", 9).await.unwrap();
    let entries = listing.entries.iter();
    let listed: Vec<_> = entries.map(|(key, _)| key.as_str()).collect();
    assert_eq!((listed, listing.truncated), (vec!["a.2"], false));
    let created = keys.create("a.1", "three".into()).await;
    assert!(
        matches!(created, Err(KeyError::Foreign { .. })),
        "{created:?}"
    );
    assert!(matches!(
        keys.update("a.1", "three".into(), old).await,
        Err(KeyError::Stale)
    ));
}

async fn an_entry_of_an_earlier_version_is_a_value(fixture: BusFixture) {
    let keys = test_bucket(&fixture).await;
    let mut message = outgoing_message("$KV.dray_ledger.a.b", "", "one");
    let expected = "Nats-Expected-Last-Subject-Sequence";
    message.headers.append(expected, "0");
    let stored = fixture.backend().store(&message, Duration::from_secs(5));
    stored.await.unwrap();
    let entry = keys.get("a.b").await.unwrap().unwrap();
    assert_eq!(entry.value, "one");
    keys.update("a.b", "two".into(), entry.revision)
        .await
        .unwrap();
    assert_eq!(keys.get("a.b").await.unwrap().unwrap().value, "two");
}

/// A client of a server may name any subject for the reply to its request, and the server publishes there.
#[tokio::test]
async fn replies_of_the_server_are_not_values() {
    let fixture = BusFixture::on_nats().await;
    let keys = test_bucket(&fixture).await;
    keys.create("own.a", "chosen".into()).await.unwrap();
    for (number, request) in [
        "dray.work.toolcall.v1.resolve.acme",
        "$JS.API.STREAM.INFO.DRAY_WORK",
        "$JS.API.DIRECT.GET.KV_dray_ledger.$KV.dray_ledger.own.a",
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("others.{number}");
        let mut watch = keys.watch(&key).await.unwrap();
        let reply = format!("$KV.dray_ledger.{key}");
        let message = outgoing_message(request, "", "");
        let sent = fixture.backend().publish(Some(&reply), &message);
        sent.await.unwrap();
        assert!(wait_soon("the reply of the server", watch.changed()).await);
        // The notice may be faster than the stream.
        wait_soon("the stored reply", async {
            while let Ok(None) = keys.get(&key).await {
                tokio::task::yield_now().await;
            }
        })
        .await;
        foreign_revision(&keys, &key).await;
    }
    assert_eq!(keys.get("own.a").await.unwrap().unwrap().value, "chosen");
}
