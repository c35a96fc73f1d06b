//! Records in a directory and in a bucket behave the same.

use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use dray_bus::test_bus;
use dray_types::Clock;

use crate::records::{RecordError, TicketRecords};

async fn check_records(records: &TicketRecords) {
    assert!(records.get("ticket.a").await.unwrap().is_none());
    let value = Bytes::from_static(b"1");
    let first = records.put("ticket.a", value.clone(), 0).await.unwrap();
    assert!(matches!(
        records.put("ticket.a", value.clone(), 0).await,
        Err(RecordError::Stale)
    ));
    let second = Bytes::from_static(b"2");
    let next = records
        .put("ticket.a", second.clone(), first)
        .await
        .unwrap();
    assert!(matches!(
        records.put("ticket.a", value.clone(), first).await,
        Err(RecordError::Stale)
    ));
    assert_eq!(records.get("ticket.a").await.unwrap(), Some((second, next)));
    records.put("usage.a", value, 0).await.unwrap();
    assert_eq!(records.keys("ticket", 10).await.unwrap(), ["ticket.a"]);
    assert!(matches!(
        records.delete("ticket.a", first).await,
        Err(RecordError::Stale)
    ));
    records.delete("ticket.a", next).await.unwrap();
    assert!(records.get("ticket.a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_directory_compares_and_sets() {
    let directory = tempfile::tempdir().unwrap();
    check_records(&TicketRecords::directory(directory.path()).unwrap()).await;
}

#[tokio::test]
async fn a_bucket_compares_and_sets() {
    let bus = test_bus::in_process(&Clock::system()).await;
    check_records(&TicketRecords::key_value(bus.key_value("dray_sessions"))).await;
}

#[tokio::test]
async fn records_survive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let before = TicketRecords::directory(directory.path()).unwrap();
    let value = Bytes::from_static(b"1");
    let revision = before.put("ticket.a", value.clone(), 0).await.unwrap();
    drop(before);
    let after = TicketRecords::directory(directory.path()).unwrap();
    assert_eq!(
        after.get("ticket.a").await.unwrap(),
        Some((value, revision))
    );
}

#[tokio::test]
async fn a_new_directory_and_its_files_are_for_their_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tickets");
    let records = TicketRecords::directory(&path).unwrap();
    let value = Bytes::from_static(b"1");
    records.put("ticket.a", value, 0).await.unwrap();
    for (name, mode) in [("", 0o700), (".lock", 0o600), ("ticket.a", 0o600)] {
        let metadata = std::fs::metadata(path.join(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name:?}");
    }
}
