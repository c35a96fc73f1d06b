//! Tests of the lifetimes of objects (messaging-reliability K-6).

use std::time::Duration;

use dray_types::{Claim, OperationId};

use super::{TestStore, noise, tenant};
use crate::{ArtifactLabel, PART_BYTES, SweepReport};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

async fn put(store: &crate::Store, text: &'static str) -> Claim {
    store
        .put(
            &tenant("acme"),
            &OperationId::mint(),
            text.into(),
            ArtifactLabel::default(),
        )
        .await
        .unwrap()
}

#[tokio::test]
async fn the_sweep_removes_exactly_the_objects_past_their_lifetime() {
    let fixture = TestStore::new().await;
    fixture.put(&tenant("acme"), "finished").await;
    fixture.overwrite("stage/op/1/orphan", "orphan").await;
    let mut unfinished = fixture
        .store
        .writer(&tenant("acme"), &OperationId::mint(), 1);
    unfinished.write(noise(2 * PART_BYTES, 1)).await.unwrap();
    // After `kill -9` the destructor does not run either.
    std::mem::forget(unfinished);

    let (store, clock) = fixture.at(fixture.clock.now_ms()).await;
    assert_eq!(store.sweep().await.unwrap(), SweepReport::default());
    clock.advance(Duration::from_millis(DAY_MS + 60_000));
    let report = store.sweep().await.unwrap();
    assert_eq!((report.finished, report.staged, report.uploads), (0, 1, 1));
    clock.advance(Duration::from_millis(14 * DAY_MS - 120_000));
    assert_eq!(store.sweep().await.unwrap(), SweepReport::default());
    clock.advance(Duration::from_mins(2));
    let report = store.sweep().await.unwrap();
    assert_eq!(
        (report.finished, report.staged, report.uploads, report.bytes),
        (1, 0, 0, 8)
    );
    assert_eq!(fixture.files(), Vec::<String>::new());
}

#[tokio::test]
async fn a_claim_never_outlives_its_object() {
    let fixture = TestStore::new().await;
    let now = fixture.clock.now_ms();
    let (store, clock) = fixture.at(now).await;
    let first = put(&store, "same").await;
    assert_eq!(first.expires_at_ms, now + 15 * DAY_MS);

    // If it is claimed again within a day, the object keeps its age and the claim says so.
    clock.advance(Duration::from_millis(DAY_MS / 2));
    let second = put(&store, "same").await;
    assert_eq!(second.created_at_ms, now + DAY_MS / 2);
    assert!(second.expires_at_ms.abs_diff(now + 15 * DAY_MS) < 60_000);
}

#[tokio::test]
async fn an_old_object_that_is_claimed_again_gets_a_new_lifetime() {
    let fixture = TestStore::new().await;
    let now = fixture.clock.now_ms();
    let claim = fixture.put(&tenant("acme"), "same").await;
    set_modified(&fixture, now - 14 * DAY_MS);
    let repeated = fixture.put(&tenant("acme"), "same").await;
    assert!(repeated.expires_at_ms >= now + 15 * DAY_MS);
    let (store, clock) = fixture.at(now).await;
    clock.advance(Duration::from_millis(2 * DAY_MS));
    assert_eq!(store.sweep().await.unwrap(), SweepReport::default());
    assert_eq!(fixture.read(&tenant("acme"), &claim).await.unwrap(), "same");
}

/// Sets the time at which the only object of the store was last changed.
fn set_modified(fixture: &TestStore, unix_ms: u64) {
    let file = fixture.directory.path().join(&fixture.files()[0]);
    let time = std::time::UNIX_EPOCH + Duration::from_millis(unix_ms);
    let times = std::fs::FileTimes::new().set_modified(time);
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_times(times).unwrap();
}

#[tokio::test]
async fn the_claim_of_a_copy_never_outlives_it() {
    let fixture = TestStore::new().await;
    let now = fixture.clock.now_ms();
    let acme = tenant("acme");
    let writer = fixture.store.writer(&acme, &OperationId::mint(), 1);
    let mut writer = writer.cached();
    writer.write("same".into()).await.unwrap();
    let cached = writer.finish(ArtifactLabel::default()).await.unwrap();
    set_modified(&fixture, now - 14 * DAY_MS);
    let deadline = fixture.deadline();
    let kept = fixture.store.keep(&acme, &cached, deadline).await.unwrap();
    assert!(kept.expires_at_ms >= now + 15 * DAY_MS);
    let (store, clock) = fixture.at(now).await;
    clock.advance(Duration::from_millis(2 * DAY_MS));
    assert_eq!(store.sweep().await.unwrap(), SweepReport::default());
    assert_eq!(fixture.read(&acme, &kept).await.unwrap(), "same");
}

#[tokio::test]
async fn the_sweep_continues_over_many_pages() {
    let fixture = TestStore::new().await;
    for number in 0..1003 {
        let name = format!("objects/drayage/stage/op/{number}/x@");
        let file = fixture.directory.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        if number == 0 {
            fixture.overwrite("stage/op/0/x", "x").await;
        } else {
            let first = fixture
                .directory
                .path()
                .join("objects/drayage/stage/op/0/x@");
            std::fs::hard_link(first, file).unwrap();
        }
    }
    let (store, _) = fixture.at(fixture.clock.now_ms() + 2 * DAY_MS).await;
    assert_eq!(store.sweep().await.unwrap().staged, 1003);
    assert_eq!(fixture.files(), Vec::<String>::new());
}
